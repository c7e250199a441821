"""Every setting of a tenant acts at the HTTP doors and on the command line, and quotas hold wherever is asked."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import httpx2
import psycopg
import pytest

from agent.chat.advisors.guard import REFUSALS
from agent.serve.authentication import open_authenticator
from agent.serve.cli import run
from agent.serve.http.app import create_app
from agent.serve.process.testing import run_server
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.testing import ReceivedRequest as ModelRequest
from agent.testing import ScriptedServer
from agent.types import Answer
from retrievers.core.errors import BadRequest, QuotaUsedUp
from retrievers.ingest.documents import Document
from retrievers.postgres.accounts.tenants import Tenants
from retrievers.postgres.connections.read_routing import ReadRouter

DOCS = [
    Document(
        where=name,
        id=name,
        title=f"Report {name}",
        text=f"The turbine report {name} says the rotor stops in a storm.",
        metadata={"created": created, "team": "red" if name == "a" else "blue"},
    )
    for name, created in (("a", "2026-11-14"), ("b", "2026-11-15"), ("c", "2026-04-02"))
]
MCP = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
EAST, WEST = "Pacific/Kiritimati", "Etc/GMT+12"
"""26 hours apart: at no moment is it the same day in both."""
SAID = "The rotor stops in a storm [1]."
QUESTION = "When does the rotor stop?"


@dataclass
class World:
    """A service whose callers have keys, the model and the web behind it, and the command line over its database."""

    service: Service
    client: httpx2.AsyncClient
    keys: dict[str, str]
    behind: ScriptedServer
    capsys: pytest.CaptureFixture[str]
    others: list[httpx2.AsyncClient] = field(default_factory=list)
    """Doors of other processes, as it were: services of their own over the same database."""

    async def send(
        self, method: str, path: str, body: Any = None, *, tenant: str = "acme", door: httpx2.AsyncClient | None = None
    ) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.keys[tenant]}", **(MCP if path == "/mcp" else {})}
        return await (door or self.client).request(method, path, json=body, headers=headers)

    async def ask(self, path: str = "/v1/retrieve", tenant: str = "acme", **body: Any) -> Any:
        """The answer of a door that takes the request of the native ones."""
        answer = await self.send("POST", path, {"query": QUESTION, **body}, tenant=tenant)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result of an MCP tool."""
        params = {"name": name, "arguments": {"query": QUESTION, **arguments}}
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
        answer = await self.send("POST", "/mcp", call)
        assert answer.status_code == 200, answer.text
        result: dict[str, Any] = answer.json()["result"]
        return result

    async def command(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code and what was printed on stdout and stderr."""
        self.capsys.readouterr()
        code = await asyncio.to_thread(run, list(arguments))
        told = self.capsys.readouterr()
        assert "Traceback" not in told.err
        return code, told.out, told.err

    async def set(self, *pairs: str, tenant: str = "acme") -> None:
        code, _, said = await self.command("tenants", "set", tenant, *pairs)
        assert code == 0, said

    async def retrieve(self, *arguments: str, question: str = QUESTION) -> Any:
        """What `signalbox retrieve --json` prints for the tenant."""
        code, out, said = await self.command("retrieve", question, "--tenant", "acme", "--json", *arguments)
        assert code == 0, said
        return json.loads(out)

    @property
    def searched_web(self) -> int:
        """Requests that the web provider got."""
        return sum(one.path.startswith("/search") for one in self.behind.requests)

    @property
    def prompts(self) -> list[str]:
        """What the model was asked, as text."""
        return [json.dumps(one.body) for one in self.behind.requests if "chat/completions" in one.path]


def web_results(request: ModelRequest) -> Any:
    found = [{"url": "https://news.example/rotor", "title": "Rotor", "content": "The rotor of the web stops."}]
    return {"results": found, "query": "rotor"}


def reply_of(body: dict[str, Any]) -> str | dict[str, Any]:
    """The answer; of a model that may search itself, first a search."""
    if body.get("tools") and all(one["role"] != "tool" for one in body["messages"]):
        function = {"name": "search_knowledge", "arguments": json.dumps({"query": QUESTION})}
        return {"content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": function}]}
    return SAID


@pytest.fixture
async def world(
    owner_url: str,
    service_url: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> AsyncIterator[World]:
    for name in [name for name in os.environ if name.startswith("SIGNALBOX_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    async with AsyncExitStack() as stack:
        behind = stack.enter_context(ScriptedServer(reply_of, other=web_results))
        given: dict[str, Any] = {
            "database_url": owner_url,
            "service_url": service_url,
            "pool_size": 4,
            "llm": "openai/small",
            "llm_base_url": behind.base_url,
            "llm_api_key": "any",
            "web_provider": f"searxng:{behind.root_url}",
            "intent": "rules",
            "loop_calls": 0,
            "timeout_s": 60,
            "source_timeout_s": 60,
        }
        for name, value in given.items():
            monkeypatch.setenv(f"SIGNALBOX_{name.upper()}", str(value))
        doors: list[httpx2.AsyncClient] = []
        services: list[Service] = []
        for _ in range(2):
            service = await stack.enter_async_context(open_service(Settings(**given)))
            services.append(service)
            if len(services) == 1:
                keys = {name: (await service.keys.create(name))[1] for name in ("acme", "globex")}
            app = create_app(service, authenticate=await open_authenticator(service, "keys"))
            port = await stack.enter_async_context(run_server(app))
            client = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120)
            doors.append(await stack.enter_async_context(client))
        await services[0].ingest(DOCS[:2], "reports", tenant="acme")
        await services[0].ingest(DOCS[2:], "older", tenant="acme")
        await services[0].ingest(DOCS, "reports", tenant="globex")
        yield World(services[0], doors[0], keys, behind, capsys, doors[1:])


def starts(filter: Any) -> list[str]:
    """The values of the conditions that a day or later is asked for."""
    if isinstance(filter, dict):
        own = [filter["value"][:10]] if filter.get("type") in ("gte", "eq") else []
        return own + [value for one in filter.get("filters", ()) for value in starts(one)]
    return []


# Calendar.


async def read_at_both_doors(world: World, question: str, **body: Any) -> set[str]:
    """The first day of the period in a question, as read over HTTP and on the command line: the same."""
    over_http = (await world.ask(query=question, **body))["intent"]
    given = ["--now", body["now"]] if "now" in body else []
    printed = (await world.retrieve(*given, question=question))["intent"]
    days = [*starts(over_http["filter"]), *starts(over_http["soft_filter"])]
    assert days == [*starts(printed["filter"]), *starts(printed["soft_filter"])]
    return set(days)


@pytest.mark.parametrize("zone", [EAST, WEST])
async def test_the_time_zone_of_a_tenant_says_what_today_is(world: World, zone: str):
    answer = await world.send("PUT", "/v1/tenant", {"time_zone": zone})
    assert answer.json()["in_force"]["time_zone"] == zone
    before = datetime.now(ZoneInfo(zone)).date()
    days = await read_at_both_doors(world, "reports created today")
    assert days <= {f"{before}", f"{before + timedelta(1)}"}
    assert days
    assert f"{datetime.now(ZoneInfo(WEST if zone == EAST else EAST)).date()}" not in days


async def test_the_week_and_the_fiscal_year_of_a_tenant_begin_when_it_says(world: World):
    now = "2026-11-20T12:00:00+00:00"  # a Friday
    week, year = "reports created this week", "reports created in fiscal year 2026"
    assert await read_at_both_doors(world, week, now=now) == {"2026-11-16"}
    assert await read_at_both_doors(world, year, now=now) == {"2026-01-01"}
    await world.set("week_start=6", "fiscal_year_start=4")
    assert await read_at_both_doors(world, week, now=now) == {"2026-11-15"}
    (began,) = await read_at_both_doors(world, year, now=now)
    assert began[5:] == "04-01"
    code, out, _ = await world.command("retrieve", week, "--tenant", "globex", "--now", now, "--json")
    assert (code, starts(json.loads(out)["intent"]["filter"])) == (0, ["2026-11-16"])


# Collection and language.


async def test_the_default_collection_is_asked_when_the_request_names_none(world: World):
    everywhere = {hit["document_id"] for hit in (await world.ask())["hits"]}
    assert everywhere == {"a", "b", "c"}
    await world.send("PUT", "/v1/tenant", {"collection": "older"})
    assert [hit["document_id"] for hit in (await world.ask())["hits"]] == ["c"]
    assert [hit["document_id"] for hit in (await world.retrieve())["hits"]] == ["c"]
    assert {hit["document_id"] for hit in (await world.ask(collection="reports"))["hits"]} == {"a", "b"}
    told = (await world.tool("search_knowledge"))["structuredContent"]
    assert [hit["document_id"] for hit in told["hits"]] == ["c"]
    await world.set("collection=gone")
    answer = await world.send("POST", "/v1/retrieve", {"query": QUESTION})
    assert answer.status_code == 404
    assert '"gone"' in answer.json()["detail"]
    assert "tenant's default collection" in answer.json()["detail"]
    await world.set("collection=")
    assert len((await world.ask())["hits"]) == 3


async def test_the_language_of_answers_reaches_the_prompt_and_the_fixed_sentences(world: World):
    assert "Write the answer in" not in (await world.ask("/v1/augment"))["prompt"]
    await world.send("PUT", "/v1/tenant", {"language": "zh"})
    assert (await world.ask("/v1/augment"))["prompt"].endswith("this service answers in Chinese alone.")
    code, out, _ = await world.command("augment", QUESTION, "--tenant", "acme", "--json")
    assert (code, "Write the answer in Chinese" in json.loads(out)["prompt"]) == (0, True)
    world.behind.requests.clear()
    assert (await world.command("ask", QUESTION, "--tenant", "acme"))[0] == 0
    chat = {"model": "signalbox", "messages": [{"role": "user", "content": QUESTION}]}
    assert (await world.send("POST", "/v1/chat/completions", chat)).status_code == 200
    await world.tool("answer_with_citations")
    assert ["Write the answer in Chinese" in prompt for prompt in world.prompts] == [True] * 3
    nothing = {"query": QUESTION, "filter": {"type": "eq", "key": "team", "value": "green"}}
    answer = await world.service.ask(**nothing, tenant="acme")
    assert (answer.status, answer.answer) == ("nothing_found", "文档中没有找到答案。")


# Sources.

EVERY_DOOR: dict[str, tuple[str, dict[str, Any]]] = {
    "retrieve": ("/v1/retrieve", {"query": QUESTION, "sources": ["web"]}),
    "augment": ("/v1/augment", {"query": QUESTION, "sources": ["web"]}),
    "ask": ("/v1/ask", {"query": QUESTION, "sources": ["web"]}),
    "chat": (
        "/v1/chat/completions",
        {
            "model": "signalbox",
            "messages": [{"role": "user", "content": QUESTION}],
            "signalbox": {"sources": ["web"]},
        },
    ),
    "prompt of chat": (
        "/v1/chat/completions",
        {
            "model": "signalbox-prompt",
            "messages": [{"role": "user", "content": QUESTION}],
            "signalbox": {"sources": ["web"]},
        },
    ),
}


@pytest.mark.parametrize("door", EVERY_DOOR)
async def test_a_source_that_a_tenant_may_not_ask_is_refused_by_name_and_never_asked(world: World, door: str):
    path, body = EVERY_DOOR[door]
    assert (await world.send("POST", path, body)).status_code == 200
    assert world.searched_web == 1
    await world.set("sources=vector,fulltext,sql")
    answer = await world.send("POST", path, body)
    assert answer.status_code == (400 if "chat" in door else 422)
    assert 'this tenant may not use the source \\"web\\"; it may use: ' in answer.text
    assert world.searched_web == 1
    assert (await world.send("POST", path, body, tenant="globex")).status_code == 200


async def test_the_command_line_asks_no_source_that_the_tenant_may_not(world: World):
    assert (await world.retrieve("--source", "web"))["hits"][0]["url"] == "https://news.example/rotor"
    await world.set("sources=fulltext")
    code, _, said = await world.command("retrieve", QUESTION, "--tenant", "acme", "--source", "web")
    assert (code, said.count("\n")) == (2, 1)
    assert 'may not use the source "web"; it may use: "fulltext"' in said
    assert {source for hit in (await world.retrieve())["hits"] for source in hit["sources"]} == {"fulltext"}
    assert world.searched_web == 1


async def test_a_withheld_source_is_in_no_routing_no_fallback_and_no_card(world: World):
    news = "What is the weather in Paris today?"
    routed = (await world.ask(query=news, fallback="route_to_all"))["intent"]
    assert "web" in [one["name"] for one in routed["sources"]]
    asked = world.searched_web
    assert asked
    await world.set("sources=vector,fulltext")
    for path in ("/v1/retrieve", "/v1/augment"):
        told = await world.ask(path, query=news, fallback="route_to_all")
        assert "web" not in [one["name"] for one in told["intent"]["sources"]]
        assert {one["source"] for one in told["plan"]} <= {"vector", "fulltext"}
        assert not [one for one in told["degraded"] if one.startswith("web")]
    structured = (await world.tool("search_knowledge", query=news))["structuredContent"]
    assert {one["source"] for one in structured["plan"]} <= {"vector", "fulltext"}
    counted = await world.ask(query="How many reports are there?")
    assert (counted["table"], {one["source"] for one in counted["plan"]}) == (None, {"vector", "fulltext"})
    world.behind.requests.clear()
    await world.ask(query=news, intent="llm", tenant="globex")
    card = json.dumps(world.service.pipeline.sources["web"].card.good_for)[1:-1]
    assert card in world.prompts[0]
    world.behind.requests.clear()
    await world.ask(query=news, intent="llm")
    assert world.prompts
    assert not [prompt for prompt in world.prompts if card in prompt or "outside knowledge" in prompt]
    assert world.searched_web == 0


async def test_the_tools_say_that_they_ask_outside_only_where_they_may(world: World):
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}

    async def is_open() -> bool:
        tools = (await world.send("POST", "/mcp", call)).json()["result"]["tools"]
        return any(one["annotations"]["openWorldHint"] for one in tools)

    assert await is_open()
    await world.set("sources=vector")
    assert not await is_open()


async def test_a_replay_asks_no_source_that_was_taken_away_since(world: World):
    first = await world.ask(sources=["web"])
    await world.set("sources=vector")
    answer = await world.send("POST", f"/v1/traces/{first['trace_id']}/replay", {})
    assert answer.status_code == 422
    assert 'may not use the source "web"' in answer.json()["detail"]
    assert world.searched_web == 1


async def test_a_tenant_that_may_ask_the_web_alone_is_answered_by_it_alone(world: World):
    await world.set("sources=web")
    told = await world.ask(sources=["web"])
    assert [hit["sources"] for hit in told["hits"]] == [["web"]]
    told = await world.ask()
    assert [hit["sources"] for hit in told["hits"]] == [["web"]]
    assert (await world.send("POST", "/v1/retrieve", {"query": QUESTION, "sources": ["vector"]})).status_code == 422


# With routes, guards, templates, and a model that searches itself.


@asynccontextmanager
async def opened(world: World, **changes: Any) -> AsyncIterator[Service]:
    """A service over the same database, with other settings."""
    async with open_service(world.service.settings.model_copy(update=changes)) as service:
        yield service


async def test_a_model_that_searches_itself_is_held_to_the_settings_of_its_tenant(world: World):
    async def told() -> dict[str, Any]:
        answer = await world.send("POST", "/v1/ask", {"query": QUESTION, "mode": "tool"})
        assert answer.status_code == 200, answer.text
        whole: dict[str, Any] = json.loads(answer.text.rpartition("data: ")[2])
        return whole

    usual = await told()
    assert {hit["document_id"] for hit in usual["hits"]} == {"a", "b", "c"}
    before = (await world.service.tenant(tenant="acme"))["use"]
    await world.set(
        "sources=fulltext", "collection=older", "language=zh", "questions_per_day=2", "tokens_per_day=10000"
    )
    world.behind.requests.clear()
    held = await told()
    assert [hit["document_id"] for hit in held["hits"]] == ["c"]
    assert {one["source"] for one in held["plan"]} == {"fulltext"}
    assert len(world.prompts) == 2
    for request in world.behind.requests:
        user = next(one for one in request.body["messages"] if one["role"] == "user")
        assert user["content"].startswith(f"{QUESTION}\n\nWrite the answer in Chinese, ")
    assert "Write the answer" not in world.behind.requests[1].body["messages"][-1]["content"]
    # Its searches are no questions of their own, and all its turns cost tokens.
    use = (await world.service.tenant(tenant="acme"))["use"]
    assert use["questions"] == before["questions"] + 1 == 2
    assert (
        use["tokens"] - before["tokens"] == sum(held["usage"][of] for of in ("prompt_tokens", "completion_tokens")) > 0
    )
    assert (await world.send("POST", "/v1/ask", {"query": QUESTION, "mode": "tool"})).status_code == 429
    assert len(world.prompts) == 2


async def test_a_route_leads_to_no_source_that_the_tenant_may_not_ask(world: World):
    routes = ("app=news:web", "app=both:web+fulltext")
    async with opened(world, routes=routes) as service:

        async def asked(app: str) -> set[str]:
            found = await service.retrieve(QUESTION, metadata={"app": app}, tenant="acme")
            return {step.source for step in found.plan}

        assert (await asked("news"), world.searched_web) == ({"web"}, 1)
        await world.set("sources=vector,fulltext")
        assert await asked("news") == {"vector", "fulltext"}
        assert await asked("both") == {"fulltext"}
        assert world.searched_web == 1


@pytest.mark.parametrize("method", ["retrieve", "augment", "ask", "chat"])
async def test_a_refused_question_counts_and_is_refused_in_the_tenants_language(world: World, method: str):
    async with opened(world, guard=("marzipan",)) as service:
        await world.set("questions_per_day=1", "language=zh")
        ask = getattr(service, method)
        refused = await ask("Where is the marzipan?", tenant="acme")
        said = refused.text if method == "chat" else refused.refusal
        assert (refused.status, said) == ("refused", REFUSALS[1])
        assert (await service.tenant(tenant="acme"))["use"]["questions"] == 1
        with pytest.raises(QuotaUsedUp):
            await ask(QUESTION, tenant="acme")
    assert world.prompts == []


async def test_a_tenants_own_templates_and_settings_hold_together(world: World, tmp_path: Path):
    template = '+++\npurpose = "P"\ninputs = ["question", "passages", "fence"]\n+++\nACME $question $passages $fence'
    for folder in ("answer", "tool_system"):
        (tmp_path / "own/tenants/acme" / folder).mkdir(parents=True)
    (tmp_path / "own/tenants/acme/answer/v1.md").write_text(template)
    (tmp_path / "own/tenants/acme/tool_system/v1.md").write_text(
        '+++\npurpose = "P"\ninputs = ["tool"]\n+++\nOF ACME: $tool'
    )
    await world.set("sources=fulltext", "collection=older", "language=de")
    async with opened(world, prompts=tmp_path / "own") as service:
        mine = await service.augment(QUESTION, tenant="acme")
        assert mine.prompt.startswith(f"ACME {QUESTION}")
        assert mine.prompt.endswith("this service answers in German alone.")
        assert [hit.document_id for hit in mine.hits] == ["c"]
        assert "ACME" not in (await service.augment(QUESTION, tenant="globex")).prompt
        world.behind.requests.clear()
        await service.ask(QUESTION, tenant="acme", mode="tool")
        assert [one.body["messages"][0]["content"] for one in world.behind.requests] == [
            "OF ACME: search_knowledge"
        ] * 2


# Quotas.

QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "retrieve": ("/v1/retrieve", {"query": QUESTION}),
    "augment": ("/v1/augment", {"query": QUESTION}),
    "ask": ("/v1/ask", {"query": QUESTION}),
    "chat": ("/v1/chat/completions", {"model": "signalbox", "messages": [{"role": "user", "content": QUESTION}]}),
    "stream": (
        "/v1/chat/completions",
        {"model": "signalbox", "messages": [{"role": "user", "content": QUESTION}], "stream": True},
    ),
    "vector store": ("/v1/vector_stores/reports/search", {"query": QUESTION}),
    "dify": (
        "/retrieval",
        {"knowledge_id": "reports", "query": QUESTION, "retrieval_setting": {"top_k": 3, "score_threshold": 0.0}},
    ),
    "web search": ("/search", {"query": QUESTION, "count": 3}),
    "rerank": ("/v1/rerank", {"query": QUESTION, "documents": ["The rotor stops.", "Penguins march."]}),
}


@pytest.mark.parametrize("door", QUESTIONS)
async def test_a_quota_of_questions_holds_at_every_door_and_is_said_in_the_headers(world: World, door: str):
    path, body = QUESTIONS[door]
    await world.set("questions_per_day=2")
    for left in ("1", "0"):
        answer = await world.send("POST", path, body)
        assert answer.status_code == 200, answer.text
        assert answer.headers["x-ratelimit-limit-requests"] == "2"
        assert answer.headers["x-ratelimit-remaining-requests"] == left
        assert 0 < int(answer.headers["x-ratelimit-reset-requests"].removesuffix("s")) <= 90_000
    asked = len(world.prompts)
    answer = await world.send("POST", path, body)
    assert (answer.status_code, answer.headers["x-ratelimit-remaining-requests"]) == (429, "0")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(1)
    assert abs(int(answer.headers["retry-after"]) - (midnight - datetime.now(UTC)).total_seconds()) < 10
    assert f"2 questions a day); it starts again at {midnight.isoformat(timespec='seconds')}" in answer.text
    assert len(world.prompts) == asked
    # Nobody else's.
    other = await world.send("POST", path, body, tenant="globex")
    assert (other.status_code, "x-ratelimit-limit-requests" in other.headers) == (200, False)
    if door in ("retrieve", "augment", "ask"):
        problem = answer.json()
        assert answer.headers["content-type"] == "application/problem+json"
        assert (problem["type"], problem["status"]) == ("urn:signalbox:problem:quota-used-up", 429)


async def test_a_quota_holds_at_mcp_and_on_the_command_line_too(world: World):
    await world.set("questions_per_day=2")
    for name in ("search_knowledge", "answer_with_citations"):
        assert not (await world.tool(name)).get("isError")
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search_knowledge"}}
    call["params"] |= {"arguments": {"query": QUESTION}}  # type: ignore[operator]
    assert (await world.send("POST", "/mcp", call)).headers["x-ratelimit-remaining-requests"] == "0"
    refused = await world.tool("search_knowledge")
    assert refused["isError"] is True
    assert "quota of this tenant is used up (2 questions a day)" in refused["content"][0]["text"]
    for command in ("retrieve", "augment", "ask"):
        code, out, said = await world.command(command, QUESTION, "--tenant", "acme")
        assert (code, out, said.count("\n")) == (1, "", 1)
        assert "quota of this tenant is used up (2 questions a day); it starts again at " in said


async def test_questions_of_the_command_line_count(world: World):
    await world.set("questions_per_day=2")
    await world.retrieve()
    assert (await world.command("ask", QUESTION, "--tenant", "acme"))[0] == 0
    assert (await world.send("POST", "/v1/retrieve", {"query": QUESTION})).status_code == 429


async def test_of_fifty_questions_at_once_to_two_processes_a_quota_of_ten_lets_ten_through(world: World):
    await world.set("questions_per_day=10")
    doors = [world.client, *world.others]
    answers = await asyncio.gather(
        *(world.send("POST", "/v1/retrieve", {"query": QUESTION}, door=doors[n % 2]) for n in range(50))
    )
    statuses = sorted(one.status_code for one in answers)
    assert statuses == [200] * 10 + [429] * 40
    use = (await world.send("GET", "/v1/tenant")).json()["use"]
    assert use["questions"] == 10


async def test_a_quota_of_tokens_ends_at_the_answer_that_used_it_up(world: World):
    body = {"model": "signalbox", "messages": [{"role": "user", "content": QUESTION}]}
    await world.set("tokens_per_day=20")
    first = await world.send("POST", "/v1/chat/completions", body)
    assert first.status_code == 200
    used = first.json()["usage"]["total_tokens"]
    assert used >= 20
    assert first.headers["x-ratelimit-limit-tokens"] == first.headers["x-ratelimit-remaining-tokens"] == "20"
    # At once, and in another process.
    second = await world.send("POST", "/v1/retrieve", {"query": QUESTION}, door=world.others[0])
    assert (second.status_code, second.headers["x-ratelimit-remaining-tokens"]) == (429, "0")
    assert "20 tokens a day" in second.json()["detail"]
    use = (await world.send("GET", "/v1/tenant")).json()["use"]
    assert (use["questions"], use["tokens"]) == (1, used)


async def test_a_quota_of_tokens_holds_on_the_command_line_and_counts_its_answers(world: World):
    await world.set("tokens_per_day=20")
    assert (await world.command("ask", QUESTION, "--tenant", "acme"))[0] == 0
    for command in ("ask", "retrieve"):
        code, out, said = await world.command(command, QUESTION, "--tenant", "acme")
        assert (code, out) == (1, "")
        assert "used up (20 tokens a day)" in said


async def test_the_tokens_of_an_answer_that_nobody_waits_for_count(world: World):
    await world.set("tokens_per_day=20")
    pieces = world.service.ask_stream(QUESTION, tenant="acme")
    assert isinstance(await anext(pieces), str)
    await pieces.aclose()
    assert (await world.send("GET", "/v1/tenant")).json()["use"]["tokens"] >= 20
    assert (await world.send("POST", "/v1/retrieve", {"query": QUESTION})).status_code == 429


async def test_the_day_of_a_quota_ends_at_midnight_of_the_tenants_time_zone(world: World, owner_url: str):
    zone = "Asia/Kathmandu"
    await world.set("questions_per_day=1", f"time_zone={zone}")
    await world.ask()
    refused = await world.send("POST", "/v1/retrieve", {"query": QUESTION})
    today = datetime.now(ZoneInfo(zone))
    midnight = (today + timedelta(1)).replace(hour=0, minute=0, second=0, microsecond=0)
    assert abs(int(refused.headers["retry-after"]) - (midnight - today).total_seconds()) < 10
    use = (await world.send("GET", "/v1/tenant")).json()["use"]
    assert (use["day"], datetime.fromisoformat(use["ends_at"])) == (f"{today.date()}", midnight)
    with psycopg.connect(owner_url) as connection:
        connection.execute("UPDATE signalbox.tenant_use SET day = day - 1")
    await world.ask()
    assert (await world.send("POST", "/v1/retrieve", {"query": QUESTION})).status_code == 429


async def test_another_time_zone_begins_no_day_twice(world: World):
    await world.set("questions_per_day=1", f"time_zone={EAST}")
    await world.ask()
    for zone in (WEST, EAST, "UTC", WEST):
        assert (await world.send("PUT", "/v1/tenant", {"time_zone": zone})).status_code == 200
        assert (await world.send("POST", "/v1/retrieve", {"query": QUESTION})).status_code == 429


async def test_a_quota_holds_where_the_service_may_not_call_set_config(world: World, owner_url: str):
    with psycopg.connect(owner_url) as connection:  # as in the embedded server
        connection.execute("REVOKE EXECUTE ON FUNCTION pg_catalog.set_config(text, text, boolean) FROM PUBLIC")
        connection.execute("GRANT EXECUTE ON FUNCTION pg_catalog.set_config(text, text, boolean) TO signalbox_app")
    await world.ask()
    await world.set("questions_per_day=1", tenant="globex")
    await world.ask(tenant="globex")
    assert (await world.send("POST", "/v1/retrieve", {"query": QUESTION}, tenant="globex")).status_code == 429
    assert (await world.send("GET", "/v1/tenant")).json()["use"]["questions"] == 1


async def test_a_quota_of_nothing_lets_nothing_through(world: World):
    for quota in ("questions_per_day=0", "tokens_per_day=0"):
        await world.set("questions_per_day=", "tokens_per_day=")
        await world.ask()
        await world.set(quota)
        assert (await world.send("POST", "/v1/retrieve", {"query": QUESTION})).status_code == 429


# Who may set what, and what is said.

OWN = {
    "time_zone": "Asia/Tokyo", "week_start": 6, "fiscal_year_start": 4, "collection": "reports", "language": "ja",
}  # fmt: skip


async def test_what_is_set_at_one_door_holds_at_the_others_at_once(world: World):
    told = (await world.send("PUT", "/v1/tenant", OWN)).json()
    assert {name: told["settings"][name] for name in OWN} == OWN
    other = (await world.send("GET", "/v1/tenant", door=world.others[0])).json()
    assert {name: other["in_force"][name] for name in OWN} == OWN
    nothing = dict.fromkeys(OWN)
    await world.set(*(f"{name}=" for name in OWN))
    assert {name: (await world.send("GET", "/v1/tenant")).json()["settings"][name] for name in OWN} == nothing
    await world.set(*(f"{name}={value}" for name, value in OWN.items()))
    told = (await world.send("PUT", "/v1/tenant", {"language": None})).json()
    assert {name: told["settings"][name] for name in OWN} == OWN | {"language": None}
    body = {"query": QUESTION, "sources": ["fulltext"]}
    for door in (world.client, world.others[0]):
        assert (await world.send("POST", "/v1/retrieve", body, door=door)).status_code == 200
    await world.set("sources=vector")
    for door in (world.client, world.others[0]):
        assert (await world.send("POST", "/v1/retrieve", body, door=door)).status_code == 422


async def test_a_tenant_sees_its_settings_and_use_without_a_quota(world: World):
    await world.ask()
    await world.set("sources=fulltext,vector", "week_start=6")
    told = (await world.send("GET", "/v1/tenant")).json()
    assert told["tenant"] == "acme"
    assert told["settings"] == {
        "sources": ["fulltext", "vector"], "time_zone": None, "week_start": 6, "fiscal_year_start": None,
        "collection": None, "language": None, "questions_per_day": None, "tokens_per_day": None,
    }  # fmt: skip
    assert told["in_force"] == told["settings"] | {"time_zone": "UTC", "fiscal_year_start": 1}
    assert told["use"]["questions"] == 1
    other = (await world.send("GET", "/v1/tenant", tenant="globex")).json()
    assert (other["settings"]["sources"], other["use"]["questions"]) == (None, 0)
    assert "web" in other["in_force"]["sources"]


@pytest.mark.parametrize("body", [{"sources": ["web"]}, {"questions_per_day": 10**6}, {"tokens_per_day": None}])
async def test_a_key_of_a_tenant_cannot_widen_its_rights(world: World, body: dict[str, Any]):
    await world.set("sources=vector", "questions_per_day=5", "tokens_per_day=500")
    before = (await world.send("GET", "/v1/tenant")).json()["settings"]
    answer = await world.send("PUT", "/v1/tenant", {**body, "week_start": 3})
    assert answer.status_code == 403
    assert answer.json()["detail"].startswith(f"{next(iter(body))}: only the operator may set this")
    assert (await world.send("GET", "/v1/tenant")).json()["settings"] == before
    # Nor does the database let the service's role.
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        await world.service.metering.tenants.change_own_settings("acme", body)
    for statement in (
        "UPDATE signalbox.tenant_use SET questions = 0",
        "DELETE FROM signalbox.tenant_setting",
        "DELETE FROM signalbox.tenant_use",
        "INSERT INTO signalbox.tenant_setting (tenant, week_start) VALUES ('globex', 1)",
    ):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            async with world.service.database.transaction("acme") as connection:
                await connection.execute(statement.encode())
    seen = await world.service.database.fetch("globex", "SELECT tenant FROM signalbox.tenant_setting", ())
    assert seen == []


async def test_without_keys_the_harmless_settings_can_be_set_and_no_others(world: World):
    async with run_server(create_app(world.service)) as port:
        address = f"http://127.0.0.1:{port}/v1/tenant"
        async with httpx2.AsyncClient() as client:
            told = (await client.put(address, json={"week_start": 6})).json()
            assert (told["tenant"], told["settings"]["week_start"]) == ("default", 6)
            assert (await client.put(address, json={"questions_per_day": 5})).status_code == 403


async def test_a_time_zone_that_the_database_does_not_know_is_refused_and_fails_no_request(world: World):
    database = world.service.database
    with pytest.raises(BadRequest, match='the database does not know "Nowhere/City"'):
        await world.service.metering.tenants.change_any_settings("acme", {"time_zone": "Nowhere/City"})
    with pytest.raises(BadRequest, match='the database does not know "Nowhere/City"'):
        await world.service.metering.tenants.change_own_settings("acme", {"time_zone": "Nowhere/City"})
    await world.set("questions_per_day=1")
    state = await Tenants(database, "Nowhere/City").admit("acme")
    assert state.use is not None
    assert (state.use.day, state.use.ends_at.hour) == (datetime.now(UTC).date(), 0)


async def test_a_request_is_told_its_rules_in_place_of_another_statement(world: World, monkeypatch: pytest.MonkeyPatch):
    told: list[str] = []
    search = ReadRouter.fetch_autocommit

    async def noted(self: ReadRouter, who: Any, statement: Any, values: dict[str, Any], **options: Any) -> Any:
        told.append(statement)
        return await search(self, who, statement, values, **options)

    monkeypatch.setattr(ReadRouter, "fetch_autocommit", noted)
    await world.service.retrieve(QUESTION, tenant="acme")
    await world.service.retrieve(QUESTION, tenant="acme")
    assert sum("tenant_rules" in one for one in told) == 2
    assert not [one for one in told if "access_changed(" in one]


async def test_a_key_that_reads_as_somebody_changes_nothing(world: World):
    _, key = await world.service.keys.create("acme", principals=["user:7"])
    world.keys["acme"] = key
    assert (await world.send("PUT", "/v1/tenant", {"week_start": 3})).status_code == 403
    assert (await world.send("GET", "/v1/tenant")).status_code == 200


@pytest.mark.parametrize(
    ("pair", "said"),
    [
        ("colour=red", '"collection", "fiscal_year_start", "language", "questions_per_day", "sources"'),
        ("week_start", "is not KEY=VALUE; there are: "),
        ("week_start=7", "expected: 0 (Monday) to 6 (Sunday)"),
        ("week_start=soon", "expected: 0 (Monday) to 6 (Sunday)"),
        ("fiscal_year_start=13", "expected: a month, 1 (January) to 12 (December)"),
        ("time_zone=Mars/Olympus", "names look like Asia/Shanghai"),
        ("time_zone=../../etc/passwd", "names look like Asia/Shanghai"),
        ("language=xx", 'there are: "ar", "bg"'),
        ("collection=a/b", "printable characters and no slash"),
        ("sources=web,moon", 'there is no source "moon"; there are: "cloud", "fulltext"'),
        ("sources=,", "expected: names of the sources"),
        ("questions_per_day=-1", "expected: a whole number from 0"),
        ("questions_per_day=1.5", "expected: a whole number from 0"),
        ("tokens_per_day=many", "expected: a whole number from 0"),
        ("tokens_per_day=99999999999999999999", "expected: a whole number from 0"),
    ],
)
async def test_what_cannot_be_set_is_said_in_one_line_with_what_can(world: World, pair: str, said: str):
    code, out, error = await world.command("tenants", "set", "acme", pair)
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert said in error
    assert (await world.service.tenant(tenant="acme"))["settings"]["week_start"] is None


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"colour": "red"}, "there is no such key"),
        ({"week_start": 7}, "week_start"),
        ({"week_start": "6"}, "week_start"),
        ({"time_zone": "Mars/Olympus"}, "names look like Asia/Shanghai"),
        ({"time_zone": "a\0b"}, "time_zone"),
        ({"language": "Klingon"}, 'there are: "ar", "bg"'),
        ({"collection": ""}, "collection"),
        ([], "body"),
    ],
)
async def test_a_bad_body_is_a_422_that_names_what_would_fit(world: World, body: Any, said: str):
    answer = await world.send("PUT", "/v1/tenant", body)
    assert (answer.status_code, said in answer.text.replace('\\"', '"')) == (422, True), answer.text


async def test_the_command_line_lists_tenants_with_their_settings_and_use(world: World):
    await world.ask()
    await world.service.metering.flush()
    await world.set("questions_per_day=7", "sources=vector,fulltext")
    await world.set("language=de", tenant="initech")
    code, out, _ = await world.command("tenants")
    assert code == 0
    assert out.splitlines() == [
        "acme  sources=vector,fulltext  questions_per_day=7  today 1 questions, 0 tokens",
        "globex  today 0 questions, 0 tokens",
        "initech  language=de  today 0 questions, 0 tokens",
    ]
    code, out, _ = await world.command("tenants", "--json")
    told = json.loads(out)
    assert [one["tenant"] for one in told] == ["acme", "globex", "initech"]
    assert told[0]["settings"]["questions_per_day"] == 7
    code, out, _ = await world.command("tenants", "set", "acme", "questions_per_day=", "--json")
    assert (code, json.loads(out)["settings"]["questions_per_day"]) == (0, None)


async def test_in_python_a_quota_is_an_error_of_its_own_and_its_keys_alone_are_the_tenants(world: World):
    await world.set("questions_per_day=0")
    with pytest.raises(QuotaUsedUp) as caught:
        await world.service.retrieve(QUESTION, tenant="acme")
    assert caught.value.ends_at > datetime.now(UTC)
    with pytest.raises(QuotaUsedUp):
        await world.service.chat(QUESTION, tenant="acme")
    answer = await world.service.ask(QUESTION, tenant="globex")
    assert isinstance(answer, Answer)
    with pytest.raises(BadRequest):
        await world.service.retrieve(QUESTION, tenant="globex", sources=("moon",))
