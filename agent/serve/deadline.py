"""Compute the time left for a request, counted from its arrival."""

from agent.settings import Settings
from agent.types import LEAST_TIMEOUT_S


def left_s(given_s: float | None, settings: Settings, waited_s: float, *, by_model: bool) -> float | None:
    """Return the timeout for the rest of a request, at least `LEAST_TIMEOUT_S`; None means the one of the settings.

    Args:
        given_s: the caller's timeout; None if the caller set none.
        waited_s: seconds already used.
        by_model: whether a model writes the answer. Without a caller's timeout, nothing is then deducted.
    """
    if not waited_s or (by_model and given_s is None):
        return given_s
    return max((given_s or settings.timeout_s) - waited_s, LEAST_TIMEOUT_S)
