"""The vectors of recent questions."""

from collections import OrderedDict
from threading import Lock

from retrievers.embed import Vectors


class QueryCache:
    """Vectors by question; when it is full, the one not asked for the longest leaves. Safe across threads.

    Args:
        capacity: most questions kept, > 0.
    Attributes:
        found, missed: how often a question was asked for that was kept, and one that was not.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._vectors: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = Lock()
        self.found = 0
        self.missed = 0

    def get(self, text: str) -> Vectors | None:
        """The vector of the question, or None."""
        with self._lock:
            vector = self._vectors.get(text)
            if vector is None:
                self.missed += 1
            else:
                self.found += 1
                self._vectors.move_to_end(text)
            return vector

    def put(self, text: str, vector: Vectors) -> None:
        """Remember the vector; it becomes read-only, because all who ask share it."""
        vector.setflags(write=False)
        with self._lock:
            self._vectors[text] = vector
            self._vectors.move_to_end(text)
            if len(self._vectors) > self._capacity:
                self._vectors.popitem(last=False)
