"""Relevance: what speaks of a question is told from what merely comes first, at every door."""

import json
import math
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from mcp import Client

from agent import Service, open_service
from agent.retrieval.relevance import (
    RelevanceWeights,
    SearchScores,
    best_relevance,
    packaged_weights,
    predict_relevance,
    score_features,
)
from agent.serve.authentication import Caller
from agent.serve.http.app import create_app
from agent.serve.mcp.server import build_server
from agent.settings import Settings
from agent.types import Result
from retrievers.core.errors import BadRequest
from retrievers.core.types import ChunkId
from retrievers.ingest.documents import Document
from retrievers.local import Local

A, B, C = (ChunkId("t", "c", name, 0) for name in "abc")
BOTH = (1.0, 2.0, -1.0)

NOTES = [
    ("storm", "Mooring in a storm", "Before a storm the ferry is moored with doubled lines at the eastern pier."),
    ("fuel", "Refuelling", "The ferry takes on fuel every second evening, when no passengers are aboard."),
    ("crew", "Crew changes", "The crew of the night ferry changes at six in the morning."),
    ("fares", "Fares", "Children under six travel free; bicycles cost two euros."),
    ("NB-1042", "Notice", "The slipway is closed for repairs until spring."),
    ("夜班", "夜班渡轮", "夜班渡轮的船员在早上六点换班，乘客须提前十分钟到达码头。"),
]
STORM = "where is the ferry moored before a storm"
NONSENSE = "asdf qwer zxcv"


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    async with open_service(Settings(database_url=owner_url, service_url=service_url, pool_size=4)) as service:
        teams = ("deck", "deck", "crew", "office", "office", "crew")
        documents = [
            Document(id, id, title, text, metadata={"team": team})
            for (id, title, text), team in zip(NOTES, teams, strict=True)
        ]
        await service.ingest(documents, "notes")
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(create_app(service))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
        yield client


def test_the_evidence_stands_beside_what_it_could_be():
    evidence = SearchScores({A: 6.0, B: 1.0}, {A: 0.5, C: 0.1}, query_weight=8.0, condition_weight=2.0)
    # Words: (6 + 2) / (8 + 2); cosine: the last one's where a passage is not among them.
    assert score_features(evidence, [A, B, C]).tolist() == [
        [0.8, 0.5, 1.0], [pytest.approx(0.3), 0.1, 1.0], [0.2, 0.1, 1.0],
    ]  # fmt: skip


def test_relevance_is_a_logistic_regression():
    seen = score_features(SearchScores({A: 4.0}, {A: 0.5}, query_weight=8.0), [A])
    assert predict_relevance(seen, BOTH).tolist() == [pytest.approx(1 / (1 + math.exp(-0.5)))]


def test_the_search_that_speaks_most_for_a_passage_counts(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(
        "agent.retrieval.relevance.packaged_weights", lambda: RelevanceWeights(0.1, {"words+near": BOTH})
    )
    weak, strong = SearchScores({A: 1.0}, {A: 0.1}, 8.0), SearchScores({A: 8.0}, {A: 0.9}, 8.0)
    assert best_relevance([weak, strong], [A]) == best_relevance([strong], [A]) > best_relevance([weak], [A])
    assert best_relevance([], [A]).tolist() == [0.0]


def test_the_packaged_coefficients_fit_the_features():
    evidence = {
        "words+near": SearchScores({A: 1.0}, {A: 0.1}, 8.0), "words": SearchScores({A: 1.0}, None, 8.0),
        "near": SearchScores(None, {A: 0.1}, 8.0),
    }  # fmt: skip
    assert packaged_weights().coefficients.keys() == evidence.keys()
    assert all(0 < best_relevance([one], [A])[0] < 1 for one in evidence.values())
    assert 0 < packaged_weights().found < 1


async def test_what_the_documents_do_not_speak_of_is_weak(service: Service):
    found = await service.retrieve(STORM, collection="notes")
    assert (found.status, found.hits[0].document_id) == ("found", "storm")
    assert all(hit.relevance is not None and 0 <= hit.relevance <= 1 for hit in found.hits)
    assert found.hits[0].relevance == max(hit.relevance or 0.0 for hit in found.hits)
    for question in (NONSENSE, "Warum schnurren Katzen?", "how do volcanoes form"):
        weak = await service.retrieve(question, collection="notes", intent="off")
        assert (weak.status, weak.degraded) == ("weak", ())
        assert weak.hits  # they are returned all the same


async def test_chinese_rests_on_words_since_the_packaged_vectors_do_not_know_it(service: Service):
    assert (await service.retrieve("夜班渡轮的船员几点换班", collection="notes")).status == "found"
    assert (await service.retrieve("啦啦啦啦啦啦", collection="notes", intent="off")).status != "found"


async def test_a_bound_leaves_out_what_is_less_relevant_and_the_request_beats_the_setting(service: Service):
    every = (await service.retrieve(STORM, collection="notes")).hits
    least = every[0].relevance
    assert least is not None
    assert [hit.id for hit in (await service.retrieve(STORM, collection="notes", min_relevance=least)).hits] == [
        every[0].id
    ]
    assert len((await service.retrieve(STORM, collection="notes", min_relevance=0)).hits) == len(every)
    nothing = await service.augment(NONSENSE, collection="notes", min_relevance=0.9)
    assert (nothing.status, nothing.hits, nothing.citations) == ("nothing_found", (), ())
    assert nothing.prompt == (
        await service.augment("penguins", collection="notes", sources=["fulltext"])
    ).prompt.replace("penguins", NONSENSE)


async def test_the_setting_is_the_bound_where_the_request_says_nothing(owner_url: str, service_url: str):
    settings = Settings(database_url=owner_url, service_url=service_url, min_relevance=0.9)
    async with open_service(settings) as service:
        await service.ingest([Document(id, id, title, text) for id, title, text in NOTES], "notes")
        assert (await service.retrieve(NONSENSE, collection="notes")).status == "nothing_found"
        assert (await service.retrieve(NONSENSE, collection="notes", min_relevance=0)).status == "found"


async def test_pages_are_cut_after_the_bound(service: Service):
    bounded = await service.retrieve(STORM, collection="notes", min_relevance=0.001)
    pages = [
        await service.retrieve(STORM, collection="notes", min_relevance=0.001, top_k=1, page=page) for page in (1, 2)
    ]
    assert [hit.id for page in pages for hit in page.hits] == [hit.id for hit in bounded.hits[:2]]


async def test_ids_conditions_and_calculations_are_found_whatever_the_words(service: Service):
    named = await service.retrieve("NB-1042", collection="notes")
    assert (named.status, named.hits[0].document_id, named.hits[0].relevance) == ("found", "NB-1042", 1.0)
    counted = await service.retrieve("how many notes per team?", collection="notes")
    assert (counted.table is not None, counted.status) == (True, "found")
    listed = await service.retrieve("everything by team deck", collection="notes")
    assert (listed.status, {hit.relevance for hit in listed.hits}) == ("found", {1.0})


async def test_what_cannot_be_judged_in_time_is_no_reason_to_say_nothing(
    service: Service, monkeypatch: pytest.MonkeyPatch
):
    async def late(*_: Any, **__: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr("agent.retrieval.relevance.estimate_relevance", late)
    result = await service.retrieve(STORM, collection="notes", min_relevance=0.5)
    assert (result.status, result.degraded) == ("found", ("relevance_unavailable",))
    assert {hit.relevance for hit in result.hits} == {None}


async def test_documents_in_memory_are_judged_as_those_of_the_database(service: Service):
    local = Local.of([{"id": id, "title": title, "text": text} for id, title, text in NOTES], service.pipeline.embedder)
    await local.ready()
    sources = {**service.pipeline.sources, "local": local}
    monkey = service.pipeline.sources
    object.__setattr__(service.pipeline, "sources", sources)
    try:
        found = await service.retrieve(STORM, collection="local", intent="off", sources=("local",))
        weak = await service.retrieve(NONSENSE, collection="local", intent="off", sources=("local",))
    finally:
        object.__setattr__(service.pipeline, "sources", monkey)
        await local.aclose()
    assert (found.status, found.hits[0].document_id, weak.status) == ("found", "storm", "weak")


async def test_every_door_takes_the_bound_and_says_the_relevance(service: Service, client: httpx2.AsyncClient):
    asked = {"query": STORM, "collection": "notes"}
    answer = (await client.post("/v1/retrieve", json=asked)).json()
    best = answer["hits"][0]["relevance"]
    assert (answer["status"], 0 < best <= 1) == ("found", True)
    bounded = (await client.post("/v1/retrieve", json={**asked, "min_relevance": best})).json()
    assert [hit["document_id"] for hit in bounded["hits"]] == ["storm"]
    wrong = await client.post("/v1/retrieve", json={**asked, "min_relevance": 1.5})
    assert (wrong.status_code, "min_relevance" in wrong.text) == (422, True)
    chat = {
        "model": "signalbox-prompt", "messages": [{"role": "user", "content": NONSENSE}],
        "signalbox": {"collection": "notes", "min_relevance": 0.9},
    }  # fmt: skip
    assert (await client.post("/v1/chat/completions", json=chat)).json()["signalbox"]["status"] == "nothing_found"
    found = await client.post("/v1/vector_stores/notes/search", json={"query": STORM})
    assert found.json()["data"][0]["score"] == best
    dify = {"knowledge_id": "notes", "query": STORM, "retrieval_setting": {"top_k": 5, "score_threshold": best}}
    assert [one["score"] for one in (await client.post("/retrieval", json=dify)).json()["records"]] == [best]
    async with Client(build_server(service, lambda _: Caller("default", None))) as mcp:
        said = await mcp.call_tool("search_knowledge", {**asked, "min_relevance": best})
        assert [hit["document_id"] for hit in said.structured_content["hits"]] == ["storm"]
    told = json.loads(await service.call_tool({**asked, "min_relevance": best}))
    assert [(one["document_id"], one["relevance"]) for one in told["passages"]] == [("storm", best)]


async def test_a_bound_outside_of_0_to_1_is_refused(service: Service):
    with pytest.raises(BadRequest, match="min_relevance"):
        await service.retrieve(STORM, min_relevance=1.1)


async def test_the_record_keeps_what_was_judged(service: Service):
    result: Result = await service.retrieve(STORM, collection="notes")
    record = await service.explain(result.trace_id)
    assert [hit["relevance"] for hit in record["hits"]] == [hit.relevance for hit in result.hits]
