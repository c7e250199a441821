"""The service's connections: who it connects as, and how a tenant is set.

Everything the service does runs as `signalbox_app`, which row security binds, inside a transaction
that carries the signed tenant; the two searches take the same signature as an argument instead,
which saves them the transaction.
"""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, LiteralString, Self, TypeVar
from weakref import WeakSet

import psycopg
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from retrievers.core.errors import Unavailable
from retrievers.core.principals import check_principals, check_tenant
from retrievers.core.types import Viewer
from retrievers.postgres.faults import faults_explained, first_line
from retrievers.postgres.migrate import SERVICE_ROLE, check_address, is_current, migrate, service_address

Row = tuple[Any, ...]
Returned = TypeVar("Returned")
# A server that does not end a statement within these is taken for lost, with the connection.
_CANCELS, _CANCEL_EVERY_S = 50, 0.1


@dataclass(frozen=True, slots=True)
class PoolUsage:
    """The connections of a pool: in use, idle, the most there may be, and how many wait for one."""

    in_use: int
    idle: int
    most: int
    waiting: int


class _Pool(AsyncConnectionPool[AsyncConnection[Row]]):
    """A pool that hands out the connection that was used last, and closes the one that was unused longest.

    Its server process has what it needs at hand. In turn, as the pool would hand them out, those of a process that asks
    one question after the other cost a twentieth more of the processor, and wait for it a quarter longer.
    """

    async def _get_ready_connection(self, timeout: float | None) -> AsyncConnection[Row] | None:  # noqa: ASYNC109
        self._pool.rotate(1)  # it is taken from the front, and given back at the end
        return await super()._get_ready_connection(timeout)


_MOST_CARRIED_BYTES = 1 << 20


class Database:
    """A pool of connections to one database, open between `async with`.

    Args:
        owner: connection string of the role that migrates the schema and may read the signing secret.
        service: connection string of the role that serves, a member of `signalbox_app` that is neither the
            owner nor a superuser; when None, the login that `migrate` made, at the owner's address.
        size: most connections.
    """

    def __init__(self, owner: str, service: str | None = None, *, size: int = 10) -> None:
        self._owner, self._service = owner, service
        self._size = size
        self._pool: _Pool | None = None
        self._secret = b""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._retired: WeakSet[AsyncConnection[Row]] = WeakSet()

    async def __aenter__(self) -> Self:
        self._secret, service = await asyncio.to_thread(_prepare, self._owner, self._service)
        self._pool = _Pool(
            service,
            min_size=1,
            max_size=self._size,
            timeout=10,
            open=False,
            configure=register_vector_async,
            # Poolers in transaction mode do not keep prepared statements.
            kwargs={"autocommit": True, "prepare_threshold": None, "connect_timeout": 10},
        )
        try:
            await self._pool.open(wait=True, timeout=30)
        except PoolTimeout as error:
            await self._pool.close()
            raise Unavailable("the database", "no connection in 30 s") from error
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            await self._pool.close()

    @property
    def owner(self) -> str:
        """The owner's connection string; it may hold a password."""
        return self._owner

    def usage(self) -> PoolUsage:
        """What the pool does now."""
        assert self._pool is not None
        stats = self._pool.get_stats()
        idle = stats["pool_available"]
        return PoolUsage(stats["pool_size"] - idle, idle, self._size, stats["requests_waiting"])

    def scope(self, who: str | Viewer) -> str:
        """The tenant and its principals with a signature, as the database verifies it.

        Args:
            who: a tenant by its name alone sees what has no readers.
        Raises:
            BadRequest: no tenant, or none that could be; so of principals.
        """
        tenant, principals = Viewer.of(who)
        check_tenant(tenant)
        return self._signed("\n".join((tenant, *check_principals(principals, everything=True))))

    def worker_pass(self) -> str:
        """What functions for workers ask for in place of a tenant's scope; no tenant's scope can be mistaken for it."""
        return self._signed("\nworker")

    def _signed(self, name: str) -> str:
        return hashlib.sha256(self._secret + name.encode() + self._secret).hexdigest() + ":" + name

    def seal(self, text: str) -> str:
        """64 hexadecimal digits that nobody makes of the text who lacks this database's secret."""
        return hmac.digest(self._secret, text.encode(), "sha256").hex()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        """A connection without a tenant: as the service's own role it can call the searches and read nothing else."""
        with _explained():
            connection = await self._take()
            try:
                yield connection
            finally:
                await self._detached(self._give_back(connection))

    async def _take(self) -> AsyncConnection[Row]:
        """A connection from the pool; one that comes after its task was cancelled goes back."""
        assert self._pool is not None

        def unwanted(taking: "asyncio.Task[AsyncConnection[Row]]") -> None:
            if not taking.cancelled() and taking.exception() is None:
                self._detached(self._give_back(taking.result()))

        # Waiting in the pool itself, a cancellation at the wrong moment loses the connection, or is itself lost
        # (`wait_for` of Python 3.11) and the statement runs to its end with nobody left to stop it.
        taking = asyncio.ensure_future(self._pool.getconn())
        try:
            return await asyncio.shield(taking)
        except asyncio.CancelledError:
            taking.add_done_callback(unwanted)
            raise

    async def _give_back(self, connection: AsyncConnection[Row]) -> None:
        """The connection to the pool; closed before when something is under way on it.

        A cancelled pipeline may end with its connection still in pipeline mode: whoever got it next would wait
        for nothing, or read the answer to another's question.
        """
        assert self._pool is not None
        state = connection.pgconn
        if state.pipeline_status != PipelineStatus.OFF or state.transaction_status != TransactionStatus.IDLE:
            with suppress(psycopg.Error):
                await connection.cancel_safe(timeout=2)
            await connection.close()
        elif connection in self._retired:
            await connection.close()
        await self._pool.putconn(connection)

    def retire(self, connection: AsyncConnection[Row], carried_bytes: int) -> None:
        """Close a connection after its use if much went through it: its buffers would stay as large as that."""
        if carried_bytes > _MOST_CARRIED_BYTES:
            self._retired.add(connection)

    def _detached(self, work: Coroutine[Any, Any, None]) -> "asyncio.Future[None]":
        """The work, which goes on when its awaiter is cancelled."""
        return asyncio.shield(self._task(work))

    def _task(self, work: Coroutine[Any, Any, Returned]) -> "asyncio.Task[Returned]":
        task = asyncio.ensure_future(work)
        self._tasks.add(task)  # the event loop holds tasks weakly
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # has been seen: whoever wanted it may be gone

    @asynccontextmanager
    async def transaction(self, who: str | Viewer, *, frozen: bool = False) -> AsyncIterator[AsyncConnection[Row]]:
        """A transaction that sees what the viewer may, and writes for the tenant.

        Args:
            frozen: all of its statements see the state of its begin, and it writes nothing.
        """
        scope = self.scope(who)
        async with self.connection() as connection, connection.transaction():
            if frozen:
                await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            await connection.execute(_ENTER, (SERVICE_ROLE, scope))
            yield connection

    async def fetch(
        self,
        who: str | Viewer,
        statement: LiteralString,
        values: dict[str, Any] | Sequence[Any],
        *,
        parameters: Mapping[str, str] | None = None,
    ) -> list[Row]:
        """Rows of one statement within the viewer's scope, sent with all that it needs at once.

        Args:
            statement: one that gives rows, if only by RETURNING.
            parameters: of PostgreSQL, for this transaction alone.
        """
        scope = self.scope(who)

        async def rows(connection: AsyncConnection[Row]) -> list[Row]:
            async with connection.pipeline(), connection.transaction():
                settings = {"role": SERVICE_ROLE, "signalbox.scope": scope, **(parameters or {})}
                await connection.execute(_SET_ALL, (list(settings), list(settings.values())))
                cursor = await connection.execute(statement, values)
                return await cursor.fetchall()

        return await self._to_its_end(rows)

    async def search(self, statement: LiteralString, values: dict[str, Any]) -> list[Row]:
        """Rows of one search, whose scope is among the values."""

        async def rows(connection: AsyncConnection[Row]) -> list[Row]:
            cursor = await connection.execute(statement, values, binary=True)
            return await cursor.fetchall()

        return await self._to_its_end(rows)

    async def _to_its_end(self, work: Callable[[AsyncConnection[Row]], Awaitable[list[Row]]]) -> list[Row]:
        """The rows of the work; when its awaiter is cancelled, the server is told to end it until it has.

        The driver would ask the server once, which a busy one may overlook, and leave a pipeline half read.
        """
        under_way = _UnderWay()

        async def rows() -> list[Row]:
            assert self._pool is not None
            connection = await self._pool.getconn()
            try:
                return await under_way.run(work, connection)
            finally:
                await self._give_back(connection)

        with _explained():
            task = self._task(rows())
            try:
                return await asyncio.shield(task)
            except asyncio.CancelledError:
                await under_way.end(task)
                raise


class _UnderWay:
    """A database call that another task may cancel."""

    def __init__(self) -> None:
        self._connection: AsyncConnection[Row] | None = None
        self._unwanted = False
        self._telling: asyncio.Lock | None = None

    async def run(
        self, work: Callable[[AsyncConnection[Row]], Awaitable[list[Row]]], connection: AsyncConnection[Row]
    ) -> list[Row]:
        if self._unwanted:
            return []
        self._connection = connection
        try:
            return await work(connection)
        finally:
            self._connection = None
            if self._telling is not None:
                # What the server is being told by now must not end what the connection does next.
                async with self._telling:
                    pass

    async def end(self, task: "asyncio.Task[list[Row]]") -> None:
        """Returns when the work is over, or has not begun: then it never will."""
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


@contextmanager
def _explained() -> Iterator[None]:
    """What goes wrong with a connection, as an error that says so."""
    with faults_explained():
        try:
            yield
        except PoolTimeout as error:
            raise Unavailable("the database", "no connection became free in 10 s") from error


_ENTER = "SELECT set_config('role', %s, true), set_config('signalbox.scope', %s, true)"
_SET_ALL = "SELECT set_config(name, value, true) FROM unnest(%s::text[], %s::text[]) AS one (name, value)"


def _prepare(owner: str, service: str | None) -> tuple[bytes, str]:
    """Migrate when needed; the secret that signs tenants, and the address of the login that serves."""
    check_address(owner)
    try:
        with faults_explained("check DATABASE_URL and that the server runs"):
            with psycopg.connect(owner, autocommit=True, connect_timeout=10) as connection:
                current = is_current(connection)
            if not current:
                migrate(owner)
            with psycopg.connect(owner, autocommit=True, connect_timeout=10) as connection:
                row = connection.execute("SELECT key FROM signalbox.secret").fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        raise Unavailable(
            "the database",
            "the role in DATABASE_URL did not run `signalbox migrate`; connect as the one that did, or be granted it",
        ) from error
    assert row is not None
    if service is None:
        service = service_address(owner)
        name = conninfo_to_dict(service)["user"]
        mend = f"let {name} in (pg_hba.conf), or set SERVICE_URL to a login of your own IN ROLE {SERVICE_ROLE}"
    else:
        check_address(service)
        mend = "check SERVICE_URL"
    _check_login(service, mend)
    return bytes(row[0]), service


def _check_login(service: str, mend: str) -> None:
    """Refuse a login that row security would not bind or a statement could lead out of it, and tables without it."""
    try:
        with psycopg.connect(service, autocommit=True, connect_timeout=10) as connection:
            row = connection.execute(_LOGIN, (SERVICE_ROLE,)).fetchone()
            unguarded = connection.execute(_UNGUARDED).fetchone()
    except psycopg.OperationalError as error:
        raise Unavailable("the database", f"the service cannot log in: {first_line(error)}; {mend}") from error
    assert row is not None
    name, unbound, member = row
    if unbound or not member:
        why = "is the owner or a superuser, whom row security does not bind" if unbound else "is no member of it"
        raise Unavailable(
            "the database",
            f"SERVICE_URL must be a login IN ROLE {SERVICE_ROLE}, but {name} {why}; leave it unset to have one made",
        )
    if unguarded is not None:
        table = f"signalbox.{unguarded[0]}"
        mend = f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
        raise Unavailable("the database", f"every tenant would see all of {table}, as its row security is off: {mend}")


_LOGIN = """
    SELECT rolname, rolsuper OR rolbypassrls OR pg_has_role(rolname, nspowner, 'MEMBER'),
           pg_has_role(rolname, %s, 'SET')
    FROM pg_roles, pg_namespace WHERE rolname = session_user AND nspname = 'signalbox'
"""
# From the server's own catalogue: a table that somebody adds is among them.
_UNGUARDED = """
    SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'signalbox'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname = 'tenant'
      AND NOT a.attisdropped AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
    ORDER BY 1 LIMIT 1
"""
