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

from agent.serve.deadline import left_s
from agent.serve.http import shapes
from agent.serve.http.bodies import JsonBody
from agent.serve.http.dependencies import TheCaller, TheService, TheWriter, WaitedS
from agent.serve.http.problems import logged_problem, problem_body
from agent.serve.identity import Caller
from agent.settings import Settings
from agent.types import Answer, AskRequest, AugmentRequest, Prompt, Request, Result

_QUESTION = {"query": "Which PEPs did Guido write about typing after 2014?", "collection": "peps", "top_k": 5}
_DECLARATION = {"fields": {"size_kb": {"type": "number", "unit": "kb"}}, "records": ["upload", "uploads"]}
_MOST_TRACES = 200

_log = logging.getLogger(__name__)

Name = Annotated[str, Path(description="name of the collection", min_length=1, max_length=128)]
TraceId = Annotated[str, Path(description="trace_id of an answer", min_length=1, max_length=64)]
AnswerTo = dict[int | str, dict[str, Any]]


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1")
    one_trace = "/traces/{id}"
    routes.post("/retrieve", tags=["questions"], responses=gives(Result))(retrieve)
    routes.post("/augment", tags=["questions"], responses=gives(Prompt))(augment)
    routes.post("/ask", tags=["questions"], responses=_STREAM, response_class=Response)(ask)
    routes.get("/sources", tags=["questions"], responses=gives(shapes.Sources))(list_sources)
    routes.get("/collections", tags=["documents"], responses=gives(shapes.Collections))(list_collections)
    routes.get("/collections/{name}", tags=["documents"], responses=gives(shapes.CollectionBody))(get_collection)
    routes.put("/collections/{name}", tags=["documents"], responses=gives(shapes.CollectionBody))(declare_collection)
    routes.delete("/collections/{name}", tags=["documents"], responses=gives(shapes.Deleted))(delete_collection)
    routes.get("/traces", tags=["traces"], responses=gives(shapes.Traces))(list_traces)
    routes.get(one_trace, tags=["traces"], responses=gives(shapes.TraceBody))(get_trace)
    routes.post(f"{one_trace}/replay", tags=["traces"], responses=_REPLAYED)(replay_trace)
    routes.post("/feedback", tags=["traces"], responses=gives(shapes.Judged))(give_feedback)
    return routes


def answer(shape: BaseModel, status: int = 200) -> Response:
    """Return a model as a JSON response, without validating it again."""
    return Response(shape.model_dump_json(), status, media_type="application/json")


async def retrieve(
    service: TheService,
    caller: TheCaller,
    waited_s: WaitedS,
    body: Annotated[Request, Depends(JsonBody(Request, example=_QUESTION))],
) -> Response:
    """Return ranked hits for a question, with how they were found."""
    return answer(await service.retrieve(**asked(caller, body, service.settings, waited_s)))


async def augment(
    service: TheService,
    caller: TheCaller,
    waited_s: WaitedS,
    body: Annotated[AugmentRequest, Depends(JsonBody(AugmentRequest, example=_QUESTION))],
) -> Response:
    """Return the single prompt for a question, with numbered citations."""
    return answer(await service.augment(**asked(caller, body, service.settings, waited_s)))


async def ask(
    http: HttpRequest,
    service: TheService,
    caller: TheCaller,
    waited_s: WaitedS,
    body: Annotated[AskRequest, Depends(JsonBody(AskRequest, example=_QUESTION))],
) -> Response:
    """Stream the answer to a question as server-sent events.

    `text`: a piece of the answer as a JSON string. `answer`: the last event, the whole answer with its citations.
    `error`: a problem in place of the last event, if the answer failed.
    """
    pieces = service.ask_stream(**asked(caller, body, service.settings, waited_s))
    try:
        first = await anext(pieces)  # an error before the first piece gets its own status
    except BaseException:
        await pieces.aclose()
        raise
    return EventSourceResponse(
        _events(first, pieces, http.state.request_id), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    )


async def list_sources(service: TheService, caller: TheCaller) -> Response:
    """Return the sources the caller may search."""
    return answer(shapes.Sources(sources=list(await service.sources(tenant=caller.viewer))))


async def list_collections(service: TheService, caller: TheCaller) -> Response:
    """Return the collections the caller may see."""
    found = await service.collections(tenant=caller.viewer)
    names = shapes.CollectionSummary.model_fields
    summaries = [shapes.CollectionSummary(**{name: getattr(one, name) for name in names}) for one in found]
    return answer(shapes.Collections(collections=summaries))


async def get_collection(service: TheService, caller: TheCaller, name: Name) -> Response:
    """Return one collection with its field catalogue."""
    return answer(shapes.CollectionBody(**await service.describe(name, tenant=caller.viewer)))


async def declare_collection(
    service: TheService,
    caller: TheWriter,
    name: Name,
    body: Annotated[shapes.Declaration, Depends(JsonBody(shapes.Declaration, example=_DECLARATION))],
) -> Response:
    """Declare a collection's fields, the name of its records and its description."""
    said = {name: getattr(body, name) for name in body.model_fields_set}
    schema = {name: value for name, value in said.items() if value is not None}
    return answer(shapes.CollectionBody(**await service.declare(name, schema, tenant=caller.viewer)))


async def delete_collection(service: TheService, caller: TheWriter, name: Name) -> Response:
    """Delete a collection with all its documents."""
    return answer(shapes.Deleted(collection=name, deleted=await service.delete(name, tenant=caller.viewer)))


async def list_traces(
    service: TheService,
    caller: TheCaller,
    limit: Annotated[int, Query(ge=1, le=_MOST_TRACES, description="how many")] = 50,
) -> Response:
    """Return the latest traces, newest first."""
    found = await service.recent_traces(limit, tenant=caller.viewer)
    return answer(shapes.Traces(traces=[shapes.TraceSummary(**one) for one in found]))


async def get_trace(service: TheService, caller: TheCaller, id: TraceId) -> Response:
    """Return how an answer was produced."""
    return _json(await service.explain(id, tenant=caller.viewer))


async def replay_trace(
    service: TheService,
    caller: TheCaller,
    id: TraceId,
    body: Annotated[shapes.Replay, Depends(JsonBody(shapes.Replay, optional=True, example={"changes": {"depth": 50}}))],
) -> Response:
    """Repeat the request of a trace with changed settings, without calling a model."""
    result, difference = await service.replay_compared(id, tenant=caller.viewer, changes=body.changes)
    more = {"replay_of": id, "changes": body.changes, "difference": difference}
    return _json({**result.model_dump(mode="json"), **more})


async def give_feedback(
    service: TheService,
    caller: TheCaller,
    body: Annotated[shapes.Judgement, Depends(JsonBody(shapes.Judgement, example={"trace_id": "0" * 32, "score": 8}))],
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
    return answer(shapes.Judged(trace_id=body.trace_id, score=body.score))


def asked(caller: Caller, body: Request, settings: Settings, waited_s: float = 0.0) -> dict[str, Any]:
    """Return the fields that the client sent as keyword arguments of the service; `tenant` is the caller's viewer.

    Args:
        waited_s: seconds already used of the request's time limit.
    """
    given = {name: getattr(body, name) for name in body.model_fields_set - {"principals"}}
    given["tenant"] = caller.on_behalf_of(body.principals).viewer
    left = left_s(body.timeout_s, settings, waited_s, by_model=isinstance(body, AskRequest))
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


def _json(value: Any) -> Response:
    """Return JSON values as a response; infinite numbers and NaN become null."""
    return Response(to_json(value, inf_nan_mode="null"), media_type="application/json")


def gives(shape: type[BaseModel], status: int = 200) -> AnswerTo:
    """Return what the OpenAPI document lists as the response of an operation: `shape` for the status `status`."""
    return {status: {"model": shape}}


_REPLAYED: AnswerTo = {200: {"model": shapes.Replayed | shapes.ReplayedPrompt | shapes.ReplayedAnswer}}
_EVENT = {
    "type": "object",
    "properties": {
        "event": {"enum": ["text", "answer", "error"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
    "required": ["event", "data"],
}
_STREAM: AnswerTo = {200: {"description": "server-sent events", "content": {"text/event-stream": {"schema": _EVENT}}}}
