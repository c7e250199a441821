"""Ask a PostgreSQL server for its state: primary or standby, which database, and position in its write-ahead log."""

from typing import NamedTuple

import psycopg
from psycopg import AsyncConnection

from retrievers.core.errors import Unavailable
from retrievers.core.timeouts import wait_within
from retrievers.postgres.connections.pool import LOGIN_RIGHTS, Row
from retrievers.postgres.server.errors import SOURCE, first_line
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE

TIMEOUT_S = 1.0
"""Time after which a server that does not answer counts as lost, in seconds."""
_PAGE_BYTES, _PAGE_HEADER, _SEGMENT_HEADER = 8192, 24, 40


class ServerState(NamedTuple):
    """What a server reports about itself.

    Attributes:
        in_recovery: True for a standby, False for a primary.
        system, database: identifier of the cluster, equal for a primary and its standbys, and oid of the database.
        position: the end of a primary's write-ahead log, or the position that a standby has replayed, in bytes from
            the log's start.
        timeline: number of the log's history; each promotion of a standby starts a new one.
        segment: size of a log file in bytes.
    """

    in_recovery: bool
    system: int
    database: int
    position: int
    timeline: int
    segment: int


# A standby of another primary is on a timeline that our primary does not have. Each of the three sources of a standby's
# timeline may be out of date, so the greatest number counts.
_STATE = """
    SELECT r.in_recovery, (SELECT system_identifier FROM pg_control_system()),
           (SELECT oid::bigint FROM pg_database WHERE datname = current_database()),
           ((CASE WHEN r.in_recovery THEN coalesce(pg_last_wal_replay_lsn(), '0/0')
                  ELSE pg_current_wal_insert_lsn() END) - '0/0'::pg_lsn)::bigint,
           CASE WHEN r.in_recovery
                THEN greatest((SELECT timeline_id FROM pg_control_checkpoint()),
                              (SELECT min_recovery_end_timeline FROM pg_control_recovery()),
                              (SELECT received_tli FROM pg_stat_wal_receiver))
                ELSE ('x' || substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8))::bit(32)::integer END,
           pg_size_bytes(current_setting('wal_segment_size'))
    FROM (SELECT pg_is_in_recovery() AS in_recovery) r
"""


class ServerProbe:
    """Asks one server for its state, over a connection that is used for nothing else."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._connection: AsyncConnection[Row] | None = None

    async def ask(self) -> ServerState:
        """Return the server's state.

        Raises:
            LateAnswer: the server did not answer within `TIMEOUT_S`.
            UnboundLogin: row security does not protect the data from this login.
            Unavailable: the server cannot be asked; the error's `reason` says why.
        """
        try:
            return await wait_within(self._ask(), TIMEOUT_S)
        except TimeoutError:
            raise LateAnswer(SOURCE, f"no answer within {TIMEOUT_S:g} s") from None
        except (psycopg.Error, OSError) as error:
            raise Unavailable(SOURCE, first_line(error)) from error

    async def _ask(self) -> ServerState:
        connection, self._connection = self._connection, None
        try:
            if connection is None:
                connection = await AsyncConnection.connect(
                    self._address, autocommit=True, prepare_threshold=None, connect_timeout=10
                )
                await _check_login(connection)
            row = await (await connection.execute(_STATE)).fetchone()
        except BaseException:
            if connection is not None:
                await connection.close()
            raise
        assert row is not None
        self._connection = connection
        state = ServerState(*row)
        return state if state.in_recovery else state._replace(position=_settled(state.position, state.segment))

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            await self._connection.close()


class LateAnswer(Unavailable):
    """The server did not answer in time. The cause may be that this process was too busy to read the answer."""


class UnboundLogin(Unavailable):
    """The login is not a member of the service's role, or row security does not restrict what it reads."""


async def _check_login(connection: AsyncConnection[Row]) -> None:
    row = await (await connection.execute(LOGIN_RIGHTS, (SERVICE_ROLE,))).fetchone()
    if row is None or row[1] or not row[2]:
        name = row[0] if row else connection.info.user
        raise UnboundLogin(SOURCE, f"{name} is not a login IN ROLE {SERVICE_ROLE} that row security restricts")


def _settled(position: int, segment: int) -> int:
    """Return where the last record of a primary's log ends, given where the next record will start.

    At the start of a page or a log file, a header lies between the two positions. A standby reports the position before
    the header, so the two servers could not be compared otherwise.

    Args:
        position: where the next record will start, in bytes.
        segment: size of a log file in bytes.
    """
    if position % segment == _SEGMENT_HEADER:
        return position - _SEGMENT_HEADER
    if position % _PAGE_BYTES == _PAGE_HEADER:
        return position - _PAGE_HEADER
    return position
