"""Turn the answers of an outside source into hits: cleaned, limited in size, marked as untrusted, sorted."""

import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from retrievers.core.ranking import best_first
from retrievers.core.types import Chunk, ChunkId, Hit, Query
from retrievers.ingest.clean import one_line

MOST_CHARACTERS = 20_000
"""Maximum length of a hit's text."""
MOST_RECORDS = 200
"""Maximum length of a list: twice the requested number, since some entries are dropped."""
_MOST_TITLE, _MOST_URL, _MOST_ID = 300, 2_000, 500
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_ADDRESS = re.compile(r"[\s\x00-\x20\x7f-\x9f\ud800-\udfff<>\"\\]")


@dataclass(frozen=True, slots=True)
class ProviderHit:
    """One result of a provider, as received.

    Attributes:
        id: the provider's id; None to use the URL or the position.
        score: the provider's score; None if it gives none, so that only the order counts.
    """

    text: str
    title: str = ""
    url: str | None = None
    id: str | None = None
    score: float | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


def hits_of(
    found: Sequence[ProviderHit], query: Query, source: str, *, at: datetime | None = None, by_text: bool = False
) -> list[Hit]:
    """Convert results to hits, by score or in the provider's order if it gives none. Empty and duplicate results are
    dropped.

    Args:
        source: the retriever's name, used as the collection name.
        at: time of the search, for `retrieved_at` in the metadata.
        by_text: number the passages of a document by their text, so that the same passage in two searches is the same
            hit. Otherwise they are numbered by order, and the first passages of a document in two searches count as the
            same hit.
    Returns:
        At most `query.limit` hits. Their metadata contains `untrusted`, since nobody here has written or checked them.
    """
    retrieved_at = (at or datetime.now(UTC)).isoformat(timespec="seconds")
    scored = bool(found) and all(one.score is not None and math.isfinite(one.score) for one in found)
    best: dict[ChunkId, Hit] = {}
    ordinals: dict[str, int] = {}
    for place, one in enumerate(found, 1):
        text = cleaned(one.text)
        if not text:
            continue
        url = address(one.url)
        document_id = one_line(_bounded(one.id or url or f"{source}-{place}"))
        # Passages of one document are separate hits. Their positions are unknown, so their ordinals must not be
        # adjacent.
        ordinal = _of_text(text) if by_text else ordinals.get(document_id, 0)
        id = ChunkId(query.scope.tenant, source, document_id, ordinal)
        if any(hit.chunk and hit.chunk.text == text for known, hit in best.items() if known[:3] == id[:3]):
            continue
        ordinals[document_id] = ordinal + 2
        title = one_line(cleaned(one.title), _MOST_TITLE) or url or document_id
        metadata = {**one.metadata, "untrusted": True, "retrieved_at": retrieved_at}
        chunk = Chunk(id, title, text, url, end=len(text), metadata=metadata)
        score = float(one.score) if scored and one.score is not None else 1.0 / place
        best[id] = Hit(id, score, source, chunk)
    return best_first(best.values())[: query.limit]


def _of_text(text: str) -> int:
    """Return an even number for a text, so that two texts never have adjacent numbers."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 2 << 1


def cleaned(value: object) -> str:
    """Remove characters that do not belong in prompts or databases, and cut the text. "" if the value is not text."""
    # Cut before cleaning, so that the rest costs nothing.
    return _CONTROL.sub("", value[: 2 * MOST_CHARACTERS]).strip()[:MOST_CHARACTERS] if isinstance(value, str) else ""


def address(value: object) -> str | None:
    """Return a web address that is safe to show as a link; None for anything else, `javascript:` above all."""
    if not isinstance(value, str) or len(value) > _MOST_URL:
        return None
    url = value.strip()
    return url if url.lower().startswith(("http://", "https://")) and not _NOT_IN_ADDRESS.search(url) else None


def _bounded(id: str) -> str:
    """Shorten an id so that it can be stored. Different long ids stay different."""
    if len(id) <= _MOST_ID:
        return id
    return f"{id[: _MOST_ID - 17]}~{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:16]}"


def number(value: object) -> float | None:
    """Return a finite number as a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def records(value: object, most: int = MOST_RECORDS) -> list[Mapping[str, Any]]:
    """Return the first objects of a list; [] for anything else."""
    return [one for one in value[:most] if isinstance(one, Mapping)] if isinstance(value, list) else []


def part(value: object, *keys: str) -> Any:
    """Return the value at a path of keys; None if the path does not exist."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
