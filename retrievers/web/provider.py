"""What all web search providers share: the interface of a search, calls of an API, and conversion of results."""

import html
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from retrievers.core.errors import TooCostly, Unavailable
from retrievers.http.json_client import JsonClient, ProviderRefusal
from retrievers.http.provider_hits import (
    MOST_CHARACTERS,
    ProviderHit,
    clean_text,
    finite_number,
    json_objects,
    safe_link,
    value_at,
)

SOURCE = "web"
_MOST_SNIPPET = 4_000
_LONGEST_DATE = 100
_HIGHLIGHT = re.compile(r"</?(?:b|br|em|i|mark|p|span|strong|u|wbr)\b[^<>]{0,200}>", re.IGNORECASE)
_REFUSES_SEARCH = frozenset({400, 413, 414, 422})
_REASONS: Mapping[int, str] = {
    401: "does not accept WEB_API_KEY",
    402: "has no credit left for WEB_API_KEY",
    403: "does not allow WEB_API_KEY to search",
    404: "has no such API: correct the address",
    429: "allows no more searches for now",
}


@dataclass(frozen=True, slots=True)
class WebQuery:
    """One search of the web.

    Attributes:
        text: the search text on one line, no longer than the provider accepts.
        language: ISO 639-1 code of the text.
        limit: maximum number of pages.
        since, until: range of publication dates, inclusive; None for no bound. A provider may ignore them: the caller
            checks every page, and the range only avoids results that would be dropped.
    """

    text: str
    language: str
    limit: int
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True, slots=True)
class ProviderApi:
    """A provider's API with its address and the operator's key.

    Attributes:
        name: the provider's name, for error messages.
        key: value of WEB_API_KEY; "" without a key.
        timeout_s: time limit of one call including retries, in seconds.
        reasons: HTTP status to its meaning, as text after the provider's name: {432: "has no credit left"}.
    """

    name: str
    client: JsonClient
    address: str
    key: str = field(repr=False)
    timeout_s: float
    reasons: Mapping[int, str] = field(default_factory=dict)

    async def request_json(
        self,
        method: Literal["GET", "POST"],
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """Send a request and return the JSON of the answer.

        Raises:
            TooCostly: status 400, 413, 414 or 422: the provider refuses this search but works.
            ProviderRefusal: any other error status; the reason says what to do.
            Unavailable: as for `JsonClient.request_json`.
        """
        try:
            return await self.client.request_json(
                method, self.address + path, headers=headers, params=params, body=body, timeout_s=self.timeout_s
            )
        except ProviderRefusal as error:
            if error.status in _REFUSES_SEARCH:
                # The provider works and would answer other searches, so its circuit breaker must not open.
                raise TooCostly(SOURCE, f"{self.name} refuses this search ({error.reason})") from error
            fallback = "redirects: correct the address" if error.status < 400 else "answers with an error"
            reason = self.reasons.get(error.status) or _REASONS.get(error.status) or fallback
            raise ProviderRefusal(
                SOURCE,
                f"{self.name} {reason} ({error.reason})",
                error.status,
                retry_after_s=error.retry_after_s,
            ) from error


@dataclass(frozen=True, slots=True)
class WebProvider:
    """A provider of web searches. Each provider is a module of this package.

    Attributes:
        search: returns the pages for a search, best first. The iterator can be used in a thread.
        address: address of the provider's API; "" if the settings must state it, None if it uses no API.
        needs_key: whether the provider requires WEB_API_KEY.
        most_characters, most_words: maximum length of a search text; None for any number of words.
        dates: whether results have publication dates.
        package: Python package that must be installed.
        reasons: see `ProviderApi`.
    """

    search: Callable[[ProviderApi, WebQuery], Awaitable[Iterator[ProviderHit]]]
    address: str | None = ""
    needs_key: bool = False
    most_characters: int = 1_000
    most_words: int | None = None
    dates: bool = True
    package: str | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)


def result_list(answer: object, *keys: str) -> list[Mapping[str, Any]]:
    """Return the list of results at a path of keys in an answer.

    Raises:
        Unavailable: there is no list at this path.
    """
    found = value_at(answer, *keys)
    if not isinstance(found, list):
        raise Unavailable(SOURCE, f'its answer holds no list "{".".join(keys)}"')
    return json_objects(found)


def make_provider_hit(
    text: object, title: object, url: object, *, score: object = None, published: object = None
) -> ProviderHit:
    """Make a `ProviderHit` from the values of one search result. A value of a wrong type counts as missing."""
    day = publication_day(published)
    return ProviderHit(
        text=clean_text(text)[:_MOST_SNIPPET],
        title=clean_text(title),
        url=safe_link(url),
        score=finite_number(score),
        metadata={"published": day} if day else {},
    )


def strip_markup(value: object) -> str:
    """Return a snippet without highlighting tags and with HTML entities resolved."""
    return html.unescape(_HIGHLIGHT.sub("", value[:MOST_CHARACTERS])) if isinstance(value, str) else ""


def publication_day(value: object) -> str | None:
    """Return the day of an ISO 8601 or RFC 2822 date, as "2025-07-01"; None if there is none."""
    if not isinstance(value, str) or len(value) > _LONGEST_DATE:
        return None
    try:
        return datetime.fromisoformat(value.strip()).date().isoformat()
    except ValueError:
        pass
    try:
        return parsedate_to_datetime(value).date().isoformat()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def truncate_search_text(text: str, most_characters: int, most_words: int | None = None) -> str:
    """Cut a text to a maximum length, at a space if the second half of the allowed length has one."""
    if most_words is not None:
        text = " ".join(text.split()[:most_words])
    if len(text) <= most_characters:
        return text
    head = text[: most_characters + 1].rpartition(" ")[0]
    # Chinese has hardly any spaces: a cut at the last one could leave a single word.
    return head if 2 * len(head) > most_characters else text[:most_characters]
