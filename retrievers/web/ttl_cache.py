"""A small cache that limits the number and the age of its values."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class TtlCache(Generic[Key, Value]):
    """The latest values by key.

    Args:
        most: maximum number of values; the value stored first is dropped first.
        keep_s: lifetime of a value, in seconds.
        clock: returns the time in seconds.
    """

    def __init__(self, *, most: int, keep_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._most, self._keep_s, self._clock = most, keep_s, clock
        self._held: OrderedDict[Key, tuple[float, Value]] = OrderedDict()

    def get(self, key: Key) -> Value | None:
        """Return the value stored under a key; None if there is none, or if it is too old."""
        until, value = self._held.get(key, (0.0, None))
        return value if self._clock() < until else None

    def put(self, key: Key, value: Value) -> None:
        """Store a value."""
        self._held.pop(key, None)
        self._held[key] = (self._clock() + self._keep_s, value)
        while len(self._held) > self._most:
            self._held.popitem(last=False)
