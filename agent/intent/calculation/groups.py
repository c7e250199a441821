"""What a calculation groups by: a stated group, a group that a superlative ranks, or values that are compared."""

import re
from dataclasses import dataclass

from agent.intent.calculation.parameters import ORDINALS, SUPERLATIVES, RankOrder, denotes_records, names_only_dates
from agent.intent.calculation.segment import CONDITION, NUMBER, RECORD, UNKNOWN, VALUE
from agent.intent.calculation.segmented_question import LINKING, SegmentedQuestion, UnclearCalculation
from agent.intent.language.lexicon import name_words

_ADJECTIVES = {"annual": "year", "annually": "year"}
_PERIODS = {"year": "year", "month": "year_month", "quarter": "quarter"}
_PERIODS_OF_MONTHS = {12: "year", 6: "half", 3: "quarter", 1: "month"}
_VALUE_RANGE = re.compile(r"(?:\bfrom\b|从|自).{1,60}?(?:\b(?:to|through|until|till)\b|到|至)", re.IGNORECASE)
"""Two values joined like this mean the whole span between them."""


@dataclass(frozen=True, slots=True)
class Group:
    """What a calculation groups by.

    Attributes:
        expression: the expression of the aggregate: `author` or `year(created)`; "" if `per_record`.
        index: index of the segment that names the group.
        per_record: True for "per document", where each record is its own group.
    """

    expression: str
    index: int
    per_record: bool = False


def read_group(question: SegmentedQuestion) -> Group | None:
    """Return the group that the question states, or None: "per year", "by department", 按地区 ("by region").

    Raises:
        UnclearCalculation: it states more than one group.
    """
    groups: list[Group] = []
    for index in question.indices_of("per", "by"):
        made = _group_after(question, index)
        if made is not None and made.expression not in {one.expression for one in groups}:
            groups.append(made)
    adjective_group = _adjective_group(question) if not groups else None
    groups += [adjective_group] if adjective_group is not None else []
    if len([one for one in groups if not one.per_record]) > 1:
        raise UnclearCalculation("more than one grouping")
    for one in groups:
        question.used.update((one.index, *question.indices_of("per")))
        question.used_fields.add(one.expression)
    return next((one for one in groups if not one.per_record), groups[0] if groups else None)


def _group_after(question: SegmentedQuestion, index: int) -> Group | None:
    """Return the group that follows the segment `index`, which is "per" or "by"; None if no group follows."""
    behind = question.neighbour(index, 1, over=(*LINKING, "distinct", "per"))
    if behind is None:
        return None
    segment = question.segments[behind]
    if segment.kind in _PERIODS and (date := question.date_field()):
        question.used.update((index, behind))
        return Group(question.period_expression(date, _period_function(question, segment.kind)), behind)
    if names_only_dates(question, segment) and question.has_kind(*SUPERLATIVES):
        question.used.update((index, behind))  # "the latest, by creation date"
        return None
    following = question.segments[behind + 1] if behind + 1 < len(question.segments) else None
    beside_value = following is not None and following.kind in (CONDITION, VALUE)
    name = question.group_field(segment) if segment.fields else None
    name = people_field(question) if segment.kind == "people" and name is None else name
    if name is not None and not (beside_value and question.segments[index].kind == "by"):
        question.used.update((index, behind))
        _check_one_group(question, behind)
        return Group(name, behind)
    # In the average length of a list, an unknown noun after "per" stands for the records.
    listed = segment.kind == UNKNOWN and question.has_kind("avg", "median") and any(
        question.columns.is_list(name) for _, one in question.field_segments() for name in one.fields
    )  # fmt: skip
    if (segment.kind == RECORD or listed or denotes_records(question, behind)) and question.segments[
        index
    ].kind == "per":
        question.used.update((index, behind))
        return Group("", behind, per_record=True)
    return None


def people_field(question: SegmentedQuestion) -> str | None:
    """Return the field of people (such as `author`) that a noun, value or verb of the question names.

    If none is named, return the only field of people, without sponsors and reviewers if possible. Else return None.
    """
    columns = question.columns
    people = columns.person_fields()
    deeds = {
        stem: name for name in people for stem in columns.name_stems[name][:1] if len(columns.name_stems[name]) > 1
    }
    said = [name for _, segment in question.field_segments() for name in segment.fields if name in people]
    done = [deeds[one] for _, segment in question.field_segments() for name in segment.fields
            for one in columns.name_stems[name][:1] if one in deeds]  # fmt: skip
    conditions = [
        segment.condition.field
        for segment in question.segments
        if segment.condition is not None and segment.condition.field in people
    ]
    named = list(dict.fromkeys((*said, *conditions))) or list(dict.fromkeys(done))
    if len(named) == 1:
        meant = {
            *named,
            *(name for name in columns.name_stems if columns.name_stems[name][:1] == columns.name_stems[named[0]][:1]),
        }
        question.used.update(index for index, segment in question.field_segments() if set(segment.fields) & meant)
        return named[0]
    # If none is named, sponsors and reviewers are not meant: others have done the work.
    everyone = columns.vocabulary.of_role("person") or people
    doers = [name for name in everyone if not {"sponsor", "reviewer"} & columns.vocabulary.concepts[name]] or everyone
    return doers[0] if len(doers) == 1 and not named else None


def _check_one_group(question: SegmentedQuestion, index: int) -> None:
    """Check that no second group follows the group that the segment `index` names: "per district [and kind]".

    Raises:
        UnclearCalculation: a second group follows.
    """
    behind = question.segments[index + 1 : index + 3]
    words = question.parsed.sentence.text[behind[0].start : behind[0].end].casefold() if behind else ""
    if len(behind) == 2 and words in ("and", "和", "与") and behind[1].fields and question.group_field(behind[1]):
        raise UnclearCalculation("more than one grouping")


def _adjective_group(question: SegmentedQuestion) -> Group | None:
    """Return the group by period that an adjective states: "yearly counts", "monthly totals"; None if there is none.

    Raises:
        UnclearCalculation: "average monthly pay" may mean pay for a month, or the average by month.
    """
    for index in question.indices_of(*_PERIODS):
        segment = question.segments[index]
        word = question.parsed.sentence.text[segment.start : segment.end].casefold()
        if word.endswith("ly") or word.startswith("annual"):
            behind = question.segments[index + 1] if index + 1 < len(question.segments) else segment
            number = question.numeric_field(behind) if question.has_kind("avg", "median") else None
            if number is not None and segment.kind not in _period_words(number):
                raise UnclearCalculation("one period or every period")  # "average monthly pay"
            if number is not None:
                question.used.add(index)
                return None
        else:
            continue
        if date := question.date_field():
            return Group(question.period_expression(date, _period_function(question, segment.kind)), index)
    return None


def _period_function(question: SegmentedQuestion, kind: str) -> str:
    """Return the aggregate function for a period (`kind`): "month" -> "year_month", "quarter" -> "year_quarter".

    If the question states a date, "quarter" stays "quarter".
    """
    return "year_quarter" if kind == "quarter" and not question.parsed.dates else _PERIODS[kind]


def _period_words(number: str) -> set[str]:
    """Return the words of a field's name, adjectives of periods as nouns: `annual_pay` -> "year", "pay"."""
    words = {word.removesuffix("ly") for word in name_words(number)}
    return {_ADJECTIVES.get(word, word) for word in words}


def read_ranked_group(question: SegmentedQuestion, order: RankOrder | None) -> Group | None:
    """Return the group that a superlative ranks, or None: "[who] wrote most", "which [district] has the fewest".

    Args:
        order: the order that the superlative states; None if the question has no superlative.
    """
    for index in question.indices_of(*_PERIODS):
        before = question.neighbour(index, -1)
        led = before is not None and question.segments[before].kind in ("which", *SUPERLATIVES, *ORDINALS)
        if (date := question.date_field()) and (led or _is_after(question, index, "which")):
            question.used.update((index, *((before,) if led and before is not None else ())))
            return Group(
                question.period_expression(date, _ranked_period_function(question, question.segments[index].kind)),
                index,
            )
    when = question.indices_of("when")
    if when and order is not None and order.may_be_by_count and (date := question.date_field()):
        text = question.parsed.sentence.text[question.segments[when[0]].start : question.segments[when[0]].end]
        if "年" in text or "月" in text:
            question.used.update(when)
            return Group(question.period_expression(date, "year" if "年" in text else "year_month"), when[0])
    named = [(index, name) for index, segment in question.field_segments() if (name := question.group_field(segment))]
    named = [(index, name) for index, name in named if is_free_segment(question, index, name)]
    led_by = [(index, name) for index, name in named if _is_after_question_word(question, index)]
    people = question.columns.person_fields()
    if question.has_kind("who"):
        own = [one for one in named if one[1] in people]
        chosen = (own or led_by or named)[:1]
        if chosen and chosen[0][1] in people:
            return _use_first_group(question, chosen)
        meant = people_field(question) if not led_by else None
        if meant is not None:
            question.used_fields.add(meant)
            return Group(meant, question.indices_of("who")[0])
        return _use_first_group(question, led_by)
    return _use_first_group(question, led_by or (named if len({name for _, name in named}) == 1 else []))


def is_free_segment(question: SegmentedQuestion, index: int, name: str) -> bool:
    """Return whether the segment `index` is unused and its field `name` has no condition other than "not X"."""
    return index not in question.used and name not in {
        segment.condition.field
        for segment in question.segments
        if segment.condition is not None and segment.condition.filter["type"] != "ne"
    }


def _use_first_group(question: SegmentedQuestion, named: list[tuple[int, str]]) -> Group | None:
    """Mark the first of (index of a segment, field that it names) as used and return it as a group; None for []."""
    if not named:
        return None
    index, name = named[0]
    question.used.update(one for one, other in named if other == name)
    question.used_fields.add(name)
    return Group(name, index)


def _is_after_question_word(question: SegmentedQuestion, index: int) -> bool:
    """Return whether "which", "who" or a word of ranking ("top") stands directly before the segment `index`."""
    before = question.neighbour(index, -1, over=(*LINKING, NUMBER, "distinct", *ORDINALS))
    return before is not None and question.segments[before].kind in ("which", "who", "top", "rank")


def _is_after(question: SegmentedQuestion, index: int, kind: str) -> bool:
    return index > 0 and question.segments[index - 1].kind == kind


def _ranked_period_function(question: SegmentedQuestion, kind: str) -> str:
    """Return the aggregate function for a ranked period (`kind`): "month" -> "year_month".

    For "calendar month", which means the same month of all years, it is "month".
    """
    if kind != "month":
        return _PERIODS[kind]
    text = question.parsed.sentence.text
    return "month" if "calendar month" in text or "一年中" in text or "不分年份" in text else "year_month"


@dataclass(frozen=True, slots=True)
class ComparedValues:
    """Two or more values to compare.

    Attributes:
        expression: the expression of the aggregate that has these values: `author` or `year(created)`.
        identifies_records: True if each value identifies a single record.
    """

    expression: str
    values: tuple[object, ...]
    identifies_records: bool = False


def read_compared_values(question: SegmentedQuestion) -> ComparedValues | None:
    """Return the values of one field that the question names as alternatives to compare; None if fewer than two."""
    roles = question.columns.vocabulary.roles
    text = question.parsed.sentence.text
    for one in question.parsed.constraints:
        # "3.10 or later" has many versions as values, but names only one of them.
        ranged = roles[one.field] == "version" and any(value not in text for value in one.values)
        said = (mention.matches_in(one.field) for mention in question.parsed.sentence.mentions)
        named = [known for known in said if not {each.value for each in known}.isdisjoint(one.values)]
        if is_span(text, one.start, one.end):
            continue  # "from Monday to Friday" includes the days between
        if len(named) > 1 and len(one.values) > 1 and not one.requires_all and not one.negated and not ranged:
            return ComparedValues(one.field, one.values, one.field in question.columns.key_fields)
    for segment in question.segments:
        condition = segment.condition
        if condition is None or condition.filter["type"] != "in" or condition in question.parsed.conditions:
            continue
        alike = [
            one for one in question.segments if one.condition is not None and one.condition.filter == condition.filter
        ]
        if len(alike) > 1 and not is_span(text, alike[0].start, alike[-1].end):
            return ComparedValues(
                condition.field, tuple(condition.filter["value"]), condition.field in question.columns.key_fields
            )
    return _compared_periods(question)


def is_span(text: str, start: int, end: int) -> bool:
    """Return whether the characters [start, end) are a span between two values: "from Monday to Friday"."""
    return _VALUE_RANGE.search(text[max(start - len("from "), 0) : end]) is not None


def _compared_periods(question: SegmentedQuestion) -> ComparedValues | None:
    """Return the periods to compare: several years, or several halves, quarters or months of one year.

    Return None for any other dates.
    """
    parsed = question.parsed
    bounds = [(dated.period.low, dated.period.high) for dated in parsed.dates]
    if len(bounds) < 2 or len({dated.field for dated in parsed.dates}) > 1:
        return None
    name = question.date_field()
    if name is None:
        return None
    months_of = {
        low: (high.year - low.year) * 12 + high.month - low.month
        for low, high in bounds
        if low is not None and high is not None and (low.day, high.day) == (1, 1)
    }
    if len(months_of) < len(bounds):
        return None
    starts, lengths = list(months_of), set(months_of.values())
    months = lengths.pop()
    if lengths or months not in _PERIODS_OF_MONTHS or any((low.month - 1) % months for low in starts):
        return None
    function = _PERIODS_OF_MONTHS[months]
    units = question.columns.vocabulary.date_units.get(name)
    if units is not None:
        texts = tuple(map(units.text_of, starts))
        return ComparedValues(name, texts) if months == units.months and all(texts) else None
    if function != "year" and len({low.year for low in starts}) > 1:
        return None
    values = (low.year if function == "year" else (low.month - 1) // months + 1 for low in starts)
    return ComparedValues(f"{function}({name})", tuple(values))
