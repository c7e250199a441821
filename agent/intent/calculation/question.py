"""The parts of a question, which of them a calculation has used, and the calculation that results."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.intent.calculation.describing import names_state
from agent.intent.calculation.part import FIELD, FILLER, MARK, NUMBER, PIECE, UNIT, UNKNOWN, Part
from agent.intent.calculation.parts import says
from agent.intent.catalogue import truth_of
from agent.intent.columns import Columns
from agent.intent.date_fields import is_main_unclear, main_date
from agent.intent.filter_json import Json
from agent.intent.found import Found, Piece, date_field
from agent.intent.numbers import NUMBER as NUMBER_OF
from agent.intent.numbers import unit_of
from agent.intent.words import table

LINKING = (FILLER, MARK, "by", "name_of")
"""Kinds of parts that are skipped in the search for a neighbour."""


class Unclear(Exception):
    """The question is ambiguous or not calculable, so it gets no calculation. The message says why."""


@dataclass(slots=True)
class Question:
    """The parts of a question, and what the calculation has used of them so far.

    A `place` is the index of a part in `parts`. A record is one document, with its metadata.

    Attributes:
        found: the constraints and dates that the question states.
        columns: the metadata fields in scope.
        used: places of the parts that the calculation accounts for.
        taken: fields and group expressions that the calculation uses.
        within: more conditions on the counted records: no row "Total", amounts in one currency.
        absent: conditions that something is missing or zero: "with no medals".
        kinds: the kinds of all parts.
    """

    found: Found
    columns: Columns
    parts: tuple[Part, ...]
    used: set[int] = field(default_factory=set)
    taken: set[str] = field(default_factory=set)
    within: list[Json] = field(default_factory=list)
    absent: list[Json] = field(default_factory=list)
    kinds: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = frozenset(part.kind for part in self.parts)

    def says(self, kind: str) -> bool:
        """Return whether a word of the class `kind` occurs anywhere in the question, even inside a constraint."""
        return self.has(kind) or says(self.found.sentence, kind)

    def of_kind(self, *kinds: str) -> list[int]:
        """Return the indices of the parts of these kinds, in order."""
        return [place for place, part in enumerate(self.parts) if part.kind in kinds]

    def take(self, *kinds: str) -> bool:
        """Mark all parts of these kinds as used; return whether there are any."""
        places = self.of_kind(*kinds)
        self.used.update(places)
        return bool(places)

    def has(self, *kinds: str) -> bool:
        """Return whether a part has one of these kinds."""
        return not self.kinds.isdisjoint(kinds)

    def beside(self, place: int, step: int, *, over: tuple[str, ...] = LINKING) -> int | None:
        """Return the index of the nearest part before (step -1) or after (step 1) the part `place`, or None.

        Args:
            over: kinds of parts to skip.
        """
        place += step
        while 0 <= place < len(self.parts):
            if self.parts[place].kind not in over:
                return place
            place += step
        return None

    def unread(self) -> list[str]:
        """Return the words that may restrict the records but are not used; any such word prevents the calculation."""
        negated = _is_negated(self.found)
        words = []
        for place, part in enumerate(self.parts):
            if place in self.used or (part.is_soft and not self._names_number(part)):
                continue
            if part.kind in ("negation", "lacking") and (negated or self._is_denied_flag(place)):
                continue
            if part.kind == "or" and _is_chosen(self.found):
                continue
            if part.kind in (UNIT, UNKNOWN) and self._is_own_unit(part):
                continue
            if part.kind in ("more_than", "fewer_than") and self._leads_to_name(place):
                continue
            if part.kind == "classifies" and place and self.parts[place - 1].kind == PIECE:
                continue  # 打包类 ("packaging category"): 类 only says that the name is a category
            if part.kind == NUMBER and self.found.sentence.text[part.start : part.end] == "一":
                continue  # 一门课 ("a course") means any course
            if part.kind == FIELD and self._is_said_by_piece(place):
                continue
            words.append(self.found.sentence.text[part.start : part.end])
        return words

    def _names_number(self, part: Part) -> bool:
        """Return whether a word for people names a numeric field that counts people: "employees" -> `emp_cnt`."""
        return part.kind == "people" and part.strength >= 3 and not self.columns.measures.keys().isdisjoint(part.fields)

    def _is_denied_flag(self, place: int) -> bool:
        """Return whether the part after the negation `place` demands the value "false": "had no [quorum]"."""
        behind = self.beside(place, 1)
        piece = self.parts[behind].piece if behind is not None else None
        truth = truth_of(self.columns.vocabulary.catalogue.fields[piece.field]) if piece is not None else None
        return piece is not None and truth is not None and str(piece.filter.get("value")) == truth[False]

    def _leads_to_name(self, place: int) -> bool:
        """Return whether "under" (`place`) introduces values to compare, no bound: "more under Safety or under Law"."""
        piece = self.parts[place + 1].piece if place + 1 < len(self.parts) else None
        labels = piece is not None and self.columns.vocabulary.roles.get(piece.field) in ("label", "tag")
        return bool(labels and piece is not None and piece.filter["type"] == "in")

    def _is_own_unit(self, part: Part) -> bool:
        """Return whether a word is the only unit of a numeric field in the calculation: "the total fine in euros"."""
        text = self.found.sentence.text[part.start : part.end]
        units = [self.columns.measures[name].units for name in self.taken if name in self.columns.measures]
        return any(len(one) == 1 and (one[0] == unit_of(text) or one[0].kind == text.casefold()) for one in units)

    def _is_said_by_piece(self, place: int) -> bool:
        """Return whether the field name `place` adds no condition of its own.

        A constraint or the calculation uses the field already, or the name means a date that every record has.
        """
        part = self.parts[place]
        if self.is_state(place):
            return False
        if part.strength <= 2 and place and self.parts[place - 1].kind == FIELD and self._is_said_by_piece(place - 1):
            return True  # 产品类别 ("product category"): 类别 only completes the name
        before = self.beside(place, -1)
        if before in self.used and self.parts[before].fields == part.fields:
            return True  # "each lecturer [supervised]"
        stated = {one.piece.field for one in self.parts if one.piece is not None}
        if stated & set(part.fields) or (part.strength <= 2 and self.taken & set(part.fields)):
            return True
        dates = set(self.columns.dates())
        return set(part.fields) <= dates and any(self.columns.is_everywhere(name) for name in part.fields)

    def is_state(self, place: int) -> bool:
        """Return whether a word for date fields states a condition on the records: "how many loans are [out]"."""
        part = self.parts[place]
        if part.kind != FIELD or not set(part.fields) <= set(self.columns.dates()):
            return False
        stated = not self.constrained().isdisjoint(part.fields)
        return names_state(self.found.sentence, part, stated=stated)

    def fields(self, *, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Part]]:
        """Yield (index, part) for each part that names fields and states no constraint; start <= index < end."""
        for place, part in enumerate(self.parts[:end]):
            if place >= start and part.fields and part.kind != PIECE:
                yield place, part

    def group_of(self, part: Part) -> str | None:
        """Return the field that a part names and by which records can be grouped; None if there is none or several.

        Of several, fields that do not hold people and then fields without a constraint are preferred. If several are
        left, a vague word (strength 2 or less) means the first.
        """
        names = [name for name in part.fields if self.columns.is_group(name)]
        if len(names) > 1:
            names = [name for name in names if name not in self.columns.people()] or names
            free = [name for name in names if name not in self.constrained()]
            names = free or names
        return names[0] if len(names) == 1 or (names and part.strength <= 2) else None

    def number_of(self, part: Part) -> str | None:
        """Return the one numeric field that a part names, see `expressed`; None if it names none or several."""
        names = [name for name in part.fields if name in self.columns.measures]
        return self.expressed(names[0]) if len(names) == 1 else None

    def expressed(self, name: str) -> str:
        """Return the expression of an aggregate for a numeric field: `price`, or `number(price)` if it holds texts.

        Also add the field to `taken`. If the field has amounts in several currencies, only those in the currency that
        the question names are used.

        Raises:
            Unclear: the field has texts that are no plain numbers ("1:02:30"), or currencies that are not named.
        """
        self.taken.add(name)
        if not self.columns.measures[name].is_plain:
            raise Unclear("texts that are not plain numbers")
        if len(self.columns.measures[name].units) > 1:
            self._keep_to_unit(name)
        return NUMBER_OF.format(name) if self.columns.measures[name].texts else name

    def _keep_to_unit(self, name: str) -> None:
        """Add a condition to `within` that limits a field's amounts to the currency that the question names.

        Raises:
            Unclear: the question names none of the field's currencies, or several.
        """
        measure = self.columns.measures[name]
        said = {unit_of(token.folded) for token in self.found.sentence.tokens} & set(measure.units)
        if len(said) != 1:
            raise Unclear("amounts in several units")
        text = next(text for text, (_, unit) in measure.texts.items() if unit in said)
        sign = "".join(c for c in text if not (c.isdigit() or c in ".,+-")).strip()
        kept: Json = {"type": "prefix" if text.startswith(sign) else "contains", "key": name, "value": sign}
        if kept not in self.within:
            self.within.append(kept)

    def constrained(self) -> set[str]:
        """Return the fields on which the parts of the question state constraints."""
        return {part.piece.field for part in self.parts if part.piece is not None}

    def is_condition(self, name: str) -> bool:
        """Return whether the question states a bound ("over 500") on a numeric field.

        Args:
            name: the field, or `number(FIELD)` for numbers written as text.
        """
        bare = name.removeprefix("number(").rstrip(")")
        return any(one.field == bare for one in self.found.numbers)

    def selects_one(self, filter: Json) -> bool:
        """Return whether a condition demands a value of a key field (`Columns.keys`) that only one document has."""
        name, value = str(filter.get("key")), filter.get("value")
        is_key = filter["type"] == "eq" and name in self.columns.keys
        return is_key and self.columns.vocabulary.catalogue.fields[name].values.get(str(value), 0) == 1

    def date(self) -> str | None:
        """Return the date field to order or group by, or None if the documents have no date.

        It is the field of the first date in the question ("in 2023"), else the first date field that the question names
        ("submitted"), else the main date field of the documents.

        Raises:
            Unclear: the question names no date field, and several fields may be the main one.
        """
        if self.found.dates and (of_range := date_field(self.found.sentence, self.found.dates[0])):
            return of_range
        dates = self.columns.dates()
        named = [name for _, part in self.fields() for name in part.fields if name in dates]
        if not named and is_main_unclear(self.columns.vocabulary):
            raise Unclear("several date fields")
        return named[0] if named else main_date(self.columns.vocabulary)

    def periods_of(self, date: str, function: str) -> str:
        """Return the expression to group by periods of a date field: `month(created)` for `created` and "month".

        If the field's values are such periods already, return the name of the field alone.

        Raises:
            Unclear: the field's values are periods of another length: months, but quarters are asked for.
        """
        units = self.columns.vocabulary.units.get(date)
        if units is None:
            return f"{function}({date})"
        if function not in units.functions:
            raise Unclear("periods of another length than those of the field")
        return date


def _is_negated(found: Found) -> bool:
    """Return whether a constraint excludes values or sets an upper bound, which accounts for a word of negation."""
    filters = [piece.filter for piece in (*found.pieces, *found.lengths)]
    return any(one.negated for one in found.constraints) or any(
        one["type"] in ("ne", "nin", "not", "lt", "lte")
        or (one["type"] in ("exists", "eq") and (one["value"] is False or one["value"] == 0))
        or one["type"] == "or"
        for one in filters
    )


def _is_chosen(found: Found) -> bool:
    """Return whether an "or" is accounted for: it joins values or dates, or at most one field has a constraint."""
    fields = {piece.field for piece in found.pieces}
    dated = fields & set(found.sentence.vocabulary.of_role("date"))
    several = any(len(one.values) > 1 or one.also for one in found.constraints)
    return several or (len(found.dates) > 1 and len(dated) < 2) or len(fields) < 2


@dataclass(frozen=True, slots=True)
class Calculation:
    """A calculation over the metadata of the records that satisfy some constraints.

    Attributes:
        aggregate: the calculation, as JSON of `retrievers.core.aggregates`.
        pieces: the constraints that select the records; the condition of a share is in `aggregate` instead.
        sure: True if the words ask for the calculation; False if it is only likely, because the question
            consists of names and values of fields.
        assumed: nouns taken for the documents only because of their position. They are no condition, so the documents
            of every sort are counted.
    """

    aggregate: Json
    pieces: tuple[Piece, ...]
    sure: bool = True
    assumed: tuple[str, ...] = ()


def words_of_kind(question: Question, kind: str) -> tuple[str, ...]:
    text = question.found.sentence.text
    return tuple(text[question.parts[place].start : question.parts[place].end] for place in question.of_kind(kind))


def hindering_words(question: Question) -> tuple[str, ...]:
    """Return the words and phrases that prevent any calculation: "why", or a neighbour in a list ("listed after")."""
    text = question.found.sentence.text.casefold()
    beside = (phrase for phrase in table("calculation")["beside"] if phrase in text)
    return (*words_of_kind(question, "hindering"), *beside)


def pieces_of(question: Question) -> tuple[Piece, ...]:
    """Return the constraints of `found`, then those that only `parts` have: on names of records and on ranks."""
    pieces = list(question.found.pieces)
    stated = {str(piece.filter) for piece in (*pieces, *question.found.lengths)}
    for part in question.parts:
        if part.piece is not None and str(part.piece.filter) not in stated:
            pieces.append(part.piece)
            stated.add(str(part.piece.filter))
    return tuple(pieces)
