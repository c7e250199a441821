"""Counts, sums, averages and medians, over all records or by group."""

import re
from dataclasses import replace

from agent.intent.calculation.extremes import LIST_WORDS, read_average_op
from agent.intent.calculation.groups import Group, people_field, read_compared_values, read_group
from agent.intent.calculation.parameters import (
    check_stated_units,
    find_counted_segment,
    read_decimals,
    read_list_length,
    read_operand,
    read_operand_by_unit,
)
from agent.intent.calculation.segment import RECORD, UNIT
from agent.intent.calculation.segmented_question import (
    Calculation,
    SegmentedQuestion,
    UnclearCalculation,
    all_conditions,
)
from agent.intent.conditions.filter_json import Json
from agent.intent.values.value_names import boolean_texts


def read_counted_field(question: SegmentedQuestion) -> str | None:
    """Return the field whose distinct values the question counts: `author` for "how many authors"; or None.

    Mark the words for the field as used.
    """
    for index in question.indices_of("count", "distinct"):
        target = find_counted_segment(question, index)
        if target is None:
            continue
        segment = question.segments[target]
        if segment.kind == RECORD:
            return None
        name = people_field(question) if segment.kind == "people" and not segment.fields else None
        if segment.kind == "people" and not name and not segment.fields:
            return None
        name = name or question.group_field(segment)
        if name is not None and boolean_texts(question.columns.vocabulary.catalogue.fields[name]) is not None:
            return None  # yes and no are not counted
        if name is not None and not question.has_kind("distinct") and not question.columns.has_repeated_values(name):
            return None  # the values differ in nearly every record, so the records may be meant
        if name is not None and not _is_constrained_value(question, name):
            question.used.update((index, target))
            question.used_fields.add(name)
            question.mark_used("distinct", "sum")
            return name
    return None


def _is_constrained_value(question: SegmentedQuestion, name: str) -> bool:
    """Return whether a constraint demands one value of the single-valued field `name`: its count is always 1."""
    return any(
        segment.condition is not None and segment.condition.field == name and segment.condition.filter["type"] == "eq"
        and not question.columns.is_list(name)
        for segment in question.segments
    )  # fmt: skip


def read_simple_aggregate(question: SegmentedQuestion) -> Calculation | None:
    """Return the average, count or sum that is asked for, by group if one is stated; None if there is none."""
    middle, group = read_average_op(question), read_group(question)
    if middle is not None:
        return _average_calculation(question, middle, group)
    decimals = read_decimals(question)
    made = (
        _count_calculation(question, group)
        or _sum_calculation(question, group)
        or _field_named_aggregate(question, group)
    )
    made = made or _count_by_group(question, group) or _total_count(question)
    if made is None or decimals is None:
        return made
    return replace(made, aggregate={**made.aggregate, "decimals": decimals})


def _average_calculation(question: SegmentedQuestion, middle: str, group: Group | None) -> Calculation | None:
    """Return the average or median of a numeric field, of the length of a list, or of group sizes; None if unclear.

    Args:
        middle: "avg" or "median".
    """
    given = read_decimals(question)
    decimals: Json = {"decimals": 2 if given is None else given} if middle == "avg" or given is not None else {}
    per_record, groups = group is not None and group.per_record, group is not None and not group.per_record
    question.mark_used("avg", "median")
    counts = question.has_kind("count")
    if (
        groups
        and group is not None
        and (_has_partial_groups(question, group.expression) or read_compared_values(question))
    ):
        return None
    if per_record and (length := read_list_length(question)) is not None:
        question.mark_used("count", "sum")
        return Calculation({"op": middle, "of": length, **decimals}, all_conditions(question))
    target = next((find_counted_segment(question, index) for index in question.indices_of("count")), None)
    records = counts and target is not None and question.segments[target].kind == RECORD
    records = records or (counts and target is None and bool(all_conditions(question)))
    number = (
        question.numeric_field(question.segments[target]) if groups and target is not None and not records else None
    )
    if number is not None and group is not None and target is not None and not question.has_bound(number):
        # "average number of beds per country": a numeric field holds the number of beds
        question.used.add(target)
        question.mark_used("count", "sum")
        aggregate: Json = {"op": middle, "of": number, "group_by": group.expression, **decimals}
        return Calculation(aggregate, all_conditions(question))
    if groups and group is not None and (records or counts):
        question.mark_used("count", "sum")
        values = None if records or target is None else question.group_field(question.segments[target])
        if target is not None:
            question.used.add(target)
        of: Json = {"op": "count", "of": values} if values else {"op": "count"}
        return Calculation({**of, "group_by": group.expression, "over": middle, **decimals}, all_conditions(question))
    operand = read_operand(question) or (None if records else read_list_length(question))
    if operand is None or (question.has_bound(operand) and (counts or not groups)):
        return None
    question.mark_used("count")
    by: Json = {"group_by": group.expression} if groups and group is not None else {}
    return Calculation(
        {"op": middle, "of": operand, **by, **_direction(question), **decimals}, all_conditions(question)
    )


def _has_partial_groups(question: SegmentedQuestion, group: str) -> bool:
    """Return whether the groups of the expression `group` are incomplete, so that their average size is wrong.

    A range of dates cuts the periods at its ends; a condition on a list field leaves out records with other
    values of that field.
    """
    bounds = [
        one for dated in question.parsed.dates for one in (dated.period.low, dated.period.high) if one is not None
    ]
    period, _, date = group.partition("(")
    if date and period != "year":
        return len(bounds) != 2 or (bounds[1] - bounds[0]).days > 366
    constrained = any(one.field == group and question.columns.is_list(group) for one in question.parsed.constraints)
    return constrained or (bool(date) and any((one.month, one.day) != (1, 1) for one in bounds))


def _direction(question: SegmentedQuestion) -> Json:
    """Return {"order": "desc"} or {"order": "asc"} if the question states the order of the groups, else {}."""
    down, up = question.mark_used("ordered_down"), question.mark_used("ordered_up")
    return {"order": "desc" if down else "asc"} if down or up else {}


def _count_calculation(question: SegmentedQuestion, group: Group | None) -> Calculation | None:
    """Return the count of records or of distinct values of a field, or the sum of a field like "number of beds".

    None if the question counts nothing, or nothing that a field holds.
    """
    if not question.has_kind("count", "distinct"):
        return None
    counting_group = _counting_group(question)
    if counting_group is not None:
        question.mark_used("count")
        return Calculation({"op": "count", "group_by": counting_group.expression}, ())
    if len({find_counted_segment(question, index) for index in question.indices_of("count")} - {None}) > 1:
        return None  # several things are counted
    conditions = all_conditions(question)
    by: Json = {"group_by": group.expression} if group is not None and not group.per_record else {}
    number = _counting_field(question)
    several = read_compared_values(question)
    if number is None and (
        (several and several.identifies_records)
        or any(question.selects_one_record(condition.filter) for condition in conditions)
    ):
        return None  # the question names the single records, so their number is known
    if number is not None:
        made = Calculation({"op": "sum", "of": number, **by, **_direction(question)}, conditions)
        return made if conditions or by or question.has_word("sum") else None
    field = read_counted_field(question)
    if field is not None and field == by.get("group_by"):
        question.mark_used("count", "distinct", "apart")
        # 每个检查员做了多少次检查: "how many checks did each inspector make"
        return Calculation({"op": "count", **by, **_direction(question)}, conditions)
    if field is not None:
        return Calculation({"op": "count", "of": field, **by, **_direction(question)}, conditions)
    if not question.has_kind("count") or not _counts_records(question):
        return None
    question.mark_used("count", "sum", "breakdown", "together")
    if by:
        question.mark_used("apart")
    counted: Json = {"op": "count", "of": None, **by, **_direction(question)} if by else {"op": "count"}
    return Calculation(counted, conditions)


def _counting_group(question: SegmentedQuestion) -> Group | None:
    """Return the field of people as the group if "who" precedes the counting word: "[who] added how many"; or None."""
    who, counts = question.indices_of("who"), question.indices_of("count")
    name = people_field(question) if who and counts and who[0] < counts[0] and not all_conditions(question) else None
    if name is None or not question.parsed.sentence.text.isascii():
        return None
    question.used_fields.add(name)
    return Group(name, who[0])


_SUBJECT_HAS = re.compile(
    r"\s*(?:(?:does|do|did)\s+(?!we\b|you\b|i\b|they\b|there\b|each\b|every\b)[^?]{1,80}?\s(?P<have>have|contain|hold)\b|has\s+)",
    re.IGNORECASE,
)
_HAVING = frozenset("we you i have hold own there total".split())
"""Words of which two together ask for all records: "how many parts do [we] [have]"."""


def _has_scope(question: SegmentedQuestion) -> bool:
    """Return whether the count has a condition or a group, or the question says that it means all records."""
    grouped = any(question.segments[index].kind in ("per", "by") for index in question.used)
    said = {token.folded for token in question.parsed.sentence.tokens}
    every = len(said & _HAVING) > 1 or bool(said & LIST_WORDS)
    return bool(
        all_conditions(question) or question.absence_conditions or question.parsed.length_conditions or grouped or every
    )


def _counts_records(question: SegmentedQuestion) -> bool:
    """Return whether "how many" counts records, rather than things that are only in their texts ("how many arches")."""
    for index in question.indices_of("count"):
        target = find_counted_segment(question, index)
        if target is not None and question.segments[target].kind == RECORD:
            guessed = question.segments[target].guessed
            return not guessed or (_has_scope(question) and not _asks_about_subject(question, target))
        name = question.group_field(question.segments[target]) if target is not None else None
        if target is not None and name is not None and not question.columns.has_repeated_values(name):
            question.used.add(target)
            return True
        if target is None:
            continue
        bounded_field = next((one for one in question.segments[target].fields if question.has_bound(one)), None)
        if bounded_field is not None:
            question.used.add(target)
            return True  # "how many scores were above 15"
        return False
    index = question.indices_of("count")[-1]
    last, behind = question.segments[index], question.segments[index + 1 : index + 2]
    if behind and behind[0].kind == "exactly" and behind[0].start == last.end:
        return False  # in 多少只 ("how many", of animals), 只 is a classifier and not "only"
    return (
        bool(all_conditions(question))
        or question.has_kind(RECORD)
        or question.parsed.sentence.text[last.end - 1] in "篇份件起"
    )


def _asks_about_subject(question: SegmentedQuestion, target: int) -> bool:
    """Return whether the question asks how many things a subject has: "how many [arches] does the viaduct have".

    Only the texts of the documents can answer this. `target` is the index of the segment that names the things.
    """
    text = question.parsed.sentence.text
    said = _SUBJECT_HAS.match(text, question.segments[target].end)
    if said is None:
        return False
    last = len(text.rstrip(" ?.!"))
    return said["have"] is not None or any(
        said.end() <= condition.start and condition.end >= last for condition in all_conditions(question)
    )


def _counting_field(question: SegmentedQuestion) -> str | None:
    """Return the numeric field that "how many" asks for: `points` for "how many points did Ann score"; or None."""
    for index in question.indices_of("count"):
        behind = question.neighbour(index, 1)
        if behind is not None and question.segments[behind].kind == UNIT and question.has_kind("sum"):
            name = read_operand_by_unit(question)  # "how many minutes in total"
            if name is not None:
                question.used.add(index)
                question.mark_used("sum")
            return name
        target = find_counted_segment(question, index)
        if target is None or question.segments[target].kind == RECORD:
            continue
        name = question.numeric_field(question.segments[target])
        if name is not None and any(map(question.columns.is_year, question.segments[target].fields)):
            raise UnclearCalculation("a sum of years")
        if name is not None and not question.has_bound(name):
            check_stated_units(question, name)
            question.used.update((index, target))
            question.mark_used("sum")
            return name
    return None


def _sum_calculation(question: SegmentedQuestion, group: Group | None) -> Calculation | None:
    """Return the sum of a numeric field, by group if one is stated; None if no sum is asked for."""
    if not question.has_kind("sum", "how_much") or (not question.has_kind("sum") and _asks_about_one_thing(question)):
        return None
    operand = read_operand(question)
    if operand is None or question.has_bound(operand):
        return None
    question.mark_used("sum", "how_much", "breakdown")
    by: Json = {"group_by": group.expression} if group is not None and not group.per_record else {}
    return Calculation({"op": "sum", "of": operand, **by, **_direction(question)}, all_conditions(question))


_SINGLE = re.compile(r"\bhow much (?:do|does|did|is|was|will|would) an? ", re.IGNORECASE)


def _asks_about_one_thing(question: SegmentedQuestion) -> bool:
    """Return whether the amount for one thing is asked for, so that a sum is wrong: "how much does a lantern cost"."""
    return _SINGLE.search(question.parsed.sentence.text) is not None


_OPERATION_WORDS = {"tot": "sum", "total": "sum", "sum": "sum", "avg": "avg", "average": "avg", "mean": "avg"}


def _field_named_aggregate(question: SegmentedQuestion, group: Group | None) -> Calculation | None:
    """Return the sum or average by group that a field's name states: "total amount per kind" for `tot_amt`; or None."""
    named = {name for _, segment in question.field_segments() if segment.strength >= 4 for name in segment.fields
             if name in question.columns.measures}  # fmt: skip
    words = [word for name in named for word in question.columns.name_words[name][:1]]  # none for 期数, a mere unit
    op = _OPERATION_WORDS.get(words[0]) if len(named) == len(words) == 1 else None
    if op is None or group is None or group.per_record or not (operand := read_operand(question)):
        return None
    decimals: Json = {"decimals": 2} if op == "avg" else {}
    return Calculation({"op": op, "of": operand, "group_by": group.expression, **decimals}, all_conditions(question))


def _total_count(question: SegmentedQuestion) -> Calculation | None:
    """Return a count of records if "total" stands without a field: "denied permits: what is the total?"; else None."""
    conditions = all_conditions(question)
    if not question.has_kind("sum") or not (conditions or question.has_kind(RECORD)) or any(question.field_segments()):
        return None
    question.mark_used("sum")
    return Calculation({"op": "count"}, conditions)


def _count_by_group(question: SegmentedQuestion, group: Group | None) -> Calculation | None:
    """Return a count by group that no word asks for, or None: "complaints by district", "which statuses are there"."""
    conditions = all_conditions(question)
    if group is not None and not group.per_record:
        if question.mark_used("breakdown"):
            question.mark_used("how")  # "how do the reports split by district"
        question.mark_used("apart")
        if question.has_kind("sum", "avg", "median"):
            return None
        return Calculation(
            {"op": "count", "of": None, "group_by": group.expression, **_direction(question)}, conditions
        )
    fields = [(index, name) for index, segment in question.field_segments() if (name := question.group_field(segment))]
    asks = (question.has_kind("exists") and question.has_kind("which")) or question.has_kind("listed")
    if asks and len(fields) == 1 and fields[0][1] not in {condition.field for condition in conditions}:
        question.used.add(fields[0][0])
        question.mark_used("exists", "listed")
        return Calculation({"op": "count", "group_by": fields[0][1]}, conditions)
    if question.has_kind("ordered_down", "ordered_up", "breakdown", "rank") and len(fields) == 1:
        question.used.add(fields[0][0])
        question.mark_used("count", "breakdown", "rank")
        direction = _direction(question) or {"order": "desc"}
        return Calculation({"op": "count", "group_by": fields[0][1], **direction}, conditions)
    return None
