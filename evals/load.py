"""Load test of a running `signalbox serve`: questions over keep-alive HTTP connections, from a separate process.

In a closed loop, every connection sends its next question when it has its answer. In an open loop, questions are sent
at a fixed rate without waiting for earlier answers, and each is timed from when it was due. So a server that falls
behind gets as many questions as before, as it would from real users.
"""

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from evals.timing import summary
from retrievers.core.errors import BadRequest, Unavailable

_MOST_CONNECTIONS = 1000
_TIMEOUT_S = 30.0
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The service under test.

    Args:
        url: base URL of the service ("http://127.0.0.1:8000").
        key: an API key; None sends none.
    """

    url: str
    key: str | None = None

    def address(self) -> tuple[str, int]:
        """Return host and port.

        Raises:
            BadRequest: the URL is not plain HTTP.
        """
        try:
            parts = urlsplit(self.url)
            port = parts.port or 80
        except ValueError:
            parts, port = urlsplit(""), 0
        if parts.scheme != "http" or not parts.hostname:
            raise BadRequest("give the address of a running service, such as http://127.0.0.1:8000", where="--url")
        return parts.hostname, port

    def request(self, body: dict[str, Any]) -> bytes:
        """Return the bytes of a POST /v1/retrieve request."""
        host, port = self.address()
        content = json.dumps(body).encode()
        lines = [
            "POST /v1/retrieve HTTP/1.1",
            f"Host: {host}:{port}",
            "Content-Type: application/json",
            f"Content-Length: {len(content)}",
            *([f"Authorization: Bearer {self.key}"] if self.key else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode() + content


@dataclass(slots=True)
class LoadTally:
    """Results of the questions.

    Attributes:
        answered_ms, refused_ms: times of the answers with status 200 and 503.
        errors: number of other results, by status or connection error.
    """

    answered_ms: list[float] = field(default_factory=list)
    refused_ms: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)

    def report(self, seconds: float) -> dict[str, Any]:
        """Return counts, answers per second and times in milliseconds."""
        return {
            "seconds": round(seconds, 2),
            "answered": len(self.answered_ms),
            "answered_per_s": round(len(self.answered_ms) / seconds, 1),
            "refused": len(self.refused_ms),
            "errors": dict(self.errors),
            "latency_ms": summary(self.answered_ms) if self.answered_ms else None,
            "refused_ms": summary(self.refused_ms) if self.refused_ms else None,
        }


def read_key(path: Path | None) -> str | None:
    """Return the API key in a file; None without a file.

    Raises:
        BadRequest: the file cannot be read or contains no key.
    """
    if path is None:
        return None
    try:
        key = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadRequest(f"{path} cannot be read: {error}", where="--key-file") from None
    if not key or not key.isprintable():
        raise BadRequest(f"{path} contains no key: write the key on a line of its own", where="--key-file")
    return key


def described(report: dict[str, Any]) -> list[tuple[str, str]]:
    """Return a report as rows of text."""
    rows = [
        ("answered", f"{report['answered']:,} in {report['seconds']:g} s, {report['answered_per_s']:g} per second"),
        ("refused (503)", f"{report['refused']:,}"),
        ("errors", ", ".join(f"{count:,} x {what}" for what, count in report["errors"].items()) or "none"),
    ]
    for what, times in (("answered", report["latency_ms"]), ("refused", report["refused_ms"])):
        if times is not None:
            figures = ", ".join(f"{name} {times[name]:.1f}" for name in ("p50", "p95", "p99"))
            rows.append((f"time until {what} (ms)", figures))
    return rows


class _Connection(asyncio.Protocol):
    """A keep-alive connection, reopened after an error.

    It is a protocol, which takes less processor time than streams, because the client shares the processor with the
    server.
    """

    def __init__(self, host: str, port: int) -> None:
        self._host, self._port = host, port
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[int] | None = None
        self._received = b""

    async def ask(self, request: bytes) -> int:
        """Send a request, read the whole answer and return its status.

        Raises:
            OSError: the connection fails or ends before the answer.
            ValueError: the answer has no length.
        """
        loop = asyncio.get_running_loop()
        if self._transport is None:
            self._received = b""
            self._transport, _ = await loop.create_connection(lambda: self, self._host, self._port)
        self._answer = loop.create_future()
        self._transport.write(request)
        return await self._answer

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        self._received += data
        head, blank, content = self._received.partition(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if not blank or (length and len(content) < int(length[1])):
            return
        self._received = b""
        if self._answer is None or self._answer.done():
            return
        if not length or not head.startswith(b"HTTP/1.1 "):
            self._answer.set_exception(ValueError("the response has no length"))
            return
        self._answer.set_result(int(head[9:12]))
        if _CLOSES.search(head):
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._transport = None
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the connection was closed"))

    def close(self) -> None:
        """Close the socket."""
        if self._transport is not None:
            self._transport.abort()  # connection_lost runs before another connection is made
        self._transport = None


async def closed_loop(
    target: LoadTarget, questions: Sequence[dict[str, Any]], *, connections: int, seconds: float
) -> dict[str, Any]:
    """Send questions without a pause over each of `connections` connections; return `LoadTally.report`.

    Raises:
        Unavailable: no service listens there.
    """
    await _reachable(target)
    host, port = target.address()
    requests = cycle([target.request(one) for one in questions])
    tally, started = LoadTally(), time.monotonic()

    async def asker() -> None:
        connection = _Connection(host, port)
        while time.monotonic() < started + seconds:
            await _timed(connection, next(requests), time.monotonic(), tally)
        connection.close()

    await asyncio.gather(*(asker() for _ in range(connections)))
    return tally.report(time.monotonic() - started)


async def open_loop(
    target: LoadTarget, questions: Sequence[dict[str, Any]], *, rate: float, seconds: float
) -> dict[str, Any]:
    """Send `rate` questions per second, evenly spaced; return `LoadTally.report`. Raises as `closed_loop`."""
    await _reachable(target)
    host, port = target.address()
    requests = cycle([target.request(one) for one in questions])
    tally, started = LoadTally(), time.monotonic()
    free: list[_Connection] = []
    under_way: set[asyncio.Task[None]] = set()

    async def ask(due: float) -> None:
        connection = free.pop() if free else _Connection(host, port)
        await _timed(connection, next(requests), due, tally)
        free.append(connection)

    for number in range(int(rate * seconds)):
        due = started + number / rate
        if (wait_s := due - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        if len(under_way) >= _MOST_CONNECTIONS:
            tally.errors["no free connection"] += 1
            continue
        task = asyncio.create_task(ask(due))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    elapsed_s = time.monotonic() - started
    for connection in free:
        connection.close()
    return tally.report(elapsed_s)


async def _timed(connection: _Connection, request: bytes, due: float, tally: LoadTally) -> None:
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            status = await connection.ask(request)
    except (OSError, TimeoutError, ValueError) as error:
        tally.errors[type(error).__name__] += 1
        connection.close()
        return
    elapsed_ms = (time.monotonic() - due) * 1000
    if status == 200:
        tally.answered_ms.append(elapsed_ms)
    elif status == 503:
        tally.refused_ms.append(elapsed_ms)
    else:
        tally.errors[str(status)] += 1


async def _reachable(target: LoadTarget) -> None:
    host, port = target.address()
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError as error:
        reason = f"{error.strerror or type(error).__name__}; start it with `signalbox serve`"
        raise Unavailable(f"the service at {target.url}", reason) from None
    writer.close()
