"""Boosted decision trees: the probability that a candidate is meant as a constraint, from its signs.

A sign is a number with a name, such as the number of documents with the candidate's value.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_MOST_LOGIT = 500.0  # `exp` would overflow for a larger one
_MOST_LEAVES = 64
"""Maximum number of leaves of a tree."""
_ALL_LEAVES, _ONE = np.uint64(2**_MOST_LEAVES - 1), np.uint64(1)


@dataclass(frozen=True, slots=True)
class Trees:
    """Decision trees as arrays with one element per node, so that all nodes of all trees are tested at once.

    The leaves of a tree are the bits of a number, the leaf on the side of all small values first. A node whose sign
    exceeds its bound clears the leaves on its small side. The first leaf that no node has cleared is the tree's result.

    Attributes:
        signs: the index of each sign by name.
        sign, bound, kept: for each node: the index of its sign, the bound, and the leaves kept if the sign exceeds it.
        firsts: index of each tree's first node.
        weight: the weights of the leaves, 64 places for each tree.
        scale, shift: turn the sum of the leaves into a logit.

    Source:
        Lucchese et al., QuickScorer, SIGIR 2015, doi:10.1145/2766462.2767733.
    """

    signs: Mapping[str, int]
    sign: NDArray[np.int64]
    bound: NDArray[np.float64]
    kept: NDArray[np.uint64]
    firsts: NDArray[np.int64]
    weight: NDArray[np.float64]
    scale: float
    shift: float

    def probability(self, held: Mapping[str, float]) -> float:
        """Return the probability that a candidate with these signs is meant as a constraint; a missing sign is 0."""
        return share_of(self.logit(held))

    def logit(self, held: Mapping[str, float]) -> float:
        """Return the logit of `probability`."""
        row = np.zeros(len(self.signs))
        for name, value in held.items():
            if (place := self.signs.get(name)) is not None:
                row[place] = value
        left = np.where(row.take(self.sign) > self.bound, self.kept, _ALL_LEAVES)
        left = np.bitwise_and.reduceat(left, self.firsts)
        _, bits = np.frexp((left & (~left + _ONE)).astype(float))  # the lowest bit alone is a power of two
        leaves = np.arange(0, len(self.weight), _MOST_LEAVES) + bits - 1
        return self.scale * float(self.weight[leaves].sum()) + self.shift


def share_of(logit: float) -> float:
    """Return the probability that has this logit."""
    return 1 / (1 + math.exp(-max(logit, -_MOST_LOGIT)))


def trees_of(stored: Mapping[str, Any]) -> Trees:
    """Return an ensemble of `weights.json`. A tree is [sign, bound, tree below, tree above] or the weight of a leaf."""
    nodes: list[tuple[int, float, int]] = []
    firsts, weight = [], np.zeros((len(stored["trees"]), _MOST_LEAVES))

    def add(tree: Any, weights: NDArray[np.float64], first: int) -> int:
        """Add a tree whose leaves begin at index `first` of `weights`; return the index after its last leaf."""
        if not isinstance(tree, list):
            weights[first] = tree
            return first + 1
        place = len(nodes)
        nodes.append((0, 0.0, 0))
        above = add(tree[2], weights, first)
        nodes[place] = tree[0], tree[1], int(_ALL_LEAVES) ^ ((1 << above) - (1 << first))
        return add(tree[3], weights, above)

    for tree, weights in zip(stored["trees"], weight, strict=True):
        firsts.append(len(nodes))
        nodes.append((0, math.inf, 0))  # so that a tree of a single leaf has a node
        add(tree, weights, 0)
    sign, bound, kept = zip(*nodes, strict=True)
    return Trees(
        {name: place for place, name in enumerate(stored["signs"])},
        np.array(sign), np.array(bound), np.array(kept, np.uint64), np.array(firsts), weight.ravel(),
        stored["scale"], stored["shift"],
    )  # fmt: skip
