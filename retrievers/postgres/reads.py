"""Where a statement of a question is read: the one place that chooses between a primary and its standbys."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, LiteralString

import psycopg

from retrievers.core.errors import Unavailable
from retrievers.core.types import PLATFORM, Viewer
from retrievers.postgres.faults import faults_explained, is_of_server
from retrievers.postgres.pool import Connections, Returned, Row, Work, fetching, searching
from retrievers.postgres.standbys import Standby, Standing, Watch


class Reads:
    """Reads on a standby that is fresh enough and holds what this process wrote for the tenant, else on the primary.

    A server that is lost meanwhile is left at once, and the statement runs on the next; nothing is written here.

    Args:
        watch: knows the standbys; None where there are none.
        sign: `Database.scope`.
    """

    def __init__(self, primary: Connections, watch: Watch | None, sign: Callable[[str | Viewer], str]) -> None:
        self._primary, self._watch, self._sign = primary, watch, sign

    @property
    def spread(self) -> bool:
        """Whether there are standbys, so that two statements may see two states."""
        return self._watch is not None

    def scope(self, who: str | Viewer) -> str:
        """See `Database.scope`."""
        return self._sign(who)

    def wrote(self, tenant: str) -> None:
        """From now on the tenant's questions see all that is committed by now, whatever standbys still lack."""
        if self._watch is not None:
            self._watch.wrote(tenant)

    def settled(self, version: Hashable) -> bool:
        """Whether what is read of a version of something is of that version, and not of one before that some standby
        still has: true once the version has been known for as long as a standby may be behind."""
        return self._watch is None or self._watch.settled(version)

    def standbys(self) -> list[Standing]:
        """Every standby, and why it is not read where it is not."""
        return self._watch.report() if self._watch is not None else []

    async def close(self) -> None:
        """Let go of the standbys."""
        if self._watch is not None:
            await self._watch.close()

    async def fetch(
        self,
        who: str | Viewer,
        statement: LiteralString,
        values: Mapping[str, Any] | Sequence[Any],
        *,
        current: bool = False,
    ) -> list[Row]:
        """Rows of one statement within the viewer's scope.

        Args:
            current: as of now, not of a moment ago: from the primary, while it answers.
        """
        with faults_explained():
            return await self.run(who, fetching(self._sign(who), statement, values), current=current)

    async def search(
        self, who: str | Viewer | None, statement: LiteralString, values: Mapping[str, Any], *, current: bool = False
    ) -> list[Row]:
        """Rows of one statement without a transaction, which takes the viewer's scope as the value `scope`.

        Args:
            who: None where the statement asks for no scope.
            current: as of `fetch`.
        """
        scope = {"scope": self._sign(who)} if who is not None else {}
        with faults_explained():
            return await self.run(who, searching(statement, {**scope, **values}), current=current)

    async def run(self, who: str | Viewer | None, work: Work[Returned], *, current: bool = False) -> Returned:
        """What the work, which only reads, returns on the first server that can tell.

        Raises:
            psycopg.Error: of the work as it is.
            Unavailable: no server can be asked.
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
                assert isinstance(server, Standby)  # nothing else is asked whether it is one
                self._watch.lose(server, "promoted", "it is no standby any more: it was promoted")
            except psycopg.Error as error:
                if not is_of_server(error):
                    raise
                # What the primary says is what a caller can do something about.
                problem = error if problem is None or server is self._primary else problem
            except Unavailable as error:
                problem = error if problem is None or server is self._primary else problem
        assert problem is not None
        raise problem

    def _order(self, watch: Watch, who: str | Viewer | None, current: bool) -> list[Standby | Connections]:
        """The servers to ask, the best first."""
        tenants = (Viewer.of(who).tenant, PLATFORM) if who is not None else ()
        holding, behind = watch.fit(tenants)
        if self._primary.lost is not None:
            return [*holding, *behind, self._primary]
        return [self._primary, *holding, *behind] if current else [*holding, self._primary, *behind]


class _Promoted(Exception):
    """The server that was read is no standby any more: others may have written to it what the primary never had."""


def _on_standby(work: Work[Returned]) -> Work[Returned]:
    """The work, whose result counts if the server is a standby after it: so it was one all the time."""

    async def checked(connection: psycopg.AsyncConnection[Row]) -> Returned:
        result = await work(connection)
        row = await (await connection.execute("SELECT pg_is_in_recovery()")).fetchone()
        if row != (True,):
            raise _Promoted
        return result

    return checked
