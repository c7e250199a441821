"""Build and drop vector indexes without blocking writers, and find indexes that are missing or invalid.

PostgreSQL builds an index concurrently only outside a transaction and for the table's owner, so these functions connect
as the owner, for schema changes only.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from typing import LiteralString

import psycopg
from psycopg import AsyncConnection, sql

from retrievers.core.errors import EmbedderMismatch, Unavailable
from retrievers.postgres.connections.database import Database, Row
from retrievers.postgres.server.errors import convert_server_errors

_LOCK = 7_306_521_445
"""First digits of the advisory lock for building or dropping an embedder's index; its number has the last five."""
_LOOK_EVERY_S = 0.2
_LOCK_TIMEOUT = "60s"
"""How long a build waits for open transactions: PostgreSQL builds an index only after all earlier ones have ended."""


async def ensure_vector_index(database: Database, name: str, dimension: int) -> int:
    """Register an embedder if it is new, build its vector index if there is none, and return the embedder's number.

    Args:
        name, dimension: name of the embedder, and length of its vectors.
    Raises:
        EmbedderMismatch: the embedder was registered with vectors of another length.
        Unavailable: the database cannot be reached, or a transaction stays open for too long.
    """
    async with _owner(database) as connection:
        await connection.execute(
            "INSERT INTO signalbox.embedder (name, dimension) VALUES (%s, %s) ON CONFLICT DO NOTHING", (name, dimension)
        )
        number, known = await _row(connection, "SELECT number, dimension FROM signalbox.embedder WHERE name = %s", name)
        if known != dimension:
            raise EmbedderMismatch(
                f"the embedder {name} had vectors of length {known} and now has {dimension}: give the new model "
                "another name, or remove the collections that were made with the old one",
                where="embedder",
            )
        await build_vector_index(connection, number, dimension)
    return int(number)


async def build_vector_index(connection: AsyncConnection[Row], number: int, dimension: int) -> None:
    """Build the index for the vectors of the embedder with this number, unless a valid index exists."""
    index = sql.Identifier("signalbox", f"chunk_embedding_{number}")
    async with _alone(connection, number):
        state = "SELECT (SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(%s))"
        whole = (await _row(connection, state, f"signalbox.chunk_embedding_{number}"))[0]
        if whole:
            return
        if whole is False:  # an earlier build was killed
            await connection.execute(sql.SQL("DROP INDEX CONCURRENTLY {}").format(index))
        # The same definition as in `signalbox.register_embedder`.
        await connection.execute(
            sql.SQL(
                "CREATE INDEX CONCURRENTLY {} ON signalbox.chunk"
                " USING hnsw ((embedding::halfvec({})) halfvec_ip_ops) WITH (m = 24, ef_construction = 128)"
                " WHERE embedder = {}"
            ).format(sql.Identifier(f"chunk_embedding_{number}"), sql.Literal(dimension), sql.Literal(number))
        )


async def drop_unused_embedder(database: Database, number: int) -> bool:
    """Delete the embedder with this number and its index, unless a collection uses the embedder.

    Returns:
        Whether the embedder was deleted.
    """
    async with _owner(database) as connection, _alone(connection, number):
        try:
            await connection.execute("DELETE FROM signalbox.embedder WHERE number = %s", (number,))
        except psycopg.errors.ForeignKeyViolation:
            return False
        name = sql.Identifier("signalbox", f"chunk_embedding_{number}")
        await connection.execute(sql.SQL("DROP INDEX CONCURRENTLY IF EXISTS {}").format(name))
    return True


async def faulty_indexes(database: Database) -> list[str]:
    """Return the names of the schema's indexes that are missing, or that are invalid and not being built now."""
    async with _owner(database) as connection:
        return [row[0] for row in await (await connection.execute(_FAULTY, (list(_shipped()),))).fetchall()]


async def repair_index(database: Database, name: str) -> None:
    """Rebuild an index that `faulty_indexes` returned, without blocking readers and writers."""
    async with _owner(database) as connection:
        vectors = await (await connection.execute(_EMBEDDER_OF, (name,))).fetchone()
        if vectors is not None:
            await build_vector_index(connection, *vectors)
        elif (await _row(connection, "SELECT to_regclass('signalbox.' || quote_ident(%s)) IS NULL", name))[0]:
            statement = _shipped()[name].replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1)
            await connection.execute(statement.encode())
        else:
            # An interrupted REINDEX CONCURRENTLY leaves indexes with these names behind.
            verb = "DROP INDEX" if re.search("_cc(new|old)[0-9]*$", name) else "REINDEX INDEX"
            await connection.execute(sql.SQL(f"{verb} CONCURRENTLY {{}}").format(sql.Identifier("signalbox", name)))


@cache
def _shipped() -> dict[str, str]:
    """Return {index name: CREATE INDEX statement} for the indexes that `schema.sql` creates."""
    schema = files("retrievers.postgres").joinpath("schema.sql").read_text(encoding="utf-8")
    return {found[2]: found[1] for found in re.finditer(r"^(CREATE INDEX (\w+) ON .*);$", schema, re.MULTILINE)}


_EMBEDDER_OF = "SELECT number, dimension FROM signalbox.embedder WHERE 'chunk_embedding_' || number = %s"
_FAULTY = """
    SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = 'signalbox'::regnamespace AND NOT (i.indisvalid AND i.indisready)
      AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.index_relid = i.indexrelid)
    UNION
    SELECT 'chunk_embedding_' || number FROM signalbox.embedder
    WHERE to_regclass('signalbox.chunk_embedding_' || number) IS NULL
    UNION
    SELECT name FROM unnest(%s::text[]) AS name WHERE to_regclass('signalbox.' || quote_ident(name)) IS NULL
    ORDER BY 1
"""


@asynccontextmanager
async def _owner(database: Database) -> AsyncIterator[AsyncConnection[Row]]:
    """Open a connection of the database's owner, with pgvector's types in its search path."""
    with convert_server_errors():
        connection = await AsyncConnection.connect(database.owner, autocommit=True, connect_timeout=10)
        async with connection:
            where = "SELECT extnamespace::regnamespace::text FROM pg_extension WHERE extname = 'vector' AND %s"
            schema = (await _row(connection, where, True))[0]
            path = sql.SQL("SET search_path = signalbox, {}, pg_temp").format(sql.SQL(schema))
            await connection.execute(path)
            await connection.execute(f"SET lock_timeout = '{_LOCK_TIMEOUT}'")
            await connection.execute("SET statement_timeout = 0")
            try:
                yield connection
            except psycopg.errors.LockNotAvailable as error:
                reason = f"an index could not be built: a transaction has been open for {_LOCK_TIMEOUT}"
                raise Unavailable("the database", reason) from error


@asynccontextmanager
async def _alone(connection: AsyncConnection[Row], number: int) -> AsyncIterator[None]:
    """Hold the lock on an embedder's index during the block.

    Asks for the lock again and again: a session that waited for it inside a statement would block the holder of the
    lock, whose build waits for running statements to end.
    """
    while not (await _row(connection, "SELECT pg_try_advisory_lock(%s)", _LOCK * 100_000 + number))[0]:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_EVERY_S)
    try:
        yield
    finally:
        if not connection.broken:
            await connection.execute("SELECT pg_advisory_unlock(%s)", (_LOCK * 100_000 + number,))


async def _row(connection: AsyncConnection[Row], statement: LiteralString, value: object) -> Row:
    row = await (await connection.execute(statement, (value,))).fetchone()
    assert row is not None
    return row
