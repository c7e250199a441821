"""Answers of services, bounded while they are read: bytes as sent and unpacked, JSON values, levels.

`limit` fits every asynchronous client of httpx or httpx2, so it also bounds what an SDK reads with a client of ours.
Parsing holds the event loop, in a thread too: the number of values, not of bytes, decides for how long.
"""

import asyncio
import json
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

MOST_LEVELS = 50
"""Lists and objects inside each other."""
_MOST_ERROR_BYTES = 64 << 10
_PARTS_PER_TURN = 8
_PIECE_BYTES = 64 << 10
_CONTAINERS = (dict, list)
_EVENT_STREAM = "text/event-stream"


class BadAnswer(Exception):
    """An answer passes a limit, or cannot be unpacked. `reason` says so and names the limit."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one answer.

    Attributes:
        bytes: as sent, and unpacked.
        values: of its JSON, estimated by its marks; of an event stream, those of one event.
    """

    bytes: int = 8 << 20
    values: int = 200_000


USUAL = Limits()
_limits: ContextVar[Limits] = ContextVar("limits", default=USUAL)


@contextmanager
def limits(bytes: int, values: int) -> Iterator[None]:
    """Other limits for the requests that are sent inside."""
    token = _limits.set(Limits(bytes, values))
    try:
        yield
    finally:
        _limits.reset(token)


def limit(client: Any) -> None:
    """Bound every answer that an asynchronous client of httpx or httpx2 reads.

    An answer is asked for packed by gzip or not at all. What passes a limit raises `BadAnswer` out of the reading, and
    the connection is closed; the body of an error ends at 64 KiB.
    """
    if _limit_answer in client.event_hooks["response"]:
        return
    client.event_hooks["request"].append(_ask_for_gzip)
    client.event_hooks["response"].append(_limit_answer)


async def _ask_for_gzip(request: Any) -> None:
    request.headers["Accept-Encoding"] = "gzip"


async def _limit_answer(response: Any) -> None:
    packed = response.headers.pop("content-encoding", "").strip().lower()
    if packed not in ("", "identity", "gzip"):
        raise BadAnswer("its answer is packed in a way that was not asked for")
    # openai 2 and litellm use httpx, openai 3 and signalbox httpx2; each takes streams of its own kind only.
    library = type(response).__module__.partition(".")[0]
    body = _body_class(library)(response.stream)
    body.packed = packed == "gzip"
    body.failed = not response.is_success
    body.events = response.headers.get("content-type", "").startswith(_EVENT_STREAM)
    response.stream = body


@cache
def _body_class(library: str) -> type["_Body"]:
    return type("Body", (_Body, import_module(library).AsyncByteStream), {})


class _Body:
    """The body of an answer, unpacked, up to its limits."""

    packed = failed = events = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._limits = _limits.get()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        values = left = self._limits.values
        size = 0
        async for part in unpacked(self._stream, self._limits.bytes, packed=self.packed):
            size += len(part)
            if self.failed and size >= _MOST_ERROR_BYTES:
                yield part[: len(part) - (size - _MOST_ERROR_BYTES)]
                return
            left -= _values_in(part)
            if left < 0:
                raise BadAnswer(f"its answer holds more than {values:,} values")
            if self.events and b"\n" in part:
                left = values - _values_in(part[part.rindex(b"\n") :])
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


async def unpacked(
    parts: AsyncIterable[bytes], most_bytes: int, *, packed: bool, of: str = "its answer", whole: bool = False
) -> AsyncIterator[bytes]:
    """The parts of a body, not empty, of gzip the unpacked ones.

    Args:
        of: what it is the body of, for the error.
        whole: what is packed must come to its end.
    Raises:
        BadAnswer: the body is longer than `most_bytes`, on the way or unpacked, or cannot be unpacked.
    """
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16) if packed else None
    number = received = size = 0
    async for part in parts:
        received += len(part)
        for data in _unpacked(part, unpacker, of) if unpacker else (part,):
            size += len(data)
            if max(received, size) > most_bytes:
                raise too_long(most_bytes, of)
            if data:
                yield data
            number += 1
            if number % _PARTS_PER_TURN == 0:
                # Parts that are there already come without a turn of the event loop, and there may be millions.
                await asyncio.sleep(0)
    if whole and unpacker and not unpacker.eof:
        raise BadAnswer(f"{of} breaks off")


def _unpacked(part: bytes, unpacker: Any, of: str) -> Iterator[bytes]:
    """In pieces: some KiB may stand for gigabytes."""
    while part and not unpacker.eof:
        try:
            yield unpacker.decompress(part, _PIECE_BYTES)
        except zlib.error:
            raise BadAnswer(f"{of} cannot be unpacked") from None
        part = unpacker.unconsumed_tail


def parse_json(data: bytes | str) -> Any:
    """The value of a JSON text.

    Raises:
        BadAnswer: it has too many levels.
        ValueError: it is no JSON.
    """
    try:
        value = json.loads(data)
    except RecursionError:
        raise BadAnswer(f"its answer has more than {MOST_LEVELS} levels") from None
    check_levels(value)
    return value


def check_levels(value: Any) -> None:
    """Raise BadAnswer for a JSON value that has too many levels for whoever descends into it."""
    level = [value] if type(value) in _CONTAINERS else []
    for _ in range(MOST_LEVELS):
        children = (one.values() if type(one) is dict else one for one in level)
        level = [child for some in children for child in some if type(child) in _CONTAINERS]
        if not level:
            return
    raise BadAnswer(f"its answer has more than {MOST_LEVELS} levels")


def bad_answer_in(error: BaseException | None) -> BadAnswer | None:
    """The bad answer that an SDK's error comes from; None for any other error."""
    while error is not None and not isinstance(error, BadAnswer):
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return error


def _values_in(part: bytes) -> int:
    """How many values a part of a JSON text begins, counted by its marks; those inside texts count as well."""
    return sum(map(part.count, (b",", b":", b"[", b"{")))


def too_long(most_bytes: int, of: str = "its answer") -> BadAnswer:
    """What is raised for a body of more than so many bytes."""
    limit = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
    return BadAnswer(f"{of} is longer than {limit}")
