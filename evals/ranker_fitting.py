"""Train a ranker on labelled questions, and choose its number of trees by cross-validation."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from agent.retrieval.rerank.ltr import LtrModel, import_lightgbm
from agent.retrieval.rerank.ltr_features import NAMES, Matrix
from evals import metrics

METRIC = "nDCG@10"
TREES = (25, 50, 100, 200, 400)
LEAST_QUESTIONS = 20
"""Minimum number of questions with a relevant passage in the pool; fewer do not generalise."""

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
    # The data is small, and threads waiting for a busy core cost more than they gain.
    "num_threads": 1,
}


@dataclass(frozen=True, slots=True)
class RankingExample:
    """One labelled question with its pool of hits.

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
        """Grade of each hit in the pool, taken from its document."""
        return [min(self.relevant.get(document, 0), 31) for document in self.pool]

    def ranking(self, scores: Sequence[float] | None) -> list[str]:
        """Return the document ids with the pool sorted by `scores`; None keeps the fused order."""
        order = range(len(self.pool)) if scores is None else sorted(range(len(self.pool)), key=lambda n: -scores[n])
        return metrics.documents_of([*(self.pool[n] for n in order), *self.rest])


def score_ranker(examples: Sequence[RankingExample], model: Any = None, trees: int | None = None) -> list[float]:
    """Return each question's nDCG@10 for a booster's ranking, or for the fused order without a booster."""
    rankings = {}
    for one in examples:
        scored = model is not None and len(one.rows)
        rankings[one.id] = one.ranking(model.predict(one.rows, num_iteration=trees) if scored else None)
    found = metrics.ranking_scores(rankings, {one.id: one.relevant for one in examples})
    return [found[one.id][METRIC] for one in examples]


def usable_examples(examples: Sequence[RankingExample]) -> list[RankingExample]:
    """Return the examples from which a ranker can learn: their pools have both relevant and other passages."""
    return [one for one in examples if any(one.grades) and not all(one.grades)]


def train_ranker(examples: Sequence[RankingExample]) -> tuple[LtrModel, dict[int, list[float]]]:
    """Train a ranker; return it with the gain in nDCG@10 over the fused order, by number of trees.

    The gains are one value per question, by rankers trained without that question. The ranker gets the number of trees
    with the largest gain in cross-validation; so judge it on questions that are not among `examples`.

    Raises:
        BadSetting: LightGBM is not installed.
        ValueError: fewer than `LEAST_QUESTIONS` usable examples.
    """
    known = usable_examples(examples)
    if len(known) < LEAST_QUESTIONS:
        raise ValueError(f"{len(known)} questions are usable for training; at least {LEAST_QUESTIONS} are needed")
    gains = _cross_validated(known)
    for gained in gains.values():
        # Count a gain of 0 for questions without anything to learn from.
        gained += [0.0] * (len(examples) - len(known))
    trees = max(TREES, key=lambda count: (sum(gains[count]), -count))
    booster = _fit(known, trees)
    return LtrModel(booster, {"questions": len(known), "trees": trees}), gains


def _cross_validated(examples: Sequence[RankingExample]) -> dict[int, list[float]]:
    """Return each question's gain by a ranker trained on the other folds, by number of trees."""
    shuffled = random.Random(_SEED).sample(list(examples), len(examples))
    gains: dict[int, list[float]] = {trees: [] for trees in TREES}
    for fold in range(_FOLDS):
        held_out = shuffled[fold::_FOLDS]
        booster = _fit([one for n, one in enumerate(shuffled) if n % _FOLDS != fold], max(TREES))
        fused = score_ranker(held_out)
        for trees in TREES:
            learned = score_ranker(held_out, booster, trees)
            gains[trees] += [after - before for before, after in zip(fused, learned, strict=True)]
    return gains


def _fit(examples: Sequence[RankingExample], trees: int) -> Any:
    lightgbm = import_lightgbm()
    data = lightgbm.Dataset(
        np.vstack([one.rows for one in examples]),
        label=[grade for one in examples for grade in one.grades],
        group=[len(one.pool) for one in examples],
        feature_name=list(NAMES),
    )
    return lightgbm.train(dict(_PARAMETERS), data, num_boost_round=trees)
