"""Ingestion jobs: whatever happens to workers and dependencies, what was accepted ends up stored once."""

import asyncio
import os
import re
import runpy
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest

from retrievers.core.errors import BadRequest, EmbedderMismatch, NotFound, Unavailable
from retrievers.embed import Vectors
from retrievers.ingest.jobs import job_queue as queue
from retrievers.ingest.jobs.delivery import MAX_DOCUMENTS, Delivery, delivery_of_file, delivery_of_records
from retrievers.ingest.jobs.delivery_queues import SMALL_BYTES
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import Job, Lease, LostLease
from retrievers.ingest.jobs.worker import Worker
from retrievers.ingest.readers.file_input import read_record
from retrievers.ingest.report import IngestReport
from retrievers.ingest.run import ingest
from retrievers.postgres.connections.database import Database
from retrievers.sandbox import Sandbox
from retrievers.testing import HashEmbedder

ROOT = Path(__file__).resolve().parents[2]
TENANT = "acme"
DATA: dict[str, Any] = runpy.run_path(str(Path(__file__).with_name("data_files.py")))
WORDS = "turbine blade rotor bearing gear oil pitch tower bolt grid crew storm winter".split()


def record(n: int, text: str = "", **given: Any) -> dict[str, Any]:
    said = " ".join(WORDS[(n * k) % len(WORDS)] for k in range(1, 9))
    return {"id": f"d{n}", "title": f"Report {n}", "text": text or f"{said}. {said[::-1]}.", **given}


def worker_on(database: Database, embedder: HashEmbedder | None = None, *, lease_s: float = 30.0) -> Worker:
    return Worker(JobQueue(database, lease_s=lease_s), partial(ingest, database, embedder or HashEmbedder()))


async def drain(worker: Worker) -> None:
    """Carry out all that is due now."""
    while lease := await worker.jobs.lease_next():
        with suppress(BadRequest, Unavailable, LostLease):
            await worker.run_job(lease)


async def until_done(jobs: JobQueue, *ids: str) -> None:
    """Wait for somebody to carry out the jobs."""
    for _ in range(3000):
        if all([(await jobs.job(TENANT, id)).status == "done" for id in ids]):
            return
        await asyncio.sleep(0.02)
    raise AssertionError("nobody carried out the jobs")


async def until(so: Callable[[], bool]) -> None:
    """Wait for it to be so."""
    for _ in range(6000):
        if so():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never came to be so")


def owner(url: str, statement: str, *values: object) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode(), values)
        return cursor.fetchall() if cursor.description else []


def make_due(url: str) -> None:
    """Whoever held a job is not heard of for the time of its lease; what waits has waited long enough."""
    owner(url, "UPDATE signalbox.job SET free_at = now() WHERE status IN ('queued', 'running')")


def counts(job: Job) -> tuple[str, int, int, int, int]:
    return (job.status, job.inserted, job.updated, job.unchanged, job.failed)


_STORED = {
    "document": "SELECT id, title, body, metadata, fields, digest, chunks FROM signalbox.document WHERE tenant = %s",
    "chunk": """SELECT document_id, ordinal, body, embedding::text, bm25::text, chunk.fields, digest,
                       replace(lexemes::text, number || ':', '')
                FROM signalbox.chunk JOIN signalbox.collection USING (tenant)
                WHERE tenant = %s AND number = collection""",
    "term": "SELECT term, chunks FROM signalbox.term WHERE tenant = %s",
    "field_value": "SELECT field, value, number, documents FROM signalbox.field_value WHERE tenant = %s",
    "collection": """SELECT name, fields, documents, chunks, words, mean_length FROM signalbox.collection
                     WHERE tenant = %s""",
}


def stored(url: str, tenant: str = TENANT) -> dict[str, list[Any]]:
    """Everything that is stored for a tenant, apart from moments, numbers and versions."""
    return {name: sorted(map(repr, owner(url, query, tenant))) for name, query in _STORED.items()}


# What becomes of a job.


async def test_a_job_is_queued_then_done_with_its_counts_and_what_failed(database: Database):
    worker = worker_on(database)
    records = [record(0), record(1, text=7), record(2), "none", record(3)]  # type: ignore[arg-type]

    id = await worker.jobs.submit(TENANT, delivery_of_records("docs", records))
    before = await worker.jobs.job(TENANT, id)
    await drain(worker)
    job = await worker.jobs.job(TENANT, id)

    assert (*counts(before), before.documents, before.done) == ("queued", 0, 0, 0, 0, 5, 0)
    assert (*counts(job), job.done) == ("done", 3, 0, 0, 2, 5)
    assert [(one.index, one.id, one.reason) for one in job.failures] == [
        (1, "d1", '"text" is a number; it must be text'),
        (3, None, "text where an object was expected"),
    ]


async def test_a_delivery_that_is_waited_for_has_a_job_as_well(database: Database):
    worker = worker_on(database)

    id, report = await worker.run_delivery(TENANT, delivery_of_records("docs", [record(0), record(1)]))

    assert (report.inserted, report.failed) == (2, [])
    assert counts(await worker.jobs.job(TENANT, id)) == ("done", 2, 0, 0, 0)
    assert await worker.jobs.lease_next() is None


async def test_the_payload_goes_with_the_last_need_for_it(database: Database, owner_url: str):
    worker = worker_on(database)
    await worker.run_delivery(TENANT, delivery_of_records("docs", [record(0), record(1, text=7)]))  # type: ignore[arg-type]
    await worker.run_delivery(TENANT, delivery_of_file("docs", "good.txt", b"All is well."))
    await worker.run_delivery(TENANT, delivery_of_file("docs", "bad.jsonl", b'{"text": "good"}\n{"text": 7}\n'))

    kept = owner(owner_url, "SELECT file, length(payload) FROM signalbox.job ORDER BY delivery")
    letters = owner(owner_url, "SELECT index, convert_from(payload, 'UTF8') FROM signalbox.dead_letter ORDER BY place")

    assert kept == [(None, None), ("good.txt", None), ("bad.jsonl", 29)]
    assert letters == [(1, None), (1, '{"id": "d1", "title": "Report 1", "text": 7}')]


@pytest.mark.parametrize(
    ("made", "where"),
    [
        (lambda: delivery_of_records("docs", []), "documents"),
        (lambda: delivery_of_records("docs", [{}] * (MAX_DOCUMENTS + 1)), "documents"),
        (lambda: delivery_of_records("a/b", [{}]), "collection"),
        (lambda: delivery_of_records("docs", [{"text": "x" * (17 << 20)}]), "documents"),
        (lambda: delivery_of_records("docs", [{"text": object()}]), "documents"),
        (lambda: delivery_of_file("docs", "tool.exe", b"MZ"), "name"),
        (lambda: delivery_of_file("docs", "", b"x"), "name"),
        (lambda: delivery_of_file("docs", "a\nb.txt", b"x"), "name"),
        (lambda: delivery_of_file("docs", "x" * 513 + ".txt", b"x"), "name"),
    ],
)
def test_what_can_never_be_stored_is_refused_before_it_is_accepted(made: Callable[[], object], where: str):
    with pytest.raises(BadRequest) as caught:
        made()
    assert caught.value.where == where


async def test_a_file_is_read_by_its_content_under_a_name_that_is_only_data(database: Database, owner_url: str):
    worker = worker_on(database)
    name = "../../etc/<script>alert(1)</script>.md"

    id, report = await worker.run_delivery(TENANT, delivery_of_file("docs", name, b"No heading here."))

    assert report.failed == []
    assert (await worker.jobs.job(TENANT, id)).file == name
    assert owner(owner_url, "SELECT id, title FROM signalbox.document") == [(name, "script>")]


async def test_a_file_with_more_bad_lines_than_anybody_reads_ends_there(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.ingest.readers.file_input.MOST_FAILURES", 3)
    worker = worker_on(database)

    id, _ = await worker.run_delivery(
        TENANT, delivery_of_file("docs", "rows.jsonl", b'{"text": "good"}\n' + b"0\n" * 50)
    )

    job = await worker.jobs.job(TENANT, id)
    assert counts(job) == ("done", 1, 0, 0, 4)
    assert job.failures[-1].reason == "3 documents before this one are invalid: the rest was not read"


async def test_a_file_with_more_documents_than_are_held_at_once_ends_there(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.ingest.jobs.job_items.MOST_DOCUMENTS", 3)
    worker = worker_on(database)

    id, _ = await worker.run_delivery(TENANT, delivery_of_file("docs", "rows.csv", b"id,text\n" + b"".join(
        b"%d,good\n" % n for n in range(9))))  # fmt: skip

    job = await worker.jobs.job(TENANT, id)
    assert counts(job) == ("done", 3, 0, 0, 1)
    assert job.failures[-1].reason == "a file has at most 3 documents: send the rest in another one"


async def test_files_that_take_long_to_read_keep_nobody_else_waiting(database: Database):
    # Two at once are read of one tenant, which are as many as are stored at once of all.
    worker = worker_on(database)
    slow = delivery_of_file("docs", "slow.pdf", DATA["pdf"](DATA["text_on_page"]("word") * 150_000))
    busy = [asyncio.create_task(worker.run_delivery("busy", slow)) for _ in range(4)]
    await asyncio.sleep(0)

    _, records = await worker.run_delivery("rare", delivery_of_records("docs", [record(0)]))
    _, file = await worker.run_delivery("rare", delivery_of_file("docs", "good.md", b"# Good"))

    assert records is not None
    assert file is not None
    assert (records.inserted, file.inserted) == (1, 1)
    assert not any(task.done() for task in busy)
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


async def test_small_files_that_take_long_to_read_keep_no_other_file_waiting(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("retrievers.sandbox.reading_slots._LONG_S", 0.1)
    monkeypatch.setattr("retrievers.sandbox.pool._MOST_LONG", 1)
    sandbox = Sandbox(1)
    for module in ("readers.file_input", "jobs.job_runner"):
        monkeypatch.setattr(f"retrievers.ingest.{module}.SANDBOX", sandbox)
    worker = worker_on(database)
    cells = "<w:tc><w:p><w:r><w:t>x</w:t></w:r></w:p></w:tc>" * 300_000
    slow = delivery_of_file("docs", "slow.docx", DATA["word"](f"<w:tbl><w:tr>{cells}</w:tr></w:tbl>"))
    good = delivery_of_file("docs", "good.docx", DATA["word"]("<w:p><w:r><w:t>good</w:t></w:r></w:p>"))
    assert len(slow.payload) < SMALL_BYTES
    busy = [asyncio.create_task(worker.run_delivery(TENANT, slow)) for _ in range(3)]
    # One reads in the place for such files, one waits for it, and one reads in the place of all files.
    while not (sandbox._long.waiting and len(sandbox._busy) == 2):  # noqa: ASYNC110 - it has no event
        await asyncio.sleep(0.01)

    _, file = await worker.run_delivery(TENANT, good)

    assert file is not None
    assert file.inserted == 1
    assert not any(task.done() for task in busy)
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)
    sandbox.end_processes()


async def test_jobs_of_one_tenant_that_take_long_keep_no_other_tenant_waiting(database: Database):
    may_end = asyncio.Event()

    async def held(tenant: str, *given: Any, **more: Any) -> IngestReport:
        if tenant == "busy":
            await may_end.wait()
        return await ingest(database, HashEmbedder(), tenant, *given, **more)

    worker = Worker(JobQueue(database), held, head_start_s=0)
    busy = [await worker.jobs.submit("busy", delivery_of_records(f"docs{n}", [record(n)])) for n in range(7)]

    async def states() -> Counter[str]:
        return Counter([(await worker.jobs.job("busy", id)).status for id in busy])

    async with worker, asyncio.timeout(120):
        while (await states())["running"] < 5:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)
        await until_done(
            worker.jobs, *[await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(n)])) for n in (0, 1)]
        )
        assert await states() == {"running": 5, "queued": 2}
        may_end.set()
        while await states() != {"done": 7}:  # noqa: ASYNC110 - it has no event
            await asyncio.sleep(0.02)


class Returning:
    """A worker whose documents are never stored, and whose jobs are returned to the queue when the test says so."""

    def __init__(self, database: Database) -> None:
        self.storing, self.returning, self.may_return = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self.worker = Worker(JobQueue(database), self._ingest)
        self._requeue, self.worker.jobs.requeue = self.worker.jobs.requeue, self._late  # type: ignore[method-assign]

    async def _ingest(self, *_: Any, **__: Any) -> IngestReport:
        self.storing.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def _late(self, *given: Any, **more: Any) -> None:
        self.returning.set()
        await self.may_return.wait()
        await self._requeue(*given, **more)

    async def run_delivery(self, deadline: float | None = None) -> None:
        await self.worker.run_delivery(TENANT, delivery_of_records("docs", [record(0)]), deadline=deadline)


async def test_a_job_is_returned_to_the_queue_also_if_its_caller_is_cancelled_again(database: Database, owner_url: str):
    one = Returning(database)
    delivering = asyncio.create_task(one.run_delivery())
    for event in (one.storing, one.returning):
        await event.wait()
        delivering.cancel()
    await asyncio.wait({delivering})
    asyncio.get_running_loop().call_later(0.1, one.may_return.set)
    await one.worker.stop()
    assert owner(owner_url, "SELECT status, lease FROM signalbox.job") == [("queued", None)]


async def test_a_job_is_returned_to_the_queue_also_if_its_worker_is_stopped_twice(database: Database, owner_url: str):
    one = Returning(database)
    await one.run_delivery(deadline=0.0)
    await one.storing.wait()
    first = asyncio.create_task(one.worker.stop())
    await one.returning.wait()
    second = asyncio.create_task(one.worker.stop())
    asyncio.get_running_loop().call_later(0.1, one.may_return.set)
    await asyncio.gather(first, second)
    assert owner(owner_url, "SELECT status, lease FROM signalbox.job") == [("queued", None)]


async def test_a_worker_that_is_stopped_while_it_deletes_what_has_expired_takes_no_job(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    worker = worker_on(database)
    id = await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(0)]))
    deleting, may_end = asyncio.Event(), asyncio.Event()

    async def run() -> None:
        deleting.set()
        await may_end.wait()

    async def lease_next(**_: Any) -> None:
        raise AssertionError("a job was asked for")

    monkeypatch.setattr(worker.jobs.expiry, "run", run)
    monkeypatch.setattr(worker.jobs, "lease_next", lease_next)
    monkeypatch.setattr("retrievers.ingest.jobs.worker._REST_S", 3600.0)
    async with worker:
        await deleting.wait()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        may_end.set()
        async with asyncio.timeout(60):
            await stopping
    assert (await worker.jobs.job(TENANT, id)).status == "queued"


# Killing.

WORKER = """
import asyncio, os, signal, sys
from functools import partial
from retrievers.ingest import run
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.run import ingest
from retrievers.ingest.jobs.worker import Worker
from retrievers.postgres.connections.database import Database
from retrievers.testing import HashEmbedder

owner, service, point, count = sys.argv[1:4] + [int(sys.argv[4])]
run._BATCH_PASSAGES = run._SAMPLE_PASSAGES = 16

def passed(where):
    global count
    if where == point:
        count -= 1
        if count == 0:
            os.kill(os.getpid(), signal.SIGKILL)

class Embedder(HashEmbedder):
    async def embed(self, texts):
        passed("embedding")
        if any("poison" in text for text in texts):
            passed("poison")
        return await super().embed(texts)

class Watched(JobQueue):
    async def load_content(self, lease):
        work = await super().load_content(lease)
        passed("loaded")
        return work
    async def record_batch(self, connection, lease, **counts):
        passed("in the transaction")
        await super().record_batch(connection, lease, **counts)
        passed("before the commit")
    async def finish(self, lease, **said):
        passed("before the end")
        await super().finish(lease, **said)
        passed("after the end")

async def main():
    async with Database(owner, service, size=4) as database:
        worker = Worker(Watched(database), partial(ingest, database, Embedder()))
        while lease := await worker.jobs.lease_next():
            await worker.run_job(lease)

asyncio.run(main())
"""


def work_until_killed(owner_url: str, service_url: str, point: str, count: int) -> None:
    arguments = [sys.executable, "-c", WORKER, owner_url, service_url, point, str(count)]
    died = subprocess.run(arguments, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (died.returncode, died.stderr) == (-signal.SIGKILL, "")


FIRST = [record(n, metadata={"year": 2000 + n % 20, "team": WORDS[n % 5]}) for n in range(130)]
SECOND = [
    *FIRST[:60],
    *(record(n, text=f"Changed to {WORDS[n % 13]} {n}.", metadata={"year": 1990 + n}) for n in range(60, 130)),
    *(record(n, text=" ".join(WORDS * (n % 40))) for n in range(1000, 1070)),
]


@pytest.mark.slow
async def test_killing_a_worker_anywhere_loses_nothing_doubles_nothing_and_counts_right(
    owner_url: str, service_url: str
):
    points = [("loaded", 1), ("embedding", 2), ("in the transaction", 1), ("before the commit", 4),
              ("before the end", 1), ("after the end", 1)]  # fmt: skip
    async with Database(owner_url, service_url, size=4) as database:
        worker = worker_on(database)
        await worker.run_delivery("straight", delivery_of_records("docs", FIRST))
        await worker.run_delivery("straight", delivery_of_records("docs", SECOND))
        expected = stored(owner_url, "straight")
        assert len(expected["document"]) == 200
        for point, count in points:
            tenant = f"{point} {count}"
            await worker.run_delivery(tenant, delivery_of_records("docs", FIRST))
            id = await worker.jobs.submit(tenant, delivery_of_records("docs", SECOND))

            await asyncio.to_thread(work_until_killed, owner_url, service_url, point, count)
            make_due(owner_url)
            await drain(worker)

            assert stored(owner_url, tenant) == expected, point
            assert counts(await worker.jobs.job(tenant, id)) == ("done", 70, 70, 60, 0), point


async def test_a_document_workers_die_of_is_parked_and_what_is_behind_it_goes_on(
    database: Database, owner_url: str, service_url: str
):
    worker = worker_on(database)
    records = [record(0), record(1, text="This is poison."), record(2)]
    poisoned = await worker.jobs.submit(TENANT, delivery_of_records("docs", records))

    await asyncio.to_thread(work_until_killed, owner_url, service_url, "poison", 1)
    behind = await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(9)]))
    await drain(worker)  # the lease of the dead worker has not ended yet
    assert counts(await worker.jobs.job(TENANT, behind)) == ("done", 1, 0, 0, 0)
    for _ in range(3):
        make_due(owner_url)
        await asyncio.to_thread(work_until_killed, owner_url, service_url, "poison", 1)
    make_due(owner_url)
    await drain(worker)

    job = await worker.jobs.job(TENANT, poisoned)
    assert counts(job) == ("done", 2, 0, 0, 1)
    assert [(one.index, one.reason) for one in job.failures] == [(1, "given up: workers died while they stored it")]


class Poisoned(HashEmbedder):
    """Fails in a way that nobody foresaw, over one word."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if any("poison" in text for text in texts):
            raise KeyError("poison")
        return await super().embed(texts)


async def test_a_document_with_an_unforeseen_error_is_parked_at_once_and_loses_nobody_else(database: Database):
    worker = worker_on(database, Poisoned())
    records = [record(0), record(1, text="This is poison."), record(2), record(2, text="Another text.")]

    id, _ = await worker.run_delivery(TENANT, delivery_of_records("docs", records))

    job = await worker.jobs.job(TENANT, id)
    assert counts(job) == ("done", 2, 0, 0, 2)
    assert [(one.index, one.reason) for one in job.failures] == [
        (1, "unexpected KeyError: see the log"),
        (3, 'the id "d2" was already given in this delivery; this one was left out'),
    ]


async def test_a_job_no_worker_ever_comes_back_from_is_given_up(database: Database, owner_url: str):
    worker = worker_on(database)
    id = await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(0)]))
    owner(owner_url, "UPDATE signalbox.job SET deaths = 10")

    await drain(worker)

    job = await worker.jobs.job(TENANT, id)
    assert (job.status, job.error) == ("failed", "given up: 10 workers died during this job")


# Leases.


async def test_workers_share_a_queue_and_each_job_is_carried_out_once(owner_url: str, service_url: str):
    embedders = [HashEmbedder(), HashEmbedder()]
    async with Database(owner_url, service_url, size=3) as one, Database(owner_url, service_url, size=3) as other:
        first, second = worker_on(one, embedders[0]), worker_on(other, embedders[1])
        ids = [await first.jobs.submit(TENANT, delivery_of_records("docs", [record(n)])) for n in range(20)]

        async with first, second:
            await until_done(first.jobs, *ids)

        assert [counts(await first.jobs.job(TENANT, id)) for id in ids] == [("done", 1, 0, 0, 0)] * 20
    assert sorted(text for one in embedders for text in one.embedded) == sorted(
        f"{record(n)['title']}\n{record(n)['text']}" for n in range(20)
    )
    assert all(one.embedded for one in embedders)


class Earlier(JobQueue):
    """The queue as a process of an earlier version asks for it."""

    async def lease_next(self) -> Lease | None:
        async with self._database.connection() as connection:
            values = (self._database.worker_scope(), self.lease_s)
            await connection.execute("SELECT tenant, id, lease FROM signalbox.take_job(%s, %s)", values)
        return None


@pytest.mark.usefixtures("sparing_log")
async def test_a_worker_of_an_earlier_version_accepts_jobs_takes_none_and_goes_on(
    database: Database, caplog: pytest.LogCaptureFixture
):
    earlier = Worker(Earlier(database), partial(ingest, database, HashEmbedder()))
    async with earlier:
        id = await earlier.jobs.submit("acme", delivery_of_records("docs", [{"id": "a", "text": "oil"}]))
        async with asyncio.timeout(60):
            while "no job could be taken" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert (await earlier.jobs.job("acme", id)).status == "queued"
        assert earlier.is_polling
    later = Worker(JobQueue(database), partial(ingest, database, HashEmbedder()))
    lease = await later.jobs.lease_next()
    assert lease is not None
    await later.run_job(lease)
    assert (await later.jobs.job("acme", id)).status == "done"


async def test_a_worker_that_lost_its_lease_writes_nothing_more(database: Database, owner_url: str):
    worker = worker_on(database)
    await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(0)]))
    late = await worker.jobs.lease_next()
    assert late is not None
    work = await worker.jobs.load_content(late)
    make_due(owner_url)
    taken = await worker.jobs.lease_next()
    assert taken is not None

    async def written(connection: Any, report: Any, inserted: int, updated: int) -> None:
        await worker.jobs.record_batch(connection, late, inserted=inserted, updated=updated, done=1, failed=0)

    items = [read_record(record(0), "documents.0")]
    with pytest.raises(LostLease):
        await ingest(database, HashEmbedder(), TENANT, "docs", items, delivery=work.delivery, on_write=written)
    assert owner(owner_url, "SELECT count(*) FROM signalbox.document") == [(0,)]
    with pytest.raises(LostLease):
        await worker.run_job(late)

    await worker.run_job(taken)
    assert owner(owner_url, "SELECT count(*) FROM signalbox.document") == [(1,)]


class Slow(HashEmbedder):
    """Embeds nothing until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.let = asyncio.Event(), asyncio.Event()
        self.waiting: list[Sequence[str]] = []

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.waiting.append(texts)
        self.asked.set()
        await self.let.wait()
        return await super().embed(texts)


async def test_a_long_job_keeps_its_lease(database: Database, owner_url: str):
    embedder = Slow()
    worker, other = worker_on(database, embedder, lease_s=4), worker_on(database)
    id = await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(0)]))

    async with worker:
        await embedder.asked.wait()
        [(first_end,)] = owner(owner_url, "SELECT free_at FROM signalbox.job")
        await until(lambda: owner(owner_url, "SELECT now() > %s", first_end) == [(True,)])
        assert await other.jobs.lease_next() is None
        embedder.let.set()
        await until_done(worker.jobs, id)


async def test_a_renewal_while_the_result_is_recorded_does_not_take_the_job_for_lost(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    worker = worker_on(database, lease_s=3)
    finish = worker.jobs.finish

    async def slow(*args: Any, **options: Any) -> None:
        await finish(*args, **options)
        await asyncio.sleep(1.5)  # the lease is renewed after 1 s

    monkeypatch.setattr(worker.jobs, "finish", slow)
    _, report = await worker.run_delivery(TENANT, delivery_of_records("docs", [record(0), "no object"]))
    assert report is not None
    assert (report.inserted, len(report.failed)) == (1, 1)


async def test_a_worker_that_is_closed_gives_its_job_back(database: Database, owner_url: str):
    embedder = Slow()
    worker = worker_on(database, embedder)
    id = await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(0)]))

    async with worker:
        await embedder.asked.wait()
    job = await worker.jobs.job(TENANT, id)

    assert (job.status, job.error, job.next_try_at) == ("queued", None, None)
    assert owner(owner_url, "SELECT lease, deaths, tries, free_at <= now() FROM signalbox.job") == [(None, 0, 0, True)]
    await drain(worker_on(database))
    assert counts(await worker.jobs.job(TENANT, id)) == ("done", 1, 0, 0, 0)


async def test_a_caller_who_goes_away_leaves_the_job_to_the_workers(database: Database):
    embedder = Slow()
    worker = worker_on(database, embedder)

    waiting = asyncio.create_task(worker.run_delivery(TENANT, delivery_of_records("docs", [record(0)])))
    await embedder.asked.wait()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    await drain(worker_on(database))

    (job,) = await worker.jobs.recent_jobs(TENANT, 10)
    assert counts(job) == ("done", 1, 0, 0, 0)


async def test_a_waited_delivery_is_let_go_when_the_database_hangs_and_the_next_one_is_carried_out(
    owner_url: str, service_url: str
):
    async with Database(owner_url, service_url, size=2) as database:
        embedder = Slow()
        jobs = JobQueue(database, lease_s=6, patience_s=3)
        worker = Worker(jobs, partial(ingest, database, embedder))
        stuck = [
            asyncio.create_task(worker.run_delivery(f"tenant {n}", delivery_of_records("docs", [record(0)])))
            for n in range(3)
        ]
        await until(lambda: len(embedder.waiting) == 3)
        await asyncio.gather(*(database.fetch(TENANT, "SELECT pg_sleep(0.1)", ()) for _ in range(2)))
        with hung(owner_url):
            embedder.let.set()
            with pytest.raises(Unavailable, match=r"^the database is unavailable: no answer within 3 s$") as caught:
                await worker.run_delivery(TENANT, delivery_of_records("docs", [record(0)]))
            said = await asyncio.gather(*stuck, return_exceptions=True)

        assert caught.value.retry_after_s == 5
        for one in said:
            assert re.search(r"no answer for 6 s; job \w+ keeps the documents and is tried again$", str(one))
        id, report = await worker_on(database).run_delivery(TENANT, delivery_of_records("docs", [record(0)]))
        assert report.inserted == 1
        again, _ = await worker.run_delivery(TENANT, delivery_of_records("docs", [record(0)]))
        assert again != id


@contextmanager
def hung(owner_url: str) -> Iterator[None]:
    """The server's processes that serve a database are stopped; they go on afterwards."""
    pids = owner(
        owner_url, "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )

    def send(what: signal.Signals) -> None:
        for (pid,) in pids:
            with suppress(ProcessLookupError):  # it has ended since it was listed
                os.kill(pid, what)

    try:
        send(signal.SIGSTOP)
        yield
    finally:
        send(signal.SIGCONT)


async def test_many_waited_deliveries_of_one_tenant_hold_up_no_other(database: Database):
    begun: list[str] = []
    order: list[str] = []
    let = asyncio.Event()

    class Noted(JobQueue):
        async def submit_leased(self, tenant: str, delivery: Delivery) -> Lease:
            lease = await super().submit_leased(tenant, delivery)
            begun.append(tenant)
            return lease

    async def noted(tenant: str, *rest: Any, **options: Any) -> IngestReport:
        order.append(tenant)
        await let.wait()
        return await ingest(database, HashEmbedder(), tenant, *rest, **options)

    worker = Worker(Noted(database), noted)
    busy = [
        asyncio.create_task(worker.run_delivery("busy", delivery_of_records("docs", [record(n)]))) for n in range(8)
    ]
    await until(lambda: len(order) == 2)
    rare = asyncio.create_task(worker.run_delivery("rare", delivery_of_records("docs", [record(0)])))
    await until(lambda: len(begun) == 9)
    await asyncio.sleep(0.2)  # written down, all of them; now they stand in their lines
    let.set()
    await asyncio.gather(*busy, rare)

    assert order == ["busy", "busy", "rare", *["busy"] * 6]


# Dependencies.


class Down(HashEmbedder):
    """An embedder that is down until it is up."""

    up = False

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if not self.up:
            raise Unavailable("the embedder", "no answer")
        return await super().embed(texts)


async def test_a_dependency_that_is_down_puts_a_job_off_for_longer_each_time(database: Database, owner_url: str):
    embedder = Down()
    worker = worker_on(database, embedder)
    id = await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(0)]))

    waits = []
    for _ in range(3):
        make_due(owner_url)
        await drain(worker)
        waits += owner(owner_url, "SELECT round(extract(epoch FROM free_at - now()))::integer FROM signalbox.job")
    job = await worker.jobs.job(TENANT, id)
    embedder.up = True
    make_due(owner_url)
    await drain(worker)

    assert waits == [(1,), (2,), (4,)]
    assert (job.status, job.error) == ("queued", "the embedder is unavailable: no answer")
    assert job.next_try_at is not None
    assert counts(await worker.jobs.job(TENANT, id)) == ("done", 1, 0, 0, 0)


async def test_a_job_whose_dependency_never_comes_back_fails_with_the_reason(database: Database, owner_url: str):
    worker = worker_on(database, Down())
    id = await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(0)]))
    owner(owner_url, "UPDATE signalbox.job SET tries = 99")

    await drain(worker)

    job = await worker.jobs.job(TENANT, id)
    assert (job.status, job.error) == ("failed", "given up after 100 tries: the embedder is unavailable: no answer")


async def test_who_waits_is_told_which_job_goes_on_when_a_dependency_fails(database: Database, owner_url: str):
    embedder = Down()
    worker = worker_on(database, embedder)

    with pytest.raises(Unavailable) as caught:
        await worker.run_delivery(TENANT, delivery_of_records("docs", [record(0)]))

    (job,) = await worker.jobs.recent_jobs(TENANT, 10)
    assert str(caught.value) == (
        f"the embedder is unavailable: no answer; job {job.id} keeps the documents and is tried again"
    )
    embedder.up = True
    make_due(owner_url)
    await drain(worker)
    assert counts(await worker.jobs.job(TENANT, job.id)) == ("done", 1, 0, 0, 0)


async def test_a_job_that_can_never_be_done_fails_and_a_retry_does_it_once_the_cause_is_mended(database: Database):
    await worker_on(database).run_delivery(TENANT, delivery_of_records("docs", [record(0)]))
    other = worker_on(database, HashEmbedder(name="other"))

    with pytest.raises(EmbedderMismatch):
        await other.run_delivery(TENANT, delivery_of_records("docs", [record(1)]))
    failed = (await other.jobs.recent_jobs(TENANT, 1))[0]
    again = await other.jobs.retry(TENANT, failed.id)
    await drain(worker_on(database))

    assert failed.status == "failed"
    assert failed.error is not None
    assert "holds vectors of the embedder hash" in failed.error
    assert again.status == "queued"
    assert counts(await other.jobs.job(TENANT, failed.id)) == ("done", 1, 0, 0, 0)


# Trying again.


async def test_thousands_of_failed_documents_are_recorded_in_a_few_statements(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    sent: list[int] = []

    class Counted(psycopg.AsyncCursor[Any]):
        async def execute(self, *values: Any, **options: Any) -> Any:
            sent.append(1)
            return await super().execute(*values, **options)

        async def executemany(self, query: Any, rows: Any, **options: Any) -> None:
            sent.append(len(list(rows)))
            await super().executemany(query, rows, **options)

    class Watched(JobQueue):
        async def finish(self, *values: Any, **options: Any) -> None:
            with monkeypatch.context() as patch:
                patch.setattr(psycopg.AsyncConnection, "cursor", lambda self, **how: Counted(self))
                await super().finish(*values, **options)

    worker = Worker(Watched(database), partial(ingest, database, HashEmbedder()))
    _, report = await worker.run_delivery(TENANT, delivery_of_records("docs", [{"text": 7}] * 9000))

    assert len(report.failed) == 9000
    assert sum(sent) < 100


async def test_a_retry_tries_only_what_failed_and_keeps_what_fails_again(database: Database):
    embedder = Poisoned()
    worker = worker_on(database, embedder)
    records = [record(0), record(1, text="This is poison."), record(2, text=7)]  # type: ignore[arg-type]
    id, _ = await worker.run_delivery(TENANT, delivery_of_records("docs", records))

    mended = HashEmbedder()
    await worker.jobs.retry(TENANT, id)
    await drain(worker_on(database, mended))

    job = await worker.jobs.job(TENANT, id)
    assert (*counts(job), job.done) == ("done", 2, 0, 0, 1, 3)
    assert [(one.index, one.id) for one in job.failures] == [(2, "d2")]
    assert mended.embedded == ["Report 1\nThis is poison."]


async def test_a_connection_that_carried_a_large_record_is_not_kept(
    database: Database, monkeypatch: pytest.MonkeyPatch
):
    """Its buffers would stay as large: for each connection of the pool a copy of the largest record."""
    carried: list[int] = []
    monkeypatch.setattr(database, "retire", lambda connection, size: carried.append(size))
    worker = worker_on(database)
    delivery = delivery_of_records("notes", [record(1, "x" * 3_000_000), record(2, "y" * 1_500_000)])
    id = await worker.jobs.submit(TENANT, delivery)
    await drain(worker)
    assert [size > 1_000_000 for size in carried] == [True, True, True, True]  # queued, read, stored, failed
    await worker.jobs.retry(TENANT, id)
    del carried[:]
    await drain(worker)
    assert max(carried) > 3_000_000


async def test_a_retry_never_replaces_what_came_later(database: Database, owner_url: str):
    worker = worker_on(database, Poisoned())
    id, _ = await worker.run_delivery(TENANT, delivery_of_records("docs", [record(1, text="This is poison.")]))
    await worker.run_delivery(TENANT, delivery_of_records("docs", [record(1, text="Mended by hand.")]))

    await worker.jobs.retry(TENANT, id)
    await drain(worker_on(database))

    assert owner(owner_url, "SELECT body FROM signalbox.document") == [("Mended by hand.",)]
    assert counts(await worker.jobs.job(TENANT, id)) == ("done", 0, 0, 1, 0)


async def test_a_retry_of_what_did_not_fail_or_is_not_over_says_so(database: Database):
    worker = worker_on(database)
    id, _ = await worker.run_delivery(TENANT, delivery_of_records("docs", [record(0)]))
    waiting = await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(1)]))

    with pytest.raises(BadRequest, match="none of its documents failed"):
        await worker.jobs.retry(TENANT, id)
    with pytest.raises(BadRequest, match="it is already queued"):
        await worker.jobs.retry(TENANT, waiting)


# Delivery.


async def test_every_batch_delivered_thrice_in_parallel_and_in_any_order_leaves_one_state(
    database: Database, owner_url: str
):
    batches = [FIRST[start : start + 20] for start in range(0, 120, 20)]
    worker = worker_on(database)
    for batch in batches:
        await worker.run_delivery("straight", delivery_of_records("docs", batch))

    for batch in [*batches, *reversed(batches), *batches]:
        await worker.jobs.submit(TENANT, delivery_of_records("docs", batch))
    await asyncio.gather(*(drain(worker_on(database)) for _ in range(3)))

    jobs = await worker.jobs.recent_jobs(TENANT, 100)
    assert stored(owner_url) == stored(owner_url, "straight")
    assert sum(job.inserted + job.updated for job in jobs) >= 120
    assert all(job.status == "done" and job.failed == 0 for job in jobs)
    before = owner(owner_url, "SELECT id, xmin::text, ctid::text FROM signalbox.document ORDER BY 1")
    await worker.run_delivery(TENANT, delivery_of_records("docs", FIRST[:120]))
    assert owner(owner_url, "SELECT id, xmin::text, ctid::text FROM signalbox.document ORDER BY 1") == before


async def test_the_delivery_accepted_last_wins_whichever_is_carried_out_last(database: Database, owner_url: str):
    worker = worker_on(database)
    texts = ["First.", "Second.", "First."]
    for text in texts:
        await worker.jobs.submit(
            TENANT, delivery_of_records("docs", [record(0, text=text), record(1, text=f"{text} Again.")])
        )
    first, second, third = [await worker.jobs.lease_next() for _ in texts]

    for lease in (first, third, second):
        assert lease is not None
        await worker.run_job(lease)

    assert owner(owner_url, "SELECT body FROM signalbox.document ORDER BY id") == [("First.",), ("First. Again.",)]


async def test_a_deleted_collection_ends_its_jobs(database: Database):
    worker = worker_on(database)
    id = await worker.jobs.submit(TENANT, delivery_of_records("docs", [record(0)]))
    other = await worker.jobs.submit(TENANT, delivery_of_records("other", [record(0)]))
    lease = await worker.jobs.lease_next()
    assert lease is not None

    async with database.transaction(TENANT) as connection:
        await queue.cancel_collection_jobs(connection, TENANT, "docs")

    with pytest.raises(LostLease):
        await worker.run_job(lease)
    job = await worker.jobs.job(TENANT, id)
    assert (job.status, job.error) == ("failed", "the collection was deleted")
    assert (await worker.jobs.job(TENANT, other)).status == "queued"


async def test_a_deleted_collection_leaves_no_document_in_its_jobs(database: Database, owner_url: str):
    worker = worker_on(database)
    bad = [record(0), record(1, text=7)]  # type: ignore[arg-type]
    done, _ = await worker.run_delivery(TENANT, delivery_of_records("docs", bad))
    file, _ = await worker.run_delivery(
        TENANT, delivery_of_file("docs", "bad.jsonl", b'{"text": "good"}\n{"text": 7}\n')
    )
    waiting = await worker.jobs.submit(TENANT, delivery_of_records("docs", bad))
    kept = [
        await worker.jobs.submit(TENANT, delivery_of_records("other", bad)),
        await worker.jobs.submit("rival", delivery_of_records("docs", bad)),
    ]

    async with database.transaction(TENANT) as connection:
        await queue.cancel_collection_jobs(connection, TENANT, "docs")

    payloads = owner(owner_url, "SELECT id FROM signalbox.job WHERE payload IS NOT NULL ORDER BY delivery")
    assert [id.hex for (id,) in payloads] == kept
    assert owner(owner_url, "SELECT count(*) FROM signalbox.dead_letter WHERE payload IS NOT NULL") == [(0,)]
    for id in (done, file, waiting):
        with pytest.raises(BadRequest, match="its failed documents were deleted since; send them again"):
            await worker.jobs.retry(TENANT, id)
    assert [(one.index, one.id) for one in (await worker.jobs.job(TENANT, done)).failures] == [(1, "d1")]


async def test_a_deleted_document_is_in_no_dead_letter_and_no_retry_brings_it_back(database: Database, owner_url: str):
    worker = worker_on(database, Poisoned())
    records = [record(n, text="This is poison.") for n in range(2)]
    id, _ = await worker.run_delivery(TENANT, delivery_of_records("docs", records))
    other, _ = await worker.run_delivery(TENANT, delivery_of_records("other", records))

    async with database.transaction(TENANT) as connection:
        await queue.forget_document_payloads(connection, TENANT, "docs", ["d1"])
    letters = owner(
        owner_url, "SELECT job, index FROM signalbox.dead_letter WHERE payload IS NOT NULL ORDER BY failed_at, index"
    )
    await worker.jobs.retry(TENANT, id)
    await drain(worker_on(database))
    job = await worker.jobs.job(TENANT, id)

    assert [(job.hex, index) for job, index in letters] == [(id, 0), (other, 0), (other, 1)]
    assert (*counts(job), job.done) == ("done", 1, 0, 0, 1, 2)
    assert [(one.index, one.reason) for one in job.failures] == [(1, "it was deleted since")]
    with pytest.raises(BadRequest, match="its failed documents were deleted since"):
        await worker.jobs.retry(TENANT, id)


# Other tests write to the same server, so that its WAL says nothing of this commit: the commit's setting does.
_RECORD_COMMITS = """
    CREATE TABLE commits (job uuid, setting text);
    CREATE FUNCTION record_commit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
    BEGIN
        INSERT INTO public.commits VALUES (NEW.id, current_setting('synchronous_commit'));
        RETURN NULL;
    END $$;
    CREATE CONSTRAINT TRIGGER record_commit AFTER INSERT ON signalbox.job
        DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION record_commit()
"""


@pytest.mark.parametrize("setting", ["off", "local", "remote_apply"])
async def test_what_is_acknowledged_is_on_disk_even_where_the_server_is_set_to_say_so_before(
    owner_url: str, service_url: str, setting: str
):
    ((name,),) = owner(owner_url, "SELECT current_database()")
    owner(owner_url, f"ALTER DATABASE {name} SET synchronous_commit = {setting}")
    async with Database(owner_url, service_url, size=2) as database:
        owner(owner_url, _RECORD_COMMITS)
        id = await JobQueue(database).submit(TENANT, delivery_of_records("docs", [record(0)]))

    # A setting that waits for more than the own disk is left as it is.
    expected = setting if setting == "remote_apply" else "on"
    assert owner(owner_url, "SELECT job, setting FROM commits") == [(UUID(id), expected)]


# Tenants.


async def test_a_job_of_another_tenant_does_not_exist(database: Database):
    jobs = JobQueue(database)
    id = await jobs.submit(TENANT, delivery_of_records("docs", [record(0)]))
    none = "0" * 32

    said = []
    for asked in (id, none):
        for ask in (jobs.job, jobs.retry):
            with pytest.raises(NotFound) as caught:
                await ask("rival", asked)
            said.append(str(caught.value).replace(asked, "ID"))
    assert len(set(said)) == 1
    assert await jobs.recent_jobs("rival", 10) == []
    for malformed in ("", "x", "../..", "é" * 500):
        with pytest.raises(NotFound):
            await jobs.job(TENANT, malformed)


EXPIRING = {
    "job": "INSERT INTO signalbox.job (tenant, id, collection, status, expires_at)"
    " VALUES (%s, gen_random_uuid(), 'docs', 'done', now() + %s::interval)",
    "trace": "INSERT INTO signalbox.trace (tenant, id, expires_at, request, record)"
    " VALUES (%s, gen_random_uuid(), now() + %s::interval, '{}', '{}')",
    "conversation": "INSERT INTO signalbox.conversation (tenant, id, expires_at)"
    " VALUES (%s, gen_random_uuid()::text, now() + %s::interval)",
    "exchange": "INSERT INTO signalbox.exchange (tenant, id, question, expires_at)"
    " VALUES (%s, gen_random_uuid(), 'Why?', now() + %s::interval)",
    "feedback_label": "WITH said AS (INSERT INTO signalbox.feedback (tenant, trace) VALUES (%s, gen_random_uuid())"
    " RETURNING tenant, trace) INSERT INTO signalbox.feedback_label (tenant, id, expires_at)"
    " SELECT tenant, trace, now() + %s::interval FROM said",
}


async def test_a_worker_deletes_what_has_expired_of_tenants_that_never_come_again(database: Database, owner_url: str):
    for insert in EXPIRING.values():
        for tenant in ("gone", "gone too", "there"):
            for after in ("-1 s", "1 h") if tenant == "there" else ("-1 s", "-1 h"):
                owner(owner_url, insert, tenant, after)
    owner(owner_url, "INSERT INTO signalbox.dead_letter SELECT tenant, id, 0, '', '', '', 'x' FROM signalbox.job")
    owner(owner_url, "INSERT INTO signalbox.message SELECT tenant, id, 1, 'user', 'x' FROM signalbox.conversation")

    async with worker_on(database):
        await until(lambda: owner(owner_url, "SELECT count(*) FROM signalbox.exchange") == [(1,)])

    for name in (*EXPIRING, "dead_letter", "message"):
        assert owner(owner_url, f"SELECT tenant FROM signalbox.{name}") == [("there",)], name  # noqa: S608


async def test_only_a_worker_s_pass_sweeps_and_its_role_can_delete_nothing_else(database: Database, owner_url: str):
    for scope in (database.scope(TENANT), database.scope("worker"), "", "\nworker"):
        async with database.connection() as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute("SELECT signalbox.sweep(%s, 1)", (scope,))
    for name, insert in EXPIRING.items():
        owner(owner_url, insert, TENANT, "1 h")
        with psycopg.connect(owner_url) as connection:
            connection.execute("SET ROLE signalbox_search")
            assert connection.execute(f"DELETE FROM signalbox.{name}".encode()).rowcount == 0  # noqa: S608


async def test_only_a_worker_s_pass_hands_out_jobs(database: Database):
    await JobQueue(database).submit("rival", delivery_of_records("docs", [record(0)]))
    worker_scope = database.worker_scope()
    forged = [database.scope(TENANT), database.scope("worker"), "", "\nworker", worker_scope[1:],
              worker_scope.replace("worker", TENANT), database.scope(TENANT)[:65] + "\nworker"]  # fmt: skip

    for scope in forged:
        async with database.connection() as connection:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute("SELECT * FROM signalbox.take_job(%s, 30, '{}', NULL)", (scope,))
    with pytest.raises(BadRequest):
        database.scope("\nworker")
    async with database.connection() as connection, connection.transaction():
        await connection.execute("SELECT set_config('signalbox.scope', %s, true)", (worker_scope,))
        assert await (await connection.execute("SELECT count(*) FROM signalbox.job")).fetchone() == (0,)


async def test_many_jobs_of_one_tenant_hold_up_no_other(database: Database):
    worker = worker_on(database)
    for n in range(6):
        await worker.jobs.submit("busy", delivery_of_records("docs", [record(n)]))
    for tenant in ("rare", "other"):
        await worker.jobs.submit(tenant, delivery_of_records("docs", [record(0)]))

    order = []
    while lease := await worker.jobs.lease_next():
        order.append(lease.tenant)
        await worker.run_job(lease)

    assert order == ["busy", "other", "rare", "busy", "busy", "busy", "busy", "busy"]


async def test_a_tenant_can_have_only_so_much_waiting(database: Database, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(queue, "MAX_WAITING", 2)
    jobs = JobQueue(database)
    for n in range(2):
        await jobs.submit(TENANT, delivery_of_records("docs", [record(n)]))

    with pytest.raises(Unavailable, match="2 jobs are waiting;") as caught:
        await jobs.submit(TENANT, delivery_of_records("docs", [record(2)]))
    assert caught.value.retry_after_s == 30
    await jobs.submit("rival", delivery_of_records("docs", [record(0)]))


async def test_jobs_that_are_over_are_shown_for_a_while_and_then_deleted(database: Database, owner_url: str):
    worker = worker_on(database)
    old, _ = await worker.run_delivery(TENANT, delivery_of_records("docs", [record(0), record(1, text=7)]))  # type: ignore[arg-type]
    kept = owner(owner_url, "SELECT round(extract(epoch FROM expires_at - now()) / 86400)::integer FROM signalbox.job")
    owner(owner_url, "UPDATE signalbox.job SET expires_at = now() - interval '1 s'")

    for ask in (worker.jobs.job, worker.jobs.retry):
        with pytest.raises(NotFound):
            await ask(TENANT, old)
    assert await worker.jobs.recent_jobs(TENANT, 10) == []
    new, _ = await worker.run_delivery(TENANT, delivery_of_records("docs", [record(2)]))

    assert kept == [(30,)]
    assert [row[0].hex for row in owner(owner_url, "SELECT id FROM signalbox.job")] == [new]
    assert owner(owner_url, "SELECT count(*) FROM signalbox.dead_letter") == [(0,)]
