"""MCP over standard input and output, for one client that started this process."""

import asyncio
import json
import os
from contextlib import suppress
from itertools import chain
from threading import Thread
from typing import TYPE_CHECKING, Any, Self, cast

import mcp_types as types
from anyio import AsyncFile, EndOfStream
from mcp.server.stdio import stdio_server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from agent.intent.read_ahead import read_ahead
from agent.serve.identity import Caller
from agent.serve.mcp.server import build_server, unreadable
from agent.service.service import Service
from retrievers.core.types import EVERYTHING, Viewer

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream

Incoming = SessionMessage | Exception


async def serve_stdio(service: Service, viewer: Viewer) -> None:
    """Serve until the input ends. Meanwhile, whatever else this process prints goes to standard error.

    Args:
        viewer: decides the documents to see. Only a viewer that sees everything may state principals in a call.
    Raises:
        BadRequest: the tenant's name is invalid.
    """
    service.database.scope(viewer)
    read_ahead()  # loads data in a thread; otherwise the first questions would wait for it
    caller = Caller(viewer.tenant, None, viewer.principals, trusted=viewer.principals == EVERYTHING)
    server = build_server(service, lambda context: caller)
    try:
        async with stdio_server(cast("AsyncFile[str]", _Input())) as (read, write):
            asked = _PendingRequests()
            incoming, outgoing = _Incoming(read, write, asked), _Outgoing(write, asked)
            await server.run(incoming, outgoing, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # The client ended without closing our input first; there is nobody to report to.


class _Input:
    """Lines of standard input, read in a daemon thread, so that the process can exit while the thread waits.

    The SDK's own reader cannot be cancelled: the process would hang at shutdown until the client sends a line.
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


class _PendingRequests:
    """Ids of the requests without an answer yet."""

    def __init__(self) -> None:
        self._ids: set[types.RequestId] = set()
        self._none = asyncio.Event()
        self._none.set()

    def add(self, id: types.RequestId) -> None:
        self._ids.add(id)
        self._none.clear()

    def discard(self, id: types.RequestId | None) -> None:
        self._ids -= {id}
        if not self._ids:
            self._none.set()

    async def answered(self) -> None:
        """Wait until no request is unanswered."""
        await self._none.wait()


class _Stream:
    """The methods the SDK needs on both streams."""

    def __init__(self, inner: "ReadStream[Incoming] | WriteStream[SessionMessage]") -> None:
        self._inner = inner

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.aclose()


class _Incoming(_Stream):
    """The stream of the client's messages, as the SDK reads it.

    A malformed line is answered here, because the SDK drops it and the client would wait for ever. When the input ends,
    pending requests are answered first, because the SDK would cancel them.
    """

    def __init__(
        self, read: "ReadStream[Incoming]", write: "WriteStream[SessionMessage]", asked: _PendingRequests
    ) -> None:
        super().__init__(read)
        self._read, self._write, self._asked = read, write, asked

    async def receive(self) -> "Incoming":
        try:
            while isinstance(item := await self._read.receive(), ValidationError):
                if (fault := _fault(item)) is not None:
                    await self._write.send(SessionMessage(fault))
        except EndOfStream:
            await self._asked.answered()
            raise
        match item:
            case SessionMessage(types.JSONRPCRequest(id=id)):
                self._asked.add(id)
            case SessionMessage(types.JSONRPCNotification(method="notifications/cancelled", params={"requestId": id})):
                self._asked.discard(id)
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "Incoming":
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None


class _Outgoing(_Stream):
    """The stream of messages to the client; notes which requests have been answered."""

    def __init__(self, write: "WriteStream[SessionMessage]", asked: _PendingRequests) -> None:
        super().__init__(write)
        self._write, self._asked = write, asked

    async def send(self, item: SessionMessage) -> None:
        await self._write.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._asked.discard(item.message.id)


def _fault(error: ValidationError) -> types.JSONRPCError | None:
    """Return the error for a malformed line, with the request id if the line contains one; None for an empty line."""
    found = error.errors()
    no_json = found[0]["type"] == "json_invalid"
    line: Any = next((one["input"] for one in found if no_json or isinstance(one["input"], dict)), None)
    if no_json and not line.strip():
        return None
    fault = types.ErrorData(code=types.PARSE_ERROR if no_json else types.INVALID_REQUEST, message=unreadable(error))
    return types.JSONRPCError(jsonrpc="2.0", id=_id_in(line), error=fault)


def _id_in(line: Any) -> types.RequestId | None:
    try:
        # More lenient than the SDK: json also reads half a surrogate pair, which some clients send by mistake.
        message = json.loads(line) if isinstance(line, str) else line
    except (ValueError, RecursionError):
        return None
    given = message.get("id") if isinstance(message, dict) else None
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None
