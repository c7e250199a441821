"""Rebuild collections over HTTP, and check stored data against the documents."""

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Response

from agent.serve.deadline import remaining_timeout_s
from agent.serve.http import schemas
from agent.serve.http.dependencies import ServiceDep, WaitedDep, WriterDep
from agent.serve.http.endpoints.documents import job_response
from agent.serve.http.endpoints.native import CollectionParam, json_response, openapi_response
from agent.serve.http.json_body import JsonBody
from retrievers.core.errors import BadRequest, join_names
from retrievers.embed.factory import parse_name_value_pairs


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1/collections/{name}", tags=["documents"])
    accepted = openapi_response(schemas.JobBody, 202)
    routes.post("/reembed", status_code=202, responses=accepted)(reembed_collection)
    routes.post("/rebuild", status_code=202, responses=accepted)(rebuild_collection)
    routes.get("/check", responses=openapi_response(schemas.Checked))(check_collection)
    routes.post("/check", responses=openapi_response(schemas.Checked))(mend_collection)
    return routes


async def reembed_collection(
    service: ServiceDep,
    caller: WriterDep,
    name: CollectionParam,
    body: Annotated[schemas.Reembedding, Depends(JsonBody(schemas.Reembedding, example={"embedder": "openai/bge-m3"}))],
) -> Response:
    """Re-embed the collection with another embedder, in the background.

    Questions use the old vectors until all new ones are stored. The embedder must be named in the server's settings, so
    that no request makes the server load a model or send documents elsewhere.
    """
    settings = service.settings
    valid = tuple(dict.fromkeys((settings.embedder, "minilm", *parse_name_value_pairs(settings.embedders))))
    if body.embedder not in valid:
        reason = f'the server has no embedder "{body.embedder}"; it has: {join_names(valid)} (the setting EMBEDDERS)'
        raise BadRequest(reason, where="embedder", valid=valid)
    return await job_response(await service.reembed(name, body.embedder, tenant=caller.viewer), 202)


async def rebuild_collection(service: ServiceDep, caller: WriterDep, name: CollectionParam) -> Response:
    """Split, analyse and index the stored documents again, in the background as with `reembed`."""
    return await job_response(await service.rebuild(name, tenant=caller.viewer), 202)


async def check_collection(
    service: ServiceDep, caller: WriterDep, name: CollectionParam, waited_s: WaitedDep
) -> Response:
    """Compare everything stored of the collection with what its documents produce.

    A check that takes longer than TIMEOUT_S is answered with 503; the command `signalbox check` has no such limit.
    """
    return await _checked(service, caller, name, waited_s, mend=False)


async def mend_collection(
    service: ServiceDep, caller: WriterDep, name: CollectionParam, waited_s: WaitedDep
) -> Response:
    """Check as GET does and repair what is wrong; `ok` is false if that failed. Repairs made before a 503 remain."""
    return await _checked(service, caller, name, waited_s, mend=True)


async def _checked(service: ServiceDep, caller: WriterDep, name: str, waited_s: float, *, mend: bool) -> Response:
    timeout_s = remaining_timeout_s(None, service.settings, waited_s, by_model=False) or service.settings.timeout_s
    report = await service.check(name, mend=mend, timeout_s=timeout_s, tenant=caller.viewer)
    return json_response(schemas.Checked(**asdict(report), ok=report.ok))
