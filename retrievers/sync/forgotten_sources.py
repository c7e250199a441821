"""Forgotten sources: sources that are no longer followed, because they were moved or renamed. Their documents stay.

Another source of the collection may provide the same documents. It then takes them over as they are stored. If one
source has taken over most documents of a forgotten source, the remaining documents are deleted at the end of that
source's run. Otherwise they stay.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from retrievers.ingest.collections import Connection
from retrievers.ingest.jobs.job_queue import KEPT_DAYS


@dataclass(frozen=True, slots=True)
class UnclaimedDocuments:
    """Documents of a forgotten source that no other source has taken over, as seen by one other source.

    Attributes:
        sync: id of the forgotten source.
        taken_over: number of the forgotten source's documents that the other source has taken over.
        ids: sorted ids of the documents that no source has taken over.
    """

    sync: UUID
    taken_over: int
    ids: Sequence[str]

    def may_delete(self, most_deleted: float, *, force: bool) -> bool:
        """Return whether the other source may delete these documents. It must have taken over at least one document.

        Args:
            most_deleted: maximum share of these documents in their sum with the documents taken over, 0 to 1.
            force: ignore that share.
        """
        return self.taken_over > 0 and (force or len(self.ids) <= most_deleted * (self.taken_over + len(self.ids)))


async def lock_manifest(connection: Connection, tenant: str, collection: str) -> None:
    """Lock the manifest of a collection until the end of the transaction.

    All code takes locks in the same order, so there are no deadlocks: the collection, the manifest, the source's row,
    the manifest's rows, the job, its dead letters.
    """
    await connection.execute(_LOCK, {"tenant": tenant, "collection": collection})


async def unclaimed_documents(
    connection: Connection, tenant: str, collection: str, sync: UUID
) -> list[UnclaimedDocuments]:
    """Return the unclaimed documents of each forgotten source that has any, as seen by the source `sync`."""
    values = {"tenant": tenant, "collection": collection, "sync": sync}
    rows = await (await connection.execute(_UNCLAIMED, values)).fetchall()
    return [UnclaimedDocuments(*row) for row in rows if row[2]]


async def take_over_documents(connection: Connection, tenant: str, sync: UUID, former: UUID) -> None:
    """Give the unclaimed documents of a forgotten source to another source, without an item; drop the forgotten source.

    The other source's run then deletes them, as it deletes all of its documents without an item.

    Args:
        sync: id of the other source.
        former: id of the forgotten source.
    """
    values = {"tenant": tenant, "sync": sync, "former": former}
    moved = await connection.execute(_TAKE_OVER, values)
    await connection.execute(_COUNT, values | {"count": moved.rowcount})
    await connection.execute(_REMOVE, values)


async def forget_source(connection: Connection, tenant: str, collection: str, sync: UUID) -> None:
    """Stop following a source: its current run ends, its documents stay."""
    values = {"tenant": tenant, "collection": collection, "sync": sync, "days": KEPT_DAYS}
    await lock_manifest(connection, tenant, collection)
    for statement in (_FORGET, _DISOWN, _NO_FORMER, _FORGET_ITEMS, _END_RUN):
        await connection.execute(statement, values)


_LOCK = """
    SELECT pg_advisory_xact_lock(hashtext('signalbox.manifest'), hashtext(%(tenant)s || E'\\n' || %(collection)s))
"""
_UNCLAIMED = """
    SELECT s.id,
           (SELECT count(*) FROM signalbox.sync_document t
            WHERE t.tenant = s.tenant AND t.sync = %(sync)s AND t.former = s.id),
           ARRAY(SELECT r.document_id FROM signalbox.sync_document r
                 WHERE r.tenant = s.tenant AND r.sync = s.id ORDER BY r.document_id)
    FROM signalbox.sync s
    WHERE s.tenant = %(tenant)s AND s.collection = %(collection)s AND s.forgotten_at IS NOT NULL ORDER BY s.id
"""
_TAKE_OVER = """
    UPDATE signalbox.sync_document SET sync = %(sync)s, former = sync, item = NULL
    WHERE tenant = %(tenant)s AND sync = %(former)s
"""
# If another attempt continues this run, its deletion guard counts these documents among the source's own.
_COUNT = "UPDATE signalbox.sync SET documents = documents + %(count)s WHERE tenant = %(tenant)s AND id = %(sync)s"
_REMOVE = "DELETE FROM signalbox.sync WHERE tenant = %(tenant)s AND id = %(former)s AND forgotten_at IS NOT NULL"
_FORGET = """
    UPDATE signalbox.sync
    SET forgotten_at = now(), name = NULL, every_s = NULL, due_at = NULL, heard_at = NULL, documents = NULL
    WHERE tenant = %(tenant)s AND id = %(sync)s
"""
_DISOWN = "UPDATE signalbox.sync_document SET item = NULL WHERE tenant = %(tenant)s AND sync = %(sync)s"
# Documents taken over before the source was forgotten do not mean that the other source follows it.
_NO_FORMER = """
    UPDATE signalbox.sync_document SET former = NULL
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND former = %(sync)s
"""
_FORGET_ITEMS = "DELETE FROM signalbox.sync_item WHERE tenant = %(tenant)s AND sync = %(sync)s"
_END_RUN = """
    UPDATE signalbox.job
    SET status = 'failed', lease = NULL, error = 'its source was forgotten', finished_at = now(),
        expires_at = now() + make_interval(days => %(days)s)
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND status IN ('queued', 'running')
"""
