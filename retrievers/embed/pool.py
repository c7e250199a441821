"""The embedders of a service: its own, and those that collections were made with."""

import asyncio
from collections.abc import Callable, Sequence
from threading import Lock

from retrievers.core.errors import BadRequest
from retrievers.core.types import Scope
from retrievers.embed import Embedder, Vectors

LANGUAGES = {"minilm": frozenset({"en"})}
"""Languages of embedders that do not know many."""
Open = Callable[[str], Embedder]


class Embedders:
    """The service's embedder, which is also `Embedder` itself, and others by name, opened when they are first needed.

    Args:
        own: of the settings: new collections are made with it.
        opener: opens another, and raises BadRequest where there is none of that name; without one there is no other.
        check: raises so without opening it.
    """

    def __init__(self, own: Embedder, opener: Open | None = None, check: Callable[[str], None] | None = None) -> None:
        self._own, self._opener, self._check = own, opener, check
        self._lock = Lock()
        self._others: dict[str, Embedder] = {}
        self.name, self.languages, self.recent = own.name, own.languages, own.recent

    @classmethod
    def of(cls, embedder: Embedder) -> "Embedders":
        """The embedder with those beside it, if there are any."""
        return embedder if isinstance(embedder, cls) else cls(embedder)

    async def named(self, name: str) -> Embedder:
        """The embedder of that name; its model is not loaded before it is used.

        Raises:
            BadRequest: there is none that can be opened here.
        """
        if name == self._own.name:
            return self._own
        if name in self._others:
            return self._others[name]
        # In a thread: the first of a provider imports its library, which takes seconds.
        return await asyncio.to_thread(self._opened, name)

    def _opened(self, name: str) -> Embedder:
        self.check(name)
        assert self._opener is not None
        with self._lock:
            if name not in self._others:
                self._others[name] = self._opener(name)
            return self._others[name]

    def check(self, name: str) -> None:
        """Raises:
        BadRequest: there is no embedder of that name that can be opened here.
        """
        if name == self._own.name:
            return
        if self._opener is None:
            raise BadRequest(f"the embedder {name} cannot be opened here", where="embedder")
        if self._check is not None:
            self._check(name)

    def has(self, name: str | None) -> bool:
        """Whether there is one of that name."""
        try:
            self.check(name or "")
        except BadRequest:
            return False
        return True

    def languages_in(self, scope: Scope) -> frozenset[str] | None:
        """The languages that the embedders of all that is searched know, None where each knows many."""
        names = {one.embedder for one in scope.collections if one.chunks and one.embedder and self.has(one.embedder)}
        known = [self._languages(name) for name in names] if names and not scope.beside else [self.languages]
        limited = [one for one in known if one is not None]
        return frozenset.intersection(*limited) if limited else None

    def _languages(self, name: str) -> frozenset[str] | None:
        if name == self._own.name:
            return self.languages
        return self._others[name].languages if name in self._others else LANGUAGES.get(name)

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
