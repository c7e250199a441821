"""The connection between the supervisor and a server process: each side can send messages and one kind of request."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, Self

_LONGEST_MESSAGE_BYTES = 1 << 24


class ProcessChannel:
    """One end of a connection between two processes that exchange JSON messages, one per line of text.

    Args:
        on_request: returns the reply to the other side's `request_reply`, which has no arguments.
        on_message: called with each message that the other side sends by `send_message`.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        on_request: Callable[[], Awaitable[Any]],
        on_message: Callable[[Any], None],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._on_request, self._on_message = on_request, on_message
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count()
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def connect(
        cls, end: socket.socket, *, on_request: Callable[[], Awaitable[Any]], on_message: Callable[[Any], None]
    ) -> Self:
        """Create a channel over one end of a socket pair, and take ownership of it."""
        reader, writer = await asyncio.open_connection(sock=end, limit=_LONGEST_MESSAGE_BYTES)
        return cls(reader, writer, on_request, on_message)

    async def listen(self) -> None:
        """Process messages until the other end is closed or its process ends."""
        try:
            with suppress(OSError):
                while row := await self._reader.readline():
                    self._dispatch(json.loads(row))
        finally:
            for reply in self._pending.values():
                reply.cancel()
            self._writer.close()

    def send_message(self, what: Any) -> None:
        """Send a message; it is lost if the other side is gone."""
        self._send({"tell": what})

    async def request_reply(self, timeout_s: float) -> Any:
        """Ask the other side, and return what its `on_request` returns; None if it is late or gone."""
        number = next(self._numbers)
        reply = self._pending[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"ask": number})
            done, _ = await asyncio.wait({reply}, timeout=timeout_s)
            return reply.result() if done and not reply.cancelled() else None
        finally:
            del self._pending[number]

    def _dispatch(self, message: dict[str, Any]) -> None:
        match message:
            case {"tell": what}:
                self._on_message(what)
            case {"ask": number}:
                task = asyncio.create_task(self._reply(number))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case {"answer": number, "value": value} if number in self._pending:
                self._pending[number].set_result(value)

    async def _reply(self, number: int) -> None:
        self._send({"answer": number, "value": await self._on_request()})

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
