"""The vectors of recent questions."""

from collections import OrderedDict
from threading import Lock

from retrievers.embed import Vectors


class QueryCache:
    """Vectors by question; when it is full, the one not asked for the longest leaves. Safe across threads.

    Args:
        capacity: most questions kept, > 0.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._vectors: OrderedDict[str, Vectors] = OrderedDict()
        self._lock = Lock()

    def get(self, text: str) -> Vectors | None:
        """The vector of the question, or None."""
        with self._lock:
            if text in self._vectors:
                self._vectors.move_to_end(text)
            return self._vectors.get(text)

    def put(self, text: str, vector: Vectors) -> None:
        """Remember the vector; it becomes read-only, because all who ask share it."""
        vector.setflags(write=False)
        with self._lock:
            self._vectors[text] = vector
            self._vectors.move_to_end(text)
            if len(self._vectors) > self._capacity:
                self._vectors.popitem(last=False)
