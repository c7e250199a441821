"""SearXNG: a self-hosted metasearch engine, without a key; https://docs.searxng.org/dev/search_api.html."""

import base64
import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from retrievers.core.errors import Unavailable
from retrievers.http.provider_hits import ProviderHit
from retrievers.ingest.readers.text_cleaning import one_line
from retrievers.web.provider import (
    SOURCE,
    ProviderApi,
    WebProvider,
    WebQuery,
    make_provider_hit,
    result_list,
    strip_markup,
)

_log = logging.getLogger(__name__)
_log.addHandler(logging.NullHandler())
# Each range of time for a first day at most so many days ago. Its engines count days differently, so a range must begin
# well before that day.
_RANGES = ((0, "day"), (27, "month"), (360, "year"))
_MOST_ENGINES, _MOST_SHOWN = 10, 150


async def search(api: ProviderApi, wanted: WebQuery) -> Iterator[ProviderHit]:
    """Return the pages that the instance's search engines find, with the score that the instance gives each.

    SearXNG has no such options, so `limit` and `until` of the query are ignored. `since` is widened to the last day,
    month or year, and ignored if it is earlier.

    Raises:
        Unavailable: there are no results, and at least one engine did not answer.
    """
    params = {
        "q": wanted.text,
        "format": "json",
        "language": wanted.language,
        "time_range": _time_range(wanted),
    }
    answer = await api.request_json("GET", "/search", headers=_authorization(api.key), params=params)
    listed = result_list(answer, "results")
    silent = _silent(answer.get("unresponsive_engines"))
    if silent and not listed:
        raise Unavailable(SOURCE, f"no engine of searxng has answered: {silent}")
    if silent:
        _log.warning("some engines of searxng have not answered: %s", silent)
    return (
        make_provider_hit(
            strip_markup(one.get("content")),
            strip_markup(one.get("title")),
            one.get("url"),
            score=one.get("score"),
            published=one.get("publishedDate"),
        )
        for one in listed
    )


def _authorization(key: str) -> dict[str, str]:
    """Return the Authorization header for an instance behind a proxy; {} without a key.

    Args:
        key: a token or `name:password`.
    """
    if not key:
        return {}
    if ":" in key:
        return {"Authorization": f"Basic {base64.b64encode(key.encode()).decode()}"}
    return {"Authorization": f"Bearer {key}"}


def _time_range(wanted: WebQuery) -> str | None:
    if wanted.since is None:
        return None
    days = (datetime.now(UTC).date() - wanted.since).days
    return next((name for most, name in _RANGES if days <= most), None)


def _silent(engines: Any) -> str:
    """Return the search engines that did not answer, each with its reason, as one line; "" if all have answered."""
    listed = engines[:_MOST_ENGINES] if isinstance(engines, list) else []
    pairs = [one for one in listed if isinstance(one, list) and one]
    named = [f"{one[0]} ({one[1]})" if len(one) > 1 else str(one[0]) for one in pairs]
    return one_line(", ".join(named), _MOST_SHOWN)


PROVIDER = WebProvider(
    search,
    reasons={
        401: "wants WEB_API_KEY: a token, or name:password",
        403: "does not answer in JSON: add json to search.formats in its settings.yml",
        429: "limits this client: let it pass in limiter.toml, or switch the limiter off",
    },
)
