"""Which tenants press: ask for so much that more of it is refused than let in."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

_WINDOW_S = 1.0
_OVER_AFTER_S = 0.5
_FIRST_TRIAL_S, _LAST_TRIAL_S = 4.0, 16.0


@dataclass(slots=True)
class _Held:
    """A tenant that presses: since its last refusal, until it is tried again, and how long that was put off."""

    refused: float
    until: float
    put_off_s: float


class Pressure:
    """How long the line of each tenant may be.

    A long line has a burst wait instead of coming again. Of a tenant that presses there is always somebody to let in,
    and a long line would only have everybody wait for the whole of it. It presses from when, within a second, more was
    refused than let in, by more than there are places, until nothing was refused for half a second. Its line is a short
    one; half of the long one after a second in which no more was refused than let in, and as long as that is so.

    A few callers that come again as soon as they are refused press, too, although half of a long line may hold them
    all. So that is tried after some seconds, and after twice as many each time that it does not.

    Args:
        at_work: most requests that are worked on.
        waiting: most that wait in the line of a tenant that does not press; of one that does, as many as are worked on.
        clock: the time in seconds.
    """

    def __init__(self, at_work: int, waiting: int, clock: Callable[[], float] = monotonic) -> None:
        self._at_work, self._waiting, self._clock = at_work, waiting, clock
        self._since = clock()
        self._excess: Counter[str] = Counter()
        self._held: dict[str, _Held] = {}

    def __bool__(self) -> bool:
        """Whether any tenant may press."""
        return bool(self._held)

    def line(self, tenant: str) -> int:
        """How many requests of the tenant may wait."""
        held, now = self._held.get(tenant), self._clock()
        if held is None or now - held.refused > _OVER_AFTER_S:
            self._held.pop(tenant, None)
            return self._waiting
        return min(self._at_work if now < held.until else self._waiting // 2, self._waiting)

    def entered(self, tenant: str) -> None:
        """A request was let in, or has a place in the line."""
        self._turn()
        self._excess[tenant] -= 1

    def refused(self, tenant: str) -> None:
        """A request was told that there is no room for it."""
        now = self._turn()
        self._excess[tenant] += 1
        held = self._held.get(tenant)
        if held is not None:
            held.refused = now
            if now >= held.until and self._excess[tenant] > 0:
                held.put_off_s = min(2 * held.put_off_s, _LAST_TRIAL_S)
                held.until = now + held.put_off_s
        elif self._excess[tenant] > self._at_work + self._waiting:
            self._held[tenant] = _Held(now, now + _FIRST_TRIAL_S, _FIRST_TRIAL_S)

    def _turn(self) -> float:
        now = self._clock()
        if now - self._since >= _WINDOW_S:
            for tenant, held in self._held.items():
                if self._excess[tenant] <= 0:
                    held.until = min(held.until, now)
            self._since = now
            self._excess.clear()
        return now
