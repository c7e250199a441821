"""ddgs: public search engines without a key, scraped from their pages. For trials only: they rate-limit and change."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from math import ceil
from typing import Any

from retrievers.core import process_memory
from retrievers.core.errors import Unavailable
from retrievers.http.json_client import ProviderRefusal
from retrievers.http.provider_hits import ProviderHit, json_objects
from retrievers.http.response_limits import BadResponse, find_bad_response, too_long_error
from retrievers.web.provider import SOURCE, ProviderApi, WebProvider, WebQuery, make_provider_hit, strip_markup

_THREADS = 4
_MOST_BYTES = 2 << 20
"""Maximum size of one page of a search engine."""
_MOST_TAGS = 50_000
"""Maximum number of "<" in such a page. Its tree takes some hundred bytes for each."""
_REGIONS = {
    "de": "de-de", "en": "us-en", "es": "es-es", "fr": "fr-fr", "it": "it-it", "ja": "jp-jp", "ko": "kr-kr",
    "nl": "nl-nl", "pt": "br-pt", "sv": "se-sv", "zh": "cn-zh",
}  # fmt: skip


async def search(api: ProviderApi, wanted: WebQuery) -> Iterator[ProviderHit]:
    """Return the pages that the search engines behind ddgs find."""
    loop = asyncio.get_running_loop()
    found = await loop.run_in_executor(_threads(), _search, wanted, ceil(api.timeout_s))
    return (
        make_provider_hit(strip_markup(one.get("body")), strip_markup(one.get("title")), one.get("href"))
        for one in json_objects(found)
    )


@cache
def _threads() -> ThreadPoolExecutor:
    """Return threads for searches only: a search goes on after its timeout, and would occupy a shared thread."""
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="web-search")


def _search(wanted: WebQuery, timeout_s: int) -> Any:
    from ddgs import DDGS
    from ddgs.exceptions import DDGSException, RatelimitException, TimeoutException

    _limit_pages()
    region = _REGIONS.get(wanted.language, "wt-wt")
    try:
        return DDGS(timeout=timeout_s).text(wanted.text, region=region, max_results=wanted.limit)
    except DDGSException as error:
        # The library wraps the last engine's error in its own.
        errors = [one for one in (error, *error.args) if isinstance(one, Exception)]
        if any(isinstance(one, RatelimitException) for one in errors):
            raise ProviderRefusal(SOURCE, "ddgs: the search engines allow no more searches for now", 429) from error
        if any(isinstance(one, TimeoutException) for one in errors):
            raise Unavailable(SOURCE, f"ddgs: no search engine has answered within {timeout_s} s") from error
        if bad := next(filter(None, map(find_bad_response, errors)), None):
            raise Unavailable(SOURCE, f"ddgs: {bad.reason}") from None
        if error.args == ("No results found.",):
            return []
        # Its message may contain addresses.
        raise Unavailable(SOURCE, "ddgs: no search engine has answered") from error
    finally:
        # The pages are parsed in this process, and their trees are large.
        process_memory.release_memory()


@cache
def _limit_pages() -> None:
    """Limit the size of the pages that ddgs reads, because its threads read on after a timeout."""
    base: Any = import_module("ddgs.base")
    make = base.HttpClient

    def made(*args: Any, **kwargs: Any) -> Any:
        client = make(*args, **kwargs)
        client.client = _Pages(client.client)
        return client

    base.HttpClient = made


class _Pages:
    """Wraps a client of the library primp, to read answers up to `_MOST_BYTES`. Its timeout covers the whole answer."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def request(self, *args: Any, **kwargs: Any) -> "_DdgsPage":
        answer = self._client.request(*args, **kwargs, stream=True)
        content = bytearray()
        try:
            for part in answer.iter_bytes():
                content += part
                if len(content) > _MOST_BYTES:
                    raise too_long_error(_MOST_BYTES)
        finally:
            answer.close()
        if content.count(b"<") > _MOST_TAGS:
            raise BadResponse(f"its answer has more than {_MOST_TAGS:,} tags")
        return _DdgsPage(answer.status_code, bytes(content), content.decode(answer.encoding or "utf-8", "replace"))


@dataclass(frozen=True, slots=True)
class _DdgsPage:
    """A page that was read, in the form that ddgs expects."""

    status_code: int
    content: bytes
    text: str


PROVIDER = WebProvider(search, address=None, most_characters=500, dates=False, package="ddgs")
