"""Train agent/intent/number_weights.json: `python -m evals.train_numbers`, from the checkout, a minute.

Boosted trees learn from every comparison of the development questions ("over 5", "between 2 and 8", "phase 3") with
every numeric field of their collection that has such numbers. Such a candidate is right if a gold filter has the
condition, or its negation. Questions of evals/data/numbers-in-questions are labelled with their conditions on numbers
only. The evaluation and the calibration of the probabilities use trees that were trained without the candidate's
collection.
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agent.intent.analysis.field_linking import field_index_of
from agent.intent.conditions.number_conditions import split_comparisons
from agent.intent.conditions.number_features import NumberCandidate, number_candidates
from agent.intent.conditions.question_parser import to_sentence, with_dates
from agent.intent.values.vocabulary import Vocabulary, build_vocabulary
from evals.reading_data import ReadingData, corpus_reading_data, question_time
from evals.train_deciding import DATA, ROOT, known_features, learn, leaves_of, report, sets

PLAIN, NUMBERED = DATA / "reading-plain", DATA / "numbers-in-questions"
TARGET = ROOT / "agent" / "intent" / "number_weights.json"
_SHARED_SETTINGS: Mapping[str, Any] = {
    "min_data_in_leaf": 8, "lambda_l2": 3.0, "learning_rate": 0.08, "feature_fraction": 0.4, "num_iterations": 200,
}  # fmt: skip
_KINDS: Sequence[Mapping[str, Any]] = (
    {**_SHARED_SETTINGS, "num_leaves": 31},
    {**_SHARED_SETTINGS, "num_leaves": 63, "extra_trees": True},
)
_FILTERS, _NUMBERS = 8.0, 1.0
"""Weights of examples: of ordinary questions, and of questions about numbers."""
_NOT_STATED = 0.3
"""Factor for questions about numbers that state no condition on one."""
_COMPARED = {"gt": "low", "gte": "low", "lt": "high", "lte": "high", "eq": "values", "ne": "values", "in": "values",
             "nin": "values"}  # fmt: skip
Json = dict[str, Any]
_Stated = tuple[str, str, float]
"""(field, "low", "high" or "values", number)."""


@dataclass(frozen=True)
class NumberExample:
    """One comparison of a question with one numeric field, and whether the question states it as a condition."""

    group: str
    held: Mapping[str, float]
    right: bool
    weight: float


def candidates_of(
    text: str, now: str | None, ground: ReadingData, known: Vocabulary
) -> list[tuple[NumberCandidate, dict[str, float]]]:
    """Return the candidates of a question with their features."""
    context = ground.context(text, question_time(now))
    sentence = to_sentence(text, known, ground.nouns, (), counts_documents=False, frequencies=context.frequencies)
    sentence, *_ = with_dates(sentence, context.calendar)
    return number_candidates(sentence, field_index_of(sentence.vocabulary), split_comparisons(sentence)[1])[0]


def stated_numbers(wanted: Json) -> Iterator[_Stated]:
    """Yield the numbers that a filter compares with."""
    inner = wanted.get("filters") or ([wanted["filter"]] if "filter" in wanted else None)
    if inner is not None:
        for one in inner:
            yield from stated_numbers(one)
    elif wanted["type"] in _COMPARED:
        yield from _numbers_of(wanted["key"], wanted["type"], wanted["value"])


def _numbers_of(field: str, operator: str, value: Any) -> Iterator[_Stated]:
    for one in value if isinstance(value, list) else [value]:
        if not isinstance(one, bool) and _is_number(one):
            yield field, _COMPARED[operator], float(one)
            if operator in ("ne", "eq"):  # "not above 3" may be written as "at most 3", but so may no value
                continue
            # "not under 5" is at least 5.
            yield field, {"low": "high", "high": "low"}.get(_COMPARED[operator], "values"), float(one)


def is_stated(one: NumberCandidate, golds: set[_Stated]) -> bool:
    """Return whether all numbers of a candidate are in the gold conditions on its field."""
    stated = one.comparison
    if stated.values:
        sides = ["values"] * len(one.numbers)
    else:
        sides = [side for side, bound in (("low", stated.low), ("high", stated.high)) if bound is not None]
    return all(_is_among(one.field, side, number, golds) for side, number in zip(sides, one.numbers, strict=True))


def _is_among(field: str, side: str, number: float, golds: set[_Stated]) -> bool:
    return any(
        name == field and where == side and math.isclose(number, value, rel_tol=1e-6) for name, where, value in golds
    )


def of_labelled_filters(group: str, ground: ReadingData, questions: Sequence[Json]) -> Iterator[NumberExample]:
    """Yield the examples of questions that are labelled with whole filters, see `train_deciding.sets`."""
    known = build_vocabulary(ground.catalogue)
    if not field_index_of(known).measures:
        return
    for question in questions:
        is_calculated = question.get("answer") is not None or question.get("aggregate") is not None
        if is_calculated and not any(question["filters"]):
            continue  # its conditions may be labelled as a part of the calculation
        golds = {one for wanted in question["filters"] if wanted for one in stated_numbers(wanted)}
        texts = {field for wanted in question["filters"] for field, value in leaves_of(wanted) if not _is_number(value)}
        for one, held in candidates_of(question["text"], question.get("now"), ground, known):
            if one.field in texts:
                continue  # it is labelled with texts, such as "120 pages"
            yield NumberExample(group, held, is_stated(one, golds), _FILTERS)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def of_labelled_numbers(name: str, ground: ReadingData, path: Path) -> Iterator[NumberExample]:
    """Yield the examples of a file whose questions are labelled with their conditions on numbers."""
    known = build_vocabulary(ground.catalogue)
    for line in path.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        golds = {one for each in question["numbers"] for one in _numbers_of(each["field"], each["op"], each["value"])}
        weight = _NUMBERS if golds else _NUMBERS * _NOT_STATED
        for one, held in candidates_of(question["text"], question["now"], ground, known):
            yield NumberExample(name, held, is_stated(one, golds), weight)


def examples() -> Iterator[NumberExample]:
    """Yield the examples of all development sets."""
    for group, ground, questions, _ in sets(sorted(one.parent for one in PLAIN.glob("*/queries.jsonl"))):
        yield from of_labelled_filters(group, ground, questions)
    for path in sorted(NUMBERED.glob("*.jsonl")):
        yield from of_labelled_numbers(path.stem, corpus_reading_data(PLAIN / path.stem / "corpus.jsonl"), path)


def main() -> None:
    """Train and write the weights, and print their accuracy on collections left out."""
    every = list(examples())
    made, logits = learn([one.held for one in every], every, known_features(every), _KINDS, by_weight=True)
    report(every, 1 / (1 + np.exp(-logits)))
    TARGET.write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{len(every):,} candidates", file=sys.stderr)


if __name__ == "__main__":
    main()
