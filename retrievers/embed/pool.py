"""The embedders of a service: its own, and those that collections were made with."""

import asyncio
from collections.abc import Callable, Sequence

from retrievers.core.errors import BadRequest
from retrievers.core.types import Scope
from retrievers.embed import Embedder, Vectors

Open = Callable[[str], Embedder]


class Embedders:
    """The service's embedder, which is also `Embedder` itself, and others by name, opened when they are first needed.

    Args:
        own: of the settings: new collections are made with it.
        opener: opens another; without one there is no other.
    """

    def __init__(self, own: Embedder, opener: Open | None = None) -> None:
        self._own, self._opener = own, opener
        self._others: dict[str, Embedder] = {}
        self.name, self.languages, self.recent = own.name, own.languages, own.recent

    @classmethod
    def of(cls, embedder: Embedder) -> "Embedders":
        """The embedder with those beside it, if there are any."""
        return embedder if isinstance(embedder, cls) else cls(embedder)

    def named(self, name: str) -> Embedder:
        """The embedder of that name; nothing is loaded before it is used.

        Raises:
            BadRequest: there is none that can be opened here.
        """
        if name == self._own.name:
            return self._own
        if name not in self._others:
            if self._opener is None:
                raise BadRequest(f"the embedder {name} cannot be opened here", where="embedder")
            self._others[name] = self._opener(name)
        return self._others[name]

    def has(self, name: str) -> bool:
        """Whether there is one of that name."""
        try:
            self.named(name)
        except BadRequest:
            return False
        return True

    def languages_in(self, scope: Scope) -> frozenset[str] | None:
        """The languages that the embedders of all that is searched know, None where each knows many."""
        names = {one.embedder for one in scope.collections if one.chunks and one.embedder and self.has(one.embedder)}
        known = [self.named(name).languages for name in names] if names and not scope.beside else [self.languages]
        limited = [one for one in known if one is not None]
        return frozenset.intersection(*limited) if limited else None

    async def dimension(self) -> int:
        """See `Embedder.dimension`; of the service's own."""
        return await self._own.dimension()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder.embed`; by the service's own."""
        return await self._own.embed(texts)

    async def embed_query(self, text: str) -> Vectors:
        """See `Embedder.embed_query`; by the service's own."""
        return await self._own.embed_query(text)

    async def aclose(self) -> None:
        """Close all of them."""
        await asyncio.gather(*(one.aclose() for one in (self._own, *self._others.values())))
