"""Boosted decision trees: the probability that a candidate is meant as a constraint, from its features.

A feature is a number with a name, such as the number of documents with the candidate's value.
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
class TreeEnsemble:
    """Decision trees as arrays with one element per node, so that all nodes of all trees are tested at once.

    The leaves of a tree are the bits of a number, the leaf on the side of all small values first. A node whose
    feature exceeds its threshold clears the leaves on its small side. The first leaf that no node has cleared is the
    tree's result.

    Attributes:
        feature_index: the index of each feature by name.
        feature, threshold: for each node, the index of its feature and the threshold.
        kept_leaves: for each node, the leaves kept if the feature exceeds the threshold, as bits.
        first_nodes: index of each tree's first node.
        leaf_weights: the weights of the leaves, 64 places for each tree.
        scale, shift: turn the sum of the leaves into a logit.

    Source:
        Lucchese et al., QuickScorer, SIGIR 2015, doi:10.1145/2766462.2767733.
    """

    feature_index: Mapping[str, int]
    feature: NDArray[np.int64]
    threshold: NDArray[np.float64]
    kept_leaves: NDArray[np.uint64]
    first_nodes: NDArray[np.int64]
    leaf_weights: NDArray[np.float64]
    scale: float
    shift: float

    def probability(self, features: Mapping[str, float]) -> float:
        """Return the probability that a candidate is meant as a constraint; a missing feature counts as 0."""
        return sigmoid(self.logit(features))

    def logit(self, features: Mapping[str, float]) -> float:
        """Return the logit of `probability`."""
        row = np.zeros(len(self.feature_index))
        for name, value in features.items():
            if (place := self.feature_index.get(name)) is not None:
                row[place] = value
        left = np.where(row.take(self.feature) > self.threshold, self.kept_leaves, _ALL_LEAVES)
        left = np.bitwise_and.reduceat(left, self.first_nodes)
        _, bits = np.frexp((left & (~left + _ONE)).astype(float))  # the lowest bit alone is a power of two
        leaves = np.arange(0, len(self.leaf_weights), _MOST_LEAVES) + bits - 1
        return self.scale * float(self.leaf_weights[leaves].sum()) + self.shift


def sigmoid(logit: float) -> float:
    """Return the probability that has this logit."""
    return 1 / (1 + math.exp(-max(logit, -_MOST_LOGIT)))


def parse_trees(stored: Mapping[str, Any]) -> TreeEnsemble:
    """Return a stored ensemble. A tree is the weight of a leaf or [feature, threshold, tree below, tree above]."""
    nodes: list[tuple[int, float, int]] = []
    first_nodes, leaf_weights = [], np.zeros((len(stored["trees"]), _MOST_LEAVES))

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

    for tree, weights in zip(stored["trees"], leaf_weights, strict=True):
        first_nodes.append(len(nodes))
        nodes.append((0, math.inf, 0))  # so that a tree of a single leaf has a node
        add(tree, weights, 0)
    feature, threshold, kept_leaves = zip(*nodes, strict=True)
    return TreeEnsemble(
        {name: place for place, name in enumerate(stored["signs"])},
        np.array(feature), np.array(threshold), np.array(kept_leaves, np.uint64),
        np.array(first_nodes), leaf_weights.ravel(),
        stored["scale"], stored["shift"],
    )  # fmt: skip
