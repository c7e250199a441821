"""The lines in which deliveries wait: small ones do not wait for large ones."""

import asyncio
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

SMALL_BYTES = 256 * 1024
"""Maximum size of a small delivery and of its text. The packaged embedder needs about 15 s of processor time for it."""
_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Line:
    """A line of jobs.

    Attributes:
        place: limits how many of the jobs are read and stored at once, and so the memory that they take.
        most_bytes: maximum size of a job's documents; None for any.
    """

    place: AbstractAsyncContextManager[None] = field(default_factory=nullcontext)
    most_bytes: int | None = None


class Lines:
    """Two lines for each tenant: for small and for large deliveries."""

    def __init__(self) -> None:
        self._places: WeakValueDictionary[tuple[str, bool], asyncio.Semaphore] = WeakValueDictionary()

    def of(self, tenant: str, size_bytes: int | None) -> tuple[Line, ...]:
        """Return the lines to try, in order: a small file may have a large text.

        Args:
            size_bytes: size of the delivery; None if it is not known.
        """
        large = Line(self._place(tenant, False))
        if size_bytes is None or size_bytes > SMALL_BYTES:
            return (large,)
        return Line(self._place(tenant, True), SMALL_BYTES), large

    def _place(self, tenant: str, small: bool) -> asyncio.Semaphore:
        return self._places.setdefault((tenant, small), asyncio.Semaphore(_AT_ONCE))
