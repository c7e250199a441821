"""The commands `reembed`, `rebuild` and `check`."""

import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from agent.serve.cli import output
from agent.serve.cli.jobs import print_job, wait_for_job
from retrievers.core.errors import Unavailable

if TYPE_CHECKING:
    from agent.service.service import Service
    from retrievers.core.types import Viewer
    from retrievers.ingest.jobs.job_types import Job

_LINE_EVERY_S = 2.0


async def rebuild_collection(
    service: "Service", collection: str, embedder: str | None, *, viewer: "Viewer", wait: bool, as_json: bool
) -> int:
    """Submit a job that rebuilds a collection, and print it. Return the exit code: 1 if the job failed, otherwise 0.

    Args:
        embedder: the collection's new embedder; None keeps the current one.
        wait: work on the job in this process until it ends.
    Raises:
        Unavailable: `wait` is set, but the job waits for its next try.
    """
    if embedder is None:
        job = await service.rebuild(collection, tenant=viewer)
    else:
        job = await service.reembed(collection, embedder, tenant=viewer)
    if wait:
        job = await wait_for_job(service, job, viewer, _RebuildProgress().show)
    print_job(job, as_json=as_json)
    if not wait:
        output.print_note(
            f"`signalbox serve` or the option --wait runs the job; progress: signalbox jobs show {job.id}"
        )
    elif job.next_try_at is not None:
        reason = f"{job.error}; `signalbox serve` will retry the job; `signalbox jobs cancel {job.id}` ends it"
        raise Unavailable(f"job {job.id}", reason)
    return int(job.status == "failed")


class _RebuildProgress:
    """Prints progress to standard error, at most once every 2 seconds."""

    def __init__(self) -> None:
        self._last, self._said = time.monotonic(), -1

    def show(self, job: "Job") -> None:
        if job.done != self._said and time.monotonic() - self._last >= _LINE_EVERY_S:
            self._last, self._said = time.monotonic(), job.done
            output.print_note(f"{job.done:,} of {job.documents or 0:,} documents")


async def check_collections(
    service: "Service", collection: str | None, *, viewer: "Viewer", mend: bool, as_json: bool
) -> int:
    """Compare the passages and indexes of one collection, or all (None), with the documents, and print the result.

    Return the exit code: 1 if a fault was found and not repaired, otherwise 0.

    Args:
        mend: also repair the faults.
    """
    names = [collection] if collection is not None else await _own_collections(service, viewer)
    last = time.monotonic()

    def progress(done: int) -> None:
        nonlocal last
        if time.monotonic() - last >= _LINE_EVERY_S:
            last = time.monotonic()
            output.print_note(f"{done:,} documents compared")

    reports = [await service.check(name, mend=mend, progress=progress, tenant=viewer) for name in names]
    if as_json:
        output.write_json([asdict(one) | {"ok": one.ok} for one in reports])
    else:
        for one in reports:
            print(
                output.terminal_text(
                    f"{one.collection}: {one.documents:,} documents, {'ok' if one.ok else 'faults found'}"
                )
            )
            for found in one.findings:
                state = "repaired" if found.mended else "WRONG"
                print(
                    output.terminal_text(
                        f"  {state:<8}  {found.count or 0:,} {found.text} ({', '.join(found.examples)})"
                    )
                )
        if not reports:
            print("no collection yet")
        if not mend and not all(one.ok for one in reports):
            output.print_note("repair it with: signalbox check --mend")
    return int(not all(one.ok for one in reports))


async def _own_collections(service: "Service", viewer: "Viewer") -> list[str]:
    return sorted(one.name for one in await service.collections(tenant=viewer) if one.tenant == viewer.tenant)
