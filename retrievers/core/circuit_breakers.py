"""Circuit breakers, one per source: a source that keeps failing gets no requests for a while, then one trial."""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Literal

from retrievers.core.descriptors import are_descriptors_scarce

FAILURE_THRESHOLD = 5
"""Number of consecutive failures that opens a breaker."""
OPEN_S = 10.0
"""Seconds an open breaker rejects requests before it admits a trial request."""
TRIAL_S = 15.0
"""Seconds after which a trial without a result counts as lost and another request may become the trial."""

# A failure while at most this many file descriptors are free is probably due to that.
_SPARE_DESCRIPTORS = 16

State = Literal["closed", "open", "half-open"]


class CircuitBreaker:
    """A circuit breaker that counts one source's consecutive failures. Tasks and threads may share it.

    Call exactly one of the four methods `record_...` when an admitted request has ended.

    Args:
        failures: consecutive failures that open the breaker.
        open_s: seconds the breaker stays open before a trial.
        now: returns the time in seconds, from any start.
    """

    def __init__(
        self, *, failures: int = FAILURE_THRESHOLD, open_s: float = OPEN_S, now: Callable[[], float] = monotonic
    ) -> None:
        self._most, self._open_s, self._now = failures, open_s, now
        self._lock = threading.Lock()
        self._failures = 0
        self._opened_at: float | None = None
        self._trial_at: float | None = None

    @property
    def state(self) -> State:
        """`closed`: requests pass; `open`: they are rejected; `half-open`: the next is a trial, or a trial runs."""
        with self._lock:
            if self._opened_at is None:
                return "closed"
            return "half-open" if self._now() - self._opened_at >= self._open_s else "open"

    def is_rejecting(self) -> bool:
        """Return whether a request would be rejected now. Does not change the state."""
        with self._lock:
            return self._rejects()

    def admit(self) -> bool:
        """Return whether this request may be sent.

        In the half-open state the first request becomes the trial. Others are rejected until the trial ends.
        """
        with self._lock:
            if self._rejects():
                return False
            if self._opened_at is not None:
                self._trial_at = self._now()
            return True

    def record_success(self) -> None:
        """Record that the source answered, even if it found nothing."""
        with self._lock:
            # This also holds for a late answer to a request that was sent before the breaker opened.
            self._failures, self._opened_at, self._trial_at = 0, None, None

    def record_failure(self) -> None:
        """Record that the source was unavailable or used up its whole timeout without an answer.

        While this process lacks file descriptors, no source can be reached, and the failure says nothing about it.
        """
        if are_descriptors_scarce(_SPARE_DESCRIPTORS):
            self.record_unknown()
            return
        with self._lock:
            self._failures += 1
            if self._opened_at is not None and self._trial_at is None:
                return  # admitted before the breaker opened: this failure says nothing new
            if self._opened_at is not None or self._failures >= self._most:
                self._opened_at, self._trial_at = self._now(), None

    def record_unknown(self) -> None:
        """Record that a request ended without showing whether the source works, for example by a cancellation."""
        with self._lock:
            self._trial_at = None

    def record_outcome(self, works: bool | None) -> None:
        """Record the end of an admitted request: the source works (True), fails (False), or nothing is known (None)."""
        if works is None:
            self.record_unknown()
        elif works:
            self.record_success()
        else:
            self.record_failure()

    def _rejects(self) -> bool:
        if self._opened_at is None:
            return False
        if self._now() - self._opened_at < self._open_s:
            return True
        return self._trial_at is not None and self._now() - self._trial_at < TRIAL_S


class CircuitBreakers:
    """One breaker per source name, created on first use and never removed, as the configuration limits the sources."""

    def __init__(self, *, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._breakers: dict[str, CircuitBreaker] = {}

    def of(self, source: str) -> CircuitBreaker:
        """Return the breaker of a source; create it if there is none."""
        with self._lock:
            return self._breakers.setdefault(source, CircuitBreaker(now=self._now))

    def states(self) -> dict[str, State]:
        """Return source name to state for every breaker created so far."""
        with self._lock:
            known = dict(self._breakers)
        return {source: breaker.state for source, breaker in known.items()}
