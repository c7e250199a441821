"""Decision trees are walked as written in the weights."""

import math
from collections.abc import Mapping

import pytest

from agent.intent.deciding.decision_trees import parse_trees

STORED = {
    "signs": ["near", "far"],
    "trees": [[0, 0.5, -1.0, [1, 2.0, 0.5, 2.0]], [1, -1.0, 3.0, 0.0], 0.25],
    "scale": 2.0,
    "shift": 1.0,
}


@pytest.mark.parametrize(
    ("held", "leaves"),
    [
        ({}, -1.0 + 0.0 + 0.25),
        ({"near": 0.5}, -1.0 + 0.0 + 0.25),
        ({"near": 0.6, "unknown": 9.0}, 0.5 + 0.0 + 0.25),
        ({"near": 1.0, "far": 2.0}, 0.5 + 0.0 + 0.25),
        ({"near": 1.0, "far": 2.1}, 2.0 + 0.0 + 0.25),
        ({"far": -1.0}, -1.0 + 3.0 + 0.25),
    ],
)
def test_a_sign_at_its_bound_stays_below_and_a_missing_sign_counts_as_zero(
    held: Mapping[str, float], leaves: float
) -> None:
    assert parse_trees(STORED).probability(held) == pytest.approx(1 / (1 + math.exp(-(2.0 * leaves + 1.0))))
