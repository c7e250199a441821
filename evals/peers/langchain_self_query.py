"""LangChain's SelfQueryRetriever over PGVectorStore: returns all documents that a recorded model reply selects."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from langchain_classic.chains.query_constructor.schema import AttributeInfo
from langchain_classic.retrievers.self_query.base import SelfQueryRetriever
from langchain_core.embeddings import Embeddings
from langchain_core.language_models.fake import FakeListLLM
from langchain_engine import engine_of
from langchain_postgres import PGVectorStore
from langchain_postgres.translator import PGVectorTranslator

PACKAGES = ("langchain-classic", "langchain-postgres", "langchain-core")
_TABLE = "passages"


class _OneVector(Embeddings):  # type: ignore[misc]
    """Gives all texts the same vector, since only the filter decides which documents are found."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, 0.0] for _ in texts]

    def embed_query(self, text: str) -> list[float]:
        return [1.0, 0.0]


class _LangchainSelfQuerySearcher(NamedTuple):
    engine: Any
    store: Any
    fields: Mapping[str, str]


async def connect(
    *,
    database: Mapping[str, str],
    dimension: int,
    depth: int,
    language: str,
    connections: int,
    options: Mapping[str, Any],
) -> _LangchainSelfQuerySearcher:
    """Create the table.

    Args:
        options: `fields`: type by name.
    """
    engine = engine_of(database, connections)
    await engine.ainit_vectorstore_table(_TABLE, dimension)
    store = await PGVectorStore.create(engine, _OneVector(), _TABLE)
    return _LangchainSelfQuerySearcher(engine, store, options["fields"])


async def ingest(searcher: _LangchainSelfQuerySearcher, batches: Iterable[Any]) -> None:
    """Store all documents with their metadata."""
    for batch in batches:
        await searcher.store.aadd_embeddings(
            [one.text for one in batch],
            [one.vector for one in batch],
            metadatas=[{**one.metadata, "document": one.document} for one in batch],
        )


async def search(searcher: _LangchainSelfQuerySearcher, text: str, vector: list[float], limit: int) -> list[str]:
    """Return all documents that the retriever selects when its model replies with `text`."""
    attributes = [AttributeInfo(name=name, description=name, type=kind) for name, kind in searcher.fields.items()]
    retriever = SelfQueryRetriever.from_llm(
        FakeListLLM(responses=[text]),
        searcher.store,
        "documents",
        attributes,
        structured_query_translator=PGVectorTranslator(),
        search_kwargs={"k": limit},
    )
    found = await retriever.ainvoke("the recorded question")
    return [one.metadata["document"] for one in found]


async def close(searcher: _LangchainSelfQuerySearcher) -> None:
    """Close the connections."""
    await searcher.engine.close()
