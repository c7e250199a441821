"""Rows of the two searches as hits."""

from collections.abc import Iterable
from operator import attrgetter

from retrievers.core.types import PLATFORM, ChunkId, Hit, Query
from retrievers.postgres.database import Row

_SCORE = attrgetter("score")
# Of a named tuple, at half the cost of calling its class: a question makes some 400.
_new = tuple.__new__


def hits_of(rows: Iterable[Row], query: Query, source: str) -> list[Hit]:
    """Hits of (tenant, collection number, document id, ordinal, score) rows, best first, ties by id.

    A passage that comes twice is kept once, and one outside the scope is dropped: the database has
    checked the tenant, this checks it again.
    """
    names = {collection.number: collection.name for collection in query.scope.collections}
    allowed = (query.scope.tenant, PLATFORM)
    best: dict[ChunkId, Hit] = {}
    for tenant, number, document_id, ordinal, score in rows:
        id = _new(ChunkId, (tenant, names[number], document_id, ordinal))
        if tenant in allowed and id not in best:
            best[id] = _new(Hit, (id, score, source, None, None, None))
    return best_first(best.values())[: query.limit]


def best_first(hits: Iterable[Hit]) -> list[Hit]:
    """The hits by their scores, ties by id."""
    ordered = sorted(hits, key=_SCORE, reverse=True)
    if len({hit.score for hit in ordered}) < len(ordered):
        ordered.sort(key=lambda hit: (-hit.score, hit.id))  # only where there are ties: it takes five times as long
    return ordered
