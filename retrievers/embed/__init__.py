"""Embedders turn text into unit vectors. `open_embedder` builds the embedder that a setting names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from retrievers.embed.cache import QueryCache

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors of length 1, so that the inner product is the cosine.

    Attributes:
        name: as in the settings. A collection stores it and refuses vectors of another embedder.
        languages: languages that the model knows; None if it knows many, or if they are not known.
        query_cache: cache of the vectors of recent questions.
    """

    name: str
    languages: frozenset[str] | None
    query_cache: "QueryCache"

    async def dimension(self) -> int:
        """Return the length of the vectors, read from the model."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return the vectors of passages, shape (len(texts), dimension), in the order of `texts`.

        Raises:
            Unavailable: the model cannot be loaded or reached.
        """
        ...

    async def embed_query(self, text: str) -> Vectors:
        """Return the vector of one question, shape (dimension,). Recent questions are cached.

        Raises:
            Unavailable: the model cannot be loaded or reached.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and threads."""
        ...
