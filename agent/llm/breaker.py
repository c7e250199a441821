"""A breaker per source: one that keeps failing is left alone for a while, then tried with one request."""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Literal

FAILURES = 5
"""Failures in a row that open a breaker."""
REST_S = 10.0
"""How long an open breaker waits before one request is let through."""
TRIAL_S = 15.0
"""A trial that says nothing for so long is taken for lost, and another is let through."""

State = Literal["closed", "open", "half-open"]


class Breaker:
    """Counts the failures in a row of one source; safe to share between tasks and threads.

    Every admitted request ends in exactly one of `succeeded`, `failed` and `gave_up`, or in `ended`.

    Args:
        now: the clock, in seconds; only differences count.
    """

    def __init__(
        self, *, failures: int = FAILURES, rest_s: float = REST_S, now: Callable[[], float] = monotonic
    ) -> None:
        self._most, self._rest_s, self._now = failures, rest_s, now
        self._lock = threading.Lock()
        self._failures = 0
        self._opened_at: float | None = None
        self._trial_at: float | None = None

    @property
    def state(self) -> State:
        """`open` while requests are turned away, `half-open` when the next one is a trial or a trial is under way."""
        with self._lock:
            if self._opened_at is None:
                return "closed"
            return "half-open" if self._now() - self._opened_at >= self._rest_s else "open"

    def rests(self) -> bool:
        """Whether a request would be turned away now. Asking changes nothing."""
        with self._lock:
            return self._turned_away()

    def admit(self) -> bool:
        """Whether this request may go. In half-open state it becomes the trial, and others wait for its end."""
        with self._lock:
            if self._turned_away():
                return False
            if self._opened_at is not None:
                self._trial_at = self._now()
            return True

    def succeeded(self) -> None:
        """The source answered, whatever it found."""
        with self._lock:
            # A late answer from before the breaker opened is as good a sign as a trial's.
            self._failures, self._opened_at, self._trial_at = 0, None, None

    def failed(self) -> None:
        """The source was unavailable, or gave no answer in all the time that is its own."""
        with self._lock:
            self._failures += 1
            if self._opened_at is not None and self._trial_at is None:
                return  # admitted before it opened: this failure is no news
            if self._opened_at is not None or self._failures >= self._most:
                self._opened_at, self._trial_at = self._now(), None

    def gave_up(self) -> None:
        """There was no answer, but that says nothing of the source: the caller left or was in a hurry, say."""
        with self._lock:
            self._trial_at = None

    def ended(self, works: bool | None) -> None:
        """What became of an admitted request: the source works, does not, or nothing was learned of it (None)."""
        if works is None:
            self.gave_up()
        elif works:
            self.succeeded()
        else:
            self.failed()

    def _turned_away(self) -> bool:
        if self._opened_at is None:
            return False
        if self._now() - self._opened_at < self._rest_s:
            return True
        return self._trial_at is not None and self._now() - self._trial_at < TRIAL_S


class Breakers:
    """The breakers of the sources, made when first asked for. Sources are few and named by us."""

    def __init__(self, *, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._breakers: dict[str, Breaker] = {}

    def of(self, source: str) -> Breaker:
        """The breaker of that source."""
        with self._lock:
            return self._breakers.setdefault(source, Breaker(now=self._now))

    def states(self) -> dict[str, State]:
        """The state of every breaker that was asked for."""
        with self._lock:
            known = dict(self._breakers)
        return {source: breaker.state for source, breaker in known.items()}
