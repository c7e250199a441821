"""LangChain's EnsembleRetriever: PGVectorStore with HNSW beside BM25 in the memory of the process, joined by rank."""

import re
from collections.abc import Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from langchain_classic.retrievers import EnsembleRetriever
from langchain_community.retrievers import BM25Retriever
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_engine import engine_of
from langchain_postgres import PGVectorStore
from langchain_postgres.v2.indexes import HNSWIndex, HNSWQueryOptions

PACKAGES = ("langchain-postgres", "langchain-classic", "langchain-community", "rank-bm25", "pgvector", "asyncpg")
_TABLE = "passages"
_WORDS = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+")
_vector: ContextVar[list[float]] = ContextVar("vector")


class _Given(Embeddings):  # type: ignore[misc]
    """Returns the vector that came with the question."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        raise NotImplementedError

    def embed_query(self, text: str) -> list[float]:
        return _vector.get()

    async def aembed_query(self, text: str) -> list[float]:
        return _vector.get()


@dataclass
class _LangchainEnsembleSearcher:
    engine: Any
    store: Any
    depth: int
    retriever: Any = None


async def connect(
    *,
    database: Mapping[str, str],
    dimension: int,
    depth: int,
    language: str,
    connections: int,
    options: Mapping[str, Any],
) -> _LangchainEnsembleSearcher:
    """Create the table."""
    engine = engine_of(database, connections)
    await engine.ainit_vectorstore_table(_TABLE, dimension)
    store = await PGVectorStore.create(engine, _Given(), _TABLE, index_query_options=HNSWQueryOptions(ef_search=depth))
    return _LangchainEnsembleSearcher(engine, store, depth)


async def ingest(searcher: _LangchainEnsembleSearcher, batches: Iterable[Any]) -> None:
    """Store all passages with their vectors, and index their words in memory."""
    store, depth = searcher.store, searcher.depth
    held: list[Document] = []
    for batch in batches:
        documents = [Document(page_content=one.text, metadata={"document": one.document}) for one in batch]
        await store.aadd_embeddings(
            [one.page_content for one in documents],
            [one.vector for one in batch],
            metadatas=[one.metadata for one in documents],
        )
        held += documents
    await store.aapply_vector_index(HNSWIndex())
    words = BM25Retriever.from_documents(held, preprocess_func=_words, k=depth)
    vectors = store.as_retriever(search_kwargs={"k": depth})
    searcher.retriever = EnsembleRetriever(retrievers=[words, vectors], weights=[0.5, 0.5])


def _words(text: str) -> list[str]:
    # The default splits at blanks alone and keeps case and punctuation; Chinese has no blanks.
    return _WORDS.findall(text.lower())


async def search(searcher: _LangchainEnsembleSearcher, text: str, vector: list[float], limit: int) -> list[str]:
    """Return the documents of the best passages."""
    _vector.set(vector)
    found = await searcher.retriever.ainvoke(text)
    return [one.metadata["document"] for one in found[:limit]]


async def close(searcher: _LangchainEnsembleSearcher) -> None:
    """Close the connections."""
    await searcher.engine.close()
