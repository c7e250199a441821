"""Who stores next: jobs take turns between their batches, and small deliveries do not wait for large ones."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self
from weakref import WeakValueDictionary

SMALL_BYTES = 256 * 1024
"""Maximum size of a small delivery and of its text. The packaged embedder needs about 15 s of processor time for it."""
_PLACES = 2
"""Deliveries stored at once for waiting callers: more would take database connections from questions."""


class Turn:
    """One of a limited number of places, held inside `async with`, and passed on in between.

    Args:
        places: the places of all.
    """

    def __init__(self, places: asyncio.Semaphore) -> None:
        self._places = places
        self._held = False

    async def __aenter__(self) -> Self:
        await self._take()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    async def pass_on(self) -> None:
        """Let all who are waiting go first."""
        self._release()
        await self._take()

    async def _take(self) -> None:
        await self._places.acquire()
        self._held = True

    def _release(self) -> None:
        if self._held:  # not if it was cancelled while it waited
            self._held = False
            self._places.release()


@dataclass(frozen=True, slots=True)
class Lane:
    """A way for jobs of some size.

    Attributes:
        turn: limits how many jobs are stored at once.
        line: limits how many of one tenant's jobs are read and stored at once, and so the memory that they take.
        most_bytes: maximum size of a job's documents; None for any.
    """

    turn: Turn
    line: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    most_bytes: int | None = None


class Lanes:
    """The lanes of deliveries for waiting callers."""

    def __init__(self) -> None:
        self._small, self._large = asyncio.Semaphore(_PLACES), asyncio.Semaphore(_PLACES)
        self._lines: WeakValueDictionary[tuple[str, bool], asyncio.Semaphore] = WeakValueDictionary()

    def of(self, tenant: str, size_bytes: int | None) -> tuple[Lane, ...]:
        """Return the lanes to try, in order: a small file may have a large text.

        Args:
            size_bytes: size of the delivery; None if it is not known.
        """
        large = Lane(Turn(self._large), self._line(tenant, False))
        if size_bytes is None or size_bytes > SMALL_BYTES:
            return (large,)
        return Lane(Turn(self._small), self._line(tenant, True), SMALL_BYTES), large

    def _line(self, tenant: str, small: bool) -> asyncio.Semaphore:
        return self._lines.setdefault((tenant, small), asyncio.Semaphore(_PLACES))
