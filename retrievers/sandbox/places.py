"""Limit how many files are read at a time, without letting files that take long hold up the others.

A file needs a place while it is read. A pool has normal places, and a few for long readings. A reading that has taken
2 s moves to a long place and frees its normal one. If no long place is free while files wait, the reading may be ended
("gives way"). It begins anew later, in a long place.
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
    """The reading of a file was ended because it took long while others waited."""


class ReadingPlaces(threading.BoundedSemaphore):
    """A number of places of one kind, and the readings in them that can give way.

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
        """Add a reading that can be ended for a file that waits."""
        with self._counting:
            self._give_way[reader] = None

    def leave(self, reader: "ReadingPlace") -> None:
        """Remove a reading that `enter` has added. Nothing happens for any other."""
        with self._counting:
            self._give_way.pop(reader, None)

    def promise(self, reader: "ReadingPlace") -> bool:
        """Return whether this reading has to give way, and if so, remove it and count its place as promised.

        It has to if it is the oldest that can, and more files wait than places have been promised.
        """
        with self._counting:
            is_needed = self.waiting > self._promised and next(iter(self._give_way), None) is reader
            if is_needed:
                self._promised += 1
                del self._give_way[reader]
        return is_needed


class ReadingPlace:
    """The place of one reading, as a context manager: it waits for a place on entry and frees it on exit.

    Args:
        free: the pool's normal places.
        long: its places for long readings. A file whose first reading was ended takes one of these from the start.
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
            GaveWay: no long place is free, a file waits, and it is this reading's turn to give way.
        """
        if self._held is self._long or time.monotonic() <= self._long_after:
            return
        if not self._long.waiting and self._long.acquire(blocking=False):
            self._free.leave(self)
            self._held.release()
            self._held = self._long
        elif self._free.promise(self):
            raise GaveWay
