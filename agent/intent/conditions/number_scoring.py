"""Estimate the probability that a comparison in a question is a condition on a numeric field of the documents.

The trees (`number_weights.json`, made by `evals/train_numbers.py`) judge every comparison with every numeric field.
Which field the rules of `field_assignment` choose is a part of their evidence.
"""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files

from agent.intent.analysis.comparisons import Comparison
from agent.intent.analysis.field_linking import FieldIndex
from agent.intent.analysis.sentence import Sentence
from agent.intent.conditions.field_assignment import NO_CHOICE
from agent.intent.conditions.number_features import NumberCandidate, number_candidates
from agent.intent.deciding.decision_trees import TreeEnsemble, parse_trees, sigmoid
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM

_DOUBTFUL = 0.8
_CLEAR_WORD = 3.0
"""Minimum weight of a word that names a field, see `field_assignment.weigh`."""
_FEW_WORDS = 2
_WITHHELD = "it may count documents, so it was not used as a filter"


@cache
def number_model() -> TreeEnsemble:
    """Return the learned trees that are shipped with the package; cached."""
    return parse_trees(json.loads((files("agent.intent") / "number_weights.json").read_text(encoding="utf-8")))


def score_numbers(
    sentence: Sentence, columns: FieldIndex, comparisons: Sequence[Comparison]
) -> tuple[list[tuple[NumberCandidate, float]], Mapping[int, str]]:
    """Return the comparisons that are sure conditions, or probable ones whose field the rules chose too.

    In a calculation, a number may also count the documents of a group ("inspectors with over 50 permits"). Unless it is
    sure that nothing is calculated, only a comparison whose field the rules chose is a condition.

    Returns:
        The most probable candidate of each with its probability, in the order of the question; and by index of other
        comparisons the reasons why they are none.
    """
    judged: dict[int, list[tuple[float, NumberCandidate]]] = {}
    is_calculation = sentence.counts_documents or (sentence.has_calculation_word and not sentence.searches_text)
    withheld: dict[int, str] = {}
    candidates, unclear = number_candidates(sentence, columns, comparisons)
    for one, features in candidates:
        if unclear.get(one.place) == NO_CHOICE and not one.comparison.values:
            continue
        probability = sigmoid(number_model().logit(features))
        if one.is_assigned and features["unit"] and features.get("all inside") and not one.comparison.is_bare:
            probability = max(probability, FILTERS_FROM)  # few examples have a unit
        if not one.is_assigned and _may_be_of_something_else(one, features):
            probability = min(probability, _DOUBTFUL)
        if is_calculation and not one.is_assigned:
            probability, withheld = 0.0, {**withheld, one.place: _WITHHELD}
        judged.setdefault(one.place, []).append((probability, one))
    made = []
    for place in sorted(judged):
        probability, best = max(judged[place], key=lambda option: option[0])
        if probability >= (BOOSTS_FROM if best.is_assigned else FILTERS_FROM):
            made.append((best, probability))
    said = {one.place for one, _ in made}
    return made, {place: reason for place, reason in {**withheld, **unclear}.items() if place not in said}


def _may_be_of_something_else(one: NumberCandidate, features: Mapping[str, float]) -> bool:
    """Return whether a number that no word assigns to the field may be of another thing; few examples are known.

    Examples: a number without any name ("hmm, under 20 then?"), thousands of a noun ("over 100k visitors" for
    `cost_keur`), a noun that several fields may count ("over 20 illustrations"), a word for a field that has no such
    numbers, and an amount that nothing compares ("a fine of 9,000 euros").
    """
    if features["word"]:
        return False
    is_alone = not features["values around"] and not features["nouns"] and features["content words"] < _FEW_WORDS
    counts_thousands = features["scaled"] and features["may count noun"]
    is_bare_amount = one.comparison.is_bare and features["unit stated"]
    return bool(
        is_alone
        or counts_thousands
        or (features["counts noun"] and features["rivals inside"])
        or is_bare_amount
        or features["other word"] >= _CLEAR_WORD
    )
