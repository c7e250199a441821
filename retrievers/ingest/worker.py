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
from retrievers.ingest.attempt import Ingest, JobAttempt, JobRunner, Mirroring, Rebuild
from retrievers.ingest.delivery import Delivery
from retrievers.ingest.job_types import Lease, LostLease
from retrievers.ingest.jobs import JobQueue
from retrievers.ingest.lines import DeliveryLine, Lines
from retrievers.ingest.report import Report

_POLL_S = 1.0
"""How often the queue is polled for jobs of other processes, in seconds. Jobs of this process are noticed at once."""
_REST_S = 5.0
_TURNS = 2
"""Number of batches that are written at once for waiting callers, and minimum number for jobs from the queue. More
would leave too few database connections for questions.
"""
_MOST_LONG = 4
"""While more than this many jobs from the queue take long, only jobs of tenants without a running job are taken."""
_MOST_BESIDE = 16
"""While more than this many jobs from the queue take long, no job is taken."""

_log = logging.getLogger(__name__)


class Worker:
    """Carries out ingestion jobs. Inside `async with` the worker also takes jobs from the queue.

    Args:
        at_once: maximum number of jobs taken from the queue at the same time.
        rebuild: carries out jobs that rebuild a collection.
        mirrors: runs of the mirrors whose sources this process knows, by mirror id.
        head_start_s: time after which a job from the queue counts as long, in seconds. The next job then starts, too.
        schedule: called every second; queues the runs of mirrors that are due.
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
        head_start_s: float = 2.0,
    ) -> None:
        self.jobs = jobs
        self.ingest = ingest
        self._runner = JobRunner(jobs, ingest, rebuild=rebuild, mirrors=mirrors or {})
        self._at_once = at_once
        self._schedule, self._head_start_s = schedule, head_start_s
        jobs.known = tuple(mirrors or ())
        self._loops: list[asyncio.Task[None]] = []
        self._at_work: set[asyncio.Task[Report]] = set()
        self._woken, self._closing = asyncio.Event(), asyncio.Event()
        self._lines = Lines()
        self._turns, self._turns_of_queue = asyncio.Semaphore(_TURNS), asyncio.Semaphore(max(at_once, _TURNS))
        self._long: set[asyncio.Task[Report]] = set()

    async def __aenter__(self) -> Self:
        self._loops = [asyncio.create_task(self._work()) for _ in range(self._at_once)]
        if self._schedule is not None and self._at_once:
            self._loops.append(asyncio.create_task(self._keep_schedule()))
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
        self._woken.set()
        if self._at_work and within_s:
            await asyncio.wait(self._at_work, timeout=within_s)
        for task in self._at_work:
            if not task.cancelling():  # a second time would end the wait until the job is returned
                task.cancel()
        await asyncio.gather(*self._loops)
        await asyncio.gather(*self._at_work, return_exceptions=True)

    @property
    def at_work(self) -> int:
        """Number of jobs that are running."""
        return len(self._at_work)

    @property
    def works(self) -> bool | None:
        """Whether this worker takes jobs from the queue; None if it was not started for that."""
        return None if not self._loops else not any(loop.done() for loop in self._loops)

    def wake(self) -> None:
        """Notify the worker of a new job."""
        self._woken.set()

    async def deliver(
        self, tenant: str, delivery: Delivery, *, deadline: float | None = None
    ) -> tuple[str, Report | None]:
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
        lease = await self.jobs.begin(tenant, delivery)
        lines = self._lines.of(tenant, len(delivery.payload))
        run = JobAttempt(lease, lines, partial(self._lines.turn, places=self._turns))
        try:
            return lease.id.hex, await self._carry_out_until(run, deadline)
        except LostLease:
            raise Unavailable("the job", f"another worker took it over; see job {lease.id.hex}") from None
        except Unavailable as error:
            reason = f"{error.reason}; job {lease.id.hex} keeps the documents and is tried again"
            raise Unavailable(error.source, reason, retry_after_s=error.retry_after_s) from error

    async def mirror(self, lease: Lease, mirroring: Mirroring) -> Report:
        """Carry out a run of a mirror at once, under the lease of its job. Raises like `carry_out`."""
        return await self._runner.carry_out(JobAttempt(lease, self._lines.of(lease.tenant, None), mirror=mirroring))

    async def _carry_out_until(self, run: JobAttempt, deadline: float | None) -> Report | None:
        """Like `JobRunner.carry_out`, but return None at the deadline; the job then continues in the background."""
        task = asyncio.create_task(self._runner.carry_out(run))
        try:
            await asyncio.wait({task}, timeout=None if deadline is None else max(0.0, deadline - time.monotonic()))
            if task.done():
                return task.result()
        except asyncio.CancelledError:
            task.cancel()
            self._keep(run.lease, task)  # until its job is returned, also if the caller is cancelled again
            await asyncio.wait({task})
            raise
        self._keep(run.lease, task)
        return None

    def _keep(self, lease: Lease, task: "asyncio.Task[Report]") -> None:
        """Remember a job that runs in the background, so that `stop` waits for it and its errors are logged."""
        self._at_work.add(task)
        task.add_done_callback(partial(self._told, lease))

    def _told(self, lease: Lease, task: "asyncio.Task[Report]") -> None:
        self._at_work.discard(task)
        _tell(lease, task)

    async def carry_out(self, lease: Lease) -> Report:
        """Carry out a leased job. Raises like `JobRunner.carry_out`."""
        turn = partial(self._lines.turn, places=self._turns_of_queue)
        return await self._runner.carry_out(JobAttempt(lease, (DeliveryLine(),), turn))

    async def _work(self) -> None:
        """Carry out jobs from the queue until the worker is closed."""
        while not self._closing.is_set():
            await self.jobs.expiry.run()
            if self._closing.is_set():
                return
            try:
                self._woken.clear()
                lease = await self.jobs.take(only_idle=len(self._long) > _MOST_LONG)
            except Exception as error:
                # No error may end this loop, because nobody would notice.
                _log.warning("no job could be taken: %s", error if isinstance(error, Unavailable) else repr(error))
                await self._wait(_REST_S)
                continue
            if lease is None:
                await self._wait(_POLL_S)
                continue
            task = asyncio.create_task(self.carry_out(lease))
            self._keep(lease, task)
            if self._closing.is_set():
                task.cancel()
            await asyncio.wait({task}, timeout=self._head_start_s)
            if task.cancelled():
                await self._runner.give_back(lease)  # it may have been cancelled before its first step
            if not task.done():
                await self._leave_running(task)

    async def _leave_running(self, task: "asyncio.Task[Report]") -> None:
        """Count a job among the long ones, and wait until few enough of those run to take another from the queue."""
        self._long.add(task)
        task.add_done_callback(self._ended)
        while len(self._long) > _MOST_BESIDE:
            await asyncio.wait(self._long, return_when=asyncio.FIRST_COMPLETED)

    def _ended(self, task: "asyncio.Task[Report]") -> None:
        self._long.discard(task)
        self._woken.set()  # jobs of its tenant may have waited for its end

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

    async def _wait(self, seconds: float) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._woken.wait(), seconds)


def _tell(lease: Lease, task: "asyncio.Task[Report]") -> None:
    """Log why a job was not completed. Nothing is logged for a completed one."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, LostLease):
        _log.warning("job %s was lost: another worker has it, or it was cancelled", lease.id.hex)
    elif isinstance(error, RetrievalError):
        _log.warning("job %s: %s", lease.id.hex, error)
    elif error is not None:
        _log.error("job %s: unexpected %s", lease.id.hex, type(error).__name__, exc_info=error)
