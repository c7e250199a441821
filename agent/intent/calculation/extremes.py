"""Extremes: who wrote most, the department with the highest total cost, the three latest."""

from collections.abc import Sequence
from dataclasses import replace

from agent.intent.calculation.groups import Group, read_group, read_ranked_group
from agent.intent.calculation.parameters import SUPERLATIVES, RankOrder, read_list_length, read_operand
from agent.intent.calculation.rank_conditions import mentions_rank, order_fields
from agent.intent.calculation.segment import CONDITION, FIELD, NUMBER, RECORD
from agent.intent.calculation.segmented_question import (
    Calculation,
    SegmentedQuestion,
    UnclearCalculation,
    all_conditions,
)
from agent.intent.conditions.date_fields import is_main_date_unclear, is_ordered
from agent.intent.conditions.filter_json import Json
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.units import CURRENCIES
from agent.intent.values.field_words import concepts_of

LIST_WORDS = frozenset("list listed chart table listing 表 列表".split())
"""Words after which "first" and "last" mean the order of the records in their list."""
_OFTEN = ("often", "frequent", "common", "常", "频繁")
_DURATION_WORDS = frozenset("take takes took taking last lasts lasted lasting 花 耗时 用时".split())
"""Words beside which "longer" means a time, not a length."""
_MOST_SHOWN = 4
_MOST_LISTED = 10


def read_extreme(question: SegmentedQuestion, order: RankOrder) -> Calculation | None:
    """Return the calculation of an extreme: "who wrote most", "the three latest"; None if it cannot be calculated."""
    order = _with_field_direction(question, order)
    middle = read_average_op(question)
    if middle is not None and order.is_by_date:
        return None  # "the average of the first three" needs the first three alone, which no aggregate selects
    explicit = read_group(question)
    if explicit is not None and explicit.per_record:
        explicit = None
    if middle is not None or (question.has_kind("sum") and not order.is_by_date):
        return _rank_groups_by_number(question, order, middle, explicit)
    if order.may_be_by_count:
        return _rank_groups(question, order, explicit)
    if explicit is not None and not order.is_by_date:
        operand = read_operand(question) or implied_field(question, order.index)
        op = "max" if order.direction == "desc" else "min"
        return Calculation({"op": op, "of": operand, "group_by": explicit.expression}, all_conditions(question))
    return _find_extreme(question, order)


_OPPOSITE = {"asc": "desc", "desc": "asc"}
_PERIODS = ("year", "month", "quarter")
_AGES = ("oldest",)


def _with_field_direction(question: SegmentedQuestion, order: RankOrder) -> RankOrder:
    """Return the order with the direction that fits the numeric field; "fastest", "slowest" and ages may reverse it.

    "fastest" means the lowest time but the highest speed. "oldest" means the earliest date but the highest age.

    Raises:
        UnclearCalculation: the field is neither a time nor a speed, or "oldest" may mean an age or a date.
    """
    named = [
        name for _, segment in question.field_segments() for name in segment.fields if name in question.columns.measures
    ]
    opposite = replace(order, direction=_OPPOSITE[order.direction])
    if order.is_by_date:
        if implied_field(question, order.index) is None or not set(named) <= set(
            question.columns.implied_fields(_AGES, "ends")
        ):
            return order
        people = set(question.columns.person_fields())
        aged = (
            named
            or question.has_kind("who", "people")
            or any(people & set(segment.fields) for _, segment in question.field_segments())
        )
        dated = question.columns.date_fields() or _only_year_field(question) is not None
        if (dated and not aged) or _names_other_things(question, order.index + 1):
            raise UnclearCalculation("an age or a date")
        return replace(opposite, kind="highest" if opposite.direction == "desc" else "lowest")
    if order.kind not in ("fastest", "slowest"):
        return order
    if (
        order.kind == "slowest"
        and not named
        and (question.has_kind(*_PERIODS) or implied_field(question, order.index) is None)
    ):
        return replace(opposite, kind="fewest")  # the slowest month has the fewest records
    if named and set(named) <= set(question.columns.implied_fields(["speed"], "nouns")):
        return opposite
    if named and not set(named) <= set(question.columns.implied_fields(["time"], "nouns")):
        raise UnclearCalculation("neither a time nor a speed")
    return order


def _names_other_things(question: SegmentedQuestion, index: int) -> bool:
    """Return whether the segment `index` names other things than the records: "the oldest [owner]" of dogs."""
    segment = question.segments[index] if index < len(question.segments) else None
    return segment is not None and segment.kind == FIELD and question.columns.key_fields.isdisjoint(segment.fields)


def _rank_groups_by_number(
    question: SegmentedQuestion, order: RankOrder, middle: str | None, explicit: Group | None
) -> Calculation | None:
    operand = read_operand(question)
    group = explicit or read_ranked_group(question, order)
    question.mark_used("avg", "median", "sum")
    if operand is None or group is None:
        return None
    aggregate: Json = {"op": middle or "sum", "of": operand, "group_by": group.expression}
    aggregate |= {"order": order.direction, "limit": order.limit, "ties": True}
    return Calculation(aggregate | ({"decimals": 2} if middle == "avg" else {}), all_conditions(question))


def _rank_groups(question: SegmentedQuestion, order: RankOrder, explicit: Group | None) -> Calculation | None:
    """Return the ranking of groups by number of records, or by the sum of the numeric field that the question names.

    Without a group, return the list of the records with the highest or lowest value of the field, or with the longest
    or shortest list ("most authors"). None if the question is unclear.
    """
    asked = _asks_for_records(question)
    length = read_list_length(question) if asked else None
    if length is not None:
        return list_first_records(question, order, length)
    said = question.parsed.sentence.text[
        question.segments[order.index].start : question.segments[order.index].end
    ].casefold()
    # "most often" asks for a number of records, not for a sum.
    operand = None if any(word in said for word in _OFTEN) else read_operand(question)
    is_record = any(not question.segments[index].guessed for index in question.indices_of(RECORD))
    if is_record and operand in {one.field for one in question.parsed.numbers}:
        operand = None  # "the genre with the most books with over 500 pages" counts books
    if operand is None and "amount" in said and question.columns.measures and not is_record:
        raise UnclearCalculation("an amount that no field is named for")
    if operand is not None and explicit is not None and said.startswith(("maximum", "minimum")):
        op = "max" if order.direction == "desc" else "min"  # "maximum number of beds per department"
        return Calculation({"op": op, "of": operand, "group_by": explicit.expression}, all_conditions(question))
    group = explicit or (None if asked and operand is not None else read_ranked_group(question, order))
    if group is None or _is_key(question, group.expression):
        own = [group.expression] if group is not None else []
        return list_first_records(question, order, operand, own) if operand is not None else None
    question.mark_used("count")
    if group.expression in _fields_with_one_value(question):
        return None
    aggregate: Json = {
        "op": "sum" if operand else "count", "of": operand, "group_by": group.expression, "order": order.direction,
    }  # fmt: skip
    # Ann comes first among the authors of her own documents, so ask for one more.
    theirs = any(one.field == group.expression and not one.negated for one in question.parsed.constraints)
    aggregate |= {"limit": order.limit + theirs, "ties": True}
    return Calculation(aggregate, all_conditions(question))


def _fields_with_one_value(question: SegmentedQuestion) -> set[str]:
    """Return the single-valued fields for which a constraint demands one value."""
    stated = (
        segment.condition
        for segment in question.segments
        if segment.condition is not None and segment.condition.filter["type"] == "eq"
    )
    return {condition.field for condition in stated if not question.columns.is_list(condition.field)}


def _is_money(question: SegmentedQuestion, expression: str) -> bool:
    """Return whether a numeric field, or an expression of one, is an amount of money."""
    name = expression.removeprefix("number(").rstrip(")")
    measure = question.columns.measures.get(name)
    units = {unit.kind for unit in measure.units} if measure is not None else set()
    return bool(units & CURRENCIES) or "money" in concepts_of(name)


def _is_key(question: SegmentedQuestion, expression: str) -> bool:
    return expression in question.columns.key_fields


def _asks_for_records(question: SegmentedQuestion) -> bool:
    """Return whether the question asks for records: "which document has the most authors", 作者最多的文件是哪份."""
    for index in question.indices_of(RECORD):
        before = question.neighbour(index, -1, over=("filler", "mark", NUMBER, CONDITION, "by"))
        behind = question.neighbour(index, 1)
        after = behind is not None and question.segments[behind].kind == "which"
        ended = before is not None and question.segments[before].kind in ("which", *SUPERLATIVES)
        last_zh = behind is None and not question.parsed.sentence.text.isascii()
        if ended and (after or last_zh or question.segments[before or 0].kind == "which"):
            return True
    return False


def _find_extreme(question: SegmentedQuestion, order: RankOrder) -> Calculation | None:
    """Return the list of the first records in an order, or the "min" or "max" of its field; None if no field fits."""
    if order.is_by_date:
        if mentions_rank(question.parsed.sentence.text, question.columns):
            raise UnclearCalculation("a place or a date")
        of = _numbering_field(question) or question.date_field()
        for index, segment in question.field_segments():
            if of in segment.fields:
                question.used.add(index)
        is_number = of in question.columns.measures or (of or "").startswith("number(")
        if of is not None and not is_number and not is_ordered(question.columns.vocabulary, of):
            return _list_extreme_period(question, order, of)
        of = of or _use_only_year_field(question)
    else:
        of = read_list_length(question) or read_operand(question)
        other = implied_field(question, order.index) if of is None or not _is_money(question, of) else None
        if of is None or (other is not None and _is_money(question, other)):
            of = other  # "the dearest bottle" means the price, not the field for the number of bottles
    if of is None:
        return None
    asks_for_records = _asks_for_first_records(question, order, of)
    if order.is_by_date and question.has_kind("when") and not question.has_kind("which"):
        return Calculation({"op": "max" if order.direction == "desc" else "min", "of": of}, all_conditions(question))
    if not asks_for_records and not order.is_by_date and order.limit == 1:
        if question.has_kind("who"):
            raise UnclearCalculation("who it is, and no field names the records")
        question.mark_used("count")
        return Calculation({"op": "max" if order.direction == "desc" else "min", "of": of}, all_conditions(question))
    return list_first_records(question, order, of)


def _list_extreme_period(question: SegmentedQuestion, order: RankOrder, of: str) -> Calculation | None:
    """Return the list of the records of the first or last period of the date field `of`, whose texts cannot be sorted.

    None if the question has other conditions, asks for several records, or asks for a value that no field holds.
    """
    units = question.columns.vocabulary.date_units[of]
    if (
        order.limit > 1
        or all_conditions(question)
        or question.absence_conditions
        or question.extra_conditions
        or means_list_order(question)
    ):
        return None
    text = units.last() if order.direction == "desc" else units.first()
    shown = read_shown_fields(question, of)
    if (
        not shown
        and not question.has_kind("when")
        and not any(of in segment.fields for _, segment in question.field_segments())
    ):
        return None  # no field holds what is asked for
    question.mark_used("when", "value")
    condition = StatedCondition(of, {"type": "eq", "key": of, "value": text}, 0, 0)
    return Calculation({"op": "list", "limit": _MOST_LISTED, "show": [*shown[: _MOST_SHOWN - 1], of]}, (condition,))


def means_list_order(question: SegmentedQuestion) -> bool:
    """Return whether "first" and "last" mean the order in which the records are listed: "the last city listed"."""
    return bool({token.folded for token in question.parsed.sentence.tokens} & LIST_WORDS)


def _numbering_field(question: SegmentedQuestion) -> str | None:
    """Return the field of ranks ("ranked first") or, as an expression, running numbers ("the last city listed")."""
    ranks = [(index, name) for index, segment in question.field_segments() for name in segment.fields
             if name in question.columns.measures and question.columns.is_rank(name)]  # fmt: skip
    if len(ranks) == 1:
        question.used.add(ranks[0][0])
        return ranks[0][1]
    running = order_fields(question.columns, ranks_only=False) if means_list_order(question) else []
    return running[0] if len(running) == 1 else None


def _only_year_field(question: SegmentedQuestion) -> str | None:
    """Return the only numeric field that holds years, which can stand for a date; None if there is not exactly one."""
    if means_list_order(question):
        return None  # the first record of a list is not the earliest
    years = [name for name in question.columns.measures if question.columns.is_year(name)]
    return years[0] if len(years) == 1 else None


def _use_only_year_field(question: SegmentedQuestion) -> str | None:
    """Return `_only_year_field`, and mark the words for it as used: "the last [year]", "when was it [released]"."""
    of = _only_year_field(question)
    if of is not None:
        question.mark_used("year")
        question.used.update(index for index, segment in question.field_segments() if segment.fields == (of,))
    return of


def _asks_for_first_records(question: SegmentedQuestion, order: RankOrder, of: str) -> bool:
    """Return whether the question asks for the first records in an order, not for their value of the field `of`."""
    for index, segment in enumerate(question.segments):
        before = question.neighbour(index, -1, over=("filler", "mark", NUMBER))
        led = before is not None and (question.segments[before].kind == "which" or before == order.index)
        if segment.kind == RECORD and index not in question.used and (led or index < order.index):
            return True
        if segment.condition is not None and led:
            return True
        if segment.fields and of not in segment.fields and led and not question.numeric_field(segment):
            return True
    return False


def list_first_records(
    question: SegmentedQuestion, order: RankOrder, of: str | None, own: Sequence[str] = ()
) -> Calculation:
    """Return the calculation that lists the first records in an order, with the fields that the question asks for.

    Args:
        of: the expression to order by, such as `number(price)`.
        own: more fields to show, before the others.
    """
    shown = list(dict.fromkeys((*own, *read_shown_fields(question, of)))) or question.columns.title_fields()
    aggregate: Json = {
        "op": "list", "of": of, "order": order.direction, "limit": order.limit,
        "show": [*shown[: _MOST_SHOWN - 1], *([of] if of else [])], "ties": order.limit == 1 and not order.nth,
    }  # fmt: skip
    question.mark_used("count", "when", "value", "how_much")
    if means_list_order(question):  # the first translation listed is not that of a record without one
        lacking = [name for name in shown if not question.columns.is_in_every_document(name)]
        question.extra_conditions += [{"type": "exists", "key": name, "value": True} for name in lacking]
    return Calculation(aggregate, all_conditions(question))


def read_shown_fields(question: SegmentedQuestion, of: str | None = None) -> list[str]:
    """Return the fields whose values the question asks for, without `of`, and mark the words for these as used."""
    shown: list[str] = []
    for index, segment in question.field_segments():
        if index in question.used or segment.kind not in (
            FIELD,
            "year",
            "month",
            "name_of",
            "people",
            "filler",
            "value",
        ):
            continue
        if (segment.kind == "filler" and segment.strength < 5) or (
            question.is_state_condition(index) and not question.has_kind("when")
        ):
            continue
        names = [name for name in segment.fields if name in question.columns.vocabulary.roles]
        if not names or (len(names) > 1 and segment.strength > 2):
            continue
        question.used.add(index)
        shown.append(names[0])
    people = question.columns.person_fields()
    if question.has_kind("who") and people and not set(shown) & set(people):
        shown.append(people[0])
    dates = question.columns.date_fields()
    if question.has_kind("when") and not set(shown) & set(dates):
        shown += dates if is_main_date_unclear(question.columns.vocabulary) else [question.date_field() or ""]
    return [name for name in dict.fromkeys(shown) if name and name != of]


def implied_field(question: SegmentedQuestion, index: int) -> str | None:
    """Return the one numeric field that the segment `index` implies: the price for "most expensive"; or None."""
    segment = question.segments[index]
    sentence, measures = question.parsed.sentence, question.columns.measures
    named = {
        name
        for token_index in range(segment.first, segment.last)
        for name in sentence.cue_fields(token_index)
        if name in measures
    }
    if len(named) == 1:
        return question.field_expression(named.pop())
    said = sentence.text[segment.start : segment.end].casefold()
    found = question.columns.implied_fields([said, *said.split()], "ends")
    if any(token.folded in _DURATION_WORDS for token in sentence.tokens):
        times = question.columns.implied_fields(["time"], "nouns")
        found = tuple(name for name in found if name in times)
    return question.field_expression(found[0]) if len(found) == 1 else None


def read_average_op(question: SegmentedQuestion) -> str | None:
    """Return "avg" or "median", or None if neither is asked for.

    Raises:
        UnclearCalculation: both are asked for.
    """
    if question.has_kind("avg") and question.has_kind("median"):
        raise UnclearCalculation("average and median")
    return "median" if question.has_kind("median") else "avg" if question.has_kind("avg") else None
