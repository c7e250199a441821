"""Compute the time left for a request, counted from its arrival."""

from agent.settings import Settings
from agent.types import LEAST_TIMEOUT_S


def left_s(given_s: float | None, settings: Settings, waited_s: float, *, by_model: bool) -> float | None:
    """Return the seconds a request may still take; None if the settings decide.

    Args:
        given_s: the caller's timeout.
        waited_s: seconds already used.
        by_model: whether a model writes the answer. It may exceed the timeout of the settings, but not the caller's.
    """
    if not waited_s or (by_model and given_s is None):
        return given_s
    return max((given_s or settings.timeout_s) - waited_s, LEAST_TIMEOUT_S)
