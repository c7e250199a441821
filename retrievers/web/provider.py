"""What the providers of web search share: what one is asked, how its API is called, and what a page becomes."""

import html
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Literal

from retrievers.core.errors import TooCostly, Unavailable
from retrievers.http.client import Client, ProviderRefusal
from retrievers.http.found import MOST_CHARACTERS, ProviderHit, address, cleaned, number, part, records

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
        text: on one line, no longer than the provider takes.
        language: ISO 639-1 code of the text.
        limit: most pages wanted.
        since, until: the days between which a page must have been published, both included; None for any. They
            spare the provider what would be left out: every page is checked afterwards.
    """

    text: str
    language: str
    limit: int
    since: date | None = None
    until: date | None = None


@dataclass(frozen=True, slots=True)
class Api:
    """A provider's API at its address, with the operator's key.

    Attributes:
        key: "" without one.
        timeout_s: for one call with its retries.
        reasons: what a status of HTTP means, in words that go on from the provider's name.
    """

    name: str
    client: Client
    address: str
    key: str = field(repr=False)
    timeout_s: float
    reasons: Mapping[int, str] = field(default_factory=dict)

    async def json(
        self,
        method: Literal["GET", "POST"],
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        params: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Any:
        """The JSON of an answer; raises as `Client.json`, with a reason that says what to do."""
        try:
            return await self.client.json(
                method, self.address + path, headers=headers, params=params, body=body, timeout_s=self.timeout_s
            )
        except ProviderRefusal as error:
            if error.status in _REFUSES_SEARCH:
                # It works, and would answer others: its breaker must not open for them.
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
    """One way to search the web: a module of this package each.

    Attributes:
        search: the pages for a search, best first.
        address: of its API; "" where the settings must say it, None where it has none.
        needs_key: whether it works with WEB_API_KEY alone.
        most_characters, most_words: of a search.
        dates: whether it says when pages were published.
        package: what must be installed for it.
        reasons: see `Api`.
    """

    search: Callable[[Api, WebQuery], Awaitable[list[ProviderHit]]]
    address: str | None = ""
    needs_key: bool = False
    most_characters: int = 1_000
    most_words: int | None = None
    dates: bool = True
    package: str | None = None
    reasons: Mapping[int, str] = field(default_factory=dict)


def results(answer: object, *keys: str) -> list[Mapping[str, Any]]:
    """The list of pages under the keys.

    Raises:
        Unavailable: there is no list.
    """
    found = part(answer, *keys)
    if not isinstance(found, list):
        raise Unavailable(SOURCE, f'its answer holds no list "{".".join(keys)}"')
    return records(found)


def page(text: object, title: object, url: object, *, score: object = None, published: object = None) -> ProviderHit:
    """A page as a provider describes it, whatever types it uses."""
    day = day_of(published)
    return ProviderHit(
        text=cleaned(text)[:_MOST_SNIPPET],
        title=cleaned(title),
        url=address(url),
        score=number(score),
        metadata={"published": day} if day else {},
    )


def plain(value: object) -> str:
    """The text of a snippet that was made for a browser: without the marks of what was found, entities resolved."""
    return html.unescape(_HIGHLIGHT.sub("", value[:MOST_CHARACTERS])) if isinstance(value, str) else ""


def day_of(value: object) -> str | None:
    """The day in an ISO 8601 or RFC 2822 date, as "2025-07-01"; None where there is none."""
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


def shortened(text: str, most_characters: int, most_words: int | None = None) -> str:
    """The beginning of a text that fits, ending at a word where there are words."""
    if most_words is not None:
        text = " ".join(text.split()[:most_words])
    if len(text) <= most_characters:
        return text
    head = text[: most_characters + 1].rpartition(" ")[0]
    # Chinese has no spaces, and its beginning says more than its first word.
    return head if 2 * len(head) > most_characters else text[:most_characters]
