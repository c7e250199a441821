"""A pool of connections to one server: lends them, cancels statements, and replaces connections after an outage."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, TypeVar

import psycopg
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection
from psycopg.adapt import AdaptersMap
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from retrievers.core.errors import Unavailable
from retrievers.postgres.server.errors import RETRY_AFTER_S, SOURCE, convert_server_errors
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE

Row = tuple[Any, ...]
Returned = TypeVar("Returned")
Work = Callable[[AsyncConnection[Row]], Awaitable[Returned]]
# If the server does not end a statement after this many cancel requests, the statement and its connection are given up.
_CANCELS, _CANCEL_EVERY_S = 50, 0.1
_MOST_CARRIED_BYTES = 1 << 20
_NEVER = 1 << 62
"""Number of uses after which the driver prepares a statement unasked. None would also disable `prepare=True`."""


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """State of a pool: connections in use and idle, the maximum, and callers that wait for one."""

    in_use: int
    idle: int
    most: int
    waiting: int


class _Pool(AsyncConnectionPool[AsyncConnection[Row]]):
    """A pool that lends the connection that was used last and closes the one that was unused longest.

    The server process of the connection used last has its caches warm. In the default order (longest unused first),
    sequential questions take 5 % more processor time and 25 % more waiting time.
    """

    async def _get_ready_connection(self, timeout: float | None) -> AsyncConnection[Row] | None:  # noqa: ASYNC109
        self._pool.rotate(1)  # connections are taken from the front and returned at the end
        return await super()._get_ready_connection(timeout)


_adapters: dict[Row, AdaptersMap] = {}
"""Converters for values of pgvector's types, by the oids of these types on the server."""


async def _adapt(connection: AsyncConnection[Row]) -> None:
    """Register pgvector's types on a new connection.

    All connections share the converters. Otherwise each would create eight classes, which stay in the process long
    after the connection is closed and keep the memory around them from being returned to the system.
    """
    oids = await (await connection.execute(_VECTOR_TYPES)).fetchone()
    assert oids is not None
    if oids not in _adapters:
        await register_vector_async(connection)
        _adapters.clear()  # other oids belong to another server
        _adapters[oids] = connection.adapters
    connection._adapters = AdaptersMap(_adapters[oids])


class ConnectionPool:
    """A pool of connections to one server, open between `open` and `close`.

    Args:
        address: connection string of the service's login.
        size: maximum number of connections.
        least: number of idle connections that are kept open.
        prepares: whether searches use prepared statements; False behind a pooler in transaction mode, which loses them.
        wait_s: how long a caller waits for a free connection, in seconds.
    """

    def __init__(
        self, address: str, size: int, *, least: int = 1, prepares: bool = False, wait_s: float = 10.0
    ) -> None:
        self._address, self._size, self._least, self._wait_s = address, size, least, wait_s
        self._prepares_after = _NEVER if prepares else None
        self._pool: _Pool | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._lost: str | None = None
        self._waiting: set[asyncio.Future[None]] = set()

    async def open(self, *, wait: bool = True) -> None:
        """Open the pool.

        Args:
            wait: wait until there is a connection.
        Raises:
            Unavailable: no connection within 30 s.
        """
        self._pool = self._new()
        try:
            await self._pool.open(wait=wait and self._least > 0, timeout=30)
        except PoolTimeout as error:
            await self._pool.close()
            raise Unavailable(SOURCE, "no connection in 30 s") from error

    def _new(self) -> _Pool:
        return _Pool(
            self._address,
            min_size=self._least,
            max_size=self._size,
            timeout=self._wait_s,
            open=False,
            configure=_adapt,
            kwargs={"autocommit": True, "prepare_threshold": self._prepares_after, "connect_timeout": 10},
        )

    async def close(self) -> None:
        """Close the pool."""
        if self._pool is not None:
            await self._pool.close()

    def usage(self) -> PoolUsage:
        """Return how many connections are in use, idle, allowed and waited for."""
        assert self._pool is not None
        stats = self._pool.get_stats()
        idle = stats["pool_available"]
        return PoolUsage(stats["pool_size"] - idle, idle, self._size, stats["requests_waiting"])

    @property
    def lost(self) -> str | None:
        """Why callers get no connection at present (the server is lost); None while the server works."""
        return self._lost

    def mark_lost(self, reason: str) -> None:
        """Mark the server as lost: new callers, and callers that wait for a connection or for rows, get Unavailable.

        Args:
            reason: the reason in this error.
        """
        self._lost = reason
        for one in self._waiting:
            if not one.done():
                one.set_result(None)

    async def mark_recovered(self) -> None:
        """Mark the server as working, and replace the pool.

        In the old pool each broken connection would fail once more, and a pool that has failed for a while waits long
        before it connects again.
        """
        before, self._pool = self._pool, self._new()
        await self._pool.open(wait=False)
        self._lost = None
        if before is not None:
            self._task(before.close())

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        """Lend a connection for the block."""
        with convert_server_errors():
            pool, connection = await self._take()
            try:
                yield connection
            finally:
                await self._detached(self._give_back(pool, connection))

    async def _take(self) -> tuple[_Pool, AsyncConnection[Row]]:
        """Return (pool, connection from it). If the caller is cancelled while waiting, the pool gets it back."""
        pool = self._pool
        assert pool is not None

        def unwanted(taking: "asyncio.Task[AsyncConnection[Row]]") -> None:
            if not taking.cancelled() and taking.exception() is None:
                self._detached(self._give_back(pool, taking.result()))

        # A task of its own waits for the pool: a cancellation inside the pool's wait may lose the connection, or be
        # lost itself (`wait_for` of Python 3.11), so that the statement would run to its end.
        self._refuse_when_lost()
        taking = asyncio.ensure_future(self._free(pool))
        try:
            return pool, await self._unless_lost(taking)
        except (asyncio.CancelledError, Unavailable):
            taking.add_done_callback(unwanted)
            raise

    async def _free(self, pool: _Pool) -> AsyncConnection[Row]:
        """Wait for a free connection and return it. The caller must not cancel this, see `_take`."""
        try:
            return await pool.getconn()
        except PoolTimeout as error:
            raise Unavailable(SOURCE, f"no connection became free in {self._wait_s:g} s") from error

    def _refuse_when_lost(self) -> None:
        if self._lost is not None:
            raise Unavailable(SOURCE, self._lost, retry_after_s=RETRY_AFTER_S)

    async def _unless_lost(self, task: "asyncio.Task[Returned]") -> Returned:
        """Return the task's result. If the caller is cancelled or the server is lost, the task goes on.

        Raises:
            Unavailable: the server was lost before the task ended.
        """
        while not task.done():
            lost = asyncio.get_running_loop().create_future()
            self._waiting.add(lost)
            try:
                await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                self._waiting.discard(lost)
            if not task.done():
                self._refuse_when_lost()  # otherwise the server has recovered already
        return task.result()

    async def _give_back(self, pool: _Pool, connection: AsyncConnection[Row]) -> None:
        """Return a connection to the pool. Close it first if a statement, transaction or pipeline is open on it.

        A cancelled pipeline may leave its connection in pipeline mode. The next user would then wait forever, or read
        the answer to another statement.
        """
        state = connection.pgconn
        if state.pipeline_status != PipelineStatus.OFF or state.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                await connection.cancel_safe(timeout=2)
            await connection.close()
        await pool.putconn(connection)

    def retire(self, connection: AsyncConnection[Row], carried_bytes: int) -> None:
        """Close a connection after its use if more than 1 MiB went through it: its buffers would stay that large."""
        if carried_bytes > _MOST_CARRIED_BYTES:
            connection._expire_at = 0.0  # the pool closes an expired connection when it comes back

    def _detached(self, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        """Run the coroutine in a task that goes on when the caller is cancelled."""
        return asyncio.shield(self._task(work))

    def _task(self, work: Coroutine[Any, Any, Returned]) -> "asyncio.Task[Returned]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # the event loop holds tasks weakly
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved, so that asyncio does not log it if the caller is gone

    async def run(self, work: Work[Returned], *, until_lost: bool = False) -> Returned:
        """Return the result of the work. If the caller is cancelled, send cancel requests until the statement ends.

        The driver itself sends a single request, which a busy server may miss, and leaves a pipeline half read.

        Args:
            work: a function that runs statements on the connection that it is given.
            until_lost: stop waiting when the server is lost; it is then unknown whether a write has happened.
        Raises:
            psycopg.Error: raised by `work`.
            Unavailable: the server is lost.
        """
        self._refuse_when_lost()
        under_way, pool = _UnderWay[Returned](), self._pool
        assert pool is not None

        async def run() -> Returned:
            # This task is cancelled only while its statement runs, so it can wait for the connection itself.
            connection = await self._free(pool)
            try:
                return await under_way.run(work, connection)
            finally:
                await self._give_back(pool, connection)

        task = self._task(run())
        try:
            return await (self._unless_lost(task) if until_lost else asyncio.shield(task))
        except asyncio.CancelledError:
            await under_way.end(task)
            raise
        except Unavailable:
            if not task.done():
                self._task(under_way.end(task))
            raise


class _UnderWay(Generic[Returned]):
    """A database call (`run`) that another task may cancel (`end`)."""

    def __init__(self) -> None:
        self._connection: AsyncConnection[Row] | None = None
        self._unwanted = False
        self._telling: asyncio.Lock | None = None

    async def run(self, work: Work[Returned], connection: AsyncConnection[Row]) -> Returned:
        if self._unwanted:
            raise asyncio.CancelledError
        self._connection = connection
        try:
            return await work(connection)
        finally:
            self._connection = None
            if self._telling is not None:
                # Wait for a cancel request that is being sent: it must not end the connection's next statement.
                async with self._telling:
                    pass

    async def end(self, task: "asyncio.Task[Returned]") -> None:
        """Cancel the work and return when it has ended. If it has not begun, it never begins; then return at once.

        Args:
            task: the task that executes `run`.
        """
        self._unwanted = True
        telling = self._telling = self._telling or asyncio.Lock()
        try:
            for _ in range(_CANCELS):
                async with telling:
                    if self._connection is None:
                        return
                    with suppress(psycopg.Error):
                        await self._connection.cancel_safe(timeout=_CANCEL_EVERY_S)
                await asyncio.wait({task}, timeout=_CANCEL_EVERY_S)
        finally:
            if self._connection is not None:
                task.cancel()


def autocommit_work(statement: LiteralString, values: Mapping[str, Any]) -> Work[list[Row]]:
    """Return the work for `ConnectionPool.run` that executes a statement without a transaction and returns its rows.

    Args:
        values: parameters of the statement, including the signed scope.
    """

    async def rows(connection: AsyncConnection[Row]) -> list[Row]:
        cursor = await connection.execute(statement, values, prepare=True, binary=True)
        return await cursor.fetchall()

    return rows


def transaction_work(
    scope: str,
    statement: LiteralString,
    values: Mapping[str, Any] | Sequence[Any],
    parameters: Mapping[str, str] | None = None,
    *,
    prepare: bool = False,
) -> Work[list[Row]]:
    """Return the work for `ConnectionPool.run` that executes a statement in a scoped transaction and returns its rows.

    The settings of the transaction and the statement are sent in one round trip.

    Args:
        scope: the signed tenant and principals.
        parameters: PostgreSQL settings for this transaction only.
        prepare: prepare the statement, if `ConnectionPool` uses prepared statements. One plan must suit all values.
    """

    async def rows(connection: AsyncConnection[Row]) -> list[Row]:
        async with connection.pipeline(), connection.transaction():
            settings = {"role": SERVICE_ROLE, "signalbox.scope": scope, **(parameters or {})}
            await connection.execute(_SET_ALL, (list(settings), list(settings.values())), prepare=True)
            cursor = await connection.execute(statement, values, prepare=prepare)
            return await cursor.fetchall()

    return rows


_VECTOR_TYPES = "SELECT to_regtype('vector')::oid, to_regtype('halfvec')::oid, to_regtype('sparsevec')::oid"
_SET_ALL = "SELECT set_config(name, value, true) FROM unnest(%s::text[], %s::text[]) AS one (name, value)"

LOGIN_RIGHTS = """
    SELECT rolname, rolsuper OR rolbypassrls OR pg_has_role(rolname, nspowner, 'MEMBER'),
           pg_has_role(rolname, %s, 'SET')
    FROM pg_roles, pg_namespace WHERE rolname = session_user AND nspname = 'signalbox'
"""
"""Returns (name of the login, whether row security does not restrict it, whether it may act as the given role)."""
