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

from agent.intent.warmup import warm_up
from agent.serve.authentication import Caller
from agent.serve.mcp.server import build_server, malformed_message_reason
from agent.service.service import Service
from retrievers.core.types import ALL_PRINCIPALS, Viewer

if TYPE_CHECKING:
    from mcp.shared._stream_protocols import ReadStream, WriteStream

IncomingItem = SessionMessage | Exception


async def serve_stdio(service: Service, viewer: Viewer) -> None:
    """Serve until the input ends. Meanwhile, whatever else this process prints goes to standard error.

    Args:
        viewer: decides the documents to see. Only a viewer that sees everything may state principals in a call.
    Raises:
        BadRequest: the tenant's name is invalid.
    """
    service.database.scope(viewer)
    warm_up()  # loads data in a thread; otherwise the first questions would wait for it
    caller = Caller(viewer.tenant, None, viewer.principals, trusted=viewer.principals == ALL_PRINCIPALS)
    server = build_server(service, lambda context: caller)
    try:
        async with stdio_server(cast("AsyncFile[str]", _StdinLines())) as (read, write):
            pending = _PendingRequests()
            incoming, outgoing = _Incoming(read, write, pending), _Outgoing(write, pending)
            await server.run(incoming, outgoing, server.create_initialization_options())
    except* BrokenPipeError:
        pass  # The client ended without closing our input first; there is nobody to report to.


class _StdinLines:
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

    def __init__(self, inner: "ReadStream[IncomingItem] | WriteStream[SessionMessage]") -> None:
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
        self, read: "ReadStream[IncomingItem]", write: "WriteStream[SessionMessage]", pending: _PendingRequests
    ) -> None:
        super().__init__(read)
        self._read, self._write, self._pending = read, write, pending

    async def receive(self) -> "IncomingItem":
        try:
            while isinstance(item := await self._read.receive(), ValidationError):
                if (fault := _malformed_line_error(item)) is not None:
                    await self._write.send(SessionMessage(fault))
        except EndOfStream:
            await self._pending.answered()
            raise
        match item:
            case SessionMessage(types.JSONRPCRequest(id=id)):
                self._pending.add(id)
            case SessionMessage(types.JSONRPCNotification(method="notifications/cancelled", params={"requestId": id})):
                self._pending.discard(id)
        return item

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> "IncomingItem":
        try:
            return await self.receive()
        except EndOfStream:
            raise StopAsyncIteration from None


class _Outgoing(_Stream):
    """The stream of messages to the client; notes which requests have been answered."""

    def __init__(self, write: "WriteStream[SessionMessage]", pending: _PendingRequests) -> None:
        super().__init__(write)
        self._write, self._pending = write, pending

    async def send(self, item: SessionMessage) -> None:
        await self._write.send(item)
        if isinstance(item.message, types.JSONRPCResponse | types.JSONRPCError):
            self._pending.discard(item.message.id)


def _malformed_line_error(error: ValidationError) -> types.JSONRPCError | None:
    """Return the error for a malformed line, with the request id if the line contains one; None for an empty line."""
    found = error.errors()
    no_json = found[0]["type"] == "json_invalid"
    line: Any = next((one["input"] for one in found if no_json or isinstance(one["input"], dict)), None)
    if no_json and not line.strip():
        return None
    fault = types.ErrorData(
        code=types.PARSE_ERROR if no_json else types.INVALID_REQUEST, message=malformed_message_reason(error)
    )
    return types.JSONRPCError(jsonrpc="2.0", id=_id_in(line), error=fault)


def _id_in(line: Any) -> types.RequestId | None:
    try:
        # More lenient than the SDK: json also reads half a surrogate pair, which some clients send by mistake.
        message = json.loads(line) if isinstance(line, str) else line
    except (ValueError, RecursionError):
        return None
    given = message.get("id") if isinstance(message, dict) else None
    return given if isinstance(given, str | int) and not isinstance(given, bool) else None
