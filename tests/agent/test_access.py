"""Who may read a document inside a tenant: by every door nobody is shown anything of one that they may not read."""

import base64
import hashlib
import hmac
import json
import random
import re
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import jwt
import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from agent.chat.erasure import ErasureCounts
from agent.errors import BadSetting
from agent.serve.authentication import open_authenticator, resolve_auth_mode
from agent.serve.http.app import create_app
from agent.serve.jwt_verifier import JwtVerifier
from agent.serve.process.testing import run_server
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.testing import ScriptedServer
from retrievers.core.errors import BadRequest, NotFound
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.ingest import document_store
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.readers.file_input import read_paths, read_record

MARK = re.compile(r"zq[a-z]+x[0-9]+y")
WORDS = ("turbine", "rotor", "bearing", "gearbox", "hub", "nacelle", "pitch", "tower")


def mark(tenant: str, number: int) -> str:
    """A word that stands in all that one document has, and in nothing else."""
    return f"zq{tenant}x{number}y"


def record(tenant: str, number: int, readers: Sequence[str], edition: int = 0) -> dict[str, Any]:
    """A document: the marker is in its id, its texts, its values and in the name of a field."""
    word = mark(tenant, number)
    return {
        "id": f"id-{word}",
        "title": f"Report {number} {word}",
        "text": f"The {WORDS[number % 8]} report, edition {edition}: {word} says the rotor {WORDS[edition % 8]} stops.",
        "url": f"https://example.org/{word}",
        "important": [f"key {word}"],
        "questions": [f"What stops {word}?"],
        "metadata": {
            "owner": f"Owner {word}",
            "team": "red" if number % 2 else "blue",
            "cost": 1000 + number,
            "opened": f"20{10 + number % 15}-0{1 + number % 9}-11",
            f"field_{word}": number,
        },
        "readers": list(readers),
    }


def echo(body: dict[str, Any]) -> str:
    """What the model says: every marker that it was told, so that what a prompt must not hold is seen.

    To say the whole prompt again took half of the time: each of its sentences is checked against the passages.
    """
    told = "\n".join(str(one.get("content")) for one in body["messages"])
    return f"I was told {' '.join(sorted(set(MARK.findall(told))))}."


@dataclass
class World:
    """Tenants with documents and their readers as they are meant to be, and the doors to them."""

    client: httpx2.AsyncClient
    service: Service
    tenants: Sequence[str]
    keys: dict[str, str] = field(default_factory=dict)
    """The key of each tenant that is trusted to say principals."""
    readers: dict[tuple[str, int], tuple[str, ...]] = field(default_factory=dict)
    places: dict[tuple[str, int], str] = field(default_factory=dict)
    traces: list[tuple[str, str]] = field(default_factory=list)
    requests: int = 0

    async def open(self) -> None:
        for tenant in self.tenants:
            _, self.keys[tenant] = await self.service.keys.create(tenant, trusted=True)

    def sees(self, who: Viewer, tenant: str, number: int) -> bool:
        """Whether a document may be read."""
        readers = self.readers[tenant, number]
        return who.tenant == tenant and (not readers or bool(set(readers) & set(who.principals)))

    def shown(self, who: Viewer, text: str) -> list[str]:
        """The markers in a text of documents that the viewer may not read."""
        return [mark(*one) for one in self.readers if not self.sees(who, *one) and mark(*one) in text]

    async def call(self, who: Viewer | str, method: str, path: str, body: Any = None) -> httpx2.Response:
        """A request with the tenant's key: of a viewer with its principals, of a tenant with everything."""
        self.requests += 1
        viewer = unrestricted_viewer(who) if isinstance(who, str) else who
        headers = {
            "Authorization": f"Bearer {self.keys[viewer.tenant]}",
            "X-Signalbox-Principals": ",".join(viewer.principals),
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2025-06-18",
        }
        return await self.client.request(method, path, json=body, headers=headers)

    async def write(self, tenant: str, number: int, readers: Sequence[str], place: str, edition: int = 0) -> None:
        """Store a document; from the answer on its readers are these."""
        key = tenant, number
        kept = self.readers.get(key, ())
        # While it is written, some may see it and others may still: nobody asks then.
        self.readers[key], self.places[key] = tuple(readers), place
        sent = {"collection": place, "documents": [record(tenant, number, readers, edition)]}
        answer = await self.call(tenant, "POST", "/v1/documents", sent)
        assert answer.status_code == 200, (answer.text, kept)

    def doors(self, tenant: str, choose: random.Random) -> list[tuple[str, str, Any]]:
        """Everything that can be asked, once: method, path and body."""
        question = choose.choice(QUESTIONS).format(word=choose.choice(WORDS))
        place = choose.choice(sorted({one for (owner, _), one in self.places.items() if owner == tenant}))
        place = choose.choice([place, None])
        asked = {"query": question, "collection": place, "top_k": choose.choice([3, 10, 100])}
        narrowed = {**asked, "filter": choose.choice(FILTERS)}
        number = choose.choice([number for owner, number in self.readers if owner == tenant])
        held, named = self.places[tenant, number], mark(tenant, number)
        chat = [{"role": "user", "content": question}]
        doors: list[tuple[str, str, Any]] = [
            ("POST", "/v1/retrieve", {**asked, "explain": True}),
            ("POST", "/v1/retrieve", narrowed),
            ("POST", "/v1/retrieve", {**asked, "complete": True}),
            ("POST", "/v1/retrieve", {**asked, "sources": ["sql"]}),
            ("POST", "/v1/retrieve", {**asked, "rank_features": "feedback=0.3", "reranker": "hybrid"}),
            ("POST", "/v1/augment", {**asked, "budget_tokens": 20_000, "context": "section"}),
            ("POST", "/v1/ask", {**asked, "explain": True}),
            ("POST", "/v1/chat/completions", {"model": "signalbox", "messages": chat, "signalbox": {
                "conversation": choose.choice(["one", "two"])}}),
            ("POST", "/v1/chat/completions", {"model": "signalbox-prompt", "messages": chat}),
            ("POST", f"/v1/vector_stores/{held}/search", {"query": question}),
            ("POST", "/retrieval", {"knowledge_id": held, "query": question, "retrieval_setting": {
                "top_k": 20, "score_threshold": 0.0}, "metadata_condition": choose.choice(CONDITIONS)}),
            ("GET", "/v1/collections", None),
            ("GET", f"/v1/collections/{held}", None),
            ("GET", f"/v1/documents/{held}/id-{named}", None),
            ("GET", "/v1/traces", None),
            ("GET", "/v1/jobs", None),
            ("POST", "/mcp", tool("search_knowledge", query=question, top_k=20)),
            ("POST", "/mcp", tool("answer_with_citations", query=question)),
            ("POST", "/mcp", tool("describe_collections")),
            ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}),
            ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "resources/list", "params": {}}),
            ("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "resources/read",
                              "params": {"uri": f"signalbox://collections/{held}"}}),
        ]  # fmt: skip
        for owner, trace in choose.sample(self.traces, min(2, len(self.traces))):
            if owner == tenant:
                doors += [
                    ("GET", f"/v1/traces/{trace}", None),
                    ("POST", f"/v1/traces/{trace}/replay", {"changes": {"depth": 50}}),
                    ("POST", "/v1/feedback", {"trace_id": trace, "score": choose.randrange(11)}),
                ]
        return doors

    async def visit(self, who: Viewer, door: tuple[str, str, Any]) -> list[str]:
        """What a viewer is shown by a door that it may not see."""
        answer = await self.call(who, *door)
        assert answer.status_code < 500, (door, answer.text)
        text = answer.text
        if answer.is_success and door[1] in ("/v1/retrieve", "/v1/augment"):
            self.traces.append((who.tenant, answer.json()["trace_id"]))
        if answer.status_code == 404:
            text = text.replace(door[1].rpartition("/")[2], "")  # what was asked for is said again
        return self.shown(who, text)


QUESTIONS = (
    "What does the {word} report say?",
    "{word}",
    "How many reports are there?",
    "List all reports of the red team",
    "Which report has the highest cost?",
    "How many reports per owner?",
    "reports by owner Owne",
    "reports opened since 2015 whose owner is Owner zqacmex1",
    "average cost of reports per team",
    '"the rotor {word} stops"',
    "What stops?",
    "reports owned by nobody at all",
)
FILTERS: tuple[dict[str, Any], ...] = (
    {"type": "eq", "key": "team", "value": "red"},
    {"type": "gte", "key": "cost", "value": 1000},
    {"type": "prefix", "key": "owner", "value": "Owner"},
    {"type": "eq", "key": "onwer", "value": "Owner"},
    {"type": "eq", "key": "field_zqacmex", "value": 1},
    {"type": "not", "filter": {"type": "eq", "key": "team", "value": "blue"}},
)
CONDITIONS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"logical_operator": "and", "conditions": [{"name": ["team"], "comparison_operator": "is", "value": "red"}]},
    {"logical_operator": "and", "conditions": [{"name": ["owner"], "comparison_operator": "contains", "value": "zq"}]},
)


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}}


@asynccontextmanager
async def world_of(owner_url: str, service_url: str, tenants: Sequence[str], **options: Any) -> AsyncIterator[World]:
    with ScriptedServer(echo) as model:
        settings = Settings(
            database_url=owner_url, service_url=service_url, pool_size=6, llm="openai/echo",
            llm_base_url=model.base_url, llm_api_key="x", intent="rules", loop_calls=0, max_rounds=1, **options,
        )  # fmt: skip
        async with open_service(settings) as service:
            await service.keys.create("somebody")
            async with run_server(create_app(service, authenticate=await open_authenticator(service, "keys"))) as port:
                client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60)
                async with client:
                    world = World(client, service, tenants)
                    await world.open()
                    yield world


EITHER_WAY = pytest.mark.parametrize("world", ["directly", "through PgBouncer"], indirect=True)


@pytest.fixture
async def world(request: pytest.FixtureRequest, owner_url: str, service_url: str) -> AsyncIterator[World]:
    """Two tenants; what stands in "shared" and "closed", and who reads it."""
    if getattr(request, "param", "") == "through PgBouncer":
        service_url = request.getfixturevalue("pgbouncer")(service_url)
    async with world_of(owner_url, service_url, ("acme", "globex")) as world:
        for tenant in world.tenants:
            readers: Sequence[Sequence[str]] = (
                (), (), ("user:1",), ("user:2",), ("user:1", "group:legal"), ("group:legal",), ("user:3",), (),
            )  # fmt: skip
            for number, some in enumerate(readers):
                await world.write(tenant, number, some, "shared")
            await world.write(tenant, 8, ("user:1",), "closed")
        yield world


def viewers(tenant: str) -> list[Viewer]:
    sets = ((), ("user:1",), ("user:2",), ("group:legal", "user:9"), ("group:legal", "user:1", "user:2"))
    return [Viewer(tenant, principals) for principals in sets]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "editions"), [("directly", 3), ("through PgBouncer", 1)], indirect=["world"], ids=["directly", "pooled"]
)
async def test_no_door_shows_anything_of_a_document_to_who_may_not_read_it(world: World, editions: int):
    choose = random.Random(3)
    leaks: list[Any] = []
    for edition in range(editions):
        for tenant in world.tenants:
            for who in viewers(tenant):
                for door in world.doors(tenant, choose):
                    leaks += [(who, door, shown) for shown in await world.visit(who, door)]
        # A change of readers holds from the next request.
        for tenant in world.tenants:
            for number in range(8):
                readers = choose.choice([(), ("user:1",), ("user:2",), ("group:legal",), ("user:3", "group:legal")])
                await world.write(tenant, number, readers, "shared", edition=choose.choice([0, edition]))
    assert leaks == []


async def test_everybody_finds_all_that_they_may_read(world: World):
    for who in [*viewers("acme"), unrestricted_viewer("acme")]:
        body = {"query": "List all reports", "complete": True, "intent": "off", "collection": "shared"}
        found = (await world.call(who, "POST", "/v1/retrieve", body)).json()
        expected = {
            f"id-{mark(*one)}" for one in world.readers if world.places[one] == "shared"
            and ((who == unrestricted_viewer("acme") and one[0] == "acme") or world.sees(who, *one))
        }  # fmt: skip
        assert {hit["document_id"] for hit in found["hits"]} == expected
        shown = (await world.call(who, "GET", "/v1/collections/shared")).json()
        assert shown["documents"] == shown["chunks"] == len(expected)
        (counted,) = (await world.call(who, "POST", "/v1/retrieve", {
            "query": "How many reports are there?", "collection": "shared"})).json()["table"]["rows"]  # fmt: skip
        assert counted[-1] == len(expected)
        for source in ("vector", "fulltext"):
            body = {"query": "rotor report", "sources": [source], "top_k": 100, "collection": "shared", "intent": "off"}
            hits = (await world.call(who, "POST", "/v1/retrieve", body)).json()["hits"]
            assert {hit["document_id"] for hit in hits} == expected
    described = (
        await world.call(Viewer("acme", ("user:1",)), "GET", f"/v1/documents/shared/id-{mark('acme', 4)}")
    ).json()
    assert described["readers"] == ["group:legal", "user:1"]


async def test_nothing_tells_that_there_is_more_than_is_seen(world: World):
    """A tenant that has only the documents that are seen here gets the same answers: the same scores, counts,
    suggestions and errors, also where the question names a hidden document's own words."""
    who, twin, hidden = Viewer("acme", ("user:2",)), "twin", mark("acme", 2)
    _, world.keys[twin] = await world.service.keys.create(twin, trusted=True)
    for (tenant, number), readers in list(world.readers.items()):
        if tenant == "acme" and world.sees(who, tenant, number):
            one = record("acme", number, readers)
            await world.service.submit(world.places[tenant, number], [one], tenant=twin)
    asked: list[dict[str, Any]] = [{"query": question.format(word="rotor")} for question in QUESTIONS]
    asked += [
        {"query": question.format(hidden), "collection": "shared"}
        for question in (
            "{}", "rotor {}", '"{} says"', "reports whose owner is Owner {}", "How many reports by Owner {}?",
            "show me id-{}", "reports of field_{} 3", "What stops {}?", "average field_{} per team",
        )
    ]  # fmt: skip
    asked += [
        {"query": "rotor", "filter": {"type": "eq", "key": "owner", "value": f"Owner {hidden}"}},
        {"query": "rotor", "filter": {"type": "exists", "key": f"field_{hidden}"}},
        {"query": "rotor", "filter": {"type": "eq", "key": "owne", "value": hidden}},
        {"query": "rotor", "collection": "closed"},
        {"query": "rotor", "collection": "clos"},
    ]
    doors = [("POST", "/v1/retrieve", {**body, "explain": True}) for body in asked]
    doors += [("POST", "/v1/augment", body) for body in asked]
    doors += [
        ("GET", path, None)
        for path in (
            "/v1/collections", "/v1/collections/shared", "/v1/collections/closed", "/v1/collections/none",
            f"/v1/documents/shared/id-{hidden}", f"/v1/documents/closed/id-{mark('acme', 8)}",
        )
    ]  # fmt: skip
    doors += [("POST", "/mcp", tool("describe_collections")), ("POST", "/mcp", {
        "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})]  # fmt: skip
    for door in doors:
        answers = [await world.call(Viewer(one, who.principals), *door) for one in ("acme", twin)]
        assert answers[0].status_code == answers[1].status_code, door
        seen, alone = [_without(one.json()) for one in answers]
        assert _differences(seen, alone) == [], door


def _differences(one: Any, other: Any, place: str = "") -> list[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        keys = sorted({*one, *other})
        return [line for key in keys for line in _differences(one.get(key), other.get(key), f"{place}.{key}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [
            line for n, pair in enumerate(zip(one, other, strict=True)) for line in _differences(*pair, f"{place}.{n}")
        ]
    return [] if one == other else [f"{place}: {one} != {other}"]


def _without(value: Any) -> Any:
    """An answer without ids and times; numbers rounded, as vectors are halved."""
    dropped = {"trace_id", "took_ms", "elapsed_ms", "at", "created_at", "expires_at", "now", "version", "tenant"}
    dropped |= {"timeout_s", "params", "request_id"}
    if isinstance(value, dict):
        return {name: _without(one) for name, one in value.items() if name not in dropped}
    if isinstance(value, float):
        return round(value, 3)
    return [_without(one) for one in value] if isinstance(value, list) else value


async def test_a_field_of_hidden_documents_is_known_at_no_moment(world: World, monkeypatch: pytest.MonkeyPatch):
    await world.write("acme", 20, (), "fresh")
    who, write, shown = Viewer("acme"), document_store.replace_documents, []

    async def watched(*given: Any, **options: Any) -> Any:
        shown.append((await world.call(who, "GET", "/v1/collections/fresh")).json())
        return await write(*given, **options)

    monkeypatch.setattr(document_store, "replace_documents", watched)
    await world.write("acme", 21, ("user:1",), "fresh")
    shown.append((await world.call(who, "GET", "/v1/collections/fresh")).json())
    assert [world.shown(who, json.dumps(one)) for one in shown] == [[], []]
    seen = (await world.call(Viewer("acme", ("user:1",)), "GET", "/v1/collections/fresh")).text
    assert f"field_{mark('acme', 21)}" in seen


async def test_what_a_reader_of_more_looked_up_is_not_kept_for_who_reads_less(world: World):
    """The names of fields are kept for a moment, also for scopes with fewer collections."""
    await world.write("acme", 9, ("user:2",), "closed")
    asked = {"query": "How many reports per owner?"}
    for who in (unrestricted_viewer("acme"), Viewer("acme", ("user:1", "user:2")), Viewer("acme", ("user:1",))):
        await world.call(who, "POST", "/v1/retrieve", asked)
        described = (await world.call(who, "GET", "/v1/collections/closed")).json()
        # Drafted of the few fields there are.
        assert f"field_{mark('acme', 8)}" in described["description"]
        assert who == unrestricted_viewer("acme") or world.shown(who, json.dumps(described)) == []


async def test_an_emptied_collection_whose_documents_had_readers_is_shown_to_nobody_else(world: World):
    def known(answer: httpx2.Response) -> bool:
        return any(one["name"] == "closed" for one in answer.json()["collections"])

    async def seen() -> list[bool]:
        viewers = (
            Viewer("acme"),
            Viewer("acme", ("user:2",)),
            Viewer("acme", ("user:1",)),
            unrestricted_viewer("acme"),
        )
        return [known(await world.call(who, "GET", "/v1/collections")) for who in viewers]

    assert await seen() == [False, False, True, True]
    await world.call("acme", "DELETE", f"/v1/documents/closed/id-{mark('acme', 8)}")
    assert await seen() == [False, False, False, True]
    body = {"query": "rotor", "collection": "closed"}
    assert (await world.call(Viewer("acme"), "POST", "/v1/retrieve", body)).status_code == 404
    await world.write("acme", 8, ("user:2",), "closed")
    assert await seen() == [False, True, False, True]
    # A collection that is only declared is everybody's.
    await world.call("acme", "PUT", "/v1/collections/planned", {"description": "Plans"})
    assert "planned" in (await world.call(Viewer("acme"), "GET", "/v1/collections")).text


async def test_only_changed_readers_count_as_updated_and_embed_nothing(world: World):
    one = record("acme", 0, ())
    sent = [read_record({**one, "readers": readers}, "") for readers in ([], "user:1, group:legal", ["user:1"])]
    reports = [await world.service.ingest([item], "shared", tenant="acme") for item in sent]
    assert [(report.unchanged, report.updated, report.embedded) for report in reports] == [
        (1, 0, 0), (0, 1, 0), (0, 1, 0),
    ]  # fmt: skip
    found = await world.service.document("shared", one["id"], tenant=unrestricted_viewer("acme"))
    assert found.readers == ["user:1"]
    with pytest.raises(NotFound):
        await world.service.document("shared", one["id"], tenant="acme")


@EITHER_WAY
async def test_what_was_answered_before_a_document_was_taken_away_is_shown_no_more(world: World):
    who, other = Viewer("acme", ("user:1",)), Viewer("acme", ("user:2",))
    body = {"query": f"What does {mark('acme', 0)} say?", "collection": "shared"}
    trace = (await world.call(who, "POST", "/v1/retrieve", body)).json()["trace_id"]
    asks = {"model": "signalbox", "messages": [{"role": "user", "content": "What does the turbine report say?"}],
            "signalbox": {"conversation": "c", "collection": "shared"}}  # fmt: skip
    assert mark("acme", 0) in (await world.call(who, "POST", "/v1/chat/completions", asks)).text
    shown = [
        (await world.call(one, "GET", f"/v1/traces/{trace}")).status_code
        for one in (who, other, unrestricted_viewer("acme"))
    ]
    assert shown == [200, 404, 200]
    again = await world.call(other, "POST", f"/v1/traces/{trace}/replay", {"changes": {}})
    assert again.status_code == 404

    await world.write("acme", 0, ("user:7",), "shared")

    shown = [
        (await world.call(one, "GET", f"/v1/traces/{trace}")).status_code
        for one in (who, other, unrestricted_viewer("acme"))
    ]
    assert shown == [404, 404, 200]
    listed = [(await world.call(one, "GET", "/v1/traces")).text for one in (who, unrestricted_viewer("acme"))]
    assert [trace in text for text in listed] == [False, True]
    follows = {**asks, "messages": [{"role": "user", "content": "And what about the gearbox?"}]}
    assert mark("acme", 0) not in (await world.call(who, "POST", "/v1/chat/completions", follows)).text
    # An opinion is taken all the same, of who has seen the answer.
    judged = {"trace_id": trace, "score": 9}
    assert (await world.call(who, "POST", "/v1/feedback", judged)).status_code == 200
    assert (await world.call(other, "POST", "/v1/feedback", judged)).status_code == 404


async def test_a_conversation_belongs_to_the_principals_it_is_held_with(world: World):
    who, other = Viewer("acme", ("user:1",)), Viewer("acme", ("user:2",))
    asks = {"model": "signalbox", "messages": [{"role": "user", "content": "What does the bearing report say?"}],
            "signalbox": {"conversation": "same", "collection": "shared"}}  # fmt: skip
    assert mark("acme", 2) in (await world.call(who, "POST", "/v1/chat/completions", asks)).text
    follows = {**asks, "messages": [{"role": "user", "content": "Tell me more"}]}
    assert mark("acme", 2) not in (await world.call(other, "POST", "/v1/chat/completions", follows)).text
    assert mark("acme", 2) in (await world.call(who, "POST", "/v1/chat/completions", follows)).text
    assert await world.service.erase(conversation="same", tenant=Viewer("acme", ("user:3",))) == ErasureCounts(
        0, 0, 0, 0, 0
    )
    assert [one.question for one in await world.service.recorded_questions(tenant=other)] == ["Tell me more"]
    erased = [
        (await world.call(Viewer("acme", (one,)), "DELETE", "/v1/conversations/same")).json()["erased"]["records"]
        for one in ("user:3", "user:2", "user:2")
    ]
    assert erased == [0, 1, 0]
    assert len(await world.service.recorded_questions(tenant=who)) == 2
    assert (await world.call("globex", "DELETE", "/v1/conversations/same")).json()["erased"]["records"] == 0
    assert (await world.call("acme", "DELETE", "/v1/conversations/same")).json()["erased"]["records"] == 2


async def test_what_failed_of_a_job_is_shown_to_its_readers(world: World):
    bad = {**record("acme", 90, ["user:1"]), "text": 7}
    unreadable = {**record("acme", 91, []), "readers": {"user": 1}}
    sent = {"collection": "shared", "documents": [bad, unreadable, record("acme", 0, [])]}
    key = world.keys["acme"]
    answer = await world.client.post("/v1/documents", json=sent, headers={"Authorization": f"Bearer {key}"})
    assert [one["id"] for one in answer.json()["failed"]] == [bad["id"], None]  # who sent them is told
    job = answer.json()["job_id"]
    shown = await world.client.get(f"/v1/jobs/{job}", headers={"Authorization": f"Bearer {key}"})
    assert shown.status_code == 200
    assert shown.json()["failed"] == []
    assert len((await world.call("acme", "GET", f"/v1/jobs/{job}")).json()["failed"]) == 2
    # Nothing is stored of what names readers that cannot be.
    with pytest.raises(NotFound):
        await world.service.document("shared", unreadable["id"], tenant=unrestricted_viewer("acme"))


async def test_who_reads_as_some_alone_neither_writes_nor_sees_jobs(world: World):
    _, key = await world.service.keys.create("acme", principals=["user:1"])
    headers = {"Authorization": f"Bearer {key}"}
    doors: list[tuple[str, str, Any]] = [
        ("POST", "/v1/documents", {"collection": "shared", "documents": [{"text": "x"}]}),
        ("DELETE", f"/v1/documents/shared/id-{mark('acme', 0)}", None),
        ("PUT", "/v1/collections/shared", {"records": ["report"]}),
        ("DELETE", "/v1/collections/shared", None),
        ("GET", "/v1/records", None),
        ("DELETE", "/v1/records?user=ada", None),
        ("GET", "/v1/jobs", None),
    ]
    for method, path, body in doors:
        assert (await world.client.request(method, path, json=body, headers=headers)).status_code == 403
        assert (await world.call(Viewer("acme", ("user:1",)), method, path, body)).status_code == 403
    # A key says for itself as whom it reads, unless it may be trusted.
    body = {"query": "rotor", "principals": ["user:2"]}
    assert (await world.client.post("/v1/retrieve", json=body, headers=headers)).status_code == 403
    said = {**headers, "X-Signalbox-Principals": "user:2"}
    assert (await world.client.get("/v1/collections", headers=said)).status_code == 403
    found = (await world.client.post("/v1/retrieve", json={"query": "rotor", "top_k": 100}, headers=headers)).text
    assert mark("acme", 2) in found
    assert mark("acme", 3) not in found


@pytest.mark.parametrize("path", ["/v1/retrieve", "/v1/chat/completions", "/mcp"])
async def test_a_body_states_no_principals_beside_those_of_its_header(world: World, path: str):
    """The application writes the header; who writes the body, a model perhaps, reads no more than the header says."""

    async def asked(header: str | None, *said: str) -> list[bool]:
        options = {"principals": list(said)}
        turns = [{"role": "user", "content": "What do the reports say about the rotor?"}]
        body = {
            "/v1/retrieve": {"query": "rotor", "top_k": 100, **options},
            "/v1/chat/completions": {"model": "signalbox-prompt", "messages": turns, "signalbox": options},
            "/mcp": tool("search_knowledge", query="rotor", top_k=100, **options),
        }[path]
        key = {"Authorization": f"Bearer {world.keys['acme']}", "Accept": "application/json, text/event-stream"}
        headers = {**key, "MCP-Protocol-Version": "2025-06-18"}
        headers |= {} if header is None else {"X-Signalbox-Principals": header}
        answer = await world.client.post(path, json=body, headers=headers)
        assert (answer.status_code == 403 or '"isError":true' in answer.text) == ("its header" in answer.text)
        return [mark("acme", number) in answer.text for number in (0, 2, 3)]

    assert await asked(None, "user:2") == [True, False, True]
    assert await asked("user:1,user:2", "user:2") == [True, False, True]
    assert await asked("*", "user:1") == [True, True, False]
    for header, said in (("user:1", ("user:1", "user:2")), ("user:1", ("*",)), ("", ("user:1",))):
        assert await asked(header, *said) == [False, False, False], (header, said)


async def test_principals_that_cannot_be_are_refused_and_not_repeated(world: World):
    key = {"Authorization": f"Bearer {world.keys['acme']}"}
    for said in (
        ["user 1"],
        ["a,b"],
        ["*", "user:1"],
        [""],
        ["x" * 129],
        ["user:1\nuser:2"],
        [f"u{n}" for n in range(501)],
    ):
        answer = await world.client.post("/v1/retrieve", json={"query": "rotor", "principals": said}, headers=key)
        assert answer.status_code == 422
    with pytest.raises(BadRequest):
        world.service.database.scope(Viewer("acme", ("user:1\n*",)))


@pytest.mark.parametrize("readers", ["a b\tc", ["user:1", 7], 7, True, {"user": 1}, ["*"], [["user:1"]]])
def test_readers_that_cannot_be_read_make_no_document(readers: object):
    made = read_record({"text": "x", "readers": readers}, "here")
    if readers == "a b\tc":
        assert isinstance(made, Document)
        assert made.readers == ("a", "b", "c")
    else:
        assert isinstance(made, RejectedItem)
        assert made.readers == ("*",)


def test_a_public_document_has_no_readers():
    assert isinstance(read_record({"text": "x", "public": True, "readers": ["user:1"]}, "here"), RejectedItem)


async def test_files_say_their_readers(world: World, tmp_path: Path):
    (tmp_path / "note.md").write_text("---\nreaders: [user:1, group:legal]\n---\n# Note\n\nAbout the rotor.\n")
    (tmp_path / "table.csv").write_text('id,text,readers\nc1,One rotor,"user:2, user:3"\nc2,Two rotors,\n')
    (tmp_path / "lines.jsonl").write_text('{"id": "j1", "text": "Three rotors", "readers": ["user:4"]}\n')
    await world.service.ingest(read_paths([tmp_path]), "files", tenant="acme")
    with psycopg.connect(world.service.database.owner) as connection:
        stored = dict(connection.execute(
            "SELECT d.id, p.readers FROM signalbox.document d LEFT JOIN signalbox.collection p ON p.number = d.part"
            " JOIN signalbox.collection c ON c.number = d.collection WHERE c.name = 'files'").fetchall())  # fmt: skip
    assert stored == {"note.md": ["group:legal", "user:1"], "c1": ["user:2", "user:3"], "c2": None, "j1": ["user:4"]}


# The database holds it by itself.


@EITHER_WAY
async def test_a_scope_says_by_its_signature_who_reads(world: World):
    database = world.service.database
    count = "SELECT count(*) FROM signalbox.document"
    rows = {
        who: (await database.fetch(who, count, ()))[0][0]
        for who in (
            Viewer("acme"),
            Viewer("acme", ("user:1",)),
            Viewer("acme", ("user:2", "user:3")),
            unrestricted_viewer("acme"),
        )
    }
    assert list(rows.values()) == [3, 6, 5, 9]
    signed = database.scope(Viewer("acme", ("user:1",)))
    for forged in (
        f"{signed}\nuser:2",
        signed.replace("user:1", "user:2"),
        signed.replace("\nuser:1", "\n*"),
        signed.replace("\nuser:1", ""),
        database.scope("acme") + "\n*",
    ):
        async with database.connection() as connection, connection.transaction():
            await connection.execute("SELECT set_config('role', 'signalbox_app', true)")
            await connection.execute("SELECT set_config('signalbox.scope', %s, true)", (forged,))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                await connection.execute(count.encode())


async def test_no_table_shows_a_viewer_a_row_of_what_is_hidden(world: World):
    await world.call(Viewer("acme", ("user:2",)), "POST", "/v1/retrieve", {"query": "bearing gearbox"})
    who = Viewer("acme", ("user:1",))
    tables = [
        row[0]
        for row in await world.service.database.fetch(
            who,
            "SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'signalbox'::regnamespace AND c.relkind = 'r'"
            " AND has_table_privilege(c.oid, 'SELECT') AND c.relname NOT IN ('job', 'api_key')",
            (),
        )
    ]
    assert {"document", "chunk", "term", "field_value", "field_word", "collection", "trace"} <= set(tables)
    async with world.service.database.transaction(who) as connection:
        for table in tables:
            cursor = await connection.execute(f"SELECT t::text FROM signalbox.{table} t".encode())  # noqa: S608
            text = "\n".join(row[0] for row in await cursor.fetchall())
            # The types of all fields are kept with the collection; what reads them shows those of the seen documents.
            text = text if table != "collection" else ""
            assert world.shown(who, text) == [], table


# Tokens.

ISSUER, AUDIENCE = "https://issuer.example", "signalbox"


@pytest.fixture(scope="module")
def signer() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(65537, 2048)


def public(key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey, kid: str) -> dict[str, Any]:
    algorithm: Any = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, "use": "sig"}


def token(key: Any, *, algorithm: str = "RS256", kid: str | None = "one", **claims: Any) -> str:
    held = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60, "groups": ["user:1"], **claims}
    headers = {"kid": kid} if kid else {}
    return jwt.encode({name: one for name, one in held.items() if one is not None}, key, algorithm, headers)


@pytest.fixture
def keys_file(tmp_path: Path, signer: rsa.RSAPrivateKey) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [public(signer, "one")]}))
    return path


def given(keys_file: Path, **more: Any) -> dict[str, Any]:
    return {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_keys": keys_file, "jwt_claim": "groups", **more}


async def test_a_token_reads_as_its_claim_says(
    owner_url: str, service_url: str, signer: rsa.RSAPrivateKey, keys_file: Path
):
    async with world_of(owner_url, service_url, ("acme",), tenant="acme", **given(keys_file)) as world:
        for number, readers in enumerate([(), ("user:1",), ("user:2",)]):
            await world.write("acme", number, readers, "shared")

        async def found(sent: str) -> tuple[int, str]:
            headers = {"Authorization": f"Bearer {sent}"}
            answer = await world.client.post("/v1/retrieve", json={"query": "rotor", "intent": "off"}, headers=headers)
            return answer.status_code, answer.text

        status, text = await found(token(signer))
        assert (status, [mark("acme", n) in text for n in range(3)]) == (200, [True, True, False])
        status, text = await found(token(signer, groups="user:2"))
        assert (status, [mark("acme", n) in text for n in range(3)]) == (200, [True, False, True])
        other, secret = rsa.generate_private_key(65537, 2048), b"s" * 64
        pem = signer.public_key().public_bytes(*_PEM)
        refused = {
            "issuer": token(signer, iss="https://other.example"),
            "no issuer": token(signer, iss=None),
            "audience": token(signer, aud="another"),
            "no audience": token(signer, aud=None),
            "expired": token(signer, exp=time.time() - 1),
            "no expiry": token(signer, exp=None),
            "not yet": token(signer, nbf=time.time() + 60),
            "key": token(other),
            "another key's name": token(signer, kid="two"),
            "no claim": token(signer, groups=None),
            "everything": token(signer, groups=["*"]),
            "a number": token(signer, groups=[7]),
            "an object": token(signer, groups={"user:1": True}),
            "algorithm": token(signer, algorithm="RS512"),
            "none": token(None, algorithm="none"),
            "symmetric": token(secret, algorithm="HS256"),
            "public key as a secret": _confused(pem),
            "cut": token(signer)[:-4],
            "of another's body": _spliced(token(signer), token(other, groups=["user:2"])),
        }
        answers = {name: await found(sent) for name, sent in refused.items()}
        assert {name: status for name, (status, _) in answers.items() if status != 401} == {}
        details = {json.loads(text)["detail"] for _, text in answers.values()}
        assert details == {"the token is not valid"}
        headers = {"Authorization": f"Bearer {token(signer)}"}
        body = {"query": "rotor", "principals": ["user:2"]}
        assert (await world.client.post("/v1/retrieve", json=body, headers=headers)).status_code == 403
        sent = {"collection": "shared", "documents": [{"text": "x"}]}
        assert (await world.client.post("/v1/documents", json=sent, headers=headers)).status_code == 403


_PEM = (Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def _confused(pem: bytes) -> str:
    """Signed with the public key as if it were a shared secret, which PyJWT itself refuses to do."""

    def part(value: bytes) -> str:
        return base64.urlsafe_b64encode(value).rstrip(b"=").decode()

    claims = {"iss": ISSUER, "aud": AUDIENCE, "exp": time.time() + 60, "groups": ["user:2"]}
    head = part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "one"}).encode())
    signed = f"{head}.{part(json.dumps(claims).encode())}"
    return f"{signed}.{part(hmac.digest(pem, signed.encode(), hashlib.sha256))}"


def _spliced(one: str, other: str) -> str:
    head, _, signature = one.split(".")
    return f"{head}.{other.split('.')[1]}.{signature}"


def test_keys_of_tokens_are_public_ones_and_may_change(keys_file: Path, signer: rsa.RSAPrivateKey):
    tokens = JwtVerifier.from_settings(Settings(tenant="acme", **given(keys_file, jwt_tenant_claim="org")))
    assert tokens is not None
    assert tokens.verify(token(signer, org="globex")) == Viewer("globex", ("user:1",))
    assert tokens.verify(token(signer)) is None
    another = ec.generate_private_key(ec.SECP256R1())
    keys_file.write_text(json.dumps({"keys": [public(another, "two")]}))
    assert tokens.verify(token(signer, org="globex")) is None
    sent = token(another, algorithm="ES256", kid=None, org="globex")
    assert tokens.verify(sent) == Viewer("globex", ("user:1",))
    shared = {"kty": "oct", "kid": "one", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"}
    for held in ({"keys": [shared]}, {"keys": []}, [], {"keys": [{"kty": "RSA", "kid": "x"}]}):
        keys_file.write_text(json.dumps(held))
        with pytest.raises(BadSetting, match="JWT_KEYS"):
            JwtVerifier.from_settings(Settings(**given(keys_file)))


def test_tokens_need_all_of_their_settings_and_callers_that_are_asked(keys_file: Path):
    with pytest.raises(ValueError, match="together, or none of them"):
        Settings(jwt_issuer=ISSUER)
    assert resolve_auth_mode(Settings(**given(keys_file)), "127.0.0.1") == "keys"
    with pytest.raises(BadSetting):
        resolve_auth_mode(Settings(**given(keys_file, auth="off")), "127.0.0.1")
