"""Places for files that are read, so that those that take long do not hold up the others."""

import threading
import time
from typing import Self

_LONG_S = 2.0
"""How long a process may take before it gives its place to other files, in seconds."""

turn = threading.local()
"""`first` is set in threads whose files are read for the first time, `again` in those whose files gave way."""


class GaveWay(Exception):
    """The reading of a file was ended because it took long and others wait."""


class ReadingPlaces(threading.BoundedSemaphore):
    """Places for files that are read.

    Attributes:
        waiting: number of files that wait for a place.
    """

    def __init__(self, places: int) -> None:
        super().__init__(places)
        self.waiting = self._promised = 0
        self._counting = threading.Lock()
        self._give_way: dict[ReadingPlace, None] = {}

    def take(self) -> None:
        """Wait for a place."""
        if not self.waiting and self.acquire(blocking=False):
            return
        with self._counting:
            self.waiting += 1
        self.acquire()
        with self._counting:
            self.waiting -= 1
            self._promised = max(0, self._promised - 1)

    def enter(self, reader: "ReadingPlace") -> None:
        """Add a reader that gives way."""
        with self._counting:
            self._give_way[reader] = None

    def leave(self, reader: "ReadingPlace") -> None:
        """Remove a reader."""
        with self._counting:
            self._give_way.pop(reader, None)

    def promise(self, reader: "ReadingPlace") -> bool:
        """Return whether this reader has to give way: it came first, and more files wait than were promised a place."""
        with self._counting:
            is_needed = self.waiting > self._promised and next(iter(self._give_way), None) is reader
            if is_needed:
                self._promised += 1
                del self._give_way[reader]
        return is_needed


class ReadingPlace:
    """A place of a pool, which is held while a process reads.

    Args:
        free: places of the pool.
        long: places for processes that have taken long.
    """

    def __init__(self, free: ReadingPlaces, long: ReadingPlaces) -> None:
        self._free, self._long = free, long
        self._held = long if hasattr(turn, "again") else free
        self._gives_way = hasattr(turn, "first")
        self._long_after = 0.0

    def __enter__(self) -> Self:
        self._held.take()
        if self._gives_way:
            self._free.enter(self)
        self._long_after = time.monotonic() + _LONG_S
        return self

    def __exit__(self, *_: object) -> None:
        self._free.leave(self)
        self._held.release()

    def pass_on(self) -> None:
        """If the process has taken long, give the place to the next file and take one that is left for such processes.

        Raises:
            GaveWay: no such place is left, and a file waits.
        """
        if self._held is self._long or time.monotonic() <= self._long_after:
            return
        if not self._long.waiting and self._long.acquire(blocking=False):
            self._free.leave(self)
            self._held.release()
            self._held = self._long
        elif self._free.promise(self):
            raise GaveWay
