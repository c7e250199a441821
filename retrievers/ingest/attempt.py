"""Carry out one ingestion job under its lease: renew the lease, store the documents, record the result."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from retrievers.core import heap
from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.tasks import leave
from retrievers.ingest.collections import Connection
from retrievers.ingest.delivery import encoded_records
from retrievers.ingest.job_items import Item, JobItems, file_items, job_items
from retrievers.ingest.job_types import Lease, LostLease, Work
from retrievers.ingest.jobs import JobQueue
from retrievers.ingest.lines import DeliveryLine, WriteTurn
from retrievers.ingest.read import SANDBOX
from retrievers.ingest.report import Failure, Progress, Report, Written

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
        written: Written,
        progress: Progress,
        turn: WriteTurn | None = None,
    ) -> Report: ...


Rebuild = Callable[[Lease, Work, Callable[[int], None]], Awaitable[bool]]
"""`retrievers.ingest.rebuild.Rebuilding.carry_on`."""

Mirroring = Callable[[Lease, Progress], Awaitable[Report]]
"""One run of a mirror, under the lease of its job."""


@dataclass(slots=True)
class JobAttempt:
    """One attempt at a job.

    Attributes:
        lines: queues that the job may wait in, in order. It uses the first one whose size limit its documents keep.
        turn: called with the names of tenant and collection; returns what to acquire to write to the collection.
        work: content of the job, loaded when a queue lets the job pass.
        tries: how often a failed dependency interrupted the job before.
        items: the documents to store.
        before: number of documents of the delivery that were processed before this attempt and are not in `items`.
        report: counts and failures of this attempt so far.
        lost: why the lease is lost; None while the job has it.
        ending: True once the result is being recorded.
        mirror: the run to carry out, for a mirror's job; None to look it up by the mirror's id.
    """

    lease: Lease
    lines: Sequence[DeliveryLine]
    turn: Callable[[str, str], WriteTurn] = lambda tenant, collection: WriteTurn()
    work: Work = field(init=False)
    tries: int = 0
    items: JobItems = field(default_factory=JobItems)
    before: int = 0
    report: Report = field(default_factory=Report)
    lost: LostLease | Unavailable | None = None
    ending: bool = False
    mirror: Mirroring | None = None

    def is_ending(self) -> bool:
        """Return `ending`, which another task may set at any time."""
        return self.ending

    @property
    def done(self) -> int:
        """Number of documents of the delivery that were processed so far."""
        return self.before + self.report.done


class JobRunner:
    """Carries out jobs.

    Args:
        rebuild: carries out jobs that rebuild a collection; None to leave them to other workers.
        mirrors: runs of the mirrors whose sources this process knows, by mirror id.
    """

    def __init__(
        self, jobs: JobQueue, ingest: Ingest, *, rebuild: Rebuild | None, mirrors: Mapping[UUID, Mirroring]
    ) -> None:
        self._jobs, self._ingest = jobs, ingest
        self._rebuild, self._mirrors = rebuild, mirrors

    async def carry_out(self, run: JobAttempt) -> Report:
        """Carry out a job. If this call is cancelled, the job is returned to the queue.

        Raises:
            BadRequest: the job cannot be done, and is recorded as failed.
            Unavailable: a dependency failed. The job is returned to the queue, to be tried again later.
            LostLease: another worker has taken over the job, or the job was cancelled.
        """
        try:
            return await self._attempt(run)
        except asyncio.CancelledError:
            await asyncio.shield(self.give_back(run.lease))
            raise

    async def give_back(self, lease: Lease) -> None:
        """Return a job to the queue. If the database is down, nothing happens, and the lease expires later."""
        with suppress(Unavailable):
            await self._jobs.give_back(lease)

    async def _attempt(self, run: JobAttempt) -> Report:
        storing = asyncio.create_task(self._in_line(run))
        beating = asyncio.create_task(self._beat(run, storing))
        try:
            return await storing
        except asyncio.CancelledError:
            if run.lost is not None:
                raise run.lost from None
            raise
        except LostLease:
            raise
        except Unavailable as error:
            await self._put_back(run, error)
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, RetrievalError) else f"unexpected {type(error).__name__}"
            with suppress(Unavailable):
                await self._jobs.fail(run.lease, reason)
            raise
        finally:
            beating.cancel()

    async def _put_back(self, run: JobAttempt, error: Unavailable) -> None:
        """Return a job to the queue after a dependency failed, with a delay that doubles with each attempt.

        After `_TRIES` attempts, the job fails instead.
        """
        with suppress(Unavailable):
            if run.tries + 1 >= _TRIES:
                await self._jobs.fail(run.lease, f"given up after {_TRIES} tries: {error}")
            else:
                delay_s = min(2.0**run.tries, _LONGEST_WAIT_S)
                await self._jobs.give_back(run.lease, reason=str(error), delay_s=delay_s)

    async def _beat(self, run: JobAttempt, storing: "asyncio.Task[Report]") -> None:
        """Renew the lease until the result is recorded. If the lease is lost, cancel `storing`.

        An outage of the database that is shorter than the lease does not lose it.
        """
        held_until = time.monotonic() + self._jobs.lease_s
        while run.lost is None:
            await asyncio.sleep(self._jobs.lease_s / 3)
            if run.is_ending():
                return
            asked = time.monotonic()
            if asked >= held_until:
                run.lost = Unavailable(
                    "the database", f"no answer for {self._jobs.lease_s:g} s", retry_after_s=_RETRY_S
                )
                break
            with suppress(Unavailable):
                if await self._jobs.keep(run.lease, done=run.done, failed=len(run.report.failed)):
                    held_until = asked + self._jobs.lease_s
                elif run.is_ending():
                    return
                else:
                    run.lost = LostLease()
        storing.cancel()

    async def _in_line(self, run: JobAttempt) -> Report:
        for line in run.lines:
            async with line.place:
                await _step(self._load(run))
                if line.most_bytes is None or run.items.size_bytes <= line.most_bytes:
                    async with line.storing:
                        await _step(self._store(run))
                    break
                # The documents are read again in the next queue: those of all jobs that wait would fill the memory.
                run.items = JobItems()
        if max(len(run.work.payload or b""), run.items.size_bytes) >= heap.LARGE_BYTES:
            run.items = JobItems()
            await asyncio.to_thread(heap.give_back)
        return run.report

    async def _load(self, run: JobAttempt) -> None:
        run.work = work = await self._jobs.load(run.lease)
        run.tries = work.tries
        if work.deaths >= _MOST_DEATHS:
            raise BadRequest(f"given up: {work.deaths} workers died during this job")
        if work.file is not None and work.payload is not None:
            run.items = await SANDBOX.in_thread(partial(file_items, work.file, work.payload))

    async def _make_anew(self, run: JobAttempt) -> None:
        """Run one turn of a rebuild job, and record its result if it is finished."""

        def progress(done: int) -> None:
            run.before = done

        if self._rebuild is None:
            raise Unavailable("this worker", "it does not rebuild collections")
        run.before = run.work.done
        if await self._rebuild(run.lease, run.work, progress):
            await self._end(run)

    async def _store(self, run: JobAttempt) -> None:
        work = run.work
        if work.rebuild is not None:
            await self._make_anew(run)
            return
        if work.sync is not None:
            await self._follow(run, run.mirror or self._mirrors[work.sync])
            return
        if work.file is None or work.payload is None:
            run.items = await asyncio.to_thread(job_items, work)
        if work.letters:
            run.before = (work.documents or 0) - len(run.items)
        if work.deaths < _DEATHS:
            try:
                await self._all_at_once(run)
            except (RetrievalError, LostLease):
                raise
            except Exception as error:
                _log.warning("job %s: unexpected %s; its documents are now stored one by one", run.lease.id.hex,
                             type(error).__name__)  # fmt: skip
                await self._one_by_one(run)
        else:
            await self._one_by_one(run)
        await self._finish(run)

    async def _follow(self, run: JobAttempt, mirroring: Mirroring) -> None:
        def progress(report: Report) -> None:
            run.report, run.tries = report, 0

        run.report = await mirroring(run.lease, progress)
        await self._end(run, run.report.failed)

    async def _all_at_once(self, run: JobAttempt) -> None:
        def progress(report: Report) -> None:
            run.report = report

        run.report = await self._ingested(run, (item for _, item in run.items), progress)
        failed = run.report.failed
        run.report.failed = await asyncio.to_thread(
            lambda: [replace(one, index=run.items.index_of(one.index)) for one in failed]
        )

    async def _one_by_one(self, run: JobAttempt) -> None:
        """Store a job's documents one by one, so that one that causes an error or kills a worker affects no other."""
        run.report = Report()
        items = iter(run.items)
        while (numbered := await asyncio.to_thread(next, items, None)) is not None:
            index, item = numbered
            if index in run.work.parked:
                reason = "given up: workers died while they stored it"
                run.report.failed.append(Failure(index, item.where, item.id, reason))
                continue
            await self._jobs.take_in_hand(run.lease, index)
            try:
                report = await self._ingested(run, [item], lambda report: None)
            except (RetrievalError, LostLease):
                raise
            except Exception as error:
                _log.warning("job %s: document %d: unexpected %s", run.lease.id.hex, index, type(error).__name__)
                report = Report(
                    failed=[Failure(0, item.where, item.id, f"unexpected {type(error).__name__}: see the log")]
                )
            report.failed = [replace(one, index=index) for one in report.failed]
            run.report.add(report)

    async def _ingested(self, run: JobAttempt, items: Iterable[Item], progress: Progress) -> Report:
        async def written(connection: Connection, report: Report, inserted: int, updated: int) -> None:
            await self._jobs.record(
                connection,
                run.lease,
                inserted=inserted,
                updated=updated,
                done=run.done + inserted + updated,
                failed=len(run.report.failed),
            )

        work = run.work
        return await self._ingest(
            run.lease.tenant,
            work.collection,
            items,
            delivery=work.delivery,
            written=written,
            progress=progress,
            turn=run.turn(run.lease.tenant, work.collection),
        )

    async def _finish(self, run: JobAttempt) -> None:
        work, failed = run.work, run.report.failed
        payloads: dict[int, bytes | None] = {}
        if work.letters:
            records = dict(work.letters)
            payloads = {one.index: records[one.index] for one in failed}
        elif work.file is None and work.payload is not None and failed:
            payloads = await asyncio.to_thread(_records, work.payload, [one.index for one in failed])
        await self._end(run, failed, payloads)

    async def _end(
        self, run: JobAttempt, failed: Sequence[Failure] = (), payloads: Mapping[int, bytes | None] | None = None
    ) -> None:
        """Record the result of the job, and stop renewing its lease.

        A renewal after this transaction would find the lease gone, and would take it for lost.

        Args:
            payloads: see `JobQueue.finish`.
        """
        run.ending = True
        await self._jobs.finish(run.lease, documents=run.done, failed=failed, payloads=payloads or {})


def _records(payload: bytes, indexes: Sequence[int]) -> dict[int, bytes | None]:
    """Return the encoded records at these indexes of a delivery, by index."""
    wanted = set(indexes)
    return {index: record for index, record in enumerate(encoded_records(payload)) if index in wanted}


async def _step(work: Coroutine[Any, Any, None]) -> None:
    """Run work on the database. On cancellation, wait at most `_END_S` for its end, even if the database hangs."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        leave(task)
        await asyncio.wait({task}, timeout=_END_S)
        raise
