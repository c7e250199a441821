"""What a request may have otherwise than the settings, at every door; and what holds for every way of ranking."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import httpx2
import pytest
from mcp import Client

from agent import Service, open_service
from agent.intent.reading import Reading, literal_intent
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.stage import RERANK_POOL
from agent.serve.authentication import Caller
from agent.serve.http.app import create_app
from agent.serve.mcp.server import build_server
from agent.settings import Settings
from agent.types import Request, Result
from retrievers.core.errors import BadRequest
from retrievers.core.filters import FieldCondition, Filter, filter_to_json
from retrievers.core.types import Scope
from retrievers.ingest.documents import Document

QUESTION = "penguins march"
FUSIONS = ("convex", "rrf", "weighted_sum")


def birds(count: int) -> list[Document]:
    """Passages about penguins, which full text and vectors order in different ways."""
    return [
        Document(
            f"d{n}", f"d{n:03}", "", f"{n} penguins" + " march" * (n % 5) + " over ice" * (n % 3),
            metadata={"year": 2000 + n % 20, "team": ("red", "blue")[n % 2]},
        )
        for n in range(count)
    ]  # fmt: skip


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    settings = Settings(
        database_url=owner_url, service_url=service_url, intent="off", timeout_s=60, source_timeout_s=60, pool_size=4
    )
    async with open_service(settings) as service:
        await service.ingest(birds(90), "birds")
        yield service


def ids(result: Result) -> list[str]:
    return [hit.document_id for hit in result.hits]


def scored(result: Result) -> list[tuple[str, float]]:
    return [(hit.document_id, hit.score) for hit in result.hits]


def with_settings(service: Service, **changes: Any) -> Service:
    settings = service.settings.model_copy(update=changes)
    return replace(service, pipeline=replace(service.pipeline, settings=settings))


OPTIONS: list[dict[str, Any]] = [
    {"fusion": "rrf"},
    {"fusion": "weighted_sum"},
    {"lexical_weight": 1.0},
    {"lexical_weight": 0},
    {"depth": 10},
    {"rank_features": "prior:year=1"},
    {"fusion": "rrf", "depth": 20, "rank_features": "recency:year/365=0.5"},
]


async def test_an_option_of_a_request_is_the_setting_for_it_alone(service: Service):
    plain = await service.retrieve(QUESTION, top_k=50)
    for given in OPTIONS:
        asked = await service.retrieve(QUESTION, top_k=50, **given)
        set_so = await with_settings(service, **given).retrieve(QUESTION, top_k=50)
        assert scored(asked) == scored(set_so) != scored(plain), given
        assert scored(await service.retrieve(QUESTION, top_k=50)) == scored(plain), given
        again, difference = await service.replay_compared(asked.trace_id)
        assert (scored(again), difference["same"]) == (scored(asked), True), given


async def test_an_empty_list_of_rank_features_is_none_of_the_settings(service: Service):
    ranked = with_settings(service, rank_features="prior:year=1")
    assert scored(await ranked.retrieve(QUESTION, rank_features="")) == scored(await service.retrieve(QUESTION))


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"fusion": "max"}, "fusion", "weighted_sum"),
    ({"lexical_weight": 1.01}, "lexical_weight", "less than or equal to 1"),
    ({"lexical_weight": -0.1}, "lexical_weight", "greater than or equal to 0"),
    ({"lexical_weight": 0.5, "fusion": "rrf"}, "lexical_weight", "convex"),
    ({"depth": 9}, "depth", "greater than or equal to 10"),
    ({"depth": 1001}, "depth", "less than or equal to 1000"),
    ({"rank_features": "age=1"}, "rank_features", "recency:FIELD/DAYS=WEIGHT"),
    ({"rank_features": "prior:yaer=1"}, "rank_features", "year"),
    ({"rank_features": "x" * 501}, "rank_features", "500"),
    ({"context": "page"}, "context", "section"),
    ({"reranker": "best"}, "reranker", "hybrid"),
]


async def test_an_option_that_cannot_be_used_is_refused_with_what_can(service: Service):
    async with client_of(service) as client:
        for given, where, told in WRONG:
            with pytest.raises(BadRequest) as raised:
                await service.retrieve(QUESTION, **given)
            assert (raised.value.where, told in str(raised.value)) == (where, True), given
            answer = await client.post("/v1/retrieve", json={"query": QUESTION, **given})
            (error,) = answer.json()["errors"]
            assert (answer.status_code, error["where"]) == (422, where), given
            assert told in json.dumps(error), given


def client_of(service: Service) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(create_app(service)), base_url="http://localhost")


GIVEN: dict[str, Any] = {"fusion": "rrf", "depth": 20, "rank_features": "prior:year=0.5", "reranker": "none"}


async def test_the_doors_for_programs_take_the_options(service: Service):
    expected = scored(await service.retrieve(QUESTION, collection="birds", top_k=5, **GIVEN))
    async with client_of(service) as client:
        body = {"query": QUESTION, "collection": "birds", "top_k": 5, "context": "window", **GIVEN}
        for path in ("/v1/retrieve", "/v1/augment"):
            answer = await client.post(path, json=body)
            assert [(hit["document_id"], hit["score"]) for hit in answer.json()["hits"]] == expected, path
        extra = {key: value for key, value in body.items() if key != "query"}
        turns = [{"role": "user", "content": QUESTION}]
        chat = {"model": "signalbox-prompt", "messages": turns, "signalbox": extra}
        answer = await client.post("/v1/chat/completions", json=chat)
        trace = await service.explain(answer.json()["signalbox"]["trace_id"])
        assert [(hit["document_id"], hit["score"]) for hit in trace["hits"]] == expected
        refused = await client.post("/v1/chat/completions", json={**chat, "signalbox": {"fusion": "max"}})
        assert refused.status_code == 400
        assert "weighted_sum" in refused.text


async def test_the_doors_for_models_take_the_options(service: Service):
    expected = scored(await service.retrieve(QUESTION, collection="birds", top_k=5, **GIVEN))
    async with Client(build_server(service, lambda context: Caller("default", None))) as client:
        for name in ("search_knowledge", "answer_with_citations"):
            arguments = {"query": QUESTION, "collection": "birds", "top_k": 5, **GIVEN}
            answer = await client.call_tool(name, arguments)
            assert answer.structured_content is not None
            hits = answer.structured_content["hits"]
            assert [(hit["document_id"], hit["score"]) for hit in hits] == expected, name
        refused = await client.call_tool("search_knowledge", {"query": QUESTION, "fusion": "max"})
        assert refused.is_error
        assert "convex, rrf or weighted_sum" in str(refused.content)
    told = json.loads(await service.call_tool(json.dumps({"query": QUESTION, "collection": "birds", **GIVEN})))
    assert [one["document_id"] for one in told["passages"]] == [id for id, _ in expected]


# Pages.


@dataclass
class Likely:
    """A reader that finds one team likely meant."""

    team: Filter = FieldCondition("eq", "team", "red")  # noqa: RUF009 - it is frozen

    async def read(self, request: Request, scope: Scope, wanted: Filter | None, deadline: float) -> Reading:
        plain = literal_intent(request, scope, wanted, ("fulltext", "vector"))
        intent = plain.model_copy(update={"by": "rules", "soft_filter": filter_to_json(self.team)})
        return Reading(intent, soft=(self.team,))


@dataclass(frozen=True)
class ByNumber:
    """A reranker whose scores are far below every fused one."""

    name: str = "by-number"
    is_remote: bool = False
    is_comparable: bool = False

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        return [int(hit.id.document_id[1:]) / 1e4 for hit in pool]

    async def aclose(self) -> None:
        """There is nothing to let go of."""


@pytest.mark.parametrize("reranker", ["none", "hybrid", "by-number"])
async def test_pages_follow_each_other_fewer_hits_are_the_first_ones_and_scores_never_rise(
    service: Service, reranker: str
):
    pipeline = replace(service.pipeline, reader=Likely(), reranker=ByNumber())
    asked = replace(service, pipeline=pipeline)
    for fusion, features, intent in product(FUSIONS, ("", "prior:year=0.3"), ("off", "auto")):
        options = {"fusion": fusion, "rank_features": features, "intent": intent, "reranker": reranker}
        every = scored(await asked.retrieve(QUESTION, top_k=100, **options))
        assert len(every) == 90 > RERANK_POOL
        scores = [score for _, score in every]
        assert scores == sorted(scores, reverse=True), options
        assert scored(await asked.retrieve(QUESTION, top_k=7, **options)) == every[:7], options
        pages = [await asked.retrieve(QUESTION, top_k=40, page=page, **options) for page in (1, 2, 3)]
        assert [hit for page in pages for hit in scored(page)] == every, options


@pytest.mark.parametrize("reranker", ["none", "hybrid", "by-number"])
async def test_documents_that_are_likely_meant_are_raised_whatever_ranks_them(service: Service, reranker: str):
    def teams(result: Result) -> list[int]:
        return [int(id[1:]) % 2 for id in ids(result)]

    plain = replace(service, pipeline=replace(service.pipeline, reranker=ByNumber()))
    raised = replace(plain, pipeline=replace(plain.pipeline, reader=Likely()))
    before = teams(await plain.retrieve(QUESTION, top_k=10, reranker=reranker))
    result = await raised.retrieve(QUESTION, top_k=10, reranker=reranker, intent="auto")
    assert sum(teams(result)) < sum(before)
    for hit in result.hits if reranker != "none" else ():
        assert hit.score == pytest.approx(hit.scores["rerank"] + hit.scores.get("boost", 0), abs=1e-6)


async def test_key_terms_and_questions_of_documents_count_in_hybrid_and_are_read_within_the_scope(service: Service):
    await service.ingest(
        [
            Document("w", "words", "", "Seals rest."),
            Document("k", "key", "", "Seals rest.", important=("seals",)),
            Document("q", "asked", "", "Seals rest.", questions=("Where do seals rest?",)),
        ],
        "seals",
    )
    await service.ingest([Document("w", "words", "", "Seals.", questions=("Seals?",))], "seals", tenant="other")
    result = await service.retrieve("seals rest", collection="seals", reranker="hybrid")
    assert ids(result) == ["asked", "key", "words"]
    words = result.hits[-1].scores
    # Both words and their pair stand once in the text.
    assert words["rerank"] == pytest.approx(0.7 / 2 + 0.3 * words["vector"])
