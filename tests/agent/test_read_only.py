"""A database that takes no writes, as a standby or one that its operator has set so: searches go on."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from agent.serve.authentication import open_authenticator
from agent.serve.cli import run
from agent.serve.http.app import create_app
from agent.service.factory import open_service
from agent.service.service import Service
from agent.settings import Settings
from retrievers.core.errors import Unavailable
from retrievers.ingest.documents import Document
from retrievers.postgres.connections.database import Database

READ_ONLY = "the database is unavailable: it is read-only"
RECORD = {"id": "b", "text": "The worker was killed."}


@contextmanager
def read_only(owner_url: str) -> Iterator[None]:
    """New sessions write nothing, and there are no others."""
    name = sql.Identifier(str(conninfo_to_dict(owner_url)["dbname"]))
    with psycopg.connect(owner_url, autocommit=True) as owner:
        owner.execute(sql.SQL("ALTER DATABASE {} SET default_transaction_read_only = on").format(name))
        owner.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        try:
            yield
        finally:
            owner.execute(sql.SQL("ALTER DATABASE {} RESET default_transaction_read_only").format(name))


@pytest.fixture
async def service(owner_url: str, service_url: str) -> AsyncIterator[Service]:
    """A service that was opened while the database is read-only, and holds a document from before."""
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4)
    async with open_service(settings) as writing:
        await writing.ingest([Document("a", "a", "Queue", "We rolled back because the queue was full.")], "notes")
    with read_only(owner_url):
        async with open_service(settings) as service:
            yield service


WRITES: list[tuple[str, str, Any]] = [
    ("POST", "/v1/documents", {"collection": "notes", "documents": [RECORD]}),
    ("POST", "/v1/documents", {"collection": "notes", "documents": [RECORD], "wait": False}),
    ("POST", "/v1/documents", {"collection": "new", "documents": [RECORD]}),
    ("PUT", "/v1/files/notes/b.txt", "The worker was killed."),
    ("DELETE", "/v1/documents/notes/a", None),
    ("DELETE", "/v1/collections/notes", None),
    ("POST", f"/v1/jobs/{'0' * 32}/retry", None),
]


async def test_a_write_is_a_503_that_says_so_and_when_to_come_again(service: Service):
    transport = httpx2.ASGITransport(create_app(service))
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
        found = await client.post("/v1/retrieve", json={"query": "queue"})
        assert found.status_code == 200
        feedback = {"trace_id": found.json()["trace_id"], "score": 3}
        for method, path, body in [*WRITES, ("POST", "/v1/feedback", feedback)]:
            content = body if isinstance(body, str) else json.dumps(body) if body is not None else None
            kind = "text/plain" if isinstance(body, str) else "application/json"
            answer = await client.request(method, path, content=content, headers={"Content-Type": kind})
            assert (answer.status_code, answer.headers.get("retry-after")) == (503, "5"), (path, answer.text)
            assert answer.json()["detail"].startswith(READ_ONLY)
        assert len((await client.post("/v1/retrieve", json={"query": "queue"})).json()["hits"]) == 1
        # The question is counted but cannot be written yet.
        for path in ("/v1/sources", "/v1/tenant"):
            assert (await client.get(path)).status_code == 200, path


async def test_questions_of_callers_with_keys_are_answered(owner_url: str, service_url: str):
    settings = Settings(database_url=owner_url, service_url=service_url, pool_size=4, auth="keys")
    async with open_service(settings) as service:
        await service.ingest([Document("a", "a", "Queue", "We rolled back because the queue was full.")], "notes")
        _, key = await service.keys.create("default")
    with read_only(owner_url):
        async with open_service(settings) as service:
            app = create_app(service, authenticate=await open_authenticator(service, "keys"))
            transport = httpx2.ASGITransport(app)
            async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
                for authorization, status in ((f"Bearer {key}", 200), (f"Bearer {key[:-1]}", 401)):
                    headers = {"Authorization": authorization}
                    answer = await client.post("/v1/retrieve", json={"query": "queue"}, headers=headers)
                    assert answer.status_code == status, answer.text
            with pytest.raises(Unavailable, match=READ_ONLY):
                await service.keys.create("default")


async def test_a_chat_goes_on_without_its_memory(service: Service):
    answer = await service.chat("Why was it rolled back?", conversation="c1")
    assert "queue was full" in answer.text
    assert "record_unavailable" in answer.degraded


def test_a_command_that_writes_ends_with_code_3_and_one_line_and_others_work(
    owner_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.txt").write_text("The worker was killed.")
    monkeypatch.setenv("SIGNALBOX_DATABASE_URL", owner_url)
    assert run(["ingest", "b.txt", "--collection", "notes"]) == 0
    capsys.readouterr()
    with read_only(owner_url):
        for command in (
            "ingest b.txt --collection notes",
            "delete --collection notes",
            "delete --collection notes --document a",
            "keys create --tenant t",
            f"jobs retry {'0' * 32}",
        ):
            assert run(command.split()) == 3
            told = capsys.readouterr().err
            assert told.startswith(f"signalbox: {READ_ONLY}"), command
            assert len(told.splitlines()) == 1, told
        for command in ("retrieve worker", "keys list", "collections"):
            assert run(command.split()) == 0, command


FAULTS = "25006 53000 53100 53200 53300 55P03 57P01 57P03 58000 58030 40P01"
MISTAKES = "22023 42P01 54000 P0001 25001"


async def test_a_fault_of_the_server_is_told_as_one_and_one_of_the_statement_is_not(database: Database):
    for state in FAULTS.split():
        with pytest.raises(Unavailable, match="the database is unavailable"):
            await raised(database, state)
    for state in MISTAKES.split():
        with pytest.raises(psycopg.Error) as caught:
            await raised(database, state)
        assert caught.value.sqlstate == state
    assert await database.fetch_autocommit("SELECT 1", {}) == [(1,)]


async def raised(database: Database, state: str) -> None:
    async with database.transaction("t") as connection:
        await connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'it is so' USING ERRCODE = '{state}'; END $$".encode())
