"""List the documents that satisfy a filter: their number, and the ids of those that the caller does not know yet."""

from collections.abc import Sequence
from typing import NamedTuple

from retrievers.core.filters import Filter, filter_to_jsonpath
from retrievers.core.types import ChunkId, Scope
from retrievers.postgres.connections.read_routing import ReadRouter

_LIST = """
    WITH allowed AS MATERIALIZED (
        SELECT d.tenant, d.collection, d.id
        FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, collection)
        JOIN signalbox.document d USING (tenant, collection)
        WHERE d.enabled AND d.chunks > 0 AND (d.expires_at IS NULL OR d.expires_at > now())
          AND (%(wanted)s::jsonpath IS NULL OR d.fields @@ %(wanted)s::jsonpath)),
    more AS (
        SELECT a.tenant, a.collection, a.id FROM allowed a
        WHERE NOT EXISTS (
            SELECT FROM unnest(%(known_tenants)s::text[], %(known_among)s::integer[], %(known)s::text[])
                AS k (tenant, collection, id)
            WHERE k.tenant = a.tenant AND k.collection = a.collection AND k.id = a.id))
    SELECT (SELECT count(*) FROM allowed), (SELECT count(*) FROM more), m.tenant, m.collection, m.id
    FROM (SELECT 1) AS one LEFT JOIN (
        SELECT * FROM more ORDER BY tenant, collection, id OFFSET %(skip)s LIMIT %(most)s) m ON true
    ORDER BY m.tenant, m.collection, m.id
"""


class DocumentListing(NamedTuple):
    """The documents that satisfy a filter: their numbers, and one range of those that the caller does not know.

    Attributes:
        total: number of documents, known or not.
        unknown: number of documents that the caller does not know yet.
        first: the id of the first passage of each unknown document in the range, sorted by tenant, collection number
            and document id.
    """

    total: int
    unknown: int
    first: list[ChunkId]


async def list_documents(
    reads: ReadRouter, scope: Scope, wanted: Filter | None, known: Sequence[ChunkId], *, skip: int, most: int
) -> DocumentListing:
    """List the documents of a scope's collections that satisfy a filter and are neither disabled nor expired.

    Args:
        wanted: the filter; None for all documents.
        known: passages whose documents the caller knows. Passages from outside the database are ignored.
        skip, most: number of unknown documents to skip, and maximum number to list after them.
    Raises:
        Unavailable: the database cannot answer.
    """
    numbers = {(one.tenant, one.name): one.number for one in scope.collections}
    names = {(one.tenant, one.number): one.name for one in scope.collections}
    if not numbers:
        return DocumentListing(0, 0, [])
    held = [id for id in known if id[:2] in numbers]
    values = {
        "tenants": [one.tenant for one in scope.collections],
        "among": [one.number for one in scope.collections],
        "wanted": filter_to_jsonpath(wanted) if wanted else None,
        "known_tenants": [id.tenant for id in held],
        "known_among": [numbers[id[:2]] for id in held],
        "known": [id.document_id for id in held],
        "skip": skip,
        "most": most,
    }
    rows = await reads.fetch(scope.viewer, _LIST, values)
    first = [ChunkId(row[2], names[row[2], row[3]], row[4], 0) for row in rows if row[4] is not None]
    return DocumentListing(rows[0][0], rows[0][1], first)
