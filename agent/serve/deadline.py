"""How long a request may take, which counts from its arrival."""

from agent.settings import Settings
from agent.types import LEAST_TIMEOUT_S


def left_s(given_s: float | None, settings: Settings, waited_s: float, *, by_model: bool) -> float | None:
    """How long a request may take from now on; None where it is as the settings say.

    Args:
        given_s: what the caller gave it.
        waited_s: how much of its time is gone already.
        by_model: whether a model writes the answer: it may take longer than the settings give a question, but not
            than its caller does.
    """
    if not waited_s or (by_model and given_s is None):
        return given_s
    return max((given_s or settings.timeout_s) - waited_s, LEAST_TIMEOUT_S)
