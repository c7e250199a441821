"""Turn the answers of an outside source into hits: cleaned, limited in size, marked as untrusted, sorted."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from retrievers.core.ranking import sort_by_score
from retrievers.core.types import Chunk, ChunkId, Hit, Query
from retrievers.ingest.readers.text_cleaning import one_line

MOST_CHARACTERS = 20_000
"""Maximum length of a hit's text."""
MOST_RECORDS = 200
"""Maximum number of entries read from a list: twice the largest limit of a provider, since some entries are dropped."""
_MOST_TITLE, _MOST_URL, _MOST_ID = 300, 2_000, 500
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_ADDRESS = re.compile(r"[\s\x00-\x20\x7f-\x9f\ud800-\udfff<>\"\\]")


@dataclass(frozen=True, slots=True)
class ProviderHit:
    """One result of a search at a provider, as received.

    Attributes:
        id: the provider's id of the document; None to use the URL, or without one the position in the results.
        score: the provider's score; None if it gives none.
    """

    text: str
    title: str = ""
    url: str | None = None
    id: str | None = None
    score: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def convert_provider_hits(
    found: Sequence[ProviderHit], query: Query, source: str, *, at: datetime | None = None, by_text: bool = False
) -> list[Hit]:
    """Convert a provider's results to hits, without empty and duplicate results.

    Args:
        source: the retriever's name, used as the collection name.
        at: time of the search, for `retrieved_at` in the metadata; None for now.
        by_text: derive the ordinal of a passage from its text, so that a passage found by two searches has one id.
            Otherwise passages are numbered in the order found, and the first passages that two searches find in a
            document have the same id.
    Returns:
        At most `query.limit` hits, by score. If a result has no score, all are scored by their order: 1, 1/2, 1/3, ...
        Their metadata contains `untrusted`: True, because an outside source wrote their text.
    """
    retrieved_at = (at or datetime.now(UTC)).isoformat(timespec="seconds")
    scored = bool(found) and all(one.score is not None and math.isfinite(one.score) for one in found)
    best: dict[ChunkId, Hit] = {}
    ordinals: dict[str, int] = {}
    for place, one in enumerate(found, 1):
        text = clean_text(one.text)
        if not text:
            continue
        url = safe_link(one.url)
        document_id = one_line(_bounded(one.id or url or f"{source}-{place}"))
        # The positions of a document's passages are unknown. Adjacent ordinals would say that one follows the other.
        ordinal = _of_text(text) if by_text else ordinals.get(document_id, 0)
        id = ChunkId(query.scope.tenant, source, document_id, ordinal)
        if any(hit.chunk and hit.chunk.text == text for known, hit in best.items() if known[:3] == id[:3]):
            continue
        ordinals[document_id] = ordinal + 2
        title = one_line(clean_text(one.title), _MOST_TITLE) or url or document_id
        metadata = {**one.metadata, "untrusted": True, "retrieved_at": retrieved_at}
        chunk = Chunk(id, title, text, url, end=len(text), metadata=metadata)
        score = float(one.score) if scored and one.score is not None else 1.0 / place
        best[id] = Hit(id, score, source, chunk)
    return sort_by_score(best.values())[: query.limit]


def _of_text(text: str) -> int:
    """Return an even number derived from a text, to be used as an ordinal.

    All are even, so that two passages never have adjacent ordinals, which would mean that one follows the other.
    """
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 2 << 1


def clean_text(value: object) -> str:
    """Return a text without control characters, cut at MOST_CHARACTERS. "" if the value is not text."""
    # The first cut avoids the cleaning of text that the second cut would drop.
    return _CONTROL.sub("", value[: 2 * MOST_CHARACTERS]).strip()[:MOST_CHARACTERS] if isinstance(value, str) else ""


def safe_link(value: object) -> str | None:
    """Return a web address that is safe to show as a link; None for anything else, such as `javascript:...`."""
    if not isinstance(value, str) or len(value) > _MOST_URL:
        return None
    url = value.strip()
    return url if url.lower().startswith(("http://", "https://")) and not _NOT_IN_ADDRESS.search(url) else None


def _bounded(id: str) -> str:
    """Shorten an id to a length that can be stored. A hash at its end keeps different long ids different."""
    if len(id) <= _MOST_ID:
        return id
    return f"{id[: _MOST_ID - 17]}~{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:16]}"


def finite_number(value: object) -> float | None:
    """Return a finite number as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def json_objects(value: object, most: int = MOST_RECORDS) -> list[Mapping[str, Any]]:
    """Return the JSON objects among the first `most` elements of a list; [] if the value is not a list."""
    return [one for one in value[:most] if isinstance(one, Mapping)] if isinstance(value, list) else []


def value_at(value: object, *keys: str) -> Any:
    """Return the value at a path of keys in nested JSON objects; None if the path does not exist."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
