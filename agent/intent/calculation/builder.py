"""Combine what a question asks for (operation, group, order, conditions) into one calculation.

A calculation is made only if every word of the question is accounted for. A number that ignores a restricting word, or
that uses a default column, would be a wrong answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from agent.intent.analysis.field_linking import FieldIndex, field_index_of
from agent.intent.calculation import shares
from agent.intent.calculation.compared_values import ASKING, compare_values, difference_calculation
from agent.intent.calculation.extremes import read_extreme
from agent.intent.calculation.group_size import read_group_size
from agent.intent.calculation.groups import (
    is_span,
    read_compared_values,
    read_group,
    read_ranked_group,
)
from agent.intent.calculation.named_records import find_named_records, raise_name_confidence
from agent.intent.calculation.parameters import SUPERLATIVES, read_order
from agent.intent.calculation.rank_conditions import find_rank_conditions
from agent.intent.calculation.relations import read_relation
from agent.intent.calculation.segment import RECORD, Segment, segment_text
from agent.intent.calculation.segmentation import segment_question
from agent.intent.calculation.segmented_question import (
    Calculation,
    SegmentedQuestion,
    UnclearCalculation,
    all_conditions,
    blocking_words,
    words_of_kind,
)
from agent.intent.calculation.simple_aggregates import read_counted_field, read_simple_aggregate
from agent.intent.conditions.filter_json import Json, all_of
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.text import words_of
from agent.intent.words import word_table

_OF_GROUPS = frozenset(["of", "group_by", "order", "limit", "ties", "between", "where", "decimals", "than"])
ALLOWED_KEYS: Mapping[str, frozenset[str]] = {
    "count": _OF_GROUPS | {"at_least", "at_most", "over"},
    "sum": _OF_GROUPS | {"over"},
    "avg": _OF_GROUPS | {"over"},
    "median": _OF_GROUPS | {"over"},
    "min": _OF_GROUPS,
    "max": _OF_GROUPS,
    "share": _OF_GROUPS - {"of"},
    "difference": frozenset(["of", "group_by", "between", "where", "order"]),
    "list": frozenset(["of", "order", "limit", "ties", "where", "show", "than"]),
}
"""The keys that an aggregate may have beside "op", by operation."""
_REQUIRED_KEYS: Mapping[str, tuple[str, ...]] = {
    "sum": ("of",), "avg": ("of",), "median": ("of",), "min": ("of",), "max": ("of",), "share": ("where",),
    "difference": ("group_by", "between"), "list": (),
}  # fmt: skip
"""The keys that an aggregate must have beside "op", by operation."""
_CALCULATING = (
    "count", "how_much", "distinct", "avg", "median", "sum", "share", "rate", "ratio", "difference", "at_least",
    "at_most", *SUPERLATIVES, "second", "third",
)  # fmt: skip
_OPERANDS = ("of", "than")
"""Keys of a count that account for words of an amount: "score" in "a lower score than Ann"."""
_ALWAYS_SHOWN = frozenset("id ids title titles 编号 标题".split())
"""Words for fields that every row of a list shows anyway."""


@dataclass(frozen=True, slots=True)
class CalculationReading:
    """The calculation of a question; or, if it asks for one that cannot be made, the words that prevent it."""

    calculation: Calculation | None = None
    unread_words: tuple[str, ...] = ()


def find_calculation(parsed: ParsedQuestion) -> Calculation | None:
    """Return the calculation that a question asks for; None if it asks for none, or for one that cannot be made."""
    return read_calculation(parsed).calculation


def read_calculation(parsed: ParsedQuestion) -> CalculationReading:
    """Return the calculation that a question asks for, or the words that prevent it; cached for the object `parsed`."""
    return parsed.memo.get("calculation", lambda: _read(parsed))


def _read(parsed: ParsedQuestion) -> CalculationReading:
    question = split_question(parsed)
    try:
        made = read_relation(question)
        if made is None:
            if hindering := blocking_words(question):
                return CalculationReading(unread_words=hindering if question.has_kind(*_CALCULATING) else ())
            made = _calculation_of(question)
    except UnclearCalculation as error:
        return CalculationReading(unread_words=(str(error),))
    unread_words = tuple(question.unread_words())
    if made is not None and made.aggregate["op"] == "list":
        unread_words = tuple(word for word in unread_words if word.casefold() not in _ALWAYS_SHOWN)
    if (
        made is not None
        and made.aggregate["op"] == "count"
        and not (any(map(made.aggregate.get, _OPERANDS)) or parsed.numbers)
    ):
        amounts = word_table("general", "en")["amounts"].split() if not question.absence_conditions else ()
        unread_words = (*unread_words, *(token.text for token in parsed.sentence.tokens if token.folded in amounts))
    if made is not None and _calculates_with_named_records(made, question):
        doing = word_table("calculation")["doing"]
        unread_words = tuple(word for word in unread_words if word.casefold() not in doing)
    if made is None or unread_words:
        return CalculationReading(unread_words=unread_words if question.has_kind(*_CALCULATING) else ())
    is_count = made.aggregate["op"] == "count" and made.aggregate.get("of")
    if is_count and made.conditions and question.has_kind("exactly"):
        # "only went to Spain" is more than "went to Spain"
        return CalculationReading(unread_words=words_of_kind(question, "exactly"))
    doubtful = _value_within_longer(made, question) or _undeclared_noun(made, question) or _value_range_words(question)
    doubtful = doubtful or _words_read_twice(made, question)
    if doubtful:
        return CalculationReading(unread_words=(doubtful,))
    made = _with_conditions(made, question)
    if made is not None and made.aggregate["op"] in ("count", "share", "difference") and not made.aggregate.get("of"):
        made = replace(made, assumed_nouns=assumed_nouns(question))
    if made is None or not is_valid_aggregate(made.aggregate):
        return CalculationReading()
    conditions = tuple(raise_name_confidence(condition, question) for condition in made.conditions)
    return CalculationReading(replace(made, conditions=conditions))


def _calculates_with_named_records(made: Calculation, question: SegmentedQuestion) -> bool:
    """Return whether the calculation is about a number of records that the question names one by one."""
    named = {condition.field for condition in made.conditions}
    return (
        made.aggregate.get("of") in question.columns.measures and bool(named) and named <= question.columns.key_fields
    )


def assumed_nouns(question: SegmentedQuestion) -> tuple[str, ...]:
    """Return the plurals taken for the documents only by their position; perhaps only some documents are about them."""
    text = question.parsed.sentence.text
    said = (text[one.start : one.end] for one in question.segments if one.kind == RECORD and one.guessed)
    return tuple(word for word in said if word.isascii() and word.endswith("s") and word != "times")


def _undeclared_noun(made: Calculation, question: SegmentedQuestion) -> str:
    """Return a noun taken for the documents by its position, although a schema declares their nouns; "" if none."""
    if made.aggregate["op"] == "list" or not question.columns.vocabulary.catalogue.records:
        return ""
    text = question.parsed.sentence.text
    said = (text[one.start : one.end] for one in question.segments if one.kind == RECORD and one.guessed)
    return next((word for word in said if word.casefold() not in ("time", "times")), "")


def _value_within_longer(made: Calculation, question: SegmentedQuestion) -> str:
    """Return a constraint's value that is part of a longer value of its field; or "".

    The constraint may select too few records: occupation "Student" leaves out "Medical Student".
    """
    fields = question.columns.vocabulary.catalogue.fields
    for condition in made.conditions:
        held, value = fields.get(condition.field), _value(condition)
        if held is None or not value or held.distinct * 2 <= held.documents:
            continue
        said = words_of(value)
        others = (words_of(other) for other in held.values if other != value)
        if condition.filter["type"] == "eq" and any(_contains_run(other, said) for other in others):
            return value
    return ""


def _words_read_twice(made: Calculation, question: SegmentedQuestion) -> str:
    """Return the words that are read as constraints on two fields, so that one constraint must be wrong; "" if none."""
    for one in made.conditions:
        for segment in question.segments:
            stated, overlaps = segment.condition, one.start < segment.end and segment.start < one.end
            if stated is not None and stated.field != one.field and overlaps:
                return segment_text(question.parsed.sentence, segment)
    return ""


def _value_range_words(question: SegmentedQuestion) -> str:
    """Return the words of a span between two text values ("Monday to Friday"), "" if none.

    Such a span prevents the calculation, because it is not known which values lie between the two.
    """
    text = question.parsed.sentence.text
    for condition in all_conditions(question):
        if condition.filter["type"] == "in" and len(condition.filter["value"]) == 2:
            said = [one for one in question.segments if one.condition and one.condition.filter == condition.filter]
            start, end = (
                min([condition.start, *(one.start for one in said)]),
                max([condition.end, *(one.end for one in said)]),
            )
            if is_span(text, start, end):
                return text[start:end]
    return ""


def _contains_run(words: Sequence[str], run: Sequence[str]) -> bool:
    """Return whether `words` contains the consecutive words of `run` and is longer."""
    size = len(run)
    return len(words) > size and any(words[n : n + size] == run for n in range(len(words) - size + 1))


def split_question(parsed: ParsedQuestion) -> SegmentedQuestion:
    """Return the question split into segments; single records and ranks that it names are constraints too."""
    # Several kinds of calculation are tried on one question.
    parsed, columns, segments, extra_conditions = parsed.memo.get("segments", lambda: _split(parsed))
    return SegmentedQuestion(parsed, columns, segments, extra_conditions=list(extra_conditions))


def _split(parsed: ParsedQuestion) -> tuple[ParsedQuestion, FieldIndex, tuple[Segment, ...], list[Json]]:
    """Return (question without values such as "total", its columns, its segments, `_total_row_conditions`)."""
    columns = field_index_of(parsed.sentence.vocabulary)
    totals = word_table("calculation")["summing_up"]
    # In "the total number", "total" does not mean the row "Total" that sums up the other rows.
    parsed = replace(parsed, conditions=tuple(one for one in parsed.conditions if _value(one).casefold() not in totals))
    segments = segment_question(parsed, columns)
    on_keys = (one for one in parsed.conditions if one.field in columns.key_fields)
    keys = tuple(one for one in on_keys if one.filter["type"] in ("eq", "in"))
    denying = [(parsed.sentence.tokens[one.first].start, parsed.sentence.tokens[one.last - 1].end)
               for one in parsed.sentence.negators.values()]  # fmt: skip
    rows = tuple(
        row for row in find_named_records(parsed, columns, segments, keys)
        if not any(start <= row.start and row.end <= end for start, end in denying)
        and parsed.sentence.folded(parsed.sentence.index_from(row.end)) != "by"
    )  # fmt: skip
    rows = (*rows, *find_rank_conditions(parsed, columns, [*parsed.conditions, *rows]))
    parsed = replace(parsed, conditions=tuple(one for one in parsed.conditions if one not in keys or one in rows))
    more = [one for one in rows if one not in parsed.conditions]
    segments = segment_question(parsed, columns, more) if more else segments
    return parsed, columns, segments, _total_row_conditions(columns)


def _value(condition: StatedCondition) -> str:
    value = condition.filter.get("value")
    return value if isinstance(value, str) else ""


def _total_row_conditions(columns: FieldIndex) -> list[Json]:
    """Return conditions that leave out the records that sum up the others, such as a row "Total" among nations."""
    fields = columns.vocabulary.catalogue.fields
    made: list[Json] = []
    for name in sorted(columns.key_fields):
        totals = [value for value in fields[name].values if value.casefold() in word_table("calculation")["summing_up"]]
        made += [{"type": "nin", "key": name, "value": totals}] if totals else []
    return made


def is_valid_aggregate(aggregate: Json) -> bool:
    """Return whether an aggregate has only keys that its operation allows, and all that it needs."""
    given = {key for key, value in aggregate.items() if value not in (None, (), [], False) and key != "op"}
    needed = _REQUIRED_KEYS.get(aggregate["op"], ())
    return given <= ALLOWED_KEYS[aggregate["op"]] and all(aggregate.get(key) for key in needed)


def _with_conditions(made: Calculation, question: SegmentedQuestion) -> Calculation | None:
    """Add conditions without a value (list length, existence of a field, `extra_conditions`) to the calculation.

    These conditions become the "where" of the aggregate. For a share, return None unless they are the condition of the
    share itself.
    """
    stated = [*question.absence_conditions, *(condition.filter for condition in question.parsed.length_conditions)]
    where = made.aggregate.get("where")
    if made.aggregate["op"] == "share":
        kept = tuple(StatedCondition(str(one["key"]), one, 0, 0) for one in question.extra_conditions)
        own = not stated or where == all_of(stated)
        return replace(made, conditions=(*made.conditions, *kept)) if own else None
    existing = [condition for condition in made.conditions if condition.filter["type"] == "exists"]
    if made.aggregate["op"] == "count" and existing and not where:
        made = replace(made, conditions=tuple(condition for condition in made.conditions if condition not in existing))
        stated = [*(condition.filter for condition in existing), *stated]
    stated = [*question.extra_conditions, *stated]
    if not stated or where == all_of(stated):
        return made
    return replace(made, aggregate={**made.aggregate, "where": all_of([where, *stated] if where else stated)})


def _calculation_of(question: SegmentedQuestion) -> Calculation | None:
    """Return the calculation that the question asks for, or None; the most specific words are tried first."""
    add_absence_conditions(question)
    if question.has_kind("share", "rate"):
        return shares.read_share(question)
    share = shares.read_share_of_counts(question)
    if share is not None:
        return share
    size = read_group_size(question)
    if size is not None:
        return _groups_of_size(question, size)
    comparison = read_compared_values(question)
    if question.has_kind("difference") and comparison is not None:
        return difference_calculation(question, comparison)
    if comparison is not None and (made := compare_values(question, comparison)) is not None:
        return made
    ordered = question.has_kind("ordered_down", "ordered_up")
    order = None if ordered else read_order(question)
    if order is not None:
        return read_extreme(question, order)
    return read_simple_aggregate(question)


def add_absence_conditions(question: SegmentedQuestion) -> None:
    """Add conditions such as "with no gold medals" to `absence_conditions`: a number is zero, or a field missing."""
    for index in question.indices_of("lacking"):
        behind = index + 1
        segment = question.segments[behind] if behind < len(question.segments) else None
        if segment is None or len(segment.fields) != 1 or question.has_bound(segment.fields[0]):
            continue
        name = segment.fields[0]
        if name in question.columns.measures and not question.columns.measures[name].texts:
            question.absence_conditions.append({"type": "eq", "key": name, "value": 0})
        elif not question.columns.is_in_every_document(name) and question.columns.is_groupable(name):
            question.absence_conditions.append({"type": "exists", "key": name, "value": False})
        else:
            continue
        question.used.update((index, behind))


def _groups_of_size(question: SegmentedQuestion, size: Json) -> Calculation | None:
    """Return a count or list of the groups of some size: "which authors have at least 30 reports"; or None.

    Args:
        size: {"at_least": N} or {"at_most": N}, or both.
    """
    conditions = all_conditions(question)
    field = read_counted_field(question)
    if field is not None:
        return Calculation({"op": "count", "of": field, **size}, conditions)
    group = read_group(question) or read_ranked_group(question, None)
    if group is not None:
        question.mark_used("more", "fewer")
        return Calculation({"op": "count", "group_by": group.expression, "order": "desc", **size}, conditions)
    # Answer "did Ann write more than 30 reports" with the number of her reports.
    asks = question.parsed.sentence.folded(0) in ASKING
    asks = asks or question.parsed.sentence.text.rstrip("？?。 ").endswith(("吗", "么"))
    return Calculation({"op": "count"}, conditions) if asks and conditions else None
