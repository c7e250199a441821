"""LlamaIndex's QueryFusionRetriever over PGVectorStore: HNSW and `ts_rank` of any word, joined by reciprocal rank."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import QueryBundle, TextNode
from llama_index.vector_stores.postgres import PGVectorStore
from sqlalchemy import URL

PACKAGES = ("llama-index-core", "llama-index-vector-stores-postgres", "pgvector", "asyncpg")


class _LlamaindexFusionSearcher(NamedTuple):
    store: Any
    index: Any
    depth: int


async def connect(
    *,
    database: Mapping[str, str],
    dimension: int,
    depth: int,
    language: str,
    connections: int,
    options: Mapping[str, Any],
) -> _LlamaindexFusionSearcher:
    """Prepare the store, which creates its table before the first passage."""
    store = PGVectorStore.from_params(
        connection_string=_url("postgresql+psycopg2", database),
        async_connection_string=_url("postgresql+asyncpg", database),
        table_name="passages",
        hybrid_search=True,
        text_search_config=language,
        embed_dim=dimension,
        hnsw_kwargs={
            "hnsw_m": 16,
            "hnsw_ef_construction": 64,
            "hnsw_ef_search": depth,
            "hnsw_dist_method": "vector_cosine_ops",
        },
        create_engine_kwargs={"pool_size": connections, "max_overflow": 0},
    )
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=dimension))
    return _LlamaindexFusionSearcher(store, index, depth)


async def ingest(searcher: _LlamaindexFusionSearcher, batches: Iterable[Any]) -> None:
    """Store all passages in the table, which has its indexes from the start."""
    for batch in batches:
        nodes = [TextNode(text=one.text, embedding=one.vector, metadata={"document": one.document}) for one in batch]
        await searcher.store.async_add(nodes)


def _url(driver: str, database: Mapping[str, str]) -> Any:
    return URL.create(
        driver,
        username=database.get("user"),
        password=database.get("password"),
        database=database["dbname"],
        query={key: database[key] for key in ("host", "port") if key in database},
    )


async def search(searcher: _LlamaindexFusionSearcher, text: str, vector: list[float], limit: int) -> list[str]:
    """Return the documents of the best passages."""
    retriever = QueryFusionRetriever(
        [
            searcher.index.as_retriever(similarity_top_k=searcher.depth),
            searcher.index.as_retriever(
                vector_store_query_mode="sparse", similarity_top_k=searcher.depth, sparse_top_k=searcher.depth
            ),
        ],
        llm=MockLLM(),
        mode="reciprocal_rerank",
        similarity_top_k=limit,
        num_queries=1,
    )
    found = await retriever.aretrieve(QueryBundle(text, embedding=vector))
    return [one.node.metadata["document"] for one in found]


async def close(searcher: _LlamaindexFusionSearcher) -> None:
    """Close the connections."""
    await searcher.store.close()
