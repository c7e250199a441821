"""The HTTP door over a real service and a real database."""

import asyncio
import errno
import json
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar

import httpx2
import psycopg
import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from agent.pipeline import Pipeline
from agent.serve.authentication import Caller, Unauthenticated
from agent.serve.http.app import create_app
from agent.serve.http.endpoints.native import service_arguments
from agent.serve.http.middleware.admission import Gate, Gates
from agent.serve.http.problems import Problem, error_formatter_for
from agent.serve.process.testing import run_server
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from agent.testing import ScriptedServer
from agent.types import AskRequest, Request
from retrievers.core.errors import Unavailable
from retrievers.core.types import Viewer
from retrievers.ingest.documents import Document

TEXTS = {
    "a/1": "We rolled back the payment service because the queue was full.",
    "b": "The ingest worker was killed by the kernel.",
}

DIFY = {
    "knowledge_id": "notes",
    "query": "worker",
    "retrieval_setting": {"top_k": 1},
    "metadata_condition": {"conditions": [{"name": "title", "comparison_operator": "is", "value": "b"}]},
}

UNFORESEEN = [
    ZeroDivisionError("secret detail"),
    TimeoutError("secret detail"),
    ConnectionResetError("secret detail"),
    FileNotFoundError(errno.ENOENT, "secret detail"),
]
NO_DESCRIPTOR = [OSError(number, os.strerror(number)) for number in (errno.EMFILE, errno.ENFILE)]


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4)
    async with open_service(settings) as service:
        await service.ingest([Document(id, id, id, text) for id, text in TEXTS.items()], "notes")
        yield service


@pytest.fixture
async def client(service: Service) -> AsyncIterator[httpx2.AsyncClient]:
    async with client_of(create_app(service)) as client:
        yield client


def client_of(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost")


def with_pipeline(service: Service, decide: Any) -> Service:
    """The service with a pipeline that decides otherwise."""

    class Other(Pipeline):
        async def retrieve_with_record(self, tenant, request):
            return await decide(lambda: super(Other, self).retrieve_with_record(tenant, request))

    names = ("settings", "catalogue", "sources", "embedder", "reader", "reranker")
    return replace(service, pipeline=Other(*(getattr(service.pipeline, name) for name in names)))


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_so():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def by_key(authorization: str | None) -> Caller:
    """Two tenants, whose keys are their names."""
    tenant = (authorization or "").removeprefix("Bearer ")
    if tenant not in ("default", "globex"):
        raise Unauthenticated("the key is unknown")
    return Caller(tenant, tenant)


async def test_a_question_is_answered_as_in_python_and_in_the_shape_of_the_contract(
    service: Service, client: httpx2.AsyncClient
):
    question = "Why was the payment service rolled back?"
    answer = await client.post("/v1/retrieve", json={"query": question, "collection": "notes", "top_k": 1})
    assert answer.status_code == 200
    assert list(answer.json()) == (
        "trace_id query intent plan hits table outcomes relaxed degraded status took_ms total complete".split()
    )
    in_python = await service.retrieve(question, collection="notes", top_k=1)
    assert [hit["id"] for hit in answer.json()["hits"]] == [hit.id for hit in in_python.hits] == ["notes/a/1#0"]
    prompt = (await client.post("/v1/augment", json={"query": question, "collection": "notes"})).json()
    assert [turn["role"] for turn in prompt["messages"]] == ["system", "user"]
    assert prompt["citations"][0]["document_id"] == "a/1"


async def test_an_answer_streams_its_text_first_and_ends_with_the_whole_answer(service: Service):
    with ScriptedServer(replies=["It was rolled back [1]."]) as model:
        settings = service.settings.model_copy(
            update={"llm": "openai/any", "llm_base_url": model.base_url, "llm_api_key": "k", "intent": "rules"}
        )
        async with open_service(settings) as service, client_of(create_app(service)) as client:
            answer = await client.post("/v1/ask", json={"query": "Why was payment rolled back?", "collection": "notes"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [part.split("\n", 1) for part in answer.text.strip().split("\n\n")]
    names = [name.removeprefix("event: ") for name, _ in events]
    said = [json.loads(data.removeprefix("data: ")) for _, data in events]
    assert names == ["text"] * (len(events) - 1) + ["answer"]
    assert "".join(said[:-1]) == said[-1]["answer"] == "It was rolled back [1]."
    assert said[-1]["citations"][0]["document_id"] == "a/1"


async def test_what_fails_before_the_first_word_of_a_stream_has_a_status_of_its_own(client: httpx2.AsyncClient):
    answer = await client.post("/v1/ask", json={"query": "why?", "collection": "nowhere"})
    assert (answer.status_code, answer.headers["content-type"]) == (404, "application/problem+json")


async def test_one_bad_document_never_loses_the_others(client: httpx2.AsyncClient):
    nested = "[" * 80 + "]" * 80
    bodies = [
        '{"id": "good", "text": "Penguins march.", "metadata": {"kind": "bird"}}',
        '{"id": "nan", "text": "x", "metadata": {"n": NaN}}',
        '{"id": "deep", "text": "x", "metadata": {"n": ' + nested + "}}",
        '{"id": "no text"}',
        "7",
        '{"id": "mended", "text": "half \\ud83d a pair"}',
        '{"id": "last", "text": "Seals bark."}',
    ]
    body = '{"collection": "zoo", "documents": [' + ", ".join(bodies) + "]}"
    json_type = {"Content-Type": "application/json"}
    answer = (await client.post("/v1/documents", content=body, headers=json_type)).json()
    assert (answer["inserted"], answer["updated"], answer["unchanged"]) == (3, 0, 0)
    assert [(one["index"], one["id"]) for one in answer["failed"]] == [
        (1, "nan"),
        (2, "deep"),
        (3, "no text"),
        (4, None),
    ]
    assert all(one["reason"] for one in answer["failed"])
    again = (await client.post("/v1/documents", content=body, headers=json_type)).json()
    assert (again["inserted"], again["unchanged"]) == (0, 3)


async def test_a_document_with_a_slash_in_its_id_is_read_and_deleted(client: httpx2.AsyncClient):
    document = (await client.get("/v1/documents/notes/a/1")).json()
    assert (document["id"], document["text"], document["chunks"]) == ("a/1", TEXTS["a/1"], 1)
    assert (await client.get("/v1/documents/notes/a%2F1")).json() == document
    assert (await client.delete("/v1/documents/notes/a/1")).json() == {"collection": "notes", "deleted": 1}
    for call in (client.get, client.delete):
        assert (await call("/v1/documents/notes/a/1")).status_code == 404


async def test_what_has_expired_or_is_private_to_the_platform_is_not_there(
    service: Service, client: httpx2.AsyncClient
):
    past = datetime.now(UTC) - timedelta(seconds=1)
    await service.ingest([Document("old", "old", "", "text", expires_at=past)], "notes")
    shared = [Document("open", "open", "", "text", public=True), Document("own", "own", "", "text")]
    await service.ingest(shared, "shared", tenant="0")
    assert (await client.get("/v1/documents/notes/old")).status_code == 404
    assert (await client.get("/v1/documents/shared/open")).json()["public"] is True
    assert (await client.get("/v1/documents/shared/own")).status_code == 404
    assert (await client.delete("/v1/documents/shared/open")).status_code == 404


async def test_collections_are_listed_described_and_deleted(client: httpx2.AsyncClient):
    listed = (await client.get("/v1/collections")).json()["collections"]
    assert [(one["name"], one["documents"]) for one in listed] == [("notes", 2)]
    assert (await client.get("/v1/collections/notes")).json()["fields"] == []
    assert (await client.delete("/v1/collections/notes")).json() == {"collection": "notes", "deleted": 2}
    assert (await client.get("/v1/collections")).json() == {"collections": []}


async def test_a_trace_is_listed_read_replayed_and_judged(client: httpx2.AsyncClient):
    body = {"query": "Who killed the ingest worker?", "collection": "notes"}
    first = (await client.post("/v1/retrieve", json=body)).json()
    trace = (await client.get(f"/v1/traces/{first['trace_id']}")).json()
    assert (trace["request"]["query"], trace["hits"][0]["document_id"]) == (body["query"], "b")
    replayed = await client.post(f"/v1/traces/{first['trace_id']}/replay", json={"changes": {"fusion": "rrf"}})
    assert replayed.json()["replay_of"] == first["trace_id"]
    assert replayed.json()["difference"]["settings"]["fusion"] == {"before": "convex", "after": "rrf"}
    assert (await client.post(f"/v1/traces/{first['trace_id']}/replay")).status_code == 200
    refused = await client.post(f"/v1/traces/{first['trace_id']}/replay", json={"changes": {"web_api_key": "k"}})
    assert (refused.status_code, refused.json()["errors"][0]["where"]) == (422, "web_api_key")
    judged = await client.post("/v1/feedback", json={"trace_id": first["trace_id"], "score": 9})
    assert judged.json() == {"trace_id": first["trace_id"], "score": 9}
    listed = (await client.get("/v1/traces", params={"limit": 3})).json()["traces"]
    assert [one["replay_of"] for one in listed] == [first["trace_id"], first["trace_id"], None]
    assert {key: listed[-1][key] for key in ("kind", "query", "collection", "hits")} == {
        "kind": "retrieve",
        "query": body["query"],
        "collection": "notes",
        "hits": 2,
    }


async def test_recent_traces_are_the_same_before_and_after_they_are_stored(
    service: Service, client: httpx2.AsyncClient
):
    for number in range(3):
        await client.post("/v1/retrieve", json={"query": f"question {number}"})
    at_once = (await client.get("/v1/traces")).json()
    await until(lambda: not service.traces.waiting)
    assert (await client.get("/v1/traces")).json() == at_once
    assert [one["query"] for one in at_once["traces"]] == ["question 2", "question 1", "question 0"]


async def test_what_another_tenant_has_does_not_exist(service: Service):
    trace_id = (await service.retrieve("worker", collection="notes")).trace_id
    async with client_of(create_app(service, authenticate=by_key)) as client:
        client.headers["Authorization"] = "Bearer globex"
        nobody = "f" * 32
        pairs = [
            ("GET", "/v1/documents/notes/b", "/v1/documents/nones/b", None),
            ("DELETE", "/v1/documents/notes/b", "/v1/documents/nones/b", None),
            ("GET", "/v1/collections/notes", "/v1/collections/nones", None),
            ("DELETE", "/v1/collections/notes", "/v1/collections/nones", None),
            ("GET", f"/v1/traces/{trace_id}", f"/v1/traces/{nobody}", None),
            ("POST", f"/v1/traces/{trace_id}/replay", f"/v1/traces/{nobody}/replay", {}),
            ("POST", "/v1/feedback", "/v1/feedback", {"score": 1}),
            ("POST", "/v1/retrieve", "/v1/retrieve", {"query": "worker"}),
        ]
        for method, real, unreal, body in pairs:
            answers = []
            for path, id, name in ((real, trace_id, "notes"), (unreal, nobody, "nones")):
                more = {"/v1/feedback": {"trace_id": id}, "/v1/retrieve": {"collection": name}}.get(path, {})
                answer = await client.request(method, path, json=None if body is None else body | more)
                problem = answer.json() | {"request_id": ""}
                answers.append((answer.status_code, json.dumps(problem).replace(id, "ID").replace(name, "NAME")))
            assert answers[0] == answers[1]
            assert answers[0][0] == 404
        assert (await client.get("/v1/traces")).json() == {"traces": []}
        assert (await client.get("/v1/collections")).json() == {"collections": []}
    assert (await service.document("notes", "b")).id == "b"


async def test_without_a_key_everything_but_the_open_paths_is_a_401(service: Service):
    app = create_app(service, authenticate=by_key)
    async with client_of(app) as client:
        for path, operations in (await client.get("/openapi.json")).json()["paths"].items():
            for method, operation in operations.items():
                answer = await client.request(method.upper(), path.format(collection="c", id="i", name="n"))
                if "security" in operation:
                    assert answer.status_code == 401
                    assert answer.headers["www-authenticate"] == 'Bearer realm="signalbox"'
                    assert "the key is unknown" in answer.text
                else:
                    assert path in ("/healthz", "/readyz", "/metrics")
                    assert answer.status_code == 200
        assert (await client.get("/v1/nothing")).status_code == 401


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u2028", "\u2029", "\u0085", "\u200f", "\U000e0041"])
async def test_no_door_echoes_what_hides_or_reorders_the_rest_of_a_line(service: Service, mark: str):
    name, filter = f"no{mark}where", {"type": "eq", "key": f"to{mark}tal", "value": 1}
    question: dict[str, Any] = {"query": "why?"}
    turns = [{"role": "user", "content": "why?"}]
    refused = [
        ("POST", "/v1/retrieve", question | {"collection": name}),
        ("POST", "/v1/retrieve", question | {"collection": "notes", "filter": filter}),
        ("POST", "/v1/retrieve", question | {"sources": [name]}),
        ("POST", "/v1/ask", question | {"collection": name}),
        ("GET", f"/v1/collections/{name}", None),
        ("DELETE", f"/v1/documents/notes/{name}", None),
        ("POST", "/v1/chat/completions", {"model": name, "messages": turns}),
        ("POST", f"/v1/vector_stores/{name}/search", question),
        ("POST", "/retrieval", DIFY | {"knowledge_id": name}),
    ]
    async with client_of(create_app(service)) as client:
        for method, path, body in refused:
            answer = await client.request(method, path, json=body)
            assert 400 <= answer.status_code < 500, path
            assert mark not in json.dumps(answer.json(), ensure_ascii=False), path


class Endless(Service):
    """Its answers begin and do not end."""

    async def _begin(self, *args: Any, **options: Any) -> AsyncGenerator[Any]:
        yield "We rolled "
        await asyncio.Event().wait()

    ask_stream = chat_stream = _begin


class Failing(Service):
    """Its answers begin and fail."""

    error: ClassVar[Exception]

    async def _begin(self, *args: Any, **options: Any) -> AsyncGenerator[Any]:
        yield "We rolled "
        raise self.error

    ask_stream = chat_stream = _begin


STREAMED: dict[str, dict[str, Any]] = {
    "/v1/ask": {"query": "why?"},
    "/v1/chat/completions": {
        "model": "signalbox",
        "stream": True,
        "messages": [{"role": "user", "content": "why?"}],
    },
}


def with_answers(service: Service, kind: type[Service]) -> Service:
    """The service with answers of another kind, and some model."""
    parts = {one.name: getattr(service, one.name) for one in fields(service)}
    model: Any = object()
    return kind(**parts | {"answerer": replace(service.answerer, model=model)})


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (Unavailable("the model", "it is down for the test"), "the model is unavailable: it is down for the test"),
        *((error, "the service has no free file descriptor; try again") for error in NO_DESCRIPTOR),
    ],
    ids=repr,
)
@pytest.mark.parametrize("path", STREAMED)
async def test_a_stream_that_fails_for_a_known_reason_says_it_and_leaves_no_traceback(
    service: Service,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    path: str,
    error: Exception,
    said: str,
):
    monkeypatch.setattr(Failing, "error", error, raising=False)
    async with client_of(create_app(with_answers(service, Failing))) as client:
        answer = await client.post(path, json=STREAMED[path])
    assert answer.status_code == 200
    assert said in answer.text
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("path", STREAMED)
async def test_a_stream_that_the_end_of_the_server_cuts_ends_with_an_error_that_says_so(service: Service, path: str):
    lines: list[str] = []
    async with httpx2.AsyncClient() as client:

        async def read(port: int) -> None:
            async with client.stream("POST", f"http://127.0.0.1:{port}{path}", json=STREAMED[path]) as answer:
                async for line in answer.aiter_lines():
                    lines.append(line)

        app = create_app(with_answers(service, Endless))
        app.state.grace_s = 1.0
        async with run_server(app) as port:
            reading = asyncio.create_task(read(port))
            await until(lambda: any("We rolled" in line for line in lines))
        await reading
    if path == "/v1/ask":
        assert lines[-3] == "event: error"
        problem = json.loads(lines[-2].removeprefix("data: "))
        assert (problem["status"], problem["type"]) == (503, "urn:signalbox:problem:stopping")
        assert problem["detail"] == "the service is stopping"
    else:
        *_, error, _, done, _ = lines
        said = {"message": "the service is stopping", "type": "server_error", "param": None, "code": "stopping"}
        assert json.loads(error.removeprefix("data: ")) == {"error": said}
        assert done == "data: [DONE]"


async def test_a_request_id_is_kept_when_it_is_sane_and_made_when_it_is_not(client: httpx2.AsyncClient):
    assert (await client.get("/healthz", headers={"X-Request-ID": "abc-1"})).headers["x-request-id"] == "abc-1"
    for bad in ("", "a b", "x" * 129, "a\tb", "é"):
        made = (await client.get("/healthz", headers=[("X-Request-ID", bad.encode())])).headers["x-request-id"]
        assert re.fullmatch("[0-9a-f]{32}", made)


@pytest.mark.parametrize("error", UNFORESEEN, ids=repr)
async def test_an_unforeseen_error_says_only_the_request_id_and_is_logged_with_its_traceback(
    service: Service, caplog: pytest.LogCaptureFixture, error: Exception
):
    async def fails(decide):
        raise error

    async with client_of(create_app(with_pipeline(service, fails))) as client:
        answer = await client.post("/v1/retrieve", json={"query": "x"}, headers={"X-Request-ID": "trouble-7"})
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert answer.json()["request_id"] == "trouble-7"
    assert "secret" not in answer.text
    logged = next(one for one in caplog.records if "trouble-7" in one.getMessage())
    assert logged.exc_info is not None
    assert logged.levelno == logging.ERROR


@pytest.mark.parametrize("error", [*UNFORESEEN, *NO_DESCRIPTOR], ids=repr)
async def test_an_error_after_the_beginning_of_an_answer_reaches_the_server_as_it_is(
    service: Service, error: Exception
):
    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        raise error

    app = create_app(service)
    app.add_api_route("/pieces", lambda: StreamingResponse(pieces()))
    async with client_of(app) as client:
        with pytest.raises(type(error)) as caught:
            await client.get("/pieces")
    assert caught.value is error


@pytest.mark.usefixtures("sparing_log")
@pytest.mark.parametrize("error", NO_DESCRIPTOR, ids=repr)
async def test_without_file_descriptors_requests_are_answered_503_and_the_log_says_so_once(
    service: Service, caplog: pytest.LogCaptureFixture, error: OSError
):
    async def fails(decide):
        raise error

    caplog.set_level(logging.INFO)
    async with client_of(create_app(with_pipeline(service, fails))) as client:
        for _ in range(5):
            answer = await client.post("/v1/retrieve", json={"query": "x"})
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "2")
            assert answer.json()["detail"] == "the service has no free file descriptor; try again"
    warned = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warned] == [f"requests fail: {error.strerror}"]
    assert warned[0].exc_info is None
    assert [record.fields["status"] for record in caplog.records if record.name == "signalbox.http"] == [503] * 5


async def test_an_unavailable_source_is_a_503_that_says_when_to_come_back(service: Service):
    async def fails(decide):
        raise Unavailable("the database", "no connection became free in 10 s", retry_after_s=2.1)

    async with client_of(create_app(with_pipeline(service, fails))) as client:
        answer = await client.post("/v1/retrieve", json={"query": "x"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
    assert answer.json()["detail"] == "the database is unavailable: no connection became free in 10 s"


async def test_what_is_too_much_is_turned_away_at_once_while_others_and_the_status_are_answered(service: Service):
    let_go = asyncio.Event()

    async def waits(decide):
        await let_go.wait()
        return await decide()

    app = create_app(with_pipeline(service, waits), authenticate=by_key)
    app.state.gates.searches = Gate(2, 2)
    async with client_of(app) as client:

        async def ask(tenant: str) -> httpx2.Response:
            return await client.post(
                "/v1/retrieve", json={"query": "worker"}, headers={"Authorization": f"Bearer {tenant}"}
            )

        greedy = [asyncio.create_task(ask("default")) for _ in range(8)]
        await until(lambda: sum(task.done() for task in greedy) == 4)
        done = [task for task in greedy if task.done()]
        assert {task.result().status_code for task in done} == {503}
        assert all(int(task.result().headers["retry-after"]) >= 1 for task in done)
        assert (await client.get("/healthz")).status_code == 200
        other = asyncio.create_task(ask("globex"))
        await until(lambda: sum(task.done() for task in greedy) == 5)  # the last in the longer line gave up its place
        let_go.set()
        assert (await other).status_code == 404  # its turn came: it has no collection
        statuses = sorted(answer.status_code for answer in await asyncio.gather(*greedy))
        assert statuses == [200] * 3 + [503] * 5
        assert (app.state.gates.searches.at_work, app.state.gates.searches.waiting) == (0, 0)


@pytest.mark.parametrize(
    ("method", "path", "with_model", "without"),
    [
        ("POST", "/v1/retrieve", "searches", "searches"),
        ("GET", "/v1/collections/notes", "searches", "searches"),
        ("GET", "/v1/collections", "searches", "searches"),
        ("DELETE", "/v1/collections/notes", "writes", "writes"),
        ("DELETE", "/v1/documents/notes/b", "writes", "writes"),
        ("POST", "/v1/documents", "writes", "writes"),
        ("PUT", "/v1/files/notes/a.txt", "writes", "writes"),
        ("POST", "/mcp", "answers", "searches"),
        ("POST", "/v1/ask", "answers", "searches"),
        ("POST", "/v1/chat/completions", "answers", "searches"),
    ],
)
def test_each_kind_of_work_has_its_gate_and_nothing_is_an_answer_without_a_model(
    method: str, path: str, with_model: str, without: str
):
    for has_model, expected in ((True, with_model), (False, without)):
        gates = Gates(has_model=has_model)
        assert gates.gate_for(method, path, 100) is gates.by_name()[expected]
        for_long = "long_searches" if expected == "searches" else expected
        assert gates.gate_for(method, path, 5000) is gates.by_name()[for_long]


async def test_ordinary_questions_neither_wait_behind_long_texts_nor_are_rejected_for_them(service: Service):
    let_go = asyncio.Event()
    at_work = 0

    async def waits(decide):
        nonlocal at_work
        at_work += 1
        await let_go.wait()
        return await decide()

    app = create_app(with_pipeline(service, waits))
    app.state.gates.long_searches, full = Gate(1, 4), 5
    async with client_of(app) as client:

        def ask(query: str) -> "asyncio.Task[httpx2.Response]":
            return asyncio.create_task(client.post("/v1/retrieve", json={"query": query}))

        long = [ask("worker " * 300) for _ in range(full + 3)]
        await until(lambda: sum(task.done() for task in long) == 3)
        assert [task.result().status_code for task in long if task.done()] == [503] * 3
        await until(lambda: at_work == 1)
        short = ask("worker")
        await until(lambda: at_work == 2)  # a second long text does not begin before
        assert app.state.gates.long_searches.at_work == 1
        let_go.set()
        assert (await short).status_code == 200
        assert sorted(answer.status_code for answer in await asyncio.gather(*long)) == [200] * full + [503] * 3


async def test_large_bodies_count_until_their_requests_end_and_leave_room_for_small_ones(service: Service):
    let_go = asyncio.Event()

    async def waits(decide):
        await let_go.wait()
        return await decide()

    app = create_app(with_pipeline(service, waits))
    app.state.gates.searches = app.state.gates.long_searches = Gate(20, 0)
    question = json.dumps({"query": "worker"})
    async with client_of(app) as client:

        async def ask(size: int) -> httpx2.Response:
            headers = {"Content-Type": "application/json"}
            return await client.post("/v1/retrieve", content=question.ljust(size), headers=headers)

        async with asyncio.timeout(60):
            # 64 MiB are for them: nine of 7 MiB are within, the tenth is not.
            large = [asyncio.create_task(ask(7 << 20)) for _ in range(10)]
            (refused,), held = await asyncio.wait(large, return_when=asyncio.FIRST_COMPLETED)
            small = asyncio.create_task(ask(60_000))
            assert refused.result().status_code == 503
            assert refused.result().headers["retry-after"] == "5"
            assert "large request bodies" in refused.result().json()["detail"]
            let_go.set()
            answers = await asyncio.gather(small, *held)
            assert [answer.status_code for answer in answers] == [200] * 10
            assert (await ask(7 << 20)).status_code == 200


async def test_turns_go_round_the_tenants_that_wait():
    gate, order = Gate(1, 8), []

    async def work(tenant: str) -> None:
        async with gate.admit(tenant, 5):
            order.append(tenant)

    async with gate.admit("a", 5):
        waiting = [asyncio.create_task(work(tenant)) for tenant in "aaaabc"]
        await until(lambda: gate.waiting == 6)
    await asyncio.gather(*waiting)
    # Whose request has just ended comes after those who have none at work.
    assert "".join(order) == "abcaaa"


async def test_who_waits_too_long_or_leaves_takes_no_turn():
    gate = Gate(1, 8)
    async with gate.admit("a", 1):
        with pytest.raises(Problem, match="try again"):
            async with gate.admit("b", 0.01):
                pass
        leaving = asyncio.create_task(gate.admit("b", 5).__aenter__())
        await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        assert (gate.at_work, gate.waiting) == (1, 0)
    assert (gate.at_work, gate.waiting) == (0, 0)
    async with gate.admit("b", 1):
        assert gate.at_work == 1


async def test_a_client_that_goes_away_ends_its_work_and_leaves_its_place_to_the_next(service: Service):
    begun, ended = asyncio.Event(), asyncio.Event()

    async def waits(decide):
        if begun.is_set():
            return await decide()
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    app = create_app(with_pipeline(service, waits))
    app.state.gates.searches = Gate(1, 4)
    async with run_server(app) as port, httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as next_one:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        body = b'{"query": "x"}'
        head = b"POST /v1/retrieve HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        writer.write(head + f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(60):
            await begun.wait()
            waiting = asyncio.create_task(next_one.post("/v1/retrieve", json={"query": "worker", "timeout_s": 10}))
            await until(lambda: app.state.gates.searches.waiting == 1)
            writer.close()
            answer = await waiting
    assert (answer.status_code, ended.is_set()) == (200, True)


async def test_what_waits_counts_against_the_deadline(service: Service):
    seen = []

    class Recording(Pipeline):
        async def retrieve_with_record(self, tenant, request):
            seen.append(request.timeout_s)
            await asyncio.sleep(0.2)
            return await super().retrieve_with_record(tenant, request)

    names = ("settings", "catalogue", "sources", "embedder", "reader", "reranker")
    app = create_app(replace(service, pipeline=Recording(*(getattr(service.pipeline, name) for name in names))))
    app.state.gates.searches = Gate(1, 4)
    async with client_of(app) as client:
        body = {"query": "worker", "timeout_s": 5}
        await asyncio.gather(*(client.post("/v1/retrieve", json=body) for _ in range(2)))
    assert 0 < seen[1] <= seen[0] - 0.15 <= 4.85


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/collections", None),
        ("GET", "/v1/collections/notes", None),
        ("GET", "/v1/documents/notes/b", None),
        ("GET", "/v1/traces", None),
        ("GET", f"/v1/traces/{'0' * 32}", None),
        ("POST", f"/v1/traces/{'0' * 32}/replay", {}),
        ("POST", "/v1/feedback", {"trace_id": "0" * 32, "score": 1}),
        ("GET", "/v1/jobs", None),
        ("GET", f"/v1/jobs/{'0' * 32}", None),
        ("POST", f"/v1/jobs/{'0' * 32}/retry", None),
        ("POST", "/retrieval", DIFY),
        ("POST", "/v1/documents", {"collection": "notes", "documents": [{"text": "x"}], "wait": False}),
        ("POST", "/v1/documents", {"collection": "notes", "documents": [{"text": "x"}], "wait": True}),
        ("DELETE", "/v1/documents/notes/b", None),
        ("DELETE", "/v1/collections/notes", None),
    ],
)
async def test_a_database_that_does_not_answer_is_a_503_after_the_time_of_a_question(
    service: Service, owner_url: str, method: str, path: str, body: Any
):
    hasty = replace(service, settings=service.settings.model_copy(update={"timeout_s": 0.3}))
    service.worker.jobs.patience_s = 0.3
    async with (
        await psycopg.AsyncConnection.connect(owner_url) as other,
        client_of(create_app(hasty)) as client,
        asyncio.timeout(60),
    ):
        await other.execute("LOCK signalbox.collection, signalbox.field_value, signalbox.trace, signalbox.job")
        answer = await client.request(method, path, json=body)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "5")
    assert '"the database is unavailable: no answer within 0.3 s"' in answer.text


def test_only_a_model_may_take_longer_than_the_settings_give_a_question():
    settings = Settings(timeout_s=10)
    caller, who = Caller("acme", None), {"tenant": Viewer("acme")}
    assert service_arguments(caller, Request(query="x"), settings, 4) == {"query": "x", "timeout_s": 6, **who}
    assert service_arguments(caller, AskRequest(query="x"), settings, 4) == {"query": "x", **who}
    assert service_arguments(caller, AskRequest(query="x", timeout_s=5), settings, 4) == {
        "query": "x",
        "timeout_s": 1,
        **who,
    }
    assert service_arguments(caller, Request(query="x"), settings, 11)["timeout_s"] > 0


def test_the_command_line_and_the_service_load_no_web_framework():
    names = "{'fastapi', 'uvicorn', 'mcp'}"
    loads = f"import agent.service.factory, agent.serve.cli, sys; print(sorted({names} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", loads], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


async def test_the_document_names_operations_bodies_and_problems(client: httpx2.AsyncClient):
    document = (await client.get("/openapi.json")).json()
    assert document["openapi"].startswith("3.1")
    operations = {
        operation["operationId"]: operation for one in document["paths"].values() for operation in one.values()
    }
    expected = "retrieve augment ask add_documents get_document delete_document list_collections get_collection"
    expected += " upload_file list_jobs get_job retry_job"
    expected += " delete_collection list_traces get_trace replay_trace give_feedback healthz readyz metrics"
    assert set(expected.split()) <= set(operations)
    body = operations["retrieve"]["requestBody"]["content"]["application/json"]
    assert body["schema"] == {"$ref": "#/components/schemas/Request"}
    assert (await client.post("/v1/retrieve", json=body["example"] | {"collection": "notes"})).status_code == 200
    for path, one in document["paths"].items():
        for operation in one.values():
            own = error_formatter_for(path, client._transport.app.state.error_formatters)  # type: ignore[attr-defined]
            form = "application/json" if own else "application/problem+json"
            assert form in operation["responses"]["4XX"]["content"]
            assert form in operation["responses"]["5XX"]["content"]
            assert "422" not in operation["responses"]
    named = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
    assert named <= set(document["components"]["schemas"])


def serve(folder: Path, *options: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from agent.serve.cli import main; main()", "serve", *options]
    environment = os.environ | {"SIGNALBOX_HOME": str(folder), "SIGNALBOX_PROCESSES": "1"}
    return subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
async def test_serve_says_where_it_listens_lets_requests_finish_and_ends_politely(
    owner_url: str, service_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)
    monkeypatch.setenv("SIGNALBOX_SERVICE_URL", service_url)
    monkeypatch.setenv("SIGNALBOX_GRACE_S", "60")
    process = serve(tmp_path, "--port", "0")
    try:
        assert process.stderr is not None
        said = await asyncio.to_thread(process.stderr.readline)
        port = int(re.fullmatch(r"signalbox listens on http://127\.0\.0\.1:(\d+); .*\n", said)[1])  # type: ignore[index]
        taken = serve(tmp_path, "--port", str(port))
        _, error = await asyncio.to_thread(taken.communicate, timeout=60)
        assert (taken.returncode, f"127.0.0.1 port {port} is unavailable" in error) == (3, True)
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            warm = {"collection": "big", "documents": [{"text": "the embedder is loaded"}]}
            assert (await client.post("/v1/documents", json=warm)).status_code == 200
            stored = {"collection": "big", "documents": [{"text": f"text {n}"} for n in range(8)]}
            # Nothing is stored before the service was told to stop, however fast or slow the machine is.
            async with await psycopg.AsyncConnection.connect(owner_url) as holding:
                await holding.execute("LOCK TABLE signalbox.document IN SHARE MODE")
                writing = asyncio.create_task(client.post("/v1/documents", json=stored))
                for _ in range(400):
                    if re.search(r'gate_at_work\{gate="writes".*\} 1', (await client.get("/metrics")).text):
                        break
                    await asyncio.sleep(0.05)
                process.send_signal(signal.SIGTERM)
            assert (await writing).json()["inserted"] == 8
        assert (await asyncio.to_thread(process.wait, 60)) == 0
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [(("--host", "no.such.host.invalid"), 2, "no.such.host.invalid"), (("--port", "99999"), 2, "--port")],
)
def test_serve_refuses_an_address_that_cannot_be(tmp_path: Path, options: tuple[str, ...], code: int, said: str):
    process = serve(tmp_path, *options)
    _, error = process.communicate(timeout=60)
    assert process.returncode == code
    assert said in error
    assert len(error.strip().splitlines()) == 1
