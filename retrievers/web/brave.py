"""Brave Search: its own index, without scores; https://api-dashboard.search.brave.com/app/documentation."""

from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

from retrievers.http.provider_hits import ProviderHit, value_at
from retrievers.web.provider import ProviderApi, WebProvider, WebQuery, make_provider_hit, result_list, strip_markup

_LANGUAGES = {"ja": "jp", "pt": "pt-br", "zh": "zh-hans"}
_MOST_SNIPPETS = 5
"""Maximum number of snippets beside the description. The API returns no more."""
_FIRST_DAY = date(1990, 1, 1)


async def search(api: ProviderApi, wanted: WebQuery) -> Iterator[ProviderHit]:
    """Return the web pages that Brave finds."""
    answer = await api.request_json(
        "GET",
        "/res/v1/web/search",
        headers={"X-Subscription-Token": api.key, "Accept": "application/json"},
        params={
            "q": wanted.text,
            "count": wanted.limit,
            "search_lang": _LANGUAGES.get(wanted.language, wanted.language),
            "result_filter": "web",
            "text_decorations": "false",
            "freshness": _freshness(wanted),
        },
    )
    if value_at(answer, "query") is not None and value_at(answer, "web") is None:
        return iter(())  # this is how Brave reports no results
    return map(_found, result_list(answer, "web", "results"))


def _found(one: Mapping[str, Any]) -> ProviderHit:
    more = one.get("extra_snippets")
    snippets = [one.get("description"), *(more[:_MOST_SNIPPETS] if isinstance(more, list) else [])]
    text = "\n".join(filter(None, map(strip_markup, snippets)))
    return make_provider_hit(text, strip_markup(one.get("title")), one.get("url"), published=one.get("page_age"))


def _freshness(wanted: WebQuery) -> str | None:
    if wanted.since is None and wanted.until is None:
        return None
    since = wanted.since or _FIRST_DAY
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    return f"{since}to{wanted.until or max(tomorrow, since)}"


PROVIDER = WebProvider(
    search, address="https://api.search.brave.com", needs_key=True, most_characters=400, most_words=50
)
