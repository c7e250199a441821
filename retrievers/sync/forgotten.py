"""Sources that are followed no more, because they were moved or named otherwise: their documents stay.

Another source of the collection may give them: each then is its own, as it was stored. Of a forgotten source that has
given so most of its documents to one other, the rest goes with what that one deletes; of any other it stays.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from retrievers.ingest.jobs import KEPT_DAYS
from retrievers.ingest.store import Connection


@dataclass(frozen=True, slots=True)
class Remains:
    """What a forgotten source has left to another that took documents of it over.

    Attributes:
        taken: how many that one has taken over.
        ids: of the documents that nobody has taken over, in their order.
    """

    sync: UUID
    taken: int
    ids: Sequence[str]

    def goes(self, most_deleted: float, *, force: bool) -> bool:
        """Whether the rest is deleted.

        Args:
            most_deleted: share of its documents that may be.
        """
        return self.taken > 0 and (force or len(self.ids) <= most_deleted * (self.taken + len(self.ids)))


async def lock_manifest(connection: Connection, tenant: str, collection: str) -> None:
    """Have nobody else change the manifest of a collection until the end of the transaction.

    Nobody waits for another in a circle, because all take locks in one order: the collection, the manifest, the
    source's row, what the manifest holds, the job, its dead letters.
    """
    await connection.execute(_LOCK, {"tenant": tenant, "collection": collection})


async def remains(connection: Connection, tenant: str, collection: str, sync: UUID) -> list[Remains]:
    """What is left of the forgotten sources of a collection, as it concerns one that is followed."""
    values = {"tenant": tenant, "collection": collection, "sync": sync}
    rows = await (await connection.execute(_REMAINS, values)).fetchall()
    return [Remains(*row) for row in rows if row[2]]


async def inherit(connection: Connection, tenant: str, sync: UUID, former: UUID) -> None:
    """Have a source delete what is left of a forgotten one: its documents become those of no item of the source."""
    values = {"tenant": tenant, "sync": sync, "former": former}
    moved = await connection.execute(_INHERIT, values)
    await connection.execute(_COUNT, values | {"count": moved.rowcount})
    await connection.execute(_REMOVE, values)


async def forget_source(connection: Connection, tenant: str, collection: str, sync: UUID) -> None:
    """Follow a source no more: its run ends, its documents stay."""
    values = {"tenant": tenant, "collection": collection, "sync": sync, "days": KEPT_DAYS}
    await lock_manifest(connection, tenant, collection)
    for statement in (_FORGET, _DISOWN, _NO_FORMER, _FORGET_ITEMS, _END_RUN):
        await connection.execute(statement, values)


_LOCK = """
    SELECT pg_advisory_xact_lock(hashtext('signalbox.manifest'), hashtext(%(tenant)s || E'\\n' || %(collection)s))
"""
_REMAINS = """
    SELECT s.id,
           (SELECT count(*) FROM signalbox.sync_document t
            WHERE t.tenant = s.tenant AND t.sync = %(sync)s AND t.former = s.id),
           ARRAY(SELECT r.document_id FROM signalbox.sync_document r
                 WHERE r.tenant = s.tenant AND r.sync = s.id ORDER BY r.document_id)
    FROM signalbox.sync s
    WHERE s.tenant = %(tenant)s AND s.collection = %(collection)s AND s.forgotten_at IS NOT NULL ORDER BY s.id
"""
_INHERIT = """
    UPDATE signalbox.sync_document SET sync = %(sync)s, former = sync, item = NULL
    WHERE tenant = %(tenant)s AND sync = %(former)s
"""
# The guard of a run that goes on with this one's work counts them among its own.
_COUNT = "UPDATE signalbox.sync SET documents = documents + %(count)s WHERE tenant = %(tenant)s AND id = %(sync)s"
_REMOVE = "DELETE FROM signalbox.sync WHERE tenant = %(tenant)s AND id = %(former)s AND forgotten_at IS NOT NULL"
_FORGET = """
    UPDATE signalbox.sync
    SET forgotten_at = now(), name = NULL, every_s = NULL, due_at = NULL, heard_at = NULL, documents = NULL
    WHERE tenant = %(tenant)s AND id = %(sync)s
"""
_DISOWN = "UPDATE signalbox.sync_document SET item = NULL WHERE tenant = %(tenant)s AND sync = %(sync)s"
# What others took over before it was forgotten is no sign that they follow it.
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
