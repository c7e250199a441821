"""Test doubles for code that uses the retrievers."""

import asyncio
import gc
import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from retrievers.embed import Vectors
from retrievers.embed.cache import QueryCache
from retrievers.text.analysis import analyse


class HashEmbedder:
    """An embedder without a model: texts that share words have similar vectors.

    Each word adds a pseudo-random direction that depends only on the word, so a text has the same vector in every
    process and on every machine.

    Args:
        dimension: length of the vectors.
        name: the embedder name that collections store.

    Attributes:
        embedded: the text of every passage embedded so far, in order.
    """

    def __init__(self, dimension: int = 64, name: str = "hash") -> None:
        self.name = name
        self.languages: frozenset[str] | None = None
        self.query_cache = QueryCache()
        self.embedded: list[str] = []
        self._dimension = dimension
        self._directions: dict[str, Vectors] = {}

    async def dimension(self) -> int:
        """See `Embedder.dimension`."""
        return self._dimension

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`."""
        self.embedded += texts
        return np.stack([self.vector(text) for text in texts]) if texts else np.zeros((0, self._dimension), np.float32)

    async def embed_query(self, text: str) -> Vectors:
        """See `Embedder.embed_query`."""
        vector = self.query_cache.get(text)
        if vector is None:
            vector = self.vector(text)
            self.query_cache.put(text, vector)
        return vector

    async def aclose(self) -> None:
        """Do nothing: there are no resources to release."""

    def vector(self, text: str) -> Vectors:
        """Return the unit vector of a text."""
        words = [term.text for term in analyse(text, "en") if not term.derived] or [text]
        total = np.sum([self._direction(word) for word in words], axis=0, dtype=np.float64)
        return np.asarray(total / max(float(np.linalg.norm(total)), 1e-12), dtype=np.float32)

    def _direction(self, word: str) -> Vectors:
        known = self._directions.get(word)
        if known is None:
            seed = int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest())
            known = np.random.default_rng(seed).standard_normal(self._dimension).astype(np.float32)
            self._directions[word] = known
        return known


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    """Turn garbage collection off in the block, since one collection can take longer than the code that is timed."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def processor_s(work: Callable[[], object]) -> float:
    """Call `work` three times; return the shortest processor time of a call in this thread, in seconds."""
    took = []
    with without_garbage_collection():
        for _ in range(3):
            began = time.thread_time()
            work()
            took.append(time.thread_time() - began)
    return min(took)


async def longest_hold(work: "asyncio.Task[object]") -> float:
    """Wait for a task and return the longest time that the event loop was blocked, in seconds of processor time."""
    longest = 0.0
    with without_garbage_collection():
        while not work.done():
            before = time.thread_time()
            await asyncio.sleep(0.001)
            longest = max(longest, time.thread_time() - before)
        await work
    return longest
