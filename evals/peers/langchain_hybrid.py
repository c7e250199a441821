"""LangChain's PGVectorStore with its hybrid search: HNSW and `ts_rank_cd`, joined by its default weighted sum."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from langchain_core.embeddings import Embeddings
from langchain_engine import engine_of
from langchain_postgres import PGVectorStore
from langchain_postgres.v2.hybrid_search_config import HybridSearchConfig
from langchain_postgres.v2.indexes import HNSWIndex, HNSWQueryOptions

PACKAGES = ("langchain-postgres", "langchain-core", "pgvector", "asyncpg")
_TABLE = "passages"


class _Unused(Embeddings):  # type: ignore[misc]
    """Stands in for the embedder that the store requires; it is never called, because all vectors are passed."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError

    def embed_query(self, text: str) -> list[float]:
        raise NotImplementedError


class _LangchainHybridSearcher(NamedTuple):
    engine: Any
    store: Any
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
) -> _LangchainHybridSearcher:
    """Create the table."""
    engine = engine_of(database, connections)
    await engine.ainit_vectorstore_table(_TABLE, dimension, hybrid_search_config=_config(language, depth))
    store = await PGVectorStore.create(
        engine,
        _Unused(),
        _TABLE,
        index_query_options=HNSWQueryOptions(ef_search=depth),
        hybrid_search_config=_config(language, depth),
    )
    return _LangchainHybridSearcher(engine, store, language, depth)


async def ingest(searcher: _LangchainHybridSearcher, batches: Iterable[Any]) -> None:
    """Store all passages, then build both indexes."""
    store = searcher.store
    for batch in batches:
        await store.aadd_embeddings(
            [one.text for one in batch],
            [one.vector for one in batch],
            metadatas=[{"document": one.document} for one in batch],
        )
    await store.aapply_vector_index(HNSWIndex())
    await store.aapply_hybrid_search_index()


async def search(searcher: _LangchainHybridSearcher, text: str, vector: list[float], limit: int) -> list[str]:
    """Return the documents of the best passages."""
    # A configuration keeps the first question that it was used with, so every question gets a new one.
    config = _config(searcher.language, searcher.depth, text)
    found = await searcher.store.asimilarity_search_by_vector(vector, k=limit, hybrid_search_config=config)
    return [one.metadata["document"] for one in found]


async def close(searcher: _LangchainHybridSearcher) -> None:
    """Close the connections."""
    await searcher.engine.close()


def _config(language: str, depth: int, text: str = "") -> Any:
    return HybridSearchConfig(
        tsv_column="content_tsv",
        tsv_lang=f"pg_catalog.{language}",
        fts_query=text,
        primary_top_k=depth,
        secondary_top_k=depth,
    )
