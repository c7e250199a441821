"""Compute the time left for a request, counted from its arrival."""

from agent.settings import Settings
from agent.types import LEAST_TIMEOUT_S


def remaining_timeout_s(
    timeout_s: float | None, settings: Settings, waited_s: float, *, by_model: bool
) -> float | None:
    """Return the timeout for the rest of a request, at least `LEAST_TIMEOUT_S`; None means the one of the settings.

    Args:
        given_s: the caller's timeout; None if the caller set none.
        waited_s: seconds already used.
        by_model: whether a model writes the answer. Without a caller's timeout, nothing is then deducted.
    """
    if not waited_s or (by_model and timeout_s is None):
        return timeout_s
    return max((timeout_s or settings.timeout_s) - waited_s, LEAST_TIMEOUT_S)
