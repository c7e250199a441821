"""Makes agent/intent/worldly.json: `python -m evals.train_worldly`, from the checkout, about a minute.

Logistic regression by gradient descent on the vectors of the questions in tests/agent/intent_data; the questions
of `peps_blind.jsonl` are left out and tell what it is worth.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from agent.intent.worldly import EMBEDDER, as_english, probabilities
from retrievers.embed import Embedder, Vectors
from retrievers.embed.factory import open_embedder

ROOT = Path(__file__).parent.parent
DATA = ROOT / "tests" / "agent" / "intent_data"
TARGET = ROOT / "agent" / "intent" / "worldly.json"
TRAINED_ON = ("city", "city_more", "hospital", "hospital_more", "peps", "peps_more", "turns")
BLIND = "peps_blind"

_STEPS, _RATE, _DECAY = 4000, 16.0, 2e-4


def questions(name: str) -> list[tuple[str, bool]]:
    """The questions of a file that stand for themselves, each with whether it is for the web."""
    lines = (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    read: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [(one["text"], one.get("label", one.get("class")) == "web") for one in read if not one.get("history")]


async def vectors(texts: list[str], embedder: Embedder) -> Vectors:
    """One row for each text, as the score sees it."""
    return np.array([await embedder.embed_query(as_english(text)) for text in texts])


def fit(given: Vectors, wanted: Vectors) -> Vectors:
    """Weights of a logistic regression, the bias last; the rarer answer counts more, by the root of how rare it is."""
    inputs = np.c_[given, np.ones(len(given))]
    share = np.where(wanted == 1, np.sqrt((wanted == 0).sum() / wanted.sum()), 1.0)
    share /= share.mean() * len(wanted)
    decay = np.r_[np.full(given.shape[1], _DECAY), 0.0]
    weights = np.zeros(inputs.shape[1])
    for _ in range(_STEPS):
        found = 1 / (1 + np.exp(-(inputs @ weights)))
        weights -= _RATE * (inputs.T @ ((found - wanted) * share) + decay * weights)
    return weights


async def train() -> tuple[Vectors, str]:
    """The weights, and a line that says how they do on the questions left out."""
    embedder = open_embedder(EMBEDDER)
    try:
        known = [one for name in TRAINED_ON for one in questions(name)]
        weights = fit(await vectors([text for text, _ in known], embedder), np.array([float(web) for _, web in known]))
        blind = questions(BLIND)
        found = probabilities(await vectors([text for text, _ in blind], embedder), weights) > 0.5
    finally:
        await embedder.aclose()
    web = np.array([one for _, one in blind])
    return weights, (
        f"{len(known)} questions; of {len(blind)} others it finds {found[web].mean():.2f} of those for the web, "
        f"and takes {found[~web].mean():.2f} of the rest for one"
    )


def main() -> None:
    """Write the weights."""
    weights, said = asyncio.run(train())
    TARGET.write_text(json.dumps({"embedder": EMBEDDER, "weights": [round(float(one), 3) for one in weights]}) + "\n")
    print(said, file=sys.stderr)


if __name__ == "__main__":
    main()
