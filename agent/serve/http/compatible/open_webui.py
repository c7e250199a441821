"""Open WebUI's external web search: POST /search, which searches the documents instead of the web."""

import json
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Query, Response
from fastapi import Request as HttpRequest
from pydantic import BaseModel, Field

from agent.serve.http.compatible.shared import LenientModel, QueryText, document_title, require_hits
from agent.serve.http.dependencies import CallerDep, ServiceDep, WaitedDep
from agent.serve.http.endpoints.native import service_arguments
from agent.serve.http.json_body import JsonBody
from agent.types import MAX_TOP_K, RankedHit, Request


class WebSearch(LenientModel):
    """A search request of Open WebUI."""

    query: QueryText
    count: Annotated[int, Field(ge=1, le=MAX_TOP_K)] = 10


class WebSearchResult(BaseModel):
    """A passage; `link` is the document's URL or, without one, its address in this API."""

    link: str
    title: str
    snippet: str


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(tags=["compatible"])
    routes.post("/search", responses={200: {"model": list[WebSearchResult]}})(web_search)
    return routes


async def web_search(
    http: HttpRequest,
    service: ServiceDep,
    caller: CallerDep,
    waited_s: WaitedDep,
    body: Annotated[
        WebSearch, Depends(JsonBody(WebSearch, example={"query": "How are sockets inherited?", "count": 3}))
    ],
    collection: Annotated[str | None, Query(min_length=1, max_length=128)] = None,
) -> Response:
    """Return passages in the form of Open WebUI's external web search; `?collection=NAME` searches one collection."""
    request = Request(query=body.query, collection=collection, top_k=body.count)
    result = await service.retrieve(**service_arguments(caller, request, service.settings, waited_s))
    found = [
        WebSearchResult(
            link=hit.url or _document_address(http, hit), title=document_title(hit), snippet=hit.text
        ).model_dump()
        for hit in require_hits(result)
    ]
    return Response(json.dumps(found, ensure_ascii=False), media_type="application/json")


def _document_address(http: HttpRequest, hit: RankedHit) -> str:
    """Return the document's address in this API.

    A hit id is COLLECTION/DOCUMENT#NUMBER, after "0:" if the document belongs to the platform.
    """
    collection = hit.id[: hit.id.rindex("#") - len(hit.document_id) - 1].removeprefix("0:")
    return f"{http.base_url}v1/documents/{quote(collection, safe='')}/{quote(hit.document_id, safe='')}"
