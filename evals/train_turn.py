"""Makes agent/intent/words/turn.json: `python -m evals.train_turn`, from the checkout, in some minutes.

Logistic regression on the words and the vectors of questions for the world and of private ones: those of
`evals/data/turn`, and the questions of tests/agent/intent_data. Of these a question "for the documents" that sounds
like the world (archives tell of that as well) teaches nothing about wording, so it is left out. Prints what the weights
are worth for questions of each fold that were not learned from.
"""

import asyncio
import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.optimize import minimize

from agent.intent.smalltalk import without_greeting
from agent.intent.text import has_chinese
from agent.intent.turn import SURE, features, meaning
from retrievers.embed.factory import open_embedder

ROOT = Path(__file__).parent.parent
OWN = ROOT / "evals" / "data" / "turn"
MORE = ROOT / "tests" / "agent" / "intent_data"
TARGET = ROOT / "agent" / "intent" / "words" / "turn.json"
FILES = ("turns", "city", "hospital", "peps")

_LEAST = 3
"""Questions that hold a feature, for it to count."""
_DECAY = 3e-4
_WORDS, _VECTOR = 2.0, 5.0
"""Scales of the two kinds of evidence: a larger one is trusted more."""
_OF_OWN = 3.0
"""Weight of a question of `evals/data/turn`, against one of the others."""
_FOLDS = 5
_SMALLEST = 0.08


Numbers = NDArray[np.float64]


class Example(NamedTuple):
    """A question, whether the world is to answer it, and whether it is of `evals/data/turn`."""

    text: str
    world: bool
    own: bool


class Learned(NamedTuple):
    """Names of the features, their weights, those of the vector, and the bias."""

    names: dict[str, int]
    words: Numbers
    vector: Numbers
    bias: float


def examples() -> list[Example]:
    """Every question that stands for itself, each once."""
    found = {}
    for kind in ("world", "private"):
        for language in ("en", "zh"):
            for line in (OWN / f"{kind}.{language}.txt").read_text(encoding="utf-8").splitlines():
                found[line] = Example(without_greeting(line), kind == "world", True)
    for name in FILES:
        for line in (MORE / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
            one = json.loads(line)
            label = one.get("label") or one["class"]
            if label != "none" and not one.get("history"):
                found.setdefault(one["text"], Example(without_greeting(one["text"]), label == "web", False))
    return list(found.values())


async def vectors(given: Sequence[Example]) -> Numbers:
    """The vectors of the questions, shape (questions, 389), see `agent.intent.turn.meaning`."""
    embedder = open_embedder("minilm")
    return np.array([await meaning(one.text, embedder) for one in given], dtype=np.float64)


def fit(given: Sequence[Example], meant: Numbers) -> Learned:
    """The weights that tell the two kinds apart."""
    held = [features(one.text) for one in given]
    counts = Counter(name for each in held for name in each)
    names = {name: place for place, name in enumerate(sorted(n for n, count in counts.items() if count >= _LEAST))}
    inputs = sparse.hstack([_matrix(held, names) * _WORDS, sparse.csr_matrix(meant * _VECTOR)]).tocsr()
    wanted = np.array([float(one.world) for one in given])
    share = np.array([_OF_OWN if one.own else 1.0 for one in given])
    share /= share.sum()

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        logits = inputs @ weights[:-1] + weights[-1]
        error = share * (1 / (1 + np.exp(-logits)) - wanted)
        decay = _DECAY * weights[:-1]
        value = (share * (np.logaddexp(0, logits) - wanted * logits)).sum() + decay @ weights[:-1] / 2
        return value, np.r_[inputs.T @ error + decay, error.sum()]

    weights = minimize(loss, np.zeros(inputs.shape[1] + 1), jac=True, method="L-BFGS-B", options={"maxiter": 300}).x
    return Learned(names, weights[: len(names)] * _WORDS, weights[len(names) : -1] * _VECTOR, float(weights[-1]))


def scores(given: Sequence[Example], meant: Numbers, learned: Learned) -> Numbers:
    """The logit of each question."""
    words = _matrix([features(one.text) for one in given], learned.names) @ learned.words
    return np.asarray(words + meant @ learned.vector + learned.bias)


def _matrix(held: Sequence[frozenset[str]], names: dict[str, int]) -> sparse.csr_matrix:
    rows, columns, values = [], [], []
    for row, each in enumerate(held):
        own = [names[name] for name in each if name in names]
        rows += [row] * len(own)
        columns += own
        values += [max(len(own), 1) ** -0.5] * len(own)
    return sparse.csr_matrix((values, (rows, columns)), shape=(len(held), len(names)))


def told_apart(given: Sequence[Example], meant: Numbers) -> tuple[list[Example], Numbers]:
    """The questions without those of archives that sound like the world."""
    own = [place for place, one in enumerate(given) if one.own]
    sounds = scores(given, meant, fit([given[place] for place in own], meant[own]))
    kept = [place for place, one in enumerate(given) if one.own or one.world or sounds[place] < 0]
    return [given[place] for place in kept], meant[kept]


def left_out(given: Sequence[Example], meant: Numbers) -> Numbers:
    """The logit of each question by weights learned without its fold, which is made of runs of lines of one kind."""
    fold = np.arange(len(given)) * _FOLDS * 4 // len(given) % _FOLDS
    found = np.zeros(len(given))
    for number in range(_FOLDS):
        rest, test = np.flatnonzero(fold != number), np.flatnonzero(fold == number)
        learned = fit([given[int(place)] for place in rest], meant[rest])
        found[test] = scores([given[int(place)] for place in test], meant[test], learned)
    return found


def main() -> None:
    """Write the weights, and say how they do on the folds left out."""
    stored = {}
    every = examples()
    for language in ("en", "zh"):
        given = [one for one in every if has_chinese(one.text) == (language == "zh")]
        given, meant = told_apart(given, asyncio.run(vectors(given)))
        logits, world = left_out(given, meant), np.array([one.world for one in given])
        own = np.array([one.own for one in given])
        for least in (0.5, 0.8, SURE, 0.95):
            sent = logits >= np.log(least / (1 - least))
            print(
                f"{language}, from {least}: of {len(given)} questions left out it finds {sent[world].mean():.3f} of "
                f"the world's ({sent[world & own].mean():.3f} of evals/data/turn), and takes {sent[~world].mean():.4f} "
                f"of the others for one ({sent[~world & own].mean():.4f})",
                file=sys.stderr,
            )
        learned = fit(given, meant)
        words = {name: round(float(learned.words[place]), 2) for name, place in learned.names.items()}
        stored[language] = {
            "bias": round(learned.bias, 3),
            "vector": [round(one, 2) for one in learned.vector.tolist()],
            "words": {name: weight for name, weight in words.items() if abs(weight) >= _SMALLEST},
        }
    TARGET.write_text(json.dumps(stored, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
