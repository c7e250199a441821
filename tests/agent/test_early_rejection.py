"""Requests that there is no room for, refused before they are looked into, over real sockets."""

import asyncio
import json
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI

from agent.observe import logs
from agent.serve.authentication import Caller, Unauthenticated
from agent.serve.http.app import create_app
from agent.serve.http.middleware.admission import Gate
from agent.serve.http.middleware.queue_limit import TenantQueueLimit
from agent.serve.http.middleware.request_checks import is_safe_request_id
from agent.serve.process import server
from agent.serve.process.testing import run_server
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from retrievers.ingest.documents import Document

QUESTION = {"query": "worker", "collection": "notes"}
UNUSUAL: dict[str, dict[str, bytes]] = {
    "two lengths": {"headers": b"Content-Length: 5\r\n"},
    "chunks": {"headers": b"Transfer-Encoding: chunked\r\n"},
    "expects": {"headers": b"Expect: 100-continue\r\n"},
    "an upgrade": {"headers": b"Upgrade: websocket\r\n"},
    "two callers": {"headers": b"Authorization: Bearer globex\r\n"},
    "to be switched": {"headers": b"Connection: upgrade\r\n"},
    "a folded line": {"headers": b"X: y\r\n z\r\n"},
    "no header": {"headers": b"X\r\n"},
    "a space before the colon": {"headers": b"Content-Length : 5\r\n"},
    "a bare line feed": {"headers": b"X: y\nContent-Length: 5\r\n"},
    "a bare carriage return": {"headers": b"X: y\rZ: 5\r\n"},
    "more than its length": {"body": b"{}", "length": b"1"},
    "less than its length": {"body": b"{}", "length": b"3"},
    "a length in words": {"length": b"+2"},
    "HEAD": {"line": b"HEAD /v1/collections HTTP/1.1"},
    "HTTP/1.0": {"line": b"GET /v1/collections HTTP/1.0"},
    "a whole address": {"line": b"GET http://localhost/v1/collections HTTP/1.1"},
    "an unknown caller": {"caller": b"nobody"},
    "an open path": {"line": b"GET /healthz HTTP/1.1"},
    "one of the console's": {"line": b"GET /console/main.js HTTP/1.1"},
    "another gate": {"line": b"DELETE /v1/documents/notes/b HTTP/1.1"},
    "no host": {"host": b""},
    "a blank in a name": {"headers": b"Content Length: 5\r\n"},
    "a name with a control character": {"headers": b"Content-Length\0: 5\r\n"},
    "no name": {"headers": b": 5\r\n"},
    "a value with a NUL": {"headers": b"X: y\0z\r\n"},
}


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    async with open_service(Settings(database_url=owner_url, service_url=service_url, pool_size=2)) as service:
        await service.ingest([Document("b", "b", "b", "The ingest worker was killed.")], "notes")
        yield service


@pytest.fixture
def app(service: Service) -> FastAPI:
    app = create_app(service, authenticate=by_key)
    app.state.gates.searches = Gate(1, 1)
    return app


async def by_key(authorization: str | None) -> Caller:
    tenant = (authorization or "").removeprefix("Bearer ")
    if tenant not in ("default", "globex"):
        raise Unauthenticated("the key is unknown")
    return Caller(tenant, tenant)


@asynccontextmanager
async def client_of(port: int, tenant: str = "default") -> AsyncIterator[httpx2.AsyncClient]:
    """A client that has been here before."""
    headers = {"Authorization": f"Bearer {tenant}"}
    async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", headers=headers) as client:
        await client.get("/v1/collections")
        yield client


@asynccontextmanager
async def full(app: FastAPI, tenant: str = "default", *, waiting: int = 1) -> AsyncIterator[None]:
    """One of the tenant at work, and so many of it in the queue."""
    gate: Gate = app.state.gates.searches

    async def wait() -> None:
        async with gate.admit(tenant, 60):
            pass

    async with gate.admit(tenant, 60):
        queue = [asyncio.create_task(wait()) for _ in range(waiting)]
        await asyncio.sleep(0)  # until they have come
        yield
    await asyncio.gather(*queue, return_exceptions=True)


def early(app: FastAPI, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each request, in turn, whether it was refused early."""
    seen, rejection = [], app.state.early_rejection.rejection

    def recorded(data: bytes, headers: Any) -> tuple[bytes, bool] | None:
        answer: tuple[bytes, bool] | None = rejection(data, headers)
        seen.append(answer is not None)
        return answer

    monkeypatch.setattr(app.state.early_rejection, "rejection", recorded)
    return seen


@pytest.mark.parametrize("path", ["/v1/retrieve", "/v1/rerank", "/retrieval", "/v1/vector_stores/notes/search"])
async def test_who_is_refused_early_is_told_what_others_are_told(
    app: FastAPI, monkeypatch: pytest.MonkeyPatch, path: str
):
    async with run_server(app) as port, client_of(port) as client:
        seen = early(app, monkeypatch)
        async with full(app):
            quick = await client.post(path, json=QUESTION, headers={"X-Request-ID": "mine"})
            # Written otherwise than nearly all clients do, it goes the long way.
            slow = await client.post(path.replace("r", "%72"), json=QUESTION, headers={"X-Request-ID": "mine"})
        assert seen == [True, False]
        assert quick.status_code == slow.status_code == 503
        assert quick.json() == slow.json()
        without_date = [{**dict(one.headers), "date": ""} for one in (quick, slow)]
        assert without_date[0] == without_date[1]
        assert int(quick.headers["retry-after"]) >= 1
        assert (await client.post("/v1/retrieve", json=QUESTION)).status_code == 200


async def test_a_connection_goes_on_after_what_was_refused_on_it(app: FastAPI, monkeypatch: pytest.MonkeyPatch):
    async with run_server(app) as port, client_of(port):
        seen = early(app, monkeypatch)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for room, status in ((False, b"503"), (True, b"200"), (False, b"503")):
            if room:
                writer.write(request())
                answer = await answered(reader)
            else:
                async with full(app):
                    writer.write(request())
                    answer = await answered(reader)
            assert answer.startswith(b"HTTP/1.1 " + status)
        assert seen == [True, False, True]
        writer.close()


@pytest.mark.slow
async def test_who_reads_no_answers_is_sent_no_more_of_them(app: FastAPI, monkeypatch: pytest.MonkeyPatch):
    async with run_server(app) as port, client_of(port), AsyncExitStack() as stack:
        seen = early(app, monkeypatch)
        unread = stack.enter_context(socket.socket())
        unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        unread.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(unread, ("127.0.0.1", port))
        async with full(app):
            for count in range(1, 6000):
                await loop.sock_sendall(unread, request())
                for _ in range(200):
                    await asyncio.sleep(0 if len(seen) == count else 0.001)
                    if len(seen) == count:
                        break
                else:
                    break
            assert 0 < len(seen) < 5999


async def test_who_wants_no_more_is_hung_up_on_after_the_refusal(app: FastAPI, monkeypatch: pytest.MonkeyPatch):
    async with run_server(app) as port, client_of(port), full(app):
        seen = early(app, monkeypatch)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request(headers=b"Connection: close\r\n"))
        async with asyncio.timeout(60):
            answer = await reader.read()
        writer.close()
    assert seen == [True]
    assert answer.startswith(b"HTTP/1.1 503")
    assert answer.count(b"connection: close") == 1


async def test_who_sends_half_a_head_is_not_waited_for(app: FastAPI, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server, "_HEAD_WITHIN_S", 1.0)
    async with run_server(app) as port, client_of(port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request())
        assert (await answered(reader)).startswith(b"HTTP/1.1 200")
        writer.write(request()[:40])
        async with asyncio.timeout(60):
            assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_what_is_unusual_is_left_to_the_parser(app: FastAPI):
    async with run_server(app) as port, client_of(port), full(app):
        refuse = app.state.early_rejection.rejection
        assert refuse(request(), []) is not None
        assert [what for what, sent in UNUSUAL.items() if refuse(request(**sent), []) is not None] == []


async def test_the_caller_with_the_shorter_line_is_let_in(app: FastAPI):
    app.state.gates.searches = Gate(1, 2)
    async with run_server(app) as port, client_of(port), client_of(port, "globex"), full(app, waiting=2):
        assert app.state.early_rejection.rejection(request(), []) is not None
        assert app.state.early_rejection.rejection(request(caller=b"globex"), []) is None


async def test_who_presses_is_refused_early_while_others_find_room(app: FastAPI):
    app.state.gates.searches = Gate(1, 8, TenantQueueLimit(1, 8, lambda: 0.0))
    async with run_server(app) as port, client_of(port) as client, client_of(port, "globex"), full(app):
        refuse = app.state.early_rejection.rejection
        assert refuse(request(), []) is None
        for _ in range(20):
            app.state.gates.searches.record_rejection("default")
        # Neither is the queue full, nor is it the gate that answers.
        assert (await client.post("/v1/retrieve", json=QUESTION)).status_code == 503
        assert refuse(request(), []) is not None
        assert refuse(request(caller=b"globex"), []) is None


async def test_early_refusals_press(app: FastAPI):
    queue_limit = TenantQueueLimit(1, 1, lambda: 0.0)
    app.state.gates.searches = Gate(1, 1, queue_limit)
    async with run_server(app) as port, client_of(port), full(app):
        assert not queue_limit.is_active
        for _ in range(10):
            assert app.state.early_rejection.rejection(request(), []) is not None
        assert queue_limit.is_active


async def test_nothing_is_refused_while_there_is_room_or_the_service_stops(app: FastAPI):
    async with run_server(app) as port, client_of(port):
        refuse = app.state.early_rejection.rejection
        async with full(app, waiting=0):
            assert refuse(request(), []) is None
        async with full(app):
            assert refuse(request(), []) is not None
            app.state.gates.close()
            assert refuse(request(), []) is None


async def test_refusals_are_counted_one_by_one_and_logged_together(app: FastAPI, caplog: pytest.LogCaptureFixture):
    of: list[logs.LogContext | None] = []

    def is_logged(record: logging.LogRecord) -> bool:
        of.append(logs.current_log_context())
        return True

    with caplog.at_level(logging.WARNING, "signalbox.http"), caplog.filtering(is_logged):  # type: ignore[arg-type]
        async with run_server(app) as port, client_of(port) as client:
            # A large body: what comes after it on the connection comes in the context of its request.
            await client.post("/v1/retrieve", content=b" " * 1_000_000)
            async with full(app):
                answers = [await client.post("/v1/retrieve", json=QUESTION) for _ in range(3)]
            figures = (await client.get("/metrics")).text
            async with asyncio.timeout(60):
                while sum(one.fields["requests"] for one in caplog.records) < 3:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
    assert 'signalbox_http_requests_total{method="POST",route="/v1/retrieve",status="503"} 3.0' in figures
    ids = [json.loads(answer.text)["request_id"] for answer in answers]
    assert len(set(ids)) == 3
    assert ids == [answer.headers["x-request-id"] for answer in answers]
    assert all(map(is_safe_request_id, ids))
    assert {one.message for one in caplog.records} == {"too many requests at once: rejected before parsing"}
    # One line, or on a busy machine one line a second.
    assert sum(one.fields["requests"] for one in caplog.records) == 3
    assert set(of) == {None}


def request(
    *,
    line: bytes = b"POST /v1/retrieve HTTP/1.1",
    host: bytes = b"Host: localhost\r\n",
    caller: bytes = b"default",
    headers: bytes = b"",
    body: bytes = json.dumps(QUESTION).encode(),
    length: bytes | None = None,
) -> bytes:
    """A request as it is sent."""
    if not line.startswith(b"POST"):
        body = b""
    length = b"%d" % len(body) if length is None else length
    host += b"Content-Type: application/json\r\n"
    known = b"%sAuthorization: Bearer %s\r\nContent-Length: %s\r\n" % (host, caller, length)
    return b"%s\r\n%s%s\r\n%s" % (line, known, headers, body)


async def answered(reader: asyncio.StreamReader) -> bytes:
    """One answer, whole."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.partition(b":")[2]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    return head + await reader.readexactly(length)
