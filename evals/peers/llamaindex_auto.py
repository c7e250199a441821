"""LlamaIndex's VectorIndexAutoRetriever over PGVectorStore: returns all documents a recorded model reply selects."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.indices.vector_store.retrievers import VectorIndexAutoRetriever
from llama_index.core.llms import CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.schema import TextNode
from llama_index.core.vector_stores import MetadataInfo, VectorStoreInfo
from llama_index.vector_stores.postgres import PGVectorStore
from sqlalchemy import URL

PACKAGES = ("llama-index-core", "llama-index-vector-stores-postgres")


class _Recorded(CustomLLM):  # type: ignore[misc]
    """A model that always gives the same reply."""

    reply: str

    @property
    def metadata(self) -> Any:
        return LLMMetadata()

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        return CompletionResponse(text=self.reply)

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        yield self.complete(prompt)


class _LlamaindexAutoSearcher(NamedTuple):
    store: Any
    index: Any
    fields: Mapping[str, str]


async def connect(
    *,
    database: Mapping[str, str],
    dimension: int,
    depth: int,
    language: str,
    connections: int,
    options: Mapping[str, Any],
) -> _LlamaindexAutoSearcher:
    """Prepare the store.

    Args:
        options: `fields`: type by name.
    """
    urls = [
        URL.create(
            driver,
            username=database.get("user"),
            password=database.get("password"),
            database=database["dbname"],
            query={key: database[key] for key in ("host", "port") if key in database},
        )
        for driver in ("postgresql+psycopg2", "postgresql+asyncpg")
    ]
    store = PGVectorStore.from_params(
        connection_string=urls[0],
        async_connection_string=urls[1],
        table_name="passages",
        embed_dim=dimension,
        use_jsonb=True,
    )
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=dimension))
    return _LlamaindexAutoSearcher(store, index, options["fields"])


async def ingest(searcher: _LlamaindexAutoSearcher, batches: Iterable[Any]) -> None:
    """Store all documents with their metadata."""
    for batch in batches:
        nodes = [
            TextNode(text=one.text, embedding=one.vector, metadata={**one.metadata, "document": one.document})
            for one in batch
        ]
        await searcher.store.async_add(nodes)


async def search(searcher: _LlamaindexAutoSearcher, text: str, vector: list[float], limit: int) -> list[str]:
    """Return all documents that the retriever selects when its model replies with `text`."""
    information = [MetadataInfo(name=name, type=kind, description=name) for name, kind in searcher.fields.items()]
    retriever = VectorIndexAutoRetriever(
        searcher.index,
        VectorStoreInfo(content_info="documents", metadata_info=information),
        llm=_Recorded(reply=text),
        similarity_top_k=limit,
        max_top_k=limit,
    )
    found = await retriever.aretrieve("the recorded question")
    return [one.node.metadata["document"] for one in found]


async def close(searcher: _LlamaindexAutoSearcher) -> None:
    """Close the connections."""
    await searcher.store.close()
