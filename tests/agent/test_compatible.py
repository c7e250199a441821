"""The doors of other services' shapes, asked by those services' own clients and by ours."""

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx2
import openai
import pytest

from agent import Service, open_service
from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.reranker import MOST_TOTAL_CHARACTERS
from agent.retrieval.rerank.text_reranking import MOST_EMBEDDED_PIECES, rerank_texts
from agent.serve.authentication import Authenticator, Caller, MissingKey, Unauthenticated
from agent.serve.http.app import create_app
from agent.serve.http.compatible.dify_filters import OPERATORS
from agent.serve.http.compatible.shared import hit_attributes, scored_hits
from agent.serve.process.testing import run_server
from agent.settings import Settings
from agent.types import RankedHit
from retrievers.core.circuit_breakers import CircuitBreaker
from retrievers.core.errors import BadRequest
from retrievers.embed import Vectors
from retrievers.embed.onnx_embedder import OnnxEmbedder
from retrievers.ingest.documents import Document
from retrievers.testing import HashEmbedder

MARCH = "Emperor penguins march across the ice to breed."
SWIM = "Penguins swim after krill in the cold sea."
REST = "Penguins rest on the shore after the long winter."
QUESTION = "Where do penguins march?"


@pytest.fixture
def settings(owner_url: str, service_url: str) -> Settings:
    return Settings(database_url=owner_url, service_url=service_url, pool_size=4)


@pytest.fixture
async def service(settings: Settings) -> AsyncIterator[Service]:
    async with open_service(settings) as service:
        birds = [
            Document("march", "march", "The march", MARCH, metadata={
                "year": 2005, "tags": ["ice", "film"], "seen": "2024-03-01", "code": "EMP-1", "wild": True,
            }),
            Document("swim", "swim", "The sea", SWIM, url="https://example.org/swim", metadata={
                "year": 2019, "tags": ["sea"], "seen": "2024-07-01", "code": "SEA-2", "wild": False,
            }),
            Document("rest", "rest", "The shore", REST, metadata={"year": 2011}),
        ]  # fmt: skip
        await service.ingest(birds, "birds")
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with asked_through(service) as client:
        yield client


def asked_through(service: Service, authenticate: Authenticator | None = None) -> httpx2.AsyncClient:
    transport = httpx2.ASGITransport(create_app(service, authenticate=authenticate))
    return httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1")


@pytest.fixture
async def url(service: Service) -> AsyncIterator[str]:
    """A real server's address."""
    async with run_server(create_app(service)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
async def openai_client(url: str) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="any", max_retries=0) as client:
        yield client


# OpenAI's vector-store search


async def test_the_openai_client_searches_a_collection_as_a_vector_store(openai_client: openai.AsyncOpenAI):
    page = await openai_client.vector_stores.search("birds", query=QUESTION, max_num_results=2)
    found = [one async for one in page]
    assert page.object == "vector_store.search_results.page"
    first, second = found
    assert first.file_id == "march"
    assert (first.filename, [(one.type, one.text) for one in first.content]) == ("The march", [("text", MARCH)])
    assert 0 <= second.score < first.score <= 1
    assert first.attributes == {
        "year": 2005, "tags": "ice, film", "seen": "2024-03-01", "code": "EMP-1", "wild": True,
    }  # fmt: skip
    page = await openai_client.vector_stores.search("birds", query="krill in the sea", max_num_results=1)
    assert [(one.attributes or {})["url"] for one in page.data] == ["https://example.org/swim"]


async def test_openais_filters_several_queries_and_thresholds_do_what_they_say(openai_client: openai.AsyncOpenAI):
    async def found(query: Any, **options: Any) -> list[str]:
        page = await openai_client.vector_stores.search("birds", query=query, **options)
        return [one.file_id for one in page.data]

    late = {"type": "gt", "key": "year", "value": 2010}
    at_sea = {"type": "in", "key": "tags", "value": ["sea"]}
    assert sorted(await found(QUESTION, filters=late)) == ["rest", "swim"]
    assert await found(QUESTION, filters={"type": "and", "filters": [late, at_sea]}) == ["swim"]
    # A passage has the best of its relevances to the queries.
    best_of_two = await found(["march across the ice", "krill in the sea"], ranking_options={"score_threshold": 0.7})
    assert sorted(best_of_two) == ["march", "swim"]
    assert await found(QUESTION, ranking_options={"score_threshold": 0.9, "ranker": "none"}) == ["march"]
    assert await found(QUESTION, ranking_options={"ranker": "auto"}, max_num_results=1) == ["march"]


async def test_several_queries_have_together_as_many_characters_as_one(client: httpx2.AsyncClient):
    async def asked(*queries: str) -> httpx2.Response:
        return await client.post("/v1/vector_stores/birds/search", json={"query": list(queries)})

    assert (await asked("penguins " * 444, "krill " * 667)).status_code == 200
    refused = await asked("penguins " * 444, "krill " * 668)
    assert refused.status_code == 400
    assert "more than 8,000 characters together" in refused.json()["error"]["message"]


async def test_a_question_is_read_only_where_rewriting_is_asked_for(openai_client: openai.AsyncOpenAI):
    async def found(**options: Any) -> list[str]:
        page = await openai_client.vector_stores.search("birds", query="penguins seen before May 2024", **options)
        return sorted(one.file_id for one in page.data)

    assert await found() == ["march", "rest", "swim"]
    assert await found(rewrite_query=True) == ["march"]


async def test_of_several_queries_as_much_is_read_as_of_one(
    client: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
):
    intents: list[str | None] = []
    retrieve = Service.retrieve

    async def noting(self: Service, **options: Any) -> Any:
        intents.append(options["intent"])
        return await retrieve(self, **options)

    monkeypatch.setattr(Service, "retrieve", noting)
    long, short = "penguins seen before May 2024 " * 33, "penguins"
    for queries, read in (
        ([long] * 3 + [short], [None, "off", "off", None]),
        ([long * 2, short, short], [None, "off", "off"]),
        ([short] * 8, [None] * 8),
    ):
        intents.clear()
        body = {"query": queries, "rewrite_query": True}
        assert (await client.post("/v1/vector_stores/birds/search", json=body)).status_code == 200
        assert intents == read


async def test_the_page_has_exactly_openais_keys_and_nulls_are_as_if_not_given(client: httpx2.AsyncClient):
    body = {"query": QUESTION, "filters": None, "max_num_results": None, "ranking_options": None, "rewrite_query": None}
    answer = (await client.post("/v1/vector_stores/birds/search", json=body)).json()
    assert list(answer) == ["object", "search_query", "data", "has_more", "next_page"]
    assert (answer["search_query"], answer["has_more"], answer["next_page"]) == ([QUESTION], False, None)
    assert list(answer["data"][0]) == ["file_id", "filename", "score", "attributes", "content"]
    scores = [one["score"] for one in answer["data"]]
    assert scores == sorted(scores, reverse=True)


async def test_the_openai_client_raises_its_own_exceptions(openai_client: openai.AsyncOpenAI):
    search = openai_client.vector_stores.search
    with pytest.raises(openai.NotFoundError, match="there is no collection"):
        await search("fish", query="x")
    with pytest.raises(openai.BadRequestError) as caught:
        await search("birds", query="x", filters={"type": "eq", "key": "yaer", "value": 1})
    assert caught.value.param == "filters.key"
    assert '"year"' in caught.value.message
    with pytest.raises(openai.BadRequestError) as caught:
        await search("birds", query="x", max_num_results=51)
    assert caught.value.param == "max_num_results"
    with pytest.raises(openai.BadRequestError) as caught:
        await search("birds", query="x", ranking_options={"ranker": "best"})  # type: ignore[typeddict-item]
    assert caught.value.param == "ranking_options.ranker"


def hit(score: float, relevance: float | None = None, **scores: float) -> RankedHit:
    return RankedHit(
        rank=1, id="c/d#0", document_id="d", title="", text="", start=0, end=0, url=None, metadata={}, score=score,
        scores=scores, sources=(), ranks={}, highlights=(), relevance=relevance,
    )  # fmt: skip


def shown(*hits: RankedHit, threshold: float | None = None) -> list[float]:
    return [score for _, score in scored_hits(hits, threshold)]


def test_a_shown_score_is_the_relevance_and_the_rerankers_where_one_has_judged():
    assert shown(hit(0.9, 0.7), hit(0.6, 0.2)) == [0.7, 0.2]
    assert shown(hit(0.3, 0.9, rerank=0.3), hit(0.2, 0.9, rerank=0.2)) == [0.3, 0.2]
    # Never higher than the one before, whatever the order came from; nor outside of 0 to 1.
    assert shown(hit(0.9, 0.2), hit(0.6, 0.7)) == [0.2, 0.2]
    assert shown(hit(1.5, rerank=1.5), hit(-0.5, rerank=-0.5)) == [1.0, 0.0]
    # From outside comes no relevance: its share of the best score.
    assert shown(hit(0.03), hit(0.015), hit(0.006)) == [1.0, 0.5, pytest.approx(0.2)]
    assert shown(hit(0.0), hit(0.0)) == [0.0, 0.0]
    assert shown() == []


def test_a_threshold_judges_each_hit_by_its_own_score():
    assert shown(hit(0.9, 0.2), hit(0.6, 0.7), threshold=0.5) == [0.7]


def test_attributes_are_what_openai_can_hold():
    metadata = {f"k{n:02}": n for n in range(20)} | {"long": "x" * 600, "who": {"name": "Ann"}, "none": None}
    shown = hit_attributes(hit(1.0).model_copy(update={"metadata": metadata}), ["long", "who.name"])
    assert len(shown) == 16
    assert (shown["long"], shown["who.name"], shown["k00"], "k19" in shown) == ("x" * 512, "Ann", 0, False)


# Dify's external knowledge


async def retrieved(client: httpx2.AsyncClient, *conditions: dict[str, Any], how: str | None = None) -> list[str]:
    body = {
        "knowledge_id": "birds",
        "query": "penguins",
        "retrieval_setting": {"top_k": 10, "score_threshold": 0.0},
        "metadata_condition": {"logical_operator": how, "conditions": list(conditions)},
    }
    answer = await client.post("/retrieval", json=body)
    assert answer.status_code == 200, answer.text
    return sorted(one["metadata"]["document_id"] for one in answer.json()["records"])


async def test_dify_gets_records_with_content_score_title_and_metadata(client: httpx2.AsyncClient):
    body = {
        "knowledge_id": "birds",
        "query": QUESTION,
        "retrieval_setting": {"top_k": 2, "score_threshold": 0.0},
        "sent_by_a_newer_version": 1,
    }
    answer = await client.post("/retrieval", json=body, headers={"Authorization": "Bearer any"})
    assert list(answer.json()) == ["records"]
    records = answer.json()["records"]
    assert len(records) == 2
    assert 0.9 < records[0]["score"] <= 1
    assert records[0] == {
        "content": MARCH,
        "score": records[0]["score"],
        "title": "The march",
        "metadata": {
            "document_id": "march", "year": 2005, "tags": ["ice", "film"], "seen": "2024-03-01", "code": "EMP-1",
            "wild": True,
        },
    }  # fmt: skip
    sea = (await client.post("/retrieval", json={**body, "query": "krill in the sea"})).json()["records"][0]
    assert sea["metadata"]["url"] == "https://example.org/swim"
    body["retrieval_setting"] = {"top_k": 2, "score_threshold": 0.9}
    assert [one["title"] for one in (await client.post("/retrieval", json=body)).json()["records"]] == ["The march"]


async def test_every_operator_of_dify_means_what_it_says(client: httpx2.AsyncClient):
    asked: list[tuple[Any, str, Any, str]] = [
        ("tags", "contains", "ice", "march"),
        ("tags", "not contains", "ice", "rest swim"),
        ("code", "start with", "EMP", "march"),
        ("code", "end with", "-2", "swim"),
        ("code", "end with", "-9", ""),
        ("code", "is", "EMP-1", "march"),
        ("code", "is not", "EMP-1", "rest swim"),
        ("code", "in", ["EMP-1", "X"], "march"),
        ("code", "in", "EMP-1, SEA-2", "march swim"),
        ("code", "not in", ["EMP-1", "X"], "rest swim"),
        ("tags", "empty", None, "rest"),
        ("tags", "not empty", None, "march swim"),
        ("year", "=", 2005, "march"),
        ("year", "=", "2005", "march"),
        ("year", "≠", 2005, "rest swim"),
        ("year", ">", 2011, "swim"),
        ("year", "<", 2011, "march"),
        ("year", "≥", 2011, "rest swim"),
        ("year", "≤", "2011", "march rest"),
        ("seen", "before", "2024-05-01", "march"),
        ("seen", "after", "2024-05-01", "swim"),
        ("seen", "after", 1_714_521_600, "swim"),  # 2024-05-01 in seconds
        ("wild", "is", "true", "march"),
        (["year"], "=", 2005, "march"),  # as older versions send it
        (["code", "title"], "contains", "sea", "swim"),
        (["code", "title"], "not contains", "e", ""),
    ]
    assert {operator for _, operator, _, _ in asked} == set(OPERATORS)
    for name, operator, value, found in asked:
        condition = {"name": name, "comparison_operator": operator, "value": value}
        assert await retrieved(client, condition) == found.split(), condition


async def test_difys_conditions_are_joined_as_it_asks(client: httpx2.AsyncClient):
    early = {"name": "year", "comparison_operator": "<", "value": 2010}
    at_sea = {"name": "tags", "comparison_operator": "contains", "value": "sea"}
    assert await retrieved(client, early, at_sea) == []
    assert await retrieved(client, early, at_sea, how="and") == []
    assert await retrieved(client, early, at_sea, how="or") == ["march", "swim"]
    assert await retrieved(client) == ["march", "rest", "swim"]


async def test_dify_is_told_with_its_own_codes_what_is_wrong(service: Service):
    async def authenticate(authorization: str | None) -> Caller:
        if authorization is None or not authorization.startswith("Bearer "):
            raise MissingKey("the Authorization header holds no key")
        if authorization != "Bearer good":
            raise Unauthenticated("the key is refused")
        return Caller("default", "k1")

    good = {"knowledge_id": "birds", "query": "x", "retrieval_setting": {"top_k": 1, "score_threshold": 0.0}}
    ending = {"conditions": [{"name": "code", "comparison_operator": "end with", "value": "1"}]}
    async with asked_through(service, authenticate) as client:
        for body, header, status, code in (
            (good, None, 401, 1001),
            (good, "Basic abc", 401, 1001),
            (good, "Bearer bad", 401, 1002),
            ({**good, "knowledge_id": "fish"}, "Bearer good", 404, 2001),
            ({**good, "knowledge_id": "fish", "metadata_condition": ending}, "Bearer good", 404, 2001),
            ({**good, "query": ""}, "Bearer good", 400, 400),
            (good, "Bearer good", 200, None),
        ):
            headers = {"Authorization": header} if header else {}
            answer = await client.post("/retrieval", json=body, headers=headers)
            assert answer.status_code == status, answer.text
            if code is not None:
                assert set(answer.json()) == {"error_code", "error_msg"}
                assert answer.json()["error_code"] == code


# Cohere's rerank


DOCUMENTS = ["Walruses sleep.", "Penguins march across the ice.", "Birds of the far south."]


async def test_documents_are_ranked_in_coheres_shape(client: httpx2.AsyncClient):
    body = {
        "model": "rerank-v3.5",
        "query": "Where do penguins march?",
        "documents": DOCUMENTS,
        "max_chunks_per_doc": 3,
    }
    answer = (await client.post("/v2/rerank", json=body)).json()
    assert list(answer) == ["id", "results", "meta"]
    assert answer["meta"] == {"api_version": {"version": "2"}, "signalbox": {"reranker": "hybrid"}}
    assert [set(one) for one in answer["results"]] == [{"index", "relevance_score"}] * 3
    assert answer["results"][0]["index"] == 1
    scores = [one["relevance_score"] for one in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= one <= 1 for one in scores)


async def test_version_1_repeats_documents_where_that_is_asked_for(client: httpx2.AsyncClient):
    body = {"query": "penguins march", "documents": [{"text": one, "title": "t"} for one in DOCUMENTS], "top_n": 1}
    (only,) = (await client.post("/v1/rerank", json={**body, "return_documents": True})).json()["results"]
    assert (only["index"], only["document"]) == (1, {"text": DOCUMENTS[1]})
    (only,) = (await client.post("/v1/rerank", json=body)).json()["results"]
    assert "document" not in only


async def test_what_is_longer_than_max_tokens_per_doc_is_not_read(client: httpx2.AsyncClient):
    documents = ["word " * 50 + "penguins march", "something else"]
    body = {"query": "penguins march", "documents": documents}
    whole = (await client.post("/v2/rerank", json=body)).json()["results"]
    cut = (await client.post("/v2/rerank", json={**body, "max_tokens_per_doc": 20})).json()["results"]
    score = {one["index"]: one["relevance_score"] for one in whole}
    score_cut = {one["index"]: one["relevance_score"] for one in cut}
    assert score[0] > 0.4 > 0.3 > score_cut[0]
    assert score[1] == pytest.approx(score_cut[1])


async def test_a_thousand_documents_are_ranked_and_one_more_is_refused(client: httpx2.AsyncClient):
    documents = [f"number {n}" for n in range(999)] + ["penguins march"]
    ranked = (await client.post("/v2/rerank", json={"query": "penguins march", "documents": documents})).json()
    assert sorted(one["index"] for one in ranked["results"]) == list(range(1000))
    assert ranked["results"][0]["index"] == 999
    refused = await client.post("/v2/rerank", json={"query": "penguins march", "documents": [*documents, "x"]})
    assert refused.status_code == 400
    assert refused.json()["message"].startswith("documents: ")


async def test_of_documents_that_are_too_long_together_the_longest_are_cut(
    client: httpx2.AsyncClient, minilm: OnnxEmbedder
):
    judge = Judge("http:one")
    documents = ["x" * MOST_TOTAL_CHARACTERS, "short", "y" * MOST_TOTAL_CHARACTERS]
    judged = await rerank_texts("x", documents, judge, minilm, CircuitBreaker(), timeout_s=30)
    assert len(judged.ranked) == 3
    assert sum(map(len, judge.read)) <= MOST_TOTAL_CHARACTERS
    assert judge.read[1] == "short"
    assert len(judge.read[0]) == len(judge.read[2]) > 0.4 * MOST_TOTAL_CHARACTERS
    said = (await client.get("/openapi.json")).json()["components"]["schemas"]["RerankV2"]["properties"]["documents"]
    assert f"{MOST_TOTAL_CHARACTERS:,} characters" in said["description"]
    answer = await client.post("/v1/rerank", json={"query": "penguins", "documents": documents})
    assert answer.status_code == 200
    assert sorted(one["index"] for one in answer.json()["results"]) == [0, 1, 2]


@pytest.mark.parametrize("text", ["?", "的", "word ", "a的1 б", "1,"])
async def test_what_is_embedded_of_documents_is_bounded_whatever_they_hold(text: str):
    class Counting(HashEmbedder):
        async def embed(self, texts: Sequence[str]) -> Vectors:
            self.embedded += texts
            return await super().embed(["x"] * len(texts))

    embedder = Counting()
    await rerank_texts("x", [text * 4000] * 40 + ["short"], None, embedder, CircuitBreaker(), timeout_s=30)
    assert embedder.embedded
    # A token has one character of these at the least, and four of a word.
    tokens = sum(len("".join(one.split())) for one in embedder.embedded) / (4 if text == "word " else 1)
    assert tokens <= 1.5 * MOST_EMBEDDED_PIECES


@dataclass
class Judge:
    """A reranker that finds later documents better."""

    name: str
    is_remote: bool = False
    is_comparable: bool = True
    read: list[str] = field(default_factory=list)

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        self.read += [hit.chunk.text for hit in pool if hit.chunk is not None]
        return [float(number) for number in range(len(pool))]

    async def aclose(self) -> None:
        """There is nothing to let go of."""


async def test_the_configured_reranker_judges_within_its_bounds(minilm: OnnxEmbedder):
    async def ranked(name: str, count: int) -> tuple[str, list[int]]:
        judged = await rerank_texts("x", ["x"] * count, Judge(name), minilm, CircuitBreaker(), timeout_s=30)
        assert all(0 <= score <= 1 for _, score in judged.ranked)
        return judged.by, [index for index, _ in judged.ranked]

    assert await ranked("http:one", 100) == ("http:one", list(range(99, -1, -1)))
    # Words in common join the scores of a model.
    birds = await rerank_texts(
        "seal", ["seal", "gull"], Judge("http:one"), minilm, CircuitBreaker(), timeout_s=30, blend=0.9
    )
    assert [index for index, _ in birds.ranked] == [0, 1]
    assert await ranked("llm", 64) == ("llm", list(range(63, -1, -1)))
    with pytest.raises(BadRequest, match="at most 64 documents"):
        await ranked("llm", 65)
    # It judges by what searches said of a hit, of which there is nothing here.
    assert await ranked("ltr", 3) == ("hybrid", [0, 1, 2])


async def test_a_reranker_that_is_down_is_a_503_that_says_which(settings: Settings):
    dead = settings.model_copy(update={"reranker": "http://127.0.0.1:1/v1/rerank"})
    async with open_service(dead) as service, asked_through(service) as client:
        answer = await client.post("/v2/rerank", json={"query": "x", "documents": ["x"]})
    assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
    assert "http://127.0.0.1:1/v1/rerank is unavailable" in answer.json()["message"]


# Open WebUI's external web search


async def test_open_webui_gets_a_link_a_title_and_a_snippet(client: httpx2.AsyncClient):
    answer = await client.post("/search", json={"query": "penguins in the sea", "count": 1})
    assert answer.json() == [{"link": "https://example.org/swim", "title": "The sea", "snippet": SWIM}]
    answer = await client.post("/search?collection=birds", json={"query": QUESTION, "count": 1})
    (found,) = answer.json()
    assert found["link"] == "http://127.0.0.1/v1/documents/birds/march"
    assert (await client.get(found["link"])).json()["title"] == "The march"
    assert (await client.post("/search?collection=fish", json={"query": "x"})).status_code == 404


# Tenants


async def test_what_another_tenant_has_is_behind_none_of_the_doors(service: Service):
    async def authenticate(authorization: str | None) -> Caller:
        return Caller("other", "k2")

    await service.ingest([Document("own", "own", "own", "Penguins of ours.")], "mine", tenant="other")
    async with asked_through(service, authenticate) as client:
        for collection in ("birds", "never-was"):
            body = GOOD["/retrieval"] | {"knowledge_id": collection}
            searched = await client.post(f"/v1/vector_stores/{collection}/search", json={"query": "penguins"})
            retrieved = await client.post("/retrieval", json=body)
            found = await client.post(f"/search?collection={collection}", json={"query": "penguins"})
            assert [one.status_code for one in (searched, retrieved, found)] == [404, 404, 404]
            for path, one in ((PATHS[0], searched), ("/retrieval", retrieved), ("/search", found)):
                assert said(path, one) == f'there is no collection "{collection}"; there are: "mine"'
        found = await client.post("/search", json={"query": "penguins"})
        assert [one["title"] for one in found.json()] == ["own"]


# Our own clients as theirs


@pytest.mark.parametrize("cloud", ["dify", "openai"])
async def test_our_own_cloud_clients_search_this_service(settings: Settings, url: str, cloud: str):
    base = {"dify": url, "openai": f"{url}/v1"}[cloud]
    remote = {"cloud": f"{cloud}:birds", "cloud_base_url": base, "cloud_api_key": "any"}
    async with open_service(settings.model_copy(update=remote)) as asking:
        result = await asking.retrieve(QUESTION, sources=["cloud"], filter={"type": "lt", "key": "year", "value": 2010})
    assert [(one.source, one.status) for one in result.outcomes] == [("cloud", "ok")]
    assert [(one.document_id, one.title, one.text) for one in result.hits] == [("march", "The march", MARCH)]


async def test_our_own_reranker_client_asks_this_service(settings: Settings, url: str):
    async with open_service(settings.model_copy(update={"reranker": f"http:{url}/v1/rerank"})) as asking:
        result = await asking.retrieve(QUESTION, collection="birds")
    assert result.degraded == ()
    assert result.hits[0].document_id == "march"
    assert all(0 <= one.scores["rerank"] <= 1 for one in result.hits)


# What is wrong


PATHS = ("/v1/vector_stores/birds/search", "/retrieval", "/v1/rerank", "/v2/rerank", "/search")
GOOD: dict[str, dict[str, Any]] = {
    "/v1/vector_stores/birds/search": {"query": "x"},
    "/retrieval": {"knowledge_id": "birds", "query": "x", "retrieval_setting": {"top_k": 1, "score_threshold": 0}},
    "/v1/rerank": {"query": "x", "documents": ["x"]},
    "/v2/rerank": {"query": "x", "documents": ["x"]},
    "/search": {"query": "x", "count": 1},
}
BROKEN = [
    b"", b"{", b"[]", b"null", b"5", b'"x"', b"\xff\xfe", b"\xef\xbb\xbf{}", b"{}", b'{"query": NaN}',
    b'{"query": "\\ud800", "documents": ["x"]}', b"[" * 100_000, b'{"query": "x", "query": "y"}',
]  # fmt: skip
WRONG: list[tuple[str, dict[str, Any]]] = [
    *((path, {"query": bad}) for path in PATHS for bad in (None, 5, "", "x" * 8001, {"a": 1}, "a\0b")),
    *((PATHS[0], {key: bad}) for key in ("max_num_results", "ranking_options", "rewrite_query") for bad in ("1", [1])),
    *((PATHS[0], {"filters": bad}) for bad in ("x", [1], {}, {"type": "eq"}, {"type": "eq", "key": "year"})),
    (PATHS[0], {"filters": {"type": "and", "filters": []}}),
    (PATHS[0], {"query": []}),
    (PATHS[0], {"query": ["x"] * 9}),
    (PATHS[0], {"max_num_results": 0}),
    (PATHS[0], {"ranking_options": {"score_threshold": 1.5}}),
    (PATHS[0], {"filter": {"type": "eq", "key": "year", "value": 2005}}),
    *(
        ("/retrieval", {"retrieval_setting": bad})
        for bad in (None, 5, {}, {"top_k": 0}, {"top_k": "1"}, {"top_k": 101})
    ),
    ("/retrieval", {"retrieval_setting": {"top_k": 1, "score_threshold": -1}}),
    *(
        ("/retrieval", {"metadata_condition": {"conditions": [bad]}})
        for bad in (
            5,
            {"name": "year"},
            {"name": "year", "comparison_operator": "~", "value": 1},
            {"name": "year", "comparison_operator": "=", "value": {"a": 1}},
            {"name": "year", "comparison_operator": "=", "value": "many"},
            {"name": "year", "comparison_operator": "="},
            {"name": "year", "comparison_operator": "contains", "value": 5},
            {"name": "year", "comparison_operator": "end with", "value": "5"},
            {"name": "yaer", "comparison_operator": "end with", "value": "5"},
            {"name": "title", "comparison_operator": "end with", "value": "march"},
            {"name": "seen", "comparison_operator": "after", "value": 1e300},
            {"name": [], "comparison_operator": "=", "value": 5},
        )
    ),
    *(
        (path, {"documents": bad})
        for path in ("/v1/rerank", "/v2/rerank")
        for bad in (None, [], "x", [5], [{"title": "x"}], [["x"]])
    ),
    ("/v1/rerank", {"top_n": 0}),
    ("/v2/rerank", {"max_tokens_per_doc": -1}),
    ("/search", {"count": 0}),
    ("/search", {"count": 101}),
]


def said(path: str, answer: httpx2.Response) -> str:
    """The message of an error, in the form that the path has."""
    error = answer.json()
    if path.startswith("/v1/vector_stores"):
        assert set(error) == {"error"}
        assert set(error["error"]) == {"message", "type", "param", "code"}
        return str(error["error"]["message"])
    if path == "/retrieval":
        assert set(error) == {"error_code", "error_msg"}
        return str(error["error_msg"])
    if path == "/search":
        assert answer.headers["content-type"] == "application/problem+json"
        return str(error["detail"])
    assert set(error) == {"message"}
    return str(error["message"])


async def test_bad_requests_get_a_4xx_in_the_form_of_the_door(client: httpx2.AsyncClient):
    for path in PATHS:
        assert (await client.post(path, json=GOOD[path])).status_code == 200
        for raw in BROKEN:
            answer = await client.post(path, content=raw, headers={"Content-Type": "application/json"})
            assert 400 <= answer.status_code < 500, (path, raw[:40], answer.text)
            assert said(path, answer)
        answer = await client.post(path, content=json.dumps(GOOD[path]), headers={"Content-Type": "text/plain"})
        assert answer.status_code == 415
        assert said(path, answer)
        assert (await client.get(path)).status_code == 405
    for path, change in WRONG:
        answer = await client.post(path, json=GOOD[path] | change)
        assert 400 <= answer.status_code < 500, (path, str(change)[:80], answer.text)
        named = next(iter(change)).removesuffix("s")
        assert named in said(path, answer) or named == "metadata_condition", (change, answer.text)
