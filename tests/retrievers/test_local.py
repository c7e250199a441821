"""Documents searched without a database, beside the same documents in PostgreSQL."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from agent.app import Service
from agent.pipeline import Pipeline
from agent.settings import Settings
from agent.trace import TraceStore
from retrievers import registry
from retrievers.core.filters import parse
from retrievers.core.types import PLATFORM, ChunkId, Hit, Query
from retrievers.ingest.read import read_record
from retrievers.local import Local
from retrievers.postgres.catalogue import Catalogue
from retrievers.postgres.database import Database
from retrievers.testing import HashEmbedder

EMBEDDER = HashEmbedder()


def documents(texts: Mapping[str, str], **more: Any) -> list[dict[str, Any]]:
    return [{"id": id, "text": text, **more} for id, text in texts.items()]


async def search(local: Local, text: str, **more: Any) -> list[Hit]:
    await local.ready()
    return await local.search(Query(text, "en", await local.scope(), **more))


def ids(hits: list[Hit]) -> list[str]:
    return [hit.id.document_id for hit in hits]


def service_on(database: Database, **changes: Any) -> Service:
    chosen = Settings(**changes)
    catalogue = Catalogue(database)
    resources = registry.Resources(database, EMBEDDER, catalogue, chosen.model_dump())
    built = {name: registry.build(name, resources) for name in registry.names()}
    sources = {name: source for name, source in built.items() if source is not None}
    pipeline = Pipeline(chosen, catalogue, sources, EMBEDDER)
    return Service(chosen, database, EMBEDDER, catalogue, pipeline, TraceStore(database, days=0))


async def test_a_list_of_documents_is_searched_without_a_database():
    local = Local.of(documents({"a": "Refunds take five days.", "b": "Parcels take two days."}), EMBEDDER)
    hits = await search(local, "how long do refunds take")
    assert ids(hits) == ["a", "b"]
    assert hits[0].id == ChunkId(PLATFORM, "local", "a", 0)
    assert hits[0].chunk is not None
    assert hits[0].chunk.text == "Refunds take five days."


async def test_the_service_answers_from_a_folder_alone(database: Database, tmp_path: Path):
    (tmp_path / "refunds.md").write_text("# Refunds\nRefunds take five days.\n")
    service = service_on(database, local=tmp_path)
    result = await service.retrieve("how long do refunds take", sources=["local"])
    assert [(hit.id, hit.sources) for hit in result.hits] == [("0:local/refunds.md#0", ("local",))]
    assert result.hits[0].title == "Refunds"
