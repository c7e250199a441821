"""Recompute the BM25 vectors of a collection's passages for a new mean length.

A new mean length is stored at once, and documents are written with it from then on. The vectors of the passages that
are already stored are recomputed in batches, each in a transaction of its own, so that other writers wait for one batch
at most. The collection's row says how far this has come, so that any process can continue. Until the end, a search may
score passages with the mean length before.
"""

import asyncio

from retrievers.core.types import unrestricted_viewer
from retrievers.ingest import collections
from retrievers.ingest.collections import Connection
from retrievers.ingest.database_timeout import with_database_timeout
from retrievers.ingest.rows import ROWS_AT_ONCE, recompute_bm25
from retrievers.postgres.connections.database import Database

_BATCH_S = 60.0
"""Time limit for one batch, in seconds, in case the database hangs."""
_COLLECTIONS = 1000


async def set_mean_length(connection: Connection, tenant: str, number: int, mean: float) -> None:
    """Store a new mean length of a locked collection. `reweigh_batch` recomputes the vectors for it."""
    await connection.execute(
        "UPDATE signalbox.collection SET mean_length = %s, version = version + 1, weighed_id = '', weighed_ordinal = -1"
        " WHERE tenant = %s AND number = %s",
        (mean, tenant, number),
    )


async def reweigh_batch(connection: Connection, tenant: str, number: int) -> bool:
    """Recompute the next BM25 vectors of a collection. Return whether there are more to recompute."""
    which = {"tenant": tenant, "collection": number}
    row = await (await connection.execute(_LOCK, which)).fetchone()
    if row is None:
        return False  # nothing is to be recomputed, or the collection was deleted
    mean, id, ordinal = row
    cursor = await connection.execute(_NEXT, which | {"id": id, "ordinal": ordinal, "most": ROWS_AT_ONCE})
    rows = await cursor.fetchall()
    vectors = await asyncio.to_thread(recompute_bm25, rows, mean)
    async with connection.cursor() as writer:
        await writer.executemany(
            "UPDATE signalbox.chunk SET bm25 = %b"
            " WHERE tenant = %s AND collection = %s AND document_id = %s AND ordinal = %s",
            [(vector, tenant, number, *row[:2]) for vector, row in zip(vectors, rows, strict=True)],
        )
    has_more = len(rows) == ROWS_AT_ONCE
    last = rows[-1][:2] if has_more else (None, None)
    await connection.execute(_ADVANCE, which | {"id": last[0], "ordinal": last[1]})
    return has_more


async def reweigh_collection(database: Database, tenant: str, number: int) -> None:
    """Recompute all BM25 vectors of a collection or shadow that have to be, in short transactions.

    Raises:
        Unavailable: the database failed. Another call continues.
    """
    while await with_database_timeout(_reweigh_in_transaction(database, tenant, number), _BATCH_S):
        pass


async def reweigh_pending(database: Database) -> bool:
    """Recompute a batch of BM25 vectors of each collection, of any tenant, for which this has not ended.

    Returns:
        Whether there are more to recompute.
    Raises:
        Exception: the first error, after the collections without an error had their turn.
    """
    has_more = False
    errors: list[Exception] = []
    for tenant, number in await with_database_timeout(_pending_collections(database), _BATCH_S):
        try:
            has_more |= await with_database_timeout(_reweigh_in_transaction(database, tenant, number), _BATCH_S)
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]
    return has_more


async def _pending_collections(database: Database) -> list[tuple[str, int]]:
    async with database.connection() as connection:
        cursor = await connection.execute(_PENDING, (database.worker_scope(), _COLLECTIONS))
        return [(row[0], row[1]) for row in await cursor.fetchall()]


async def _reweigh_in_transaction(database: Database, tenant: str, number: int) -> bool:
    async with database.transaction(unrestricted_viewer(tenant)) as connection:
        await collections.show_shadows(connection)
        return await reweigh_batch(connection, tenant, number)


_PENDING = "SELECT * FROM signalbox.reweighed_collections(%s, %s)"
_LOCK = """
    SELECT mean_length, weighed_id, weighed_ordinal FROM signalbox.collection
    WHERE tenant = %(tenant)s AND number = %(collection)s AND weighed_id IS NOT NULL FOR UPDATE
"""
_NEXT = """
    SELECT document_id, ordinal, length,
           ARRAY(SELECT substr(w.lexeme, position(':' IN w.lexeme) + 1) FROM unnest(lexemes) w),
           ARRAY(SELECT array_to_string(w.weights, '') FROM unnest(lexemes) w)
    FROM signalbox.chunk
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND (document_id, ordinal) > (%(id)s, %(ordinal)s)
    ORDER BY document_id, ordinal LIMIT %(most)s
"""
# The version changes at the end, because what was read before may contain scores with the mean length before.
_ADVANCE = """
    UPDATE signalbox.collection
    SET weighed_id = %(id)s, weighed_ordinal = %(ordinal)s, version = version + (%(id)s::text IS NULL)::integer
    WHERE tenant = %(tenant)s AND number = %(collection)s
"""
