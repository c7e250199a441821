"""The parts of a question, a record of which parts a calculation has used, and the resulting calculation."""

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


class Unclear(Exception):
    """The words are ambiguous or cannot be calculated, so nothing is calculated."""


@dataclass(slots=True)
class Question:
    """The parts of a question, and which of them the slots have used."""

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
        """Return whether a word of a class occurs anywhere, including inside a constraint."""
        return self.has(kind) or says(self.found.sentence, kind)

    def of_kind(self, *kinds: str) -> list[int]:
        """Return the indices of the parts of these kinds."""
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
        """Return the index of the nearest part before (-1) or after (1) a place, skipping the kinds in `over`."""
        place += step
        while 0 <= place < len(self.parts):
            if self.parts[place].kind not in over:
                return place
            place += step
        return None

    def unread(self) -> list[str]:
        """Return the words that no slot has used, except those that restrict nothing."""
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
                continue  # 打包类
            if part.kind == NUMBER and self.found.sentence.text[part.start : part.end] == "一":
                continue  # 一门课 means any course
            if part.kind == FIELD and self._is_said_by_piece(place):
                continue
            words.append(self.found.sentence.text[part.start : part.end])
        return words

    def _names_number(self, part: Part) -> bool:
        """Return whether a word for people names a number of them: "employees" for emp_cnt."""
        return part.kind == "people" and part.strength >= 3 and not self.columns.measures.keys().isdisjoint(part.fields)

    def _is_denied_flag(self, place: int) -> bool:
        """Return whether the denied part after a place is a true/false field that must be false: "had no [quorum]"."""
        behind = self.beside(place, 1)
        piece = self.parts[behind].piece if behind is not None else None
        truth = truth_of(self.columns.vocabulary.catalogue.fields[piece.field]) if piece is not None else None
        return piece is not None and truth is not None and str(piece.filter.get("value")) == truth[False]

    def _leads_to_name(self, place: int) -> bool:
        """Return whether "under" introduces labels to compare, and no number: "more under Safety or under Law".

        Before a single label it may be a comparison: "ranked below Chile".
        """
        piece = self.parts[place + 1].piece if place + 1 < len(self.parts) else None
        labels = piece is not None and self.columns.vocabulary.roles.get(piece.field) in ("label", "tag")
        return bool(labels and piece is not None and piece.filter["type"] == "in")

    def _is_own_unit(self, part: Part) -> bool:
        """Return whether a unit is that of a numeric field that was used: "the total fine in euros"."""
        text = self.found.sentence.text[part.start : part.end]
        units = [self.columns.measures[name].units for name in self.taken if name in self.columns.measures]
        return any(len(one) == 1 and (one[0] == unit_of(text) or one[0].kind == text.casefold()) for one in units)

    def _is_said_by_piece(self, place: int) -> bool:
        """Return whether a word for a field only introduces its value, or repeats what every record has."""
        part = self.parts[place]
        if self.is_state(place):
            return False
        if part.strength <= 2 and place and self.parts[place - 1].kind == FIELD and self._is_said_by_piece(place - 1):
            return True  # 产品类别
        before = self.beside(place, -1)
        if before in self.used and self.parts[before].fields == part.fields:
            return True  # "each lecturer [supervised]"
        stated = {one.piece.field for one in self.parts if one.piece is not None}
        if stated & set(part.fields) or (part.strength <= 2 and self.taken & set(part.fields)):
            return True
        dates = set(self.columns.dates())
        return set(part.fields) <= dates and any(self.columns.is_everywhere(name) for name in part.fields)

    def is_state(self, place: int) -> bool:
        """Return whether a word for date fields says which records are meant: "how many loans are [out]"."""
        part = self.parts[place]
        if part.kind != FIELD or not set(part.fields) <= set(self.columns.dates()):
            return False
        stated = not self.constrained().isdisjoint(part.fields)
        return names_state(self.found.sentence, part, stated=stated)

    def fields(self, *, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Part]]:
        """Yield the index and part of each part that points at fields, from `start` to before `end`."""
        for place, part in enumerate(self.parts[:end]):
            if place >= start and part.fields and part.kind != PIECE:
                yield place, part

    # Columns.

    def group_of(self, part: Part) -> str | None:
        """Return the field to group by that the words of a part mean; None if there is none or several."""
        names = [name for name in part.fields if self.columns.is_group(name)]
        if len(names) > 1:
            names = [name for name in names if name not in self.columns.people()] or names
            free = [name for name in names if name not in self.constrained()]
            names = free or names
        return names[0] if len(names) == 1 or (names and part.strength <= 2) else None

    def number_of(self, part: Part) -> str | None:
        """Return the expression of the one numeric field that a part names; None if it names none or several."""
        names = [name for name in part.fields if name in self.columns.measures]
        return self.expressed(names[0]) if len(names) == 1 else None

    def expressed(self, name: str) -> str:
        """Return a numeric field as an expression of the aggregates; numbers written as text are converted.

        Raises:
            Unclear: its texts are no plain numbers, or its amounts have several units and the question names none.
        """
        self.taken.add(name)
        if not self.columns.measures[name].is_plain:
            raise Unclear("texts that are not plain numbers")
        if len(self.columns.measures[name].units) > 1:
            self._keep_to_unit(name)
        return NUMBER_OF.format(name) if self.columns.measures[name].texts else name

    def _keep_to_unit(self, name: str) -> None:
        """Limit amounts in several currencies to the currency that the question names.

        Raises:
            Unclear: none is named, or several are.
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
        """Return the fields with a value in the question."""
        return {part.piece.field for part in self.parts if part.piece is not None}

    def is_condition(self, name: str) -> bool:
        """Return whether the question states a bound on a field."""
        bare = name.removeprefix("number(").rstrip(")")
        return any(one.field == bare for one in self.found.numbers)

    def selects_one(self, filter: Json) -> bool:
        """Return whether a condition selects a single document by the value of a key."""
        name, value = str(filter.get("key")), filter.get("value")
        is_key = filter["type"] == "eq" and name in self.columns.keys
        return is_key and self.columns.vocabulary.catalogue.fields[name].values.get(str(value), 0) == 1

    def date(self) -> str | None:
        """Return the date field to order or group by: the one named in the question, else the main date, or None.

        Raises:
            Unclear: none is named, and several may be meant.
        """
        if self.found.dates and (of_range := date_field(self.found.sentence, self.found.dates[0])):
            return of_range
        dates = self.columns.dates()
        named = [name for _, part in self.fields() for name in part.fields if name in dates]
        if not named and is_main_unclear(self.columns.vocabulary):
            raise Unclear("several date fields")
        return named[0] if named else main_date(self.columns.vocabulary)

    def periods_of(self, date: str, function: str) -> str:
        """Return the expression for the periods of a date field: `month(created)`; a field of such periods itself.

        Raises:
            Unclear: the field holds other periods, months for example if quarters are asked for.
        """
        units = self.columns.vocabulary.units.get(date)
        if units is None:
            return f"{function}({date})"
        if function not in units.functions:
            raise Unclear("periods of another length than those of the field")
        return date


def _is_negated(found: Found) -> bool:
    filters = [piece.filter for piece in (*found.pieces, *found.lengths)]
    return any(one.negated for one in found.constraints) or any(
        one["type"] in ("ne", "nin", "not", "lt", "lte")
        or (one["type"] in ("exists", "eq") and (one["value"] is False or one["value"] == 0))
        or one["type"] == "or"
        for one in filters
    )


def _is_chosen(found: Found) -> bool:
    """Return whether an "or" of the question became alternatives, or its conditions are on one field at most."""
    fields = {piece.field for piece in found.pieces}
    dated = fields & set(found.sentence.vocabulary.of_role("date"))
    several = any(len(one.values) > 1 or one.also for one in found.constraints)
    return several or (len(found.dates) > 1 and len(dated) < 2) or len(fields) < 2


@dataclass(frozen=True, slots=True)
class Calculation:
    """An aggregate (the JSON of retrievers.core.aggregates) and the constraints that it applies to.

    Attributes:
        pieces: the constraints that filter the records; the condition of a share is not among them.
        sure: True if the words ask for the calculation; False if the question merely states nothing but metadata.
        assumed: words taken for names of the documents because of their position only; all documents are counted.
    """

    aggregate: Json
    pieces: tuple[Piece, ...]
    sure: bool = True
    assumed: tuple[str, ...] = ()


def words_of_kind(question: Question, kind: str) -> tuple[str, ...]:
    text = question.found.sentence.text
    return tuple(text[question.parts[place].start : question.parts[place].end] for place in question.of_kind(kind))


def hindering_words(question: Question) -> tuple[str, ...]:
    """Return the words that prevent a calculation, and those for a neighbour in a list: "listed after 3 May"."""
    text = question.found.sentence.text.casefold()
    beside = (phrase for phrase in table("calculation")["beside"] if phrase in text)
    return (*words_of_kind(question, "hindering"), *beside)


def pieces_of(question: Question) -> tuple[Piece, ...]:
    """Return the constraints of a question, including those on whole rows."""
    pieces = list(question.found.pieces)
    stated = {str(piece.filter) for piece in (*pieces, *question.found.lengths)}
    for part in question.parts:
        if part.piece is not None and str(part.piece.filter) not in stated:
            pieces.append(part.piece)
            stated.add(str(part.piece.filter))
    return tuple(pieces)
