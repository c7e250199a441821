"""What the doctor says of the HTTP service: its port, its callers' keys, its log lines."""

import asyncio
import importlib.util
import socket
from collections.abc import Iterator

import pytest

from agent.serve.cli.doctor import server_checks
from agent.serve.http.app import create_app
from agent.serve.process.testing import run_server
from agent.service.factory import open_service
from agent.settings import Settings
from retrievers.core.optional_dependencies import install_command
from retrievers.postgres.accounts.api_keys import ApiKeyStore
from retrievers.postgres.connections.database import Database


@pytest.fixture
def taken() -> Iterator[int]:
    """A port where something listens that never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_a_free_port_is_free():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        number = listener.getsockname()[1]
    check = server_checks.check_port(port=number)
    assert (check.ok, check.found, check.mend) == (True, f"127.0.0.1:{number} is free", "")


def test_a_port_that_something_else_has_comes_with_another_to_choose(taken: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(server_checks, "_TIMEOUT_S", 0.1)
    check = server_checks.check_port(port=taken)
    assert check.found.startswith(f"127.0.0.1:{taken} is taken: ")
    assert "--port N" in check.mend


async def test_a_port_where_the_service_runs_already_is_fine(owner_url: str, service_url: str):
    settings = Settings(database_url=owner_url, service_url=service_url)
    async with open_service(settings) as service, run_server(create_app(service)) as number:
        check = await asyncio.to_thread(server_checks.check_port, port=number)
    assert (check.found, check.mend) == (f"a service answers at 127.0.0.1:{number}", "")


async def test_callers_who_need_a_key_and_have_none_are_told_how_to_make_one(owner_url: str, service_url: str):
    settings = Settings(database_url=owner_url, service_url=service_url, auth="keys")
    check = await server_checks.check_access(settings)
    assert (check.ok, check.found) == (False, "AUTH=keys: every caller needs one; 0 keys in use")
    assert "signalbox keys create" in check.mend
    unset = await server_checks.check_access(settings.model_copy(update={"auth": None}))
    assert (unset.ok, "signalbox keys create" in unset.mend) == (True, True)

    async with Database(owner_url, service_url, size=1) as database:
        gone, _ = await ApiKeyStore(database).create("acme", "old")
        await ApiKeyStore(database).create("acme", "new")
        await ApiKeyStore(database).revoke(gone.id)
    check = await server_checks.check_access(settings)
    assert (check.ok, check.found, check.mend) == (True, "AUTH=keys: every caller needs one; 1 key in use", "")
    off = await server_checks.check_access(settings.model_copy(update={"auth": "off"}))
    assert (off.ok, off.found) == (
        True,
        "AUTH=off: every program on this machine may call without a key; other machines may not",
    )


async def test_a_database_that_is_down_leaves_the_keys_unknown():
    check = await server_checks.check_access(Settings(database_url="postgresql://127.0.0.1:9/x", auth="keys"))
    assert (check.ok, check.mend) == (False, "see the check of the database above")


def test_the_form_of_log_lines_is_said_and_what_spans_lack(monkeypatch: pytest.MonkeyPatch):
    check = server_checks.check_logs(Settings(log_format="json", log_level="warning"))
    assert (check.ok, check.found) == (True, "json lines to stderr, from level warning; no spans")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://user:pass@collector:4318")
    check = server_checks.check_logs(Settings())
    assert check.ok
    assert "collector" not in check.found
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check = server_checks.check_logs(Settings())
    assert (check.ok, check.mend) == (False, install_command("otel"))
