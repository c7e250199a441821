"""Training a ranker on labelled questions, and how many trees it should have by cross-validation."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent.retrieval.rerank.features import NAMES, Matrix
from agent.retrieval.rerank.ltr import TrainedRanker, import_lightgbm
from evals import metrics

METRIC = "nDCG@10"
TREES = (25, 50, 100, 200, 400)
LEAST_QUESTIONS = 20
"""With a relevant passage in the pool; from fewer nothing is learned that would hold for others."""

_FOLDS = 5
_SEED = 1
_PARAMETERS: Mapping[str, Any] = {
    "objective": "lambdarank",
    "label_gain": list(range(32)),  # linear, as nDCG counts grades
    "lambdarank_truncation_level": 15,
    "num_leaves": 8,
    "learning_rate": 0.05,
    "min_data_in_leaf": 100,
    "lambda_l2": 5,
    "feature_fraction": 0.5,
    "bagging_fraction": 0.8,
    "bagging_freq": 1,
    "seed": _SEED,
    "deterministic": True,
    "force_row_wise": True,
    "verbosity": -1,
    # The data is small, and threads that wait for a busy core cost far more than they give.
    "num_threads": 1,
}


@dataclass(frozen=True, slots=True)
class Example:
    """One labelled question with its pool.

    Attributes:
        rows: features of the pool's hits, in fused order.
        pool: the document of each hit, in the same order.
        rest: the documents of the ranking below the pool.
        relevant: document id to grade, > 0.
    """

    id: str
    rows: Matrix
    pool: Sequence[str]
    rest: Sequence[str]
    relevant: Mapping[str, int]

    @property
    def grades(self) -> list[int]:
        """The grade of each hit of the pool: that of its document."""
        return [min(self.relevant.get(document, 0), 31) for document in self.pool]

    def ranking(self, scores: Sequence[float] | None) -> list[str]:
        """The documents, the pool in the order of these scores; as fused when None."""
        order = range(len(self.pool)) if scores is None else sorted(range(len(self.pool)), key=lambda n: -scores[n])
        return metrics.documents_of([*(self.pool[n] for n in order), *self.rest])


def judge(examples: Sequence[Example], model: Any = None, trees: int | None = None) -> list[float]:
    """nDCG@10 of every question by a booster, or as fused without one."""
    rankings = {}
    for one in examples:
        scored = model is not None and len(one.rows)
        rankings[one.id] = one.ranking(model.predict(one.rows, num_iteration=trees) if scored else None)
    found = metrics.ranking_scores(rankings, {one.id: one.relevant for one in examples})
    return [found[one.id][METRIC] for one in examples]


def usable(examples: Sequence[Example]) -> list[Example]:
    """The examples that something can be learned from: those with relevant and other passages in the pool."""
    return [one for one in examples if any(one.grades) and not all(one.grades)]


def train(examples: Sequence[Example]) -> tuple[TrainedRanker, dict[int, list[float]]]:
    """A ranker, and by number of trees what nDCG@10 gains over the fused order, question by question, untrained on.

    The number of trees is the one that gains most in cross-validation. Whether that is worth anything must be
    tried on other questions.

    Raises:
        BadSetting: LightGBM is not installed.
        ValueError: fewer than `LEAST_QUESTIONS` usable examples.
    """
    known = usable(examples)
    if len(known) < LEAST_QUESTIONS:
        raise ValueError(f"{len(known)} questions, of which something can be learned, are fewer than {LEAST_QUESTIONS}")
    gains = _cross_validated(known)
    for gained in gains.values():
        # Where there is nothing to learn from there is hardly anything to gain.
        gained += [0.0] * (len(examples) - len(known))
    trees = max(TREES, key=lambda count: (sum(gains[count]), -count))
    booster = _fit(known, trees)
    return TrainedRanker(booster, {"questions": len(known), "trees": trees}), gains


def _cross_validated(examples: Sequence[Example]) -> dict[int, list[float]]:
    """What each question gains by a ranker of the other folds, by number of trees."""
    shuffled = random.Random(_SEED).sample(list(examples), len(examples))
    gains: dict[int, list[float]] = {trees: [] for trees in TREES}
    for fold in range(_FOLDS):
        held_out = shuffled[fold::_FOLDS]
        booster = _fit([one for n, one in enumerate(shuffled) if n % _FOLDS != fold], max(TREES))
        fused = judge(held_out)
        for trees in TREES:
            learned = judge(held_out, booster, trees)
            gains[trees] += [after - before for before, after in zip(fused, learned, strict=True)]
    return gains


def _fit(examples: Sequence[Example], trees: int) -> Any:
    lightgbm = import_lightgbm()
    data = lightgbm.Dataset(
        np.vstack([one.rows for one in examples]),
        label=[grade for one in examples for grade in one.grades],
        group=[len(one.pool) for one in examples],
        feature_name=list(NAMES),
    )
    return lightgbm.train(dict(_PARAMETERS), data, num_boost_round=trees)
