"""Web pages as a source: the pages in a sitemap or a list of addresses.

A list is text with one address per line. `retrievers.http.page_fetcher` reads the pages and refuses addresses that are
not public.
"""

import asyncio
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from urllib.parse import urlsplit
from xml.etree import ElementTree

from retrievers.core.errors import BadRequest, RetrievalError
from retrievers.http.page_fetcher import FetchedPage, Fetcher, PageGone
from retrievers.http.urls import parse_url
from retrievers.ingest.documents import RejectedItem
from retrievers.ingest.readers.file_input import read_record
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.sandbox import CancelCheck
from retrievers.sync.source import (
    MOST_KEY_CHARACTERS,
    ItemDocument,
    ItemEnd,
    ItemRequest,
    Listing,
    ReadEvent,
    SourceItem,
    UnreadableItem,
    raise_if_cancelled,
)

MOST_PAGES = 50_000
_MOST_MAPS = 100
_MOST_MARKUP = 12 * MOST_PAGES
"""Maximum number of "<" and "=" in one sitemap. The entry of a page has up to 10 "<"."""
_PIECE_CHARACTERS = 64 << 10
_PAGE_S = 20.0
_AT_ONCE = 4
"""Number of pages fetched in parallel. Low, because most lists name pages of a single server."""


@dataclass(slots=True)
class WebPagesSource:
    """The pages of a sitemap or list.

    A page whose `lastmod` in the sitemap is the same as before is not fetched. A page without `lastmod` is fetched in
    every run, and its content is compared.

    Attributes:
        url: address of the sitemap, the sitemap index or the list.
    """

    url: str
    fetcher: Fetcher = field(default_factory=lambda: Fetcher(cache_s=0))

    def __post_init__(self) -> None:
        try:
            self.url = parse_url(self.url).url
        except BadRequest as error:
            raise BadRequest(f"the source is refused: {error}", where="source") from None

    @property
    def name(self) -> str:
        """See `Source.name`. The query is replaced by a hash, as it may contain a key. A trailing slash is removed."""
        query = urlsplit(self.url).query
        bare = self.url.partition("?")[0].rstrip("/")
        return f"{bare}?{hashlib.sha256(query.encode()).hexdigest()[:8]}" if query else bare

    def list_items(self, is_cancelled: CancelCheck) -> Listing:
        """See `Source.list_items`. Raises if one of several sitemaps cannot be read: its pages may still exist."""
        items: dict[str, SourceItem] = {}
        failed: list[RejectedItem] = []
        waiting, seen = [self.url], 0
        while waiting:
            raise_if_cancelled(is_cancelled)
            url, seen = waiting.pop(), seen + 1
            page = asyncio.run(self.fetcher.fetch(url, timeout_s=_PAGE_S))
            maps, entries = _read_links(page)
            waiting += maps
            if seen + len(waiting) > _MOST_MAPS:
                raise BadRequest(f"it names more than {_MOST_MAPS} sitemaps", where="source")
            for address, changed in entries:
                _add_item(items, failed, address, changed)
            if len(items) + len(failed) > MOST_PAGES:
                raise BadRequest(
                    f"it names more than {MOST_PAGES:,} pages: sync its sitemaps one by one", where="source"
                )
        return Listing([*items.values()], failed=failed)

    def read(self, requests: Sequence[ItemRequest], is_cancelled: CancelCheck) -> Iterator[ReadEvent]:
        """See `Source.read`."""
        left = iter(requests)
        while some := list(islice(left, _AT_ONCE)):
            raise_if_cancelled(is_cancelled)
            for one, found in zip(some, asyncio.run(self._fetch([one.key for one in some])), strict=True):
                yield from _read_page(one, found)

    async def _fetch(self, urls: Sequence[str]) -> list[FetchedPage | RetrievalError]:
        async def fetched(url: str) -> FetchedPage | RetrievalError:
            try:
                return await self.fetcher.fetch(url, timeout_s=_PAGE_S)
            except RetrievalError as error:
                return error

        return list(await asyncio.gather(*map(fetched, urls)))


def _read_page(one: ItemRequest, found: FetchedPage | RetrievalError) -> Iterator[ReadEvent]:
    if isinstance(found, PageGone):
        yield ItemDocument(one.key, RejectedItem(one.key, one.key, str(found)))
        yield ItemEnd(one.key)
    elif isinstance(found, RetrievalError):
        yield UnreadableItem(one.key, str(found))  # the error may be temporary, so the page's document must stay
    else:
        said = "\n".join((found.url, found.title, found.published or "", found.text))
        digest = hashlib.sha256(said.encode(errors="surrogatepass")).digest()
        if digest != one.digest:
            metadata = {"published": found.published} if found.published else {}
            record = {"id": one.key, "title": found.title or one.key, "text": found.text, "url": found.url}
            yield ItemDocument(one.key, read_record({**record, "metadata": metadata}, one.key))
        yield ItemEnd(one.key, digest, is_unchanged=digest == one.digest)


def _add_item(items: dict[str, SourceItem], failed: list[RejectedItem], address: str, changed: str | None) -> None:
    shown = one_line(address, 100)
    try:
        key = parse_url(address).url
    except BadRequest as error:
        failed.append(RejectedItem(shown, None, f"its address is refused: {error}"))
        return
    if len(key) > MOST_KEY_CHARACTERS:
        failed.append(RejectedItem(shown, None, f"its address has more than {MOST_KEY_CHARACTERS} characters"))
    else:
        items.setdefault(key, SourceItem(key, changed))


def _read_links(page: FetchedPage) -> tuple[list[str], list[tuple[str, str | None]]]:
    """Read a sitemap, a sitemap index or a list of addresses.

    Returns:
        The addresses of further sitemaps, and (address, time of change) of each page. The time is None if not stated.
    Raises:
        BadRequest: `page` is neither a sitemap, nor a sitemap index, nor a list of addresses.
    """
    text = page.text.lstrip("\ufeff")
    if page.content_type == "text/plain" and not text.startswith("<"):
        lines = (line.strip() for line in text.splitlines())
        return [], [(line, None) for line in lines if line and not line.startswith("#")]
    # Without a document type declaration there are no entities to expand.
    if "<!" in text.replace("<!--", "").replace("<![CDATA[", ""):
        raise BadRequest("it is not a sitemap: it declares a document type", where="source")
    if text.count("<") + text.count("=") > _MOST_MARKUP:
        raise BadRequest("it has too many XML elements", where="source")
    try:
        parser = ElementTree.XMLParser()
        # In pieces, because the parser blocks all other threads.
        for start in range(0, len(text), _PIECE_CHARACTERS):
            parser.feed(text[start : start + _PIECE_CHARACTERS])
        root = parser.close()
    except (ElementTree.ParseError, ValueError) as error:
        raise BadRequest(
            f"it is neither a sitemap nor a list of addresses: {one_line(str(error), 100)}", where="source"
        ) from None
    kind = root.tag.rpartition("}")[2]
    if kind not in ("urlset", "sitemapindex"):
        raise BadRequest("it is neither a sitemap nor a list of addresses", where="source")
    entries = []
    for child in root:
        said = {part.tag.rpartition("}")[2]: (part.text or "").strip() for part in child}
        if said.get("loc"):
            entries.append((said["loc"], said.get("lastmod") or None))
    return ([loc for loc, _ in entries], []) if kind == "sitemapindex" else ([], entries)
