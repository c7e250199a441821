"""Exa: semantic search, with excerpts of the pages; https://docs.exa.ai."""

from collections.abc import Iterator
from typing import Any

from retrievers.http.provider_hits import ProviderHit
from retrievers.web.provider import ProviderApi, WebProvider, WebQuery, make_provider_hit, result_list

_EXCERPT_CHARACTERS = 2_000


async def search(api: ProviderApi, wanted: WebQuery) -> Iterator[ProviderHit]:
    """Return the pages that Exa finds."""
    body: dict[str, Any] = {
        "query": wanted.text,
        "type": "auto",
        "numResults": wanted.limit,
        "contents": {"highlights": {"maxCharacters": _EXCERPT_CHARACTERS}},
    }
    if wanted.since:
        body["startPublishedDate"] = f"{wanted.since}T00:00:00.000Z"
    if wanted.until:
        body["endPublishedDate"] = f"{wanted.until}T23:59:59.999Z"
    answer = await api.request_json("POST", "/search", headers={"x-api-key": api.key}, body=body)
    return (
        make_provider_hit(
            _excerpt(one), one.get("title"), one.get("url"), score=one.get("score"), published=one.get("publishedDate")
        )
        for one in result_list(answer, "results")
    )


def _excerpt(one: Any) -> object:
    """Return the excerpts that match the search, or the page's summary or text if there are none."""
    highlights = one.get("highlights")
    texts = [text for text in highlights if isinstance(text, str)] if isinstance(highlights, list) else []
    return "\n".join(texts) or one.get("summary") or one.get("text")


PROVIDER = WebProvider(search, address="https://api.exa.ai", needs_key=True, most_characters=2_000)
