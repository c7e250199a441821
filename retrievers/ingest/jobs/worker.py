"""Carry out ingestion jobs: one or several workers per process, on one or many machines."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self
from uuid import UUID

from retrievers.core.errors import RetrievalError, Unavailable
from retrievers.core.log_filter import RepetitionFilter
from retrievers.ingest.jobs.delivery import Delivery
from retrievers.ingest.jobs.delivery_queues import WRITE_SLOTS, DeliveryQueue, DeliveryQueues
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_runner import Ingest, JobAttempt, JobRunner, Rebuild, RunMirror
from retrievers.ingest.jobs.job_types import Lease, LostLease
from retrievers.ingest.report import IngestReport

_POLL_S = 1.0
"""How often the queue is polled for jobs of other processes, in seconds. Jobs of this process are noticed at once."""
_REST_S = 5.0
_MOST_LONG = 4
"""While more than this many jobs from the queue take long, only jobs of tenants without a running job are taken."""
_MOST_LONG_TOTAL = 16
"""While more than this many jobs from the queue take long, no job is taken."""

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())  # if a dependency fails, all jobs fail; each job keeps its own reason


class Worker:
    """Carries out ingestion jobs. Inside `async with` the worker also takes jobs from the queue.

    Args:
        at_once: maximum number of jobs taken from the queue at the same time.
        rebuild: carries out jobs that rebuild a collection.
        mirrors: runs of the mirrors whose sources this process knows, by mirror id.
        head_start_s: time after which a job from the queue counts as long, in seconds. The next job then starts, too.
        schedule: called every second; queues the runs of mirrors that are due.
        reweigh: called every second, and at once again if it returns True, see `passage_weights.reweigh_pending`.
    """

    def __init__(
        self,
        jobs: JobQueue,
        ingest: Ingest,
        *,
        at_once: int = 1,
        rebuild: Rebuild | None = None,
        mirrors: Mapping[UUID, RunMirror] | None = None,
        schedule: Callable[[], Awaitable[None]] | None = None,
        reweigh: Callable[[], Awaitable[bool]] | None = None,
        head_start_s: float = 2.0,
    ) -> None:
        self.jobs = jobs
        self.ingest = ingest
        self._runner = JobRunner(jobs, ingest, rebuild=rebuild, mirrors=mirrors or {})
        self._at_once = at_once
        self._schedule, self._reweigh, self._head_start_s = schedule, reweigh, head_start_s
        jobs.known_mirrors = tuple(mirrors or ())
        self._loops: list[asyncio.Task[None]] = []
        self._running: set[asyncio.Task[IngestReport]] = set()
        self._wake_event, self._closing = asyncio.Event(), asyncio.Event()
        self._queues = DeliveryQueues()
        self._from_queue = DeliveryQueue(asyncio.Semaphore(max(at_once, WRITE_SLOTS)))
        self._long: set[asyncio.Task[IngestReport]] = set()

    async def __aenter__(self) -> Self:
        self._loops = [asyncio.create_task(self._take_jobs()) for _ in range(self._at_once)]
        if self._schedule is not None and self._at_once:
            self._loops.append(asyncio.create_task(self._keep_schedule()))
        if self._reweigh is not None and self._at_once:
            self._loops.append(asyncio.create_task(self._keep_weights()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def stop(self, within_s: float = 0.0) -> None:
        """Take no more jobs, and wait for the running ones.

        Args:
            within_s: how long to wait, in seconds. Jobs that take longer are returned to the queue, and another worker
                continues them.
        """
        self._closing.set()
        self._wake_event.set()
        if self._running and within_s:
            await asyncio.wait(self._running, timeout=within_s)
        for task in self._running:
            if not task.cancelling():  # a second time would end the wait until the job is returned
                task.cancel()
        await asyncio.gather(*self._loops)
        await asyncio.gather(*self._running, return_exceptions=True)

    @property
    def running_jobs(self) -> int:
        """Number of jobs that are running."""
        return len(self._running)

    @property
    def is_polling(self) -> bool | None:
        """Whether this worker takes jobs from the queue; None if it was not started for that."""
        return None if not self._loops else not any(loop.done() for loop in self._loops)

    def wake(self) -> None:
        """Notify the worker of a new job."""
        self._wake_event.set()

    async def run_delivery(
        self, tenant: str, delivery: Delivery, *, deadline: float | None = None
    ) -> tuple[str, IngestReport | None]:
        """Carry out a delivery at once. Its job is stored first, so it survives this process.

        Args:
            deadline: until when to wait, in the time of `time.monotonic`. After that the job continues in the
                background. None to wait until the job ends.
        Returns:
            The job's id, and its report, which is None if the job is still running.
        Raises:
            BadRequest: the delivery cannot be stored; its job is recorded as failed.
            Unavailable: a dependency failed. The job is tried again later, if it had been stored.
        """
        lease = await self.jobs.submit_leased(tenant, delivery)
        queues = self._queues.queues_for(tenant, len(delivery.payload))
        run = JobAttempt(lease, queues, self._queues.writer)
        try:
            return lease.id.hex, await self._run_until(run, deadline)
        except LostLease:
            raise Unavailable("the job", f"another worker took it over; see job {lease.id.hex}") from None
        except Unavailable as error:
            reason = f"{error.reason}; job {lease.id.hex} keeps the documents and is tried again"
            raise Unavailable(error.source, reason, retry_after_s=error.retry_after_s) from error

    async def run_mirror(self, lease: Lease, run: RunMirror) -> IngestReport:
        """Carry out a run of a mirror at once, under the lease of its job. Raises like `run_job`."""
        return await self._runner.run_job(JobAttempt(lease, self._queues.queues_for(lease.tenant, None), mirror=run))

    async def _run_until(self, run: JobAttempt, deadline: float | None) -> IngestReport | None:
        """Like `JobRunner.run_job`, but return None at the deadline; the job then continues in the background."""
        task = asyncio.create_task(self._runner.run_job(run))
        try:
            await asyncio.wait({task}, timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            if task.done():
                return task.result()
        except asyncio.CancelledError:
            task.cancel()
            self._track(run.lease, task)  # until its job is returned, also if the caller is cancelled again
            await asyncio.wait({task})
            raise
        self._track(run.lease, task)
        return None

    def _track(self, lease: Lease, task: "asyncio.Task[IngestReport]") -> None:
        """Remember a job that runs in the background, so that `stop` waits for it and its errors are logged."""
        self._running.add(task)
        task.add_done_callback(partial(self._on_done, lease))

    def _on_done(self, lease: Lease, task: "asyncio.Task[IngestReport]") -> None:
        self._running.discard(task)
        _log_failure(lease, task)

    async def run_job(self, lease: Lease) -> IngestReport:
        """Carry out a leased job. Raises like `JobRunner.run_job`."""
        return await self._runner.run_job(JobAttempt(lease, (self._from_queue,), self._queues.writer))

    async def _take_jobs(self) -> None:
        """Carry out jobs from the queue until the worker is closed."""
        while not self._closing.is_set():
            await self.jobs.expiry.run()
            if self._closing.is_set():
                return
            try:
                self._wake_event.clear()
                lease = await self.jobs.lease_next(only_idle=len(self._long) > _MOST_LONG)
            except Exception as error:
                # No error may end this loop, because nobody would notice.
                _log.warning("no job could be taken: %s", error if isinstance(error, Unavailable) else repr(error))
                await self._wait(_REST_S)
                continue
            if lease is None:
                await self._wait(_POLL_S)
                continue
            task = asyncio.create_task(self.run_job(lease))
            self._track(lease, task)
            if self._closing.is_set():
                task.cancel()
            await asyncio.wait({task}, timeout=self._head_start_s)
            if task.cancelled():
                await self._runner.requeue(lease)  # it may have been cancelled before its first step
            if not task.done():
                await self._leave_running(task)

    async def _leave_running(self, task: "asyncio.Task[IngestReport]") -> None:
        """Count a job among the long ones, and wait until few enough of those run to take another from the queue."""
        self._long.add(task)
        task.add_done_callback(self._on_long_done)
        while len(self._long) > _MOST_LONG_TOTAL:
            await asyncio.wait(self._long, return_when=asyncio.FIRST_COMPLETED)

    def _on_long_done(self, task: "asyncio.Task[IngestReport]") -> None:
        self._long.discard(task)
        self._wake_event.set()  # jobs of its tenant may have waited for its end

    async def _keep_schedule(self) -> None:
        """Queue the runs of mirrors that are due, until the worker is closed."""
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

    async def _keep_weights(self) -> None:
        """Recompute the BM25 vectors of collections whose mean length has changed, until the worker is closed."""
        assert self._reweigh is not None
        while not self._closing.is_set():
            pause_s = _POLL_S
            try:
                if await self._reweigh():
                    pause_s = 0.0
            except Exception as error:
                reason = error if isinstance(error, Unavailable) else repr(error)
                _log.warning("BM25 vectors could not be recomputed; the next try is in %g s: %s", _REST_S, reason)
                pause_s = _REST_S
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), pause_s)

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wake_event.wait(), seconds)


def _log_failure(lease: Lease, task: "asyncio.Task[IngestReport]") -> None:
    """Log why a job was not completed. Nothing is logged for a completed one."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, LostLease):
        _log.warning("job %s was lost: another worker has it, or it was cancelled", lease.id.hex)
    elif isinstance(error, RetrievalError):
        _log.warning("job %s: %s", lease.id.hex, error)
    elif error is not None:
        _log.error("job %s: unexpected %s", lease.id.hex, type(error).__name__, exc_info=error)
