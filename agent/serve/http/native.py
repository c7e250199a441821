"""The service's own endpoints under /v1: the same shapes as in Python."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel

from agent.serve.http.bodies import JsonBody
from agent.serve.http.dependencies import TheCaller, TheService
from agent.types import Request, Result


def router() -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["retrieval"])
    routes.post("/retrieve", responses={200: {"model": Result}})(retrieve)
    return routes


def answer(shape: BaseModel, status: int = 200) -> Response:
    """A shape as JSON, written once and not validated again."""
    return Response(shape.model_dump_json(), status, media_type="application/json")


async def retrieve(
    service: TheService, caller: TheCaller, body: Annotated[Request, Depends(JsonBody(Request))]
) -> Response:
    """Ranked hits for a question, with how they were found."""
    return answer(await service.retrieve(tenant=caller.tenant, **given(body)))


def given(body: BaseModel) -> dict[str, Any]:
    """What the caller said, as arguments."""
    return {name: getattr(body, name) for name in body.model_fields_set}
