"""Hybrid search by hand: two SQL statements, HNSW and `ts_rank_cd` of any word, joined by reciprocal rank."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from pgvector import HalfVector
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection, sql
from psycopg_pool import AsyncConnectionPool

PACKAGES = ("psycopg", "pgvector")

_TABLE = sql.SQL("""
    CREATE TABLE passages (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, document text NOT NULL, body text NOT NULL,
        embedding halfvec({dimension}) NOT NULL,
        words tsvector GENERATED ALWAYS AS (to_tsvector({language}::regconfig, body)) STORED
    )
""")
_INSERT = "INSERT INTO passages (document, body, embedding) VALUES (%s, %s, %s)"
_NEAR = "SELECT id, document FROM passages ORDER BY embedding <#> %(vector)b LIMIT %(depth)s"
_WORDED = """
    WITH question AS (
        SELECT replace(plainto_tsquery(%(language)s::regconfig, %(text)s)::text, ' & ', ' | ')::tsquery AS words
    )
    SELECT p.id, p.document FROM passages p, question
    WHERE p.words @@ question.words
    ORDER BY ts_rank_cd(p.words, question.words) DESC, p.id
    LIMIT %(depth)s
"""
_RANK_OFFSET = 60


class _SqlHybridSearcher(NamedTuple):
    pool: Any
    language: str
    depth: int


async def connect(
    *,
    database: Mapping[str, str],
    dimension: int,
    depth: int,
    language: str,
    connections: int,
    options: Mapping[str, Any],
) -> _SqlHybridSearcher:
    """Create the table."""

    async def configure(connection: AsyncConnection[Any]) -> None:
        await register_vector_async(connection)
        await connection.execute("SELECT set_config('hnsw.ef_search', %s, false)", (str(depth),))

    pool = AsyncConnectionPool(
        kwargs={**database, "autocommit": True}, min_size=connections, max_size=connections, open=False,
        configure=configure,
    )  # fmt: skip
    await pool.open(wait=True)
    async with pool.connection() as connection:
        values = {"dimension": sql.Literal(dimension), "language": sql.Literal(language)}
        await connection.execute(_TABLE.format(**values))
    return _SqlHybridSearcher(pool, language, depth)


async def ingest(searcher: _SqlHybridSearcher, batches: Iterable[Any]) -> None:
    """Store all passages, then build both indexes."""
    async with searcher.pool.connection() as connection:
        for batch in batches:
            rows = [(one.document, one.text, HalfVector(one.vector)) for one in batch]
            async with connection.transaction(), connection.cursor() as cursor:
                await cursor.executemany(_INSERT, rows)
        await connection.execute("CREATE INDEX ON passages USING hnsw (embedding halfvec_ip_ops)")
        await connection.execute("CREATE INDEX ON passages USING gin (words)")


async def search(searcher: _SqlHybridSearcher, text: str, vector: list[float], limit: int) -> list[str]:
    """Return the documents of the best passages."""
    near = {"vector": HalfVector(vector), "depth": searcher.depth}
    worded = {"language": searcher.language, "text": text, "depth": searcher.depth}
    scores: dict[tuple[int, str], float] = {}
    async with searcher.pool.connection() as connection:
        for statement, values in ((_NEAR, near), (_WORDED, worded)):
            cursor = await connection.execute(statement, values)
            for rank, row in enumerate(await cursor.fetchall(), 1):
                scores[row] = scores.get(row, 0.0) + 1 / (_RANK_OFFSET + rank)
    best = sorted(scores, key=lambda row: (-scores[row], row))
    return [document for _, document in best[:limit]]


async def close(searcher: _SqlHybridSearcher) -> None:
    """Close the connections."""
    await searcher.pool.close()
