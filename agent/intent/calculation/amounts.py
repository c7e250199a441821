"""Counts, sums, averages and medians, over all records or by group."""

import re
from dataclasses import replace

from agent.intent.calculation.ends import LISTINGS, read_middle
from agent.intent.calculation.groups import Group, people_meant, read_group, read_several
from agent.intent.calculation.part import RECORD, UNIT
from agent.intent.calculation.question import Calculation, Question, Unclear, pieces_of
from agent.intent.calculation.slots import check_unit, read_decimals, read_length, read_operand, read_target, read_unit
from agent.intent.catalogue import truth_of
from agent.intent.filter_json import Json


def read_counted_field(question: Question) -> str | None:
    """Return the field whose distinct values the question counts: `author` for "how many authors"; or None.

    Mark the words for the field as used.
    """
    for place in question.of_kind("count", "distinct"):
        target = read_target(question, place)
        if target is None:
            continue
        part = question.parts[target]
        if part.kind == RECORD:
            return None
        name = people_meant(question) if part.kind == "people" and not part.fields else None
        if part.kind == "people" and not name and not part.fields:
            return None
        name = name or question.group_of(part)
        if name is not None and truth_of(question.columns.vocabulary.catalogue.fields[name]) is not None:
            return None  # yes and no are not counted
        if name is not None and not question.has("distinct") and not question.columns.is_repeated(name):
            return None  # the values differ in nearly every record, so the records may be meant
        if name is not None and not _is_constrained_value(question, name):
            question.used.update((place, target))
            question.taken.add(name)
            question.take("distinct", "sum")
            return name
    return None


def _is_constrained_value(question: Question, name: str) -> bool:
    """Return whether a constraint demands one value of the single-valued field `name`: its count is always 1."""
    return any(
        part.piece is not None and part.piece.field == name and part.piece.filter["type"] == "eq"
        and not question.columns.is_list(name)
        for part in question.parts
    )  # fmt: skip


def read_amount(question: Question) -> Calculation | None:
    """Return the average, count or sum that is asked for, by group if one is stated; None if there is none."""
    middle, group = read_middle(question), read_group(question)
    if middle is not None:
        return _middled(question, middle, group)
    decimals = read_decimals(question)
    made = _counted(question, group) or _summed(question, group) or _named_so(question, group)
    made = made or _grouped(question, group) or _total(question)
    if made is None or decimals is None:
        return made
    return replace(made, aggregate={**made.aggregate, "decimals": decimals})


def _middled(question: Question, middle: str, group: Group | None) -> Calculation | None:
    """Return the average or median of a numeric field, of the length of a list, or of group sizes; None if unclear.

    Args:
        middle: "avg" or "median".
    """
    given = read_decimals(question)
    decimals: Json = {"decimals": 2 if given is None else given} if middle == "avg" or given is not None else {}
    per_record, groups = group is not None and group.per_record, group is not None and not group.per_record
    question.take("avg", "median")
    counts = question.has("count")
    if groups and group is not None and (_is_cut(question, group.expression) or read_several(question)):
        return None
    if per_record and (length := read_length(question)) is not None:
        question.take("count", "sum")
        return Calculation({"op": middle, "of": length, **decimals}, pieces_of(question))
    target = next((read_target(question, place) for place in question.of_kind("count")), None)
    records = counts and target is not None and question.parts[target].kind == RECORD
    records = records or (counts and target is None and bool(pieces_of(question)))
    number = question.number_of(question.parts[target]) if groups and target is not None and not records else None
    if number is not None and group is not None and target is not None and not question.is_condition(number):
        # "average number of beds per country": a numeric field holds the number of beds
        question.used.add(target)
        question.take("count", "sum")
        aggregate: Json = {"op": middle, "of": number, "group_by": group.expression, **decimals}
        return Calculation(aggregate, pieces_of(question))
    if groups and group is not None and (records or counts):
        question.take("count", "sum")
        values = None if records or target is None else question.group_of(question.parts[target])
        if target is not None:
            question.used.add(target)
        of: Json = {"op": "count", "of": values} if values else {"op": "count"}
        return Calculation({**of, "group_by": group.expression, "over": middle, **decimals}, pieces_of(question))
    operand = read_operand(question) or (None if records else read_length(question))
    if operand is None or (question.is_condition(operand) and (counts or not groups)):
        return None
    question.take("count")
    by: Json = {"group_by": group.expression} if groups and group is not None else {}
    return Calculation({"op": middle, "of": operand, **by, **_direction(question), **decimals}, pieces_of(question))


def _is_cut(question: Question, group: str) -> bool:
    """Return whether the groups of the expression `group` are incomplete, so that their average size is wrong.

    A range of dates cuts the periods at its ends; a condition on a list field leaves out records with other
    values of that field.
    """
    bounds = [one for dated in question.found.dates for one in (dated.period.low, dated.period.high) if one is not None]
    period, _, date = group.partition("(")
    if date and period != "year":
        return len(bounds) != 2 or (bounds[1] - bounds[0]).days > 366
    constrained = any(one.field == group and question.columns.is_list(group) for one in question.found.constraints)
    return constrained or (bool(date) and any((one.month, one.day) != (1, 1) for one in bounds))


def _direction(question: Question) -> Json:
    """Return {"order": "desc"} or {"order": "asc"} if the question states the order of the groups, else {}."""
    down, up = question.take("ordered_down"), question.take("ordered_up")
    return {"order": "desc" if down else "asc"} if down or up else {}


def _counted(question: Question, group: Group | None) -> Calculation | None:
    """Return the count of records or of distinct values of a field, or the sum of a field like "number of beds".

    None if the question counts nothing, or nothing that a field holds.
    """
    if not question.has("count", "distinct"):
        return None
    for_each = _counted_for_each(question)
    if for_each is not None:
        question.take("count")
        return Calculation({"op": "count", "group_by": for_each.expression}, ())
    if len({read_target(question, place) for place in question.of_kind("count")} - {None}) > 1:
        return None  # several things are counted
    pieces = pieces_of(question)
    by: Json = {"group_by": group.expression} if group is not None and not group.per_record else {}
    number = _counted_number(question)
    several = read_several(question)
    if number is None and ((several and several.is_row) or any(question.selects_one(piece.filter) for piece in pieces)):
        return None  # the question names the single records, so their number is known
    if number is not None:
        made = Calculation({"op": "sum", "of": number, **by, **_direction(question)}, pieces)
        return made if pieces or by or question.says("sum") else None
    field = read_counted_field(question)
    if field is not None and field == by.get("group_by"):
        question.take("count", "distinct", "apart")
        # 每个检查员做了多少次检查: "how many checks did each inspector make"
        return Calculation({"op": "count", **by, **_direction(question)}, pieces)
    if field is not None:
        return Calculation({"op": "count", "of": field, **by, **_direction(question)}, pieces)
    if not question.has("count") or not _counts_records(question):
        return None
    question.take("count", "sum", "breakdown", "together")
    if by:
        question.take("apart")
    counted: Json = {"op": "count", "of": None, **by, **_direction(question)} if by else {"op": "count"}
    return Calculation(counted, pieces)


def _counted_for_each(question: Question) -> Group | None:
    """Return the field of people as the group if "who" precedes the counting word: "[who] added how many"; or None."""
    who, counts = question.of_kind("who"), question.of_kind("count")
    name = people_meant(question) if who and counts and who[0] < counts[0] and not pieces_of(question) else None
    if name is None or not question.found.sentence.text.isascii():
        return None
    question.taken.add(name)
    return Group(name, who[0])


_HAD = re.compile(
    r"\s*(?:(?:does|do|did)\s+(?!we\b|you\b|i\b|they\b|there\b|each\b|every\b)[^?]{1,80}?\s(?P<have>have|contain|hold)\b|has\s+)",
    re.IGNORECASE,
)
_HAVING = frozenset("we you i have hold own there total".split())
"""Words of which two together ask for all records: "how many parts do [we] [have]"."""


def _is_of_some(question: Question) -> bool:
    """Return whether the count has a condition or a group, or the question says that it means all records."""
    grouped = any(question.parts[place].kind in ("per", "by") for place in question.used)
    said = {token.folded for token in question.found.sentence.tokens}
    every = len(said & _HAVING) > 1 or bool(said & LISTINGS)
    return bool(pieces_of(question) or question.absent or question.found.lengths or grouped or every)


def _counts_records(question: Question) -> bool:
    """Return whether "how many" counts records, rather than things that are only in their texts ("how many arches")."""
    for place in question.of_kind("count"):
        target = read_target(question, place)
        if target is not None and question.parts[target].kind == RECORD:
            guessed = question.parts[target].guessed
            return not guessed or (_is_of_some(question) and not _is_had(question, target))
        name = question.group_of(question.parts[target]) if target is not None else None
        if target is not None and name is not None and not question.columns.is_repeated(name):
            question.used.add(target)
            return True
        if target is None:
            continue
        condition = next((one for one in question.parts[target].fields if question.is_condition(one)), None)
        if condition is not None:
            question.used.add(target)
            return True  # "how many scores were above 15"
        return False
    place = question.of_kind("count")[-1]
    last, behind = question.parts[place], question.parts[place + 1 : place + 2]
    if behind and behind[0].kind == "exactly" and behind[0].start == last.end:
        return False  # in 多少只 ("how many", of animals), 只 is a classifier and not "only"
    return bool(pieces_of(question)) or question.has(RECORD) or question.found.sentence.text[last.end - 1] in "篇份件起"


def _is_had(question: Question, target: int) -> bool:
    """Return whether the question asks how many things a subject has: "how many [arches] does the viaduct have".

    Only the texts of the documents can answer this. `target` is the index of the part that names the things.
    """
    text = question.found.sentence.text
    said = _HAD.match(text, question.parts[target].end)
    if said is None:
        return False
    last = len(text.rstrip(" ?.!"))
    return said["have"] is not None or any(
        said.end() <= piece.start and piece.end >= last for piece in pieces_of(question)
    )


def _counted_number(question: Question) -> str | None:
    """Return the numeric field that "how many" asks for: `points` for "how many points did Ann score"; or None."""
    for place in question.of_kind("count"):
        behind = question.beside(place, 1)
        if behind is not None and question.parts[behind].kind == UNIT and question.has("sum"):
            name = read_unit(question)  # "how many minutes in total"
            if name is not None:
                question.used.add(place)
                question.take("sum")
            return name
        target = read_target(question, place)
        if target is None or question.parts[target].kind == RECORD:
            continue
        name = question.number_of(question.parts[target])
        if name is not None and any(map(question.columns.is_year, question.parts[target].fields)):
            raise Unclear("a sum of years")
        if name is not None and not question.is_condition(name):
            check_unit(question, name)
            question.used.update((place, target))
            question.take("sum")
            return name
    return None


def _summed(question: Question, group: Group | None) -> Calculation | None:
    """Return the sum of a numeric field, by group if one is stated; None if no sum is asked for."""
    if not question.has("sum", "how_much") or (not question.has("sum") and _is_of_a_single(question)):
        return None
    operand = read_operand(question)
    if operand is None or question.is_condition(operand):
        return None
    question.take("sum", "how_much", "breakdown")
    by: Json = {"group_by": group.expression} if group is not None and not group.per_record else {}
    return Calculation({"op": "sum", "of": operand, **by, **_direction(question)}, pieces_of(question))


_SINGLE = re.compile(r"\bhow much (?:do|does|did|is|was|will|would) an? ", re.IGNORECASE)


def _is_of_a_single(question: Question) -> bool:
    """Return whether the amount for one thing is asked for, so that a sum is wrong: "how much does a lantern cost"."""
    return _SINGLE.search(question.found.sentence.text) is not None


_NAMED = {"tot": "sum", "total": "sum", "sum": "sum", "avg": "avg", "average": "avg", "mean": "avg"}


def _named_so(question: Question, group: Group | None) -> Calculation | None:
    """Return the sum or average by group that a field's name states: "total amount per kind" for `tot_amt`; or None."""
    named = {name for _, part in question.fields() if part.strength >= 4 for name in part.fields
             if name in question.columns.measures}  # fmt: skip
    words = [word for name in named for word in question.columns.words[name][:1]]  # none for 期数, a mere unit
    op = _NAMED.get(words[0]) if len(named) == len(words) == 1 else None
    if op is None or group is None or group.per_record or not (operand := read_operand(question)):
        return None
    decimals: Json = {"decimals": 2} if op == "avg" else {}
    return Calculation({"op": op, "of": operand, "group_by": group.expression, **decimals}, pieces_of(question))


def _total(question: Question) -> Calculation | None:
    """Return a count of records if "total" stands without a field: "denied permits: what is the total?"; else None."""
    pieces = pieces_of(question)
    if not question.has("sum") or not (pieces or question.has(RECORD)) or any(question.fields()):
        return None
    question.take("sum")
    return Calculation({"op": "count"}, pieces)


def _grouped(question: Question, group: Group | None) -> Calculation | None:
    """Return a count by group that no word asks for, or None: "complaints by district", "which statuses are there"."""
    pieces = pieces_of(question)
    if group is not None and not group.per_record:
        if question.take("breakdown"):
            question.take("how")  # "how do the reports split by district"
        question.take("apart")
        if question.has("sum", "avg", "median"):
            return None
        return Calculation({"op": "count", "of": None, "group_by": group.expression, **_direction(question)}, pieces)
    fields = [(place, name) for place, part in question.fields() if (name := question.group_of(part))]
    asks = (question.has("exists") and question.has("which")) or question.has("listed")
    if asks and len(fields) == 1 and fields[0][1] not in {piece.field for piece in pieces}:
        question.used.add(fields[0][0])
        question.take("exists", "listed")
        return Calculation({"op": "count", "group_by": fields[0][1]}, pieces)
    if question.has("ordered_down", "ordered_up", "breakdown", "rank") and len(fields) == 1:
        question.used.add(fields[0][0])
        question.take("count", "breakdown", "rank")
        direction = _direction(question) or {"order": "desc"}
        return Calculation({"op": "count", "group_by": fields[0][1], **direction}, pieces)
    return None
