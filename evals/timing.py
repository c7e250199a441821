"""Summaries of measured times."""

import math
from collections.abc import Sequence


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which the given share (0 to 1) of the values lies, interpolated linearly.

    Raises:
        ValueError: no values.
    """
    if not values:
        raise ValueError("no values")
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


def median(values: Sequence[float]) -> float:
    """Return the middle value; raises as `percentile`."""
    return percentile(values, 0.5)


def summary(values: Sequence[float]) -> dict[str, float]:
    """Return p50, p95, p99 and mean in the unit of the values, to three decimals."""
    found = {"p50": median(values), "p95": percentile(values, 0.95), "p99": percentile(values, 0.99)}
    return {name: round(value, 3) for name, value in {**found, "mean": sum(values) / len(values)}.items()}
