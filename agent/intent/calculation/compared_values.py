"""Calculations that compare the values of one field: "did Ann or Bo write more", "2022 beside 2023"."""

from agent.intent.calculation.extremes import implied_field, read_average_op
from agent.intent.calculation.groups import ComparedValues, is_free_segment
from agent.intent.calculation.parameters import SUPERLATIVES, read_operand
from agent.intent.calculation.segment import segment_text
from agent.intent.calculation.segmented_question import (
    Calculation,
    SegmentedQuestion,
    UnclearCalculation,
    all_conditions,
    words_of_kind,
)
from agent.intent.conditions.filter_json import Json
from agent.intent.words import word_table

THAN = frozenset(["than", "比"])
"""Words before a value that others are compared with."""
ASKING = frozenset("did do does has have had is are was were".split())
"""First words of a question for yes or no, or for one of two: "did Ann or Bo write more"."""


def difference_calculation(question: SegmentedQuestion, comparison: ComparedValues) -> Calculation | None:
    """Return the difference between two values that are compared; None if it cannot be calculated.

    Raises:
        UnclearCalculation: totals or averages may be meant, or an amount that no field is named for.
    """
    _check_sides(question, comparison)
    question.mark_used("difference", "how_big", "more", "fewer", "count", "versus", "apart", "between", "or")
    operand = read_operand(question)
    if operand is None and comparison.identifies_records:
        operand = next((implied_field(question, index) for index in question.indices_of("difference")), None)
    more: Json = {}
    if len(comparison.values) != 2 or question.has_kind("avg", "median"):
        return None
    said = words_of_kind(question, "difference")
    directed = any(more in word for word in said for more in ("more", "fewer", "longer", "higher", "larger", "多"))
    compares = any(more in word for word in said for more in ("longer", "higher", "larger"))
    conditions = all_conditions(question)
    totals = operand is not None and not directed and not comparison.identifies_records
    compares |= totals and len(conditions) > 1
    if compares and not comparison.identifies_records and not question.has_kind("sum"):
        raise UnclearCalculation("totals or averages")
    if operand is None and (comparison.identifies_records or any("how much" in word.casefold() for word in said)):
        raise UnclearCalculation("an amount that no field is named for")  # "how much taller" counts no records
    if not directed and not totals:
        more = {"order": "desc"}
    op = "sum" if totals else "difference"  # show both totals instead of their difference: averages may be meant
    between = list(comparison.values)
    aggregate: Json = {"op": op, "of": operand, "group_by": comparison.expression, "between": between, **more}
    return Calculation(aggregate, conditions)


def _check_sides(question: SegmentedQuestion, comparison: ComparedValues) -> None:
    """Check that one of the compared values stands before "than".

    Raises:
        UnclearCalculation: all stand behind it: "more than Ann and Bo" asks for others, "than Ann did Bo" is inverted.
    """
    than = [one for one in question.segments if segment_text(question.parsed.sentence, one).casefold() in THAN]
    named = [
        one for one in question.segments if one.condition is not None and one.condition.field == comparison.expression
    ]
    if len(comparison.values) < 2 or (than and named and all(one.start > than[0].start for one in named)):
        raise UnclearCalculation("values that others are compared with")


def compare_values(question: SegmentedQuestion, comparison: ComparedValues) -> Calculation | None:
    """Return a calculation for each of the compared values, or for the higher or lower one; None if none are compared.

    Examples: "more in Old Town or in Eastfield", "Ann and Bo each", "the median in 2022 and 2023".
    """
    middle = read_average_op(question)
    counts, summed = question.has_kind("count"), question.has_kind("sum")
    implying = question.indices_of("rising", "falling") if comparison.identifies_records else []
    chooses = question.has_kind("more", "fewer", *SUPERLATIVES) or bool(implying)
    chooses = chooses and not question.has_kind("count", "how_much", "apart", "difference")
    compared = question.has_kind("more", "fewer", "apart", "ratio") or bool(implying) or question.has_word("versus")
    together = question.has_kind("together", "sum") and not compared
    compares = compared or question.has_kind("per") or (chooses and question.has_kind(*SUPERLATIVES))
    if together or not (compares or counts or middle) or (middle is None and question.has_kind("per") and not counts):
        return None
    _check_sides(question, comparison)
    question.mark_used(
        "versus", "more", "fewer", "apart", "ratio", "count", "or", "sum", "together", "between", "per", *SUPERLATIVES
    )
    aggregate: Json = {"group_by": comparison.expression, "between": list(comparison.values)}
    which = question.has_kind("which", "who") or comparison.identifies_records
    if question.parsed.sentence.folded(0) in ASKING:  # "is Ann taller than Bo" is answered by both numbers
        which = any(token.folded in word_table("calculation")["or"] for token in question.parsed.sentence.tokens)
    operand = read_operand(question) or next((implied_field(question, index) for index in implying), None)
    question.used.update(implying)
    if chooses and which:
        low = question.has_kind("fewer", "fewest", "lowest", "falling")
        if operand is not None and question.columns.is_rank(operand):
            if not question.columns.is_in_every_document(operand):
                raise UnclearCalculation("a place that some records lack")
            low = not low  # the higher of two ranks is the smaller number
        aggregate |= {"order": "asc" if low else "desc", "limit": 1, "ties": True}
    if middle is not None:
        if operand is None:
            return None
        question.mark_used("avg", "median")
        aggregate |= {"op": middle, "of": operand} | ({"decimals": 2} if middle == "avg" else {})
    elif operand is not None and (comparison.identifies_records or not counts or summed):
        aggregate |= {"op": "sum", "of": operand}
    elif comparison.identifies_records:
        return None  # the values are single records, so there is no number of records
    else:
        aggregate |= {"op": "count", "of": _counted_field_after_more(question)}
    return Calculation(aggregate, all_conditions(question))


def _counted_field_after_more(question: SegmentedQuestion) -> str | None:
    """Return the field whose values are compared in number: `event` for "have more [events]"; None for documents."""
    for index in question.indices_of("more", "fewer"):
        behind = question.neighbour(index, 1)
        name = question.group_field(question.segments[behind]) if behind is not None else None
        if behind is not None and name is not None and is_free_segment(question, behind, name):
            question.used.add(behind)
            return name if question.columns.has_repeated_values(name) else None
    return None
