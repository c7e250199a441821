"""The manifest of a large mirror: what is read and written of it leaves the event loop to others."""

import asyncio
import gc
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from typing import TypeVar
from uuid import UUID

import psycopg
import pytest

from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import Lease
from retrievers.ingest.report import IngestReport
from retrievers.postgres.connections.database import Database
from retrievers.sync.manifest import KnownItem, Manifest, ManifestWriter, mirror_id

ITEMS = 100_000
MOST_S = 0.05
_SYNC = "INSERT INTO signalbox.sync (tenant, id, collection, source) VALUES ('acme', %(sync)s, 'docs', 's')"
_ITEMS = """
    INSERT INTO signalbox.sync_item (tenant, sync, item, version, digest)
    SELECT 'acme', %(sync)s, 'folder/item-' || n, '1 v' || n, sha256(n::text::bytea) FROM generate_series(1, %(n)s) n
"""
_DOCUMENTS = """
    INSERT INTO signalbox.sync_document (tenant, collection, document_id, sync, item, run, given)
    SELECT 'acme', 'docs', 'd' || n, %(sync)s, CASE WHEN n %% 10 > 0 THEN 'folder/item-' || n END, 1, ''
    FROM generate_series(1, %(n)s) n
"""
Returned = TypeVar("Returned")


@pytest.fixture
def manifest(database: Database, owner_url: str) -> Iterator[Manifest]:
    sync = mirror_id("acme", "docs", "s")
    with psycopg.connect(owner_url, autocommit=True) as connection:
        for statement in (_SYNC, _ITEMS, _DOCUMENTS):
            connection.execute(statement, {"sync": sync, "n": ITEMS})
    gc.disable()  # a pass takes as long as all that the test process holds, which the service freezes at its start
    yield Manifest(database, "acme", sync, "docs")
    gc.enable()


async def longest(work: Awaitable[Returned]) -> tuple[Returned, float]:
    """What the work returns, and the most processor time that the event loop spent between two turns of another task.

    Not the time of the clock: other processes of this machine have their share of that.
    """
    most, task = 0.0, asyncio.ensure_future(work)
    while not task.done():
        before = time.thread_time()
        await asyncio.sleep(0)
        most = max(most, time.thread_time() - before)
    return await task, most


async def test_reading_it_leaves_the_event_loop_to_others(manifest: Manifest):
    items = [f"folder/item-{n}" for n in range(1, ITEMS + 1)]
    orphans = ITEMS // 10

    known, held_s = await longest(manifest.known_items())
    assert (len(known), known["folder/item-10"].version) == (ITEMS, "v10")
    assert known["folder/item-11"] == KnownItem(None, None)  # its document is not stored
    assert held_s < MOST_S
    damaged, held_s = await longest(manifest.damaged_documents())
    assert (len(damaged), held_s < MOST_S) == (ITEMS - orphans, True), held_s
    found, held_s = await longest(manifest.documents_of(items))
    assert (len(found), held_s < MOST_S) == (ITEMS, True), held_s
    assert len(await manifest.documents_of(items, orphans=False)) == ITEMS - orphans
    assert await manifest.documents_of(["folder/item-11"], orphans=False) == {"d11"}
    assert await manifest.count_orphans() == orphans


async def test_noting_that_all_of_it_is_gone_leaves_the_event_loop_to_others(
    manifest: Manifest, monkeypatch: pytest.MonkeyPatch
):
    @asynccontextmanager
    async def unleased(writer: ManifestWriter) -> AsyncIterator[object]:
        async with manifest.database.transaction("acme") as connection:
            yield connection

    monkeypatch.setattr(ManifestWriter, "_transaction", unleased)
    writer = ManifestWriter(
        manifest, JobQueue(manifest.database), Lease("acme", UUID(int=1), UUID(int=2)), 2, IngestReport()
    )
    _, held_s = await longest(writer.remove_items([f"folder/item-{n}" for n in range(1, ITEMS + 1)]))
    assert held_s < MOST_S
    assert (await manifest.known_items(), await manifest.count_orphans()) == ({}, ITEMS)
