"""Watch the standbys of a primary in the background and tell which may be read now.

Lag is measured by positions in the write-ahead log. The primary is asked every half second where its log ends. A
standby that has replayed the log up to there has everything committed before the request was sent. So an idle primary
causes no lag, and the servers' clocks do not matter.
"""

import asyncio
import logging
import random
import time
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from psycopg.conninfo import conninfo_to_dict, make_conninfo

from retrievers.core.errors import Unavailable
from retrievers.postgres.connections.pool import ConnectionPool
from retrievers.postgres.connections.server_probe import LateAnswer, ServerProbe, ServerState, UnboundLogin
from retrievers.postgres.server.errors import SOURCE
from retrievers.postgres.server.schema_migrations import check_conninfo

_EVERY_S = 0.5
"""Interval between state requests to a server, in seconds."""
_SOON_S = 0.1
"""Delay of an extra request after a write, in seconds. It lets the tenant's questions use a standby again soon."""
_WAIT_S = 1.0
"""How long a read waits for a free connection of one standby before it goes to the next server, in seconds."""
_REMEMBERED_S = 60.0
_MOST_TENANTS = 4096
_OF_ONE_SERVER = ("host", "hostaddr", "port", "target_session_attrs", "load_balance_hosts")

Fault = Literal["down", "login", "foreign", "promoted", "diverged", "lagging"]

_log = logging.getLogger(__name__)


class StandbyStatus(NamedTuple):
    """The state of a standby, for operators.

    Attributes:
        name: "standby_1" for the first in the setting.
        host: "host:port".
        fault, reason: why it is not read, as a code and in words; None and "" if it is read.
        lag_s: upper bound of its lag in seconds; None if unknown.
        reads: number of statements that it has answered.
    """

    name: str
    host: str
    fault: Fault | None
    reason: str
    lag_s: float | None
    reads: int


class Standby:
    """One standby: its connections and its last known state.

    Attributes:
        fault: (code, reason in words) why it is not read; None while it is healthy.
        position: the position in the write-ahead log that it has replayed; -1 if unknown.
        reads: number of statements that it has answered.
    """

    def __init__(self, name: str, address: str, size: int) -> None:
        self.name, self.host = name, _host(address)
        self.connections = ConnectionPool(address, size, least=0, wait_s=_WAIT_S)
        self.connections.mark_lost("its state is not known yet")
        self.probe = ServerProbe(address)
        self.reads = 0
        self.fault: tuple[Fault, str] | None = ("down", "its state is not known yet")
        self.position = -1

    async def mark_healthy(self, state: ServerState) -> None:
        """Record the state of a healthy standby; make it readable again if it had a fault."""
        self.position = state.position
        if self.fault is not None:
            _log.info("the standby %s can be read", self.host)
            await self.connections.mark_recovered()
            self.fault = None


class StandbyMonitor:
    """Watches the standbys and their primary, between `start` and `close`.

    Args:
        primary: connections to the primary, which the watch marks as lost or recovered.
        address: connection string of the service's login at the primary.
        standbys: connection strings of the standbys.
        size: maximum number of connections to each.
        max_lag_s: maximum lag of a standby that is read, in seconds.
    Raises:
        Unavailable: a malformed connection string.
    """

    def __init__(
        self, primary: ConnectionPool, address: str, standbys: Iterable[str], *, size: int, max_lag_s: float
    ) -> None:
        self.primary, self._probe = primary, ServerProbe(address)
        addresses = [_address_of(one, address) for one in standbys]
        self.standbys = tuple(Standby(f"standby_{number}", one, size) for number, one in enumerate(addresses, 1))
        self._max_lag_s = max_lag_s
        self._state: ServerState | None = None
        self._ends: deque[tuple[float, int]] = deque()
        """(time, position), oldest first: latest time at which the primary's log was known to end at the position."""
        self._written: OrderedDict[str, float] = OrderedDict()
        self._all_written = float("-inf")
        self._versions: OrderedDict[Hashable, float] = OrderedDict()
        self._salt = random.randrange(1 << 30)
        self._soon = asyncio.Event()
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Open the connections and ask every server once."""
        for one in self.standbys:
            await one.connections.open(wait=False)
        await self._look_at_primary(0)
        await asyncio.gather(*map(self._look_at, self.standbys))
        self._tasks = [asyncio.create_task(self._follow_primary())]
        self._tasks += [asyncio.create_task(self._follow(one)) for one in self.standbys]

    async def close(self) -> None:
        """Stop watching and close the connections."""
        # A task that is cancelled during a request would first send a cancellation to the server.
        self._closing = True
        self._soon.set()
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=2 * _SOON_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._probe.close()
        for one in self.standbys:
            await one.probe.close()
            await one.connections.close()

    def note_write(self, tenant: str) -> None:
        """Make the tenant's later questions skip standbys that lack anything committed before this call."""
        self._written[tenant] = time.monotonic()
        self._written.move_to_end(tenant)
        while len(self._written) > _MOST_TENANTS:
            self._all_written = max(self._all_written, self._written.popitem(last=False)[1])
        self._soon.set()

    def is_settled(self, version: Hashable) -> bool:
        """Return whether every standby that is read has this version of some data.

        True if this method was first called with the version longer ago than the maximum lag. A version is any key that
        changes with the data.
        """
        now = time.monotonic()
        known_at = self._versions.setdefault(version, now)
        if len(self._versions) > _MOST_TENANTS:
            self._versions.popitem(last=False)
        return now - known_at > self._max_lag_s

    def mark_lost(self, one: Standby, fault: Fault, reason: str) -> None:
        """Stop reading a standby until it reports a healthy state. Statements that run on it move to the next server.

        Another standby is read again once it has everything that was committed before this call. Otherwise a question
        could see older data than one that the lost standby has answered.

        Args:
            one: the standby.
            fault, reason: why it is lost, as a code and in words.
        """
        if one.fault is None:
            _log.warning("the standby %s is no longer read: %s", one.host, reason)
            self._all_written = time.monotonic()
            self._soon.set()
        one.fault = (fault, reason)
        one.connections.mark_lost(reason)

    def usable_standbys(self, tenants: Sequence[str]) -> tuple[list[Standby], list[Standby]]:
        """Return (standbys that have this process's writes for the tenants, standbys that lack some), preferred first.

        Only healthy standbys within the maximum lag are returned. A tenant always prefers the same standby. Otherwise
        an answer could be based on older data than the answer before.
        """
        since = max([self._all_written, *(self._written[one] for one in tenants if one in self._written)])
        now = time.monotonic()
        fit = [one for one in self.standbys if one.fault is None and self._lag_s(one, now) <= self._max_lag_s]
        fit.sort(key=lambda one: hash((one.name, self._salt, *tenants)))
        return ([one for one in fit if self._as_of(one) >= since], [one for one in fit if self._as_of(one) < since])

    def statuses(self) -> list[StandbyStatus]:
        """Return the state of every standby, in the order of the setting."""
        return [self._standing(one) for one in self.standbys]

    def _standing(self, one: Standby) -> StandbyStatus:
        lag_s = self._lag_s(one, time.monotonic())
        fault, reason = one.fault or (None, "")
        if fault is None and lag_s > self._max_lag_s:
            fault, reason = "lagging", f"its data is older than {self._max_lag_s:g} s"
        known = fault in (None, "lagging") and lag_s != float("inf")
        return StandbyStatus(one.name, one.host, fault, reason, lag_s if known else None, one.reads)

    def _as_of(self, one: Standby) -> float:
        """Return the time (by `time.monotonic`) up to which the standby has every commit; -inf if unknown."""
        return next((at for at, end in reversed(self._ends) if end <= one.position), float("-inf"))

    def _lag_s(self, one: Standby, now: float) -> float:
        """Return the standby's lag in seconds; 0 if it has everything up to the primary's last known position.

        Exception: a primary without a free connection does not report its position, but may have written more. So if
        the last known position is older than the maximum lag and the primary is not lost, the lag is its age.
        """
        as_of, age_s = self._as_of(one), now - self._as_of(one)
        is_last = bool(self._ends) and as_of == self._ends[-1][0]
        return 0.0 if is_last and (self.primary.lost is not None or age_s <= self._max_lag_s) else age_s

    async def _follow_primary(self) -> None:
        failures = 0
        while await self._pause():
            try:
                failures = await self._look_at_primary(failures)
            except Exception:  # an unexpected error must not end the watch
                _log.exception("the state of the primary could not be read")

    async def _look_at_primary(self, failures: int) -> int:
        """Ask the primary for its state, and mark it as lost or recovered.

        Args:
            failures: number of requests in a row that have failed before this one.
        Returns:
            That number after this request: 0 if the primary has answered.
        """
        at = time.monotonic()
        try:
            state = await self._probe.ask()
        except Unavailable as error:
            # A server without free connections still answers over open ones, so it is not lost.
            full = (getattr(error.__cause__, "sqlstate", None) or "").startswith("53")
            if not full and (failures or not isinstance(error, LateAnswer)):
                if self.primary.lost is None:
                    _log.warning("the primary does not answer: %s", error.reason)
                self.primary.mark_lost(f"the primary does not answer ({error.reason})")
            self._soon.set()
            return failures + 1
        if self._state is not None and state[:5:4] != self._state[:5:4]:
            self._ends.clear()  # another primary
        self._state = state
        if self._ends and self._ends[-1][1] == state.position:
            self._ends.pop()
        self._ends.append((at, state.position))
        while self._ends[0][0] < at - self._max_lag_s - _REMEMBERED_S:
            self._ends.popleft()
        if self.primary.lost is not None:
            _log.info("the primary answers again")
            await self.primary.mark_recovered()
        return 0

    async def _follow(self, one: Standby) -> None:
        while await self._pause():
            try:
                await self._look_at(one)
            except Exception:  # as for the primary
                _log.exception("the state of %s could not be read", one.name)

    async def _look_at(self, one: Standby) -> None:
        at, before = time.monotonic(), one.position
        try:
            state = await one.probe.ask()
        except Unavailable as error:
            self.mark_lost(one, "login" if isinstance(error, UnboundLogin) else "down", error.reason)
            return
        fault = self._fault(state, before, at)
        if fault is not None:
            one.position = state.position
            self.mark_lost(one, *fault)
        else:
            await one.mark_healthy(state)

    def _fault(self, state: ServerState, before: int, at: float) -> tuple[Fault, str] | None:
        """Return why a server with this state is not read; None if it is healthy.

        Args:
            state: the state that the server has reported.
            before: the position that it had reported the time before.
            at: when it was asked for `state`, by `time.monotonic`.
        """
        ours = self._state
        if ours is None:
            return ("down", "the state of the primary is not known yet")
        if (state.system, state.database) != (ours.system, ours.database):
            return ("foreign", "its database is not the primary's")
        if not state.in_recovery:
            return ("promoted", "it is not a standby: it was promoted, or is the primary itself")
        if state.timeline > ours.timeline:
            reason = f"it follows another primary, on timeline {state.timeline}; ours is on {ours.timeline}"
            return ("diverged", reason)
        if self._ends and self._ends[-1][0] > at and self._ends[-1][1] < before:
            return ("diverged", "it has replayed changes that the primary does not have")
        return None

    async def _pause(self) -> bool:
        """Wait until the servers are to be asked again. Return False if the watch is closing."""
        await asyncio.sleep(_SOON_S)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._soon.wait(), _EVERY_S - _SOON_S)
        if not self._closing:
            self._soon.clear()
        return not self._closing


def _address_of(given: str, service: str) -> str:
    """Return the complete connection string of a standby.

    Parts that `given` lacks are taken from `service`, the login at the primary, except those that name a server.
    """
    try:
        check_conninfo(given)
    except Unavailable:
        form = "postgresql://HOST/NAME, with @, : and / in a password written %40, %3A and %2F"
        raise Unavailable(SOURCE, f"READ_URLS contains an invalid connection string; the form is {form}") from None
    parts, own = conninfo_to_dict(given), conninfo_to_dict(service)
    dropped = {*_OF_ONE_SERVER, *(("password", "passfile") if "user" in parts else ())}
    kept = {key: value for key, value in own.items() if key not in dropped}
    return make_conninfo("", **kept | parts)


def _host(address: str) -> str:
    parts = conninfo_to_dict(address)
    return f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
