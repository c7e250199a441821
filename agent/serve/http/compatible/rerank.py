"""Cohere's rerank API, versions 1 and 2: rank a caller's documents with the configured reranker."""

import asyncio
import uuid
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from agent.llm.call_log import CallLog
from agent.llm.token_estimates import truncate_to_tokens
from agent.retrieval.rerank.llm import ListwiseReranker
from agent.retrieval.rerank.reranker import MOST_TOTAL_CHARACTERS, truncate_longest
from agent.retrieval.rerank.text_reranking import rerank_texts
from agent.serve.authentication import Caller
from agent.serve.http.compatible.shared import LenientModel, QueryText, error_response, openapi_responses
from agent.serve.http.dependencies import CallerDep, ServiceDep, WaitedDep
from agent.serve.http.json_body import JsonBody
from agent.serve.http.problems import Problem
from agent.service.service import Service
from agent.types import LEAST_TIMEOUT_S

MOST_DOCUMENTS = 1000
TOKENS_PER_DOCUMENT = 4096


class TextDocument(LenientModel):
    text: str


class RerankV2(LenientModel):
    """Documents to rank for a query.

    Attributes:
        model: accepted and ignored; the settings choose the reranker.
        top_n: maximum number of results; null for all.
        max_tokens_per_doc: longer documents are cut; the token count is estimated.
    """

    model: Annotated[str, Field(max_length=200)] | None = None
    query: QueryText
    documents: Annotated[
        list[str | TextDocument],
        Field(
            min_length=1,
            max_length=MOST_DOCUMENTS,
            description=f"if all together exceed {MOST_TOTAL_CHARACTERS:,} characters, the longest are cut",
        ),
    ]
    top_n: Annotated[int, Field(ge=1)] | None = None
    max_tokens_per_doc: Annotated[int, Field(ge=1, le=1_000_000)] | None = None


class RerankV1(RerankV2):
    """As version 2, with the option to return the documents."""

    return_documents: bool | None = None


class Ranked(BaseModel):
    index: int
    relevance_score: float
    document: TextDocument | None = None


class ApiVersion(BaseModel):
    version: Literal["1", "2"]


class By(BaseModel):
    """The reranker used: `hybrid` if none is configured."""

    reranker: str


class Meta(BaseModel):
    api_version: ApiVersion
    signalbox: By


class RerankAnswer(BaseModel):
    """Indexes of the documents in the request, best first, with scores from 0 to 1."""

    id: str
    results: list[Ranked]
    meta: Meta


class CohereError(BaseModel):
    message: str


_EXAMPLE = {
    "model": "signalbox",
    "query": "capital of France",
    "documents": ["Paris is ...", "Rome is ..."],
    "top_n": 1,
}


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(tags=["compatible"])
    routes.post("/v1/rerank", responses=openapi_responses(RerankAnswer, CohereError))(rerank)
    routes.post("/v2/rerank", responses=openapi_responses(RerankAnswer, CohereError))(rerank_v2)
    return routes


def cohere_error(problem: Problem) -> Response:
    """Return the problem as a `CohereError` response; a 422 becomes a 400."""
    return error_response(problem, CohereError(message=problem.detail))


ERROR_FORMATTERS = dict.fromkeys(("/v1/rerank", "/v2/rerank"), cohere_error)


async def rerank(
    service: ServiceDep,
    caller: CallerDep,
    waited_s: WaitedDep,
    body: Annotated[RerankV1, Depends(JsonBody(RerankV1, example=_EXAMPLE))],
) -> Response:
    """Rank documents for a query, in Cohere's form."""
    return await _rank_documents(service, caller, body, waited_s, "1", bool(body.return_documents))


async def rerank_v2(
    service: ServiceDep,
    caller: CallerDep,
    waited_s: WaitedDep,
    body: Annotated[RerankV2, Depends(JsonBody(RerankV2, example=_EXAMPLE))],
) -> Response:
    """Rank documents for a query, in the form of Cohere's second version."""
    return await _rank_documents(service, caller, body, waited_s, "2", False)


async def _rank_documents(
    service: Service,
    caller: Caller,
    body: RerankV2,
    waited_s: float,
    version: Literal["1", "2"],
    with_documents: bool,
) -> Response:
    documents = [one if isinstance(one, str) else one.text for one in body.documents]
    tokens = body.max_tokens_per_doc or TOKENS_PER_DOCUMENT
    async with service.admitted(tenant=caller.viewer) as tenant_service:
        reranker = tenant_service.pipeline.reranker
        if isinstance(reranker, ListwiseReranker):
            reranker = reranker.for_request(CallLog(), tenant_service.pipeline.templates.for_tenant(caller.tenant))
        judged = await rerank_texts(
            body.query,
            await asyncio.to_thread(lambda: [truncate_to_tokens(text, tokens) for text in truncate_longest(documents)]),
            reranker,
            service.embedder,
            service.pipeline.breakers.of(f"the reranker {reranker.name if reranker else 'hybrid'}"),
            blend=service.settings.rerank_blend,
            timeout_s=max(service.settings.timeout_s - waited_s, LEAST_TIMEOUT_S),
        )
    said = RerankAnswer(
        id=str(uuid.uuid4()),
        results=[
            Ranked(
                index=index,
                relevance_score=score,
                document=TextDocument(text=documents[index]) if with_documents else None,
            )
            for index, score in judged.ranked[: body.top_n]
        ],
        meta=Meta(api_version=ApiVersion(version=version), signalbox=By(reranker=judged.by)),
    )
    return Response(said.model_dump_json(exclude_none=True), media_type="application/json")
