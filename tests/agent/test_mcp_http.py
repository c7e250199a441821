"""MCP over HTTP on a real server: keys and tenants, what is refused before the protocol, old and new clients."""

import asyncio
import json
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, replace
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from agent import Service, open_service
from agent.pipeline import Pipeline
from agent.serve.authentication import open_authenticator
from agent.serve.http.app import create_app
from agent.serve.http.middleware.admission import Gate
from agent.serve.process.server import Server
from agent.settings import Settings
from retrievers.core.types import Card, Hit, Query
from retrievers.ingest.documents import Document
from retrievers.testing import longest_hold

HEADERS = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
SEARCH = "search_knowledge"


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    settings = Settings(database_url=owner_url, service_url=service_url, timeout_s=60, source_timeout_s=60, pool_size=4)
    async with open_service(settings) as service:
        await service.ingest([Document("a", "a", "Penguins", "Penguins march.")], "docs")
        yield service


@asynccontextmanager
async def served(service: Service, *, auth: bool = False) -> AsyncIterator[str]:
    """The address of /mcp on a server of its own."""
    app = create_app(service, authenticate=await open_authenticator(service, "keys") if auth else None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Server(app)
        serving = asyncio.create_task(server.serve([listener]))
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
        finally:
            server.should_exit = True
            await serving


@asynccontextmanager
async def connected(url: str, key: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=30) as http,
        Client(streamable_http_client(url, http_client=http), mode=mode) as client,
    ):
        yield client


def call(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    """A tool call as clients of the protocol before 2026 send it."""
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_search_over_mcp_answers_what_the_native_door_answers(service: Service, mode: str) -> None:
    asked = {"query": "penguins", "collection": "docs", "top_k": 3}
    async with served(service) as url, connected(url, mode=mode) as client:
        assert len((await client.list_tools()).tools) == 3
        answer = await client.call_tool(SEARCH, asked)
        async with httpx2.AsyncClient() as http:
            native = (await http.post(url.replace("/mcp", "/v1/retrieve"), json=asked)).json()
            metrics = (await http.get(url.replace("/mcp", "/metrics"))).text
        assert answer.structured_content["hits"] == native["hits"]
        assert set(answer.structured_content) == set(native)
        assert 'route="/mcp"' in metrics
        (resource,) = (await client.read_resource("signalbox://collections/docs")).contents
        assert json.loads(resource.model_dump()["text"])["documents"] == 1


async def test_every_version_of_the_protocol_is_spoken(service: Service) -> None:
    async with served(service) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        for offered, agreed in {
            "2024-11-05": "2024-11-05",
            "2025-03-26": "2025-03-26",
            "2025-06-18": "2025-06-18",
            "2025-11-25": "2025-11-25",
            "1999-12-31": "2025-11-25",
        }.items():
            client = {"protocolVersion": offered, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
            message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": client}
            answer = await http.post(url, json=message)
            assert answer.json()["result"]["protocolVersion"] == agreed
            # No session is opened: the next request may go to another process, or come after a restart.
            assert "mcp-session-id" not in answer.headers
            headers = {"MCP-Protocol-Version": agreed}
            answer = await http.post(url, json=call(SEARCH, {"query": "penguins"}), headers=headers)
            content = answer.json()["result"]["content"]
            assert json.loads(content[0]["text"])["hits"][0]["document_id"] == "a"
        unknown = {"MCP-Protocol-Version": "2030-01-01"}
        answer = await http.post(url, json=call(SEARCH, {"query": "penguins"}), headers=unknown)
        assert (answer.status_code, "error" in answer.json()) == (400, True)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_key_fixes_the_tenant_of_every_call_at_the_same_time(service: Service, mode: str) -> None:
    tenants = ("acme", "globex")
    keys = {}
    for tenant in tenants:
        await service.ingest([Document("a", tenant, tenant, f"The secret of {tenant}.")], "vault", tenant=tenant)
        await service.ingest([Document("a", "a", "a", "Only mine.")], f"only-{tenant}", tenant=tenant)
        _, keys[tenant] = await service.keys.create(tenant)

    async def all_that_it_sees(client: Client) -> str:
        answers = [
            await client.call_tool(SEARCH, {"query": "what is the secret of acme and globex?"}) for _ in range(3)
        ]
        seen: list[Any] = [
            *(answer.structured_content["hits"] for answer in answers),
            (await client.call_tool("answer_with_citations", {"query": "the secret"})).structured_content["citations"],
            (await client.call_tool("describe_collections")).structured_content,
            (await client.list_tools(cache_mode="bypass")).model_dump_json(),
            (await client.list_resources(cache_mode="bypass")).model_dump_json(),
            (await client.read_resource("signalbox://collections/vault", cache_mode="bypass")).model_dump_json(),
        ]
        return json.dumps(seen, default=str)

    async def of_a_key(url: str, tenant: str) -> str:
        async with connected(url, keys[tenant], mode) as client:
            other = next(one for one in tenants if one != tenant)
            refused = await client.call_tool(SEARCH, {"query": "secret", "collection": f"only-{other}"})
            never_was = await client.call_tool(SEARCH, {"query": "secret", "collection": "never-was"})
            told = [one.model_dump_json().replace(f"only-{other}", "never-was") for one in (refused, never_was)]
            assert refused.is_error
            assert told[0] == told[1]
            return await all_that_it_sees(client)

    async with served(service, auth=True) as url:
        seen = await asyncio.gather(*(of_a_key(url, tenant) for tenant in tenants * 2))
    for tenant, text in zip(tenants * 2, seen, strict=True):
        other = next(one for one in tenants if one != tenant)
        assert f"The secret of {tenant}" in text
        assert other not in text


async def test_without_a_key_that_opens_something_nothing_is_answered(service: Service) -> None:
    _, secret = await service.keys.create("default")
    async with served(service, auth=True) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        for sent in (None, "", "Bearer", "Bearer nonsense", f"Basic {secret}", f"Bearer {secret}x"):
            headers = {"Authorization": sent} if sent is not None else {}
            answer = await http.post(url, json=call(SEARCH, {"query": "penguins"}), headers=headers)
            assert (answer.status_code, answer.headers["content-type"]) == (401, "application/problem+json")
            assert answer.headers["www-authenticate"].startswith("Bearer")
            # Keys are handed out by people: there is no authorization server to send a client to.
            assert "resource_metadata" not in answer.headers["www-authenticate"]
        well_known = await http.get(url.replace("/mcp", "/.well-known/oauth-protected-resource/mcp"))
        assert well_known.status_code in (401, 404)
        headers = {"Authorization": f"Bearer {secret}"}
        assert (await http.post(url, json=call(SEARCH, {"query": "penguins"}), headers=headers)).status_code == 200


async def test_a_client_whose_key_is_revoked_is_refused_within_a_second(service: Service) -> None:
    key, secret = await service.keys.create("default")
    async with served(service, auth=True) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        http.headers["Authorization"] = f"Bearer {secret}"
        assert (await http.post(url, json=call(SEARCH, {"query": "penguins"}))).status_code == 200
        await service.keys.revoke(key.id)
        await asyncio.sleep(1)
        assert (await http.post(url, json=call(SEARCH, {"query": "penguins"}))).status_code == 401


async def test_a_session_id_opens_nothing(service: Service) -> None:
    keys = [(await service.keys.create(tenant))[1] for tenant in ("default", "globex")]
    async with served(service, auth=True) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        found = []
        for key in keys:
            headers = {"Authorization": f"Bearer {key}", "Mcp-Session-Id": "the-session-of-the-first"}
            answer = await http.post(url, json=call(SEARCH, {"query": "penguins"}), headers=headers)
            found.append("march" in answer.text)
        assert found == [True, False]


async def test_requests_of_foreign_pages_and_under_foreign_names_are_refused(service: Service) -> None:
    async with served(service) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        port = httpx2.URL(url).port
        for headers, status in (
            ({"Host": "evil.example"}, 421),
            ({"Host": f"evil.example:{port}"}, 421),
            ({"Host": f"127.0.0.1.evil.example:{port}"}, 421),
            ({"Origin": "https://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": f"http://localhost:{port + 1}", "Host": f"localhost:{port}"}, 403),
            ({"Origin": f"http://localhost:{port}", "Host": f"localhost:{port}"}, 200),
            ({"Host": f"127.0.0.1:{port}"}, 200),
        ):
            answer = await http.post(url, json=call(SEARCH, {"query": "penguins"}), headers=headers)
            assert answer.status_code == status, headers
            assert ("march" in answer.text) == (status == 200)


async def test_behind_keys_the_name_that_the_service_is_reached_by_is_answered(service: Service) -> None:
    _, secret = await service.keys.create("default")
    async with served(service, auth=True) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        headers = {"Authorization": f"Bearer {secret}", "Host": "search.example.org"}
        answer = await http.post(url, json=call(SEARCH, {"query": "penguins"}), headers=headers)
        assert answer.status_code == 200
        answer = await http.post(
            url, json=call(SEARCH, {"query": "penguins"}), headers={**headers, "Origin": "https://evil.example"}
        )
        assert answer.status_code == 403


async def test_what_is_no_message_of_the_protocol_is_a_problem_that_says_so(service: Service) -> None:
    whole = json.dumps(call(SEARCH, {"query": "penguins"}))
    bodies = {
        b"": "not valid JSON",
        b"\xff\xfe{": "not valid JSON",
        whole[:-2].encode(): "not valid JSON",
        whole.replace("penguins", "\\ud83d").encode(): "not valid JSON",
        whole.replace('"penguins"', "[" * 100_000 + "]" * 100_000).encode(): "not valid JSON",
        b"[]": "JSON-RPC",
        f"[{whole}]".encode(): "JSON-RPC",
        b'"ping"': "JSON-RPC",
        whole.replace("2.0", "1.0").encode(): "JSON-RPC",
        b'{"jsonrpc": "2.0", "id": 1, "method": ["ping"]}': "JSON-RPC",
    }
    async with served(service) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        for version in ("2025-06-18", "2026-07-28"):
            for body, told in bodies.items():
                answer = await http.post(url, content=body, headers={"MCP-Protocol-Version": version})
                assert (answer.status_code, answer.headers["content-type"]) == (400, "application/problem+json"), body
                assert told in answer.json()["detail"]
                assert "validation error" not in answer.text
        for method, headers, status in (
            ("POST", {"Content-Type": "text/plain"}, 415),
            ("POST", {"Content-Type": "application/vnd.api+json"}, 415),
            ("POST", {"Content-Type": "application/json; charset=latin-1"}, 415),
            ("POST", {"Content-Encoding": "gzip"}, 415),
            ("POST", {"Accept": "text/html"}, 406),
            ("GET", {}, 405),
            ("DELETE", {}, 405),
        ):
            answer = await http.request(method, url, headers=headers, content=whole if method == "POST" else None)
            assert (answer.status_code, answer.headers["content-type"]) == (status, "application/problem+json")
        large = await http.post(url, content=b" " * ((8 << 20) + 1))
        assert large.status_code == 413
        assert (await http.post(f"{url}/", content=whole)).status_code == 200


@pytest.mark.parametrize(
    ("value", "times", "status"),
    [("[]", 9_000, 200), ("1", 190_000, 200), ('"a"', 190_000, 200), ("[]", 42_000, 422), ("1", 600_000, 413)],
)
async def test_a_call_of_many_values_does_not_hold_the_event_loop(
    service: Service, value: str, times: int, status: int
) -> None:
    filter = '{"a": [' + ",".join([value] * times) + "]}"
    body = json.dumps(call(SEARCH, {"query": "a", "filter": 0})).replace('"filter": 0', f'"filter": {filter}').encode()
    async with served(service) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        await http.post(url, content=json.dumps(call(SEARCH, {"query": "penguins"})))  # loads what a call needs
        work = asyncio.create_task(http.post(url, content=body))
        hold = await longest_hold(work)
    assert (work.result().status_code, hold < 0.05) == (status, True), hold


async def test_hostile_arguments_are_told_and_break_nothing(service: Service) -> None:
    def raw(arguments: str) -> bytes:
        return json.dumps(call(SEARCH, {})).replace("{}", arguments).encode()

    calls = {
        '{"query": "a", "filter": {"type": "eq", "key": "title", "value": NaN}}': "needs a string",
        '{"query": "a", "top_k": Infinity}': "a whole number from 1 to 100",
        '{"query": "a", "top_k": 1e400}': "a whole number from 1 to 100",
        '{"query": "a", "filter": ' + '{"type": "not", "filter": ' * 60 + "1" + "}" * 60 + "}": "nested deeper",
        '{"query": "' + "a" * 1_000_000 + '"}': "at most 8000 characters",
        '{"query": "a", "__proto__": {}, "self": 1}': "there is no argument",
        '{"query": "a", "tenant": "acme"}': "there is no argument",
    }
    async with served(service) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        for arguments, told in calls.items():
            answer = await http.post(url, content=raw(arguments))
            assert answer.status_code == 200
            result = answer.json()["result"]
            assert (result["isError"], told in result["content"][0]["text"]) == (True, True), result
        for arguments in ("[]", '"a"', "5"):
            error = (await http.post(url, content=raw(arguments))).json()["error"]
            assert (error["code"], error["message"]) == (
                -32602,
                "tools/call: params.arguments: input should be an object",
            )


@dataclass
class Endless:
    """A source that never answers, and notes how its searches end."""

    card: Card
    begun: asyncio.Event
    cancelled: asyncio.Event

    async def search(self, query: Query) -> list[Hit]:
        self.begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled.set()
            raise
        return []


async def searches_at_work(url: str) -> int:
    """The figure of /metrics on the server of this MCP address."""
    async with httpx2.AsyncClient() as http:
        text = (await http.get(f"{url.removesuffix('/mcp')}/metrics")).text
    (found,) = re.findall(r'^signalbox_gate_at_work\{gate="searches".*\} (\d+)', text, re.MULTILINE)
    return int(found)


@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25"])
async def test_a_call_whose_client_hangs_up_ends_its_search(service: Service, version: str) -> None:
    source = Endless(Card("fulltext", ""), asyncio.Event(), asyncio.Event())
    slow = replace(service, pipeline=replace(service.pipeline, sources={"fulltext": source}))
    async with served(slow) as url, asyncio.timeout(60):
        async with AsyncExitStack() as stack:
            if version == "2026-07-28":
                client = await stack.enter_async_context(connected(url))
                calling = asyncio.ensure_future(client.call_tool(SEARCH, {"query": "penguins"}))
            else:
                headers = {**HEADERS, "MCP-Protocol-Version": version}
                http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers))
                calling = asyncio.ensure_future(http.post(url, json=call(SEARCH, {"query": "penguins"})))
            await source.begun.wait()
            before = await searches_at_work(url)
            calling.cancel()
            await source.cancelled.wait()
        while await searches_at_work(url):  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert (before, await searches_at_work(url)) == (1, 0)


@pytest.mark.parametrize("tool", [SEARCH, "answer_with_citations"])
async def test_a_call_that_waited_for_its_turn_has_only_the_rest_of_its_time(service: Service, tool: str) -> None:
    left = []

    class Recording(Pipeline):
        async def retrieve_with_record(self, tenant, request):
            left.append(request.timeout_s or self.settings.timeout_s)
            await asyncio.sleep(0.2)
            return await super().retrieve_with_record(tenant, request)

    pipeline = Recording(**{one.name: getattr(service.pipeline, one.name) for one in fields(service.pipeline)})
    app = create_app(replace(service, pipeline=pipeline))
    app.state.gates.searches = Gate(1, 4)
    transport = httpx2.ASGITransport(app)
    async with (
        app.router.lifespan_context(app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=HEADERS) as http,
    ):
        await http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        await asyncio.gather(*(http.post("/mcp", json=call(tool, {"query": "penguins"})) for _ in range(2)))
    assert 0 < left[1] <= left[0] - 0.15


async def test_the_protocol_is_loaded_by_its_first_request_and_ends_with_the_server(service: Service) -> None:
    async with served(service) as url, httpx2.AsyncClient(headers=HEADERS) as http:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        answers = await asyncio.gather(*(http.post(url, json=ping) for _ in range(8)))
        assert [answer.json()["result"] for answer in answers] == [{}] * 8
    assert not [task for task in asyncio.all_tasks() if "Endpoint" in repr(task)]
    loaded = (
        "import sys, agent.serve.process.server; print([m for m in sys.modules if m == 'mcp' or m.startswith('mcp.')])"
    )
    assert await asyncio.to_thread(subprocess.check_output, [sys.executable, "-c", loaded]) == b"[]\n"
