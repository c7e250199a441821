"""Serve the HTTP application over a real socket, for tests."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from fastapi import FastAPI

from agent.serve.process.listening_socket import open_listener
from agent.serve.process.server import Server


class _Unsignalled(Server):
    """Leaves the signal handlers to the test runner."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def run_server(app: FastAPI) -> AsyncIterator[int]:
    """Serve an application on a free local port until the end of the block; yield the port."""
    with open_listener("127.0.0.1", 0) as listener:
        server = _Unsignalled(app)
        task = asyncio.create_task(server.serve([listener]))
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            await task
