"""Carry out ingestion jobs: one or several workers per process, on one or many machines."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from types import TracebackType
from typing import Any, Protocol, Self
from uuid import UUID
from weakref import WeakValueDictionary

from retrievers.core.errors import BadRequest, RetrievalError, Unavailable
from retrievers.core.tasks import leave
from retrievers.ingest.collections import Connection
from retrievers.ingest.delivery import Delivery, dumped, loaded
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.job_types import Lease, LostLease, Work
from retrievers.ingest.jobs import JobQueue
from retrievers.ingest.read import SANDBOX, read_record, read_upload
from retrievers.ingest.report import Failure, Progress, Report, Written
from retrievers.sandbox import Stopped

Item = Document | RejectedItem

MOST_DOCUMENTS = 100_000
"""Maximum number of documents of one file, which are all in memory at once."""
_POLL_S = 1.0
"""How soon a job accepted by another process is noticed, in seconds. Jobs of this process are noticed at once."""
_REST_S = 5.0
_TURNS = 2
"""Deliveries carried out at once for waiting callers: more would take database connections from questions."""
_END_S = 2.0
"""How long cancelled work may take to end, in seconds. On a hung database it does not end."""
_TRIES = 100
_LONGEST_WAIT_S = 300.0
# Workers are killed for many reasons. After this many deaths during a job, one of its documents may be the cause, so
# they are taken one by one. After the maximum, the job is given up.
_DEATHS, _MOST_DEATHS = 3, 10

_log = logging.getLogger(__name__)


class Ingest(Protocol):
    """`retrievers.ingest.run.ingest` with the arguments that are the same for every job."""

    async def __call__(
        self,
        tenant: str,
        collection: str,
        items: Sequence[Item],
        *,
        delivery: int,
        written: Written,
        progress: Progress,
    ) -> Report: ...


Rebuild = Callable[[Lease, Work, Callable[[int], None]], Awaitable[bool]]
"""`retrievers.ingest.rebuild.Rebuilding.carry_on`."""

Mirroring = Callable[[Lease, Progress], Awaitable[Report]]
"""One run of a mirror, under the lease of its job."""


@dataclass(slots=True)
class _JobAttempt:
    """One attempt at a job.

    Attributes:
        line: limits how many of one tenant's jobs run at once.
        turn: limits how many deliveries are stored at once.
        work: content of the job, set when it is the job's turn.
        tries: how often a failed dependency interrupted the job before.
        items: documents with their indexes in the delivery.
        before: number of documents of the delivery that were processed before this attempt and are not in `items`.
        lost: why the lease is lost; None while it is held.
        mirror: the run, if the job is a mirror's; None to look it up by its id.
    """

    lease: Lease
    line: AbstractAsyncContextManager[None]
    turn: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    work: Work = field(init=False)
    tries: int = 0
    items: Sequence[tuple[int, Item]] = ()
    before: int = 0
    report: Report = field(default_factory=Report)
    lost: LostLease | Unavailable | None = None
    mirror: Mirroring | None = None

    @property
    def done(self) -> int:
        return self.before + self.report.done


class Worker:
    """Carries out jobs. Inside `async with` it also takes them from the queue.

    Args:
        at_once: maximum number of jobs taken from the queue at the same time.
        rebuild: carries out jobs that rebuild a collection.
        mirrors: runs of the mirrors whose sources this process knows, by mirror id.
        schedule: called every second; queues the runs that are due.
    """

    def __init__(
        self,
        jobs: JobQueue,
        ingest: Ingest,
        *,
        at_once: int = 1,
        rebuild: Rebuild | None = None,
        mirrors: Mapping[UUID, Mirroring] | None = None,
        schedule: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self.jobs = jobs
        self.ingest, self._rebuild = ingest, rebuild
        self._at_once = at_once
        self._mirrors, self._schedule = mirrors or {}, schedule
        jobs.known = tuple(self._mirrors)
        self._loops: list[asyncio.Task[None]] = []
        self._at_work: set[asyncio.Task[Report]] = set()
        self._woken, self._closing = asyncio.Event(), asyncio.Event()
        self._turns = asyncio.Semaphore(_TURNS)
        self._lines: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        self._loops = [asyncio.create_task(self._work()) for _ in range(self._at_once)]
        if self._schedule is not None and self._at_once:
            self._loops.append(asyncio.create_task(self._keep_schedule()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Return running jobs to the queue: another worker continues where this one stopped."""
        self._closing.set()
        self._woken.set()
        for task in self._at_work:
            task.cancel()
        await asyncio.gather(*self._loops)
        await asyncio.gather(*self._at_work, return_exceptions=True)

    async def drain(self, within_s: float) -> None:
        """Take no more jobs, and wait for the running ones. Slower ones are returned to the queue on exit."""
        self._closing.set()
        self._woken.set()
        if self._at_work:
            await asyncio.wait(self._at_work, timeout=within_s)

    @property
    def at_work(self) -> int:
        """Number of jobs that are running."""
        return len(self._at_work)

    @property
    def works(self) -> bool | None:
        """Whether it takes jobs from the queue; None if it was not started for that."""
        return None if not self._loops else not any(loop.done() for loop in self._loops)

    def wake(self) -> None:
        """Notify the worker of a new job."""
        self._woken.set()

    async def deliver(
        self, tenant: str, delivery: Delivery, *, within_s: float | None = None
    ) -> tuple[str, Report | None]:
        """Carry out a delivery at once. Its job is stored first, so it survives this process.

        Args:
            within_s: how long to wait, in seconds. After that the job continues in the background.
        Returns:
            The job's id, and the report; None if the job is still running.
        Raises:
            BadRequest: it cannot be done; the job has failed.
            Unavailable: a dependency failed. If the job was stored, it is tried again later.
        """
        lease = await self.jobs.begin(tenant, delivery)
        run = _JobAttempt(lease, self._line(tenant), self._turns)
        try:
            return lease.id.hex, await self._carry_out_within(run, within_s)
        except LostLease:
            raise Unavailable("the job", f"it was taken over; see job {lease.id.hex}") from None
        except Unavailable as error:
            reason = f"{error.reason}; job {lease.id.hex} keeps the documents and is tried again"
            raise Unavailable(error.source, reason, retry_after_s=error.retry_after_s) from error

    async def mirror(self, lease: Lease, mirroring: Mirroring) -> Report:
        """Carry out a run of a mirror at once, under the lease of its job. Raises like `carry_out`."""
        return await self._carry_out(_JobAttempt(lease, self._line(lease.tenant), self._turns, mirror=mirroring))

    async def _carry_out_within(self, run: "_JobAttempt", seconds: float | None) -> Report | None:
        """Like `_carry_out`, but return None if it takes longer and continues in the background."""
        task = asyncio.create_task(self._carry_out(run))
        try:
            await asyncio.wait({task}, timeout=seconds)
            if task.done():
                return task.result()
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait({task})
            raise
        self._at_work.add(task)
        task.add_done_callback(partial(self._told, run.lease))
        return None

    def _told(self, lease: Lease, task: "asyncio.Task[Report]") -> None:
        self._at_work.discard(task)
        _tell(lease, task)

    async def carry_out(self, lease: Lease) -> Report:
        """Store the documents of a job. On cancellation the job is returned to the queue.

        Raises:
            BadRequest: the job cannot be done, and has failed.
            Unavailable: a dependency failed. The job is returned to the queue, to be tried again later.
            LostLease: another worker has taken it over, or it was cancelled.
        """
        return await self._carry_out(_JobAttempt(lease, self._line(lease.tenant)))

    def _line(self, tenant: str) -> asyncio.Semaphore:
        """Return the tenant's semaphore, which limits how many of its jobs are read and stored at once."""
        return self._lines.setdefault(tenant, asyncio.Semaphore(_TURNS))

    async def _carry_out(self, run: "_JobAttempt") -> Report:
        try:
            return await self._attempt(run)
        except asyncio.CancelledError:
            await asyncio.shield(self._let_go(run.lease))
            raise

    async def _let_go(self, lease: Lease) -> None:
        with suppress(Unavailable):  # the lease then expires
            await self.jobs.give_back(lease)

    async def _attempt(self, run: _JobAttempt) -> Report:
        storing = asyncio.create_task(self._in_turn(run))
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
                await self.jobs.fail(run.lease, reason)
            raise
        finally:
            beating.cancel()

    async def _put_back(self, run: _JobAttempt, error: Unavailable) -> None:
        """Return the job to the queue after a failed dependency. The delay doubles with each attempt."""
        with suppress(Unavailable):
            if run.tries + 1 >= _TRIES:
                await self.jobs.fail(run.lease, f"given up after {_TRIES} tries: {error}")
            else:
                delay_s = min(2.0**run.tries, _LONGEST_WAIT_S)
                await self.jobs.give_back(run.lease, reason=str(error), delay_s=delay_s)

    async def _beat(self, run: _JobAttempt, storing: "asyncio.Task[Report]") -> None:
        """Renew the lease until it is lost. A short outage of the database does not lose it."""
        held_until = time.monotonic() + self.jobs.lease_s
        while run.lost is None:
            await asyncio.sleep(self.jobs.lease_s / 3)
            asked = time.monotonic()
            if asked >= held_until:
                run.lost = Unavailable("the database", f"no answer for {self.jobs.lease_s:g} s", retry_after_s=_REST_S)
                break
            with suppress(Unavailable):
                if await self.jobs.keep(run.lease, done=run.done, failed=len(run.report.failed)):
                    held_until = asked + self.jobs.lease_s
                else:
                    run.lost = LostLease()
        storing.cancel()

    async def _in_turn(self, run: _JobAttempt) -> Report:
        """Store when it is the job's turn. A file is read before its turn, so that a slow one keeps nobody else
        waiting.
        """
        async with run.line:
            await _step(self._load(run))
            async with run.turn:
                await _step(self._store(run))
        return run.report

    async def _load(self, run: _JobAttempt) -> None:
        run.work = work = await self.jobs.load(run.lease)
        run.tries = work.tries
        if work.deaths >= _MOST_DEATHS:
            raise BadRequest(f"given up: {work.deaths} workers did not come back from this job")
        if work.file is not None and work.payload is not None:
            run.items = await SANDBOX.in_thread(partial(_file_items, work.file, work.payload))

    async def _make_anew(self, run: _JobAttempt) -> None:
        """Run one turn of a rebuild job; other jobs run in between."""

        def progress(done: int) -> None:
            run.before = done

        if self._rebuild is None:
            raise Unavailable("this worker", "it carries out ingestions alone")
        run.before = run.work.done
        if await self._rebuild(run.lease, run.work, progress):
            await self.jobs.finish(run.lease, documents=run.before, failed=(), payloads={})

    async def _store(self, run: _JobAttempt) -> None:
        work = run.work
        if work.rebuild is not None:
            await self._make_anew(run)
            return
        if work.sync is not None:
            await self._follow(run, run.mirror or self._mirrors[work.sync])
            return
        if work.file is None or work.payload is None:
            run.items = await asyncio.to_thread(_items, work)
        if work.letters:
            run.before = (work.documents or 0) - len(run.items)
        if work.deaths < _DEATHS:
            try:
                await self._all_at_once(run)
            except (RetrievalError, LostLease):
                raise
            except Exception as error:
                _log.warning("job %s: unexpected %s, its documents are taken one by one", run.lease.id.hex,
                             type(error).__name__)  # fmt: skip
                await self._one_by_one(run)
        else:
            await self._one_by_one(run)
        await self._finish(run)

    async def _follow(self, run: _JobAttempt, mirroring: Mirroring) -> None:
        def progress(report: Report) -> None:
            run.report, run.tries = report, 0

        run.report = await mirroring(run.lease, progress)
        await self.jobs.finish(run.lease, documents=run.done, failed=run.report.failed, payloads={})

    async def _all_at_once(self, run: _JobAttempt) -> None:
        def progress(report: Report) -> None:
            run.report = report

        items = [item for _, item in run.items]
        run.report = await self._ingested(run, items, progress)
        run.report.failed = [replace(one, index=run.items[one.index][0]) for one in run.report.failed]

    async def _one_by_one(self, run: _JobAttempt) -> None:
        """Store documents one by one, so that a document that causes an error or a worker's death does not affect the
        others.
        """
        run.report = Report()
        for index, item in run.items:
            if index in run.work.parked:
                reason = "given up: workers did not come back from it"
                run.report.failed.append(Failure(index, item.where, item.id, reason))
                continue
            await self.jobs.take_in_hand(run.lease, index)
            try:
                report = await self._ingested(run, [item], lambda report: None)
            except (RetrievalError, LostLease):
                raise
            except Exception as error:
                _log.warning("job %s: document %d: unexpected %s", run.lease.id.hex, index, type(error).__name__)
                report = Report(
                    failed=[Failure(0, item.where, item.id, f"unexpected {type(error).__name__}: the log says more")]
                )
            report.failed = [replace(one, index=index) for one in report.failed]
            run.report.add(report)

    async def _ingested(self, run: _JobAttempt, items: Sequence[Item], progress: Progress) -> Report:
        async def written(connection: Connection, report: Report, inserted: int, updated: int) -> None:
            await self.jobs.record(
                connection,
                run.lease,
                inserted=inserted,
                updated=updated,
                done=run.done + inserted + updated,
                failed=len(run.report.failed),
            )

        work = run.work
        return await self.ingest(
            run.lease.tenant, work.collection, items, delivery=work.delivery, written=written, progress=progress
        )

    async def _finish(self, run: _JobAttempt) -> None:
        work, failed = run.work, run.report.failed
        payloads: dict[int, bytes | None] = {}
        if work.letters:
            records = dict(work.letters)
            payloads = {one.index: records[one.index] for one in failed}
        elif work.file is None and work.payload is not None and failed:
            given = await asyncio.to_thread(loaded, work.payload)
            payloads = {one.index: dumped(given[one.index]) for one in failed}
        await self.jobs.finish(run.lease, documents=run.done, failed=failed, payloads=payloads)

    async def _work(self) -> None:
        """Carry out jobs from the queue until the worker is closed."""
        while not self._closing.is_set():
            await self.jobs.expiry.run()
            try:
                self._woken.clear()
                lease = await self.jobs.take()
            except Exception as error:
                # No error may end this loop, because nobody would notice.
                _log.warning("no job could be taken: %s", error if isinstance(error, Unavailable) else repr(error))
                await self._wait(_REST_S)
                continue
            if lease is None:
                await self._wait(_POLL_S)
                continue
            task = asyncio.create_task(self.carry_out(lease))
            self._at_work.add(task)
            if self._closing.is_set():
                task.cancel()
            await asyncio.wait({task})
            self._at_work.discard(task)
            if task.cancelled():
                await self._let_go(lease)  # it may have been cancelled before its first step
            _tell(lease, task)

    async def _keep_schedule(self) -> None:
        """Queue the due runs until the worker is closed."""
        assert self._schedule is not None
        while not self._closing.is_set():
            pause_s = _POLL_S
            try:
                await self._schedule()
            except Exception as error:
                _log.warning("no run could be scheduled: %s", error if isinstance(error, Unavailable) else repr(error))
                pause_s = _REST_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)


def _tell(lease: Lease, task: "asyncio.Task[Report]") -> None:
    """Log a job that was not completed, in one line."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, LostLease):
        _log.warning("job %s was lost: another worker has it, or it was cancelled", lease.id.hex)
    elif isinstance(error, RetrievalError):
        _log.warning("job %s: %s", lease.id.hex, error)
    elif error is not None:
        _log.error("job %s: unexpected %s", lease.id.hex, type(error).__name__, exc_info=error)


def _items(work: Work) -> list[tuple[int, Item]]:
    """Return the records of a job with their indexes in the delivery; on a retry, only those that failed."""
    if work.payload is None:
        return [(index, _letter(one, _place(index))) for index, one in work.letters]
    return [(index, read_record(one, _place(index))) for index, one in enumerate(loaded(work.payload))]


def _file_items(name: str, data: bytes, stopped: Stopped) -> list[tuple[int, Item]]:
    """Return the documents of a file with their indexes, up to the maximum number."""
    items = list(islice(enumerate(read_upload(name, data, stopped=stopped)), MOST_DOCUMENTS + 1))
    if len(items) > MOST_DOCUMENTS:
        index, item = items[-1]
        reason = f"a file has at most {MOST_DOCUMENTS:,} documents: send the rest in another one"
        items[-1] = index, RejectedItem(item.where, item.id, reason, item.readers)
    return items


async def _step(work: Coroutine[Any, Any, None]) -> None:
    """Run work on a connection that is abandoned on cancellation even if the database hangs."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        leave(task)
        await asyncio.wait({task}, timeout=_END_S)
        raise


def _letter(payload: bytes | None, where: str) -> Item:
    return RejectedItem(where, None, "it was deleted since") if payload is None else read_record(loaded(payload), where)


def _place(index: int) -> str:
    return f"documents.{index}"
