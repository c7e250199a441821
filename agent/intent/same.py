"""Cache what is derived from an object by the object's identity."""

from functools import lru_cache
from threading import Lock
from typing import Generic, TypeVar

Held = TypeVar("Held")


class Same(Generic[Held]):
    """A cache key equal only for the same object `held`: equal catalogues of two databases have different keys."""

    def __init__(self, held: Held) -> None:
        self.held = held

    def __hash__(self) -> int:
        return id(self.held)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.held is other.held


@lru_cache(maxsize=256)
def turn_of(key: Same[Held]) -> Lock:
    """Return the lock to hold while a key's value is computed, so that only one thread computes it."""
    return Lock()
