"""The queues inside a process in which jobs wait before they read and store their documents.

Each tenant has a queue for small and one for large deliveries, so that small ones do not wait for large ones. Jobs that
write to the same collection wait for each other here, where they take no database connection.
"""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

SMALL_BYTES = 256 * 1024
"""Maximum size of a small delivery and of its text. The packaged embedder takes about 15 s of processor time for it."""
MOST_LARGE = 8
"""Maximum number of large deliveries that are stored at once for all tenants. Each takes up to 70 MB of memory,
beside what the embedder takes for all of them together.
"""
WRITE_SLOTS = 2
"""Number of batches that are written at once for waiting callers, of small and of large deliveries each, and minimum
number for jobs from the queue. More would leave too few database connections for questions.
"""
_AT_ONCE = 2
_READING = 8
"""Maximum number of small deliveries of a tenant that are read or wait to be stored. Each takes half a megabyte of
memory.
"""


@dataclass(frozen=True, slots=True)
class DeliveryQueue:
    """A queue of jobs, as the semaphores that a job in it acquires.

    Attributes:
        write_slot: acquired for each batch that a job writes. It limits how many jobs write at once, and so how many
            database connections they take from questions.
        slot: acquired while a job's documents are read and stored. It limits the memory that the jobs take.
        store_slot: acquired in addition while the documents are stored. It limits how many jobs store at once, without
            counting a job whose file takes long to read.
        most_bytes: maximum size of a job's documents; None for any.
    """

    write_slot: AbstractAsyncContextManager[None]
    slot: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    store_slot: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    most_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WriteLocks:
    """The semaphores that a job acquires to write to its collection.

    Attributes:
        exclusive: acquired for each transaction that may lock the collection. Other jobs of this process that write to
            the collection wait for it.
        slot: acquired in addition while documents are written. It limits how many jobs write at once.
    """

    exclusive: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)
    slot: AbstractAsyncContextManager[object] = field(default_factory=nullcontext)


class DeliveryQueues:
    """The queues of all tenants and collections."""

    def __init__(self) -> None:
        self._semaphores: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()
        self._writers: WeakValueDictionary[tuple[str, str], asyncio.Semaphore] = WeakValueDictionary()
        self._large = asyncio.Semaphore(MOST_LARGE)
        # A batch of a large document is written for half a minute, for which a small delivery does not wait.
        self._large_writes, self._small_writes = asyncio.Semaphore(WRITE_SLOTS), asyncio.Semaphore(WRITE_SLOTS)

    def queues_for(self, tenant: str, size_bytes: int | None) -> tuple[DeliveryQueue, ...]:
        """Return the queues that a delivery tries, in order.

        A small delivery tries the queue for small ones, then that for large ones: a small file may have a large text.

        Args:
            size_bytes: size of the delivery; None if it is not known.
        """
        # The tenant's own limit comes first: so at most two of its jobs wait for a slot of all tenants.
        large = DeliveryQueue(
            self._large_writes, _SemaphorePair(self._semaphore(tenant, "large", _AT_ONCE), self._large)
        )
        if size_bytes is None or size_bytes > SMALL_BYTES:
            return (large,)
        reading, storing = self._semaphore(tenant, "reading", _READING), self._semaphore(tenant, "storing", _AT_ONCE)
        return DeliveryQueue(self._small_writes, reading, storing, SMALL_BYTES), large

    def writer(self, tenant: str, collection: str) -> asyncio.Semaphore:
        """Return the semaphore that jobs acquire to write to a collection, see `WriteLocks.exclusive`."""
        return self._writers.setdefault((tenant, collection), asyncio.Semaphore(1))

    def _semaphore(self, tenant: str, kind: str, slots: int) -> asyncio.Semaphore:
        return self._semaphores.setdefault((tenant, kind), asyncio.Semaphore(slots))


@dataclass(frozen=True, slots=True)
class _SemaphorePair:
    """A context manager that acquires two semaphores: `first`, then `second`."""

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
