"""Embedders: text to unit vectors. `open_embedder` builds the one a setting names."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from retrievers.embed.cache import QueryCache

Vectors = NDArray[np.float32]


class Embedder(Protocol):
    """Turns texts into vectors of length 1, so that inner product is cosine.

    Attributes:
        name: as in the settings; a collection remembers it and refuses another.
        languages: the languages it knows, None when it knows many or it is not said.
        recent: the questions that are not embedded again.
    """

    name: str
    languages: frozenset[str] | None
    recent: "QueryCache"

    async def dimension(self) -> int:
        """Length of the vectors, read from the model."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Vectors of passages, shape (len(texts), dimension), rows in the order of `texts`.

        Raises:
            Unavailable: the model cannot be loaded or reached.
        """
        ...

    async def embed_query(self, text: str) -> Vectors:
        """Vector of one question, shape (dimension,); recent questions are remembered.

        Raises:
            Unavailable: the model cannot be loaded or reached.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and threads."""
        ...
