"""The connection between the supervisor and a worker process: each side can send messages and one kind of request."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, Self

_LONGEST_MESSAGE_BYTES = 1 << 24


class Line:
    """One end of a connection between two processes that exchange JSON messages, one per line of text.

    Args:
        answer: returns the answer to the other side's `ask`, which has no arguments.
        told: called with each message that the other side sends by `tell`.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        answer: Callable[[], Awaitable[Any]],
        told: Callable[[Any], None],
    ) -> None:
        self._reader, self._writer = reader, writer
        self._answer, self._told = answer, told
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._numbers = count()
        self._answering: set[asyncio.Task[None]] = set()

    @classmethod
    async def over(
        cls, end: socket.socket, *, answer: Callable[[], Awaitable[Any]], told: Callable[[Any], None]
    ) -> Self:
        """Create a line over one end of a socket pair, and take ownership of it."""
        reader, writer = await asyncio.open_connection(sock=end, limit=_LONGEST_MESSAGE_BYTES)
        return cls(reader, writer, answer, told)

    async def listen(self) -> None:
        """Process messages until the other end is closed or its process ends."""
        try:
            with suppress(OSError):
                while row := await self._reader.readline():
                    self._take(json.loads(row))
        finally:
            for asked in self._asked.values():
                asked.cancel()
            self._writer.close()

    def tell(self, what: Any) -> None:
        """Send a message; it is lost if the other side is gone."""
        self._send({"tell": what})

    async def ask(self, timeout_s: float) -> Any:
        """Ask the other side, and return what its `answer` returns; None if it is late or gone."""
        number = next(self._numbers)
        asked = self._asked[number] = asyncio.get_running_loop().create_future()
        try:
            self._send({"ask": number})
            done, _ = await asyncio.wait({asked}, timeout=timeout_s)
            return asked.result() if done and not asked.cancelled() else None
        finally:
            del self._asked[number]

    def _take(self, message: dict[str, Any]) -> None:
        match message:
            case {"tell": what}:
                self._told(what)
            case {"ask": number}:
                task = asyncio.create_task(self._reply(number))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)
            case {"answer": number, "value": value} if number in self._asked:
                self._asked[number].set_result(value)

    async def _reply(self, number: int) -> None:
        self._send({"answer": number, "value": await self._answer()})

    def _send(self, message: dict[str, Any]) -> None:
        self._writer.write(json.dumps(message).encode() + b"\n")
