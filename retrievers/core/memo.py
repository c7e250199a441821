"""Values that are computed from an object once, and kept as long as the object."""

from collections.abc import Callable, Hashable
from threading import RLock
from typing import Any, TypeVar

Made = TypeVar("Made")


class Memo:
    """The values computed from the object that has this memo.

    A cache of a module would keep its keys, and so the object, after everybody else has dropped the object.
    """

    __slots__ = ("_lock", "_made")

    def __init__(self) -> None:
        self._lock = RLock()
        self._made: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], Made]) -> Made:
        """Return the value of a key. The first caller computes it by `make()`; other threads wait for it."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            made: Made = self._made[key]
            return made
