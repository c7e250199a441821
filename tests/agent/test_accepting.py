"""Accepting in the place of asyncio's own: how many connections a process says it has."""

import asyncio
import tempfile
from contextlib import nullcontext
from typing import Any
from unittest.mock import AsyncMock

import pytest
from fastapi import FastAPI

from agent.serve.http.middleware.admission import Gates
from agent.serve.process.balanced_server import BalancedServer
from agent.serve.process.connection_counts import ConnectionCounts
from agent.serve.process.listening_socket import open_listener


async def test_an_accepted_connection_that_cannot_be_handled_is_closed_and_not_counted(monkeypatch: pytest.MonkeyPatch):
    app = FastAPI()
    app.state.gates, app.state.grace_s, app.state.stop_jobs = Gates(has_model=False), 2.0, AsyncMock()
    monkeypatch.setattr(BalancedServer, "capture_signals", lambda self: nullcontext())

    async def fail(*given: Any) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(asyncio.get_running_loop(), "connect_accepted_socket", fail)
    with tempfile.TemporaryFile() as file, open_listener("127.0.0.1", 0) as listener:
        counts = ConnectionCounts.create(file.fileno(), 2)
        counts.set(2, 0)
        started = asyncio.Event()
        server = BalancedServer(app, counts, 1, started.set)
        serving = asyncio.create_task(server.serve([listener]))
        await started.wait()
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        assert counts.above_minimum(1) == 0
        server.should_exit = True
        await serving
