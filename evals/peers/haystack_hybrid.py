"""Haystack's hybrid retrieval over PgvectorDocumentStore: HNSW and `ts_rank_cd`, joined by reciprocal rank."""

import asyncio
import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

from haystack import Document
from haystack.components.joiners import DocumentJoiner
from haystack.utils import Secret
from haystack_integrations.components.retrievers.pgvector import PgvectorEmbeddingRetriever, PgvectorKeywordRetriever
from haystack_integrations.document_stores.pgvector import PgvectorDocumentStore
from psycopg.conninfo import make_conninfo

PACKAGES = ("haystack-ai", "pgvector-haystack", "pgvector", "psycopg")


class _Line(NamedTuple):
    """A document store and its retrievers; it serves one question at a time, as a store has a single connection."""

    store: Any
    vectors: Any
    words: Any


class _HaystackHybridSearcher(NamedTuple):
    idle: "asyncio.Queue[_Line]"
    joiner: Any
    connections: int


async def connect(
    *,
    database: Mapping[str, str],
    dimension: int,
    depth: int,
    language: str,
    connections: int,
    options: Mapping[str, Any],
) -> _HaystackHybridSearcher:
    """Connect; the first store creates the table."""
    idle: asyncio.Queue[_Line] = asyncio.Queue()
    lines = [_line(database, dimension, depth, language) for _ in range(connections)]
    for line in lines:
        await line.store.count_documents_async()  # connects
        idle.put_nowait(line)
    return _HaystackHybridSearcher(idle, DocumentJoiner(join_mode="reciprocal_rank_fusion"), connections)


async def ingest(searcher: _HaystackHybridSearcher, batches: Iterable[Any]) -> None:
    """Store all passages in the table, which has its indexes from the start."""
    line = await searcher.idle.get()
    for batch in batches:
        documents = [Document(content=one.text, embedding=one.vector, meta={"document": one.document}) for one in batch]
        await line.store.write_documents_async(documents)
    searcher.idle.put_nowait(line)


def _line(database: Mapping[str, str], dimension: int, depth: int, language: str) -> _Line:
    store = PgvectorDocumentStore(
        connection_string=Secret.from_token(make_conninfo(**database)),
        table_name="passages",
        language=language,
        embedding_dimension=dimension,
        search_strategy="hnsw",
        hnsw_ef_search=depth,
    )
    return _Line(
        store,
        PgvectorEmbeddingRetriever(document_store=store, top_k=depth),
        PgvectorKeywordRetriever(document_store=store, top_k=depth),
    )


async def search(searcher: _HaystackHybridSearcher, text: str, vector: list[float], limit: int) -> list[str]:
    """Return the documents of the best passages."""
    line = await searcher.idle.get()
    try:
        near = await line.vectors.run_async(query_embedding=vector)
        worded = await line.words.run_async(query=text)
    finally:
        searcher.idle.put_nowait(line)
    joined = searcher.joiner.run(documents=[near["documents"], worded["documents"]], top_k=limit)
    return [one.meta["document"] for one in joined["documents"]]


async def close(searcher: _HaystackHybridSearcher) -> None:
    """Close the connections."""
    for _ in range(searcher.connections):
        line = await searcher.idle.get()
        await line.store.close_async()
