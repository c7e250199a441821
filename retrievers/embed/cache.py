"""A cache of the vectors of recent questions."""

from collections import OrderedDict
from threading import Lock

from retrievers.embed import Vectors


class QueryCache:
    """An LRU cache of vectors by question. Thread-safe.

    Args:
        capacity: maximum number of questions, > 0.
    Attributes:
        hits, misses: number of cache hits and cache misses.
    """

    def __init__(self, capacity: int = 4096) -> None:
        self._capacity = capacity
        self._vectors: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = Lock()
        self.hits = 0
        self.misses = 0

    def get(self, text: str) -> Vectors | None:
        """Return the vector of the question; None if it is not cached."""
        with self._lock:
            vector = self._vectors.get(text)
            if vector is None:
                self.misses += 1
            else:
                self.hits += 1
                self._vectors.move_to_end(text)
            return vector

    def put(self, text: str, vector: Vectors) -> None:
        """Cache the vector of the question `text`. The array becomes read-only, because all callers share it."""
        vector.setflags(write=False)
        with self._lock:
            self._vectors[text] = vector
            self._vectors.move_to_end(text)
            if len(self._vectors) > self._capacity:
                self._vectors.popitem(last=False)
