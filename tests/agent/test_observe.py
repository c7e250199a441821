"""What the service does, seen from outside: each fault in /readyz, in a metric and in one line of the log."""

import asyncio
import io
import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from agent.observe import logs
from agent.observe.health import Health
from agent.observe.spans import SpanRecorder
from agent.pipeline import Pipeline
from agent.serve.authentication import Caller, Unauthenticated
from agent.serve.http.app import create_app
from agent.serve.process.testing import run_server
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings, is_span_export_configured
from agent.testing import Fault, ScriptedServer
from retrievers.core.errors import Unavailable
from retrievers.ingest.documents import Document

KEY = "sk-very-secret-key-0123"
BIRDS = [
    Document("a", "a", "Ice", "Penguins march on the ice."),
    Document("b", "b", "Sea", "Penguins swim in the cold sea."),
]


class Dependency:
    """A server that a test breaks and mends."""

    def __init__(self) -> None:
        self.broken = False

    def faults(self) -> Iterator[Fault | None]:
        while True:
            yield Fault(status=401, body=f"no such key {KEY} at 10.0.0.7") if self.broken else None


@pytest.fixture
def lines() -> Callable[[], list[dict[str, Any]]]:
    """The log of this process as `signalbox serve` writes it in JSON, read so far."""
    stream = io.StringIO()
    logs.configure(Settings(log_format="json", llm_api_key=KEY), stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


@asynccontextmanager
async def opened(
    owner_url: str,
    service_url: str,
    span_recorder: SpanRecorder | None = None,
    mounted: ASGIApp | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[Service, httpx2.AsyncClient]]:
    """A service with two documents, and a client of its HTTP door."""
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4, **changes)
    async with open_service(settings) as service:
        await service.ingest(BIRDS, "birds")
        app = create_app(service, span_recorder=span_recorder)
        if mounted is not None:
            app.mount("/mounted", mounted)
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=30) as client:
            yield service, client


async def ask(client: httpx2.AsyncClient, question: str = "penguins", **more: Any) -> httpx2.Response:
    return await client.post("/v1/retrieve", json={"query": question, "collection": "birds", **more})


async def ready(client: httpx2.AsyncClient) -> tuple[int, dict[str, Any]]:
    answer = await client.get("/readyz")
    return answer.status_code, answer.json()


async def figure(client: httpx2.AsyncClient, name: str) -> float:
    """One line of /metrics; 0 when there is none yet."""
    text = (await client.get("/metrics")).text
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def about(lines: list[dict[str, Any]], part: str) -> list[str]:
    """What the log says of a part."""
    said = [one["message"] for one in lines if one["logger"] == "agent.observe.health"]
    return [one for one in said if one.startswith(f"{part} ")]


# Faults.


@pytest.mark.slow
async def test_a_database_that_is_down_shows_everywhere_and_so_does_its_return(
    owner_url: str, service_url: str, lines: Callable[[], list[dict[str, Any]]]
):
    name = conninfo_to_dict(owner_url)["dbname"]
    async with opened(owner_url, service_url) as (_, client):
        assert (await ready(client))[1]["status"] == "ready"
        with psycopg.connect(make_conninfo(owner_url, dbname="postgres"), autocommit=True) as admin:
            admin.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS false')
            admin.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            for number in range(2):
                asked = await ask(client, f"penguins {number}", timeout_s=1)
            failed = await client.get("/v1/collections")
            status, report = await ready(client)
            assert (status, report["status"]) == (503, "unavailable")
            database = report["parts"]["database"]
            assert (database["status"], database["reason"] in ("error", "timeout")) == ("failing", True)
            assert set(database) == {"status", "since", "reason"}
            # What the tenant may read may still be known: then the answer says that no source gave one.
            assert asked.status_code == 503 or "fulltext_unavailable" in asked.json()["degraded"]
            assert failed.status_code == 503
            before = await figure(client, "signalbox_questions_failed_total")
            assert (await ask(client, "penguins", timeout_s=0.1)).status_code == 503
            assert await figure(client, "signalbox_questions_failed_total") == before + 1
            assert int(failed.headers["retry-after"]) >= 1
            assert await figure(client, 'signalbox_part_up{part="database"}') == 0
            admin.execute(f'ALTER DATABASE "{name}" WITH ALLOW_CONNECTIONS true')
        for _ in range(300):
            if (await ready(client))[0] == 200:
                break
            await asyncio.sleep(0.2)
        assert (await ready(client))[0] == 200
        assert await figure(client, 'signalbox_part_up{part="database"}') == 1
    down, back = about(lines(), "database")
    assert down.startswith("database does not work: ")
    assert back == "database works again"


async def test_an_embedder_that_fails_is_told_apart_from_the_vectors_it_is_needed_for(
    owner_url: str, service_url: str, lines: Callable[[], list[dict[str, Any]]]
):
    embedder = Dependency()
    with ScriptedServer(faults=embedder.faults()) as server:
        changes = {"embedder": "openai/tiny", "embedder_base_url": server.base_url, "embedder_api_key": KEY}
        async with opened(owner_url, service_url, **changes) as (_, client):
            embedder.broken = True
            answer = await ask(client, "penguins at sea")
            assert (answer.status_code, answer.json()["degraded"]) == (200, ["vector_unavailable"])
            status, report = await ready(client)
            assert (status, report["status"]) == (200, "degraded")
            failing = [name for name, part in report["parts"].items() if part["status"] == "failing"]
            assert failing == ["embedder"]
            assert await figure(client, 'signalbox_part_failures_total{part="embedder"}') == 1
            assert await figure(client, 'signalbox_source_searches_total{source="vector",status="error"}') == 1
            embedder.broken = False
            await ask(client, "another question")
            assert (await ready(client))[1]["status"] == "ready"
    assert len(about(lines(), "embedder")) == 2


async def test_a_vector_that_was_at_hand_does_not_make_the_embedder_well(owner_url: str, service_url: str):
    embedder = Dependency()
    with ScriptedServer(faults=embedder.faults()) as server:
        changes = {"embedder": "openai/tiny", "embedder_base_url": server.base_url, "embedder_api_key": KEY}
        async with opened(owner_url, service_url, **changes) as (_, client):
            await ask(client, "penguins")
            hits = await figure(client, "signalbox_embedding_cache_hits_total")
            embedder.broken = True
            await ask(client, "penguins at sea")
            await ask(client, "penguins")
            assert await figure(client, "signalbox_embedding_cache_hits_total") == hits + 1
            assert (await ready(client))[1]["parts"]["embedder"]["status"] == "failing"


async def test_a_model_that_fails_shows_and_its_tokens_are_counted_when_it_does_not(
    owner_url: str, service_url: str, lines: Callable[[], list[dict[str, Any]]]
):
    model = Dependency()
    with ScriptedServer(replies=lambda body: "Penguins march on the ice [1].", faults=model.faults()) as server:
        changes = {"llm": "openai/small", "llm_base_url": server.base_url, "llm_api_key": KEY, "intent": "rules"}
        async with opened(owner_url, service_url, max_rounds=1, **changes) as (service, client):
            assert (await ready(client))[1]["parts"]["model"]["status"] == "untried"
            model.broken = True
            await service.ask("Where do penguins march?", collection="birds")
            status, report = await ready(client)
            assert (status, report["parts"]["model"]["status"]) == (200, "failing")
            assert await figure(client, 'signalbox_model_calls_total{stage="answer",status="error"}') == 1
            model.broken = False
            answer = await service.ask("Where do penguins march?", collection="birds")
            assert (await ready(client))[1]["parts"]["model"]["status"] == "ok"
            counted = await figure(client, 'signalbox_model_tokens_total{kind="completion",stage="answer"}')
            assert counted == answer.usage.completion_tokens > 0
            assert await figure(client, 'signalbox_questions_total{kind="ask",status="found"}') == 2
    failure, _ = about(lines(), "model")
    assert failure.startswith("model does not work: ")
    assert KEY not in failure


async def test_a_reranker_that_is_down_shows_without_its_address(
    owner_url: str, service_url: str, lines: Callable[[], list[dict[str, Any]]]
):
    async with opened(owner_url, service_url, reranker="http://127.0.0.1:9/rerank") as (_, client):
        answer = await ask(client)
        assert "rerank_unavailable" in answer.json()["degraded"]
        status, report = await ready(client)
        assert (status, report["parts"]["reranker"]["status"]) == (200, "failing")
        assert report["parts"]["reranker"]["breaker"] == "closed"
        assert "127.0.0.1" not in json.dumps(report)
        assert await figure(client, 'signalbox_part_up{part="reranker"}') == 0
        assert await figure(client, 'signalbox_degraded_answers_total{what="rerank_unavailable"}') == 1
        for number in range(5):
            await ask(client, f"penguins {number}")
        assert "rerank_unavailable" not in (await ask(client, reranker="hybrid")).json()["degraded"]
        part = (await ready(client))[1]["parts"]["reranker"]
        assert (part["status"], part["breaker"]) == ("failing", "open")
        assert await figure(client, 'signalbox_breaker_open{part="reranker"}') == 1
    assert len(about(lines(), "reranker")) == 1


async def test_who_is_in_a_hurry_makes_no_part_look_ill(owner_url: str, service_url: str):
    with ScriptedServer(replies=lambda body: "Too late.", faults=[Fault(delay_s=60.0)] * 4) as server:
        changes = {"llm": "openai/small", "llm_base_url": server.base_url, "llm_api_key": KEY, "intent": "rules"}
        async with opened(owner_url, service_url, max_rounds=1, **changes) as (service, client):
            await service.ask("Where do penguins march?", collection="birds", timeout_s=3)
            assert (await ready(client))[1]["status"] == "ready"


@pytest.mark.parametrize(
    ("door", "method"),
    [("retrieve", "retrieve_with_record"), ("augment", "augment_with_record"), ("ask", "augment_with_record")],
)
async def test_a_replay_that_fails_counts_as_a_question_that_failed(
    owner_url: str, service_url: str, monkeypatch: pytest.MonkeyPatch, door: str, method: str
):
    async def down(*_: Any) -> Any:
        raise Unavailable("every source", "down for the test")

    failures = "signalbox_questions_failed_total"
    async with opened(owner_url, service_url) as (service, client):
        asked = await getattr(service, door)("penguins", collection="birds")
        before = await figure(client, failures)
        monkeypatch.setattr(Pipeline, method, down)
        answer = await client.post(f"/v1/traces/{asked.trace_id}/replay")
        assert answer.status_code == 503
        assert await figure(client, failures) == before + 1


async def test_a_full_disk_and_a_dead_worker_are_parts_as_well(
    owner_url: str, service_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr("agent.observe.health._FRESH_S", 0.0)
    async with opened(owner_url, service_url) as (service, client):
        async with service.worker:
            parts = (await ready(client))[1]["parts"]
            assert ("disk" in parts, parts["worker"]["status"]) == (False, "ok")  # the database is elsewhere
        status, report = await ready(client)
        assert (status, report["parts"]["worker"]["status"]) == (200, "failing")

        embedded = service.settings.model_copy(update={"database_url": None, "home": tmp_path / "not" / "yet"})
        health = Health(replace(service, settings=embedded))
        monkeypatch.setattr("agent.observe.health.LEAST_FREE_BYTES", 1)
        await health.refresh()
        assert health.report()["parts"]["disk"]["status"] == "ok"
        monkeypatch.setattr("agent.observe.health.LEAST_FREE_BYTES", 1 << 62)
        await health.refresh()
        assert (health.ready, health.report()["parts"]["disk"]["status"]) == (True, "failing")


# Who may look, and what they see.


async def test_status_is_told_without_a_key_and_holds_no_address_and_no_name(owner_url: str, service_url: str):
    async def nobody(authorization: str | None) -> Caller:
        raise Unauthenticated("no key")

    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=2, llm="openai/x", llm_api_key=KEY)
    async with open_service(settings) as service:
        await service.ingest(BIRDS, "birds", tenant="acme-canary")
        await service.retrieve("canary-question-7 penguins", collection="birds", tenant="acme-canary", intent="off")
        transport = httpx2.ASGITransport(create_app(service, authenticate=nobody))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
            assert (await client.post("/v1/retrieve", json={"query": "x"})).status_code == 401
            answers = [await client.get(path) for path in ("/healthz", "/readyz", "/metrics")]
    assert [one.status_code for one in answers] == [200, 200, 200]
    host = conninfo_to_dict(service_url)["host"]
    for answer in answers:
        assert not any(word in answer.text for word in (KEY, host, "acme-canary", "canary-question-7", "birds"))


async def test_every_request_is_counted_by_the_template_of_its_route(owner_url: str, service_url: str):
    async def mounted(scope: Scope, receive: Receive, send: Send) -> None:
        await Response("here")(scope, receive, send)

    async with opened(owner_url, service_url, mounted=mounted) as (_, client):
        await client.get("/mounted/by/caller")
        await ask(client)
        await ask(client, top_k=0)
        for number in range(3):
            await client.get(f"/v1/traces/{number}")
            await client.get(f"/made/up/{number}")
        await client.request("BREW", "/v1/retrieve")
        # Refused on its way to its route.
        await client.get("/v1/documents/birds/a", headers={"Origin": "https://elsewhere.example"})
        await client.get("/openapi.json")
        text = (await client.get("/metrics")).text
        counted = {
            tuple(re.findall(r'"([^"]*)"', line)): float(line.rpartition(" ")[2])
            for line in text.splitlines()
            if line.startswith("signalbox_http_requests_total")
        }
    assert counted["POST", "/v1/retrieve", "200"] == 1
    assert counted["POST", "/v1/retrieve", "422"] == 1
    assert counted["GET", "/v1/traces/{id}", "404"] == 3
    assert counted["GET", "unmatched", "404"] == 3
    assert counted["other", "/v1/retrieve", "405"] == 1
    assert counted["GET", "/v1/documents/{collection}/{id:path}", "403"] == 1
    assert counted["GET", "/openapi.json", "200"] == 1
    assert counted["GET", "/mounted", "200"] == 1
    assert {method for method, *_ in counted} == {"GET", "POST", "other"}


async def test_who_goes_away_before_the_answer_is_no_failure_of_the_service(
    owner_url: str, service_url: str, lines: Callable[[], list[dict[str, Any]]]
):
    begun = asyncio.Event()

    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        begun.set()
        await asyncio.Event().wait()

    def requests() -> list[dict[str, Any]]:
        return [one for one in lines() if one["logger"] == "signalbox.http"]

    async with opened(owner_url, service_url, mounted=waits) as (_, client):
        app = client._transport.app  # type: ignore[attr-defined]
        async with run_server(app) as port, asyncio.timeout(60):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /mounted/ HTTP/1.1\r\nHost: localhost\r\n\r\n")
            await begun.wait()
            writer.close()
            while not requests():  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    assert [one["status"] for one in requests()] == [499]


async def test_who_goes_away_before_the_answer_counts_as_no_failure_of_the_service(owner_url: str, service_url: str):
    messages = iter([{"type": "http.request", "body": b'{"query": "penguins"}'}, {"type": "http.disconnect"}])

    async def receive() -> Message:
        return next(messages)

    async def send(message: Message) -> None:
        raise AssertionError(f"nobody is there to take {message}")

    async with opened(owner_url, service_url) as (service, _):
        app = create_app(service)
        await app(retrieving(), receive, send)
        text = app.state.observability.metrics.render().decode()
    assert counted_by_status(text) == [("499", "1.0")]


async def test_a_flood_of_incomplete_requests_leaves_few_lines_and_is_counted(
    owner_url: str, service_url: str, lines: Callable[[], list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("agent.serve.http.middleware.observability._SPARING_S", 3600.0)
    gone: Message = {"type": "http.disconnect"}

    async def receive() -> Message:
        return gone

    async def send(message: Message) -> None:
        raise AssertionError(f"nobody is there to take {message}")

    async with opened(owner_url, service_url) as (service, _):
        app = create_app(service)
        for _ in range(5):
            await app(retrieving(), receive, send)
        text = app.state.observability.metrics.render().decode()
    assert counted_by_status(text) == [("499", "5.0")]
    assert [one["status"] for one in lines() if one["logger"] == "signalbox.http"] == [499]


async def test_what_the_end_of_the_server_cuts_short_is_told_when_to_come_back(owner_url: str, service_url: str):
    reading, sent = asyncio.Event(), list[Message]()

    async def receive() -> Message:
        reading.set()
        return await asyncio.Future[Message]()

    async def send(message: Message) -> None:
        sent.append(message)

    async with opened(owner_url, service_url) as (service, _):
        app = create_app(service)
        request = asyncio.create_task(app(retrieving(), receive, send))
        await reading.wait()
        request.cancel()
        await request
        text = app.state.observability.metrics.render().decode()
    headers = dict(sent[0]["headers"])
    assert (sent[0]["status"], headers[b"content-type"]) == (503, b"application/problem+json")
    assert headers[b"retry-after"] == b"5"
    assert counted_by_status(text) == [("503", "1.0")]


def retrieving() -> Scope:
    """The scope of a POST to /v1/retrieve."""
    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    path = {"path": "/v1/retrieve", "raw_path": b"/v1/retrieve", "query_string": b"", "root_path": ""}
    return {"type": "http", "method": "POST", "http_version": "1.1", "headers": headers, **path}


def counted_by_status(text: str) -> list[tuple[str, str]]:
    """The statuses in the metrics, with how many requests were answered so."""
    return re.findall(r'signalbox_http_requests_total{.*status="(\d+)"} ([\d.]+)', text)


async def test_each_stage_and_source_of_a_question_has_its_time(owner_url: str, service_url: str):
    async with opened(owner_url, service_url) as (_, client):
        took = (await ask(client)).json()
        for stage in ("scope", "intent", "search", "fusion", "page"):
            assert await figure(client, f'signalbox_stage_seconds_count{{stage="{stage}"}}') == 1
        for outcome in took["outcomes"]:
            elapsed_s = await figure(client, f'signalbox_source_seconds_sum{{source="{outcome["source"]}"}}')
            assert elapsed_s == pytest.approx(outcome["elapsed_ms"] / 1000)
        assert await figure(client, 'signalbox_pool_connections{state="most"}') == 4
        assert await figure(client, 'signalbox_gate_waiting{gate="searches"}') == 0
        assert await figure(client, "signalbox_http_requests_at_work") == 1  # the one that asks


async def test_an_observer_that_fails_costs_nobody_an_answer(
    owner_url: str, service_url: str, lines: Callable[[], list[dict[str, Any]]]
):
    class Broken:
        def on_answer(self, trace: object) -> None:
            raise ZeroDivisionError("secret text")

        def on_failure(self, error: Unavailable) -> None:
            raise ZeroDivisionError("secret text")

    async with opened(owner_url, service_url) as (service, client):
        service.observers.add(Broken())
        assert (await ask(client)).status_code == 200
    (line,) = [one for one in lines() if one["level"] == "ERROR"]
    assert line["message"] == "Broken failed"
    assert line["error"].endswith("on_answer > ZeroDivisionError")


# Log lines.


async def test_a_request_leaves_one_line_with_its_ids_and_nothing_that_was_asked(
    owner_url: str, service_url: str, lines: Callable[[], list[dict[str, Any]]]
):
    async with opened(owner_url, service_url) as (_, client):
        answer = await client.post(
            "/v1/retrieve", json={"query": "canary penguins", "collection": "birds"}, headers={"X-Request-ID": "abc-1"}
        )
        await client.get("/healthz")
        await client.get("/v1/nothing%0d%0a%1b[31mINFO%20forged%E2%80%AE")
    first, second = [one for one in lines() if one["logger"] == "signalbox.http"]
    trace_id = answer.json()["trace_id"]
    assert (first["request_id"], first["trace_id"], first["tenant"]) == ("abc-1", trace_id, "default")
    assert (first["method"], first["route"], first["status"]) == ("POST", "/v1/retrieve", 200)
    assert first["ms"] > 0
    assert "canary" not in json.dumps(first)
    assert (second["route"], second["status"]) == ("unmatched", 404)
    assert second["message"].isprintable()


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_hostile_text_makes_neither_a_second_line_nor_shows_a_secret(form: str):
    formatter = (logs.JsonFormatter if form == "json" else logs.TextFormatter)([KEY])
    hostile = [
        "a\r\n2026-01-01 ERROR forged", "\x1b[2J\x1b]0;title\x07", "\x00\x08\x7f\x9b", "\u202eright to left\u2066",
        "\u2028\u2029line ends", "\ud800 half a character", f"key={KEY}", f"Authorization: Bearer {KEY}",
        "postgresql://app:pass-word-9@db/x", "host=db password=pass-word-9", "sbx_0123456789abcdef_" + "s" * 43,
    ]  # fmt: skip
    for text in hostile:
        record = logging.LogRecord("n", logging.WARNING, "f.py", 1, "said %s", (text,), None)
        record.fields = {"route": text}
        line = formatter.format(record)
        shown = " ".join(map(str, json.loads(line).values())) if form == "json" else line
        assert "\n" not in line
        assert shown.isprintable()
        line.encode()
        assert not any(secret in shown for secret in (KEY, "pass-word-9", "s" * 43))


def test_an_error_is_told_by_its_type_and_place_and_never_by_its_text():
    try:
        json.loads(f"[{KEY}")
    except ValueError as error:
        record = logging.LogRecord("n", logging.ERROR, "f.py", 1, "failed", (), (type(error), error, None))
        record.exc_info = (type(error), error, error.__traceback__)
    line = json.loads(logs.JsonFormatter().format(record))
    assert line["error"].endswith("raw_decode > JSONDecodeError")
    assert KEY not in json.dumps(line)


def test_a_text_line_begins_with_its_time_and_level():
    record = logging.LogRecord("agent.x", logging.WARNING, "f.py", 1, "it is %s", ("late",), None)
    record.created = 1_795_305_600.25
    record.fields = {"status": 503}
    assert logs.TextFormatter().format(record) == "2026-11-22T00:00:00.250Z WARNING agent.x it is late status=503"


# Spans.


async def test_a_question_is_a_span_under_the_callers_with_one_for_each_stage(owner_url: str, service_url: str):
    exporter = InMemorySpanExporter()
    span_recorder = SpanRecorder(exporter)
    trace_id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    async with opened(owner_url, service_url, span_recorder) as (_, client):
        answer = await client.post(
            "/v1/retrieve",
            json={"query": "canary penguins", "collection": "birds", "top_k": 1},
            headers={"traceparent": f"00-{trace_id}-{parent}-01"},
        )
    span_recorder.close()
    spans = {span.name: span for span in exporter.get_finished_spans()}
    request, question, search = spans["POST /v1/retrieve"], spans["retrieval birds"], spans["search"]
    assert {format(span.context.trace_id, "032x") for span in spans.values()} == {trace_id}
    assert format(request.parent.span_id, "016x") == parent
    assert question.parent.span_id == request.context.span_id
    stages = ("scope", "intent", "search", "fusion", "loop", "page")
    assert [spans[stage].parent.span_id for stage in stages] == [question.context.span_id] * 6
    assert [spans[stage].start_time for stage in stages[1:]] == [spans[stage].end_time for stage in stages[:-1]]
    assert request.attributes["http.response.status_code"] == 200
    assert question.attributes["gen_ai.operation.name"] == "retrieval"
    assert question.attributes["gen_ai.request.top_k"] == 1
    (hit,) = answer.json()["hits"]
    (document,) = question.attributes["gen_ai.retrieval.documents"]
    assert json.loads(document) == {"id": hit["id"], "score": hit["score"]}
    assert search.attributes["signalbox.source.fulltext.status"] == "ok"
    assert "canary" not in " ".join(span.to_json() for span in spans.values())


async def test_a_method_that_a_caller_makes_up_names_no_span(owner_url: str, service_url: str):
    exporter = InMemorySpanExporter()
    span_recorder = SpanRecorder(exporter)
    async with opened(owner_url, service_url, span_recorder) as (_, client):
        assert (await client.request("CANARY", "/v1/retrieve", json={})).status_code == 405
    span_recorder.close()
    (span,) = exporter.get_finished_spans()
    assert span.name.startswith("HTTP ")
    assert span.attributes["http.request.method"] == "_OTHER"
    assert "CANARY" not in span.to_json()


@pytest.mark.parametrize(
    ("environment", "wanted"),
    [
        ({}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:4318/v1/traces"}, True),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_SDK_DISABLED": "true"}, False),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER": "none"}, False),
    ],
)
def test_spans_are_made_where_the_standard_environment_asks_for_them(
    environment: dict[str, str], wanted: bool, monkeypatch: pytest.MonkeyPatch
):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert is_span_export_configured() is wanted


def test_a_collector_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch):
    class Hanging(InMemorySpanExporter):
        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            ended.wait(60)
            sent.append(len(spans))
            return SpanExportResult.SUCCESS

    ended, sent = threading.Event(), []
    monkeypatch.setattr("agent.observe.spans._CLOSE_S", 0.1)
    span_recorder = SpanRecorder(Hanging())
    with span_recorder.request_span("GET", {}) as span:
        span_recorder.set_response(span, "GET", "/healthz", 200)
    span_recorder.close()
    assert sent == []
    ended.set()


def test_asking_in_process_or_on_the_command_line_loads_nothing_of_a_server():
    code = "import sys, agent.service.factory, agent.serve.cli, agent.serve.cli.output; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert {"fastapi", "uvicorn", "mcp", "prometheus_client", "opentelemetry"}.isdisjoint(loaded)
