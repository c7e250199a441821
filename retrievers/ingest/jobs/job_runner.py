"""Carry out one ingestion job under its lease: renew the lease, store the documents, record the result."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from retrievers.core import process_memory
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.timeouts import abandon_task
from retrievers.ingest.collections import Connection
from retrievers.ingest.jobs.delivery import encoded_records
from retrievers.ingest.jobs.delivery_queues import DeliveryQueue, WriteLocks
from retrievers.ingest.jobs.job_items import Item, JobItems, file_items, job_items
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import JobContent, Lease, LostLease
from retrievers.ingest.readers.file_input import SANDBOX
from retrievers.ingest.report import Failure, IngestReport, OnWrite, Progress

_RETRY_S = 5.0
_END_S = 2.0
"""How long cancelled work may take to end, in seconds. If the database hangs, it does not end by itself."""
_TRIES = 100
_LONGEST_WAIT_S = 300.0
# Workers are killed for many reasons. After `_DEATHS` deaths during a job, one of its documents may be the cause, so
# they are stored one by one. After `_MOST_DEATHS`, the job is given up.
_DEATHS, _MOST_DEATHS = 3, 10

_log = logging.getLogger(__name__)


class Ingest(Protocol):
    """`retrievers.ingest.run.ingest` with the arguments that are the same for every job already bound."""

    async def __call__(
        self,
        tenant: str,
        collection: str,
        items: Iterable[Item],
        *,
        delivery: int,
        on_write: OnWrite,
        progress: Progress,
        write_locks: WriteLocks | None = None,
    ) -> IngestReport: ...


Rebuild = Callable[[Lease, JobContent, Callable[[int], None]], Awaitable[bool]]
"""`retrievers.ingest.rebuild.CollectionRebuilder.run_turn`."""

RunMirror = Callable[[Lease, Progress], Awaitable[IngestReport]]
"""One run of a mirror, under the lease of its job."""


@dataclass(slots=True)
class JobAttempt:
    """One attempt at a job.

    Attributes:
        queues: queues that the job may wait in, in order. It uses the first one whose size limit its documents keep.
        writer: called with the names of tenant and collection; returns `WriteLocks.exclusive`.
        queue: the queue that the documents are stored from; the last one that was tried.
        content: content of the job, loaded when a queue lets the job pass.
        tries: how often a failed dependency interrupted the job before.
        items: the documents to store.
        done_before: number of documents of the delivery that were processed before this attempt and are not in `items`.
        report: counts and failures of this attempt so far.
        lost_reason: why the lease is lost; None while the job has it.
        ending: True once the result is being recorded.
        mirror: the run to carry out, for a mirror's job; None to look it up by the mirror's id.
    """

    lease: Lease
    queues: Sequence[DeliveryQueue]
    writer: Callable[[str, str], AbstractAsyncContextManager[object]] = lambda tenant, collection: nullcontext()
    queue: DeliveryQueue = field(init=False)
    content: JobContent = field(init=False)
    tries: int = 0
    items: JobItems = field(default_factory=JobItems)
    done_before: int = 0
    report: IngestReport = field(default_factory=IngestReport)
    lost_reason: LostLease | Unavailable | None = None
    ending: bool = False
    mirror: RunMirror | None = None

    def is_ending(self) -> bool:
        """Return `ending`, which another task may set at any time."""
        return self.ending

    @property
    def done(self) -> int:
        """Number of documents of the delivery that were processed so far."""
        return self.done_before + self.report.done


class JobRunner:
    """Carries out jobs.

    Args:
        rebuild: carries out jobs that rebuild a collection; None to leave them to other workers.
        mirrors: runs of the mirrors whose sources this process knows, by mirror id.
    """

    def __init__(
        self, jobs: JobQueue, ingest: Ingest, *, rebuild: Rebuild | None, mirrors: Mapping[UUID, RunMirror]
    ) -> None:
        self._jobs, self._ingest = jobs, ingest
        self._rebuild, self._mirrors = rebuild, mirrors

    async def run_job(self, run: JobAttempt) -> IngestReport:
        """Carry out a job. If this call is cancelled, the job is returned to the queue.

        Raises:
            BadRequest: the job cannot be done, and is recorded as failed.
            Unavailable: a dependency failed. The job is returned to the queue, to be tried again later.
            LostLease: another worker has taken over the job, or the job was cancelled.
        """
        try:
            return await self._run_with_lease(run)
        except asyncio.CancelledError:
            await asyncio.shield(self.requeue(run.lease))
            raise

    async def requeue(self, lease: Lease) -> None:
        """Return a job to the queue. If the database is down, nothing happens, and the lease expires later."""
        with suppress(Unavailable):
            await self._jobs.requeue(lease)

    async def _run_with_lease(self, run: JobAttempt) -> IngestReport:
        storing = asyncio.create_task(self._run_in_queue(run))
        beating = asyncio.create_task(self._renew_lease(run, storing))
        try:
            return await storing
        except asyncio.CancelledError:
            if run.lost_reason is not None:
                raise run.lost_reason from None
            raise
        except LostLease:
            raise
        except Unavailable as error:
            await self._requeue_after_failure(run, error)
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, RetrievalError) else f"unexpected {type(error).__name__}"
            with suppress(Unavailable):
                await self._jobs.fail(run.lease, reason)
            raise
        finally:
            beating.cancel()

    async def _requeue_after_failure(self, run: JobAttempt, error: Unavailable) -> None:
        """Return a job to the queue after a dependency failed, with a delay that doubles with each attempt.

        After `_TRIES` attempts, the job fails instead.
        """
        with suppress(Unavailable):
            if run.tries + 1 >= _TRIES:
                await self._jobs.fail(run.lease, f"given up after {_TRIES} tries: {error}")
            else:
                delay_s = min(2.0**run.tries, _LONGEST_WAIT_S)
                await self._jobs.requeue(run.lease, reason=str(error), delay_s=delay_s)

    async def _renew_lease(self, run: JobAttempt, storing: "asyncio.Task[IngestReport]") -> None:
        """Renew the lease until the result is recorded. If the lease is lost, cancel `storing`.

        An outage of the database that is shorter than the lease does not lose it.
        """
        held_until = time.monotonic() + self._jobs.lease_s
        while run.lost_reason is None:
            await asyncio.sleep(self._jobs.lease_s / 3)
            if run.is_ending():
                return
            asked = time.monotonic()
            if asked >= held_until:
                run.lost_reason = Unavailable(
                    "the database", f"no answer for {self._jobs.lease_s:g} s", retry_after_s=_RETRY_S
                )
                break
            with suppress(Unavailable):
                if await self._jobs.renew_lease(run.lease, done=run.done, failed=len(run.report.failed)):
                    held_until = asked + self._jobs.lease_s
                elif run.is_ending():
                    return
                else:
                    run.lost_reason = LostLease()
        storing.cancel()

    async def _run_in_queue(self, run: JobAttempt) -> IngestReport:
        for queue in run.queues:
            run.queue = queue
            async with queue.slot:
                await _run_cancellable(self._load(run))
                if queue.most_bytes is None or run.items.size_bytes <= queue.most_bytes:
                    async with queue.store_slot:
                        await _run_cancellable(self._store(run))
                    break
                # The documents are read again in the next queue: those of all jobs that wait would fill the memory.
                run.items = JobItems()
        if max(len(run.content.payload or b""), run.items.size_bytes) >= process_memory.LARGE_BYTES:
            run.items = JobItems()
            await asyncio.to_thread(process_memory.release_memory)
        return run.report

    async def _load(self, run: JobAttempt) -> None:
        run.content = content = await self._jobs.load_content(run.lease)
        run.tries = content.tries
        if content.deaths >= _MOST_DEATHS:
            raise BadRequest(f"given up: {content.deaths} workers died during this job")
        if content.file is not None and content.payload is not None:
            run.items = await SANDBOX.run_in_thread(partial(file_items, content.file, content.payload))

    async def _run_rebuild_turn(self, run: JobAttempt) -> None:
        """Run one turn of a rebuild job, and record its result if it is finished."""

        def progress(done: int) -> None:
            run.done_before = done

        if self._rebuild is None:
            raise Unavailable("this worker", "it does not rebuild collections")
        run.done_before = run.content.done
        if await self._rebuild(run.lease, run.content, progress):
            await self._record_result(run)

    async def _store(self, run: JobAttempt) -> None:
        content = run.content
        if content.rebuild is not None:
            await self._run_rebuild_turn(run)
            return
        if content.sync is not None:
            await self._run_mirror(run, run.mirror or self._mirrors[content.sync])
            return
        if content.file is None or content.payload is None:
            run.items = await asyncio.to_thread(job_items, content)
        if content.dead_letters:
            run.done_before = (content.documents or 0) - len(run.items)
        if content.deaths < _DEATHS:
            try:
                await self._store_all(run)
            except (RetrievalError, LostLease):
                raise
            except Exception as error:
                _log.warning("job %s: unexpected %s; its documents are now stored one by one", run.lease.id.hex,
                             type(error).__name__)  # fmt: skip
                await self._store_one_by_one(run)
        else:
            await self._store_one_by_one(run)
        await self._finish_delivery(run)

    async def _run_mirror(self, run: JobAttempt, run_mirror: RunMirror) -> None:
        def progress(report: IngestReport) -> None:
            run.report, run.tries = report, 0

        run.report = await run_mirror(run.lease, progress)
        await self._record_result(run, run.report.failed)

    async def _store_all(self, run: JobAttempt) -> None:
        def progress(report: IngestReport) -> None:
            run.report = report

        run.report = await self._ingest_items(run, (item for _, item in run.items), progress)
        failed = run.report.failed
        run.report.failed = await asyncio.to_thread(
            lambda: [replace(one, index=run.items.index_of(one.index)) for one in failed]
        )

    async def _store_one_by_one(self, run: JobAttempt) -> None:
        """Store a job's documents one by one, so that one that causes an error or kills a worker affects no other."""
        run.report = IngestReport()
        items = iter(run.items)
        while (numbered := await asyncio.to_thread(next, items, None)) is not None:
            index, item = numbered
            if index in run.content.parked:
                reason = "given up: workers died while they stored it"
                run.report.failed.append(Failure(index, item.where, item.id, reason))
                continue
            await self._jobs.mark_in_progress(run.lease, index)
            try:
                report = await self._ingest_items(run, [item], lambda report: None)
            except (RetrievalError, LostLease):
                raise
            except Exception as error:
                _log.warning("job %s: document %d: unexpected %s", run.lease.id.hex, index, type(error).__name__)
                report = IngestReport(
                    failed=[Failure(0, item.where, item.id, f"unexpected {type(error).__name__}: see the log")]
                )
            report.failed = [replace(one, index=index) for one in report.failed]
            run.report.add(report)

    async def _ingest_items(self, run: JobAttempt, items: Iterable[Item], progress: Progress) -> IngestReport:
        async def on_write(connection: Connection, report: IngestReport, inserted: int, updated: int) -> None:
            await self._jobs.record_batch(
                connection,
                run.lease,
                inserted=inserted,
                updated=updated,
                done=run.done + inserted + updated,
                failed=len(run.report.failed),
            )

        content = run.content
        return await self._ingest(
            run.lease.tenant,
            content.collection,
            items,
            delivery=content.delivery,
            on_write=on_write,
            progress=progress,
            write_locks=WriteLocks(run.writer(run.lease.tenant, content.collection), run.queue.write_slot),
        )

    async def _finish_delivery(self, run: JobAttempt) -> None:
        content, failed = run.content, run.report.failed
        payloads: dict[int, bytes | None] = {}
        if content.dead_letters:
            records = dict(content.dead_letters)
            payloads = {one.index: records[one.index] for one in failed}
        elif content.file is None and content.payload is not None and failed:
            payloads = await asyncio.to_thread(_records_at, content.payload, [one.index for one in failed])
        await self._record_result(run, failed, payloads)

    async def _record_result(
        self, run: JobAttempt, failed: Sequence[Failure] = (), payloads: Mapping[int, bytes | None] | None = None
    ) -> None:
        """Record the result of the job, and stop renewing its lease.

        A renewal after this transaction would find the lease gone, and would take it for lost.

        Args:
            payloads: see `JobQueue.finish`.
        """
        run.ending = True
        await self._jobs.finish(run.lease, documents=run.done, failed=failed, payloads=payloads or {})


def _records_at(payload: bytes, indexes: Sequence[int]) -> dict[int, bytes | None]:
    """Return the encoded records at these indexes of a delivery, by index."""
    wanted = set(indexes)
    return {index: record for index, record in enumerate(encoded_records(payload)) if index in wanted}


async def _run_cancellable(work: Coroutine[Any, Any, None]) -> None:
    """Run work on the database. On cancellation, wait at most `_END_S` for its end, even if the database hangs."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        abandon_task(task)
        await asyncio.wait({task}, timeout=_END_S)
        raise
