"""Read the pages of the best results, and replace each snippet by the passage of its page that fits the search best."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from retrievers.core.errors import RetrievalError
from retrievers.core.types import Chunk, Hit, Query
from retrievers.ingest.readers.text_cleaning import Cleaner
from retrievers.text.analysis import analyse
from retrievers.text.chunking import split_passages
from retrievers.web.provider import publication_day

MOST_PAGES = 3
_MOST_CHARACTERS = 100_000


class PageText(Protocol):
    """A page that was read."""

    @property
    def text(self) -> str: ...

    @property
    def published(self) -> str | None: ...


class PageFetcher(Protocol):
    """Reads pages from addresses that anybody may have written, and caches them for a while."""

    async def fetch(self, url: str, *, timeout_s: float) -> PageText:
        """Return the page at an address.

        Raises:
            BadRequest: the address is not allowed.
            Unavailable: the page cannot be read.
        """
        ...


async def replace_snippets(hits: Sequence[Hit], query: Query, fetcher: PageFetcher, *, timeout_s: float) -> list[Hit]:
    """Return the hits, with the text of each of the first MOST_PAGES replaced by a passage of its page.

    A hit whose page cannot be read in time keeps the provider's snippet.

    Args:
        timeout_s: time limit for all pages together, in seconds.
    """

    async def passage(hit: Hit) -> Hit:
        chunk = hit.chunk
        if chunk is None or chunk.url is None:
            return hit
        try:
            async with asyncio.timeout(timeout_s):
                page = await fetcher.fetch(chunk.url, timeout_s=timeout_s)
                return hit._replace(chunk=await asyncio.to_thread(_passage, chunk, page, query))
        except (RetrievalError, TimeoutError):
            return hit

    return [*await asyncio.gather(*map(passage, hits[:MOST_PAGES])), *hits[MOST_PAGES:]]


def _passage(chunk: Chunk, page: PageText, query: Query) -> Chunk:
    """Return the chunk with its text replaced by the passage of its page that shares most terms with the search.

    The whole page would leave no room for other hits. If the page has no text, the chunk is returned unchanged.
    """
    text = Cleaner().clean_text(page.text[:_MOST_CHARACTERS])
    if not text.strip():
        return chunk
    terms = {term.text for term in analyse(query.text, query.language)}

    def shared(start: int, end: int) -> int:
        return len(terms & {term.text for term in analyse(text[start:end], query.language)})

    span = max(split_passages(text), key=lambda one: shared(one.start, one.end))
    day = chunk.metadata.get("published") or publication_day(page.published)
    return replace(
        chunk,
        text=text[span.start : span.end],
        start=span.start,
        end=span.end,
        heading=span.heading,
        metadata={**chunk.metadata, **({"published": day} if day else {})},
    )
