"""Limit the queues of tenants that send so much that more of their requests are rejected than admitted."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

_WINDOW_S = 1.0
_RECOVERED_AFTER_S = 0.5
_FIRST_TRIAL_S, _LAST_TRIAL_S = 4.0, 32.0


@dataclass(slots=True)
class _ShortQueue:
    """State of a tenant with a short queue: times of the last rejection and of the next trial of a long queue.

    `trial_interval_s` is the number of seconds between two trials.
    """

    last_rejected: float
    trial_at: float
    trial_interval_s: float


class TenantQueueLimit:
    """Limit the queue of each tenant, for requests that take much less than a second.

    With a long queue, the requests of a burst wait instead of being sent again. A tenant over its share gets a short
    queue: a long one would always be full and would only delay each of its requests. The tenant's queue becomes short
    when, within one second, its rejections exceed its admissions by more than `at_work + waiting`. It becomes long
    again when none of its requests was rejected for half a second.

    A few callers that retry at once after each rejection also keep the queue short, although a long queue would hold
    them all. So a long queue is tried now and then: after a second in which rejections did not exceed admissions,
    otherwise after 4 s, then after twice as long each time the trial fails (at most 32 s).

    Args:
        at_work: maximum number of requests at work; also the short queue's length.
        waiting: maximum number of waiting requests; the long queue's length.
        clock: the time in seconds.
    """

    def __init__(self, at_work: int, waiting: int, clock: Callable[[], float] = monotonic) -> None:
        self._at_work, self._waiting, self._clock = at_work, waiting, clock
        self._since = clock()
        self._excess: Counter[str] = Counter()
        self._short_queues: dict[str, _ShortQueue] = {}

    @property
    def is_active(self) -> bool:
        """True if some tenant has a short queue, or had one until a moment ago."""
        return bool(self._short_queues)

    def max_waiting(self, tenant: str) -> int:
        """Return how many requests of the tenant may wait."""
        short, now = self._short_queues.get(tenant), self._clock()
        is_long = short is None or _has_recovered(short, now) or now >= short.trial_at
        return self._waiting if is_long else min(self._at_work, self._waiting)

    def record_admission(self, tenant: str) -> None:
        """Record an admitted request."""
        self._start_window()
        self._excess[tenant] -= 1

    def record_rejection(self, tenant: str) -> None:
        """Record a rejected request."""
        now = self._start_window()
        self._excess[tenant] += 1
        short, excess = self._short_queues.get(tenant), self._excess[tenant]
        if short is None or _has_recovered(short, now):
            if excess > self._at_work + self._waiting:
                self._short_queues[tenant] = _ShortQueue(now, now + _FIRST_TRIAL_S, _FIRST_TRIAL_S)
            return
        short.last_rejected = now
        if now >= short.trial_at and excess > self._at_work:
            short.trial_interval_s = min(2 * short.trial_interval_s, _LAST_TRIAL_S)
            short.trial_at = now + short.trial_interval_s

    def _start_window(self) -> float:
        """Return the time. If the second in which requests are counted is over, start counting anew."""
        now = self._clock()
        if now - self._since >= _WINDOW_S:
            self._short_queues = {
                tenant: short for tenant, short in self._short_queues.items() if not _has_recovered(short, now)
            }
            for tenant, short in self._short_queues.items():
                if self._excess[tenant] <= 0:
                    short.trial_at = now
            self._since = now
            self._excess.clear()
        return now


def _has_recovered(short: _ShortQueue, now: float) -> bool:
    return now - short.last_rejected > _RECOVERED_AFTER_S
