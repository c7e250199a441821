"""The weights of a collection's passages follow its mean length, while others write to it."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import psycopg
import pytest

from retrievers.core.types import Collection, unrestricted_viewer
from retrievers.ingest import collections, derived_data, document_store, passage_weights, rows
from retrievers.ingest.checking.collection_check import CollectionChecker
from retrievers.ingest.derived_data import update_derived_data
from retrievers.ingest.documents import Document
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.worker import Worker
from retrievers.ingest.passage_weights import reweigh_pending
from retrievers.ingest.run import ingest
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.connections.database import Database
from retrievers.testing import HashEmbedder

TENANT = "acme"
LONG = [Document(f"d{n}", f"d{n}", "A title", f"Oil the bearing {n}. " * 50) for n in range(60)]
SHORT = [Document(f"s{n}", f"s{n}", "", f"Oil {n}.") for n in range(50)]
"""Fewer than the long ones, so that they change the mean length at the end of their ingestion."""
OTHER = Document("other", "other", "", "Oil the gear of the rotor.")


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passage_weights, "ROWS_AT_ONCE", 2)


async def load(database: Database, documents: Sequence[Document], **options: Any) -> None:
    tenant = options.pop("tenant", TENANT)
    await ingest(database, HashEmbedder(), tenant, "docs", documents, **options)


def weights(url: str, tenant: str = TENANT) -> list[Any]:
    with psycopg.connect(url) as connection:
        statement = "SELECT document_id, ordinal, bm25::text FROM signalbox.chunk WHERE tenant = %s ORDER BY 1, 2"
        return connection.execute(statement, (tenant,)).fetchall()


def unfinished(url: str) -> int:
    with psycopg.connect(url) as connection:
        statement = "SELECT count(*) FROM signalbox.collection WHERE weighed_id IS NOT NULL"
        (row,) = connection.execute(statement).fetchall()
        return int(row[0])


async def test_others_write_to_a_collection_while_its_passages_are_weighed_again(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    batches = 0
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    def weighed(some: Sequence[Any], mean: float) -> Any:
        nonlocal batches
        batches += 1
        loop.call_soon_threadsafe(begun.set)
        return rows.recompute_bm25(some, mean)

    await load(database, LONG)
    monkeypatch.setattr(passage_weights, "recompute_bm25", weighed)
    weighing = asyncio.create_task(load(database, SHORT))
    await begun.wait()
    await load(database, [OTHER], reweighs=False)
    before = batches
    await weighing

    assert 0 < before < batches
    await load(database, [*LONG, OTHER, *SHORT], tenant="straight")
    assert weights(owner_url) == weights(owner_url, "straight")


async def test_a_process_that_ends_in_the_middle_leaves_the_rest_to_another(database: Database, owner_url: str):
    await load(database, LONG)
    await load(database, SHORT, reweighs=False)
    assert await reweigh_pending(database)
    assert await reweigh_pending(database)
    await load(database, [OTHER, replace(LONG[0], text="Oil."), replace(LONG[50], text="Oil.")], reweighs=False)
    assert unfinished(owner_url) == 1

    while await reweigh_pending(database):
        pass

    assert unfinished(owner_url) == 0
    changed = [OTHER, replace(LONG[0], text="Oil."), replace(LONG[50], text="Oil.")]
    await load(database, [*LONG[1:50], *LONG[51:], *changed, *SHORT], tenant="straight")
    assert weights(owner_url) == weights(owner_url, "straight")


async def test_a_mean_length_that_changes_in_the_middle_is_the_one_in_force_at_the_end(
    database: Database, owner_url: str
):
    await load(database, LONG)
    before = weights(owner_url)
    await load(database, SHORT, reweighs=False)
    assert await reweigh_pending(database)
    async with database.transaction(unrestricted_viewer(TENANT)) as connection:
        (number, *_) = await collections.open_collection(connection, TENANT, "docs")
        await document_store.remove_documents(connection, TENANT, number, [one.id for one in SHORT])
        await update_derived_data(connection, TENANT, number)

    while await reweigh_pending(database):
        pass

    assert weights(owner_url) == before


async def test_a_worker_weighs_passages_of_all_tenants_in_turn(database: Database, owner_url: str):
    for tenant in (TENANT, "globex"):
        await load(database, LONG, tenant=tenant)
        await load(database, SHORT, tenant=tenant, reweighs=False)
    assert unfinished(owner_url) == 2

    worker = Worker(
        JobQueue(database), partial(ingest, database, HashEmbedder()), reweigh=partial(reweigh_pending, database)
    )
    async with worker:
        while await asyncio.to_thread(unfinished, owner_url):  # noqa: ASYNC110 - the worker tells nobody
            await asyncio.sleep(0.05)

    assert weights(owner_url) == weights(owner_url, "globex")
    await load(database, [*LONG, *SHORT], tenant="straight")
    assert weights(owner_url) == weights(owner_url, "straight")


async def test_a_collection_that_cannot_be_weighed_keeps_none_from_its_turn(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    for tenant in (TENANT, "globex"):
        await load(database, LONG[:4], tenant=tenant)
        await load(database, SHORT[:3], tenant=tenant, reweighs=False)
    batch = passage_weights.reweigh_batch

    async def failing(connection: Any, tenant: str, number: int) -> bool:
        if tenant == TENANT:
            raise ZeroDivisionError
        return await batch(connection, tenant, number)

    with monkeypatch.context() as patch:
        patch.setattr(passage_weights, "reweigh_batch", failing)
        for _ in range(10):
            with pytest.raises(ZeroDivisionError):
                await reweigh_pending(database)

    assert unfinished(owner_url) == 1
    while await reweigh_pending(database):
        pass
    assert weights(owner_url) == weights(owner_url, "globex")


async def test_a_check_takes_weights_that_are_being_recomputed_for_no_error(database: Database):
    await load(database, LONG)
    await load(database, SHORT, reweighs=False)
    await reweigh_pending(database)
    viewer = unrestricted_viewer(TENANT)
    own: Collection = next(iter(await Catalogue(database).collections(viewer, fresh=True)))

    report = await CollectionChecker(database, HashEmbedder(), own, viewer).run()

    assert report.findings == ()


async def test_documents_that_expire_together_are_withdrawn_a_few_in_a_transaction(
    database: Database, owner_url: str, monkeypatch: pytest.MonkeyPatch
):
    withdrawn: list[int] = []
    uncount = derived_data.uncount_terms

    async def uncounted(connection: Any, tenant: str, number: int, ids: Sequence[str]) -> None:
        withdrawn.append(len(ids))
        await uncount(connection, tenant, number, ids)

    await load(database, [replace(one, expires_at=datetime(2090, 1, 1, tzinfo=UTC)) for one in LONG])
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE signalbox.document SET expires_at = now()")
        connection.execute("UPDATE signalbox.chunk SET expires_at = now()")
    monkeypatch.setattr(derived_data, "uncount_terms", uncounted)
    monkeypatch.setattr(derived_data, "_EXPIRED_AT_ONCE", 7)
    await load(database, SHORT)

    assert sum(withdrawn) == len(LONG)
    assert max(withdrawn) == 7
    await load(database, SHORT, tenant="straight")
    assert weights(owner_url) == weights(owner_url, "straight")
