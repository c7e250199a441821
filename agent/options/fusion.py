"""Options of fusion: the methods, the search depth and the weights of the sources."""

import math
import re
from typing import Literal

Method = Literal["convex", "rrf", "weighted_sum"]

LEAST_DEPTH, MOST_DEPTH = 10, 1000
"""Range of the number of hits requested from each source."""

WEIGHTS = "fulltext=0.05"
"""Default weights of `weighted_sum`, as in RAGFlow; vectors get the rest."""
_WEIGHT = re.compile(r"(?P<source>[a-z][a-z0-9_]*)\s*=\s*(?P<weight>[01](?:\.[0-9]+)?|\.[0-9]+)")
_MOST_NAMED = 1 - 1e-9


def parse_weights(text: str) -> dict[str, float]:
    """Parse the weights of a setting, such as "fulltext=0.05, web=0.2".

    Raises:
        ValueError: malformed, or the weights leave nothing for sources without a weight.
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
