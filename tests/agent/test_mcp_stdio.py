"""`signalbox mcp` as a client starts it: a process that speaks the protocol on its output and nothing else."""

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters

from agent import open_service
from agent.settings import Settings
from retrievers.ingest.documents import Document

ROOT = Path(__file__).resolve().parents[2]
COMMAND = ("-m", "agent.serve.cli", "mcp")
Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def environment(owner_url: str) -> dict[str, str]:
    """Of a process on a database with one document of the tenant acme."""
    async with open_service(Settings(database_url=owner_url)) as service:
        await service.ingest([Document("a", "a", "Penguins", "Penguins march.")], "docs", tenant="acme")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    return {**kept, "SIGNALBOX_DATABASE_URL": owner_url, "PYTHONPATH": str(ROOT)}


@pytest.fixture
async def start(environment: dict[str, str], tmp_path: Path) -> AsyncIterator[Start]:
    """Starts the command; what still runs afterwards is killed."""
    started: list[Process] = []

    async def run(*options: str, **more: str) -> Process:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *COMMAND, *options,
            stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=tmp_path, env=environment | more,
        )  # fmt: skip
        started.append(process)
        return process

    yield run
    for process in started:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def ask(process: Process, message: dict[str, Any] | bytes) -> Any:
    """The answer to a message, or to a line that is none."""
    assert process.stdin is not None
    assert process.stdout is not None
    line = message if isinstance(message, bytes) else json.dumps({"jsonrpc": "2.0", "id": 1, **message}).encode()
    process.stdin.write(line + b"\n")
    return json.loads(await asyncio.wait_for(process.stdout.readline(), 240))


def initialize(version: str) -> dict[str, Any]:
    client = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    return {"method": "initialize", "params": client}


def search(query: str) -> dict[str, Any]:
    return {"id": 2, "method": "tools/call", "params": {"name": "search_knowledge", "arguments": {"query": query}}}


async def test_the_sdks_client_starts_the_command_and_is_answered(environment: dict[str, str], tmp_path: Path) -> None:
    process = StdioServerParameters(
        command=sys.executable, args=[*COMMAND, "--tenant", "acme"], env=environment, cwd=tmp_path
    )
    async with Client(process) as client:
        answer = await client.call_tool("search_knowledge", {"query": "penguins"})
        assert [hit["title"] for hit in answer.structured_content["hits"]] == ["Penguins"]
        refused = await client.call_tool("search_knowledge", {"query": "penguins", "collection": "dcos"})
        assert refused.is_error
        assert 'there are: "docs"' in refused.model_dump_json().replace("\\", "")
        assert [one.name for one in (await client.list_resources()).resources] == ["collections", "docs"]


@pytest.mark.slow
async def test_every_line_is_answered_and_the_process_ends_with_its_input(start: Start) -> None:
    process = await start()
    opened = await ask(process, initialize("2024-11-05"))
    assert opened["result"]["protocolVersion"] == "2024-11-05"
    # The tenant is that of the settings, which has no documents.
    answer = await ask(process, search("penguins"))
    assert answer["result"]["isError"]
    assert "there is no collection yet" in answer["result"]["content"][0]["text"]

    whole = json.dumps({"jsonrpc": "2.0", **search("penguins")})
    for line, id, code in (
        (b"hello", None, -32700),
        (whole.replace("penguins", "\\ud83d").encode(), 2, -32700),
        (whole.replace('"penguins"', "[" * 400 + "]" * 400).encode(), 2, -32700),
        (b"\xff\xfe", None, -32700),
        (b"[]", None, -32600),
        (whole.replace("2.0", "1.0").encode(), 2, -32600),
        (whole.replace('{"query": "penguins"}', "[]").encode(), 2, -32602),
        (whole.replace("tools/call", "tools/drop").encode(), 2, -32601),
    ):
        answer = await ask(process, line)
        assert (answer["id"], answer["error"]["code"]) == (id, code), line
    assert process.stdin is not None
    process.stdin.close()
    out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, b"", b"")


@pytest.mark.slow
async def test_what_was_asked_is_answered_also_when_the_input_ends_at_once(start: Start) -> None:
    process = await start("--tenant", "acme")
    cancelled = {"method": "notifications/cancelled", "params": {"requestId": 99}}
    lines = [initialize("2025-11-25"), {"method": "notifications/initialized"}, cancelled]
    lines += [{**search("penguins"), "id": number} for number in range(2, 6)]
    for message in lines:
        message |= {"jsonrpc": "2.0"} | ({} if "notifications" in message["method"] else {"id": message.get("id", 1)})
    out, err = await process.communicate("".join(f"{json.dumps(message)}\n" for message in lines).encode())
    answers = {answer["id"]: answer["result"] for answer in map(json.loads, out.splitlines())}
    assert (process.returncode, err, sorted(answers)) == (0, b"", [1, 2, 3, 4, 5])
    assert "march" in answers[5]["content"][0]["text"]


@pytest.mark.slow
async def test_a_signal_ends_the_process_while_its_input_is_open(start: Start) -> None:
    process = await start()
    await ask(process, initialize("2025-11-25"))
    process.send_signal(signal.SIGTERM)
    assert await asyncio.wait_for(process.wait(), 120) == 128 + signal.SIGTERM


@pytest.mark.slow
async def test_what_keeps_it_from_serving_is_said_on_standard_error_alone(start: Start) -> None:
    tenant = await start("--tenant", "")
    out, err = await tenant.communicate()
    assert (tenant.returncode, out) == (2, b"")
    assert err == b"signalbox: a tenant is a name of 1 to 128 printable characters\n"
    nowhere = await start(SIGNALBOX_DATABASE_URL="postgresql://nobody@127.0.0.1:1/none")
    out, err = await nowhere.communicate()
    assert (nowhere.returncode, out) == (3, b"")
    assert err.startswith(b"signalbox: the database is unavailable")
    assert err.count(b"\n") == 1
