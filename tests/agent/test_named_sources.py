"""Sources that the settings name, through HTTP: chosen by a model, by rules and by the caller; what becomes of them."""

import itertools
import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from agent.observe.logs import secrets_of
from agent.serve.cli import run
from agent.serve.cli.doctor import checks as doctor
from agent.serve.cli.doctor import source_checks as doctor_sources
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.service.tenancy import TenantChanges
from agent.settings import SETTINGS_FILE, Settings, load_settings
from agent.testing import Fault, ReceivedRequest, ScriptedServer
from evals.provenance import public_settings
from retrievers.core.circuit_breakers import FAILURE_THRESHOLD
from retrievers.core.errors import BadRequest
from retrievers.core.types import Card, unrestricted_viewer
from retrievers.ingest.documents import Document

BIOS = {
    "lovelace.md": "# Ada Lovelace\n\nAda Lovelace wrote the first program, for the engine of Charles Babbage.\n",
    "hopper.md": "# Grace Hopper\n\nGrace Hopper led the team that made the first compiler. She had no contract.\n",
}
TERMS = {
    "refunds.md": "# Refunds\n\nWho cancels the contract within 14 days is given the money back.\n",
    "accounts.md": "# Accounts\n\nAn account is closed after two years without a login. The first program is free.\n",
}
SECRET = "sk-very-secret-4711"


@pytest.fixture
def places(tmp_path: Path) -> dict[str, dict[str, Any]]:
    """The seed's example: biographies and terms of use, both folders."""
    for name, texts in {"bios": BIOS, "terms": TERMS}.items():
        (tmp_path / name).mkdir()
        for file, text in texts.items():
            (tmp_path / name / file).write_text(text)
    return {
        "bios": {
            "kind": "local",
            "path": tmp_path / "bios",
            "description": "Biographies of people who made computing",
            "examples": ["Who was Alan Turing?", "When was Grace Hopper born?"],
        },
        "terms": {
            "kind": "local",
            "path": tmp_path / "terms",
            "description": "Terms of use: contracts, refunds and accounts",
            "examples": ["How do I cancel my contract?"],
        },
    }


@pytest.fixture
def open_named(owner_url: str, service_url: str) -> Any:
    """Opens a service with named sources, everything in them read."""

    @asynccontextmanager
    async def opened(sources: Mapping[str, Any], **more: Any) -> AsyncIterator[Service]:
        # However busy the machine is, no step runs out of time.
        given = {"database_url": owner_url, "service_url": service_url, "timeout_s": 60, "source_timeout_s": 10}
        given |= {"pool_size": 4, "sources": sources}
        async with open_service(Settings.model_validate({**given, **more})) as service:
            for source in service.pipeline.sources.values():
                if hasattr(source, "ready"):
                    await source.ready()
            yield service

    return opened


def client_of(service: Service) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(create_app(service)), base_url="http://localhost")


async def retrieve(service: Service, query: str, *, status: int = 200, **more: Any) -> dict[str, Any]:
    async with client_of(service) as client:
        answer = await client.post("/v1/retrieve", json={"query": query, **more})
    assert answer.status_code == status, answer.text
    return dict(answer.json())


def reply(question: str, *sources: str, **more: Any) -> str:
    return json.dumps({"kind": "retrieve", "question": question, "searches": [question], "sources": sources, **more})


@asynccontextmanager
async def choosing(*sources: str, **more: Any) -> AsyncIterator[tuple[ScriptedServer, dict[str, Any]]]:
    """A model that chooses these sources for every question, with the settings that it is reached by."""

    def answer(body: dict[str, Any]) -> str:
        return reply("What is said about the first program?", *sources, **more)

    with ScriptedServer(answer) as server:
        yield server, {"llm": "openai/small", "llm_base_url": server.base_url, "intent": "llm", "max_rounds": 1}


def found_in(result: Mapping[str, Any]) -> set[str]:
    return {source for hit in result["hits"] for source in hit["sources"]}


# The seed's example.


@pytest.mark.parametrize(("chosen", "document"), [("bios", "lovelace"), ("terms", "accounts")])
async def test_a_model_chooses_between_two_folders_by_their_descriptions(
    chosen: str, document: str, places: dict[str, Any], open_named: Any
):
    async with choosing(chosen) as (server, model), open_named(places, **model) as service:
        result = await retrieve(service, "What is said about the first program?")
    shown = server.requests[0].body["messages"][0]["content"]
    assert '- "bios": Biographies of people who made computing; for example "Who was Alan Turing?"' in shown
    assert '- "terms": Terms of use: contracts, refunds and accounts' in shown
    assert found_in(result) == {chosen}
    assert result["hits"][0]["document_id"].startswith(document)
    assert result["hits"][0]["id"].startswith(f"0:{chosen}/")
    assert [one["name"] for one in result["intent"]["sources"]] == [chosen]
    assert {one["source"] for one in result["outcomes"] if one["status"] == "ok"} >= {chosen}


async def test_a_model_chooses_a_knowledge_base_and_what_folders_hold_is_left_out(
    places: dict[str, Any], open_named: Any
):
    with ScriptedServer(other=pages) as far:
        every = {**places, "wiki": outside(far)["wiki"]}
        async with choosing("wiki") as (_, model), open_named(every, **model) as service:
            result = await retrieve(service, "What is said about the first program?")
    assert found_in(result) == {"wiki"}
    assert {one["source"] for one in result["outcomes"] if one["hits"]} == {"bios", "terms", "wiki"}


async def test_without_a_model_a_question_like_the_examples_of_one_goes_there(places: dict[str, Any], open_named: Any):
    async with open_named(places) as service:
        result = await retrieve(service, "How can I cancel a contract?")
        assert [one["name"] for one in result["intent"]["sources"]] == ["terms"]
        assert found_in(result) == {"terms"}
        assert result["hits"][0]["document_id"].startswith("refunds")


async def test_without_a_model_a_question_that_says_nothing_of_the_place_is_asked_of_both(
    places: dict[str, Any], open_named: Any
):
    async with open_named(places) as service:
        result = await retrieve(service, "the first program")
    assert {"bios", "terms"} <= {one["source"] for one in result["outcomes"] if one["status"] == "ok"}
    assert found_in(result) == {"bios", "terms"}


async def test_the_caller_names_a_source(places: dict[str, Any], open_named: Any):
    async with open_named(places) as service:
        result = await retrieve(service, "first program contract", sources=["bios"])
        assert found_in(result) == {"bios"}
        problem = await retrieve(service, "x", sources=["bio"], status=422)
        assert 'there is no source "bio"' in problem["detail"]
        assert '"bios"' in problem["detail"]
        named = await retrieve(service, "first program contract", collection="terms")
        assert found_in(named) == {"terms"}


async def test_a_trace_tells_of_named_sources_and_is_replayed_with_another_strategy(
    places: dict[str, Any], open_named: Any
):
    async with choosing("bios", "wiki") as (_, model), open_named(places, **model) as service:
        result = await retrieve(service, "What is said about the first program?")
        trace = await service.explain(result["trace_id"])
        replayed = await service.replay(result["trace_id"], changes={"FALLBACK": "route_to_all"})
    assert {one["source"] for one in trace["outcomes"]} == {"fulltext", "vector", "bios", "terms"}
    assert result["intent"]["missing"] == [{"kind": "source", "name": "wiki"}]
    assert trace["intent"]["rejected"][0]["what"] == "source wiki"
    assert found_in(result) == {"bios"}
    assert {source for hit in replayed.hits for source in hit.sources} == {"bios", "terms"}


# Groups of collections.

GROUPS = {
    "people": {"kind": "collections", "collections": ["staff", "founders"], "description": "People of the company"},
    "rules": {"kind": "collections", "collections": ["policies"], "description": "What is allowed and what is not"},
}
STORED = {
    "staff": {"s1": "Kim is on call for payments."},
    "founders": {"f1": "Lee founded the company; payments came later."},
    "policies": {"p1": "Payments above 100 euros need two signatures."},
}


async def stored(service: Service, *left_out: str) -> None:
    for collection, texts in STORED.items():
        if collection not in left_out:
            documents = [Document(id, id, id, text) for id, text in texts.items()]
            await service.ingest(documents, collection)


async def test_a_group_of_collections_is_searched_where_it_is_named_and_adds_nothing_where_not(open_named: Any):
    async with open_named(GROUPS) as service:
        await stored(service)
        result = await retrieve(service, "payments", sources=["people"])
        assert {hit["id"].partition("/")[0] for hit in result["hits"]} == {"staff", "founders"}
        assert found_in(result) == {"people"}
        assert all(0 < hit["relevance"] <= 1 for hit in result["hits"])
        filtered = {"type": "eq", "key": "collection", "value": "x"}
        assert (await retrieve(service, "payments", sources=["people"], filter=filtered, status=422))["errors"]
        usual = await retrieve(service, "payments")
        assert {one["source"] for one in usual["outcomes"]} == {"fulltext", "vector"}
        assert len(usual["hits"]) == 3


async def test_a_model_chooses_a_group_and_hits_come_from_its_collections_alone(open_named: Any):
    async with choosing("rules") as (server, model), open_named(GROUPS, **model) as service:
        await stored(service)
        result = await retrieve(service, "What is said about payments?")
    assert '- "people": People of the company' in server.requests[0].body["messages"][0]["content"]
    assert [hit["document_id"] for hit in result["hits"]] == ["p1"]
    assert found_in(result) == {"rules"}


async def test_a_group_shows_nobody_collections_of_another_tenant(open_named: Any):
    async with choosing("rules") as (server, model), open_named(GROUPS, **model) as service:
        await stored(service)
        await service.ingest([Document("x", "x", "x", "Payments of Globex.")], "policies", tenant="globex")
        result = await service.retrieve("What is said about payments?", tenant="globex")
        assert [hit.document_id for hit in result.hits] == ["x"]
        named = [one.name for one in await service.sources(tenant="globex")]
        assert named == ["fulltext", "sql", "vector", "rules"]
    assert "People of the company" not in server.requests[0].body["messages"][0]["content"]


# The four fallback strategies.

STRATEGIES = ("ordered_backoff", "do_not_route", "route_to_all", "fail")


async def of_each_strategy(service: Service, **more: Any) -> dict[str, tuple[set[str], list[str], str]]:
    """What each strategy makes of a question: where the hits are from, `degraded`, and the status."""
    seen = {}
    for strategy in STRATEGIES:
        async with client_of(service) as client:
            body = {"query": "What is said about the first program?", "fallback": strategy, **more}
            answer = await client.post("/v1/retrieve", json=body)
        result = answer.json()
        if answer.status_code == 200:
            seen[strategy] = (found_in(result), result["degraded"], result["status"])
        else:
            assert answer.status_code == 503
            seen[strategy] = (set(), [], result["detail"])
    return seen


async def test_a_source_that_a_model_makes_up_is_taken_by_each_strategy_in_its_way(
    places: dict[str, Any], open_named: Any
):
    async with choosing("bios", "wiki") as (_, model), open_named(places, **model) as service:
        seen = await of_each_strategy(service)
    assert seen["ordered_backoff"][:2] == ({"bios"}, ["source_unavailable"])
    assert seen["do_not_route"][:2] == ({"bios"}, ["source_unavailable"])
    assert seen["route_to_all"][:2] == ({"bios", "terms"}, ["source_unavailable"])
    assert seen["fail"][2] == 'the router is unavailable: not all of the chosen sources can be asked: "wiki"'


async def test_where_all_of_a_choice_is_made_up_the_strategies_differ_four_ways(
    places: dict[str, Any], open_named: Any
):
    outside = {"kind": "cloud", "provider": "dify:x", "api_key": SECRET, "description": "Far away"}
    with ScriptedServer(other=lambda _: {"records": [{"content": "A program from afar", "score": 0.5}]}) as far:
        every = {**places, "far": {**outside, "base_url": far.base_url}}
        async with choosing("wiki") as (_, model), open_named(every, **model) as service:
            seen = await of_each_strategy(service)
    assert seen["ordered_backoff"] == ({"bios", "terms"}, ["source_unavailable"], "found")
    assert seen["do_not_route"] == (set(), ["source_unavailable", "routing_failed"], "nothing_found")
    assert seen["route_to_all"] == ({"bios", "terms", "far"}, ["source_unavailable"], "found")
    assert seen["fail"][2] == 'the router is unavailable: none of the chosen sources can be asked: "wiki"'


async def test_a_resting_source_is_taken_by_each_strategy_in_its_way(places: dict[str, Any], open_named: Any):
    async with choosing("bios") as (_, model), open_named(places, **model) as service:
        for _ in range(FAILURE_THRESHOLD):
            service.pipeline.breakers.of("bios").record_failure()
        seen = await of_each_strategy(service)
        async with client_of(service) as client:
            listed = {one["name"]: one["resting"] for one in (await client.get("/v1/sources")).json()["sources"]}
    assert seen["ordered_backoff"] == ({"terms"}, ["bios_unavailable"], "weak")
    assert seen["do_not_route"] == (set(), ["routing_failed", "bios_unavailable"], "nothing_found")
    assert seen["route_to_all"] == ({"terms"}, ["bios_unavailable"], "weak")
    assert seen["fail"][2] == 'the router is unavailable: none of the chosen sources can be asked: "bios"'
    assert (listed["bios"], listed["terms"]) == (True, False)


async def test_a_group_of_which_a_collection_is_missing_is_taken_by_each_strategy_in_its_way(open_named: Any):
    async with choosing("people") as (_, model), open_named(GROUPS, **model) as service:
        await stored(service, "founders")
        seen = await of_each_strategy(service, query="What is said about payments?")
        async with client_of(service) as client:
            listed = {one["name"]: one for one in (await client.get("/v1/sources")).json()["sources"]}
    assert seen["ordered_backoff"][:2] == ({"people"}, ["people_partial"])
    assert seen["do_not_route"] == (set(), ["people_partial", "routing_failed"], "nothing_found")
    assert seen["route_to_all"][:2] == ({"people", "fulltext", "vector"}, ["people_partial"])
    assert seen["fail"][2] == 'the router is unavailable: none of the chosen sources can be asked: "people"'
    assert listed["people"]["collections"] == ["staff"]


@pytest.mark.parametrize(
    ("named", "kept", "none_kept"), [(["policies", "secret"], {"p1"}, False), (["secret"], set(), True)]
)
async def test_a_collection_that_is_not_there_is_taken_by_each_strategy_in_its_way(
    named: list[str], kept: set[str], none_kept: bool, open_named: Any
):
    everything = {"s1", "f1", "p1"}
    async with choosing(collections=named) as (_, model), open_named({}, **model) as service:
        await stored(service)
        await service.ingest([Document("x", "x", "x", "Payments of Globex.")], "secret", tenant="globex")
        found: dict[str, set[str]] = {}
        for strategy in STRATEGIES[:3]:
            result = await retrieve(service, "What is said about payments?", fallback=strategy)
            found[strategy] = {hit["document_id"] for hit in result["hits"]}
            assert "collection_unavailable" in result["degraded"]
            assert ("routing_failed" in result["degraded"]) == (none_kept and strategy == "do_not_route")
        problem = await retrieve(service, "What is said about payments?", fallback="fail", status=503)
    assert found["ordered_backoff"] == (kept or everything)
    assert found["do_not_route"] == kept
    assert found["route_to_all"] == everything
    assert "can be asked" in problem["detail"]


async def test_sources_the_caller_named_are_not_exchanged_but_may_be_refused(places: dict[str, Any], open_named: Any):
    async with open_named(places) as service:
        for _ in range(FAILURE_THRESHOLD):
            service.pipeline.breakers.of("bios").record_failure()
        seen = await of_each_strategy(service, sources=["bios"])
    assert [seen[one][0] for one in STRATEGIES] == [set()] * 4
    assert "can be asked" in seen["fail"][2]
    assert all(seen[one][1] == ["bios_unavailable"] for one in STRATEGIES[:3])


@pytest.mark.parametrize("broken", ["no reading at all", {"status": 503}])
async def test_a_model_that_was_to_choose_and_did_not_is_taken_by_each_strategy_in_its_way(
    broken: Any, places: dict[str, Any], open_named: Any
):
    faults = itertools.repeat(Fault(**broken)) if isinstance(broken, dict) else ()
    with ScriptedServer(lambda _: broken, faults=faults) as server:
        model = {"llm": "openai/small", "llm_base_url": server.base_url, "max_rounds": 1}
        # By its examples the rules would choose one of the two.
        asked = {"query": "When was Grace Hopper born?"}
        async with open_named(places, **model) as service:
            seen = await of_each_strategy(service, intent="llm", **asked)
            by_rules = await of_each_strategy(service, **asked)
    failed = "intent_model_unavailable"
    assert seen["ordered_backoff"][:2] == ({"bios"}, [failed])
    assert seen["do_not_route"] == (set(), ["routing_failed", failed], "nothing_found")
    assert seen["route_to_all"][:2] == ({"bios", "terms"}, [failed])
    assert seen["fail"][2].startswith("the router is unavailable: ")
    # Where the rules choose and the model only joins, routing has not failed.
    assert all(by_rules[one][:2] == ({"bios"}, [failed]) for one in STRATEGIES)


async def test_what_a_choice_does_not_hold_is_looked_for_elsewhere_unless_nothing_may_stand_in(
    places: dict[str, Any], open_named: Any
):
    nothing = {"type": "eq", "key": "title", "value": "Refunds"}
    async with choosing("bios", "wiki") as (_, model), open_named(places, **model) as service:
        seen = await of_each_strategy(service, filter=nothing, query="What is said about the contract?")
    assert seen["ordered_backoff"][0] == {"terms"}
    assert seen["do_not_route"][0] == set()


# Sources outside, limits, and what is said of them.


def pages(request: ReceivedRequest) -> dict[str, Any]:
    """A searxng and a Dify knowledge base, by the path."""
    if "/search" in request.path:
        host = "papers" if request.path.startswith("/papers") else "news"
        return {"results": [{"title": host, "url": f"https://{host}.example/1", "content": f"{host} about rain"}]}
    return {"records": [{"title": "kb", "content": f"The cloud says: {request.body['query']}", "score": 0.9}]}


def outside(far: ScriptedServer) -> dict[str, dict[str, Any]]:
    key = {"api_key": SECRET}
    return {
        "news": {"kind": "web", "provider": f"searxng:{far.root_url}/news", "description": "News", "cost": 0.002},
        "papers": {"kind": "web", "provider": f"searxng:{far.root_url}/papers", "description": "Papers", "cost": 0.001},
        "wiki": {"kind": "cloud", "provider": "dify:wiki", "base_url": far.root_url, "description": "Wiki", **key},
        "manuals": {
            "kind": "cloud", "provider": "dify:manuals", "base_url": far.root_url, "description": "Manuals",
            **key, "top_k": 1, "timeout_s": 0.4,
        },
    }  # fmt: skip


async def test_two_sources_of_one_kind_are_told_apart_in_hits_outcomes_metrics_and_breakers(open_named: Any):
    every = ["wiki", "manuals", "news", "papers"]
    with ScriptedServer(other=pages) as far:
        async with open_named(outside(far)) as service, client_of(service) as client:
            both = (await client.post("/v1/retrieve", json={"query": "rain", "sources": every})).json()
            await client.post("/v1/retrieve", json={"query": "more rain", "sources": ["news"]})
            metrics = (await client.get("/metrics")).text
    assert {hit["id"].split("/")[0] for hit in both["hits"]} == {"wiki", "manuals", "news", "papers"}
    assert {(one["source"], one["status"]) for one in both["outcomes"]} == {
        (name, "ok") for name in ("wiki", "manuals", "news", "papers")
    }
    assert {request.body.get("knowledge_id") for request in far.requests if request.body} == {"wiki", "manuals"}
    assert 'signalbox_source_searches_total{source="news",status="ok"} 2.0' in metrics
    assert 'signalbox_source_cost_dollars_total{source="news"} 0.004' in metrics
    assert 'signalbox_source_searches_total{source="papers",status="ok"} 1.0' in metrics
    assert set(re.findall(r'source="([^"]*)"', metrics)) == set(every)


async def test_each_source_has_its_own_time_and_breaker(open_named: Any):
    slow = itertools.repeat(Fault(delay_s=20.0), FAILURE_THRESHOLD)
    with ScriptedServer(other=pages, faults=slow) as far:
        sources = outside(far)
        sources["wiki"]["timeout_s"] = 9.0
        async with open_named(sources) as service, client_of(service) as client:

            async def outcome(source: str) -> dict[str, Any]:
                answer = await client.post("/v1/retrieve", json={"query": "rain", "sources": [source]})
                return dict(answer.json()["outcomes"][0])

            for _ in range(FAILURE_THRESHOLD):
                timed_out = await outcome("manuals")
                assert timed_out["status"] == "timeout"
                assert timed_out["elapsed_ms"] >= 300
            resting = await outcome("manuals")
            assert resting["reason"] == "manuals failed too often lately; it is tried again soon"
            assert (await outcome("wiki"))["status"] == "ok"
            metrics = (await client.get("/metrics")).text
            ready = (await client.get("/readyz")).json()["parts"]
    assert 'signalbox_breaker_open{part="manuals"} 1.0' in metrics
    assert 'signalbox_breaker_open{part="wiki"} 0.0' in metrics
    assert (ready["manuals"]["status"], ready["wiki"]["status"]) == ("failing", "ok")


async def test_limits_of_a_source_are_its_own(places: dict[str, Any], open_named: Any):
    question = "contract program compiler account"
    async with open_named(places) as service:
        free = await retrieve(service, question, sources=["bios", "terms"])
    relevance = {hit["document_id"]: hit["relevance"] for hit in free["hits"]}
    assert len(relevance) == 4
    bound = sorted(relevance[one] for one in relevance if one[0] in "ar")[0] + 0.0001  # terms: accounts, refunds
    places["terms"]["min_relevance"], places["bios"]["top_k"] = bound, 1
    async with open_named(places) as service:
        result = await retrieve(service, question, sources=["bios", "terms"])
    by_source = [source for hit in result["hits"] for source in hit["sources"]]
    assert sorted(by_source) == ["bios", "terms"]
    assert [one["hits"] for one in result["outcomes"] if one["source"] == "bios"] == [1]


async def test_a_source_that_costs_is_asked_once_for_a_question_unless_more_is_allowed(
    places: dict[str, Any], open_named: Any
):
    places["bios"]["cost"] = 0.01
    searches = {"searches": ["first program", "first compiler"]}
    for allowed, asked in ((1, 1), (2, 2)):
        async with choosing("bios", **searches) as (server, model):
            more = {**model, "metered_searches": allowed}
            async with open_named(places, **more) as service:
                # Rules would ask it before: their search is one of those that are paid for.
                result = await retrieve(service, "first program", intent="llm")
        paid = [one for one in result["outcomes"] if one["source"] == "bios" and one["status"] != "skipped"]
        assert len(paid) == asked
        assert "a search costs $0.01" in server.requests[0].body["messages"][0]["content"]


async def test_a_question_about_the_world_goes_to_the_cheapest_web_search(open_named: Any):
    with ScriptedServer(other=pages) as far:
        async with open_named(outside(far)) as service:
            await stored(service)
            result = await retrieve(service, "What is the weather in Berlin tomorrow?")
    assert result["intent"]["sources"][0]["name"] == "papers"
    assert "papers" in found_in(result)
    assert "news" not in {one["source"] for one in result["outcomes"]}


async def test_no_key_is_shown_anywhere(open_named: Any, caplog: pytest.LogCaptureFixture):
    def refuse(request: ReceivedRequest) -> Any:
        return (401, {"error_code": 1002, "error_msg": f"bad key {request.headers.get('authorization')}"})

    caplog.set_level(logging.DEBUG)
    with ScriptedServer(other=refuse) as far:
        async with open_named({"wiki": outside(far)["wiki"]}) as service, client_of(service) as client:
            assert secrets_of(service.settings) == [SECRET]
            result = await retrieve(service, "rain", sources=["wiki"], explain=True)
            shown = [json.dumps(result)]
            for path in (f"/v1/traces/{result['trace_id']}", "/v1/sources", "/metrics", "/readyz", "/v1/traces"):
                shown.append((await client.get(path)).text)
            checks = await doctor_sources.check_sources(service.settings)
            shown += [repr(checks), doctor._check_settings(service.settings).found, repr(service.settings)]
            shown.append(json.dumps(public_settings(service.settings), default=str))
            reason = result["outcomes"][0]["reason"]
    assert "sources.wiki.api_key" in reason
    assert "CLOUD" not in reason
    assert [(one.name, one.ok) for one in checks] == [("source wiki", False)]
    assert "sources=wiki" in shown[-3].lower()
    assert SECRET not in "".join(shown) + caplog.text


async def test_the_doctor_says_what_is_wrong_with_each_named_source(
    places: dict[str, Any], owner_url: str, service_url: str, tmp_path: Path
):
    gone = {**places["terms"], "path": tmp_path / "gone"}
    settings = Settings.model_validate(
        {
            "database_url": owner_url,
            "service_url": service_url,
            "sources": {"bios": places["bios"], "gone": gone, **GROUPS},
        }
    )
    checks = {one.name: one for one in await doctor_sources.check_sources(settings)}
    assert (checks["source bios"].ok, checks["source gone"].ok) == (True, False)
    assert "2 documents, 2 passages" in checks["source bios"].found
    assert checks["source gone"].found.startswith("setting sources.gone.path: ")
    assert 'has no collection "founders", "staff"' in checks["source people"].found


async def test_feedback_on_an_answer_from_folders_alone_is_stored(places: dict[str, Any], open_named: Any):
    """The tenant has no collection; the filter is one that /v1/retrieve takes."""
    wanted = {"type": "eq", "key": "id", "value": "hopper.md"}
    async with open_named(places) as service:
        found = await retrieve(service, "Who led a team?", filter=wanted)
        trace = found["trace_id"]
        await service.feedback(trace, 9, filter=wanted)
        statement = "SELECT score, filter FROM signalbox.feedback f JOIN signalbox.feedback_label l ON l.id = f.trace"
        rows = await service.database.fetch(unrestricted_viewer("default"), statement, ())

    assert [hit["document_id"] for hit in found["hits"]] == ["hopper.md"]
    assert rows == [(9, wanted)]


# The settings file, as a user writes it.

FOLDER = '[sources.bios]\nkind = "local"\npath = "bios"\ndescription = "Lives"\n'
WEB = '[sources.news]\nkind = "web"\nprovider = "tavily"\ndescription = "News"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FOLDER.replace('"local"', '"locale"'), "setting sources.bios.kind ({file}): input should be 'local', 'web'"),
        (FOLDER.replace("path", "pth"), "setting sources.bios.pth ({file}): there is no such key"),
        (FOLDER.replace('path = "bios"\n', ""), "setting sources.bios ({file}): a source of kind local needs"),
        (
            FOLDER + 'provider = "x"\n',
            'setting sources.bios ({file}): a source of kind local has no key "provider"',
        ),
        (
            FOLDER.replace('"bios"', '""'),
            "setting sources.bios ({file}): a source of kind local needs the key path",
        ),
        (FOLDER.replace('"bios"', '"b\\u0000"'), "setting sources.bios.path ({file}): it contains a NUL character"),
        (FOLDER + "top_k = 0\n", "setting sources.bios.top_k ({file}): "),
        (FOLDER + "timeout_s = 500\n", "setting sources.bios.timeout_s ({file}): "),
        (FOLDER.replace("bios]", "Bios]"), "setting sources.Bios ({file}): the name of a source is a small letter"),
        (FOLDER.replace("bios]", "vector]"), 'setting sources.vector ({file}): "vector" is a reserved name'),
        (FOLDER.replace("bios]", "web]"), 'settings ({file}): the name "web" is reserved for a source of kind web'),
        (WEB + "min_relevance = 0.5\n", "setting sources.news ({file}): hits of kind web have no relevance"),
        (
            WEB + 'api_key_env = "NO_SUCH"\n',
            "setting sources.news.api_key_env ({file}): the variable NO_SUCH is",
        ),
        (FOLDER.replace("bios]", "local]") + "[x]\n", 'there is no setting "X" ({file})'),
    ],
)
def test_a_slip_in_the_file_is_one_plain_line(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / SETTINGS_FILE).write_text(text)
    assert run(["sources"]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("signalbox: " + said.format(file=tmp_path / SETTINGS_FILE)), shown.err
    assert (shown.out, shown.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FOLDER, 'setting sources.bios.path: "bios" does not exist'),
        (WEB, "setting sources.news.api_key is missing: tavily needs one"),
        (WEB.replace("tavily", "google"), 'setting sources.news.provider: there is no web provider "google"'),
        (WEB.replace('"web"', '"cloud"'), "setting sources.news.provider: "),
    ],
)
def test_what_cannot_be_opened_names_its_key(
    text: str, said: str, owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)
    (tmp_path / SETTINGS_FILE).write_text(text)
    assert run(["sources"]) == 2
    shown = capsys.readouterr()
    assert said in shown.err
    assert shown.err.count("\n") == 1


def test_the_command_line_lists_sources_and_asks_one_by_its_name(
    places: dict[str, Any], owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)
    (tmp_path / SETTINGS_FILE).write_text(FOLDER + "timeout_s = 40\ntop_k = 5\ncost = 0.01\n")
    assert run(["sources"]) == 0
    assert "bios             documents  Lives  [40 s, at most 5 hits, $0.01 a search]" in capsys.readouterr().out
    assert run(["sources", "--json"]) == 0
    listed = {one["name"]: one for one in json.loads(capsys.readouterr().out)}
    assert list(listed) == ["fulltext", "sql", "vector", "bios"]
    assert (listed["bios"]["named"], listed["bios"]["top_k"], listed["bios"]["cost"]) == (True, 5, 0.01)
    assert run(["retrieve", "the first compiler", "--source", "bios", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["hits"][0]["sources"] == ["bios"]


def test_every_key_may_stand_in_the_file(tmp_path: Path):
    (tmp_path / SETTINGS_FILE).write_text(
        FOLDER + 'examples = ["Who?", "When?"]\ntop_k = 3\nmin_relevance = 0.1\ntimeout_s = 2\ncost = 1\n'
        '[sources.web]\nkind = "web"\nprovider = "searxng:http://127.0.0.1:8"\ndescription = "W"\nfetch = true\n'
        'base_url = "http://127.0.0.1:9"\napi_key = "k"\n'
        '[sources.group]\nkind = "collections"\ncollections = ["a", "b"]\ndescription = "G"\n'
    )
    found = load_settings(folder=tmp_path).sources
    assert list(found) == ["bios", "web", "group"]
    assert found["bios"].to_definition("bios").card == Card(
        "bios", "Lives", examples=("Who?", "When?"), named=True, top_k=3, min_relevance=0.1, timeout_s=2, cost=1
    )
    assert (found["web"].fetch, found["web"].base_url, found["web"].api_key) == (True, "http://127.0.0.1:9", "k")
    assert found["group"].collections == ("a", "b")


def test_a_key_may_stand_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / SETTINGS_FILE).write_text(WEB + 'api_key_env = "NEWS_KEY"\n')
    monkeypatch.setenv("NEWS_KEY", f" {SECRET}\n")
    settings = load_settings(folder=tmp_path)
    assert settings.sources["news"].api_key == SECRET
    assert SECRET not in repr(settings)


def test_a_weight_is_given_to_sources_outside_by_their_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / SETTINGS_FILE).write_text(FOLDER + WEB)
    monkeypatch.setenv("SIGNALBOX_FUSION_WEIGHTS", "news=0.4")
    assert load_settings(folder=tmp_path).fusion_weights == "news=0.4"
    monkeypatch.setenv("SIGNALBOX_FUSION_WEIGHTS", "bios=0.4")
    with pytest.raises(BadRequest, match='there is no source "bios"; there are: "cloud", "fulltext", "local", "news"'):
        load_settings(folder=tmp_path)


def test_a_source_and_its_short_form_exclude_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / SETTINGS_FILE).write_text(WEB.replace("news", "web"))
    monkeypatch.setenv("SIGNALBOX_WEB_PROVIDER", "ddgs")
    with pytest.raises(BadRequest, match=r"\[sources.web\] and WEB_PROVIDER define the same source; remove one"):
        load_settings(folder=tmp_path)


async def test_a_tenant_is_shown_and_asked_only_the_named_sources_it_may_ask(open_named: Any, places: Any):
    async with open_named(places, tenant="acme") as service, client_of(service) as client:
        changes = TenantChanges(sources=("terms",)).checked(service.settings)
        await service.metering.tenants.change_any_settings("acme", changes)

        listed = (await client.get("/v1/sources")).json()["sources"]
        found = await retrieve(service, "Who wrote the first program?")
        refused = await retrieve(service, "Who wrote the first program?", sources=["bios"], status=422)

    assert [one["name"] for one in listed] == ["terms"]
    assert {step["source"] for step in found["plan"]} == {"terms"}
    assert "bios" in refused["detail"]


async def test_a_tenant_without_any_source_for_the_world_is_not_told_that_the_web_is_missing(
    open_named: Any, places: Any
):
    with ScriptedServer(replies=lambda body: reply("news?", "web")) as server:
        model = {"llm": "openai/small", "llm_base_url": server.base_url, "llm_api_key": "k", "intent": "llm"}
        async with open_named(places, tenant="acme", **model) as service:
            changes = TenantChanges(sources=("terms",)).checked(service.settings)
            await service.metering.tenants.change_any_settings("acme", changes)
            found = await retrieve(service, "What is in the news about contracts today?")

    assert "web_unavailable" not in found["degraded"]
    assert "web" not in str(server.requests[0].body)


async def test_a_question_that_is_an_example_of_a_source_goes_there_whatever_metadata_it_names(
    open_named: Any, places: Any
):
    async with open_named(places, intent="rules") as service:
        staff = [
            Document(
                f"{n}",
                f"{n}",
                f"Engineer {n}",
                "A page.",
                metadata={"engineer": f"Ann Lee {n}", "hired": f"202{n}-01-01"},
            )
            for n in range(5)
        ]
        await service.ingest(staff, "staff")
        places["bios"]["examples"].append("Who was the first engineer?")
    async with open_named(places, intent="rules") as service:
        found = await retrieve(service, "who was the first engineer")

    assert {step["source"] for step in found["plan"] if step["step"] == 1} == {"bios"}
    assert found["intent"]["aggregate"] is None


async def test_a_route_leads_to_a_named_source(open_named: Any, places: Any):
    async with open_named(places, routes=("app=law:terms",)) as service:
        found = await retrieve(service, "Who wrote the first program?", metadata={"app": "law"})
    assert {step["source"] for step in found["plan"]} == {"terms"}
    with pytest.raises(ValidationError, match=r'no source "term"; there are: "bios", .*"terms"'):
        Settings.model_validate({"sources": places, "routes": ("app=law:term",)})
