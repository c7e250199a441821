"""What all knowledge base providers share: credentials, the interface of a search, and helpers to read answers."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal
from urllib.parse import urlsplit

from retrievers.cloud.filters import FieldComparison
from retrievers.http.client import Client
from retrievers.http.found import ProviderHit, address, cleaned, number
from retrievers.ingest.clean import one_line

SOURCE = "cloud"
_MOST_KEYS, _MOST_ITEMS, _MOST_DEPTH = 64, 50, 3
_MOST_KEY, _MOST_VALUE, _MOST_METADATA = 128, 2_000, 16_000
_TEXT_KEYS = ("content", "text", "chunk", "page_chunk", "snippet", "description", "summary")
_LINK_KEYS = ("url", "source_url", "link", "uri", "source", "path")


@dataclass(frozen=True, slots=True)
class Access:
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
    http: Client

    def needed_key(self) -> str:
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
        id, _, secret = self.needed_key().partition(":")
        if not id or not secret:
            raise ValueError("its key has two parts: set CLOUD_API_KEY to ID:SECRET")
        return id, secret


@dataclass(frozen=True, slots=True)
class CloudQuery:
    """One search at a provider.

    Attributes:
        limit: maximum number of hits, 1 to the provider's `most`.
        filter: a filter in the provider's language, made by its `spell` and `join`; None for no filter.
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
        most: maximum number of hits of one search.
    """

    most: int

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
    def spell(condition: FieldComparison) -> Any:
        """Return a condition in the provider's language; None if the language cannot express it."""
        return None

    @staticmethod
    def join(how: Literal["and", "or"], parts: list[Any]) -> Any:
        """Return one filter in the provider's language for the conjunction ("and") or disjunction ("or") of several.

        The result may accept more documents, but not fewer. None if the language has no such filter.

        Args:
            parts: two or more filters in the provider's language.
        """
        return None

    async def aclose(self) -> None:
        """Release resources of the provider other than the HTTP client of its `Access`."""
        return


def names(rest: str, count: int) -> list[str]:
    """Split the text after "PROVIDER:" in the setting CLOUD at its slashes.

    Raises:
        ValueError: the text does not have `count` parts, or a part is empty.
    """
    parts = rest.split("/")
    if len(parts) != count or not all(part.strip() for part in parts):
        raise ValueError("the setting has another form")
    return parts


def web_address(url: str) -> str:
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
    if not known or address(url) is None:
        raise ValueError("its address must be https://HOST or http://HOST, without a password or a query")
    return url.rstrip("/")


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object unchanged; {} for any other value."""
    return value if isinstance(value, Mapping) else {}


def name_of(*values: object) -> str | None:
    """Return the first value that is a non-empty text or an integer, as text; None if there is none."""
    for value in values:
        if isinstance(value, str) and value.strip():
            return value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 10**38:
            return str(value)
    return None


def link_of(metadata: Mapping[str, Any]) -> str | None:
    """Return the first web address in the usual metadata keys; None if there is none."""
    return next((link for key in _LINK_KEYS if (link := address(metadata.get(key)))), None)


def passage_of(stored: Mapping[str, Any]) -> str:
    """Return the text of a record with custom fields: the field with the content, or all as lines "key: value"."""
    for key in _TEXT_KEYS:
        if text := cleaned(stored.get(key)):
            return text
    return "\n".join(
        f"{key}: {value}" for key, value in bounded(stored).items() if isinstance(value, str | int | float)
    )


def bounded(metadata: Mapping[str, Any]) -> dict[str, Any]:
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
        return cleaned(value)[:_MOST_VALUE]
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float):
        return value if number(value) is not None else None
    if isinstance(value, list) and depth <= _MOST_DEPTH:
        items = (_plain(one, depth + 1) for one in value[:_MOST_ITEMS])
        return [one for one in items if one is not None]
    if isinstance(value, Mapping) and depth <= _MOST_DEPTH:
        inner = (
            (one_line(str(key), _MOST_KEY), _plain(one, depth + 1)) for key, one in islice(value.items(), _MOST_KEYS)
        )
        return {key: one for key, one in inner if one is not None}
    return None
