"""Limit how many files are read at a time, without letting files that take long hold up the others.

A file needs a slot while it is read. A pool has normal slots, and a few long slots. When the reading of a file has
taken 2 s, it moves to a long slot and frees its normal one. If no long slot is free while other files wait, the
reading may be ended ("preempted"); the file is then read from its start again later, in a long slot.
"""

import threading
import time
from typing import Self

_LONG_S = 2.0
"""How long a reading may keep a normal slot while other files wait, in seconds."""

reading_attempt = threading.local()
"""Has the attribute `is_first` in threads that read a file for the first time and can begin anew, `is_retry` in threads
that read a file whose first reading was ended.
"""


class ReadingPreempted(Exception):
    """The reading of a file was ended because it took long while other files waited."""


class SlotPool(threading.BoundedSemaphore):
    """A semaphore of slots of one kind, normal or long, with the file readings that can be ended to free a slot.

    Attributes:
        waiting: number of files that wait for a slot.
    """

    def __init__(self, slots: int) -> None:
        super().__init__(slots)
        self.waiting = self._promised = 0
        self._count_lock = threading.Lock()
        self._preemptible: dict[ReadingSlot, None] = {}

    def wait_for_slot(self) -> None:
        """Wait for a slot."""
        if not self.waiting and self.acquire(blocking=False):
            return
        with self._count_lock:
            self.waiting += 1
        self.acquire()
        with self._count_lock:
            self.waiting -= 1
            self._promised = max(0, self._promised - 1)

    def add_preemptible(self, reading: "ReadingSlot") -> None:
        """Add a running file reading to those that may be ended so that a waiting file gets a slot."""
        with self._count_lock:
            self._preemptible[reading] = None

    def remove_preemptible(self, reading: "ReadingSlot") -> None:
        """Remove a file reading that `add_preemptible` has added; do nothing if it was not added."""
        with self._count_lock:
            self._preemptible.pop(reading, None)

    def preempt_if_needed(self, reading: "ReadingSlot") -> bool:
        """Return whether this file reading must end now to free its slot for a waiting file.

        It must if it is the oldest that `add_preemptible` has added, and more files wait than slots are already
        promised to them. It is then removed, and its slot counts as promised.
        """
        with self._count_lock:
            is_needed = self.waiting > self._promised and next(iter(self._preemptible), None) is reading
            if is_needed:
                self._promised += 1
                del self._preemptible[reading]
        return is_needed


class ReadingSlot:
    """Context manager for the reading of one file: waits for a slot on entry, frees it on exit.

    Args:
        normal: the pool's normal slots.
        long: the pool's long slots. A file whose first reading was ended takes one of these from the start.
    """

    def __init__(self, normal: SlotPool, long: SlotPool) -> None:
        self._normal, self._long = normal, long
        self._current = long if hasattr(reading_attempt, "is_retry") else normal
        self._is_preemptible = hasattr(reading_attempt, "is_first")
        self._long_after = 0.0

    def __enter__(self) -> Self:
        self._current.wait_for_slot()
        if self._is_preemptible:
            self._normal.add_preemptible(self)
        self._long_after = time.monotonic() + _LONG_S
        return self

    def __exit__(self, *_: object) -> None:
        self._normal.remove_preemptible(self)
        self._current.release()

    def move_if_long(self) -> None:
        """If the reading has taken longer than `_LONG_S`, move it to a long slot, which frees its normal one.

        Raises:
            ReadingPreempted: no long slot is free, a file waits for a slot, and this is the reading to end for it.
        """
        if self._current is self._long or time.monotonic() <= self._long_after:
            return
        if not self._long.waiting and self._long.acquire(blocking=False):
            self._normal.remove_preemptible(self)
            self._current.release()
            self._current = self._long
        elif self._normal.preempt_if_needed(self):
            raise ReadingPreempted
