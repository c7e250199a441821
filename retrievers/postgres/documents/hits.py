"""Convert rows of the full-text and vector searches to hits."""

from collections.abc import Iterable

from retrievers.core.ranking import new_tuple, sort_by_score
from retrievers.core.types import PLATFORM, ChunkId, Hit, Query
from retrievers.postgres.connections.database import Row


def hits_from_rows(rows: Iterable[Row], query: Query, source: str) -> list[Hit]:
    """Convert (tenant, collection number, document id, ordinal, score) rows to hits, best first, ties by chunk id.

    Returns at most `query.limit` hits. Drops duplicates. Also drops passages of tenants other than the asker's and the
    platform, which repeats the database's own check.

    Args:
        source: name of the source that the hits are attributed to.
    """
    names = {collection.number: collection.name for collection in query.scope.collections}
    allowed = (query.scope.tenant, PLATFORM)
    best: dict[ChunkId, Hit] = {}
    for tenant, number, document_id, ordinal, score in rows:
        id = new_tuple(ChunkId, (tenant, names[number], document_id, ordinal))
        if tenant in allowed and id not in best:
            best[id] = new_tuple(Hit, (id, score, source, None, None, None))
    return sort_by_score(best.values())[: query.limit]
