"""MCP over standard input and output, for one client that started this process."""

import asyncio
import json
import os
from contextlib import suppress
from itertools import chain
from threading import Thread
from typing import Any, Self, cast

import mcp_types as types
from anyio import AsyncFile, EndOfStream
from mcp.server.stdio import stdio_server
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from agent.app import Service
from agent.serve.mcp import build_server, unreadable


async def serve_stdio(service: Service, tenant: str) -> None:
    """Serve until the input ends. Meanwhile what anything else prints goes to standard error.

    Raises:
        BadRequest: there can be no such tenant.
    """
    service.database.scope(tenant)
    server = build_server(service, lambda context: tenant)
    try:
        async with stdio_server(cast("AsyncFile[str]", _Input())) as (read, write):
            await server.run(_Answering(read, write), write, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # The client ended without closing our input first: there is nobody to tell.


class _Input:
    """The lines of standard input, read by a thread that the end of the process does not wait for.

    The SDK's own reader cannot be cancelled: told to stop, the process would hang until the client sends a line.
    """

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(maxsize=1)
        self._loop = asyncio.get_running_loop()
        Thread(target=self._read, name="standard input", daemon=True).start()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> str:
        line = await self._lines.get()
        if line is None:
            raise StopAsyncIteration
        return line

    def _read(self) -> None:
        with os.fdopen(os.dup(0), encoding="utf-8", errors="replace") as lines, suppress(RuntimeError):
            for line in chain(lines, (None,)):
                asyncio.run_coroutine_threadsafe(self._lines.put(line), self._loop).result()


class _Answering:
    """The client's messages. A line that is none is answered with an error here: the SDK drops it, unheard of."""

    def __init__(self, read: ReadStream[SessionMessage | Exception], write: WriteStream[SessionMessage]) -> None:
        self._read, self._write = read, write

    async def receive(self) -> SessionMessage | Exception:
        while isinstance(item := await self._read.receive(), ValidationError):
            fault = _fault(item)
            if fault is not None:
                await self._write.send(SessionMessage(fault))
        return item

    async def aclose(self) -> None:
        await self._read.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


def _fault(error: ValidationError) -> types.JSONRPCError | None:
    """What to tell of a line that is no message, under the id that can be read from it; None for an empty line."""
    found = error.errors()
    no_json = found[0]["type"] == "json_invalid"
    line: Any = next((one["input"] for one in found if no_json or isinstance(one["input"], dict)), None)
    if no_json and not line.strip():
        return None
    fault = types.ErrorData(code=types.PARSE_ERROR if no_json else types.INVALID_REQUEST, message=unreadable(error))
    return types.JSONRPCError(jsonrpc="2.0", id=_id_in(line), error=fault)


def _id_in(line: Any) -> types.RequestId | None:
    try:
        # More lenient than the SDK: it also reads half a surrogate pair, a mistake that some clients make.
        message = json.loads(line) if isinstance(line, str) else line
    except (ValueError, RecursionError):
        return None
    given = message.get("id") if isinstance(message, dict) else None
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None
