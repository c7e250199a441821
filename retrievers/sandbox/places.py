"""Limit how many files are read at a time, without letting files that take long hold up the others.

A file needs a place while it is read. A pool has normal places, and a few long places. When the reading of a file has
taken 2 s, it moves to a long place and frees its normal one. If no long place is free while other files wait, the
reading may be ended ("gives way"); the file is then read from its start again later, in a long place.
"""

import threading
import time
from typing import Self

_LONG_S = 2.0
"""How long a reading may keep a normal place while other files wait, in seconds."""

turn = threading.local()
"""Has the attribute `first` in threads that read a file for the first time and can begin anew, `again` in threads that
read a file whose first reading was ended.
"""


class GaveWay(Exception):
    """The reading of a file was ended because it took long while other files waited."""


class ReadingPlaces(threading.BoundedSemaphore):
    """A semaphore of places of one kind, normal or long, with the file readings that can be ended to free a place.

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
        """Add a running file reading to those that may be ended so that a waiting file gets a place."""
        with self._counting:
            self._give_way[reader] = None

    def leave(self, reader: "ReadingPlace") -> None:
        """Remove a file reading that `enter` has added; do nothing if it was not added."""
        with self._counting:
            self._give_way.pop(reader, None)

    def promise(self, reader: "ReadingPlace") -> bool:
        """Return whether this file reading must end now to free its place for a waiting file.

        It must if it is the oldest that `enter` has added, and more files wait than places are already promised to
        them. It is then removed, and its place counts as promised.
        """
        with self._counting:
            is_needed = self.waiting > self._promised and next(iter(self._give_way), None) is reader
            if is_needed:
                self._promised += 1
                del self._give_way[reader]
        return is_needed


class ReadingPlace:
    """Context manager for the reading of one file: waits for a place on entry, frees it on exit.

    Args:
        free: the pool's normal places.
        long: the pool's long places. A file whose first reading was ended takes one of these from the start.
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
        """If the reading has taken longer than `_LONG_S`, move it to a long place, which frees its normal one.

        Raises:
            GaveWay: no long place is free, a file waits for a place, and this is the reading to end for it.
        """
        if self._held is self._long or time.monotonic() <= self._long_after:
            return
        if not self._long.waiting and self._long.acquire(blocking=False):
            self._free.leave(self)
            self._held.release()
            self._held = self._long
        elif self._free.promise(self):
            raise GaveWay
