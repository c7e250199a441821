"""Update what a collection derives from its documents: counts without expired ones, terms, mean length."""

from collections.abc import Sequence
from typing import Any

from retrievers.core.types import unrestricted_viewer
from retrievers.ingest import collections, field_statistics
from retrievers.ingest.collection_counts import apply_field_changes, empty_changes, uncount_documents, uncount_terms
from retrievers.ingest.collections import Connection
from retrievers.ingest.passage_weights import reweigh_batch, reweigh_collection, set_mean_length
from retrievers.postgres.connections.database import Database
from retrievers.text import bm25

_EXPIRED_AT_ONCE, _EXPIRED_PASSAGES = 200, 2000
"""Number of expired documents that are withdrawn in one transaction, and of their passages, apart from the last's."""
_EQUAL = 1e-6
"""Mean lengths that differ by less than this are the same step of `bm25.round_mean_length`."""


async def _withdraw_expired_documents(connection: Connection, tenant: str, number: int) -> bool:
    """Remove expired documents of a locked collection from everything that is searched and counted.

    Their rows are kept, as for disabled documents, so that the same documents are recognised when delivered again.

    Returns:
        Whether there may be more.
    """
    which: dict[str, Any] = {
        "tenant": tenant, "collection": number, "most": _EXPIRED_AT_ONCE, "most_chunks": _EXPIRED_PASSAGES,
    }  # fmt: skip
    rows = await (await connection.execute(_EXPIRED, which)).fetchall()
    if not rows:
        return False
    which["ids"] = [row[0] for row in rows]
    await uncount_terms(connection, tenant, number, which["ids"])
    await connection.execute(
        "DELETE FROM signalbox.chunk"
        " WHERE tenant = %(tenant)s AND collection = %(collection)s AND document_id = ANY (%(ids)s)",
        which,
    )
    await connection.execute(
        "UPDATE signalbox.document SET enabled = false, fields = '{}', chunks = 0, words = 0"
        " WHERE tenant = %(tenant)s AND collection = %(collection)s AND id = ANY (%(ids)s)",
        which,
    )
    changes = empty_changes()
    await uncount_documents(connection, tenant, rows, changes)
    await apply_field_changes(connection, tenant, changes)
    return True


_EXPIRED = """
    SELECT id, title, fields, language, chunks, words, public, counted FROM (
        SELECT id, title, fields, language, chunks, words, public, coalesce(part, collection) AS counted,
               sum(chunks) OVER (ORDER BY id) - chunks AS chunks_before
        FROM signalbox.document
        WHERE tenant = %(tenant)s AND collection = %(collection)s AND enabled AND expires_at <= now()
        ORDER BY id LIMIT %(most)s) expired
    WHERE chunks_before < %(most_chunks)s
"""


async def update_derived_data(connection: Connection, tenant: str, number: int) -> bool:
    """Update what a collection derives from its documents, after documents were written.

    Removes expired documents from what is searched, deletes terms without passages, and folds values again if
    `text.folding` has changed. If the mean length of passages, rounded by `bm25.round_mean_length`, has changed, stores
    the new one; the BM25 vectors are recomputed later, see `passage_weights`.

    Returns:
        Whether more documents may have expired. Call it again in another transaction: other writers wait for this one.
    """
    held = await connection.execute(
        "SELECT FROM signalbox.collection WHERE tenant = %s AND number = %s FOR UPDATE", (tenant, number)
    )
    if not held.rowcount:
        return False  # deleted, or rebuilt; then the rebuild updates it
    more_expired = await _withdraw_expired_documents(connection, tenant, number)
    chunks, words, mean_length, counted = await _read_totals(connection, tenant, number)
    await connection.execute(
        "DELETE FROM signalbox.term WHERE tenant = %s AND collection = ANY (%s) AND chunks <= 0", (tenant, counted)
    )
    for one in counted:
        await field_statistics.refold_values(connection, tenant, one)
    # 0 for an empty collection: the next documents determine it.
    mean = bm25.round_mean_length(words / chunks) if chunks else 0.0
    if abs(mean - mean_length) > _EQUAL:
        await set_mean_length(connection, tenant, number, mean)
    return more_expired


async def settle_collection(database: Database, tenant: str, number: int) -> None:
    """Update what a collection or shadow derives from its documents, and recompute its BM25 vectors if need be."""
    more_expired = True
    while more_expired:
        async with database.transaction(unrestricted_viewer(tenant)) as connection:
            await collections.show_shadows(connection)
            more_expired = await update_derived_data(connection, tenant, number)
    await reweigh_collection(database, tenant, number)


async def set_expected_mean(
    connection: Connection, tenant: str, number: int, lengths: Sequence[int], mean_length: float
) -> float:
    """Give a locked collection the mean length that it will have with new passages, if they are at least half of all.

    If it kept the old mean length, `update_derived_data` would change it later and write the new passages a second
    time. That costs as much as the first time: PostgreSQL enters the new row into every index, once for each term.

    Args:
        lengths: lengths of the new passages, in words, which are not stored yet.
        mean_length: mean length for an empty collection.
    Returns:
        The mean length to write the new passages with.
    """
    chunks, words, old, _ = await _read_totals(connection, tenant, number)
    if not old or not lengths or len(lengths) < chunks:
        return old or mean_length
    mean = bm25.round_mean_length((words + sum(lengths)) / (chunks + len(lengths)))
    if abs(mean - old) > _EQUAL:
        await set_mean_length(connection, tenant, number, mean)
        while await reweigh_batch(connection, tenant, number):
            pass  # there are at most as many as new passages
    return mean


async def _read_totals(connection: Connection, tenant: str, number: int) -> tuple[int, int, float, list[int]]:
    """Return (passages, words, stored mean length, numbers that identify the collection and its parts).

    The collection must exist.
    """
    cursor = await connection.execute(
        """
        SELECT sum(chunks)::bigint, sum(words)::bigint, sum(mean_length) FILTER (WHERE part_of IS NULL),
               array_agg(number)
        FROM signalbox.collection WHERE tenant = %(tenant)s AND %(number)s IN (number, part_of)
        """,
        {"tenant": tenant, "number": number},
    )
    (row,) = await cursor.fetchall()
    return row[0], row[1], row[2], row[3]
