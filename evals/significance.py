"""Compare two rankings on the same questions with a paired significance test."""

from collections.abc import Sequence
from typing import TypedDict

import numpy as np
from numpy.typing import NDArray

_SAMPLES = 10_000
_SEED = 20261120
_MOST_DRAWN = 2_000_000
"""Maximum number of drawn values that are in memory at once."""


class PairedDifference(TypedDict):
    """Mean difference, its 95 % confidence interval, and the probability of a difference this large by chance."""

    mean: float
    low: float
    high: float
    p: float


def paired_difference(before: Sequence[float], after: Sequence[float]) -> PairedDifference:
    """Return the paired difference `after` - `before`: one value per question, in the same order.

    The interval is a percentile bootstrap over questions. `p` is two-sided, from flipping the sign of each question's
    difference at random; if few questions differ, every combination of signs is tried. Both use a fixed seed, so equal
    input gives equal output.

    Raises:
        ValueError: there are no questions, or the lengths differ.
    Source:
        Smucker, Allan, Carterette, CIKM 2007, doi:10.1145/1321440.1321528.
    """
    if not before:
        raise ValueError("no questions")
    differences = np.array([two - one for one, two in zip(before, after, strict=True)])
    mean, count = float(differences.mean()), len(differences)
    if not differences.any():
        return PairedDifference(mean=0.0, low=0.0, high=0.0, p=1.0)
    draw = np.random.default_rng(_SEED)
    rows = max(_MOST_DRAWN // count, 1)
    sizes = [min(rows, _SAMPLES - start) for start in range(0, _SAMPLES, rows)]
    resampled = [differences[draw.integers(0, count, (size, count))].mean(axis=1) for size in sizes]
    low, high = np.quantile(np.concatenate(resampled), (0.025, 0.975))
    return PairedDifference(mean=mean, low=float(low), high=float(high), p=_chance(differences[differences != 0], draw))


def smallest_p(questions: int) -> float:
    """Return the smallest `p` that `paired_difference` can return if this number of questions differ."""
    return min(1.0, 2.0 ** (1 - questions))


def _chance(changed: NDArray[np.float64], draw: np.random.Generator) -> float:
    """Return the share of sign combinations whose sum is at least as far from zero as the measured one.

    All combinations are tried if they are at most `_SAMPLES`, else random ones.
    """
    count = len(changed)
    least = abs(float(changed.sum())) - 1e-12 * count  # rounding must not decide a tie
    if 2**count <= _SAMPLES:
        bits = np.arange(2**count)[:, None] >> np.arange(count) & 1
        return float((np.abs((bits * 2 - 1) @ changed) >= least).mean())
    as_large = 1  # the measured signs are one of the combinations
    rows = max(_MOST_DRAWN // count, 1)
    for start in range(0, _SAMPLES, rows):
        signs = draw.integers(0, 2, (min(rows, _SAMPLES - start), count), dtype=np.int8) * 2 - 1
        as_large += int((np.abs(signs @ changed) >= least).sum())
    return as_large / (1 + _SAMPLES)


def holm_correction(values: Sequence[float]) -> list[float]:
    """Return the p-values of several tests, corrected so that all together find something by chance as rarely as one.

    Args:
        values: the p-value of each test, in [0, 1].
    Returns:
        The corrected p-values in the same order, each at most 1.
    Source:
        Holm, Scandinavian Journal of Statistics 6, 1979.
    """
    corrected, largest = [0.0] * len(values), 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        largest = max(largest, min(1.0, (len(values) - rank) * values[place]))
        corrected[place] = largest
    return corrected
