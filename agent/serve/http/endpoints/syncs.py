"""Collections that follow a source, over HTTP: list them with their last runs, and start a run.

Syncs are defined only on the command line and in the workers' settings, because a source may be a local file.
"""

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Response

from agent.serve.http import schemas
from agent.serve.http.dependencies import ServiceDep, WriterDep
from agent.serve.http.endpoints.documents import failed_documents, job_fields
from agent.serve.http.endpoints.native import json_response, openapi_response
from retrievers.sync.schedule import MirrorStatus, find_mirror

SyncName = Annotated[str, Path(description="name of the sync's schedule, or its id", min_length=1, max_length=128)]


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1/syncs", tags=["syncs"])
    routes.get("", responses=openapi_response(schemas.Syncs))(list_syncs)
    routes.get("/{name}", responses=openapi_response(schemas.SyncBody))(get_sync)
    routes.post("/{name}/run", status_code=202, responses=openapi_response(schemas.SyncBody, 202))(run_sync)
    routes.delete("/{name}", responses=openapi_response(schemas.SyncBody))(forget_sync)
    return routes


async def list_syncs(service: ServiceDep, caller: WriterDep) -> Response:
    """Return the collections that follow a source, each with its last run."""
    found = await service.syncs(tenant=caller.viewer)
    return json_response(schemas.Syncs(syncs=[schemas.SyncSummary(**_sync_fields(one)) for one in found]))


async def get_sync(service: ServiceDep, caller: WriterDep, name: SyncName) -> Response:
    """Return one sync with the failed documents of its last run."""
    return await _sync_response(find_mirror(await service.syncs(tenant=caller.viewer), name))


async def run_sync(service: ServiceDep, caller: WriterDep, name: SyncName) -> Response:
    """Request a run by a worker that knows the source. A run already in progress continues."""
    return await _sync_response(await service.run_sync(name, tenant=caller.viewer), 202)


async def forget_sync(
    service: ServiceDep,
    caller: WriterDep,
    name: Annotated[str, Path(description="id or name of the sync, or its collection", min_length=1, max_length=128)],
) -> Response:
    """Stop following a source that was moved or renamed; its documents stay. Returns the sync as it was."""
    return await _sync_response(await service.forget_sync(name, tenant=caller.viewer))


async def _sync_response(one: MirrorStatus, status: int = 200) -> Response:
    failures = one.last.failures if one.last is not None else ()
    return await asyncio.to_thread(
        lambda: json_response(schemas.SyncBody(**_sync_fields(one), failed=failed_documents(failures)), status)
    )


def _sync_fields(one: MirrorStatus) -> dict[str, Any]:
    names = ("id", "name", "source", "collection", "every_s", "has_worker", "next_at", "documents")
    last = schemas.JobSummary(**job_fields(one.last)) if one.last is not None else None
    return {**{name: getattr(one, name) for name in names}, "last": last}
