"""Web search through a provider: tavily, brave, searxng, exa or ddgs."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

from retrievers.core.errors import BadFilter, BadRequest, listing
from retrievers.core.filters import And, Compare, Filter, keys_of, matches
from retrievers.core.types import Card, Hit, Query
from retrievers.http.client import Client
from retrievers.http.found import Found, hits_of
from retrievers.ingest.clean import one_line
from retrievers.registry import Resources
from retrievers.web import brave, ddgs, exa, pages, searxng, tavily
from retrievers.web.pages import PageFetcher, Passages
from retrievers.web.provider import SOURCE, Api, Provider, Search, shortened
from retrievers.web.recent import Recent

CARD = Card(
    name=SOURCE,
    kind="outside",
    good_for="the world outside the documents: news, prices, weather, people in office, latest releases",
    examples=(
        "What is the latest stable version of PostgreSQL?",
        "Who is the prime minister of Japan now?",
        "What is the weather in Berlin tomorrow?",
        "How much does a ticket for the Louvre cost?",
        "Did the central bank change interest rates this week?",
        "What are the symptoms people report with this year's flu?",
        "Which team won the match last night?",
        "Is there a recall of this car model?",
        "今天北京的天气怎么样？",
        "最新一代手机卖多少钱？",
        "本周有哪些重要新闻？",
        "现在的房贷利率是多少？",
    ),
)

PROVIDERS: Mapping[str, Provider] = {
    "brave": brave.PROVIDER,
    "ddgs": ddgs.PROVIDER,
    "exa": exa.PROVIDER,
    "searxng": searxng.PROVIDER,
    "tavily": tavily.PROVIDER,
}
MOST_PAGES = 20
"""Of one search: what every provider gives at once and for one price."""
KEPT_S = 600.0
_MOST_KEPT = 256
_PUBLISHED = "published"
# Pages are read in what a search leaves of the source's time, so that its results are there in any case.
_READ_BY, _LEAST_READ_S = 0.8, 0.1
_TRACKING = ("utm_", "fbclid", "gclid", "msclkid", "yclid", "dclid", "igshid", "mc_cid", "mc_eid", "_hsenc", "_hsmi")


@dataclass(frozen=True, slots=True)
class _Answer:
    """The pages of one search, each once, and when they were found."""

    found: tuple[Found, ...]
    at: datetime


@dataclass(frozen=True, slots=True)
class Web:
    """The web, as one provider finds it.

    Args:
        fetcher: reads the pages of the best results; without one the provider's snippets stand.
    """

    provider: Provider
    api: Api
    fetcher: PageFetcher | None = None
    _recent: Recent[tuple[str, Search], _Answer] = field(default_factory=lambda: Recent(most=_MOST_KEPT, keep_s=KEPT_S))
    _passages: Passages = field(default_factory=lambda: Recent(most=_MOST_KEPT, keep_s=KEPT_S))

    @property
    def card(self) -> Card:
        """See `Retriever.card`."""
        return CARD

    async def search(self, query: Query) -> list[Hit]:
        """Pages in the provider's order; see `Retriever.search`.

        Raises:
            BadFilter: the filter asks for more than when a page was published.
        """
        started = time.monotonic()
        wanted = self._wanted(query)
        if not wanted.text:
            return []
        # Per tenant: how fast an answer comes must not tell what another has asked.
        key = (query.scope.tenant, wanted)
        answer = self._recent.get(key)
        if answer is None:
            found = await self.provider.search(self.api, wanted)
            answer = _Answer(tuple(_distinct(found)), datetime.now(UTC))
            self._recent.put(key, answer)
        fitting = [one for one in answer.found if query.filter is None or _satisfies(one, query.filter)]
        hits = hits_of(fitting, query, SOURCE, at=answer.at)
        left_s = started + _READ_BY * self.api.timeout_s - time.monotonic()
        if self.fetcher is None or left_s < _LEAST_READ_S:
            return hits
        return await pages.read(hits, query, self.fetcher, self._passages, timeout_s=left_s)

    async def aclose(self) -> None:
        """Close the connections."""
        await self.api.client.aclose()

    def _wanted(self, query: Query) -> Search:
        text = shortened(one_line(query.text), self.provider.most_characters, self.provider.most_words)
        since, until = None, None
        if query.filter is not None:
            self._check(query.filter, query)
            since, until = _days(query.filter)
        return Search(text, query.language, min(MOST_PAGES, query.limit), since, until)

    def _check(self, wanted: Filter, query: Query) -> None:
        """Of the documents' fields a page has at most one: when it was published."""
        kinds = {one.fields[_PUBLISHED].item for one in query.scope.collections if _PUBLISHED in one.fields}
        dated = self.provider.dates and kinds == {"date"}
        others = keys_of(wanted) - ({_PUBLISHED} if dated else set())
        if others:
            raise BadFilter(
                f"a web page has none of the documents' metadata: it cannot be filtered by {listing(others, 5)}",
                where="filter",
                valid=(_PUBLISHED,) if dated else (),
            )


def build(resources: Resources) -> Web | None:
    """The web, by the settings WEB_PROVIDER, WEB_API_KEY, WEB_BASE_URL and WEB_FETCH; None without the first.

    Raises:
        BadRequest: the settings name no provider there is, or lack what it needs.
    """
    options = resources.options
    given = (options.get("web_provider") or "").strip()
    if not given:
        return None
    name, _, own_address = given.partition(":")
    provider = PROVIDERS.get(name)
    if provider is None or (own_address and name != "searxng"):
        valid = [f"{one}:URL" if one == "searxng" else one for one in PROVIDERS]
        raise BadRequest(
            f'setting WEB_PROVIDER: there is no web provider "{one_line(name, 40)}"; there are: {listing(valid)}',
            where="web_provider",
            valid=valid,
        )
    key = (options.get("web_api_key") or "").strip()
    if provider.needs_key and not key:
        raise BadRequest(f"setting WEB_API_KEY is missing: {name} needs one", where="web_api_key")
    if not key.isascii() or not key.isprintable():
        raise BadRequest("setting WEB_API_KEY holds a character that no key has", where="web_api_key")
    if provider.package and find_spec(provider.package) is None:
        raise BadRequest(
            f"setting WEB_PROVIDER: {name} is not installed: pip install 'signalbox[web]'", where="web_provider"
        )
    address = _address(name, provider, own_address, options)
    api = Api(
        name,
        Client(SOURCE, secrets=[key]),
        address,
        key,
        float(options.get("source_timeout_s") or 3.0),
        provider.reasons,
    )
    return Web(provider, api, fetcher=None)


def _address(name: str, provider: Provider, own: str, options: Mapping[str, Any]) -> str:
    """Of the API, without what the provider's module adds to it."""
    base = (options.get("web_base_url") or "").strip()
    if base and provider.package:
        raise BadRequest(f"setting WEB_BASE_URL: {name} has no address of its own", where="web_base_url")
    if provider.package:
        return ""
    where = "web_base_url" if base else "web_provider"
    address = (base or own or provider.address).rstrip("/").removesuffix("/search")
    try:
        parts = urlsplit(address)
        named = bool(parts.hostname) and parts.port != 0  # a port that cannot be is a ValueError
        usable = parts.scheme in ("http", "https") and named and not parts.query + parts.fragment
    except ValueError:
        usable = False
    if not usable:
        raise BadRequest(
            f"setting {where.upper()}: {name} needs an address such as http://localhost:8888, as {name}:URL"
            if not base
            else f"setting {where.upper()} is no address such as http://localhost:8888",
            where=where,
        )
    if parts.username is not None or parts.password is not None:
        raise BadRequest(
            f"setting {where.upper()} holds a password, which logs would show: put name:password into WEB_API_KEY",
            where=where,
        )
    return address


def _distinct(found: list[Found]) -> list[Found]:
    """The pages that have an address, each once, however it was linked to."""
    kept: dict[str, Found] = {}
    for one in found:
        page = _page_of(one.url)
        if page:
            kept.setdefault(page, replace(one, id=page))
    return list(kept.values())


def _page_of(url: str | None) -> str | None:
    """The address without what differs between links to one page; None when it is none."""
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


def _satisfies(one: Found, wanted: Filter) -> bool:
    """Whether the page is known to satisfy a filter on when it was published."""
    published = one.metadata.get(_PUBLISHED)
    return published is not None and matches(wanted, {_PUBLISHED: published})


def _days(wanted: Filter) -> tuple[date | None, date | None]:
    """The days between which a filter's pages lie, one day wider on each side: providers' days begin elsewhere."""
    match wanted:
        case And(parts):
            bounds = [_days(part) for part in parts]
            return (
                max((since for since, _ in bounds if since), default=None),
                min((until for _, until in bounds if until), default=None),
            )
        case Compare("eq", _, str(value)):
            return _shifted(value, -1), _shifted(value, 1)
        case Compare("gt" | "gte", _, str(value)):
            return _shifted(value, -1), None
        case Compare("lt" | "lte", _, str(value)):
            return None, _shifted(value, 1)
    return None, None


def _shifted(value: str, days: int) -> date:
    ordinal = date.fromisoformat(value[:10]).toordinal() + days
    return date.fromordinal(min(max(ordinal, 1), date.max.toordinal()))
