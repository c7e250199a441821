"""Past questions over HTTP: list them, and erase those of a user or a conversation."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response

from agent.serve.http.dependencies import CallerDep, ServiceDep, WriterDep
from agent.serve.http.endpoints.native import json_response, openapi_response
from agent.types import ApiModel, Conversation, Kind, UserName
from retrievers.core.types import unrestricted_viewer

_MOST_RECORDS = 200

User = Annotated[UserName, Query(description="the user who asked, as the caller named them")]


class RecordBody(ApiModel):
    """A past question and its outcome.

    Attributes:
        kind: what the request returned: hits, a prompt or an answer.
        answer: null for hits and prompts.
        score: the feedback, 0 to 10.
    """

    id: str
    kind: Kind
    conversation: str | None
    user: str | None
    metadata: dict[str, Any]
    question: str
    answer: str | None
    status: str
    trace_id: str | None
    created_at: datetime
    ended_at: datetime | None
    score: int | None
    comment: str | None


class RecordList(ApiModel):
    """Past questions, newest first."""

    records: list[RecordBody]


class ErasedCounts(ApiModel):
    """Number of erased items of each kind; `conversations` counts those left without turns."""

    records: int
    traces: int
    turns: int
    conversations: int
    feedback: int


class ErasedBody(ApiModel):
    """What was erased, and the user or conversation it belonged to."""

    user: str | None = None
    conversation: str | None = None
    erased: ErasedCounts


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["records"])
    routes.get("/records", responses=openapi_response(RecordList))(list_records)
    routes.delete("/records", responses=openapi_response(ErasedBody))(erase_records)
    routes.delete("/conversations/{id:path}", responses=openapi_response(ErasedBody))(erase_conversation)
    return routes


async def list_records(
    service: ServiceDep,
    caller: WriterDep,
    user: Annotated[UserName | None, Query(description="only questions of this user")] = None,
    conversation: Annotated[Conversation | None, Query(description="only questions of this conversation")] = None,
    limit: Annotated[int, Query(ge=1, le=_MOST_RECORDS, description="how many")] = 50,
) -> Response:
    """Return the past questions the caller may see, newest first."""
    found = await service.recorded_questions(user=user, conversation=conversation, limit=limit, tenant=caller.viewer)
    return json_response(RecordList(records=[RecordBody(**asdict(one)) for one in found]))


async def erase_records(service: ServiceDep, caller: WriterDep, user: User) -> Response:
    """Erase a user's questions and everything derived from them: records, traces, conversation turns, feedback.

    Repeating the request erases nothing and returns zeros.
    """
    erased = await service.erase(user=user, tenant=unrestricted_viewer(caller.tenant))
    return json_response(ErasedBody(user=user, erased=ErasedCounts(**asdict(erased))))


async def erase_conversation(
    service: ServiceDep,
    caller: CallerDep,
    id: Annotated[Conversation, Path(description="id of the conversation; it may contain slashes")],
) -> Response:
    """Erase a conversation and everything derived from it. A key limited to certain principals erases only its own."""
    viewer = unrestricted_viewer(caller.tenant) if caller.can_write else caller.viewer
    erased = await service.erase(conversation=id, tenant=viewer)
    return json_response(ErasedBody(conversation=id, erased=ErasedCounts(**asdict(erased))))
