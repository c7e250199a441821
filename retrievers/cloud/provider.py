"""What all knowledge base providers share: credentials, the interface of a search, and helpers to read answers."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal
from urllib.parse import urlsplit

from retrievers.cloud.filters import ProviderCondition
from retrievers.http.json_client import JsonClient
from retrievers.http.provider_hits import ProviderHit, clean_text, finite_number, safe_link
from retrievers.ingest.readers.text_cleaning import one_line

SOURCE = "cloud"
_MOST_KEYS, _MOST_ITEMS, _MOST_DEPTH = 64, 50, 3
_MOST_KEY, _MOST_VALUE, _MOST_METADATA = 128, 2_000, 16_000
_TEXT_KEYS = ("content", "text", "chunk", "page_chunk", "snippet", "description", "summary")
_LINK_KEYS = ("url", "source_url", "link", "uri", "source", "path")


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """Credentials and connection settings for a provider.

    Attributes:
        key: value of CLOUD_API_KEY; None if the provider's library is to look for credentials itself.
        base_url: CLOUD_BASE_URL without a trailing slash; None for the provider's default address.
        timeout_s: time limit of one search, in seconds.
        http: client for requests. Whoever created it closes it.
    """

    key: str | None = field(repr=False)
    base_url: str | None
    timeout_s: float
    http: JsonClient

    def require_key(self) -> str:
        """Return the key.

        Raises:
            ValueError: there is none.
        """
        if not self.key:
            raise ValueError("it needs a key: set CLOUD_API_KEY")
        return self.key

    def key_pair(self) -> tuple[str, str]:
        """Return id and secret of a key of the form ID:SECRET.

        Raises:
            ValueError: there is no key, or it has another form.
        """
        id, _, secret = self.require_key().partition(":")
        if not id or not secret:
            raise ValueError("its key has two parts: set CLOUD_API_KEY to ID:SECRET")
        return id, secret


@dataclass(frozen=True, slots=True)
class CloudQuery:
    """One search at a provider.

    Attributes:
        limit: maximum number of hits, 1 to the provider's `max_hits`.
        filter: a filter in the provider's language, made by its `express` and `combine`; None for no filter.
        checked: True if the user gave a filter, against which the caller checks every result. `filter` then contains
            those of its conditions that the provider can apply, and is None if there are none.
    """

    text: str
    limit: int
    filter: Any = None
    checked: bool = False


class CloudProvider(ABC):
    """One knowledge base at a provider.

    Attributes:
        max_hits: maximum number of hits of one search.
    """

    max_hits: int

    @abstractmethod
    async def find(self, search: CloudQuery) -> Iterator[ProviderHit]:
        """Return the results, with metadata as stored at the provider.

        The iterator must be usable in a thread: extracting large results would block the event loop for too long.

        Raises:
            ProviderRefusal: the provider answered with an error. The status is HTTP's, or the equivalent of the
                provider's error code.
            Unavailable: the provider did not answer.
            BadRequest: `search.checked` is True, but the provider's results come without the fields to check.
        """

    @staticmethod
    def express(condition: ProviderCondition) -> Any:
        """Return a condition in the provider's language; None if the language cannot express it."""
        return None

    @staticmethod
    def combine(how: Literal["and", "or"], parts: list[Any]) -> Any:
        """Return one filter in the provider's language for the conjunction ("and") or disjunction ("or") of several.

        The result may accept more documents, but not fewer. None if the language has no such filter.

        Args:
            parts: two or more filters in the provider's language.
        """
        return None

    async def aclose(self) -> None:
        """Release resources of the provider other than the HTTP client of its `ProviderAccess`."""
        return


def split_setting(rest: str, count: int) -> list[str]:
    """Split the text after "PROVIDER:" in the setting CLOUD at its slashes.

    Raises:
        ValueError: the text does not have `count` parts, or a part is empty.
    """
    parts = rest.split("/")
    if len(parts) != count or not all(part.strip() for part in parts):
        raise ValueError("the setting has another form")
    return parts


def check_base_url(url: str) -> str:
    """Return a valid request address without a trailing slash.

    Raises:
        ValueError: it is not a web address, or contains a password or a query.
    """
    try:
        parts = urlsplit(url)
        plain = parts.username is None and parts.password is None and not parts.query + parts.fragment
        known = plain and parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        known = False
    if not known or safe_link(url) is None:
        raise ValueError("its address must be https://HOST or http://HOST, without a password or a query")
    return url.rstrip("/")


def object_or_empty(value: object) -> Mapping[str, Any]:
    """Return a JSON object unchanged; {} for any other value."""
    return value if isinstance(value, Mapping) else {}


def first_text(*values: object) -> str | None:
    """Return the first value that is a non-empty text or an integer, as text; None if there is none."""
    for value in values:
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**38:
            return str(value)
    return None


def find_link(metadata: Mapping[str, Any]) -> str | None:
    """Return the first web address in the usual metadata keys; None if there is none."""
    return next((link for key in _LINK_KEYS if (link := safe_link(metadata.get(key)))), None)


def record_text(stored: Mapping[str, Any]) -> str:
    """Return the text of a record with custom fields: the field with the content, or all as lines "key: value"."""
    for key in _TEXT_KEYS:
        if text := clean_text(stored.get(key)):
            return text
    return "\n".join(
        f"{key}: {value}" for key, value in limit_metadata(stored).items() if isinstance(value, str | int | float)
    )


def limit_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of metadata without nulls and control characters, and limited in size.

    Long texts are cut. Values that exceed the total size, are nested too deeply or have other types are left out.
    """
    kept: dict[str, Any] = {}
    left = _MOST_METADATA
    for key, value in islice(metadata.items(), _MOST_KEYS):
        plain = _plain(value, 1)
        size = len(json.dumps(plain))
        if plain is not None and size <= left:
            kept[one_line(str(key), _MOST_KEY)] = plain
            left -= size
    return kept


def _plain(value: object, depth: int) -> Any:
    if isinstance(value, str):
        return clean_text(value)[:_MOST_VALUE]
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if finite_number(value) is not None else None
    if isinstance(value, list) and depth <= _MOST_DEPTH:
        items = (_plain(one, depth + 1) for one in value[:_MOST_ITEMS])
        return [one for one in items if one is not None]
    if isinstance(value, Mapping) and depth <= _MOST_DEPTH:
        inner = (
            (one_line(str(key), _MOST_KEY), _plain(one, depth + 1)) for key, one in islice(value.items(), _MOST_KEYS)
        )
        return {key: one for key, one in inner if one is not None}
    return None
