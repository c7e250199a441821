"""Read all conditions on numeric fields: comparisons, ranges, levels ("2 bed"), and documents by number ("PEP 703")."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agent.intent.analysis.comparisons import Comparison, find_comparisons, swap_bounds
from agent.intent.analysis.field_linking import FieldIndex, field_index_of
from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.counted_nouns import read_none_or_some
from agent.intent.conditions.document_numbers import (
    NumberCondition,
    document_number_ranges,
    documents_by_number,
    holds_years,
)
from agent.intent.conditions.number_features import NumberCandidate
from agent.intent.conditions.number_scoring import score_numbers
from agent.intent.language.units import Unit

UnclearComparison = tuple[int, int, str]
"""Characters [start, end) of a comparison without a condition, and the reason."""
_HOLDS: Mapping[bool, Callable[[float, float], bool]] = {True: operator.le, False: operator.lt}


def read_number_conditions(sentence: Sentence) -> tuple[list[NumberCondition], list[UnclearComparison]]:
    """Return the conditions on numeric fields, outside of dates, and the unclear comparisons."""
    columns = field_index_of(sentence.vocabulary)
    if not columns.measures:
        return [], []
    found, left = split_comparisons(sentence)
    scored, reasons = score_numbers(sentence, columns, left)
    found += _join_of_field([_to_condition(one, probability, columns) for one, probability in scored])
    said = {one.field for one in found}
    found += [one for one in read_none_or_some(sentence, columns) if one.field not in said]
    unclear = [(left[place].start, left[place].end, reason) for place, reason in reasons.items()]
    return [*found, *documents_by_number(sentence, found)], unclear


def split_comparisons(sentence: Sentence) -> tuple[list[NumberCondition], list[Comparison]]:
    """Return the conditions on documents' numbers, and the comparisons of all other numbers."""
    comparisons, _ = find_comparisons(sentence)
    found = document_number_ranges(sentence, comparisons)
    left = (one for one in comparisons if not any(one.start < known.end and known.start < one.end for known in found))
    return found, list(left)


def _to_condition(one: NumberCandidate, probability: float, columns: FieldIndex) -> NumberCondition:
    """Return the condition that a candidate states; whole numbers become integers."""
    stated, measure = one.comparison, columns.measures[one.field]
    is_time = any(unit.kind == "time" for unit in measure.units)
    if (stated.dimension == "speed" and not is_time) or (
        stated.dimension == "age" and holds_years(columns.vocabulary, one.field)
    ):
        stated = swap_bounds(stated)
    numbers = [int(number) if number == int(number) else round(number, 6) for number in one.numbers]
    if stated.values:
        made = NumberCondition(
            one.field, stated.start, stated.end, values=tuple(numbers), negated=stated.negated,
            probability=probability,
        )  # fmt: skip
    else:
        low = numbers[0] if stated.low is not None else None
        high = numbers[-1] if stated.high is not None else None
        made = NumberCondition(
            one.field, stated.start, stated.end, low, high, stated.low_included, stated.high_included,
            probability=probability,
        )  # fmt: skip
    return _with_matching_texts(made, columns, one.unit)


def _join_of_field(made: Sequence[NumberCondition]) -> list[NumberCondition]:
    """Return one condition for each field: "over 100 and under 200 euros" is a range, "phases 1 and 2" a choice.

    Of a bound and a value of the same field, the more probable one is returned.
    """
    joined: dict[str, NumberCondition] = {}
    for one in made:
        other = joined.get(one.field)
        if other is None:
            joined[one.field] = one
        elif one.values and other.values and one.negated == other.negated:
            joined[one.field] = _joined(one, other, values=tuple(dict.fromkeys((*other.values, *one.values))))
        elif one.values or other.values or (one.low is None) == (other.low is None):
            joined[one.field] = max(other, one, key=lambda each: each.probability)
        else:
            low, high = (other, one) if one.low is None else (one, other)
            joined[one.field] = _joined(
                one, other, low=low.low, high=high.high, low_included=low.low_included, high_included=high.high_included
            )
    return list(joined.values())


def _joined(one: NumberCondition, other: NumberCondition, **stated: Any) -> NumberCondition:
    """Return a condition as `stated` in the words of two, with the texts that satisfy it."""
    texts = None
    if one.texts is not None and other.texts is not None:
        texts = tuple(dict.fromkeys((*other.texts, *one.texts)))
        if "values" not in stated:
            texts = tuple(text for text in texts if text in one.texts and text in other.texts)
    return NumberCondition(
        one.field, min(one.start, other.start), max(one.end, other.end), **stated, negated=one.negated, texts=texts,
        probability=min(one.probability, other.probability),
    )  # fmt: skip


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
