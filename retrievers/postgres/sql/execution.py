"""Run a statement over the view `documents`. This is the second barrier, behind the guard.

Whatever the statement contains, it runs as `signalbox_sql`, which may only read documents, under row policies with the
signed scope, in a read-only transaction that ends after 3 s and is rolled back. It is a subquery of a statement written
here, which is sent by the extended protocol, because that accepts a single statement only.

A remaining risk: a statement that calls set_config() could switch back to the service's role. It would find no other
rows of documents (they are bound to the signed scope), but it could see and end other statements of the service's
login. The embedded server does not let `signalbox_sql` call set_config() (`EmbeddedServer.secure`). In a user's own
database we cannot revoke everybody's rights, so only the guard prevents such calls.
"""

import math
import re
import struct
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import psycopg
from psycopg import AsyncConnection, AsyncRawCursor
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format, TransactionStatus

from retrievers.core.errors import BadRequest, TooCostly, Unavailable
from retrievers.core.types import ResultTable, Scope
from retrievers.postgres.connections.database import Database, Row
from retrievers.postgres.guard.guard import MAX_ROWS
from retrievers.postgres.server.schema_migrations import SQL_ROLE
from retrievers.postgres.sql.view import DocumentsView, short_name, with_short_names

SOURCE = "sql"
TIMEOUT_S = 3.0
MAX_ROW_BYTES = 1_000_000
MAX_BYTES = 8_000_000
MAX_DIGITS = 300

_SETTINGS: Mapping[str, str] = {
    "role": SQL_ROLE,
    "transaction_read_only": "on",
    "search_path": "pg_catalog",
    "timezone": "UTC",
    "datestyle": "ISO, YMD",
    "standard_conforming_strings": "on",
    "work_mem": "16MB",
    "hash_mem_multiplier": "1",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "lock_timeout": "1000",
}
_TOO_COSTLY = (
    psycopg.errors.OutOfMemory,
    psycopg.errors.DiskFull,
    psycopg.errors.LockNotAvailable,
    psycopg.errors.ConfigurationLimitExceeded,
)
_TOO_LARGE = "a row of the result is too large: "


async def run_statement(
    database: Database, scope: Scope, view: DocumentsView, statement: str, *, timeout_s: float = TIMEOUT_S
) -> ResultTable:
    """Run a statement that the guard has accepted and return its rows.

    Args:
        view: the view `documents` of this scope.
        statement: one SELECT over `documents`, without a semicolon.
    Returns:
        At most 1,000 rows of JSON values; dates and times as ISO 8601 text.
    Raises:
        BadRequest: PostgreSQL refuses the statement, or the result is too large.
        TooCostly: no result in time, or the statement needs too much memory or disk.
        Unavailable: the database cannot be reached.
    """
    values = [
        sorted({one.tenant for one in scope.collections}),
        [one.number for one in scope.collections],
        scope.tenant,
    ]
    written, named = with_short_names(statement)
    full = {short: name for name in (*view.columns, *named) if (short := short_name(name)) != name}
    settings = {
        **_SETTINGS,
        "signalbox.scope": database.scope(scope.viewer),
        "statement_timeout": f"{timeout_s * 1000:.0f}",
    }

    async def answer(connection: AsyncConnection[Row]) -> ResultTable:
        rows: list[Row] = []
        size = 0
        async with _entered(connection, settings), AsyncRawCursor(connection) as cursor:
            cursor.adapters.register_loader("interval", _IntervalLoader)
            async for row in cursor.stream(_wrapped(view.body(named), written), values, binary=True):
                rows.append(tuple(to_json_value(value) for value in row))
                size += sum(len(str(value)) for value in rows[-1])
                if size > MAX_BYTES:
                    raise BadRequest("the result of the statement is too large", where="statement")
            columns = tuple(full.get(column.name, column.name) for column in cursor.description or ())
        return ResultTable(columns, tuple(rows), statement)

    try:
        return await database.reads.run(scope.viewer, answer)
    except psycopg.Error as error:
        raise _explained(error, timeout_s, full) from error


def _wrapped(view: str, statement: str) -> bytes:
    # NOT MATERIALIZED, so that only the used columns are computed.
    return f"""
WITH documents AS NOT MATERIALIZED (
    {view})
SELECT answer.* FROM (
{statement}
) AS answer
WHERE CASE WHEN pg_column_size(answer) > {MAX_ROW_BYTES}
      THEN ('{_TOO_LARGE}' || pg_column_size(answer) || ' bytes')::boolean ELSE true END
LIMIT {MAX_ROWS}""".encode()  # noqa: S608


@asynccontextmanager
async def _entered(connection: AsyncConnection[Row], settings: Mapping[str, str]) -> AsyncIterator[None]:
    """Open a transaction with these settings, in which only documents visible to the viewer can be read.

    It is always rolled back.
    """
    enter = "SELECT " + ", ".join("set_config(%s, %s, true)" for _ in settings)
    async with connection.transaction(force_rollback=True):
        await connection.execute(enter.encode(), [part for item in settings.items() for part in item])
        try:
            async with connection.transaction(force_rollback=True):
                yield
        finally:
            # Advisory locks of a session outlive a rollback. The guard accepts no statement that takes one; this is a
            # precaution against its errors. It runs inside the transaction, because behind a pooler the next statement
            # may run in another session.
            if connection.pgconn.transaction_status == TransactionStatus.INTRANS:
                await connection.execute("SELECT pg_advisory_unlock_all()")


def _explained(error: psycopg.Error, timeout_s: float, full: Mapping[str, str]) -> Exception:
    message = str(error).strip().splitlines()[0][:300] if str(error).strip() else type(error).__name__
    for short, name in full.items():
        message = message.replace(short, name)
    if isinstance(error, psycopg.errors.QueryCanceled):
        return TooCostly(SOURCE, f"the statement took longer than {timeout_s:g} s")
    if _TOO_LARGE in message:
        return BadRequest("the result of the statement is too large", where="statement")
    if isinstance(error, _TOO_COSTLY):
        return TooCostly(SOURCE, f"the statement needs too many resources: {message}")
    if error.sqlstate is None or error.sqlstate[:2] in ("08", "53", "57", "58", "XX"):
        return Unavailable(SOURCE, message)
    return BadRequest(f"PostgreSQL refuses the statement: {_unwrapped(message)}", where="statement")


def _unwrapped(message: str) -> str:
    """Return the server's error message without the position, which counts in the statement of `_wrapped`."""
    return re.sub(r"\s+LINE \d+:.*", "", message)


def to_json_value(value: Any) -> Any:
    """Convert a PostgreSQL value to a JSON value."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, Decimal):
        return _number(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(Decimal(value))
    if isinstance(value, datetime):
        moment = value.replace(tzinfo=None)
        return moment.date().isoformat() if moment.time() == time() else moment.isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): to_json_value(one) for key, one in value.items()}
    if isinstance(value, bytes | bytearray | memoryview):
        # Text of unknown type inside a row.
        return bytes(value).decode(errors="replace")
    return [to_json_value(one) for one in value] if isinstance(value, Sequence) else str(value)


def _number(value: Decimal) -> int | float | str:
    if not value.is_finite():
        return str(value)
    if value.adjusted() > MAX_DIGITS:  # more digits than a JSON reader accepts
        return f"{value:.15E}"
    return int(value) if int(value.as_tuple().exponent) >= 0 else float(value)


class _IntervalLoader(Loader):
    """Loads an interval as text such as "25 years 5 months 3 days 04:00:00", which keeps months as months."""

    format = Format.BINARY

    def load(self, data: Buffer) -> str:
        """See `Loader.load`."""
        microseconds, days, months = struct.unpack("!qii", data)
        amounts = [(int(months / 12), "year"), (months - int(months / 12) * 12, "month"), (days, "day")]
        parts = [f"{amount} {unit}{'' if abs(amount) == 1 else 's'}" for amount, unit in amounts if amount]
        if microseconds or not parts:
            sign = "-" if microseconds < 0 else ""
            seconds, fraction = divmod(abs(microseconds), 1_000_000)
            clock = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            parts.append(f"{clock}.{fraction:06}".rstrip("0") if fraction else clock)
        return " ".join(parts)
