"""Cache a value computed from an object by the object's identity: a key for the cache, and a lock for each key."""

from functools import lru_cache
from threading import Lock
from typing import Generic, TypeVar

Object = TypeVar("Object")


class IdentityKey(Generic[Object]):
    """A cache key that is equal only for the same object, so that equal catalogues of two databases have two keys."""

    def __init__(self, object: Object) -> None:
        self.object = object

    def __hash__(self) -> int:
        return id(self.object)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.object is other.object


@lru_cache(maxsize=256)
def lock_for(key: IdentityKey[Object]) -> Lock:
    """Return the lock of a key. Hold it while the key's value is computed, so that only one thread computes it."""
    return Lock()
