"""Tavily: a search made for models, with scores; https://docs.tavily.com."""

from collections.abc import Iterator
from typing import Any

from retrievers.http.provider_hits import ProviderHit
from retrievers.web.provider import ProviderApi, WebProvider, WebQuery, make_provider_hit, result_list


async def search(api: ProviderApi, wanted: WebQuery) -> Iterator[ProviderHit]:
    """Return the pages that Tavily finds."""
    body: dict[str, Any] = {"query": wanted.text, "max_results": wanted.limit, "search_depth": "basic"}
    if wanted.since or wanted.until:
        # Only its news results have publication dates.
        body["topic"] = "news"
        body |= {"start_date": wanted.since.isoformat()} if wanted.since else {}
        body |= {"end_date": wanted.until.isoformat()} if wanted.until else {}
    answer = await api.request_json("POST", "/search", headers={"Authorization": f"Bearer {api.key}"}, body=body)
    return (
        make_provider_hit(
            one.get("content"),
            one.get("title"),
            one.get("url"),
            score=one.get("score"),
            published=one.get("published_date"),
        )
        for one in result_list(answer, "results")
    )


PROVIDER = WebProvider(
    search,
    address="https://api.tavily.com",
    needs_key=True,
    most_characters=400,
    reasons={
        432: "has no credit left for WEB_API_KEY",
        433: "has no credit left for WEB_API_KEY",
    },
)
