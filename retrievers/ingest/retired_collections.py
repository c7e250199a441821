"""Delete the rows of collections that were replaced or given up, in batches with separate transactions."""

import time

from retrievers.core.types import unrestricted_viewer
from retrievers.ingest import collections
from retrievers.postgres.connections.database import Database
from retrievers.postgres.documents.indexes import drop_unused_embedder

_DOCUMENTS, _ROWS = 200, 5000
_TABLES = ("changed", "term", "field_value", "field_count", "field_word")


async def delete_retired_collection(database: Database, tenant: str, number: int, *, within_s: float) -> bool:
    """Delete a collection that was replaced or given up.

    If no other collection uses the same embedder, the vector index of that embedder is dropped.

    Args:
        number: number of the collection. Nothing is deleted if the collection is in use.
        within_s: maximum time, in seconds.
    Returns:
        False if time ran out and rows may be left. True if nothing is left to do here: the collection is deleted, in
        use, or being deleted by another worker.
    """
    until = time.monotonic() + within_s
    embedder: int | None = None
    while time.monotonic() < until:
        async with database.transaction(unrestricted_viewer(tenant)) as connection:
            await collections.show_shadows(connection)
            # Skips a collection that another worker has locked: both would wait for each other.
            held = await (await connection.execute(_HOLD, (tenant, number))).fetchone()
            if held is None:
                return True
            embedder = held[0]
            if not await _remove_some(connection, tenant, number):
                await connection.execute(
                    "DELETE FROM signalbox.collection WHERE tenant = %s AND number = %s", (tenant, number)
                )
                break
    else:
        return False
    if embedder is not None:
        await drop_unused_embedder(database, embedder)
    return True


async def _remove_some(connection: collections.Connection, tenant: str, number: int) -> bool:
    """Delete a batch of a collection's rows. Return False if there were none."""
    some = await connection.execute(_DELETE_DOCUMENTS, (tenant, number, tenant, number, _DOCUMENTS))
    for table in _TABLES:
        if not some.rowcount:
            some = await connection.execute(_DELETE_ROWS[table], (tenant, number, number, _ROWS))
    return bool(some.rowcount)


_HOLD = """
    SELECT embedder FROM signalbox.collection
    WHERE tenant = %s AND number = %s AND shadow_of IS NOT NULL FOR UPDATE SKIP LOCKED
"""
_DELETE_DOCUMENTS = """
    DELETE FROM signalbox.document WHERE tenant = %s AND collection = %s AND id IN (
        SELECT id FROM signalbox.document WHERE tenant = %s AND collection = %s LIMIT %s)
"""
_DELETE_ROWS = {
    table: f"""
        DELETE FROM signalbox.{table} WHERE ctid = ANY (ARRAY(
            SELECT t.ctid FROM signalbox.{table} t JOIN signalbox.collection k ON k.tenant = t.tenant
                   AND k.number = t.collection
            WHERE t.tenant = %s AND (k.number = %s OR k.part_of = %s) LIMIT %s))
    """  # noqa: S608
    for table in _TABLES
}
