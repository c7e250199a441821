"""What was stored from which item of a source: read and written by the run that holds the lease."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import LiteralString, NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from retrievers.core.types import whole
from retrievers.ingest import jobs as queue
from retrievers.ingest import store
from retrievers.ingest.jobs import JobQueue, Lease
from retrievers.ingest.run import Report
from retrievers.ingest.store import Connection
from retrievers.postgres.database import Database, Row
from retrievers.postgres.rows import pages
from retrievers.sync.forgotten import Remains, inherit, lock_manifest, remains

_READING = "1"
"""Of how items become documents: with another number every item is read again."""


def id_of(tenant: str, collection: str, source: str) -> UUID:
    """The mirror of a source in a collection: the same for whoever runs it."""
    return uuid5(NAMESPACE_URL, "\n".join(("signalbox-sync", tenant, collection, source)))


class KnownItem(NamedTuple):
    """An item as it was last read; its version is None where it must be read again."""

    version: str | None
    digest: bytes | None


@dataclass(frozen=True, slots=True)
class Claim:
    """A document that an item gives.

    Attributes:
        given: digest of it as it was given.
    """

    id: str
    item: str
    given: bytes


class Owner(NamedTuple):
    """To which source and item a document belongs; to none that still gives it where `item` is None."""

    sync: UUID
    item: str | None
    run: int
    given: bytes


def may_have(claim: Claim, owner: Owner, sync: UUID, run: int) -> bool:
    """Whether a document that belongs to an item may go to the one that claims it in this run of this source."""
    if owner.item is None:
        return True
    if owner.sync != sync or claim.item > owner.item:
        return False
    return (claim.item, run) != (owner.item, owner.run)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of one mirror.

    Attributes:
        collection: its name.
    """

    database: Database
    tenant: str
    sync: UUID
    collection: str

    async def known(self) -> dict[str, KnownItem]:
        """The items that were read before. Those whose documents were changed or deleted since by others, or whose
        reading was broken off, have neither version nor digest."""
        known: dict[str, KnownItem] = {}
        async with self.database.transaction(whole(self.tenant), frozen=True) as connection:
            async for page in pages(connection, _KNOWN, self._which(), _PAGE):
                for item, version, digest in page:
                    known[item] = KnownItem(_read_now(version), digest and bytes(digest))
            async for page in pages(connection, _DAMAGED, self._which(), _PAGE):
                known.update((row[0], KnownItem(None, None)) for row in page)
        return known

    async def damaged(self) -> list[tuple[str, str]]:
        """Item and id of each document that is not stored as this source stored it."""
        found: list[tuple[str, str]] = []
        async with self.database.transaction(whole(self.tenant), frozen=True) as connection:
            async for page in pages(connection, _DAMAGED, self._which(), _PAGE):
                found += [(row[0], row[1]) for row in page]
        return found

    async def documents_of(self, items: Iterable[str], *, orphans: bool = True) -> set[str]:
        """Ids of the documents of some items, and of those that no item gives any more."""
        found: set[str] = set()
        async with self.database.transaction(whole(self.tenant), frozen=True) as connection:
            if orphans:
                async for page in pages(connection, _ORPHANS, self._which(), _PAGE):
                    found.update(row[0] for row in page)
            for some in _some([*items]):
                async for page in pages(connection, _DOCUMENTS_OF, self._which(items=some), _PAGE):
                    found.update(row[0] for row in page)
        return found

    async def doomed(self) -> int:
        """How many documents no item gives any more."""
        rows = await self.database.fetch(whole(self.tenant), _COUNT_ORPHANS, self._which())
        return int(rows[0][0])

    async def stored(self) -> tuple[int, int]:
        """How many documents there are by the manifest, and how many the last whole run left."""
        async with self.database.transaction(whole(self.tenant)) as connection:
            row = await (await connection.execute(_STORED, self._which())).fetchone()
        return (row[0], row[0] if row[1] is None else row[1]) if row else (0, 0)

    async def remains(self) -> list[Remains]:
        """What is left of the sources of its collection that were forgotten."""
        async with self.database.transaction(whole(self.tenant)) as connection:
            return await remains(connection, self.tenant, self.collection, self.sync)

    async def owners(self, ids: Sequence[str]) -> dict[str, Owner]:
        """To which items documents belong, by id."""
        async with self.database.transaction(whole(self.tenant)) as connection:
            return await self._owners(connection, ids)

    async def _owners(self, connection: Connection, ids: Sequence[str]) -> dict[str, Owner]:
        cursor = await connection.execute(_OWNERS, self._which(ids=sorted(ids)))
        return {row[0]: Owner(row[1], row[2], row[3], bytes(row[4])) for row in await cursor.fetchall()}

    def _which(self, **more: object) -> dict[str, object]:
        return {"tenant": self.tenant, "sync": self.sync, "collection": self.collection, **more}


@dataclass(frozen=True, slots=True)
class Writer:
    """Changes a manifest. Every change is one transaction with the proof that the lease is still held.

    Attributes:
        run: number of this attempt, higher than those of all before.
        report: what was done until now.
    """

    manifest: Manifest
    jobs: JobQueue
    lease: Lease
    run: int
    report: Report

    async def vanish(self, items: Sequence[str]) -> None:
        """The source has these items no more. Raises LostLease, as all methods here."""
        for some in _some(items):
            async with self._transaction() as connection:
                which = self.manifest._which(items=some)
                await connection.execute(_ORPHAN_ITEMS, which)
                await connection.execute(_FORGET_ITEMS, which)

    @asynccontextmanager
    async def _transaction(self, *, deletes: bool = False) -> AsyncIterator[Connection]:
        """A transaction that is undone where the lease was lost; in the order of `lock_manifest`.

        Args:
            deletes: it deletes documents too, so the collection comes first.
        """
        manifest = self.manifest
        async with manifest.database.transaction(whole(manifest.tenant)) as connection:
            if deletes and (number := await _number(connection, manifest)) is not None:
                await store.lock_fields(connection, manifest.tenant, number)
            await lock_manifest(connection, manifest.tenant, manifest.collection)
            yield connection
            report = self.report
            # Last: while the job's row is locked, the lease cannot be kept.
            await self.jobs.record(
                connection, self.lease, inserted=0, updated=0, done=report.done, failed=len(report.failed)
            )

    async def claim(self, claims: Sequence[Claim], ended: Sequence[str]) -> tuple[int, dict[str, Owner], set[str]]:
        """Have the documents belong to their items, unless others have a better right.

        Items of one source that give the same document share it: it is that of the first by name.

        Args:
            claims: of different documents.
            ended: items that have been read to their end: what they gave before and give no more is free.
        Returns:
            The number for the delivery that stores them, of those whose claim was refused to whom they belong, and the
            items that others of this source have taken documents from: they must be read again.
        """
        async with self._transaction() as connection:
            delivery = await store.next_delivery(connection)
            pairs = {"ids": [one.id for one in claims], "items": [one.item for one in claims]}
            which = self.manifest._which(ended=list(ended), run=self.run, **pairs)
            await connection.execute(_ORPHAN_UNSEEN, which)
            before = await self.manifest._owners(connection, [one.id for one in claims])
            sync = self.manifest.sync
            refused = {one.id: owner for one in claims
                       if (owner := before.get(one.id)) and not may_have(one, owner, sync, self.run)}  # fmt: skip
            granted = [one for one in claims if one.id not in refused]
            values = {
                "ids": [one.id for one in granted],
                "items": [one.item for one in granted],
                "given": [one.given for one in granted],
                "run": self.run,
            }
            await connection.execute(_CLAIM, self.manifest._which(**values))
            displaced = {owner.item for one in granted if (owner := before.get(one.id)) and owner.item != one.item}
            items = {item for item in displaced if item is not None}
            await connection.execute(_READ_AGAIN, self.manifest._which(items=sorted(items)))
        return delivery, refused, items

    async def complete(
        self,
        read: Mapping[str, KnownItem],
        *,
        stored: Sequence[str] = (),
        failed: Sequence[str] = (),
        delivery: int = 0,
    ) -> None:
        """Items have been read to their end and their documents are stored.

        Args:
            read: the items, as they were read.
            stored: ids of documents that are stored; `failed`: of those that could not be.
            delivery: the number they were stored with: what somebody else stored since is none of this source's.
        """
        async with self._transaction() as connection:
            which = self.manifest._which(ids=list(stored), failed=list(failed), delivery=delivery)
            await connection.execute(_DROP_FAILED, which)
            await connection.execute(_ORPHAN_FAILED, which)
            await connection.execute(_NOTE_DIGESTS, which)
            items = self.manifest._which(
                items=list(read),
                versions=[_to_store(one.version) for one in read.values()],
                digests=[one.digest for one in read.values()],
            )
            await connection.execute(_NOTE_ITEMS, items)
            # What was interrupted before did not stop at this: neither a worker's death nor a dependency.
            await connection.execute(_ADVANCED, {"tenant": self.lease.tenant, "id": self.lease.id})

    async def inherit(self, former: UUID) -> None:
        """Have what is left of a forgotten source be deleted with what is gone from this one."""
        async with self._transaction() as connection:
            await inherit(connection, self.manifest.tenant, self.manifest.sync, former)

    async def delete_some(self) -> int | None:
        """Delete a batch of the documents that no item gives any more; how many were stored, None when none is left."""
        while True:
            try:
                return await self._delete_some()
            except store.Replaced:
                continue  # it was made anew in between, and has another number

    async def _delete_some(self) -> int | None:
        manifest = self.manifest
        async with self._transaction(deletes=True) as connection:
            number = await _number(connection, manifest)
            rows = await (await connection.execute(_DOOMED, manifest._which(most=_DELETED_AT_ONCE))).fetchall()
            if not rows:
                return None
            ids, count = [row[0] for row in rows], 0
            if number is not None:
                count = await store.remove_documents(connection, manifest.tenant, number, ids)
                await queue.forget(connection, manifest.tenant, manifest.collection, ids)
            await connection.execute(_DELETE, manifest._which(ids=ids))
            await connection.execute(_COUNT_DELETED, {"tenant": self.lease.tenant, "id": self.lease.id, "count": count})
        return count

    async def end(self) -> int:
        """Bring the collection to the state that its documents define; how many the source has there now."""
        manifest = self.manifest
        async with manifest.database.transaction(whole(manifest.tenant)) as connection:
            if (number := await _number(connection, manifest)) is not None:
                await store.settle(connection, manifest.tenant, number)
        async with self._transaction() as connection:
            row = await (await connection.execute(_END, manifest._which())).fetchone()
        return row[0] if row else 0


async def _number(connection: Connection, manifest: Manifest) -> int | None:
    row: Row | None = await (await connection.execute(_NUMBER, manifest._which())).fetchone()
    return int(row[0]) if row else None


async def forget(connection: Connection, tenant: str, collection: str, document: str | None = None) -> None:
    """Take a document, or all of a collection, out of the manifests as it is deleted in this transaction, before its
    jobs are touched.

    The next run of a source that still has it stores it again.
    """
    which = {"tenant": tenant, "collection": collection, "document": document}
    await lock_manifest(connection, tenant, collection)
    await connection.execute(_FORGET_READ, which)
    await connection.execute(_FORGET_DOCUMENTS, which)


def _some(items: Sequence[str]) -> Iterator[list[str]]:
    """The items, so many at a time: the event loop has time for others in between."""
    return (list(items[start : start + _PAGE]) for start in range(0, len(items), _PAGE))


def _to_store(version: str | None) -> str | None:
    return None if version is None else f"{_READING} {version}"


def _read_now(stored: str | None) -> str | None:
    reading, _, version = (stored or "").partition(" ")
    return version if reading == _READING else None


_DELETED_AT_ONCE = 200
_PAGE = 2000
_KNOWN = "SELECT item, version, digest FROM signalbox.sync_item WHERE tenant = %(tenant)s AND sync = %(sync)s"
_DAMAGED = """
    SELECT m.item, m.document_id FROM signalbox.sync_document m
    LEFT JOIN signalbox.collection c ON c.tenant = m.tenant AND c.name = m.collection AND c.part_of IS NULL
    LEFT JOIN signalbox.document d ON d.tenant = m.tenant AND d.collection = c.number AND d.id = m.document_id
    WHERE m.tenant = %(tenant)s AND m.sync = %(sync)s AND m.item IS NOT NULL
      AND (m.digest IS NULL OR d.digest IS DISTINCT FROM m.digest)
"""
_DOCUMENTS_OF = """
    SELECT document_id FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(items)s)
"""
_NO_ITEM = "FROM signalbox.sync_document WHERE tenant = %(tenant)s AND sync = %(sync)s AND item IS NULL"
_ORPHANS = f"SELECT document_id {_NO_ITEM}"
_COUNT_ORPHANS: LiteralString = f"SELECT count(*) {_NO_ITEM}"
_STORED = """
    SELECT (SELECT count(*) FROM signalbox.sync_document m WHERE m.tenant = s.tenant AND m.sync = s.id), s.documents
    FROM signalbox.sync s WHERE s.tenant = %(tenant)s AND s.id = %(sync)s
"""
_OWNERS = """
    SELECT document_id, sync, item, run, given FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND document_id = ANY (%(ids)s)
    ORDER BY document_id FOR UPDATE
"""
_CLAIM = """
    INSERT INTO signalbox.sync_document AS m (tenant, collection, document_id, sync, item, run, given)
    SELECT %(tenant)s, %(collection)s, id, %(sync)s, item, %(run)s, given
    FROM unnest(%(ids)s::text[], %(items)s::text[], %(given)s::bytea[]) AS new (id, item, given) ORDER BY id
    ON CONFLICT (tenant, collection, document_id) DO UPDATE
    SET sync = excluded.sync, item = excluded.item, run = excluded.run, given = excluded.given,
        former = CASE WHEN m.sync = excluded.sync THEN m.former ELSE m.sync END,
        digest = CASE WHEN m.sync = excluded.sync AND m.given = excluded.given THEN m.digest END
"""
_READ_AGAIN = """
    UPDATE signalbox.sync_item SET version = NULL, digest = NULL
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(items)s)
"""
_ORPHAN_ITEMS = """
    UPDATE signalbox.sync_document SET item = NULL
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(items)s)
"""
_FORGET_ITEMS = """
    DELETE FROM signalbox.sync_item WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(items)s)
"""
_DROP_FAILED = """
    DELETE FROM signalbox.sync_document m
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND sync = %(sync)s AND document_id = ANY (%(failed)s)
      AND NOT EXISTS (SELECT FROM signalbox.document d JOIN signalbox.collection c
                        ON c.tenant = d.tenant AND c.number = d.collection
                      WHERE d.tenant = m.tenant AND c.name = m.collection AND d.id = m.document_id)
"""
_ORPHAN_FAILED = """
    UPDATE signalbox.sync_document SET item = NULL
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND sync = %(sync)s AND document_id = ANY (%(failed)s)
"""
_ORPHAN_UNSEEN = """
    UPDATE signalbox.sync_document m SET item = NULL
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item = ANY (%(ended)s) AND run < %(run)s
      AND (document_id, item) NOT IN (SELECT * FROM unnest(%(ids)s::text[], %(items)s::text[]))
"""
_NOTE_DIGESTS = """
    UPDATE signalbox.sync_document m SET digest = d.digest
    FROM signalbox.document d JOIN signalbox.collection c ON c.tenant = d.tenant AND c.number = d.collection
    WHERE m.tenant = %(tenant)s AND m.collection = %(collection)s AND m.sync = %(sync)s
      AND m.document_id = ANY (%(ids)s) AND d.tenant = m.tenant AND c.name = m.collection AND c.part_of IS NULL
      AND d.id = m.document_id AND d.delivery <= %(delivery)s
"""
_NOTE_ITEMS = """
    INSERT INTO signalbox.sync_item (tenant, sync, item, version, digest)
    SELECT %(tenant)s, %(sync)s, item, version, digest
    FROM unnest(%(items)s::text[], %(versions)s::text[], %(digests)s::bytea[]) AS new (item, version, digest)
    ON CONFLICT (tenant, sync, item) DO UPDATE SET version = excluded.version, digest = excluded.digest
"""
_ADVANCED = "UPDATE signalbox.job SET tries = 0, deaths = 0 WHERE tenant = %(tenant)s AND id = %(id)s"
_COUNT_DELETED = "UPDATE signalbox.job SET deleted = deleted + %(count)s WHERE tenant = %(tenant)s AND id = %(id)s"
_DOOMED = """
    SELECT document_id FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND item IS NULL ORDER BY document_id LIMIT %(most)s FOR UPDATE
"""
_DELETE = """
    DELETE FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND document_id = ANY (%(ids)s)
"""
_NUMBER = """
    SELECT number FROM signalbox.collection WHERE tenant = %(tenant)s AND name = %(collection)s AND part_of IS NULL
"""
_END = """
    UPDATE signalbox.sync s SET documents = (
        SELECT count(*) FROM signalbox.sync_document m WHERE m.tenant = s.tenant AND m.sync = s.id)
    WHERE s.tenant = %(tenant)s AND s.id = %(sync)s RETURNING s.documents
"""
_FORGET_READ = """
    UPDATE signalbox.sync_item i SET version = NULL, digest = NULL FROM signalbox.sync_document m
    WHERE m.tenant = %(tenant)s AND m.collection = %(collection)s
      AND (%(document)s::text IS NULL OR m.document_id = %(document)s)
      AND i.tenant = m.tenant AND i.sync = m.sync AND i.item = m.item
"""
_FORGET_DOCUMENTS = """
    DELETE FROM signalbox.sync_document
    WHERE tenant = %(tenant)s AND collection = %(collection)s
      AND (%(document)s::text IS NULL OR document_id = %(document)s)
"""
