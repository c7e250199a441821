"""This project's service with its defaults: reads the question, searches by BM25 and HNSW, fuses both."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from psycopg.conninfo import make_conninfo

from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import load_settings
from retrievers.embed import Embedder, Vectors
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers.file_input import read_paths
from retrievers.ingest.readers.schema_file import read_schema_file
from retrievers.ingest.run import ingest as store

PACKAGES = ("signalbox-retrieval", "psycopg", "pgvector", "onnxruntime")
_TENANT, _COLLECTION = "bench", "bench"


class RecalledVectors:
    """Stands in for an embedder during ingestion: returns the given vectors, as every peer gets them.

    Args:
        embedder: the embedder that computed them.
        vectors: vectors by digest of the embedded text, in hexadecimal.
    """

    def __init__(self, embedder: Embedder, vectors: Mapping[str, Vectors]) -> None:
        self._embedder, self._vectors = embedder, vectors
        self.name, self.languages, self.query_cache = embedder.name, embedder.languages, embedder.query_cache

    async def dimension(self) -> int:
        """See `Embedder.dimension`."""
        return await self._embedder.dimension()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`; raises KeyError for a text without a vector."""
        return np.stack([self._vectors[hashlib.sha256(text.encode()).hexdigest()] for text in texts])

    async def embed_query(self, text: str) -> Vectors:
        """See `Embedder.embed_query`."""
        return await self._embedder.embed_query(text)

    async def aclose(self) -> None:
        """Leave the embedder open, since the service owns it."""


class _OwnServiceSearcher(NamedTuple):
    service: Service
    stack: AsyncExitStack
    options: Mapping[str, Any]


async def connect(
    *,
    database: Mapping[str, str],
    dimension: int,
    depth: int,
    language: str,
    connections: int,
    options: Mapping[str, Any],
) -> _OwnServiceSearcher:
    """Open the service, which creates its tables.

    Args:
        options: `corpus`: files; `schema`: the file with declared fields or None; `changes`: settings as text by key.
    """
    own = {"database_url": make_conninfo(**database), "service_url": None, "read_urls": (), "chat_days": "0"}
    settings = load_settings({**options["changes"], **own})
    stack = AsyncExitStack()
    service = await stack.enter_async_context(open_service(settings))
    return _OwnServiceSearcher(service, stack, options)


async def ingest(searcher: _OwnServiceSearcher, batches: Iterable[Any]) -> None:
    """Read, split, analyse and store the documents themselves; only their vectors are given."""
    vectors = {one.key: np.array(one.vector, np.float32) for batch in batches for one in batch}
    service, options = searcher.service, searcher.options
    schema = read_schema_file(Path(options["schema"])) if options["schema"] else None
    recalled = RecalledVectors(service.embedder, vectors)
    await store(service.database, recalled, _TENANT, _COLLECTION, _documents(options["corpus"]), declared=schema)
    service.catalogue.invalidate(_TENANT)


def _documents(corpus: Iterable[str]) -> Iterator[Document | RejectedItem]:
    return read_paths([Path(one) for one in corpus])


async def search(searcher: _OwnServiceSearcher, text: str, vector: list[float] | None, limit: int) -> list[str]:
    """Return the documents of the best passages; without a vector the service embeds the question."""
    service = searcher.service
    if vector is not None:
        service.embedder.query_cache.put(text, np.array(vector, np.float32))
    result = await service.retrieve(text, tenant=_TENANT, collection=_COLLECTION, top_k=limit)
    return [hit.document_id for hit in result.hits]


async def close(searcher: _OwnServiceSearcher) -> None:
    """Close the service."""
    await searcher.stack.aclose()
