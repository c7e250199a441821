"""Whether one way of ranking is better than another, by the same questions asked both ways."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np

_SAMPLES = 10_000
_AT_ONCE = 500
"""Samples that are drawn together: of thousands of questions all would not fit into memory."""
_SEED = 20261120


class Difference(TypedDict):
    """The mean difference, its 95 % confidence interval, and how probable one as large is by chance."""

    mean: float
    low: float
    high: float
    p: float


def difference(before: Sequence[float], after: Sequence[float]) -> Difference:
    """What `after` has more than `before`, paired: one figure per question, in the same order.

    The interval is the percentile bootstrap over questions; `p` is two-sided, by flipping the sign of each
    question's difference. Both are drawn with a fixed seed: the same figures give the same answer.

    Raises:
        ValueError: there are no questions, or not as many in one as in the other.
    Source:
        Smucker, Allan, Carterette, CIKM 2007, doi:10.1145/1321440.1321528.
    """
    if not before:
        raise ValueError("no questions")
    differences = np.array([two - one for one, two in zip(before, after, strict=True)])
    mean = float(differences.mean())
    draw = np.random.default_rng(_SEED)
    count = len(differences)
    shape = (_AT_ONCE, count)
    batches = range(_SAMPLES // _AT_ONCE)
    resampled = np.concatenate([differences[draw.integers(0, count, shape)].mean(axis=1) for _ in batches])
    low, high = np.quantile(resampled, (0.025, 0.975))
    flipped = np.abs(np.concatenate([draw.choice((-1.0, 1.0), shape) @ differences / count for _ in batches]))
    # The order that was found is one of the possible ones; rounding must not decide a tie.
    p = (1 + int((flipped >= abs(mean) - 1e-12).sum())) / (1 + _SAMPLES)
    return Difference(mean=mean, low=float(low), high=float(high), p=float(p))
