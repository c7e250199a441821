"""The web as a source: searches a provider, caches the answer for a while, and returns pages as hits."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from urllib.parse import urlsplit

from retrievers.core.errors import BadFilter, join_names
from retrievers.core.filters import And, FieldCondition, Filter, filter_keys, matches_filter
from retrievers.core.types import Card, Hit, Query
from retrievers.http.provider_hits import ProviderHit, convert_provider_hits
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.text.languages import detect_language
from retrievers.web import CARD, pages
from retrievers.web.pages import PageFetcher
from retrievers.web.provider import SOURCE, ProviderApi, WebProvider, WebQuery, truncate_search_text
from retrievers.web.ttl_cache import TtlCache

MOST_RESULTS = 20
"""Maximum number of results of one search. Every provider returns as many in one call, at the same price as fewer."""
CACHED_S = 600.0
_MOST_KEPT = 256
_PUBLISHED = "published"
# Pages are read until this fraction of the search's timeout has passed, if at least so many seconds are left by then.
# This leaves time to return the results.
_READ_BY, _LEAST_READ_S = 0.8, 0.1
_TRACKING = ("utm_", "fbclid", "gclid", "msclkid", "yclid", "dclid", "igshid", "mc_cid", "mc_eid", "_hsenc", "_hsmi")


@dataclass(frozen=True, slots=True)
class _CachedSearch:
    """The results of one search, without duplicates, and the time of the search."""

    found: tuple[ProviderHit, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class Web:
    """The retriever that searches the web through one provider.

    Args:
        fetcher: reads the pages of the best results; None to keep the provider's snippets.
    """

    provider: WebProvider
    api: ProviderApi
    fetcher: PageFetcher | None = None
    _recent: TtlCache[tuple[str, WebQuery], _CachedSearch] = field(
        init=False, repr=False, default_factory=lambda: TtlCache(most=_MOST_KEPT, keep_s=CACHED_S)
    )

    @property
    def card(self) -> Card:
        """See `Retriever.card`."""
        return CARD

    async def search(self, query: Query) -> list[Hit]:
        """Return pages sorted by the provider's score, or in its order if it gives none; see `Retriever.search`.

        Raises:
            BadFilter: the filter has conditions on other fields than the publication date.
        """
        started = time.monotonic()
        wanted = self._wanted(query)
        if not wanted.text or (wanted.since and wanted.until and wanted.since > wanted.until):
            return []
        # Cached per tenant: otherwise a fast answer would reveal that another tenant has asked the same.
        key = (query.scope.tenant, wanted)
        answer = self._recent.get(key)
        if answer is None:
            found = await self.provider.search(self.api, wanted)
            answer = _CachedSearch(await asyncio.to_thread(_distinct, found), datetime.now(UTC))
            self._recent.put(key, answer)
        fitting = [one for one in answer.found if query.filter is None or _satisfies(one, query.filter)]
        hits = convert_provider_hits(fitting, query, SOURCE, at=answer.at)
        left_s = started + _READ_BY * self.api.timeout_s - time.monotonic()
        if self.fetcher is None or left_s < _LEAST_READ_S:
            return hits
        return await pages.replace_snippets(hits, query, self.fetcher, timeout_s=left_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.api.client.aclose()

    def _wanted(self, query: Query) -> WebQuery:
        text = truncate_search_text(one_line(query.text), self.provider.most_characters, self.provider.most_words)
        since, until = None, None
        if query.filter is not None:
            self._check(query.filter, query)
            since, until = _days(query.filter)
        # Detected anew, because `query.language` is limited to the languages of the documents.
        return WebQuery(text, detect_language(text), min(MOST_RESULTS, query.limit), since, until)

    def _check(self, wanted: Filter, query: Query) -> None:
        """Raise BadFilter if the filter names fields that web pages lack: all except the publication date."""
        kinds = {one.fields[_PUBLISHED].item for one in query.scope.collections if _PUBLISHED in one.fields}
        dated = self.provider.dates and kinds == {"date"}
        others = filter_keys(wanted) - ({_PUBLISHED} if dated else set())
        if others:
            raise BadFilter(
                f"web pages do not have the documents' metadata: they cannot be filtered by {join_names(others, 5)}",
                where="filter",
                valid=(_PUBLISHED,) if dated else (),
            )


def _distinct(found: Iterator[ProviderHit]) -> tuple[ProviderHit, ...]:
    """Return one result per page, with the page's address as id. Results without an address are left out."""
    kept: dict[str, ProviderHit] = {}
    for one in found:
        page = _page_of(one.url)
        if page:
            kept.setdefault(page, replace(one, id=page))
    return tuple(kept.values())


def _page_of(url: str | None) -> str | None:
    """Return a page's address without tracking parameters and fragment; None if it is invalid.

    Different links to one page then have the same address.
    """
    try:
        parts = urlsplit(url or "")
        if not parts.hostname:
            return None
    except ValueError:
        return None
    kept = [one for one in parts.query.split("&") if not one.lower().startswith(_TRACKING)]
    return parts._replace(
        scheme=parts.scheme.lower(),
        netloc=parts.netloc.lower(),
        path=parts.path or "/",
        query="&".join(kept),
        fragment="",
    ).geturl()


def _satisfies(one: ProviderHit, wanted: Filter) -> bool:
    """Return whether a result has a publication date that satisfies the filter."""
    published = one.metadata.get(_PUBLISHED)
    return published is not None and matches_filter(wanted, {_PUBLISHED: published})


def _days(wanted: Filter) -> tuple[date | None, date | None]:
    """Return the first and last day that a filter on the publication date allows, None for no bound.

    The range is one day wider on each side, because providers use other time zones.
    """
    match wanted:
        case And(parts):
            bounds = [_days(part) for part in parts]
            return (
                max((since for since, _ in bounds if since), default=None),
                min((until for _, until in bounds if until), default=None),
            )
        case FieldCondition("eq", _, str(value)):
            return _shifted(value, -1), _shifted(value, 1)
        case FieldCondition("gt" | "gte", _, str(value)):
            return _shifted(value, -1), None
        case FieldCondition("lt" | "lte", _, str(value)):
            return None, _shifted(value, 1)
    return None, None


def _shifted(value: str, days: int) -> date:
    ordinal = date.fromisoformat(value[:10]).toordinal() + days
    return date.fromordinal(min(max(ordinal, 1), date.max.toordinal()))
