"""Choose the server for each read of a question: a standby or the primary."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, LiteralString

import psycopg

from retrievers.core.errors import Unavailable
from retrievers.core.types import PLATFORM, Viewer
from retrievers.postgres.connections.pool import ConnectionPool, Returned, Row, Work, autocommit_work, transaction_work
from retrievers.postgres.connections.standbys import Standby, StandbyMonitor, StandbyStatus
from retrievers.postgres.server.errors import convert_server_errors, is_server_error


class ReadRouter:
    """Reads from a standby that is recent enough and has this process's writes for the tenant, else from the primary.

    If a server is lost during a statement, the statement is run again on the next server. So statements must not write.

    Args:
        watch: the state of the standbys; None without standbys.
        sign: returns the signed scope of a viewer, as `Database.scope`.
    """

    def __init__(
        self, primary: ConnectionPool, watch: StandbyMonitor | None, sign: Callable[[str | Viewer], str]
    ) -> None:
        self._primary, self._watch, self._sign = primary, watch, sign

    @property
    def has_standbys(self) -> bool:
        """Whether there are standbys, so that two statements of one question may see different states of the data."""
        return self._watch is not None

    def scope(self, who: str | Viewer) -> str:
        """Return the tenant and its principals with the signature that the database verifies; see `Database.scope`."""
        return self._sign(who)

    def note_write(self, tenant: str) -> None:
        """Make later reads of the tenant skip standbys that lack anything committed before this call."""
        if self._watch is not None:
            self._watch.note_write(tenant)

    def is_settled(self, version: Hashable) -> bool:
        """Return whether every read returns at least this version of some data, so that it may be cached.

        True if there are no standbys, or if this method was first called with the version longer ago than the maximum
        lag of a standby.

        Args:
            version: any key that changes with the data.
        """
        return self._watch is None or self._watch.is_settled(version)

    def standbys(self) -> list[StandbyStatus]:
        """Return the state of every standby, with the reason if it is not read; [] without standbys."""
        return self._watch.statuses() if self._watch is not None else []

    async def close(self) -> None:
        """Close the standbys' connections."""
        if self._watch is not None:
            await self._watch.close()

    async def fetch(
        self,
        who: str | Viewer,
        statement: LiteralString,
        values: Mapping[str, Any] | Sequence[Any],
        *,
        current: bool = False,
        prepare: bool = False,
    ) -> list[Row]:
        """Return the rows of one statement in the viewer's scope.

        Args:
            current: read from the primary while it answers, to see the newest state.
            prepare: see `pool.transaction_work`.
        """
        with convert_server_errors():
            return await self.run(
                who, transaction_work(self._sign(who), statement, values, prepare=prepare), current=current
            )

    async def fetch_autocommit(
        self, who: str | Viewer | None, statement: LiteralString, values: Mapping[str, Any], *, current: bool = False
    ) -> list[Row]:
        """Return the rows of one statement, executed without a transaction.

        Args:
            who: the viewer whose signed scope becomes the parameter `scope`; None if the statement needs no scope.
            current: see `fetch`.
        """
        scope = {"scope": self._sign(who)} if who is not None else {}
        with convert_server_errors():
            return await self.run(who, autocommit_work(statement, {**scope, **values}), current=current)

    async def run(self, who: str | Viewer | None, work: Work[Returned], *, current: bool = False) -> Returned:
        """Return the result of read-only work from the first server that answers.

        Raises:
            psycopg.Error: raised by the work.
            Unavailable: no server answers.
        """
        if self._watch is None:
            return await self._primary.run(work)
        problem: Exception | None = None
        for server in self._order(self._watch, who, current):
            try:
                if isinstance(server, Standby):
                    result = await server.connections.run(_on_standby(work), until_lost=True)
                    server.reads += 1
                    return result
                return await self._primary.run(work, until_lost=True)
            except _Promoted:
                assert isinstance(server, Standby)  # only standbys are checked for promotion
                self._watch.mark_lost(server, "promoted", "it was promoted and is not a standby any more")
            except psycopg.Error as error:
                if not is_server_error(error):
                    raise
                # Prefer the primary's error: it is the one that a caller can act on.
                problem = error if problem is None or server is self._primary else problem
            except Unavailable as error:
                problem = error if problem is None or server is self._primary else problem
        assert problem is not None
        raise problem

    def _order(self, watch: StandbyMonitor, who: str | Viewer | None, current: bool) -> list[Standby | ConnectionPool]:
        """Return the servers to try, the preferred one first.

        Standbys that lack this process's writes for the tenant come last, or just before a primary that is lost.

        Args:
            who: None if the read concerns no tenant.
            current: put the primary first, unless it is lost.
        """
        tenants = (Viewer.of(who).tenant, PLATFORM) if who is not None else ()
        holding, behind = watch.usable_standbys(tenants)
        if self._primary.lost is not None:
            return [*holding, *behind, self._primary]
        return [self._primary, *holding, *behind] if current else [*holding, self._primary, *behind]


class _Promoted(Exception):
    """A standby has become a primary itself: it may have writes that our primary never had."""


def _on_standby(work: Work[Returned]) -> Work[Returned]:
    """Return the work with a check that the server is still a standby afterwards, and so was one during the work."""

    async def checked(connection: psycopg.AsyncConnection[Row]) -> Returned:
        result = await work(connection)
        row = await (await connection.execute("SELECT pg_is_in_recovery()")).fetchone()
        if row != (True,):
            raise _Promoted
        return result

    return checked
