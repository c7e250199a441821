"""The `jobs` command: list jobs, show one with its failures, retry it or cancel it."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from agent.serve.cli import output
from retrievers.core.errors import BadRequest

if TYPE_CHECKING:
    from agent.service.service import Service
    from retrievers.core.types import Viewer
    from retrievers.ingest.jobs.job_types import Job

_POLL_S = 0.1
_USAGE = "use `signalbox jobs`, or `signalbox jobs show ID`, `... retry ID` or `... cancel ID`"


async def run(service: "Service", action: str | None, id: str | None, *, viewer: "Viewer", as_json: bool) -> int:
    """List the latest jobs or act on one. Return 2 if a retry leaves a failed document, otherwise 0."""
    if action is None:
        _show_all(await service.jobs(tenant=viewer), as_json=as_json)
        return 0
    assert id is not None
    if action == "show":
        print_job(await service.job(id, tenant=viewer), as_json=as_json)
        return 0
    if action == "cancel":
        print_job(await service.cancel_job(id, tenant=viewer), as_json=as_json)
        return 0
    job = await _retry_job(service, id, viewer)
    print_job(job, as_json=as_json)
    return 2 if job.failures or job.status == "failed" else 0


def check_arguments(action: str | None, id: str | None) -> None:
    """Check the arguments of the command.

    Raises:
        BadRequest: this combination of arguments does not exist.
    """
    if action not in (None, "show", "retry", "cancel") or (action is None) != (id is None):
        raise BadRequest(_USAGE, where="jobs")


async def _retry_job(service: "Service", id: str, viewer: "Viewer") -> "Job":
    """Retry a job and return it once it ends or waits for its next try; with WORKERS=0, return it at once."""
    job = await service.retry_job(id, tenant=viewer)
    return await wait_for_job(service, job, viewer) if service.settings.workers else job


async def wait_for_job(
    service: "Service", job: "Job", viewer: "Viewer", progress: "Callable[[Job], None] | None" = None
) -> "Job":
    """Return the job once it ends or waits for its next try; meanwhile this process works on the queue."""
    async with service.worker:
        while job.status in ("queued", "running") and job.next_try_at is None:
            await asyncio.sleep(_POLL_S)
            job = await service.job(job.id, tenant=viewer)
            if progress is not None:
                progress(job)
    return job


def _show_all(jobs: "Sequence[Job]", *, as_json: bool) -> None:
    if as_json:
        output.write_json([job_json(job) for job in jobs])
        return
    for job in jobs:
        print(_line(job))
    if not jobs:
        print("no jobs; documents sent to `signalbox serve` become jobs")


def print_job(job: "Job", *, as_json: bool) -> None:
    """Print a job with its failed documents."""
    if as_json:
        failures = [{**asdict(one), "failed_at": one.failed_at.isoformat()} for one in job.failures]
        output.write_json({**job_json(job), "failures": failures})
        return
    print(_line(job))
    if job.error:
        again = f"; next try at {job.next_try_at:%Y-%m-%d %H:%M:%S %Z}" if job.next_try_at else ""
        print(output.terminal_text(f"    {job.error}{again}"))
    for one in job.failures:
        id = f" ({one.id})" if one.id is not None else ""
        print(output.terminal_text(f"    {one.where}{id}: {one.reason}"))
    if job.sync is None and (job.failures or job.status == "failed"):
        output.print_note(f"after correcting the cause, try again with: signalbox jobs retry {job.id}")


def _line(job: "Job") -> str:
    of = f"{job.done:,} of {job.documents:,}" if job.documents is not None else f"{job.done:,}"
    what = f"{job.collection}, {job.file}" if job.file is not None else job.collection
    if job.kind != "ingest":
        done = f"{job.kind}{f' with {job.embedder}' if job.embedder else ''}: {of} documents"
        return output.terminal_text(f"{job.id}  {job.created_at:%Y-%m-%d %H:%M}  {job.status:<7}  {what}: {done}")
    what += ", sync" if job.sync is not None else ""
    counts = f"{job.inserted:,} added, {job.updated:,} updated, {job.unchanged:,} unchanged, {job.failed:,} failed"
    counts += f", {job.deleted:,} deleted" if job.sync is not None else ""
    return output.terminal_text(
        f"{job.id}  {job.created_at:%Y-%m-%d %H:%M}  {job.status:<7}  {what}: {of} documents, {counts}"
    )


def job_json(job: "Job") -> dict[str, object]:
    """Return a job as JSON values, without its failed documents."""
    moments = ("next_try_at", "created_at", "started_at", "finished_at")
    given = {name: value for name, value in asdict(job).items() if name not in ("failures", *moments)}
    times = {name: getattr(job, name) for name in moments}
    return given | {name: at.isoformat() if at else None for name, at in times.items()}
