"""Read all conditions on numeric fields: comparisons, ranges, levels ("2 bed"), and documents by number ("PEP 703")."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agent.intent.analysis.comparisons import find_comparisons, swap_bounds
from agent.intent.analysis.field_linking import FieldIndex, field_index_of
from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.counted_nouns import read_none_or_some
from agent.intent.conditions.document_numbers import (
    NumberCondition,
    document_number_ranges,
    documents_by_number,
    holds_years,
)
from agent.intent.conditions.field_assignment import AssignedComparison, assign_fields
from agent.intent.language.units import Unit

UnclearComparison = tuple[int, int, str]
"""Characters [start, end) of a comparison without a condition, and the reason."""
_HOLDS: Mapping[bool, Callable[[float, float], bool]] = {True: operator.le, False: operator.lt}


def read_number_conditions(sentence: Sentence) -> tuple[list[NumberCondition], list[UnclearComparison]]:
    """Return the conditions on numeric fields, outside of dates, and the unclear comparisons."""
    columns = field_index_of(sentence.vocabulary)
    if not columns.measures:
        return [], []
    comparisons, _ = find_comparisons(sentence)
    found = document_number_ranges(sentence, comparisons)
    left = [one for one in comparisons if not any(one.start < known.end and known.start < one.end for known in found)]
    assigned, reasons = assign_fields(sentence, columns, left)
    found += _join_bounds([_to_condition(one, columns) for one in assigned])
    said = {one.field for one in found}
    found += [one for one in read_none_or_some(sentence, columns) if one.field not in said]
    unclear = [(left[place].start, left[place].end, reason) for place, reason in reasons.items()]
    return [*found, *documents_by_number(sentence, found)], unclear


def _to_condition(one: AssignedComparison, columns: FieldIndex) -> NumberCondition:
    """Return the condition on the field of an assigned comparison; whole numbers become integers."""
    stated, measure = one.comparison, columns.measures[one.field]
    is_time = any(unit.kind == "time" for unit in measure.units)
    if (stated.dimension == "speed" and not is_time) or (
        stated.dimension == "age" and holds_years(columns.vocabulary, one.field)
    ):
        stated = swap_bounds(stated)
    numbers = [int(number) if number == int(number) else round(number, 6) for number in one.numbers]
    if stated.values:
        made = NumberCondition(one.field, stated.start, stated.end, values=tuple(numbers), negated=stated.negated)
    else:
        low = numbers[0] if stated.low is not None else None
        high = numbers[-1] if stated.high is not None else None
        made = NumberCondition(
            one.field, stated.start, stated.end, low, high, stated.low_included, stated.high_included
        )
    return _with_matching_texts(made, columns, one.unit)


def _join_bounds(made: Sequence[NumberCondition]) -> list[NumberCondition]:
    """Return the conditions with two bounds of one field joined into a range: "over 100 and under 200 euros"."""
    joined: dict[str, NumberCondition] = {}
    for one in made:
        other = joined.get(one.field)
        if other is None:
            joined[one.field] = one
            continue
        low, high = (other, one) if one.low is None else (one, other)
        both = None if one.texts is None or other.texts is None else tuple(t for t in one.texts if t in other.texts)
        start, end = min(one.start, other.start), max(one.end, other.end)
        joined[one.field] = NumberCondition(
            one.field, start, end, low.low, high.high, low.low_included, high.high_included, texts=both
        )
    return list(joined.values())


def _with_matching_texts(made: NumberCondition, columns: FieldIndex, said: Unit | None) -> NumberCondition:
    """Return the condition, for a field of numbers kept as texts ("120 pages") with the texts that satisfy it.

    Args:
        said: the unit of the condition's numbers; None if the question states none.
    """
    texts = columns.measures[made.field].texts
    if not texts:
        return made

    def holds(number: float, unit: Unit | None) -> bool:
        if said is not None and unit is not None:
            if unit.kind != said.kind:
                return False
            number *= unit.of / said.of
        if made.values:
            return number in made.values
        above = made.low is None or _HOLDS[made.low_included](made.low, number)
        return above and (made.high is None or _HOLDS[made.high_included](number, made.high))

    return replace(made, texts=tuple(text for text, (number, unit) in texts.items() if holds(number, unit)))
