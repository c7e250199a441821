"""Makes agent/intent/worldly.json: `python -m evals.train_worldly`, from the checkout, in some seconds.

Logistic regression by gradient descent on the words of the questions in tests/agent/intent_data; the questions of
`peps_blind.jsonl` are left out and tell what it is worth.
"""

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.intent.worldly import features, probability

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "agent" / "intent_data"
TARGET = ROOT / "agent" / "intent" / "worldly.json"
TRAINED_ON = ("city", "city_more", "hospital", "hospital_more", "peps", "peps_more", "turns")
BLIND = "peps_blind"

_LEAST = 3
"""Questions that hold a feature, for it to count."""
_STEPS, _RATE, _MOMENTUM, _DECAY = 500, 5.0, 0.9, 3e-5

_MOST = 4.0
"""The largest weight, either way."""

Numbers = NDArray[np.float64]


def questions(name: str) -> list[tuple[str, bool]]:
    """The questions of a file that stand for themselves, each with whether it is for the web."""
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    read: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [(one["text"], one.get("label", one.get("class")) == "web") for one in read if not one.get("history")]


def train() -> tuple[dict[str, float], float]:
    """The weight of each feature, and the bias."""
    known = [one for name in TRAINED_ON for one in questions(name)]
    held = [features(text) for text, _ in known]
    counts = Counter(one for each in held for one in each)
    names = sorted(one for one, count in counts.items() if count >= _LEAST)
    places = {name: place for place, name in enumerate(names)}
    inputs = np.zeros((len(held), len(names) + 1))
    for row, each in enumerate(held):
        own = [places[one] for one in each if one in places]
        inputs[row, own] = 1 / np.sqrt(max(len(own), 1))
    inputs[:, -1] = 1.0
    weights = fit(inputs, np.array([float(web) for _, web in known]))
    return dict(zip(names, weights[:-1].tolist(), strict=True)), float(weights[-1])


def fit(inputs: Numbers, wanted: Numbers) -> Numbers:
    """Weights of a logistic regression, the last one the bias; the rarer answer counts more, by the root of how rare.

    Args:
        inputs: (questions, features + 1), the last column 1.
        wanted: 1 for the web, else 0.
    """
    share = np.where(wanted == 1, np.sqrt((wanted == 0).sum() / wanted.sum()), 1.0)
    share /= share.mean() * len(wanted)
    decay = np.r_[np.full(inputs.shape[1] - 1, _DECAY), 0.0]
    weights, step = np.zeros(inputs.shape[1]), np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        found = 1 / (1 + np.exp(-(inputs @ weights)))
        step = _MOMENTUM * step + inputs.T @ ((found - wanted) * share) + decay * weights
        weights -= _RATE * step
        # No word decides alone, however often it happened to ask for one of the two.
        weights[:-1] = np.clip(weights[:-1], -_MOST, _MOST)
    return weights


def main() -> None:
    """Write the weights, and say how they do on the questions left out."""
    weights, bias = train()
    rounded = {name: round(weight, 2) for name, weight in weights.items() if abs(weight) >= 0.05}
    stored = {"bias": round(bias, 3), "weights": rounded}
    TARGET.write_text(json.dumps(stored, ensure_ascii=False) + "\n", encoding="utf-8")
    blind = questions(BLIND)
    for least in (0.3, 0.5, 0.7):
        found = [probability(features(text), rounded, bias) >= least for text, _ in blind]
        hits = [one for one, (_, web) in zip(found, blind, strict=True) if web]
        wrong = [one for one, (_, web) in zip(found, blind, strict=True) if not web]
        print(
            f"from {least}: of {len(blind)} questions left out it finds {np.mean(hits):.2f} of those for the web, "
            f"and takes {np.mean(wrong):.3f} of the others for one",
            file=sys.stderr,
        )


if __name__ == "__main__":
    main()
