"""The embedders of a service: the one in its settings, and those of collections that were built with others."""

import asyncio
from collections.abc import Callable, Sequence
from threading import Lock

from retrievers.core.errors import BadRequest
from retrievers.core.types import Scope
from retrievers.embed import Embedder, Vectors

LANGUAGES = {"minilm": frozenset({"en"})}
"""Languages of embedders that know only a few."""
OpenEmbedder = Callable[[str], Embedder]


class Embedders:
    """The service's embedder, usable as an `Embedder`, and other embedders by name, built when first needed.

    Args:
        own: the embedder in the settings; new collections use it.
        opener: builds another embedder, or raises BadRequest for an unknown name. None if there are no others.
        check: raises BadRequest for an unknown name, without building the embedder. None to accept every name.
    """

    def __init__(
        self, own: Embedder, opener: OpenEmbedder | None = None, check: Callable[[str], None] | None = None
    ) -> None:
        self._own, self._opener, self._check = own, opener, check
        self._lock = Lock()
        self._others: dict[str, Embedder] = {}
        self.name, self.languages, self.query_cache = own.name, own.languages, own.query_cache

    @classmethod
    def of(cls, embedder: Embedder) -> "Embedders":
        """Return `Embedders` with this embedder as the service's; an `Embedders` is returned unchanged."""
        return embedder if isinstance(embedder, cls) else cls(embedder)

    async def get(self, name: str) -> Embedder:
        """Return the embedder of this name. Its model is loaded at the first use.

        Raises:
            BadRequest: no such embedder can be built here.
        """
        if name == self._own.name:
            return self._own
        if name in self._others:
            return self._others[name]
        # In a thread, because the first embedder of a provider imports a library, which takes seconds.
        return await asyncio.to_thread(self._opened, name)

    def _opened(self, name: str) -> Embedder:
        self.check(name)
        assert self._opener is not None
        with self._lock:
            if name not in self._others:
                self._others[name] = self._opener(name)
            return self._others[name]

    def check(self, name: str) -> None:
        """Check the name of an embedder.

        Raises:
            BadRequest: no such embedder can be built here.
        """
        if name == self._own.name:
            return
        if self._opener is None:
            raise BadRequest(f"this service cannot open the embedder {name}", where="embedder")
        if self._check is not None:
            self._check(name)

    def can_open(self, name: str | None) -> bool:
        """Return whether an embedder of this name can be built here."""
        try:
            self.check(name or "")
        except BadRequest:
            return False
        return True

    def languages_in(self, scope: Scope) -> frozenset[str] | None:
        """Return the languages that all embedders of the scope's collections know; None if no language is excluded.

        Only the service's embedder counts if the scope has documents outside the database, or if none of its
        collections has an embedder that can be built here.
        """
        names = {
            one.embedder for one in scope.collections if one.chunks and one.embedder and self.can_open(one.embedder)
        }
        known = (
            [self._languages(name) for name in names] if names and not scope.external_collections else [self.languages]
        )
        limited = [one for one in known if one is not None]
        return frozenset.intersection(*limited) if limited else None

    def _languages(self, name: str) -> frozenset[str] | None:
        if name == self._own.name:
            return self.languages
        return self._others[name].languages if name in self._others else LANGUAGES.get(name)

    async def dimension(self) -> int:
        """Return the dimension of the service's embedder, see `Embedder.dimension`."""
        return await self._own.dimension()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return vectors of the service's embedder, see `Embedder.embed`."""
        return await self._own.embed(texts)

    async def embed_query(self, text: str) -> Vectors:
        """Return a vector of the service's embedder, see `Embedder.embed_query`."""
        return await self._own.embed_query(text)

    async def aclose(self) -> None:
        """Close all embedders."""
        await asyncio.gather(*(one.aclose() for one in (self._own, *self._others.values())))
