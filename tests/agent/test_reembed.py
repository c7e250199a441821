"""Collections made anew while they are asked: another embedder, another splitter, deaths, writes and failures meanwhile."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agent import Service, open_service
from agent.settings import Settings
from agent.testing import Fault, ScriptedServer
from retrievers.core.errors import BadRequest, UnknownCollection, Unavailable
from retrievers.core.types import Viewer, whole
from retrievers.ingest import rebuild
from retrievers.ingest.documents import Document
from retrievers.ingest.rebuild import Rebuilding

_OF = """
    FROM signalbox.{table} t JOIN signalbox.collection k ON k.tenant = t.tenant AND k.number = t.collection
    LEFT JOIN signalbox.collection p ON p.tenant = k.tenant AND p.number = k.part_of
    WHERE t.tenant = %s AND coalesce(p.name, k.name) = %s ORDER BY 1, 2, 3, 4
"""
_DUMP = {
    "collection": """
        SELECT k.readers, k.analysis, k.split, k.folding, k.fields, k.languages, k.documents, k.public_documents, k.chunks,
               k.words, CASE WHEN k.part_of IS NULL THEN k.mean_length END, k.records, k.description
        FROM signalbox.collection k LEFT JOIN signalbox.collection p ON p.tenant = k.tenant AND p.number = k.part_of
        WHERE k.tenant = %s AND coalesce(p.name, k.name) = %s AND (k.part_of IS NULL OR k.documents > 0) ORDER BY 1""",
    "document": """
        SELECT id, title, url, body, t.metadata, t.fields, important, questions, language, digest, t.chunks, t.words, public,
               enabled, expires_at, t.created_at, updated_at, delivery,
               (SELECT readers FROM signalbox.collection p WHERE p.tenant = t.tenant AND p.number = t.part)"""
    + _OF.format(table="document"),
    "chunk": """
        SELECT document_id, ordinal, public, expires_at, start_character, end_character, length, embedding::text, bm25::text,
               t.fields, heading, digest, replace(lexemes::text, k.number || ':', ''), body, gap,
               (SELECT readers FROM signalbox.collection p WHERE p.tenant = t.tenant AND p.number = t.part)"""
    + _OF.format(table="chunk"),
    "term": "SELECT term, k.readers, t.chunks, 0" + _OF.format(table="term"),
    "field_value": "SELECT field, value, k.readers, t.number, t.documents" + _OF.format(table="field_value"),
    "field_count": "SELECT field, k.readers, t.documents, kept, long" + _OF.format(table="field_count"),
    "field_word": "SELECT field, value, t.words, place, k.readers" + _OF.format(table="field_word"),
}


def dump(url: str, tenant: str = "default", name: str = "docs") -> dict[str, list[Any]]:
    """All that is stored of a collection, apart from its numbers and version."""
    with psycopg.connect(url) as connection:
        return {part: connection.execute(query.encode(), (tenant, name)).fetchall() for part, query in _DUMP.items()}


def same(one: dict[str, list[Any]], other: dict[str, list[Any]]) -> bool:
    for name in one:
        assert len(one[name]) == len(other[name]), name
        differing = [(a, b) for a, b in zip(one[name], other[name], strict=True) if a != b]
        assert not differing, (name, str(differing[0])[:2000])
    return True


OLD, NEW = "openai/old", "openai/new"
QUESTIONS = ("penguin 7", "how far does a walrus swim?", "ice 30")


def document(name: str, text: str, **more: object) -> Document:
    return Document(name, name, f"Title {name}", text, **more)  # type: ignore[arg-type]


def corpus(count: int = 90) -> list[Document]:
    return [
        document(
            f"d{n:03}",
            f"Penguin {n} walks over ice {n % 31}. " * (1 + 40 * (n % 9 == 0)),
            metadata={"year": 2000 + n % 20, "team": f"team {n % 3}"},
            readers=("user:7",) if n % 10 == 3 else (),
            enabled=n % 17 != 5,
        )
        for n in range(count)
    ]


@asynccontextmanager
async def opened(owner: str, service: str, old: ScriptedServer, new: ScriptedServer, **more: Any) -> AsyncIterator[Service]:
    settings = Settings(
        database_url=owner, service_url=service, embedder=OLD, embedder_base_url=old.base_url,
        embedders=f"{NEW}={new.base_url}", **more,
    )  # fmt: skip
    async with open_service(settings) as it:
        yield it


@pytest.fixture
def models() -> Any:
    with ScriptedServer(dimension=16) as old, ScriptedServer(dimension=48) as new:
        yield old, new


@pytest.fixture
async def service(owner_url: str, service_url: str, models: tuple[ScriptedServer, ScriptedServer]) -> AsyncIterator[Service]:
    async with opened(owner_url, service_url, *models) as it:
        yield it


async def pages(service: Service, viewer: Viewer | None = None) -> list[Any]:
    found = []
    for question in QUESTIONS:
        for page in (1, 2):
            result = await service.retrieve(question, collection="docs", page=page, tenant=viewer)
            found.append([(hit.id, hit.score, dict(hit.scores)) for hit in result.hits])
    return found


async def turn(service: Service) -> bool:
    """One job of the queue, or one turn of one; False where there is none due."""
    lease = await service.worker.jobs.take()
    if lease is None:
        return False
    await service.worker.carry_out(lease)
    return True


def slow(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """Turns of one batch of 20 documents."""
    monkeypatch.setattr(rebuild, "_BATCH", 20)
    monkeypatch.setattr(rebuild, "_LAST", 4)

    async def carry_on(*given: Any) -> bool:
        builder = Rebuilding(service.database, service.embedder, service.worker.jobs, slice_s=0)
        try:
            return await builder.carry_on(*given)
        finally:
            service.catalogue.forget("default")

    monkeypatch.setattr(service.worker, "_rebuild", carry_on)


async def embedder_of(service: Service, name: str = "docs") -> tuple[str | None, int | None]:
    found = next(one for one in await service.collections() if one.name == name)
    return found.embedder, found.dimension


async def test_questions_see_the_old_vectors_until_the_switch_and_writes_meanwhile_are_there_after_it(
    service: Service, models: tuple[ScriptedServer, ScriptedServer], monkeypatch: pytest.MonkeyPatch, owner_url: str
):
    await service.ingest(corpus(), "docs")
    before, reader = await pages(service), Viewer("default", ("user:7",))
    as_reader = await pages(service, reader)
    slow(service, monkeypatch)

    job = await service.reembed("docs", NEW)
    assert (job.kind, job.embedder, job.status) == ("reembed", NEW, "queued")
    assert (await service.describe("docs"))["job"] == {
        "job_id": job.id, "kind": "reembed", "embedder": NEW, "status": "queued",
    }  # fmt: skip
    assert (await service.reembed("docs", NEW)).id == job.id
    for _ in range(3):
        await turn(service)
        assert await pages(service) == before
        assert await pages(service, reader) == as_reader
        assert await embedder_of(service) == (OLD, 16)
        assert [one.name for one in await service.collections()] == ["docs"]
    job = await service.job(job.id)
    assert 0 < job.done < (job.documents or 0)

    changed = [document("d000", "The walrus swims far."), document("d088", "Another text."), document("new", "New.")]
    await service.ingest(changed, "docs")
    await service.delete("docs", "d001")
    await service.delete("docs", "d087")
    expected = dump(owner_url, "default")
    while await turn(service):
        pass

    job = await service.job(job.id)
    assert (job.status, job.error, job.done) == ("done", None, job.documents)
    assert await embedder_of(service) == (NEW, 48)
    assert (await service.describe("docs"))["job"] is None
    for _, number in await removed(service, owner_url):
        assert number
    after = dump(owner_url, "default")
    assert [row[7] for row in expected["chunk"]] != [row[7] for row in after["chunk"]]
    assert same(without_vectors(expected), without_vectors(after))
    found = await service.retrieve("The walrus swims far.", collection="docs", sources=("vector",))
    assert "d000" in [hit.document_id for hit in found.hits]
    assert await pages(service) != before
    # The same as what a fresh ingestion with the new embedder stores.
    asked = len(models[1].requests)
    assert (await service.ingest(changed, "docs")).unchanged == 3
    assert len(models[1].requests) == asked


async def removed(service: Service, url: str) -> list[tuple[str, int]]:
    """Have what was replaced go, as a worker does later; which that was."""
    service.worker.jobs.retired_s = 0
    gone = await service.worker.jobs.retired()
    for tenant, number in gone:
        assert await service.worker.jobs.remove_retired(tenant, number, within_s=60)
    with psycopg.connect(url) as connection:
        left = connection.execute(
            "SELECT count(*) FROM signalbox.collection WHERE shadow_of IS NOT NULL OR name LIKE '%/%'"
        ).fetchone()
    assert left == (0,)
    return gone


def without_vectors(found: dict[str, list[Any]]) -> dict[str, list[Any]]:
    return {**found, "chunk": [(*row[:7], *row[8:]) for row in found["chunk"]]}
