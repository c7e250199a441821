"""Compare two rankings on the same questions with a paired significance test."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

_SAMPLES = 10_000
_SEED = 20261120


class Difference(TypedDict):
    """Mean difference, its 95 % confidence interval, and the probability of a difference this large by chance."""

    mean: float
    low: float
    high: float
    p: float


def difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """Return the paired difference `after` - `before`: one value per question, in the same order.

    The interval is a percentile bootstrap over questions; `p` is two-sided, from flipping the sign of each question's
    difference. Both use a fixed seed, so equal input gives equal output.

    Raises:
        ValueError: there are no questions, or the lengths differ.
    Source:
        Smucker, Allan, Carterette, CIKM 2007, doi:10.1145/1321440.1321528.
    """
    if not before:
        raise ValueError("no questions")
    differences = np.array([two - one for one, two in zip(before, after, strict=True)])
    mean = float(differences.mean())
    draw = np.random.default_rng(_SEED)
    count = len(differences)
    resampled = [differences[draw.integers(0, count, count)].mean() for _ in range(_SAMPLES)]
    low, high = np.quantile(resampled, (0.025, 0.975))
    flipped = [abs((differences * draw.choice((-1.0, 1.0), count)).mean()) for _ in range(_SAMPLES)]
    # The observed signs are one of the possible assignments; rounding must not decide a tie.
    p = (1 + sum(value >= abs(mean) - 1e-12 for value in flipped)) / (1 + _SAMPLES)
    return Difference(mean=mean, low=float(low), high=float(high), p=float(p))
