"""Options of fusion: its methods, the depth of a search, and the weights of sources."""

import math
import re
from typing import Literal

Method = Literal["convex", "rrf", "weighted_sum"]

LEAST_DEPTH, MOST_DEPTH = 10, 1000
"""Hits that may be asked of each source."""

WEIGHTS = "fulltext=0.05"
"""Of `weighted_sum`, as in RAGFlow, where vectors have the rest."""
_WEIGHT = re.compile(r"(?P<source>[a-z][a-z0-9_]*)\s*=\s*(?P<weight>[01](?:\.[0-9]+)?|\.[0-9]+)")
_MOST_NAMED = 1 - 1e-9


def parse_weights(text: str) -> dict[str, float]:
    """The weights of a setting, such as "fulltext=0.05, web=0.2".

    Raises:
        ValueError: not of that form, or the weights leave nothing to the sources that are not named.
    """
    weights: dict[str, float] = {}
    for one in filter(None, map(str.strip, text.split(","))):
        found = _WEIGHT.fullmatch(one)
        if found is None:
            raise ValueError(f'"{one}" is no weight; they are written SOURCE=WEIGHT, between commas')
        if found["source"] in weights:
            raise ValueError(f'the source "{found["source"]}" has two weights')
        weights[found["source"]] = float(found["weight"])
    if math.fsum(weights.values()) > _MOST_NAMED:
        raise ValueError("the weights must be below 1 together: sources without a weight share the rest")
    return weights
