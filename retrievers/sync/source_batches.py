"""Read a source in batches. While the caller stores one batch, the next batch is read, but none after that."""

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from retrievers.core.timeouts import abandon_task
from retrievers.ingest.documents import Document, count_characters
from retrievers.sandbox import CancelCheck
from retrievers.sync.source import ItemDocument, ItemEnd, ItemRequest, ReadEvent, Source, UnreadableItem

Returned = TypeVar("Returned")

_DOCUMENTS_AT_ONCE, _CHARACTERS_AT_ONCE = 500, 8_000_000
_ITEMS_AT_ONCE = 2_000
_END_S = 2.0


@dataclass(slots=True)
class SourceBatch:
    """What was read of a source in one go, to be stored in one step.

    Attributes:
        documents: documents read, including invalid ones.
        item_ends: items whose last document was read; their documents may be in earlier batches, too.
        unreadable: items that could not be read now.
        characters: number of characters in the documents.
    """

    documents: list[ItemDocument] = field(default_factory=list)
    item_ends: list[ItemEnd] = field(default_factory=list)
    unreadable: list[UnreadableItem] = field(default_factory=list)
    characters: int = 0

    def add(self, one: ReadEvent) -> None:
        if isinstance(one, ItemDocument):
            self.documents.append(one)
            self.characters += count_characters(one.item) if isinstance(one.item, Document) else 0
        elif isinstance(one, ItemEnd):
            self.item_ends.append(one)
        else:
            self.unreadable.append(one)

    def __bool__(self) -> bool:
        return bool(self.documents or self.item_ends or self.unreadable)

    @property
    def is_full(self) -> bool:
        many = len(self.documents) >= _DOCUMENTS_AT_ONCE or len(self.item_ends) >= _ITEMS_AT_ONCE
        return many or self.characters >= _CHARACTERS_AT_ONCE


async def read_batches(source: Source, requests: Sequence[ItemRequest]) -> AsyncGenerator[SourceBatch]:
    """Read items of a source and yield them in batches. While the caller stores one batch, the next is read."""
    stop = threading.Event()
    events = source.read(requests, stop.is_set)

    def read_batch() -> SourceBatch:
        batch = SourceBatch()
        for event in events:
            batch.add(event)
            if batch.is_full:
                break
        return batch

    task = asyncio.create_task(asyncio.to_thread(read_batch))
    try:
        while batch := await asyncio.shield(task):
            task = asyncio.create_task(asyncio.to_thread(read_batch))
            yield batch
    finally:
        stop.set()
        await _stop_reading(task, events)


async def _stop_reading(task: "asyncio.Task[SourceBatch]", events: Iterator[ReadEvent]) -> None:
    """Wait at most `_END_S` for the thread that reads, then close the source's generator.

    If the thread still runs then, the generator is not closed: the thread is left to end by itself.
    """
    await asyncio.wait({task}, timeout=_END_S)
    if not task.done():
        abandon_task(task)
    elif not task.cancelled():
        task.exception()
        if isinstance(events, Generator):
            await asyncio.to_thread(events.close)


async def run_in_thread(function: Callable[[CancelCheck], Returned]) -> Returned:
    """Return the result of a function that blocks on files and servers, called in a thread.

    The argument of `function` returns True once this call is cancelled. This call then does not wait for its end.
    """
    stop = threading.Event()
    try:
        return await asyncio.shield(asyncio.create_task(asyncio.to_thread(function, stop.is_set)))
    finally:
        stop.set()
