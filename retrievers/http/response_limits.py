"""Limit the size of HTTP answers while they are read: bytes on the wire and after decompression, values, nesting.

`limit_client` works with every asynchronous client of httpx or httpx2, so it also limits an SDK to which such a client
is given. Parsing JSON blocks the event loop even in a thread. The time depends on the number of values more than on the
number of bytes, so `parse_json` counts the values first.
"""

import asyncio
import json
import math
import time
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any, TypeVar

from retrievers.core.json_limits import JsonLimits, json_refusal, whole_number
from retrievers.core.timeouts import keep_task, run_in_own_task

MOST_LEVELS = 50
"""Maximum nesting of lists and objects."""
MOST_VALUES = JsonLimits(values=50_000, containers=25_000)
"""Limits of an answer that is parsed in one call. They keep the parsing under 30 ms."""
_LARGE_BYTES = 64 << 10
"""Larger data is handled in a thread."""
_MOST_ERROR_BYTES = 16 << 10
_PARTS_PER_TURN = 8
_PIECE_BYTES = 64 << 10
_EVENT_BYTES = 1 << 10
"""Maximum piece of an event stream that is passed on at once, in bytes: few events, so that other tasks soon run."""
_MOST_HEAD_BYTES = 32 << 10
"""Maximum size of status line and headers, including all interim answers (100 Continue) before them."""
_HEAD_PIECE_BYTES = 8 << 10
"""Maximum piece of a head read at once. The library parses all interim answers in it in one go, 40 µs each."""
_LATER_S = 5.0
_CONTAINERS = (dict, list)
_Value = TypeVar("_Value")
_Read = Callable[[int, float | None], Awaitable[bytes]]
_MARKS_OF_EVENTS = {
    "text/event-stream": b"\n",
    "application/x-ndjson": b"\n",
    "application/vnd.amazon.eventstream": b":message-type",
}
"""Bytes that every event of a stream contains, by content type. Ollama sends lines of JSON, Bedrock binary frames."""


class BadResponse(Exception):
    """An answer exceeds a limit or cannot be decompressed. `reason` names the limit."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ResponseLimits:
    """Limits of one answer.

    Attributes:
        bytes: maximum size, both before and after decompression.
        values: maximum number of JSON values, estimated from punctuation. For an event stream: in each event.
    """

    bytes: int = 4 << 20
    values: float = 200_000


DEFAULT_RESPONSE_LIMITS = ResponseLimits()
_limits: ContextVar[ResponseLimits] = ContextVar("limits", default=DEFAULT_RESPONSE_LIMITS)
_head_left: ContextVar[int | None] = ContextVar("head_left", default=None)
"""How many more bytes of the head (status line and headers) may be read; None while no head is being read."""
_answers: ContextVar[list[Any] | None] = ContextVar("answers", default=None)
_ends_at: ContextVar[float] = ContextVar("ends_at", default=math.inf)


@contextmanager
def use_limits(bytes: int, values: float) -> Iterator[None]:
    """Set other limits than the usual ones for answers to requests sent inside the block. See `ResponseLimits`."""
    token = _limits.set(ResponseLimits(bytes, values))
    try:
        yield
    finally:
        _limits.reset(token)


@contextmanager
def collect_answers(answers: list[Any]) -> Iterator[None]:
    """Append the httpx response of each request that a limited client sends inside the block.

    It is meant for an SDK that keeps the response of a stream to itself, so that its user could not close it.
    """
    token = _answers.set(answers)
    try:
        yield
    finally:
        _answers.reset(token)


@contextmanager
def deadline_within(timeout_s: float) -> Iterator[None]:
    """Set a deadline that `remaining_s` reads inside the block.

    It is meant for requests that an SDK sends from threads, which cannot be cancelled.
    """
    token = _ends_at.set(time.monotonic() + timeout_s)
    try:
        yield
    finally:
        _ends_at.reset(token)


def remaining_s() -> float:
    """Return the seconds to the deadline that `deadline_within` set, negative after it; infinity without a deadline."""
    return _ends_at.get() - time.monotonic()


def limit_client(client: Any) -> None:
    """Limit every answer that an asynchronous client of httpx or httpx2 reads.

    Requests accept only gzip or no compression. An answer that exceeds a limit raises `BadResponse` while it is read,
    and the connection is closed. The body of an error is cut at 16 KiB.

    Requests are sent and answers read in tasks of their own, which are cancelled only once. The timeouts of the client
    end later than those of its user, because both at once would interrupt the closing of the connection, too.
    """
    if _limit_answer not in client.event_hooks["response"]:
        client.send = _in_own_task(client.send)
        client.event_hooks["request"].append(_prepare)
        client.event_hooks["response"].append(_limit_answer)


async def _prepare(request: Any) -> None:
    request.headers["Accept-Encoding"] = "gzip"
    timeouts = request.extensions.get("timeout", {})
    later = {name: timeout_s and timeout_s + _LATER_S for name, timeout_s in timeouts.items()}
    request.extensions = {**request.extensions, "timeout": later, **HEAD_LIMIT}


def _in_own_task(send: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    async def sent(*args: Any, **kwargs: Any) -> Any:
        task = asyncio.ensure_future(send(*args, **kwargs))
        try:
            return await run_in_own_task(task)
        except asyncio.CancelledError:
            if task.done() and not task.cancelled() and task.exception() is None:
                # The answer and the cancellation came at the same time.
                keep_task(asyncio.ensure_future(task.result().aclose()))
            raise

    return sent


async def _read_parts(stream: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    """Yield the parts of a body, each read in a task of its own."""
    parts = aiter(stream)
    while (part := await run_in_own_task(anext(parts, None))) is not None:
        yield part


async def _traced(event: str, info: Mapping[str, Any]) -> None:
    """Limit the size of status line and headers. httpcore and httpcore2 call this for every event of a request."""
    what, _, state = event.rpartition(".")
    if what.endswith(".receive_response_headers"):
        _head_left.set(_MOST_HEAD_BYTES if state == "started" else None)
    elif what.endswith((".connect_tcp", ".start_tls")) and state == "complete":
        stream = info["return_value"]
        stream.read = _bounded(stream.read)


def _bounded(read: _Read) -> _Read:
    """Return `read` of a connection, limited to what the answer that arrives may take on the wire."""
    most_bytes, arrived = _limits.get().bytes, 0

    async def read_bounded(most: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 (the library's name)
        nonlocal most_bytes, arrived
        left = _head_left.get()
        if left is None:
            if arrived > wire_bytes(most_bytes):
                raise too_long_error(most_bytes)
            data = await read(most, timeout)
            arrived += len(data)
            return data
        # Read here, because the body may be read in a task for which other limits are set.
        most_bytes, arrived = _limits.get().bytes, 0
        if left <= 0:
            raise BadResponse(f"the head of its answer is longer than {_MOST_HEAD_BYTES >> 10} KiB")
        data = await read(min(most, _HEAD_PIECE_BYTES), timeout)
        _head_left.set(left - len(data))
        return data

    return read_bounded


HEAD_LIMIT: Mapping[str, Any] = {"trace": _traced}
"""Request extensions, for httpcore, httpx and their successors, that limit the head of the answer."""


async def _limit_answer(response: Any) -> None:
    # openai 2 and litellm use httpx, openai 3 and signalbox use httpx2. Each accepts only streams of its own class.
    library = type(response).__module__.partition(".")[0]
    response.stream = _body_class(library)(response)
    if (answers := _answers.get()) is not None:
        answers.append(response)


@cache
def _body_class(library: str) -> type["_BoundedBody"]:
    return type("Body", (_BoundedBody, import_module(library).AsyncByteStream), {})


class BodyReader:
    """Decompresses the body of an answer and checks its limits, while its bytes arrive.

    Args:
        packed: the body is compressed by gzip.
        event: bytes that each event contains, if the body is an event stream; else b"".
        of: name of the body in error messages.
    Attributes:
        size: number of bytes so far, after decompression.
    """

    def __init__(self, limits: ResponseLimits, *, packed: bool, event: bytes = b"", of: str = "its answer") -> None:
        self._limits, self._event, self._of = limits, event, of
        self._unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16) if packed else None
        self._most_at_once = _EVENT_BYTES if event else _PIECE_BYTES
        self._received = 0
        self._left = limits.values
        self.size = 0

    @property
    def is_whole(self) -> bool:
        """Whether a compressed body has arrived to its end; always True for a body that is not compressed."""
        return self._unpacker is None or self._unpacker.eof

    def pieces(self, part: bytes) -> Iterator[bytes]:
        """Decompress the next bytes of the body, and yield the result in non-empty pieces of limited size.

        Raises:
            BadAnswer: the body exceeds a limit or cannot be decompressed.
        """
        self._received += len(part)
        self._check_size()
        for piece in self._unpacked(part):
            self.size += len(piece)
            self._check_size()
            self._left -= _values_in(piece)
            if self._left < 0:
                raise BadResponse(f"{self._of} holds more than {self._limits.values:,} values")
            if self._event and self._event in piece:
                self._left = self._limits.values - _values_in(piece[piece.rindex(self._event) :])
            for start in range(0, len(piece), self._most_at_once):
                yield piece[start : start + self._most_at_once]

    async def read(self, parts: AsyncIterable[bytes]) -> AsyncIterator[bytes]:
        """Yield the decompressed pieces of a body whose bytes arrive as `parts`. Raises like `pieces`."""
        number = 0
        # Reading parts that have already arrived never waits. Millions of them would stop all other tasks.
        async for part in parts:
            number += 1  # a part may hold no piece
            if number % _PARTS_PER_TURN == 0:
                await asyncio.sleep(0)
            for piece in self.pieces(part):
                yield piece
                number += 1
                if self._event or number % _PARTS_PER_TURN == 0:
                    await asyncio.sleep(0)

    def _check_size(self) -> None:
        if max(self._received, self.size) > self._limits.bytes:
            raise too_long_error(self._limits.bytes, self._of)

    def _unpacked(self, part: bytes) -> Iterator[bytes]:
        if self._unpacker is None:
            yield part
            return
        # In pieces, because a few KiB may decompress to gigabytes.
        while part and not self._unpacker.eof:
            try:
                yield self._unpacker.decompress(part, _PIECE_BYTES)
            except zlib.error:
                raise BadResponse(f"{self._of} cannot be unpacked") from None
            part = self._unpacker.unconsumed_tail


class _BoundedBody:
    """The body of an answer as a stream: decompressed, limited, and cut after `_MOST_ERROR_BYTES` for an error."""

    def __init__(self, response: Any) -> None:
        packed = response.headers.pop("content-encoding", "").strip().lower()
        if packed not in ("", "identity", "gzip"):
            raise BadResponse("its answer has a compression that the request did not accept")
        event = _MARKS_OF_EVENTS.get(response.headers.get("content-type", "").partition(";")[0].strip().lower(), b"")
        self._stream = response.stream
        self._most = math.inf if response.is_success else _MOST_ERROR_BYTES
        self._meter = BodyReader(_limits.get(), packed=packed == "gzip", event=event)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._meter.read(_read_parts(self._stream)):
            yield piece
            if self._meter.size >= self._most:
                return

    async def aclose(self) -> None:
        closing = asyncio.ensure_future(self._stream.aclose())
        keep_task(closing)
        await asyncio.shield(closing)


async def run_off_loop(read: Callable[[bytes], _Value], data: bytes) -> _Value:
    """Return `read(data)`, called in a thread if the data is large."""
    return await asyncio.to_thread(read, data) if len(data) > _LARGE_BYTES else read(data)


def parse_json(data: bytes) -> Any:
    """Parse JSON text. Takes up to 50 ms. Numbers out of range become infinite.

    Raises:
        BadAnswer: the JSON has too many values or is nested too deeply.
        ValueError: the text is not JSON.
    """
    check_json_size(data)
    try:
        value = json.loads(data, parse_int=whole_number)
    except RecursionError:
        raise BadResponse(f"its answer has more than {MOST_LEVELS} levels") from None
    _check_levels(value)
    return value


def check_json_size(data: bytes) -> None:
    """Raise BadAnswer if JSON text has more values than `MOST_VALUES` allows. The text is not parsed for that."""
    if (reason := json_refusal(data, MOST_VALUES)) is not None:
        raise BadResponse(f"its answer cannot be parsed: {reason}")


def _check_levels(value: Any) -> None:
    """Raise BadAnswer if lists and objects are nested more than `MOST_LEVELS` deep, too deep for recursive code."""
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(MOST_LEVELS):
        children = (one.values() if type(one) is dict else one for one in level)
        level = [child for some in children for child in some if type(child) in _CONTAINERS]
        if not level:
            return
    raise BadResponse(f"its answer has more than {MOST_LEVELS} levels")


def find_bad_response(error: BaseException | None) -> BadResponse | None:
    """Return the `BadResponse` that caused an SDK's error; None for any other error."""
    while error is not None and not isinstance(error, BadResponse):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error


def wire_bytes(most_bytes: int) -> int:
    """Return how many bytes of an answer may arrive: its head, a body of `most_bytes`, and what frames its chunks."""
    return _MOST_HEAD_BYTES + 2 * most_bytes


def too_long_error(most_bytes: int, of: str = "its answer") -> BadResponse:
    """Return the error to raise for a body with more than `most_bytes`.

    Args:
        of: name of the body in the message.
    """
    limit = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
    return BadResponse(f"{of} is longer than {limit}")


def _values_in(part: bytes) -> int:
    """Estimate the number of JSON values in a section of JSON text: count its punctuation, even inside strings."""
    return sum(map(part.count, (b",", b":", b"[", b"{")))
