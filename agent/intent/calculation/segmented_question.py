"""The segments of a question, which of them a calculation has used, and the calculation that results."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from agent.intent.analysis.field_linking import FieldIndex
from agent.intent.calculation.modifiers import states_condition
from agent.intent.calculation.segment import CONDITION, FIELD, FILLER, MARK, NUMBER, UNIT, UNKNOWN, Segment
from agent.intent.calculation.segmentation import has_word
from agent.intent.conditions.date_fields import is_main_date_unclear, main_date_field
from agent.intent.conditions.filter_json import Json
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.units import NUMBER as NUMBER_OF
from agent.intent.language.units import unit_of
from agent.intent.values.value_names import boolean_texts
from agent.intent.words import word_table

LINKING = (FILLER, MARK, "by", "name_of")
"""Kinds of segments that are skipped in the search for a neighbour."""

MAX_LIST_ROWS = 100
"""Maximum rows of a list, unless all are asked for."""


class UnclearCalculation(Exception):
    """The question is ambiguous or not calculable, so it gets no calculation. The message says why."""


@dataclass(slots=True)
class SegmentedQuestion:
    """The segments of a question, and what the calculation has used of them so far.

    An `index` is that of a segment in `segments`. A record is one document, with its metadata.

    Attributes:
        parsed: the constraints and dates that the question states.
        columns: the metadata fields in scope.
        used: indices of the segments that the calculation accounts for.
        used_fields: fields and group expressions that the calculation uses.
        extra_conditions: more conditions on the counted records: no row "Total", amounts in one currency.
        absence_conditions: conditions that something is missing or zero: "with no medals".
        kinds: the kinds of all segments.
    """

    parsed: ParsedQuestion
    columns: FieldIndex
    segments: tuple[Segment, ...]
    used: set[int] = field(default_factory=set)
    used_fields: set[str] = field(default_factory=set)
    extra_conditions: list[Json] = field(default_factory=list)
    absence_conditions: list[Json] = field(default_factory=list)
    kinds: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        self.kinds = frozenset(segment.kind for segment in self.segments)

    def has_word(self, kind: str) -> bool:
        """Return whether a word of the class `kind` occurs anywhere in the question, even inside a constraint."""
        return self.has_kind(kind) or has_word(self.parsed.sentence, kind)

    def indices_of(self, *kinds: str) -> list[int]:
        """Return the indices of the segments of these kinds, in order."""
        return [index for index, segment in enumerate(self.segments) if segment.kind in kinds]

    def mark_used(self, *kinds: str) -> bool:
        """Mark all segments of these kinds as used; return whether there are any."""
        indices = self.indices_of(*kinds)
        self.used.update(indices)
        return bool(indices)

    def has_kind(self, *kinds: str) -> bool:
        """Return whether a segment has one of these kinds."""
        return not self.kinds.isdisjoint(kinds)

    def neighbour(self, index: int, step: int, *, over: tuple[str, ...] = LINKING) -> int | None:
        """Return the index of the nearest segment before (step -1) or after (step 1) the segment `index`, or None.

        Args:
            over: kinds of segments to skip.
        """
        index += step
        while 0 <= index < len(self.segments):
            if self.segments[index].kind not in over:
                return index
            index += step
        return None

    def unread_words(self) -> list[str]:
        """Return the words that may restrict the records but are not used; any such word prevents the calculation."""
        negated = _explains_negation(self.parsed)
        words = []
        for index, segment in enumerate(self.segments):
            if index in self.used or (segment.is_ignorable and not self._is_people_number(segment)):
                continue
            if segment.kind in ("negation", "lacking") and (negated or self._is_denied_flag(index)):
                continue
            if segment.kind == "or" and _explains_or(self.parsed):
                continue
            if segment.kind in (UNIT, UNKNOWN) and self._is_only_unit(segment):
                continue
            if segment.kind in ("more_than", "fewer_than") and self._introduces_compared_values(index):
                continue
            if segment.kind == "classifies" and index and self.segments[index - 1].kind == CONDITION:
                continue  # 打包类 ("packaging category"): 类 only says that the name is a category
            if segment.kind == NUMBER and self.parsed.sentence.text[segment.start : segment.end] == "一":
                continue  # 一门课 ("a course") means any course
            if segment.kind == FIELD and self._adds_no_condition(index):
                continue
            words.append(self.parsed.sentence.text[segment.start : segment.end])
        return words

    def _is_people_number(self, segment: Segment) -> bool:
        """Return whether a word for people names a numeric field, with strength 3 or more: "employees" -> `emp_cnt`."""
        return (
            segment.kind == "people"
            and segment.strength >= 3
            and not self.columns.measures.keys().isdisjoint(segment.fields)
        )

    def _is_denied_flag(self, index: int) -> bool:
        """Return whether the segment after the negation `index` demands the value "false": "had no [quorum]"."""
        behind = self.neighbour(index, 1)
        condition = self.segments[behind].condition if behind is not None else None
        truth = (
            boolean_texts(self.columns.vocabulary.catalogue.fields[condition.field]) if condition is not None else None
        )
        return condition is not None and truth is not None and str(condition.filter.get("value")) == truth[False]

    def _introduces_compared_values(self, index: int) -> bool:
        """Return whether "under" (`index`) introduces values to compare, no bound: "more under Safety or under Law"."""
        condition = self.segments[index + 1].condition if index + 1 < len(self.segments) else None
        labels = condition is not None and self.columns.vocabulary.roles.get(condition.field) in ("label", "tag")
        return bool(labels and condition is not None and condition.filter["type"] == "in")

    def _is_only_unit(self, segment: Segment) -> bool:
        """Return whether a word is the only unit of a numeric field in the calculation: "the total fine in euros"."""
        text = self.parsed.sentence.text[segment.start : segment.end]
        units = [self.columns.measures[name].units for name in self.used_fields if name in self.columns.measures]
        return any(len(one) == 1 and (one[0] == unit_of(text) or one[0].kind == text.casefold()) for one in units)

    def _adds_no_condition(self, index: int) -> bool:
        """Return whether the field name `index` adds no condition of its own.

        A constraint or the calculation uses the field already, or the name means a date that every record has.
        """
        segment = self.segments[index]
        if self.is_state_condition(index):
            return False
        if (
            segment.strength <= 2
            and index
            and self.segments[index - 1].kind == FIELD
            and self._adds_no_condition(index - 1)
        ):
            return True  # 产品类别 ("product category"): 类别 only completes the name
        before = self.neighbour(index, -1)
        if before in self.used and self.segments[before].fields == segment.fields:
            return True  # "each lecturer [supervised]"
        stated = {one.condition.field for one in self.segments if one.condition is not None}
        if stated & set(segment.fields) or (segment.strength <= 2 and self.used_fields & set(segment.fields)):
            return True
        dates = set(self.columns.date_fields())
        return set(segment.fields) <= dates and any(self.columns.is_in_every_document(name) for name in segment.fields)

    def is_state_condition(self, index: int) -> bool:
        """Return whether a word for date fields states a condition on the records: "how many loans are [out]"."""
        segment = self.segments[index]
        if segment.kind != FIELD or not set(segment.fields) <= set(self.columns.date_fields()):
            return False
        stated = not self.constrained_fields().isdisjoint(segment.fields)
        return states_condition(self.parsed.sentence, segment, stated=stated)

    def field_segments(self, *, start: int = 0, end: int | None = None) -> Iterator[tuple[int, Segment]]:
        """Yield (index, segment) for each segment that names fields and states no constraint; start <= index < end."""
        for index, segment in enumerate(self.segments[:end]):
            if index >= start and segment.fields and segment.kind != CONDITION:
                yield index, segment

    def group_field(self, segment: Segment) -> str | None:
        """Return the field that a segment names and by which records can be grouped; None if there is none or several.

        Of several, fields that do not hold people and then fields without a constraint are preferred. If several are
        left, a vague word (strength 2 or less) means the first.
        """
        names = [name for name in segment.fields if self.columns.is_groupable(name)]
        if len(names) > 1:
            names = [name for name in names if name not in self.columns.person_fields()] or names
            free = [name for name in names if name not in self.constrained_fields()]
            names = free or names
        return names[0] if len(names) == 1 or (names and segment.strength <= 2) else None

    def numeric_field(self, segment: Segment) -> str | None:
        """Return the `field_expression` of the only numeric field that a segment names; None if there is no such."""
        names = [name for name in segment.fields if name in self.columns.measures]
        return self.field_expression(names[0]) if len(names) == 1 else None

    def field_expression(self, name: str) -> str:
        """Return the expression of an aggregate for a numeric field: `price`, or `number(price)` if it holds texts.

        Also add the field to `used_fields`. If the field has amounts in several currencies, use only those in the
        currency that the question names.

        Raises:
            UnclearCalculation: the field has texts that are no numbers ("1:02:30"), or currencies that are not named.
        """
        self.used_fields.add(name)
        if not self.columns.measures[name].is_plain:
            raise UnclearCalculation("texts that are not plain numbers")
        if len(self.columns.measures[name].units) > 1:
            self._limit_to_currency(name)
        return NUMBER_OF.format(name) if self.columns.measures[name].texts else name

    def _limit_to_currency(self, name: str) -> None:
        """Add a condition to `extra_conditions` that limits a field's amounts to the currency that the question names.

        Raises:
            UnclearCalculation: the question names none of the field's currencies, or several.
        """
        measure = self.columns.measures[name]
        said = {unit_of(token.folded) for token in self.parsed.sentence.tokens} & set(measure.units)
        if len(said) != 1:
            raise UnclearCalculation("amounts in several units")
        text = next(text for text, (_, unit) in measure.texts.items() if unit in said)
        sign = "".join(c for c in text if not (c.isdigit() or c in ".,+-")).strip()
        kept: Json = {"type": "prefix" if text.startswith(sign) else "contains", "key": name, "value": sign}
        if kept not in self.extra_conditions:
            self.extra_conditions.append(kept)

    def constrained_fields(self) -> set[str]:
        """Return the fields on which the segments of the question state constraints."""
        return {segment.condition.field for segment in self.segments if segment.condition is not None}

    def has_bound(self, name: str) -> bool:
        """Return whether the question states a bound ("over 500") on a numeric field.

        Args:
            name: the field, or `number(FIELD)` for numbers written as text.
        """
        bare = name.removeprefix("number(").rstrip(")")
        return any(one.field == bare for one in self.parsed.numbers)

    def selects_one_record(self, filter: Json) -> bool:
        """Return whether a condition demands a value of a key field (`FieldIndex.keys`) that only one document has."""
        name, value = str(filter.get("key")), filter.get("value")
        is_key_field = filter["type"] == "eq" and name in self.columns.key_fields
        return is_key_field and self.columns.vocabulary.catalogue.fields[name].values.get(str(value), 0) == 1

    def date_field(self) -> str | None:
        """Return the date field to order or group by, or None if the documents have no date.

        It is the field of the first date in the question ("in 2023"), else the first date field that the question names
        ("submitted"), else the main date field of the documents.

        Raises:
            UnclearCalculation: the question names no date field, and several fields may be the main one.
        """
        if self.parsed.dates and (of_range := self.parsed.dates[0].field):
            return of_range
        dates = self.columns.date_fields()
        named = [name for _, segment in self.field_segments() for name in segment.fields if name in dates]
        if not named and is_main_date_unclear(self.columns.vocabulary):
            raise UnclearCalculation("several date fields")
        return named[0] if named else main_date_field(self.columns.vocabulary)

    def period_expression(self, date: str, function: str) -> str:
        """Return the expression to group by periods of a date field: `month(created)` for `created` and "month".

        If the field's values are such periods already, return the name of the field alone.

        Raises:
            UnclearCalculation: the field's values are periods of another length: months, but quarters are asked for.
        """
        units = self.columns.vocabulary.date_units.get(date)
        if units is None:
            return f"{function}({date})"
        if function not in units.functions:
            raise UnclearCalculation("periods of another length than those of the field")
        return date


def _explains_negation(parsed: ParsedQuestion) -> bool:
    """Return whether a constraint excludes values or sets an upper bound, which accounts for a word of negation."""
    filters = [condition.filter for condition in (*parsed.conditions, *parsed.length_conditions)]
    return any(one.negated for one in parsed.constraints) or any(
        one["type"] in ("ne", "nin", "not", "lt", "lte")
        or (one["type"] in ("exists", "eq") and (one["value"] is False or one["value"] == 0))
        or one["type"] == "or"
        for one in filters
    )


def _explains_or(parsed: ParsedQuestion) -> bool:
    """Return whether an "or" is accounted for: it joins values or dates, or at most one field has a constraint."""
    fields = {condition.field for condition in parsed.conditions}
    dated = fields & set(parsed.sentence.vocabulary.of_role("date"))
    several = any(len(one.values) > 1 or one.alternative_fields for one in parsed.constraints)
    return several or (len(parsed.dates) > 1 and len(dated) < 2) or len(fields) < 2


@dataclass(frozen=True, slots=True)
class Calculation:
    """A calculation over the metadata of the records that satisfy some constraints.

    Attributes:
        aggregate: the calculation, as JSON of `retrievers.core.aggregates`.
        conditions: the constraints that select the records; the condition of a share is in `aggregate` instead.
        is_certain: True if the words ask for the calculation; False if it is only likely, because the question
            consists of names and values of fields.
        assumed_nouns: nouns taken for the documents only because of their position. They are no condition, so
            documents of every sort are counted.
    """

    aggregate: Json
    conditions: tuple[StatedCondition, ...]
    is_certain: bool = True
    assumed_nouns: tuple[str, ...] = ()


def words_of_kind(question: SegmentedQuestion, *kinds: str) -> tuple[str, ...]:
    """Return the texts of the segments of these kinds, in order."""
    text = question.parsed.sentence.text
    return tuple(
        text[question.segments[index].start : question.segments[index].end] for index in question.indices_of(*kinds)
    )


def blocking_words(question: SegmentedQuestion) -> tuple[str, ...]:
    """Return the words and phrases that prevent any calculation: "why", or a neighbour in a list ("listed after")."""
    text = question.parsed.sentence.text.casefold()
    beside = (phrase for phrase in word_table("calculation")["beside"] if phrase in text)
    return (*words_of_kind(question, "hindering", "same"), *beside)


def all_conditions(question: SegmentedQuestion) -> tuple[StatedCondition, ...]:
    """Return the constraints of `parsed`, then those that only `segments` have: on names of records and on ranks."""
    conditions = list(question.parsed.conditions)
    stated = {str(condition.filter) for condition in (*conditions, *question.parsed.length_conditions)}
    for segment in question.segments:
        if segment.condition is not None and str(segment.condition.filter) not in stated:
            conditions.append(segment.condition)
            stated.add(str(segment.condition.filter))
    return tuple(conditions)
