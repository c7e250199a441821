"""Load shedding: a limited number of concurrent requests, a short queue that is fair between tenants, else a 503."""

import asyncio
import math
import os
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.serve.authentication import Caller
from agent.serve.http.middleware.queue_limit import TenantQueueLimit
from agent.serve.http.problems import Problem, problem_response, stopping_problem, unavailable_problem

_ANSWER_PATHS = ("/v1/chat/completions", "/v1/ask", "/mcp", "/mcp/")
_WRITE_PATHS = ("/v1/documents", "/v1/files/", "/v1/collections/")
LONG_BODY_BYTES = 1000
"""Minimum length of the body of a long search. Questions are shorter; a conversation of several turns may be long."""


class Gate:
    """Limits the requests at work (being processed) and the requests waiting; each tenant has its own queue.

    The next request comes from the waiting tenant with the fewest requests at work; tenants with equally many take
    turns. If `waiting` requests wait in all, a new request replaces the last request of the longest tenant queue,
    provided its own tenant's queue is shorter by at least two. The loser of the two gets a 503.

    Args:
        at_work: maximum number of requests at work.
        waiting: maximum number of waiting requests of all tenants together.
        queue_limit: lowers the limit of waiting requests for tenants that send too much; None for no such limit.
    """

    def __init__(self, at_work: int, waiting: int, queue_limit: TenantQueueLimit | None = None) -> None:
        self._free, self._most_waiting = at_work, waiting
        self._queue_limit = queue_limit
        self._busy: Counter[str] = Counter()
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}
        self._closed = False

    @property
    def at_work(self) -> int:
        """Number of requests at work."""
        return self._busy.total()

    @property
    def waiting(self) -> int:
        """Number of waiting requests."""
        return sum(map(len, self._queues.values()))

    @property
    def is_full(self) -> bool:
        """True if `waiting` requests wait: a new request can wait only in place of another request."""
        return not self._closed and not self._free and self.waiting >= self._most_waiting

    @property
    def may_reject(self) -> bool:
        """True if a request of some tenant might be rejected now."""
        return self.is_full or (self._queue_limit is not None and self._queue_limit.is_active)

    def has_room(self, tenant: str) -> bool:
        """Return whether a request of the tenant would be admitted or queued now."""
        if self._closed or self._free:
            return True
        own = len(self._queues.get(tenant, ()))
        if self._queue_limit is not None and own >= self._queue_limit.max_waiting(tenant):
            return False
        return not self.is_full or len(self._queues.get(self._longest_queue_tenant, ())) >= own + 2

    def record_rejection(self, tenant: str) -> None:
        """Record that a request of the tenant was rejected for lack of room."""
        if self._queue_limit is not None:
            self._queue_limit.record_rejection(tenant)

    @asynccontextmanager
    async def admit(self, tenant: str, max_wait_s: float) -> AsyncIterator[None]:
        """Wait until a request of the tenant may be processed; it counts as at work until the end of the block.

        Raises:
            Problem: 503, at once if there is no room, or after `max_wait_s` seconds in the queue.
        """
        await self._acquire(tenant, max_wait_s)
        try:
            yield
        finally:
            self._release(tenant)

    def close(self) -> None:
        """Reject all waiting and all future requests."""
        self._closed = True
        for queue in self._queues.values():
            for waiter in queue:
                if not waiter.done():
                    waiter.set_exception(stopping_problem())
        self._queues.clear()

    async def _acquire(self, tenant: str, max_wait_s: float) -> None:
        if self._closed:
            raise stopping_problem()
        if self._free:
            self._free -= 1
            self._start(tenant)
            return
        self._make_room(tenant)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queues.setdefault(tenant, deque()).append(waiter)
        try:
            async with asyncio.timeout(max_wait_s):
                await waiter
        except BaseException as error:
            if waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self._release(tenant)  # admitted, but the request has ended meanwhile
            else:
                self._remove_waiter(tenant, waiter)
            if isinstance(error, TimeoutError):
                self.record_rejection(tenant)
                raise overloaded_problem() from None
            raise

    def _start(self, tenant: str) -> None:
        self._busy[tenant] += 1
        if self._queue_limit is not None:
            self._queue_limit.record_admission(tenant)

    def _release(self, tenant: str) -> None:
        self._busy[tenant] -= 1
        if not self._busy[tenant]:
            del self._busy[tenant]
        while self._queues:
            following = min(self._queues, key=self._busy.__getitem__)
            queue = self._queues.pop(following)
            waiter = queue.popleft()
            if queue:
                self._queues[following] = queue  # append at the end, so that the other tenants come first
            if not waiter.done():
                self._start(following)
                waiter.set_result(None)
                return
        self._free += 1

    def _make_room(self, tenant: str) -> None:
        if not self.has_room(tenant):
            self.record_rejection(tenant)
            raise overloaded_problem()
        if self.is_full:
            other = self._longest_queue_tenant
            last = self._queues[other].pop()
            if not last.done():
                self.record_rejection(other)
                last.set_exception(overloaded_problem())

    @property
    def _longest_queue_tenant(self) -> str:
        """The tenant with the longest queue; "" if nobody waits."""
        return max(self._queues, key=lambda tenant: len(self._queues[tenant]), default="")

    def _remove_waiter(self, tenant: str, waiter: "asyncio.Future[None]") -> None:
        queue = self._queues.get(tenant)
        if queue is not None:
            with suppress(ValueError):
                queue.remove(waiter)
            if not queue:
                del self._queues[tenant]


class Gates:
    """One gate for each kind of request, so that requests of one kind do not wait for another kind.

    Searches use processor time: two per core keep it busy, and more at once would only make each slower. A search with
    a long body may use thirty times as much, so each process works on one of these at a time, and short searches
    never queue behind it. An answer mostly waits for a model, and a search with external sources may wait for these;
    these are not divided by length. A write waits for other writes.

    Args:
        has_model: False if there is no model; a request for an answer then returns passages and counts as a search.
        searches_wait: whether searches also wait for external services; more searches then run at once.
        processes: number of server processes; each gets its share of the limits.
    """

    def __init__(self, *, has_model: bool, searches_wait: bool = False, processes: int = 1) -> None:
        self._has_model = has_model
        cores = os.cpu_count() or 1

        def share(whole: int) -> int:
            return math.ceil(whole / processes)

        at_work, waiting = (64, 64) if searches_wait else (2 * cores, 14 * cores)
        queue_limit = None if searches_wait else TenantQueueLimit(share(at_work), share(waiting))
        self.searches = Gate(share(at_work), share(waiting), queue_limit)
        self.long_searches = Gate(1, share(waiting), TenantQueueLimit(1, share(waiting)))
        self._searches_wait = searches_wait
        self.answers = Gate(share(64), share(64))
        self.writes = Gate(share(16), share(32))

    def gate_for(self, method: str, path: str, body_bytes: int) -> Gate:
        """Return the gate at which a request with this method, path and length of the body queues."""
        if self._has_model and path in _ANSWER_PATHS:
            return self.answers
        if method in ("POST", "PUT", "DELETE") and path.startswith(_WRITE_PATHS):
            return self.writes
        is_long = body_bytes >= LONG_BODY_BYTES and not self._searches_wait
        return self.long_searches if is_long else self.searches

    @property
    def may_reject(self) -> bool:
        """True if some gate might reject a request now."""
        return any(gate.may_reject for gate in self.by_name().values())

    def close(self) -> None:
        """Reject all requests because the service is stopping."""
        for gate in self.by_name().values():
            gate.close()

    def by_name(self) -> dict[str, Gate]:
        """Return the gates by name."""
        return {
            "searches": self.searches,
            "long_searches": self.long_searches,
            "answers": self.answers,
            "writes": self.writes,
        }


class AdmissionMiddleware:
    """ASGI middleware that queues each request at its gate, and cancels its processing if the client disconnects.

    Requests without a caller skip the queue: they are cheap, and some report the health of the service.

    Args:
        max_wait_s: maximum seconds in the queue. Waiting uses up the request's time limit, which counts from arrival.
    """

    def __init__(self, app: ASGIApp, *, gates: Gates, max_wait_s: float) -> None:
        self._app, self._gates, self._max_wait_s = app, gates, max_wait_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller | None = scope.get("state", {}).get("caller")
        if scope["type"] != "http" or caller is None:
            await self._app(scope, receive, send)
            return
        gate = self._gates.gate_for(scope["method"], scope["path"], scope["state"]["body_bytes"])

        async def work(receive: Receive) -> None:
            try:
                async with gate.admit(caller.tenant, self._max_wait_s):
                    await self._app(scope, receive, send)
            except Problem as problem:
                await problem_response(scope, problem)(scope, receive, send)

        await _while_connected(work, receive)


async def _while_connected(work: Callable[[Receive], Awaitable[None]], receive: Receive) -> None:
    """Run `work` for a request whose body has been read; cancel it if the client disconnects.

    Args:
        work: called with a `receive` that returns the body again.
    """
    body = await receive()
    gone = asyncio.Event()

    async def once_more() -> Message:
        nonlocal body
        if body["type"] == "http.request":
            message, body = body, {"type": "http.disconnect"}
            return message
        await gone.wait()
        return body

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        gone.set()
        task.cancel()

    task = asyncio.ensure_future(work(once_more))
    watcher = asyncio.ensure_future(watch())
    try:
        await task
    except asyncio.CancelledError:
        if not gone.is_set():
            raise
    finally:
        watcher.cancel()
        if not task.done():
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def overloaded_problem() -> Problem:
    """Return the 503 for a request that finds no room."""
    return unavailable_problem("too many requests at once; try again", kind="overloaded")
