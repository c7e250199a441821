"""Dify's external knowledge API: POST /retrieval, where a knowledge base is a collection."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from agent.serve.http.compatible import dify_filters
from agent.serve.http.compatible.shared import (
    LenientModel,
    QueryText,
    document_title,
    error_response,
    openapi_responses,
    require_hits,
    scored_hits,
)
from agent.serve.http.dependencies import CallerDep, ServiceDep, WaitedDep
from agent.serve.http.endpoints.native import json_response, service_arguments
from agent.serve.http.json_body import JsonBody
from agent.serve.http.problems import Problem
from agent.service.service import Service
from agent.types import MAX_TOP_K, RankedHit, Request
from retrievers.core.errors import UnknownCollection
from retrievers.core.types import Viewer

MOST_CONDITIONS = 64


Name = Annotated[str, Field(min_length=1, max_length=256)]
Value = str | int | float | bool


class Condition(LenientModel):
    """A condition on metadata. Older versions of Dify send `name` as a list."""

    name: Name | Annotated[list[Name], Field(min_length=1, max_length=16)]
    comparison_operator: dify_filters.Operator
    value: Value | Annotated[list[Value], Field(max_length=1000)] | None = None


class MetadataCondition(LenientModel):
    logical_operator: Literal["and", "or"] | None = None
    conditions: Annotated[list[Condition], Field(max_length=MOST_CONDITIONS)] | None = None


class RetrievalSetting(LenientModel):
    """`score_threshold` applies to `Record.score`; 0 and null drop nothing."""

    top_k: Annotated[int, Field(ge=1, le=MAX_TOP_K)]
    score_threshold: Annotated[float, Field(ge=0, le=1)] | None = None


class Retrieval(LenientModel):
    """A question to a knowledge base."""

    knowledge_id: Annotated[str, Field(min_length=1, max_length=128)]
    query: QueryText
    retrieval_setting: RetrievalSetting
    metadata_condition: MetadataCondition | None = None


class Record(BaseModel):
    """A passage; its score is that of `shared.scored_hits`."""

    content: str
    score: float
    title: str
    metadata: dict[str, Any]


class Records(BaseModel):
    records: list[Record]


class DifyError(BaseModel):
    """An error with Dify's code, or the HTTP status if Dify has no code.

    Codes: 1001 for an Authorization header without a key, 1002 for a rejected key, 2001 for an unknown knowledge base.
    """

    error_code: int
    error_msg: str


_EXAMPLE = {
    "knowledge_id": "peps",
    "query": "How are sockets inherited?",
    "retrieval_setting": {"top_k": 3, "score_threshold": 0.0},
}


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(tags=["compatible"])
    routes.post("/retrieval", responses=openapi_responses(Records, DifyError))(retrieval)
    return routes


def dify_error(problem: Problem) -> Response:
    """Return the problem as a `DifyError` response; a 422 becomes a 400."""
    code = {401: 1001 if problem.errors else 1002, 404: 2001, 422: 400}.get(problem.status, problem.status)
    return error_response(problem, DifyError(error_code=code, error_msg=problem.detail))


ERROR_FORMATTERS = {"/retrieval": dify_error}


async def retrieval(
    service: ServiceDep,
    caller: CallerDep,
    waited_s: WaitedDep,
    body: Annotated[Retrieval, Depends(JsonBody(Retrieval, example=_EXAMPLE))],
) -> Response:
    """Return passages of a collection in the form of Dify's external knowledge API."""
    setting = body.retrieval_setting
    wanted = await _translate_filter(service, caller.viewer, body)
    request = Request(query=body.query, collection=body.knowledge_id, filter=wanted, top_k=setting.top_k)
    result = await service.retrieve(**service_arguments(caller, request, service.settings, waited_s))
    return json_response(
        Records(
            records=[
                Record(content=hit.text, score=score, title=document_title(hit), metadata=_metadata(hit))
                for hit, score in scored_hits(require_hits(result), setting.score_threshold)
            ]
        )
    )


def _metadata(hit: RankedHit) -> dict[str, Any]:
    own = {"document_id": hit.document_id, **({"url": hit.url} if hit.url else {})}
    return own | hit.metadata


async def _translate_filter(service: Service, viewer: Viewer, body: Retrieval) -> dict[str, Any] | None:
    wanted = body.metadata_condition
    if wanted is None or not wanted.conditions:
        return None
    try:
        fields, field_values = await service.fields(body.knowledge_id, tenant=viewer)
    except UnknownCollection:
        if body.knowledge_id not in service.pipeline.sources:
            raise
        fields, field_values = {}, {}  # not a collection, but an external source with documents of its own
    parts = [
        dify_filters.translate_condition(
            [one.name] if isinstance(one.name, str) else one.name,
            one.comparison_operator,
            one.value,
            fields,
            field_values,
            f"metadata_condition.conditions.{n}",
        )
        for n, one in enumerate(wanted.conditions)
    ]
    return parts[0] if len(parts) == 1 else {"type": wanted.logical_operator or "and", "filters": parts}
