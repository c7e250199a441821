"""Measure how long each stage of a request took, and make the error for a request that took too long.

`agent.options.deadline_shares` splits the deadline between the stages.
"""

import time

from retrievers.core.errors import Unavailable

_WAITS_FOR = {
    "scope": "the database to return the collections that the tenant may read",
    "intent": "the values and words of the documents",
    "search": "the sources",
    "fusion": "the fusion of the rankings",
    "loop": "further rounds of searching",
    "page": "the database to return the texts of the hits",
}


class StageTimes:
    """Milliseconds that each of several consecutive stages took; the first stage begins when this object is created."""

    def __init__(self, elapsed_ms: dict[str, float] | None = None) -> None:
        self.elapsed_ms = elapsed_ms if elapsed_ms is not None else {}
        self._last = time.monotonic()

    def end_stage(self, stage: str) -> None:
        """Add the time since the previous stage ended to this stage."""
        now = time.monotonic()
        self.elapsed_ms[stage] = round(self.elapsed_ms.get(stage, 0.0) + (now - self._last) * 1000, 3)
        self._last = now

    def describe_unfinished(self) -> str:
        """Return a text that names the stage running when the time ran out, and what it waited for."""
        stage = next((stage for stage in _WAITS_FOR if stage not in self.elapsed_ms), "page")
        return f"the {stage} step was still waiting for {_WAITS_FOR[stage]}"


def timeout_error(timeout_s: float, waited_for: str) -> Unavailable:
    """Return the error for a request whose time is over; `waited_for` comes from `StageTimes.describe_unfinished`."""
    return Unavailable("the service", f"no answer within {timeout_s:g} s: {waited_for}", retry_after_s=5)


def describe_unfinished_scope() -> str:
    """Return `StageTimes.describe_unfinished` for a request that still waits for its readable collections."""
    return StageTimes().describe_unfinished()
