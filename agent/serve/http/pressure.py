"""Which tenants press: ask for so much that more of it is refused than let in."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

_WINDOW_S = 1.0
_OVER_AFTER_S = 0.5
_FIRST_TRIAL_S, _LAST_TRIAL_S = 4.0, 32.0


@dataclass(slots=True)
class _Held:
    """A tenant that presses: when it was last refused, from when its line is long again, and how long that took."""

    last_refused: float
    trial_at: float
    put_off_s: float


class Pressure:
    """How long the line of each tenant may be, where requests take much less than a second.

    A long line has a burst wait instead of coming again. Of a tenant that presses there is always somebody to let in,
    and a long line would only have everybody wait for the whole of it: it has a short one. It presses from when, within
    a second, more was refused than let in, by more than there are places, until nothing was refused for half a second.

    A few callers that come again as soon as they are refused press, too, although a long line would hold them all. So
    that is tried after a second in which no more was refused than let in, or else after some seconds, and after twice
    as many each time that it does not do.

    Args:
        at_work: most requests that are worked on; as many may wait of a tenant that presses.
        waiting: most that may wait.
        clock: the time in seconds.
    """

    def __init__(self, at_work: int, waiting: int, clock: Callable[[], float] = monotonic) -> None:
        self._at_work, self._waiting, self._clock = at_work, waiting, clock
        self._since = clock()
        self._excess: Counter[str] = Counter()
        self._held: dict[str, _Held] = {}

    @property
    def is_on(self) -> bool:
        """Whether somebody pressed of late."""
        return bool(self._held)

    def line(self, tenant: str) -> int:
        """How many requests of the tenant may wait."""
        held, now = self._held.get(tenant), self._clock()
        is_long = held is None or _is_over(held, now) or now >= held.trial_at
        return self._waiting if is_long else min(self._at_work, self._waiting)

    def let_in(self, tenant: str) -> None:
        """A request is worked on."""
        self._turn()
        self._excess[tenant] -= 1

    def refused(self, tenant: str) -> None:
        """A request was told that there is no room for it."""
        now = self._turn()
        self._excess[tenant] += 1
        held, excess = self._held.get(tenant), self._excess[tenant]
        if held is None or _is_over(held, now):
            if excess > self._at_work + self._waiting:
                self._held[tenant] = _Held(now, now + _FIRST_TRIAL_S, _FIRST_TRIAL_S)
            return
        held.last_refused = now
        if now >= held.trial_at and excess > self._at_work:
            held.put_off_s = min(2 * held.put_off_s, _LAST_TRIAL_S)
            held.trial_at = now + held.put_off_s

    def _turn(self) -> float:
        now = self._clock()
        if now - self._since >= _WINDOW_S:
            self._held = {tenant: held for tenant, held in self._held.items() if not _is_over(held, now)}
            for tenant, held in self._held.items():
                if self._excess[tenant] <= 0:
                    held.trial_at = now
            self._since = now
            self._excess.clear()
        return now


def _is_over(held: _Held, now: float) -> bool:
    return now - held.last_refused > _OVER_AFTER_S
