"""The service's own endpoints under /v1, with the same request and response types as in Python."""

import json
import logging
from asyncio import CancelledError
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi import Request as HttpRequest
from fastapi.sse import EventSourceResponse, format_sse_event
from pydantic import BaseModel
from pydantic_core import to_json

from agent.serve.authentication import Caller
from agent.serve.deadline import remaining_timeout_s
from agent.serve.http import schemas
from agent.serve.http.dependencies import CallerDep, ServiceDep, WaitedDep, WriterDep
from agent.serve.http.json_body import JsonBody
from agent.serve.http.problems import logged_problem, problem_body
from agent.settings import Settings
from agent.types import Answer, AskRequest, AugmentRequest, Prompt, Request, Result

_QUESTION = {"query": "Which PEPs did Guido write about typing after 2014?", "collection": "peps", "top_k": 5}
_DECLARATION = {"fields": {"size_kb": {"type": "number", "unit": "kb"}}, "records": ["upload", "uploads"]}
_MOST_TRACES = 200

_log = logging.getLogger(__name__)

CollectionParam = Annotated[str, Path(description="name of the collection", min_length=1, max_length=128)]
TraceId = Annotated[str, Path(description="trace_id of an answer", min_length=1, max_length=64)]
OpenApiResponses = dict[int | str, dict[str, Any]]


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1")
    one_trace = "/traces/{id}"
    routes.post("/retrieve", tags=["questions"], responses=openapi_response(Result))(retrieve)
    routes.post("/augment", tags=["questions"], responses=openapi_response(Prompt))(augment)
    routes.post("/ask", tags=["questions"], responses=_STREAM, response_class=Response)(ask)
    routes.get("/sources", tags=["questions"], responses=openapi_response(schemas.Sources))(list_sources)
    routes.get("/collections", tags=["documents"], responses=openapi_response(schemas.Collections))(list_collections)
    routes.get("/collections/{name}", tags=["documents"], responses=openapi_response(schemas.CollectionBody))(
        get_collection
    )
    routes.put("/collections/{name}", tags=["documents"], responses=openapi_response(schemas.CollectionBody))(
        declare_collection
    )
    routes.delete("/collections/{name}", tags=["documents"], responses=openapi_response(schemas.Deleted))(
        delete_collection
    )
    routes.get("/traces", tags=["traces"], responses=openapi_response(schemas.Traces))(list_traces)
    routes.get(one_trace, tags=["traces"], responses=openapi_response(schemas.TraceBody))(get_trace)
    routes.post(f"{one_trace}/replay", tags=["traces"], responses=_REPLAYED)(replay_trace)
    routes.post("/feedback", tags=["traces"], responses=openapi_response(schemas.Judged))(give_feedback)
    return routes


def json_response(body: BaseModel, status: int = 200) -> Response:
    """Return a model as a JSON response, without validating it again."""
    return Response(body.model_dump_json(), status, media_type="application/json")


async def retrieve(
    service: ServiceDep,
    caller: CallerDep,
    waited_s: WaitedDep,
    body: Annotated[Request, Depends(JsonBody(Request, example=_QUESTION))],
) -> Response:
    """Return ranked hits for a question, with how they were found."""
    return json_response(await service.retrieve(**service_arguments(caller, body, service.settings, waited_s)))


async def augment(
    service: ServiceDep,
    caller: CallerDep,
    waited_s: WaitedDep,
    body: Annotated[AugmentRequest, Depends(JsonBody(AugmentRequest, example=_QUESTION))],
) -> Response:
    """Return the single prompt for a question, with numbered citations."""
    return json_response(await service.augment(**service_arguments(caller, body, service.settings, waited_s)))


async def ask(
    http: HttpRequest,
    service: ServiceDep,
    caller: CallerDep,
    waited_s: WaitedDep,
    body: Annotated[AskRequest, Depends(JsonBody(AskRequest, example=_QUESTION))],
) -> Response:
    """Stream the answer to a question as server-sent events.

    `text`: a piece of the answer as a JSON string. `answer`: the last event, the whole answer with its citations.
    `error`: a problem in place of the last event, if the answer failed.
    """
    pieces = service.ask_stream(**service_arguments(caller, body, service.settings, waited_s))
    try:
        first = await anext(pieces)  # an error before the first piece gets its own status
    except BaseException:
        await pieces.aclose()
        raise
    return EventSourceResponse(
        _events(first, pieces, http.state.request_id), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    )


async def list_sources(service: ServiceDep, caller: CallerDep) -> Response:
    """Return the sources the caller may search."""
    return json_response(schemas.Sources(sources=list(await service.sources(tenant=caller.viewer))))


async def list_collections(service: ServiceDep, caller: CallerDep) -> Response:
    """Return the collections the caller may see."""
    found = await service.collections(tenant=caller.viewer)
    names = schemas.CollectionSummary.model_fields
    summaries = [schemas.CollectionSummary(**{name: getattr(one, name) for name in names}) for one in found]
    return json_response(schemas.Collections(collections=summaries))


async def get_collection(service: ServiceDep, caller: CallerDep, name: CollectionParam) -> Response:
    """Return one collection with its field catalogue."""
    return json_response(schemas.CollectionBody(**await service.describe(name, tenant=caller.viewer)))


async def declare_collection(
    service: ServiceDep,
    caller: WriterDep,
    name: CollectionParam,
    body: Annotated[schemas.Declaration, Depends(JsonBody(schemas.Declaration, example=_DECLARATION))],
) -> Response:
    """Declare a collection's fields, the name of its records and its description."""
    said = {name: getattr(body, name) for name in body.model_fields_set}
    schema = {name: value for name, value in said.items() if value is not None}
    return json_response(schemas.CollectionBody(**await service.declare(name, schema, tenant=caller.viewer)))


async def delete_collection(service: ServiceDep, caller: WriterDep, name: CollectionParam) -> Response:
    """Delete a collection with all its documents."""
    return json_response(schemas.Deleted(collection=name, deleted=await service.delete(name, tenant=caller.viewer)))


async def list_traces(
    service: ServiceDep,
    caller: CallerDep,
    limit: Annotated[int, Query(ge=1, le=_MOST_TRACES, description="how many")] = 50,
) -> Response:
    """Return the latest traces, newest first."""
    found = await service.recent_traces(limit, tenant=caller.viewer)
    return json_response(schemas.Traces(traces=[schemas.TraceSummary(**one) for one in found]))


async def get_trace(service: ServiceDep, caller: CallerDep, id: TraceId) -> Response:
    """Return how an answer was produced."""
    return _plain_json_response(await service.explain(id, tenant=caller.viewer))


async def replay_trace(
    service: ServiceDep,
    caller: CallerDep,
    id: TraceId,
    body: Annotated[
        schemas.Replay, Depends(JsonBody(schemas.Replay, optional=True, example={"changes": {"depth": 50}}))
    ],
) -> Response:
    """Repeat the request of a trace with changed settings, without calling a model."""
    result, difference = await service.replay_compared(id, tenant=caller.viewer, changes=body.changes)
    more = {"replay_of": id, "changes": body.changes, "difference": difference}
    return _plain_json_response({**result.model_dump(mode="json"), **more})


async def give_feedback(
    service: ServiceDep,
    caller: CallerDep,
    body: Annotated[
        schemas.Judgement, Depends(JsonBody(schemas.Judgement, example={"trace_id": "0" * 32, "score": 8}))
    ],
) -> Response:
    """Rate an answer, or tell which documents its user opened or which filter is right."""
    await service.feedback(
        body.trace_id,
        body.score,
        body.comment,
        document_ids=body.document_ids,
        filter=body.filter,
        tenant=caller.viewer,
    )
    return json_response(schemas.Judged(trace_id=body.trace_id, score=body.score))


def service_arguments(caller: Caller, body: Request, settings: Settings, waited_s: float = 0.0) -> dict[str, Any]:
    """Return the fields that the client sent as keyword arguments of the service; `tenant` is the caller's viewer.

    Args:
        waited_s: seconds already used of the request's time limit.
    """
    given = {name: getattr(body, name) for name in body.model_fields_set - {"principals"}}
    given["tenant"] = caller.on_behalf_of(body.principals).viewer
    left = remaining_timeout_s(body.timeout_s, settings, waited_s, by_model=isinstance(body, AskRequest))
    return given if left is None else given | {"timeout_s": left}


async def _events(first: str | Answer, rest: AsyncGenerator[str | Answer], request_id: str) -> AsyncIterator[bytes]:
    """Yield the pieces of an answer as server-sent events. An error becomes the last event.

    Args:
        first: the first piece, awaited earlier so that an error before it could still set the HTTP status.
        rest: the further pieces; the last is the `Answer`.
        request_id: shown in the error event.
    """
    async with aclosing(rest):
        yield _event(first)
        try:
            async for piece in rest:
                yield _event(piece)
        except (Exception, CancelledError) as error:
            problem = logged_problem(error, _log, "request %s failed while its answer was being streamed", request_id)
            body = problem_body(problem, request_id)
            yield format_sse_event(event="error", data_str=body.model_dump_json(exclude_none=True))


def _event(piece: str | Answer) -> bytes:
    if isinstance(piece, str):
        return format_sse_event(event="text", data_str=json.dumps(piece))
    return format_sse_event(event="answer", data_str=piece.model_dump_json())


def _plain_json_response(value: Any) -> Response:
    """Return JSON values as a response; infinite numbers and NaN become null."""
    return Response(to_json(value, inf_nan_mode="null"), media_type="application/json")


def openapi_response(body: type[BaseModel], status: int = 200) -> OpenApiResponses:
    """Return what the OpenAPI document lists as the response of an operation: `body` for the status `status`."""
    return {status: {"model": body}}


_REPLAYED: OpenApiResponses = {200: {"model": schemas.Replayed | schemas.ReplayedPrompt | schemas.ReplayedAnswer}}
_EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["text", "answer", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}
_STREAM: OpenApiResponses = {
    200: {"description": "server-sent events", "content": {"text/event-stream": {"schema": _EVENT}}}
}
