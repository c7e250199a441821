"""The lines in which deliveries wait: small ones not for large ones, and none with a connection for a collection."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

SMALL_BYTES = 256 * 1024
"""Maximum size of a small delivery and of its text. The packaged embedder needs about 15 s of processor time for it."""
MOST_LARGE = 8
"""Maximum number of large deliveries that are stored at once for all tenants. Each takes some 30 MB."""
_AT_ONCE = 2
_READING = 8
"""Maximum number of small deliveries of a tenant that are read or wait to be stored. Each takes half a megabyte."""


@dataclass(frozen=True, slots=True)
class DeliveryLine:
    """A line of jobs.

    Attributes:
        place: limits how many of the jobs are read and stored at once, and so the memory that they take.
        storing: limits how many of them are stored at once. A job whose file takes long to read does not hold it.
        most_bytes: maximum size of a job's documents; None for any.
    """

    place: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    storing: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WriteTurn:
    """What a job holds while it writes to its collection.

    Attributes:
        alone: held in each transaction that may lock the collection. The others of this process that write to it wait
            here, where they take no database connection.
        place: held, too, while documents are written; it limits how many jobs write at once.
    """

    alone: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    place: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)


class Lines:
    """Two lines for each tenant, for small and for large deliveries, and one for each collection."""

    def __init__(self) -> None:
        self._places: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()
        self._writers: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()
        self._large = asyncio.Semaphore(MOST_LARGE)

    def of(self, tenant: str, size_bytes: int | None) -> tuple[DeliveryLine, ...]:
        """Return the lines to try, in order: a small file may have a large text.

        Args:
            size_bytes: size of the delivery; None if it is not known.
        """
        # The tenant's place comes first, so that it waits for one of all places with at most two jobs.
        large = DeliveryLine(_Both(self._place(tenant, "large", _AT_ONCE), self._large))
        if size_bytes is None or size_bytes > SMALL_BYTES:
            return (large,)
        reading, storing = self._place(tenant, "reading", _READING), self._place(tenant, "storing", _AT_ONCE)
        return DeliveryLine(reading, storing, SMALL_BYTES), large

    def turn(self, tenant: str, collection: str, places: asyncio.Semaphore) -> WriteTurn:
        """Return the turn of a job that writes to a collection.

        Args:
            places: limits how many jobs write at once.
        """
        return WriteTurn(self._writers.setdefault((tenant, collection), asyncio.Semaphore(1)), places)

    def _place(self, tenant: str, kind: str, places: int) -> asyncio.Semaphore:
        return self._places.setdefault((tenant, kind), asyncio.Semaphore(places))


@dataclass(frozen=True, slots=True)
class _Both:
    """A place in each of two lines, in their order."""

    first: asyncio.Semaphore
    second: asyncio.Semaphore

    async def __aenter__(self) -> None:
        await self.first.acquire()
        try:
            await self.second.acquire()
        except BaseException:
            self.first.release()
            raise

    async def __aexit__(self, *_: object) -> None:
        self.second.release()
        self.first.release()
