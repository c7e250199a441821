"""Read rows from other databases: PostgreSQL by psycopg, any other by SQLAlchemy if it is installed."""

import importlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.optional_dependencies import install_command
from retrievers.ingest.readers.text_cleaning import one_line

Rows = Iterator[Mapping[str, Any]]
_AT_ONCE = 100
_CONNECT_S = 10
_CANCEL_S = 2.0
_FETCH_S = 600.0
"""Seconds until the first rows of a statement, and for each of the next batches of rows."""
MOST_ROW_BYTES = 8 << 20
"""Maximum size of a row in the text form of PostgreSQL; a batch of rows is in memory at once."""
_SIZED_ROWS = """
    SELECT signalbox_small.*, signalbox_measured.signalbox_row_bytes AS {size}
    FROM (
        {statement}
    ) AS signalbox_whole
    CROSS JOIN LATERAL (SELECT octet_length(signalbox_whole::text) AS signalbox_row_bytes) AS signalbox_measured
    LEFT JOIN LATERAL (SELECT signalbox_whole.*) AS signalbox_small ON signalbox_measured.signalbox_row_bytes <= {most}
"""
"""All columns of the rows of a statement, NULL in rows that are too large, and the size of each row."""
_SIZE = "signalbox_size"
_POSTGRES_PORT = "5432"
_POSTGRES = ("postgresql", "postgres")


def redacted_url(url: str) -> str:
    """Return the address of a database without user, password and options.

    Raises:
        BadRequest: the text is not a valid address.
    """
    try:
        scheme = urlsplit(url).scheme
        if scheme in _POSTGRES:
            parts = conninfo_to_dict(url)
            port = f":{parts['port']}" if str(parts.get("port") or _POSTGRES_PORT) != _POSTGRES_PORT else ""
            return f"postgresql://{str(parts.get('host') or '').lower()}{port}/{parts.get('dbname') or ''}"
        split = urlsplit(url)
        port = f":{split.port}" if split.port else ""
        return f"{scheme}://{split.hostname or ''}{port}{split.path}"
    except (ValueError, psycopg.Error):
        # The original message would quote the address, which may contain a password.
        raise BadRequest(
            "the address of the database cannot be parsed; percent-encode % : @ / in the password", where="source"
        ) from None


@contextmanager
def query_rows(url: str, database_name: str, statement: str) -> Iterator[Rows]:
    """Run one SELECT in a context; its value is an iterator over the rows, each a dict by column name.

    PostgreSQL runs it in a read-only transaction that sees one state of the database.

    Args:
        database_name: name of the database in error messages.
    Raises:
        BadRequest: the database refuses the statement, or a row of PostgreSQL is larger than `MOST_ROW_BYTES`.
        Unavailable: the database cannot be reached, its driver is not installed, or PostgreSQL sends no rows for
            `_FETCH_S` seconds.
    """
    rows = _by_psycopg if urlsplit(url).scheme in _POSTGRES else _by_sqlalchemy
    with rows(url, database_name, statement) as found:
        yield found


@contextmanager
def _by_psycopg(url: str, database_name: str, statement: str) -> Iterator[Rows]:
    try:
        with psycopg.connect(url, connect_timeout=_CONNECT_S, row_factory=dict_row) as connection:
            connection.read_only = True
            connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            with connection.cursor("signalbox_sync") as cursor:
                sized = _SIZED_ROWS.format(statement=statement.rstrip("; \n"), size=_SIZE, most=MOST_ROW_BYTES)
                with _time_limit(connection, database_name):
                    cursor.execute(sized.encode())
                yield _fetched(cursor, database_name)
    except psycopg.OperationalError as error:
        raise Unavailable(database_name, _error_text(error)) from None
    except psycopg.Error as error:
        raise BadRequest(f"{database_name} refuses the query: {_error_text(error)}", where="source") from None


def _fetched(cursor: psycopg.ServerCursor[dict[str, Any]], database_name: str) -> Rows:
    while True:
        with _time_limit(cursor.connection, database_name):
            rows = cursor.fetchmany(_AT_ONCE)
        if not rows:
            return
        for row in rows:
            if (size := row.pop(_SIZE)) > MOST_ROW_BYTES:
                limit = f"at most {MOST_ROW_BYTES >> 20} MiB are possible"
                raise BadRequest(
                    f"{database_name} has a row of {size:,} bytes; {limit}: select its columns with --query",
                    where="source",
                )
            yield row


@contextmanager
def _time_limit(connection: psycopg.Connection[Any], database_name: str) -> Iterator[None]:
    """Cut the connection if the block takes longer than `_FETCH_S` seconds, even if the server does not answer at all.

    Raises:
        Unavailable: the connection was cut.
    """
    is_late = threading.Event()

    def cut() -> None:
        is_late.set()
        with suppress(psycopg.Error):
            connection.cancel_safe(timeout=_CANCEL_S)  # otherwise a slow statement would go on
        # The descriptor is copied, because closing the socket object must leave that of the connection open.
        with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)

    timer = threading.Timer(_FETCH_S, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except psycopg.OperationalError:
        if is_late.is_set():
            raise Unavailable(database_name, f"it sent no rows within {_FETCH_S:g} s") from None
        raise
    finally:
        timer.cancel()


@contextmanager
def _by_sqlalchemy(url: str, database_name: str, statement: str) -> Iterator[Rows]:
    try:
        sqlalchemy = importlib.import_module("sqlalchemy")
    except ImportError as error:
        raise Unavailable(database_name, f"SQLAlchemy is missing: {install_command('sql')}") from error
    try:
        engine = sqlalchemy.create_engine(url)
    except (sqlalchemy.exc.ArgumentError, ImportError) as error:
        reason = str(error) if isinstance(error, ImportError) else "its address is invalid, or its kind is unknown"
        raise Unavailable(database_name, one_line(reason, 200)) from None
    try:
        with engine.connect() as connection:
            streaming = connection.execution_options(stream_results=True, yield_per=_AT_ONCE)
            yield iter(streaming.execute(sqlalchemy.text(statement.replace(":", "\\:"))).mappings())
            connection.rollback()
    except sqlalchemy.exc.OperationalError as error:
        raise Unavailable(database_name, _error_text(error.orig or error)) from None
    except sqlalchemy.exc.SQLAlchemyError as error:
        raise BadRequest(
            f"{database_name} refuses the query: {_error_text(getattr(error, 'orig', None) or error)}", where="source"
        ) from None
    finally:
        engine.dispose()


def _error_text(error: BaseException) -> str:
    return one_line(str(error).strip().partition("\n")[0] or type(error).__name__, 200)
