"""Read a source in portions. While the caller stores one portion, the next portion is read, but none after that."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from retrievers.core.tasks import leave
from retrievers.ingest.documents import Document
from retrievers.sandbox import Stopped
from retrievers.sync.source import ItemDocument, ItemEnd, Read, Source, Unread, Wanted

Returned = TypeVar("Returned")

_DOCUMENTS_AT_ONCE, _CHARACTERS_AT_ONCE = 500, 8_000_000
_ITEMS_AT_ONCE = 2_000
_END_S = 2.0


@dataclass(slots=True)
class Portion:
    """What was read of a source in one go, to be stored in one step.

    Attributes:
        found: documents read, including invalid ones.
        ends: items whose last document was read; their documents may be in earlier portions, too.
        unread: items that could not be read now.
        characters: number of characters in the documents.
    """

    found: list[ItemDocument] = field(default_factory=list)
    ends: list[ItemEnd] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    characters: int = 0

    def add(self, one: Read) -> None:
        if isinstance(one, ItemDocument):
            self.found.append(one)
            self.characters += len(one.item.text) if isinstance(one.item, Document) else 0
        elif isinstance(one, ItemEnd):
            self.ends.append(one)
        else:
            self.unread.append(one)

    def __bool__(self) -> bool:
        return bool(self.found or self.ends or self.unread)

    @property
    def is_full(self) -> bool:
        many = len(self.found) >= _DOCUMENTS_AT_ONCE or len(self.ends) >= _ITEMS_AT_ONCE
        return many or self.characters >= _CHARACTERS_AT_ONCE


async def portions_of(source: Source, wanted: Sequence[Wanted]) -> AsyncGenerator[Portion]:
    """Read items of a source and yield them in portions. While the caller stores one portion, the next is read."""
    stop = threading.Event()
    reads = source.read(wanted, stop.is_set)

    def take() -> Portion:
        portion = Portion()
        for one in reads:
            portion.add(one)
            if portion.is_full:
                break
        return portion

    task = asyncio.create_task(asyncio.to_thread(take))
    try:
        while portion := await asyncio.shield(task):
            task = asyncio.create_task(asyncio.to_thread(take))
            yield portion
    finally:
        stop.set()
        await _stop_reading(task, reads)


async def _stop_reading(task: "asyncio.Task[Portion]", reads: Iterator[Read]) -> None:
    """Wait at most `_END_S` for the thread that reads, then close the source's generator.

    If the thread still runs then, the generator is not closed: the thread is left to end by itself.
    """
    await asyncio.wait({task}, timeout=_END_S)
    if not task.done():
        leave(task)
    elif not task.cancelled():
        task.exception()
        if isinstance(reads, Generator):
            await asyncio.to_thread(reads.close)


async def in_thread(function: Callable[[Stopped], Returned]) -> Returned:
    """Return the result of a function that blocks on files and servers, called in a thread.

    The argument of `function` returns True once this call is cancelled. This call then does not wait for its end.
    """
    stop = threading.Event()
    try:
        return await asyncio.shield(asyncio.create_task(asyncio.to_thread(function, stop.is_set)))
    finally:
        stop.set()
