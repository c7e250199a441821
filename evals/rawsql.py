"""Baselines for the bench: hand-written SQL searches over tables that contain only what each search needs."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, LiteralString, cast

import numpy as np
import psycopg
from pgvector import HalfVector
from pgvector.psycopg import register_vector_async
from psycopg import AsyncConnection, sql

from agent.service.service import Service
from evals.corpus import TENANT
from retrievers.core.errors import Unavailable
from retrievers.core.types import Collection, Query, Scope, Viewer
from retrievers.embed import Vectors
from retrievers.fulltext import FullText
from retrievers.postgres.connections.database import Database, Row
from retrievers.postgres.server.schema_migrations import SERVICE_ROLE
from retrievers.text.bm25 import DIMENSIONS

LIMIT = 100
"""Rows of every search, as many as the service asks of each source."""
EF_SEARCH = 100
"""The smallest hnsw.ef_search with which HNSW returns `LIMIT` rows, so that the baseline is as fast as possible."""

# PostgreSQL text search configuration by language; other languages use "simple", without stemming.
_CONFIGURATIONS: Mapping[str, LiteralString] = {
    "en": "english", "de": "german", "fr": "french", "es": "spanish",
    "it": "italian", "pt": "portuguese", "nl": "dutch", "sv": "swedish",
}  # fmt: skip

_DROP = "DROP SCHEMA IF EXISTS signalbox_bench CASCADE"
_TABLES = sql.SQL("""
    CREATE SCHEMA signalbox_bench;
    CREATE TABLE signalbox_bench.vectors (id bigint PRIMARY KEY, embedding halfvec({dimension}) NOT NULL);
    CREATE TABLE signalbox_bench.texts (id bigint PRIMARY KEY, body text NOT NULL, words tsvector NOT NULL);
    CREATE TABLE signalbox_bench.terms (
        id bigint PRIMARY KEY, bm25 sparsevec({terms}) NOT NULL, lexemes tsvector NOT NULL
    );
    ALTER TABLE signalbox_bench.terms
        ALTER COLUMN bm25 SET STORAGE MAIN, ALTER COLUMN lexemes SET STORAGE EXTERNAL;
    GRANT USAGE ON SCHEMA signalbox_bench TO {role};
    GRANT INSERT ON ALL TABLES IN SCHEMA signalbox_bench TO {role};
""")
# These run as the service's role within the tenant, because row security may bind the owner, too.
_FILL: tuple[LiteralString, ...] = (
    """
    INSERT INTO signalbox_bench.vectors
    SELECT row_number() OVER (ORDER BY document_id, ordinal), embedding FROM signalbox.chunk
    WHERE tenant = %(tenant)s AND collection = %(collection)s
    """,
    """
    INSERT INTO signalbox_bench.texts
    SELECT row_number() OVER (ORDER BY c.document_id, c.ordinal), c.body,
           to_tsvector(%(configuration)s::regconfig, d.title || E'\\n' || c.heading || E'\\n' || c.body)
    FROM signalbox.chunk c
    JOIN signalbox.document d ON d.tenant = c.tenant AND d.collection = c.collection AND d.id = c.document_id
    WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s
    """,
    """
    INSERT INTO signalbox_bench.terms
    SELECT row_number() OVER (ORDER BY document_id, ordinal), bm25, lexemes FROM signalbox.chunk
    WHERE tenant = %(tenant)s AND collection = %(collection)s
    """,
)
_INDEXES: tuple[LiteralString, ...] = (
    "CREATE INDEX ON signalbox_bench.vectors USING hnsw (embedding halfvec_ip_ops)",
    "CREATE INDEX ON signalbox_bench.texts USING gin (words)",
    "CREATE INDEX ON signalbox_bench.terms USING gin (lexemes)",
    "VACUUM ANALYZE signalbox_bench.vectors",
    "VACUUM ANALYZE signalbox_bench.texts",
    "VACUUM ANALYZE signalbox_bench.terms",
)

_VECTOR = "SELECT id FROM signalbox_bench.vectors ORDER BY embedding <#> %(question)b LIMIT %(limit)s"
_TS_RANK_CD = """
    WITH question AS (
        SELECT replace(plainto_tsquery(%(configuration)s::regconfig, %(text)s)::text, ' & ', ' | ')::tsquery AS words
    )
    SELECT t.id, ts_rank_cd(t.words, question.words) AS score
    FROM signalbox_bench.texts t, question
    WHERE t.words @@ question.words
    ORDER BY score DESC
    LIMIT %(limit)s
"""
_BM25 = """
    SELECT id FROM signalbox_bench.terms
    WHERE lexemes @@ %(candidates)s::tsquery
    ORDER BY bm25 <#> %(question)b
    LIMIT %(limit)s
"""


@dataclass(frozen=True, slots=True)
class RawSearches:
    """The searches over one collection's passages, on one connection."""

    connection: AsyncConnection[Row]
    configuration: str

    async def vector(self, question: Vectors) -> list[Row]:
        """Return the passages nearest to a vector of shape (dimension,)."""
        return await self._rows(_VECTOR, {"question": HalfVector(question.astype(np.float16))})

    async def ts_rank_cd(self, text: str) -> list[Row]:
        """Return passages with any of the words, ranked by PostgreSQL's `ts_rank_cd`."""
        return await self._rows(_TS_RANK_CD, {"configuration": self.configuration, "text": text})

    async def bm25(self, prepared: Mapping[str, Any]) -> list[Row]:
        """Run the service's BM25 statement alone, with values from `prepared_bm25`."""
        return await self._rows(_BM25, {"candidates": prepared["candidates"], "question": prepared["question"]})

    async def _rows(self, statement: LiteralString, values: dict[str, Any]) -> list[Row]:
        cursor = await self.connection.execute(statement, {**values, "limit": LIMIT}, binary=True)
        return await cursor.fetchall()


def text_search_configuration(language: str) -> str:
    """Return PostgreSQL's configuration for a language; "simple", without stemming, if there is none."""
    return _CONFIGURATIONS.get(language, "simple")


@asynccontextmanager
async def raw_searches(service: Service, collection: Collection, language: str) -> AsyncIterator[RawSearches]:
    """Fill tables from the collection in the schema `signalbox_bench`, which is dropped at the end.

    Raises:
        Unavailable: the owner cannot connect or may not create a schema.
    """
    configuration = text_search_configuration(language)
    try:
        async with await AsyncConnection.connect(service.database.owner, autocommit=True) as connection:
            await connection.execute(_SEARCH_PATH)
            await connection.execute("SELECT set_config('hnsw.ef_search', %s, false)", (str(EF_SEARCH),))
            await register_vector_async(connection)
            await connection.execute(_DROP)
            try:
                await _fill(service, connection, collection, configuration)
                yield RawSearches(connection, configuration)
            finally:
                await connection.execute(_DROP)
    except psycopg.errors.InsufficientPrivilege as error:
        reason = f"{str(error).strip().splitlines()[0]}; the database role must be allowed to create a schema"
        raise Unavailable("the database", reason) from error
    except psycopg.OperationalError as error:
        raise Unavailable("the database", str(error).strip().splitlines()[0]) from error


# pgvector may be in any schema.
_SEARCH_PATH = """
    SELECT set_config('search_path', quote_ident(n.nspname) || ', pg_temp', false)
    FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'vector'
"""


async def _fill(service: Service, connection: AsyncConnection[Row], collection: Collection, configuration: str) -> None:
    tables = _TABLES.format(
        dimension=sql.Literal(collection.dimension), terms=sql.Literal(DIMENSIONS), role=sql.Identifier(SERVICE_ROLE)
    )
    async with connection.transaction():
        await connection.execute(tables)
    values = {"tenant": TENANT, "collection": collection.number, "configuration": configuration}
    async with service.database.transaction(TENANT) as filling:
        for statement in _FILL:
            await filling.execute(statement, values)
    for statement in _INDEXES:
        await connection.execute(statement)


async def prepared_bm25(service: Service, collection: Collection, text: str, language: str) -> Mapping[str, Any] | None:
    """Return the values that the service's full-text search binds for a question: `candidates` and `question`.

    Returns:
        None if no passage contains any of the question's terms, because the service then sends no statement.
    """
    recorder = _Recorder()
    search = FullText(cast(Database, recorder), service.catalogue)
    await search.search(Query(text, language, Scope(TENANT, (collection,)), None, LIMIT))
    return recorder.values


class _Recorder:
    """Stands in for the database: records the values of the last search and returns no rows."""

    def __init__(self) -> None:
        self.values: Mapping[str, Any] | None = None

    @property
    def reads(self) -> "_Recorder":
        return self

    async def fetch_autocommit(self, who: Viewer, statement: str, values: Mapping[str, Any]) -> list[Row]:
        self.values = values
        return []
