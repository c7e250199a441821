"""The pages behind the best results: of each, the passage that fits the search takes the place of the snippet."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from retrievers.core.errors import RetrievalError
from retrievers.core.types import Chunk, ChunkId, Hit, Query
from retrievers.http.found import cleaned
from retrievers.text.analysis import analyse
from retrievers.text.split import split
from retrievers.web.provider import day_of
from retrievers.web.recent import Recent

MOST_PAGES = 3
Passages = Recent[tuple[ChunkId, str], Chunk]
"""Of pages that were read, each for one search text."""


class Page(Protocol):
    """A page as it was read."""

    @property
    def text(self) -> str: ...

    @property
    def published(self) -> str | None: ...


class PageFetcher(Protocol):
    """Reads pages whose addresses come from elsewhere."""

    async def fetch(self, url: str, *, timeout_s: float) -> Page:
        """The page.

        Raises:
            BadRequest: the address is not one that is read.
            Unavailable: the page cannot be read.
        """
        ...


async def read(
    hits: Sequence[Hit], query: Query, fetcher: PageFetcher, known: Passages, *, timeout_s: float
) -> list[Hit]:
    """The hits, the first few with a passage of their pages; what cannot be read in time keeps its snippet.

    Args:
        known: passages of pages that were read before; those of this time are added.
        timeout_s: for all of them together.
    """

    async def passage(hit: Hit) -> Hit:
        chunk = hit.chunk
        if chunk is None or chunk.url is None:
            return hit
        found = known.get((hit.id, query.text))
        if found is None:
            try:
                async with asyncio.timeout(timeout_s):
                    page = await fetcher.fetch(chunk.url, timeout_s=timeout_s)
                    found = await asyncio.to_thread(_passage, chunk, page, query)
            except (RetrievalError, TimeoutError):
                return hit
            known.put((hit.id, query.text), found)
        return hit._replace(chunk=found)

    return [*await asyncio.gather(*map(passage, hits[:MOST_PAGES])), *hits[MOST_PAGES:]]


def _passage(chunk: Chunk, page: Page, query: Query) -> Chunk:
    """The passage that shares most terms with the search: a whole page would leave no room for the others."""
    text = cleaned(page.text)
    if not text:
        return chunk
    terms = {term.text for term in analyse(query.text, query.language)}

    def shared(start: int, end: int) -> int:
        return len(terms & {term.text for term in analyse(text[start:end], query.language)})

    span = max(split(text), key=lambda one: shared(one.start, one.end))
    day = chunk.metadata.get("published") or day_of(page.published)
    return replace(
        chunk,
        text=text[span.start : span.end],
        start=span.start,
        end=span.end,
        heading=span.heading,
        metadata={**chunk.metadata, **({"published": day} if day else {})},
    )
