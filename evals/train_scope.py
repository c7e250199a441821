"""Print the weights of agent/intent/scope.py: `python -m evals.train_scope FOLDER...`, from the checkout.

Each FOLDER is a dataset as in `evals.scope`. Its questions are asked among random groups of collections; a multinomial
logistic regression learns which collection each question belongs to.
"""

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from agent.intent.scope import WEIGHTS, Evidence, Numbers
from agent.service.opening import open_service
from agent.settings import load_settings
from agent.types import Request
from evals.corpus import TENANT
from evals.scope import every_nth, questions_of, store
from retrievers.core.types import Scope

GROUPS, SIZES, EACH = 60, (2, 4, 6, 8), 12
"""Number of random groups, their sizes in collections, and questions per collection."""
_DECAY = 1e-4

Example = tuple[Evidence, int]
"""The evidence for each collection of a group, and the index of the right collection."""


async def examples_of(folders: Sequence[Path]) -> list[Example]:
    """Return the questions with the evidence for every collection of their groups."""
    chosen, made = random.Random(1), []
    questions = {folder.name: list(questions_of(folder)) for folder in folders}
    async with open_service(load_settings({"choose_collections": True})) as service:
        chooser = service.pipeline.chooser
        assert chooser is not None
        stored = [await store(service, folder, lambda line: None) for folder in folders]
        for number in range(GROUPS):
            group = chosen.sample(stored, min(SIZES[number % len(SIZES)], len(stored)))
            for place, one in enumerate(group):
                for asked in every_nth(chosen.sample(questions[one.name], len(questions[one.name])), EACH):
                    evidence = await chooser.evidence(
                        Request.model_validate(asked.request()), Scope(TENANT, tuple(group))
                    )
                    made.append((evidence, place))
            print(f"{number + 1} of {GROUPS} groups", file=sys.stderr)
    return made


def fit(examples: Sequence[Example]) -> list[float]:
    """Fit and return the weights of the columns."""
    scale = np.vstack([evidence.columns for evidence, _ in examples]).std(axis=0) + 1e-9

    def loss(weights: Numbers) -> tuple[float, Numbers]:
        total, slope = 0.0, np.zeros_like(weights)
        for evidence, right in examples:
            columns = evidence.columns / scale
            told = columns @ weights
            shares = np.exp(told - told.max())
            shares /= shares.sum()
            total -= np.log(shares[right])
            slope += (shares - np.eye(len(shares))[right]) @ columns
        size = len(examples)
        return float(total / size + _DECAY * weights @ weights), slope / size + 2 * _DECAY * weights

    found = minimize(loss, np.zeros(len(scale)), jac=True, method="L-BFGS-B")
    print(f"{len(examples)} examples, log loss {found.fun:.3f}", file=sys.stderr)
    return [round(one, 2) for one in (found.x / scale).tolist()]


if __name__ == "__main__":
    every = asyncio.run(examples_of([Path(one) for one in sys.argv[1:]]))
    for source in WEIGHTS:
        print(source, fit([(evidence, right) for evidence, right in every if evidence.near == source]))
