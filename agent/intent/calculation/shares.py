"""Shares: what percentage of some records (the whole) also satisfies a further condition (the part)."""

from agent.intent.calculation.groups import read_compared_values, read_group, read_ranked_group
from agent.intent.calculation.parameters import read_decimals, read_order
from agent.intent.calculation.segmented_question import Calculation, SegmentedQuestion, all_conditions
from agent.intent.conditions.filter_json import Json, all_of
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.text import has_chinese
from agent.intent.values.field_words import concepts_of

_VERBS_OF_STATE = frozenset(
    """
    is are was were got get have has had did do does became become ended carry carried made came dated date dates
    是 占 被 为
    """.split()
)


def read_share(question: SegmentedQuestion) -> Calculation | None:
    """Return the share that is asked for: "what share of the permits got denied".

    None if its condition or its group is missing or unclear.
    """
    conditions = all_conditions(question)
    lengths = question.parsed.length_conditions
    if not conditions and not lengths and not question.absence_conditions:
        return None
    rate_conditions = _rate_conditions(question, conditions)
    if question.has_kind("rate") and not rate_conditions:
        return None
    group, comparison = read_group(question), read_compared_values(question)
    decimals = read_decimals(question)
    order = read_order(question)
    question.mark_used("share", "rate", "sum", "count", "value")
    part, whole = (
        ((), conditions) if question.absence_conditions else _split_conditions(question, conditions, rate_conditions)
    )
    share_filters = question.absence_conditions or [condition.filter for condition in part]
    if not share_filters:
        return None
    aggregate: Json = {"op": "share", "where": all_of(share_filters)}
    aggregate["decimals"] = 1 if decimals is None else decimals
    if group is not None and not group.per_record:
        if group.expression in {condition.field for condition in part}:
            return None  # the share of each value is a distribution
        aggregate["group_by"] = group.expression
    elif order is not None:
        if order.kind == "most" and not rate_conditions:
            return None
        ranked = read_ranked_group(question, order)
        if ranked is None:
            return None
        aggregate |= {"group_by": ranked.expression, "order": order.direction, "limit": order.limit, "ties": True}
    elif (
        comparison is not None
        and comparison.expression not in {condition.field for condition in part}
        and (question.mark_used("versus", "apart") or question.has_word("versus"))
    ):
        aggregate |= {"group_by": comparison.expression, "between": list(comparison.values)}
    return Calculation(aggregate, whole)


def read_share_of_counts(question: SegmentedQuestion) -> Calculation | None:
    """Return the share asked for with two counts, or None: "how many did Ann write, and how many of them are final"."""
    indices = question.indices_of("among")
    counts = question.indices_of("count")
    if not indices or len(counts) != 2 or not counts[0] < counts[1]:
        return None
    start = min(question.segments[indices[-1]].start, question.segments[counts[1]].start)
    conditions = all_conditions(question)
    part = tuple(condition for condition in conditions if condition.start >= start)
    whole = tuple(condition for condition in conditions if condition not in part)
    if not part or not whole:
        return None
    question.mark_used("count", "sum")
    return Calculation({"op": "share", "where": all_of([one.filter for one in part]), "decimals": 1}, whole)


def _rate_conditions(
    question: SegmentedQuestion, conditions: tuple[StatedCondition, ...]
) -> tuple[StatedCondition, ...]:
    """Return the constraints directly before the word "rate": on "approval" in "the approval rate"; () if none."""
    for index in question.indices_of("rate"):
        start = question.segments[index].start
        near = [condition for condition in conditions if 0 <= start - condition.end <= 1]
        if near:
            return tuple(near)
    return ()


def _split_conditions(
    question: SegmentedQuestion, conditions: tuple[StatedCondition, ...], rate_conditions: tuple[StatedCondition, ...]
) -> tuple[tuple[StatedCondition, ...], tuple[StatedCondition, ...]]:
    """Return (constraints for the numerator of the share, constraints for all records that it is a share of).

    Args:
        rate_conditions: the constraints directly before the word "rate"; if there are any, they are the first item.
    """
    if rate_conditions:
        return rate_conditions, tuple(condition for condition in conditions if condition not in rate_conditions)
    if question.parsed.length_conditions:
        return question.parsed.length_conditions, conditions
    existing = tuple(condition for condition in conditions if condition.filter["type"] == "exists")
    if existing and len(existing) < len(conditions):
        return existing, tuple(condition for condition in conditions if condition not in existing)
    among = next((question.segments[index] for index in question.indices_of("among")), None)
    if among is not None and has_chinese(question.parsed.sentence.text[among.start : among.end]):
        inside = _chinese_whole(question, conditions, among.start)
        if inside and len(inside) < len(conditions):
            return tuple(condition for condition in conditions if condition not in inside), inside
    return _split_by_order(question, conditions)


def _chinese_whole(
    question: SegmentedQuestion, conditions: tuple[StatedCondition, ...], end: int
) -> tuple[StatedCondition, ...]:
    """Return the conditions on the whole of a Chinese share, that is, on all records that it is a share of.

    They begin between the last 在 before 里 ("among"), or the beginning of the question, and 里.
    [打包提案]里 Final 占多少 ("how many of the [packaging proposals] are final").

    Args:
        conditions: all conditions of the question.
        end: position of 里 in the text.
    """
    start = question.parsed.sentence.text.rfind("在", 0, end)
    return tuple(condition for condition in conditions if start <= condition.start < end)


def _split_by_order(
    question: SegmentedQuestion, conditions: tuple[StatedCondition, ...]
) -> tuple[tuple[StatedCondition, ...], tuple[StatedCondition, ...]]:
    """Return (constraints for the numerator of the share, constraints for all records), judged by their order.

    "the share of A that are B" -> (B, A). "the share of A in 2025" -> (A, 2025), because a date belongs to all records.
    """
    sentence, dates = question.parsed.sentence, question.columns.date_fields()
    share = question.segments[question.indices_of("share", "rate")[0]]
    verbs = [token for token in sentence.tokens if token.folded in _VERBS_OF_STATE and token.start > share.end]
    verb = next((token for token in verbs if token.start > conditions[0].end), None)
    behind = tuple(condition for condition in conditions if verb is not None and condition.start >= verb.end)
    # In "were P2 last year" the date belongs to the whole. It is the part only if nothing else follows the verb.
    behind = tuple(condition for condition in behind if condition.field not in dates) or behind
    if behind and len(behind) < len(conditions):
        return behind, tuple(condition for condition in conditions if condition not in behind)
    undated = [condition for condition in conditions if condition.field not in dates]
    said = (
        [condition for condition in undated if "kind" not in concepts_of(condition.field)]
        or undated
        or list(conditions)
    )
    leads = question.segments[question.indices_of("share", "rate")[0]].kind == "share" and not any(
        token.start > said[0].end for token in verbs
    )
    chosen = said[0] if leads and len(said) > 1 and sentence.text.isascii() else said[-1]
    return (chosen,), tuple(condition for condition in conditions if condition is not chosen)
