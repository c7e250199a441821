"""Print the weights of agent/intent/collection_choice.py: `python -m evals.train_scope FOLDER...`, from the checkout.

Each FOLDER is a dataset as in `evals.collection_choice`. Its questions are asked among random groups of collections; a
multinomial logistic regression learns which collection each question belongs to. Every third folder, in the order of
the names, is left out of the training. Figures are printed for the groups of the training, and for groups of six of the
folders left out. The weights in use were learned from all folders of `evals/data/reading` and
`evals/data/reading-more`.
"""

import asyncio
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from scipy.optimize import minimize

from agent.intent.collection_choice import (
    WEIGHTS,
    CollectionEvidence,
    Numbers,
    chosen_indices,
    collection_probabilities,
)
from agent.service.factory import open_service
from agent.settings import load_settings
from agent.types import Request
from evals.collection_choice import every_nth, questions_of, store
from evals.corpus import TENANT
from evals.datasets import CORPUS, QUERIES
from retrievers.core.types import Scope

GROUPS, SIZES, EACH = 130, (2, 4, 6, 8), 12
"""Number of random groups, their sizes in collections, and questions per collection."""
_TESTED = 12
"""Number of groups of folders that are left out."""
_DECAY = 2e-3
"""Weight of the squared weights. With less, the choice is too sure among collections unlike those learned from."""

Example = tuple[CollectionEvidence, int]
"""The evidence for each collection of a group, and the index of the right collection."""


async def examples_of(folders: Sequence[Path], groups: int = GROUPS, sizes: Sequence[int] = SIZES) -> list[Example]:
    """Return examples of the choice of a question's collection among several, with the evidence for each of them.

    Stores the data set of each folder as a collection, draws random groups of these collections, and makes an example
    of up to `EACH` questions of every collection in a group.

    Args:
        groups: number of groups.
        sizes: number of collections of the first group, of the second, and so on, repeated from the start.
    """
    chosen, made = random.Random(1), []
    questions = {folder.name: list(questions_of(folder)) for folder in folders}
    async with open_service(load_settings({"choose_collections": True})) as service:
        chooser = service.pipeline.chooser
        assert chooser is not None
        stored = [await store(service, folder, lambda line: None) for folder in folders]
        for number in range(groups):
            group = chosen.sample(stored, min(sizes[number % len(sizes)], len(stored)))
            for place, one in enumerate(group):
                for asked in every_nth(chosen.sample(questions[one.name], len(questions[one.name])), EACH):
                    evidence = await chooser.evidence(
                        Request.model_validate(asked.request()), Scope(TENANT, tuple(group))
                    )
                    made.append((evidence, place))
            print(f"{number + 1} of {groups} groups", file=sys.stderr)
    return made


def fit(examples: Sequence[Example]) -> list[float]:
    """Return the weights of the evidence's columns that predict the right collections best."""
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


def figures(examples: Sequence[Example], weights: Sequence[float]) -> str:
    """Return in one line how often the right collection is chosen, in the terms of `collection_choice.measure`."""
    among = alone = searched = 0
    for evidence, right in examples:
        chosen = chosen_indices(collection_probabilities(evidence, weights))
        among += right in chosen
        alone += chosen == [right]
        searched += len(chosen)
    size = max(len(examples), 1)
    return f"{len(examples)}: among {among / size:.3f}, alone {alone / size:.3f}, searched {searched / size:.2f}"


if __name__ == "__main__":
    every = sorted((Path(one) for one in sys.argv[1:] if (Path(one) / QUERIES).is_file()), key=lambda one: one.name)
    every = [one for one in every if (one / CORPUS).is_file()]
    left_out = every[2::3]
    learned = asyncio.run(examples_of([one for one in every if one not in left_out]))
    tested = asyncio.run(examples_of(left_out, _TESTED, (6,)))
    for source in WEIGHTS:
        weights = fit([one for one in learned if one[0].near == source])
        print(source, weights)
        for name, examples in (("learned from", learned), ("left out", tested)):
            print(f"{source}, {name}, {figures([one for one in examples if one[0].near == source], weights)}")
