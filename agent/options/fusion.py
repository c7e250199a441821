"""Options of fusion: the methods, the search depth and the weights of the sources."""

import math
import re
from typing import Literal

FusionMethod = Literal["convex", "rrf", "weighted_sum"]

LEAST_DEPTH, MOST_DEPTH = 10, 1000
"""Minimum and maximum of `depth`, the number of hits requested from each source."""

WEIGHTS = "fulltext=0.05"
"""Default weights of the method `weighted_sum`, as in RAGFlow: 0.05 for full text, so 0.95 for vector search."""
_WEIGHT = re.compile(r"(?P<source>[a-z][a-z0-9_]*)\s*=\s*(?P<weight>[01](?:\.[0-9]+)?|\.[0-9]+)")
_MOST_NAMED = 1 - 1e-9


def parse_weights(text: str) -> dict[str, float]:
    """Return weights by source: "fulltext=0.05, web=0.2" -> {"fulltext": 0.05, "web": 0.2}.

    Raises:
        ValueError: malformed, or the sum is 1 or more. Sources without a weight share the difference to 1.
    """
    weights: dict[str, float] = {}
    for one in filter(None, map(str.strip, text.split(","))):
        found = _WEIGHT.fullmatch(one)
        if found is None:
            raise ValueError(f'"{one}" is not a weight; write SOURCE=WEIGHT, separated by commas')
        if found["source"] in weights:
            raise ValueError(f'the source "{found["source"]}" has two weights')
        weights[found["source"]] = float(found["weight"])
    if math.fsum(weights.values()) > _MOST_NAMED:
        raise ValueError("the sum of the weights must be below 1: sources without a weight share the rest")
    return weights
