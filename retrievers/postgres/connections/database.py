"""Run the service's statements over its database connections, each restricted to a signed tenant.

The service runs every statement as the role `signalbox_app`, which row security restricts, in a transaction whose
settings contain the signed tenant. The SQL functions of the searches take the signed tenant as an argument instead,
which saves the transaction.
"""

import asyncio
import hashlib
import hmac
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, LiteralString, Self

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from retrievers.core.errors import Unavailable
from retrievers.core.principals import check_principals, check_tenant
from retrievers.core.types import Viewer
from retrievers.postgres.connections.pool import (
    LOGIN_RIGHTS,
    ConnectionPool,
    PoolUsage,
    autocommit_work,
    transaction_work,
)
from retrievers.postgres.connections.pool import Row as Row
from retrievers.postgres.connections.read_routing import ReadRouter
from retrievers.postgres.connections.standbys import StandbyMonitor
from retrievers.postgres.server.errors import convert_server_errors, first_line
from retrievers.postgres.server.schema_migrations import (
    SERVICE_ROLE,
    check_conninfo,
    is_schema_current,
    migrate,
    refuse_pooler,
    service_conninfo,
)


class Database:
    """A database: its primary and its optional read standbys, open between `async with`.

    Args:
        owner: connection string of the role that migrates the schema and may read the signing secret.
        service: connection string of the service's login, a member of `signalbox_app` that is neither the owner nor a
            superuser; None for a login that is created if needed, at the owner's address.
        size: maximum number of connections to each server.
        standbys: connection strings of standbys for the reads of questions. Parts that they lack, such as user and
            password, are taken from `service`.
        max_lag_s: maximum replication lag of a standby that is read, in seconds.
        prepares: see `ConnectionPool`.
    """

    def __init__(
        self,
        owner: str,
        service: str | None = None,
        *,
        size: int = 10,
        standbys: Sequence[str] = (),
        max_lag_s: float = 5.0,
        prepares: bool = False,
    ) -> None:
        self._owner, self._service = owner, service
        self._size, self._prepares = size, prepares
        self._standbys, self._max_lag_s = tuple(standbys), max_lag_s
        self._primary: ConnectionPool | None = None
        self._reads: ReadRouter | None = None
        self._secret = b""

    async def __aenter__(self) -> Self:
        self._secret, service = await asyncio.to_thread(_prepare, self._owner, self._service)
        self._primary = ConnectionPool(service, self._size, prepares=self._prepares)
        watch = None
        if self._standbys:
            watch = StandbyMonitor(self._primary, service, self._standbys, size=self._size, max_lag_s=self._max_lag_s)
        self._reads = ReadRouter(self._primary, watch, self.scope)
        await self._primary.open()
        if watch is not None:
            await watch.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reads is not None:
            await self._reads.close()
        if self._primary is not None:
            await self._primary.close()

    @property
    def primary(self) -> ConnectionPool:
        """The connections to the primary."""
        assert self._primary is not None
        return self._primary

    @property
    def reads(self) -> ReadRouter:
        """Runs the reads of questions: on a standby that is recent enough, otherwise on the primary."""
        assert self._reads is not None
        return self._reads

    @property
    def owner(self) -> str:
        """The owner's connection string; it may hold a password."""
        return self._owner

    def usage(self) -> PoolUsage:
        """Return how many connections to the primary are in use, idle, allowed and waited for."""
        return self.primary.usage()

    def scope(self, who: str | Viewer) -> str:
        """Return the tenant and its principals with the signature that the database verifies.

        Args:
            who: a viewer, or a tenant's name; a name alone sees only documents without readers.
        Raises:
            BadRequest: the tenant or a principal is malformed.
        """
        tenant, principals = Viewer.of(who)
        check_tenant(tenant)
        return self._signed("\n".join((tenant, *check_principals(principals, everything=True))))

    def worker_scope(self) -> str:
        """Return the signed scope that the SQL functions for workers require.

        It cannot equal the scope of a tenant: it begins with a newline, which no tenant's name contains.
        """
        return self._signed("\nworker")

    def _signed(self, name: str) -> str:
        return hashlib.sha256(self._secret + name.encode() + self._secret).hexdigest() + ":" + name

    def sign_text(self, text: str) -> str:
        """Return an HMAC-SHA256 of the text under this database's secret, as 64 hexadecimal digits."""
        return hmac.digest(self._secret, text.encode(), "sha256").hex()

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection[Row]]:
        """Lend a connection without a tenant for the block. It can only call the SQL functions of the searches."""
        async with self.primary.connection() as connection:
            yield connection

    def retire(self, connection: AsyncConnection[Row], carried_bytes: int) -> None:
        """Close a connection after its use if more than 1 MiB went through it; see `ConnectionPool.retire`."""
        self.primary.retire(connection, carried_bytes)

    @asynccontextmanager
    async def transaction(self, who: str | Viewer, *, frozen: bool = False) -> AsyncIterator[AsyncConnection[Row]]:
        """Open a transaction that reads within the viewer's scope and writes for the tenant.

        Args:
            frozen: read-only, and all statements see the same snapshot of the data.
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
        prepare: bool = False,
    ) -> list[Row]:
        """Return the rows of one statement in the viewer's scope, sent in one round trip with its settings.

        Args:
            statement: a statement that returns rows; a write needs RETURNING.
            parameters: PostgreSQL settings for this transaction only.
            prepare: see `pool.transaction_work`.
        """
        with convert_server_errors():
            return await self.primary.run(
                transaction_work(self.scope(who), statement, values, parameters, prepare=prepare)
            )

    async def fetch_autocommit(self, statement: LiteralString, values: dict[str, Any]) -> list[Row]:
        """Return the rows of one statement without a transaction. `values` must contain the signed scope."""
        with convert_server_errors():
            return await self.primary.run(autocommit_work(statement, values))


_ENTER = "SELECT set_config('role', %s, true), set_config('signalbox.scope', %s, true)"


def _prepare(owner: str, service: str | None) -> tuple[bytes, str]:
    """Migrate the schema if needed.

    Args:
        owner, service: connection strings, as in `Database`.
    Returns:
        The secret that signs tenants, and the connection string of the service's login.
    """
    check_conninfo(owner)
    try:
        with convert_server_errors("check DATABASE_URL and that the server runs"):
            with psycopg.connect(owner, autocommit=True, connect_timeout=10) as connection:
                refuse_pooler(connection, owner)
                current = is_schema_current(connection)
            if not current:
                migrate(owner)
            with psycopg.connect(owner, autocommit=True, connect_timeout=10) as connection:
                row = connection.execute("SELECT key FROM signalbox.secret").fetchone()
    except psycopg.errors.InsufficientPrivilege as error:
        raise Unavailable(
            "the database",
            "the role in DATABASE_URL did not run `signalbox migrate`: use the role that did, or grant it to this one",
        ) from error
    assert row is not None
    if service is None:
        service = service_conninfo(owner)
        name = conninfo_to_dict(service)["user"]
        mend = f"allow {name} in pg_hba.conf, or set SERVICE_URL to your own login IN ROLE {SERVICE_ROLE}"
    else:
        check_conninfo(service)
        mend = "check SERVICE_URL"
    _check_login(service, mend)
    return bytes(row[0]), service


def _check_login(service: str, mend: str) -> None:
    """Raise Unavailable if the login or a table would make row security ineffective.

    The login must be a member of the service's role that is neither the owner nor a superuser, and every table with a
    column `tenant` must have row security.

    Args:
        service: connection string of the login.
        mend: advice for the error if the login fails.
    """
    try:
        with psycopg.connect(service, autocommit=True, connect_timeout=10) as connection:
            row = connection.execute(LOGIN_RIGHTS, (SERVICE_ROLE,)).fetchone()
            unguarded = connection.execute(_UNGUARDED).fetchone()
    except psycopg.OperationalError as error:
        raise Unavailable("the database", f"the service cannot log in: {first_line(error)}; {mend}") from error
    assert row is not None
    name, unbound, member = row
    if unbound or not member:
        why = (
            "is the owner or a superuser, which row security does not restrict" if unbound else "is not a member of it"
        )
        raise Unavailable(
            "the database",
            f"SERVICE_URL must be a login IN ROLE {SERVICE_ROLE}, but {name} {why}; if it is unset, a login is created",
        )
    if unguarded is not None:
        table = f"signalbox.{unguarded[0]}"
        mend = f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY"
        raise Unavailable(
            "the database", f"row security of {table} is off, so every tenant would see all of it: {mend}"
        )


# Read from the server's catalogue, so that tables that signalbox did not create are checked, too.
_UNGUARDED = """
    SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
    WHERE c.relnamespace = 'signalbox'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname = 'tenant'
      AND NOT a.attisdropped AND NOT (c.relrowsecurity AND c.relforcerowsecurity)
    ORDER BY 1 LIMIT 1
"""
