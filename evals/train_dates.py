"""Train agent/intent/date_weights.json: `python -m evals.train_dates`, from the checkout, a minute.

Boosted trees learn from every date of the development questions with every date field of their collection. Such a
candidate is right if a gold filter has the condition, or its negation. Questions of evals/data/dates-in-questions are
labelled with their conditions on dates only. The evaluation and the calibration of the probabilities use trees that
were trained without the candidate's collection.
"""

import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from agent.intent.conditions.date_features import DateCandidate, date_candidates, features_of
from agent.intent.conditions.question_parser import to_sentence
from agent.intent.time.dates import find_date, read_dates
from agent.intent.time.periods import Calendar, Period
from agent.intent.values.vocabulary import Vocabulary, build_vocabulary
from evals.reading_data import ReadingData, catalogue_reading_data, corpus_reading_data, question_time
from evals.train_deciding import DATA, ROOT, known_features, learn, report, sets

PLAIN, DATED = DATA / "reading-plain", DATA / "dates-in-questions"
TARGET = ROOT / "agent" / "intent" / "date_weights.json"
_SHARED_SETTINGS: Mapping[str, Any] = {
    "min_data_in_leaf": 8, "lambda_l2": 3.0, "learning_rate": 0.08, "feature_fraction": 0.4, "num_iterations": 250,
}  # fmt: skip
_KINDS: Sequence[Mapping[str, Any]] = (
    {**_SHARED_SETTINGS, "num_leaves": 31},
    {**_SHARED_SETTINGS, "num_leaves": 63, "extra_trees": True},
)
_FILTERS, _DATES, _INVENTED = 8.0, 1.0, 0.4
"""Weights of examples: of ordinary questions, of questions about dates, and of those over invented collections."""
_NOT_STATED = 0.3
"""Factor for questions that state no condition on a date: there are more among those about dates than among others."""
_TOLD = 0.2
"""Minimum nearness of a word for a field at which the question tells the field."""
_CLOSE_DAYS, _CLOSE_SHARE = 3, 0.15
"""Difference of two ends that counts as the same, in days or as a share of the days in common.

People disagree about where "late March" begins. It is learned whether a date is a condition, not where it begins.
"""
Json = dict[str, Any]


@dataclass(frozen=True)
class DateExample:
    """One date of a question with one date field, and whether the question states it as a condition on the field."""

    group: str
    held: Mapping[str, float]
    right: bool
    weight: float


def candidates_of(
    text: str, now: str | None, ground: ReadingData, known: Vocabulary
) -> tuple[list[DateCandidate], list[dict[str, float]]]:
    """Return the candidates of a question and their features."""
    context = ground.context(text, question_time(now))
    reading = read_dates(text, context.calendar)
    sentence = to_sentence(text, known, ground.nouns, (), counts_documents=False, frequencies=context.frequencies)
    candidates = date_candidates(sentence, reading.ranges, reading.possible, context.calendar.today)
    return candidates, features_of(sentence, candidates, context.calendar.today)


def of_labelled_filters(group: str, ground: ReadingData, questions: Sequence[Json]) -> Iterator[DateExample]:
    """Yield the examples of questions that are labelled with whole filters, see `train_deciding.sets`."""
    known = build_vocabulary(ground.catalogue)
    if not known.of_role("date"):
        return
    for question in questions:
        is_calculated = question.get("answer") is not None or question.get("aggregate") is not None
        if is_calculated and not any(question["filters"]):
            continue  # its conditions may be labelled as a part of the calculation
        golds = [
            one for wanted in question["filters"] if wanted for one in stated_periods(wanted, known.of_role("date"))
        ]
        now = question.get("now")
        for one, held in zip(*candidates_of(question["text"], now, ground, known), strict=True):
            right = any(
                one.field == name and _is_close(one, period, question_time(now).date()) for name, period in golds
            )
            yield DateExample(group, held, right, _FILTERS)


def stated_periods(wanted: Json, fields: Collection[str]) -> list[tuple[str, Period]]:
    """Return (field, period) for each condition of a filter on one of `fields`, whether it is negated or not."""
    inner = wanted.get("filters") or ([wanted["filter"]] if "filter" in wanted else None)
    if inner is None:
        return [(wanted["key"], one) for one in _periods_of(wanted)] if wanted["key"] in fields else []
    found = [one for each in inner for one in stated_periods(each, fields)]
    if wanted["type"] != "and":
        # "not in 2025" may be written as "before 2025 or from 2026 on".
        denied = [
            (name, Period(one.high, other.low))
            for name, one in found
            for also, other in found
            if name == also and one.low is None and other.high is None and one.high and other.low
        ]
        return [*found, *denied]
    bounds: dict[str, Period] = {}
    for name, one in found:
        other = bounds.get(name, Period(None, None))
        bounds[name] = Period(
            max(filter(None, (one.low, other.low)), default=None),
            min(filter(None, (one.high, other.high)), default=None),
        )
    return list(bounds.items())


def _periods_of(leaf: Json) -> Iterator[Period]:
    """Yield the periods that a condition compares with: of "gt" the time after the day, month or year that it names."""
    for value in leaf["value"] if isinstance(leaf["value"], list) else [leaf["value"]]:
        named = find_date(str(value), Calendar(date.today())) if value is not None else None
        if named is None or not named.is_bounded:
            continue
        match leaf["type"]:
            case "gte":
                yield Period(named.low, None)
            case "gt":
                yield Period(named.high, None)
            case "lt":
                yield Period(None, named.low)
            case "lte":
                yield Period(None, named.high)
            case "eq" | "ne" | "in" | "nin":
                yield named


def of_labelled_dates(name: str, ground: ReadingData, path: Path, weight: float) -> Iterator[DateExample]:
    """Yield the examples of a file whose questions are labelled with their conditions on dates.

    A question whose words tell the field is also read without this field: then it has no condition on a date.
    """
    known = build_vocabulary(ground.catalogue)
    lacking: dict[str, tuple[ReadingData, Vocabulary]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        question = json.loads(line)
        text, now = question["text"], question["now"]
        of_question = weight if question["dates"] else weight * _NOT_STATED
        told = set()
        for one, held in zip(*candidates_of(text, now, ground, known), strict=True):
            golds = [_period(each) for each in question["dates"] if each["field"] == one.field]
            right = any(_is_close(one, each, question_time(now).date()) for each in golds)
            if right and max(held["cue near"], held["event near"]) >= _TOLD:
                told.add(one.field)
            yield DateExample(name, held, right, of_question)
        if len(told) != 1 or len(known.of_role("date")) < 2 or len(question["dates"]) > 1:
            continue
        (field,) = told
        if field not in lacking:
            others = {other: values for other, values in ground.catalogue.fields.items() if other != field}
            rest = replace(ground, catalogue=replace(ground.catalogue, fields=others))
            lacking[field] = rest, build_vocabulary(rest.catalogue)
        for _, held in zip(*candidates_of(text, now, *lacking[field]), strict=True):
            yield DateExample(name, held, False, weight * _NOT_STATED)


def _is_close(one: DateCandidate, gold: Period, today: date) -> bool:
    """Return whether a candidate is meant by a gold condition.

    It is if it has about the same days, or if it is one of the periods that make them up, or if the condition is its
    negation: "not before 2020" for the time from 2020 on.
    """
    period = one.meant.period
    is_denied = (period.low, period.high) in ((gold.high, None), (None, gold.low)) and not gold.is_bounded
    return is_denied or _is_about(period, gold, today)


def _is_about(period: Period, gold: Period, today: date) -> bool:
    low, high = period.low or date.min, period.high or date.max
    first, last = gold.low or date.min, gold.high or date.max
    days = (min(last, high) - max(first, low)).days if gold.is_bounded else 0
    near = timedelta(max(_CLOSE_DAYS, days * _CLOSE_SHARE))
    is_until_now = (last == date.max and high >= today) or (high == date.max and last > today)
    if max(low, first) - min(low, first) <= near and (max(high, last) - min(high, last) <= near or is_until_now):
        return True
    return gold.is_bounded and first <= low and high <= last


def _period(gold: Json) -> Period:
    low, high = (date.fromisoformat(gold[end]) if gold[end] else None for end in ("low", "high"))
    return Period(low, high)


def examples() -> Iterator[DateExample]:
    """Yield the examples of all development sets."""
    for group, ground, questions, _ in sets(sorted(one.parent for one in PLAIN.glob("*/queries.jsonl"))):
        yield from of_labelled_filters(group, ground, questions)
    for path in sorted(DATED.glob("*.jsonl")):
        yield from of_labelled_dates(path.stem, corpus_reading_data(PLAIN / path.stem / "corpus.jsonl"), path, _DATES)
    for path in sorted(DATED.glob("catalogues/*.jsonl")):
        yield from of_labelled_dates(
            path.stem, catalogue_reading_data(path.with_suffix(".catalogue.json")), path, _INVENTED
        )


def main() -> None:
    """Train and write the weights, and print their accuracy on collections left out."""
    known = list(examples())
    made, logits = learn([one.held for one in known], known, known_features(known), _KINDS, by_weight=True)
    report(known, 1 / (1 + np.exp(-logits)))
    TARGET.write_text(json.dumps(made, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{len(known)} candidates", file=sys.stderr)


if __name__ == "__main__":
    main()
