"""Tavily: a search made for models, with scores; https://docs.tavily.com."""

from collections.abc import Iterator
from typing import Any

from retrievers.http.found import ProviderHit
from retrievers.web.provider import Api, WebProvider, WebQuery, provider_hit, results


async def search(api: Api, wanted: WebQuery) -> Iterator[ProviderHit]:
    """Return the pages that Tavily finds."""
    body: dict[str, Any] = {"query": wanted.text, "max_results": wanted.limit, "search_depth": "basic"}
    if wanted.since or wanted.until:
        # Only its news results have publication dates.
        body["topic"] = "news"
        body |= {"start_date": wanted.since.isoformat()} if wanted.since else {}
        body |= {"end_date": wanted.until.isoformat()} if wanted.until else {}
    answer = await api.json("POST", "/search", headers={"Authorization": f"Bearer {api.key}"}, body=body)
    return (
        provider_hit(
            one.get("content"),
            one.get("title"),
            one.get("url"),
            score=one.get("score"),
            published=one.get("published_date"),
        )
        for one in results(answer, "results")
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
