"""Collections that follow a source, over HTTP: list them with their last runs, and start a run.

Syncs are defined only on the command line and in the workers' settings, because a source may be a local file.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from agent.serve.http import shapes
from agent.serve.http.dependencies import TheService, TheWriter
from agent.serve.http.documents import failed_letters, summary
from agent.serve.http.native import answer, gives
from retrievers.sync.schedule import Followed, find

SyncName = Annotated[str, Path(description="name of the sync's schedule, or its id", min_length=1, max_length=128)]


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1/syncs", tags=["syncs"])
    routes.get("", responses=gives(shapes.Syncs))(list_syncs)
    routes.get("/{name}", responses=gives(shapes.SyncBody))(get_sync)
    routes.post("/{name}/run", status_code=202, responses=gives(shapes.SyncBody, 202))(run_sync)
    routes.delete("/{name}", responses=gives(shapes.SyncBody))(forget_sync)
    return routes


async def list_syncs(service: TheService, caller: TheWriter) -> Response:
    """Return the collections that follow a source, each with its last run."""
    found = await service.syncs(tenant=caller.viewer)
    return answer(shapes.Syncs(syncs=[shapes.SyncSummary(**_shown(one)) for one in found]))


async def get_sync(service: TheService, caller: TheWriter, name: SyncName) -> Response:
    """Return one sync with the failed documents of its last run."""
    return await _answer(find(await service.syncs(tenant=caller.viewer), name))


async def run_sync(service: TheService, caller: TheWriter, name: SyncName) -> Response:
    """Request a run by a worker that knows the source. A run already in progress continues."""
    return await _answer(await service.run_sync(name, tenant=caller.viewer), 202)


async def forget_sync(
    service: TheService,
    caller: TheWriter,
    name: Annotated[str, Path(description="id or name of the sync, or its collection", min_length=1, max_length=128)],
) -> Response:
    """Stop following a source that was moved or renamed; its documents stay. Returns the sync as it was."""
    return await _answer(await service.forget_sync(name, tenant=caller.viewer))


async def _answer(one: Followed, status: int = 200) -> Response:
    failures = one.last.failures if one.last is not None else ()
    return await asyncio.to_thread(
        lambda: answer(shapes.SyncBody(**_shown(one), failed=failed_letters(failures)), status)
    )


def _shown(one: Followed) -> dict[str, Any]:
    names = ("id", "name", "source", "collection", "every_s", "has_worker", "next_at", "documents")
    last = shapes.JobSummary(**summary(one.last)) if one.last is not None else None
    return {**{name: getattr(one, name) for name in names}, "last": last}
