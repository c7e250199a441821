"""What a source outside found, as hits: cleaned, bounded, marked as untrusted, ordered."""

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
"""Of one hit's text."""
MOST_RECORDS = 200
"""Of one list: twice as many as are asked for, since some are left out."""
_MOST_TITLE, _MOST_URL, _MOST_ID = 300, 2_000, 500
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_NOT_IN_ADDRESS = re.compile(r"[\s\x00-\x20\x7f-\x9f\ud800-\udfff<>\"\\]")


@dataclass(frozen=True, slots=True)
class ProviderHit:
    """One answer of a provider, as it came.

    Attributes:
        id: the provider's name for it; its address, or its place, when None.
        score: the provider's own; None when it gives none: then only the order counts.
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
    """Hits in the order of their scores, or of the provider where it gives none; what is empty or repeated left out.

    Args:
        source: the retriever's name, which stands in the place of the collection.
        at: when it was asked; the metadata says so in `retrieved_at`.
        by_text: passages of a document are told by their texts, so that another search's are the same or others;
            else by their order, and what comes first of a document in two searches counts as one.
    Returns:
        At most `query.limit`. Their metadata says `untrusted`: nobody here has written or checked them.
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
        # Several passages of one document are several hits; where they stand in it is not known, so none may pass
        # for the neighbour of another.
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
    """A number for a text, even, so that no two are neighbours."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 2 << 1


def cleaned(value: object) -> str:
    """Text without what no prompt and no database should hold, cut; "" for what is no text."""
    # Cut before it is cleaned: what is cut off costs nothing.
    return _CONTROL.sub("", value[: 2 * MOST_CHARACTERS]).strip()[:MOST_CHARACTERS] if isinstance(value, str) else ""


def address(value: object) -> str | None:
    """A web address that may be shown as a link; None for anything else, `javascript:` above all."""
    if not isinstance(value, str) or len(value) > _MOST_URL:
        return None
    url = value.strip()
    return url if url.lower().startswith(("http://", "https://")) and not _NOT_IN_ADDRESS.search(url) else None


def _bounded(id: str) -> str:
    """An id that can be stored; of two long ones that begin alike, each its own."""
    if len(id) <= _MOST_ID:
        return id
    return f"{id[: _MOST_ID - 17]}~{hashlib.sha256(id.encode(errors='replace')).hexdigest()[:16]}"


def number(value: object) -> float | None:
    """A finite number; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 1e300:
        return None
    return float(value) if math.isfinite(value) else None


def records(value: object, most: int = MOST_RECORDS) -> list[Mapping[str, Any]]:
    """The first objects of a list; [] for anything else."""
    return [one for one in value[:most] if isinstance(one, Mapping)] if isinstance(value, list) else []


def part(value: object, *keys: str) -> Any:
    """What stands under the keys, one inside the other; None where something is no object."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
