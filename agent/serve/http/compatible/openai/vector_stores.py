"""OpenAI's vector-store search: a vector store is a collection, and filters use our grammar."""

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, ConfigDict, Field

from agent.intent.language.text import MOST_CHARACTERS
from agent.serve.http.compatible.openai.errors import openai_error
from agent.serve.http.compatible.shared import (
    Attribute,
    QueryText,
    document_title,
    hit_attributes,
    openapi_responses,
    require_hits,
    scored_hits,
)
from agent.serve.http.dependencies import CallerDep, ServiceDep, WaitedDep
from agent.serve.http.endpoints.native import CollectionParam, json_response, service_arguments
from agent.serve.http.json_body import JsonBody
from agent.serve.http.problems import field_problem
from agent.types import MAX_QUERY_CHARACTERS, ApiModel, RankedHit, Request
from retrievers.core.errors import BadFilter

MOST_QUERIES = 8


Queries = Annotated[
    list[QueryText],
    Field(
        min_length=1,
        max_length=MOST_QUERIES,
        description=f"at most {MAX_QUERY_CHARACTERS:,} characters together",
    ),
]


class RankingOptions(ApiModel):
    """Options of the ranking.

    Attributes:
        ranker: "none" keeps the fused order; the other values mean the configured reranker, if any.
        score_threshold: hits with a lower score are dropped, see `shared.scored_hits`.
    """

    ranker: Literal["none", "auto", "default-2024-11-15"] | None = None
    score_threshold: Annotated[float, Field(ge=0, le=1)] | None = None


class VectorStoreSearch(ApiModel):
    """A search of a vector store. Null means not given.

    Attributes:
        query: one or more search texts. Each is searched for; a passage gets the best of its scores.
        filters: OpenAI's grammar with the extensions of `filter` in /v1/retrieve.
        rewrite_query: interpret the question as /v1/retrieve does: its dates, names and numbers become filters.
            Otherwise the text is searched unchanged. Of several queries, those are interpreted that have
            1,000 characters together, in their order; the others are searched unchanged.
    """

    query: QueryText | Queries
    filters: dict[str, Any] | None = None
    max_num_results: Annotated[int, Field(ge=1, le=50)] | None = None
    ranking_options: RankingOptions | None = None
    rewrite_query: bool | None = None


class Content(BaseModel):
    type: Literal["text"] = "text"
    text: str


class VectorStoreResult(BaseModel):
    """A passage; `file_id` is its document's id and `filename` the title."""

    file_id: str
    filename: str
    score: float
    attributes: dict[str, Attribute]
    content: list[Content]


class SearchPage(BaseModel):
    """The hits, best first; there is no second page."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=True)

    object: Literal["vector_store.search_results.page"] = "vector_store.search_results.page"
    search_query: list[str]
    data: list[VectorStoreResult]
    has_more: Literal[False] = False
    next_page: None = None


class OpenAIError(BaseModel):
    message: str
    type: str
    param: str | None
    code: str


class OpenAIErrorBody(BaseModel):
    error: OpenAIError


_EXAMPLE = {
    "query": "How are sockets inherited?",
    "filters": {"type": "eq", "key": "status", "value": "Final"},
    "max_num_results": 5,
}
ERROR_FORMATTERS = {"/v1/vector_stores/": openai_error}


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1", tags=["compatible"])
    path = "/vector_stores/{collection:path}/search"
    routes.post(path, responses=openapi_responses(SearchPage, OpenAIErrorBody))(search_vector_store)
    return routes


async def search_vector_store(
    collection: CollectionParam,
    service: ServiceDep,
    caller: CallerDep,
    waited_s: WaitedDep,
    body: Annotated[VectorStoreSearch, Depends(JsonBody(VectorStoreSearch, example=_EXAMPLE))],
) -> Response:
    """Return passages of a collection in the form of OpenAI's vector-store search."""
    queries = [body.query] if isinstance(body.query, str) else body.query
    if sum(map(len, queries)) > MAX_QUERY_CHARACTERS:
        raise field_problem("query", f"the queries have more than {MAX_QUERY_CHARACTERS:,} characters together")
    most = body.max_num_results or 10
    ranking = body.ranking_options or RankingOptions()
    searched: list[str] = []
    found: list[list[tuple[RankedHit, float]]] = []
    started = time.monotonic()
    unread = MOST_CHARACTERS
    for number, query in enumerate(queries):
        # Interpret at most MOST_CHARACTERS in all, as of a single question. The first query is always interpreted, if
        # longer only in part.
        is_read = bool(body.rewrite_query) and (len(query) <= unread or number == 0)
        unread -= len(query) if is_read else 0
        request = Request(
            query=query,
            collection=collection,
            filter=body.filters,
            top_k=most,
            intent=None if is_read else "off",
            reranker="none" if ranking.ranker == "none" else None,
        )
        gone_s = waited_s + (time.monotonic() - started if searched else 0.0)
        try:
            result = await service.retrieve(**service_arguments(caller, request, service.settings, gone_s))
        except BadFilter as error:
            where = error.where.replace("filter", "filters", 1)  # OpenAI's name of the key
            raise BadFilter(str(error), where=where, valid=error.valid) from None
        searched.append(result.query)
        found.append(list(scored_hits(require_hits(result), ranking.score_threshold)))
    keys = _filter_keys(body.filters)
    data = [
        VectorStoreResult(
            file_id=hit.document_id,
            filename=document_title(hit),
            score=score,
            attributes=hit_attributes(hit, keys),
            content=[Content(text=hit.text)],
        )
        for hit, score in _merge_hits(found)[:most]
    ]
    return json_response(SearchPage(search_query=searched, data=data))


def _merge_hits(found: list[list[tuple[RankedHit, float]]]) -> list[tuple[RankedHit, float]]:
    """Merge the (hit, score) pairs of several searches: each hit once, sorted by its best score, then rank, then id."""
    best: dict[str, tuple[RankedHit, float]] = {}
    for hits in found:
        for hit, score in hits:
            if hit.id not in best or (score, -hit.rank) > (best[hit.id][1], -best[hit.id][0].rank):
                best[hit.id] = (hit, score)
    return sorted(best.values(), key=lambda one: (-one[1], one[0].rank, one[0].id))


def _filter_keys(filters: Any) -> set[str]:
    """Return the metadata keys used in a filter expression."""
    if isinstance(filters, dict):
        own = {filters["key"]} if isinstance(filters.get("key"), str) else set()
        return own.union(*(_filter_keys(part) for part in filters.values() if isinstance(part, dict | list)))
    return set().union(*(_filter_keys(part) for part in filters)) if isinstance(filters, list) else set()
