"""Open WebUI's external web search: POST /search, over the documents instead of the web."""

import json
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from agent.serve.http.bodies import JsonBody
from agent.serve.http.dependencies import TheCaller, TheService
from agent.serve.http.passages import name_of
from agent.types import MAX_QUERY_CHARACTERS, MAX_TOP_K, RankedHit


class WebSearch(BaseModel):
    """A search; keys that a newer Open WebUI may send are passed over."""

    model_config = ConfigDict(frozen=True)

    query: Annotated[str, Field(min_length=1, max_length=MAX_QUERY_CHARACTERS)]
    count: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = 10


class Found(BaseModel):
    """A passage; `link` is the document's URL or, where it has none, its place in this API."""

    link: str
    title: str
    snippet: str


def router() -> APIRouter:
    """The routes of this module."""
    routes = APIRouter(tags=["compatible"])
    routes.post("/search", responses={200: {"model": list[Found]}})(web_search)
    return routes


async def web_search(
    request: Request,
    service: TheService,
    caller: TheCaller,
    body: Annotated[WebSearch, Depends(JsonBody(WebSearch))],
    collection: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
) -> Response:
    """Passages in the shape of Open WebUI's external web search; `?collection=NAME` searches one collection."""
    result = await service.retrieve(body.query, tenant=caller.tenant, collection=collection, top_k=body.count)
    found = [
        Found(link=hit.url or _place(request, hit), title=name_of(hit), snippet=hit.text).model_dump()
        for hit in result.hits
    ]
    return Response(json.dumps(found, ensure_ascii=False), media_type="application/json")


def _place(request: Request, hit: RankedHit) -> str:
    """Where this service has the document: a hit's id is COLLECTION/DOCUMENT#NUMBER, "0:" before it the platform's."""
    collection = hit.id[: hit.id.rindex("#") - len(hit.document_id) - 1].removeprefix("0:")
    return f"{request.base_url}v1/documents/{quote(collection, safe='')}/{quote(hit.document_id, safe='')}"
