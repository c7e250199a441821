"""Deliveries that take long do not hold up others."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import psycopg
import pytest

from retrievers.core import process_memory
from retrievers.embed import Vectors
from retrievers.ingest.jobs import delivery_queues, job_runner
from retrievers.ingest.jobs.delivery import delivery_of_file, delivery_of_records
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import Job
from retrievers.ingest.jobs.worker import Worker
from retrievers.ingest.run import ingest
from retrievers.postgres.connections.database import Database
from retrievers.testing import HashEmbedder

LARGE = "the turbine " * 200
SMALL = [{"id": "small", "text": "A small text."}]


class Slow(HashEmbedder):
    """Embeds no large text until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = asyncio.Event()
        self.held = 0
        self._more = asyncio.Condition()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if any("the turbine" in text for text in texts):
            async with self._more:
                self.held += 1
                self._more.notify_all()
            await self.let.wait()
        return await super().embed(texts)

    async def holds(self, deliveries: int) -> None:
        """Return when it holds that many deliveries."""
        async with self._more:
            await self._more.wait_for(lambda: self.held >= deliveries)


@pytest.fixture
def embedder() -> Slow:
    return Slow()


@pytest.fixture
def worker(database: Database, embedder: Slow, monkeypatch: pytest.MonkeyPatch) -> Worker:
    monkeypatch.setattr(delivery_queues, "SMALL_BYTES", 1000)
    return Worker(JobQueue(database), partial(ingest, database, embedder), head_start_s=0.0)


async def test_a_small_delivery_is_stored_while_large_ones_of_the_same_tenant_are_embedded(
    worker: Worker, embedder: Slow
):
    large = [
        asyncio.create_task(
            worker.run_delivery("acme", delivery_of_records(f"large{n}", [{"id": "large", "text": LARGE}]))
        )
        for n in range(3)
    ]
    await embedder.holds(2)
    _, report = await worker.run_delivery("acme", delivery_of_records("small", SMALL))
    held = embedder.held
    embedder.let.set()
    done = await asyncio.gather(*large)

    assert report is not None
    assert report.inserted == 1
    assert held == 2  # no more: what they hold fills the memory
    assert [one.inserted for _, one in done if one] == [1, 1, 1]


async def test_deliveries_of_many_tenants_that_are_being_embedded_hold_up_no_other(worker: Worker, embedder: Slow):
    large = [
        asyncio.create_task(
            worker.run_delivery(f"tenant{n}", delivery_of_records("large", [{"id": "large", "text": LARGE}]))
        )
        for n in range(3)
    ]
    await embedder.holds(3)
    _, report = await worker.run_delivery("acme", delivery_of_records("small", SMALL))
    embedder.let.set()
    await asyncio.gather(*large)

    assert report is not None
    assert report.inserted == 1


async def test_all_tenants_together_hold_a_limited_number_of_large_deliveries_and_small_ones_pass(
    database: Database, embedder: Slow, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery_queues, "SMALL_BYTES", 1000)
    monkeypatch.setattr(delivery_queues, "MOST_LARGE", 3)
    worker = Worker(JobQueue(database), partial(ingest, database, embedder))
    large = [
        asyncio.create_task(
            worker.run_delivery(f"tenant{n // 2}", delivery_of_records(f"c{n}", [{"id": "large", "text": LARGE}]))
        )
        for n in range(8)
    ]
    await embedder.holds(3)
    reports = [(await worker.run_delivery(f"tenant{n}", delivery_of_records("small", SMALL)))[1] for n in range(4)]
    held = embedder.held
    large.pop().cancel()  # while it waits
    embedder.let.set()
    done = await asyncio.gather(*large)

    assert [one.inserted for one in reports if one] == [1] * 4
    assert held == 3
    assert [one.inserted for _, one in done if one] == [1] * 7


async def test_those_that_wait_for_a_locked_collection_take_one_connection_together(
    worker: Worker, database: Database, owner_url: str
):
    await worker.run_delivery("acme", delivery_of_records("docs", SMALL))
    with psycopg.connect(owner_url, autocommit=True) as owner, owner.transaction(force_rollback=True):
        owner.execute("SELECT FROM signalbox.collection WHERE name = 'docs' FOR UPDATE")
        queued = [
            await worker.jobs.submit("acme", delivery_of_records("docs", [{"text": f"Text {n}."}])) for n in range(6)
        ]
        async with worker:
            waited = [
                asyncio.create_task(
                    worker.run_delivery("acme", delivery_of_records("docs", [{"text": f"{size} {n}."}]))
                )
                for n in range(3)
                for size in ("small", "large" * 1000)
            ]
            for _ in range(3000):
                begun = [(await worker.jobs.job("acme", id)).status for id in queued].count("running")
                if begun == 5 and _waiting_for_locks(owner):
                    break
                await asyncio.sleep(0.02)
            _, report = await worker.run_delivery("other", delivery_of_records("docs", SMALL))
            waiting = _waiting_for_locks(owner)
            owner.execute("ROLLBACK")
            done = await asyncio.gather(*waited)
            over = [await _over(worker.jobs, "acme", one) for one in queued]

    assert report is not None
    assert report.inserted == 1
    assert (begun, waiting) == (5, 1)
    assert [one.inserted for _, one in done if one] == [1] * 6
    assert [job.inserted for job in over] == [1] * 6


async def test_small_deliveries_are_written_while_large_ones_wait_to_be_written(
    worker: Worker, owner_url: str, embedder: Slow
):
    large = [
        asyncio.create_task(
            worker.run_delivery(tenant, delivery_of_records("locked", [{"id": "large", "text": LARGE}]))
        )
        for tenant in ("acme", "other")
    ]
    await embedder.holds(2)
    with psycopg.connect(owner_url, autocommit=True) as owner, owner.transaction(force_rollback=True):
        owner.execute("SELECT FROM signalbox.collection WHERE name = 'locked' FOR UPDATE")
        embedder.let.set()
        for _ in range(3000):
            if _waiting_for_locks(owner) == 2:
                break
            await asyncio.sleep(0.02)
        _, report = await worker.run_delivery("acme", delivery_of_records("free", SMALL))
        owner.execute("ROLLBACK")
        done = await asyncio.gather(*large)

    assert report is not None
    assert report.inserted == 1
    assert [one.inserted for _, one in done if one] == [1, 1]


def _waiting_for_locks(owner: "psycopg.Connection[Any]") -> int:
    row = owner.execute(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    ).fetchone()
    assert row is not None
    return int(row[0])


async def test_a_small_file_with_a_large_text_waits_with_the_large_ones(
    worker: Worker, embedder: Slow, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delivery_queues, "SMALL_BYTES", len(LARGE))  # of its documents as JSON it is less
    files = [
        asyncio.create_task(worker.run_delivery("acme", delivery_of_file("large", f"{n}.txt", LARGE.encode())))
        for n in range(5)
    ]
    await embedder.holds(2)
    _, report = await worker.run_delivery("acme", delivery_of_records("small", SMALL))
    held = embedder.held
    embedder.let.set()
    done = await asyncio.gather(*files)

    assert report is not None
    assert report.inserted == 1
    assert held == 2
    assert [one.inserted for _, one in done if one] == [1] * 5


async def test_small_files_that_take_long_to_read_hold_up_no_other(worker: Worker, monkeypatch: pytest.MonkeyPatch):
    reading, read = asyncio.Event(), job_runner.SANDBOX.run_in_thread

    async def held(function: Any) -> Any:
        if function.args[0] == "slow.txt":
            await reading.wait()
        return await read(function)

    monkeypatch.setattr(job_runner.SANDBOX, "run_in_thread", held)
    slow = [
        asyncio.create_task(worker.run_delivery("acme", delivery_of_file("slow", "slow.txt", b"Read late.")))
        for _ in range(4)
    ]
    for _ in range(3):
        _, report = await worker.run_delivery("acme", delivery_of_file("quick", "quick.txt", b"Read soon."))
    begun = [one.done() for one in slow]
    reading.set()
    await asyncio.gather(*slow)

    assert report is not None
    assert (report.inserted + report.unchanged, begun) == (1, [False] * 4)


async def test_long_jobs_of_the_queue_hold_up_no_other_up_to_a_number(worker: Worker, embedder: Slow):
    long = [
        await worker.jobs.submit("busy", delivery_of_records(f"large{n}", [{"id": "large", "text": LARGE}]))
        for n in range(4)
    ]
    async with worker:
        await embedder.holds(4)
        id = await worker.jobs.submit("acme", delivery_of_records("small", SMALL))
        worker.wake()
        small = await _over(worker.jobs, "acme", id)
        more = [
            await worker.jobs.submit("busy", delivery_of_records(f"more{n}", [{"id": "large", "text": LARGE}]))
            for n in range(2)
        ]
        worker.wake()
        await embedder.holds(5)
        unbegun = (await worker.jobs.job("busy", more[1])).status
        embedder.let.set()
        done = [await _over(worker.jobs, "busy", one) for one in long + more]

    assert (small.status, small.inserted) == ("done", 1)
    assert unbegun == "queued"
    assert [job.inserted for job in done] == [1] * 6


async def _over(jobs: JobQueue, tenant: str, id: str) -> Job:
    """Return a job when it is over."""
    for _ in range(3000):
        if (job := await jobs.job(tenant, id)).status not in ("queued", "running"):
            return job
        await asyncio.sleep(0.02)
    raise AssertionError("it never ended")


async def test_memory_is_given_back_after_a_small_file_with_a_large_text(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    given: list[str] = []
    now = ""
    monkeypatch.setattr(process_memory, "release_memory", lambda: given.append(now))
    worker = Worker(JobQueue(database), partial(ingest, database, HashEmbedder()))

    for now, rows in (("small", 10), ("large", 5_000)):
        data = b"id,text\n" + b"".join(b"%d,\n" % n for n in range(rows))  # without a text, each is refused
        _, report = await worker.run_delivery("acme", delivery_of_file(now, "rows.csv", data))
        assert report is not None
        assert len(report.failed) == rows

    assert len(data) < process_memory.LARGE_BYTES
    assert given == ["large"]
