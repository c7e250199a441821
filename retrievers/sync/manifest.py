"""The manifest of a mirror: which documents were stored from which item (such as a file) of its source.

Only the run that holds the lease writes the manifest.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from retrievers.core.types import whole
from retrievers.ingest import collections, store
from retrievers.ingest import jobs as queue
from retrievers.ingest.collections import Connection
from retrievers.ingest.job_types import Lease
from retrievers.ingest.jobs import JobQueue
from retrievers.ingest.report import Report
from retrievers.ingest.settle import settle
from retrievers.postgres.database import Database, Row
from retrievers.postgres.rows import pages
from retrievers.sync import manifest_statements as sql
from retrievers.sync.forgotten import Remains, inherit, lock_manifest, remains

_READING = "1"
"""Version of the conversion from items to documents. When it changes, every item is read again."""


def id_of(tenant: str, collection: str, source: str) -> UUID:
    """Return the id of a source's mirror in a collection. It depends on the arguments only."""
    return uuid5(NAMESPACE_URL, "\n".join(("signalbox-sync", tenant, collection, source)))


class KnownItem(NamedTuple):
    """Version and digest of an item when it was last read.

    Attributes:
        version: None if the item must be read again.
        digest: None if the source needs none, or if the item must be read into documents even if it is unchanged.
    """

    version: str | None
    digest: bytes | None


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of an item to a document that it provides. A document can belong to one item only.

    Attributes:
        id: the document's id.
        item: the item's key.
        given: digest of the document as the item provides it.
    """

    id: str
    item: str
    given: bytes


class Owner(NamedTuple):
    """The source and item that a document belongs to.

    Attributes:
        sync: id of the source.
        item: key of the item; None if no item provides the document any more.
        run: number of the run in which the item claimed it.
        given: digest of the document as provided.
    """

    sync: UUID
    item: str | None
    run: int
    given: bytes


def may_have(claim: Claim, owner: Owner, sync: UUID, run: int) -> bool:
    """Return whether a claimed document passes from its owner to the claiming item.

    A document that no item provides any more always passes. Any other does not pass if it belongs to another source, if
    the claiming item's key sorts after the owner's, or if the same item has claimed it in this run before.

    Args:
        sync: id of the claiming item's source.
        run: number of this run.
    """
    if owner.item is None:
        return True
    if owner.sync != sync or claim.item > owner.item:
        return False
    return (claim.item, run) != (owner.item, owner.run)


@dataclass(frozen=True, slots=True)
class Manifest:
    """The manifest of one mirror.

    Attributes:
        collection: name of the collection.
    """

    database: Database
    tenant: str
    sync: UUID
    collection: str

    async def known(self) -> dict[str, KnownItem]:
        """Return the items that were read before, by key.

        Version and digest are None for an item whose documents others have changed or deleted since, or whose reading
        was interrupted.
        """
        known: dict[str, KnownItem] = {}
        async with self.database.transaction(whole(self.tenant), frozen=True) as connection:
            async for page in pages(connection, sql.KNOWN, self._which(), _PAGE):
                for item, version, digest in page:
                    known[item] = KnownItem(_read_now(version), digest and bytes(digest))
            async for page in pages(connection, sql.DAMAGED, self._which(), _PAGE):
                known.update((row[0], KnownItem(None, None)) for row in page)
        return known

    async def damaged(self) -> list[tuple[str, str]]:
        """Return (item, document id) of every document that others have changed or deleted since it was stored."""
        found: list[tuple[str, str]] = []
        async with self.database.transaction(whole(self.tenant), frozen=True) as connection:
            async for page in pages(connection, sql.DAMAGED, self._which(), _PAGE):
                found += [(row[0], row[1]) for row in page]
        return found

    async def documents_of(self, items: Iterable[str], *, orphans: bool = True) -> set[str]:
        """Return the ids of the documents stored from these items.

        Args:
            orphans: also return the ids of all documents in the manifest that no item provides any more.
        """
        found: set[str] = set()
        async with self.database.transaction(whole(self.tenant), frozen=True) as connection:
            if orphans:
                async for page in pages(connection, sql.ORPHANS, self._which(), _PAGE):
                    found.update(row[0] for row in page)
            for some in _some([*items]):
                async for page in pages(connection, sql.DOCUMENTS_OF, self._which(items=some), _PAGE):
                    found.update(row[0] for row in page)
        return found

    async def doomed(self) -> int:
        """Return the number of documents that no item provides any more."""
        rows = await self.database.fetch(whole(self.tenant), sql.COUNT_ORPHANS, self._which())
        return int(rows[0][0])

    async def stored(self) -> tuple[int, int]:
        """Return (number of documents in the manifest now, their number after the last complete run).

        Before the first complete run, the second number is the same as the first.
        """
        async with self.database.transaction(whole(self.tenant)) as connection:
            row = await (await connection.execute(sql.STORED, self._which())).fetchone()
        return (row[0], row[0] if row[1] is None else row[1]) if row else (0, 0)

    async def remains(self) -> list[Remains]:
        """Return what remains of the collection's forgotten sources, see `Remains`."""
        async with self.database.transaction(whole(self.tenant)) as connection:
            return await remains(connection, self.tenant, self.collection, self.sync)

    async def owners(self, ids: Sequence[str]) -> dict[str, Owner]:
        """Return the owner of each document by document id. Documents without an owner are left out."""
        async with self.database.transaction(whole(self.tenant)) as connection:
            return await self._owners(connection, ids)

    async def _owners(self, connection: Connection, ids: Sequence[str]) -> dict[str, Owner]:
        cursor = await connection.execute(sql.OWNERS, self._which(ids=sorted(ids)))
        return {row[0]: Owner(row[1], row[2], row[3], bytes(row[4])) for row in await cursor.fetchall()}

    def _which(self, **more: object) -> dict[str, object]:
        return {"tenant": self.tenant, "sync": self.sync, "collection": self.collection, **more}


@dataclass(frozen=True, slots=True)
class Writer:
    """Changes a manifest. Every change is one transaction that also verifies the lease.

    Attributes:
        run: number of this run, higher than that of any earlier run.
        report: what has been done so far.
    """

    manifest: Manifest
    jobs: JobQueue
    lease: Lease
    run: int
    report: Report

    async def vanish(self, items: Sequence[str]) -> None:
        """Remove items that the source no longer has. Raises LostLease, like all methods of this class."""
        for some in _some(items):
            async with self._transaction() as connection:
                which = self.manifest._which(items=some)
                await connection.execute(sql.ORPHAN_ITEMS, which)
                await connection.execute(sql.FORGET_ITEMS, which)

    @asynccontextmanager
    async def _transaction(self, *, deletes: bool = False) -> AsyncIterator[Connection]:
        """Open a transaction that is rolled back if the lease is lost. Takes locks in the order of `lock_manifest`.

        Args:
            deletes: the transaction also deletes documents, so it locks the collection first.
        """
        manifest = self.manifest
        async with manifest.database.transaction(whole(manifest.tenant)) as connection:
            if deletes and (number := await _number(connection, manifest)) is not None:
                await collections.lock_fields(connection, manifest.tenant, number)
            await lock_manifest(connection, manifest.tenant, manifest.collection)
            yield connection
            report = self.report
            # This comes last, because it locks the job's row. While that is locked, the lease cannot be renewed.
            await self.jobs.record(
                connection, self.lease, inserted=0, updated=0, done=report.done, failed=len(report.failed)
            )

    async def claim(self, claims: Sequence[Claim], ended: Sequence[str]) -> tuple[int, dict[str, Owner], set[str]]:
        """Assign documents to the items that claim them, except where `may_have` refuses the claim.

        Args:
            claims: claims to different documents.
            ended: keys of items that have been read completely. Documents that these items no longer provide lose
                their item.
        Returns:
            The delivery number for storing the documents; the owner of each document whose claim was refused, by
            document id; and the keys of other items that lost a document. Those of this source will be read again.
        """
        async with self._transaction() as connection:
            delivery = await store.next_delivery(connection)
            pairs = {"ids": [one.id for one in claims], "items": [one.item for one in claims]}
            which = self.manifest._which(ended=list(ended), run=self.run, **pairs)
            await connection.execute(sql.ORPHAN_UNSEEN, which)
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
            await connection.execute(sql.CLAIM, self.manifest._which(**values))
            displaced = {owner.item for one in granted if (owner := before.get(one.id)) and owner.item != one.item}
            items = {item for item in displaced if item is not None}
            await connection.execute(sql.READ_AGAIN, self.manifest._which(items=sorted(items)))
        return delivery, refused, items

    async def complete(
        self,
        read: Mapping[str, KnownItem],
        *,
        stored: Sequence[str] = (),
        failed: Sequence[str] = (),
        delivery: int = 0,
    ) -> None:
        """Record that items have been read completely and their documents are stored.

        Args:
            read: state of the items that were read, by key.
            stored: ids of documents that are stored.
            failed: ids of documents that could not be stored.
            delivery: delivery number with which the documents were stored. A document that has a higher number by now
                was changed by others, and is recorded as changed.
        """
        async with self._transaction() as connection:
            which = self.manifest._which(ids=list(stored), failed=list(failed), delivery=delivery)
            await connection.execute(sql.DROP_FAILED, which)
            await connection.execute(sql.ORPHAN_FAILED, which)
            await connection.execute(sql.NOTE_DIGESTS, which)
            items = self.manifest._which(
                items=list(read),
                versions=[_to_store(one.version) for one in read.values()],
                digests=[one.digest for one in read.values()],
            )
            await connection.execute(sql.NOTE_ITEMS, items)
            # Progress was made, so earlier interruptions no longer count towards giving up the job.
            await connection.execute(sql.ADVANCED, {"tenant": self.lease.tenant, "id": self.lease.id})

    async def inherit(self, former: UUID) -> None:
        """Take over the remains of a forgotten source, to be deleted with this source's own deletions."""
        async with self._transaction() as connection:
            await inherit(connection, self.manifest.tenant, self.manifest.sync, former)

    async def delete_some(self) -> int | None:
        """Delete a batch of documents that no item provides any more.

        Returns:
            The number of stored documents deleted, which may be 0 if others had deleted them; None if no document is
            left to delete.
        """
        while True:
            try:
                return await self._delete_some()
            except collections.Replaced:
                continue  # the collection was recreated in the meantime, under another number

    async def _delete_some(self) -> int | None:
        manifest = self.manifest
        async with self._transaction(deletes=True) as connection:
            number = await _number(connection, manifest)
            rows = await (await connection.execute(sql.DOOMED, manifest._which(most=_DELETED_AT_ONCE))).fetchall()
            if not rows:
                return None
            ids, count = [row[0] for row in rows], 0
            if number is not None:
                count = await store.remove_documents(connection, manifest.tenant, number, ids)
                await queue.forget(connection, manifest.tenant, manifest.collection, ids)
            await connection.execute(sql.DELETE, manifest._which(ids=ids))
            await connection.execute(
                sql.COUNT_DELETED, {"tenant": self.lease.tenant, "id": self.lease.id, "count": count}
            )
        return count

    async def end(self) -> int:
        """Finish the run: update the collection's counts (`settle`). Return the number of the source's documents."""
        manifest = self.manifest
        async with manifest.database.transaction(whole(manifest.tenant)) as connection:
            if (number := await _number(connection, manifest)) is not None:
                await settle(connection, manifest.tenant, number)
        async with self._transaction() as connection:
            row = await (await connection.execute(sql.END, manifest._which())).fetchone()
        return row[0] if row else 0


async def _number(connection: Connection, manifest: Manifest) -> int | None:
    row: Row | None = await (await connection.execute(sql.NUMBER, manifest._which())).fetchone()
    return int(row[0]) if row else None


async def forget(connection: Connection, tenant: str, collection: str, document: str | None = None) -> None:
    """Remove a document, or all documents of a collection, from the manifests of all mirrors of the collection.

    Call it in the transaction that deletes the documents, before that touches the collection's jobs, to keep the lock
    order of `lock_manifest`. The next run of a source that still has a document stores it again.

    Args:
        document: id of the document; None for all.
    """
    which = {"tenant": tenant, "collection": collection, "document": document}
    await lock_manifest(connection, tenant, collection)
    await connection.execute(sql.FORGET_READ, which)
    await connection.execute(sql.FORGET_DOCUMENTS, which)


def _some(items: Sequence[str]) -> Iterator[list[str]]:
    """Split the items into pages, so that no statement gets all of them at once."""
    return (list(items[start : start + _PAGE]) for start in range(0, len(items), _PAGE))


def _to_store(version: str | None) -> str | None:
    return None if version is None else f"{_READING} {version}"


def _read_now(stored: str | None) -> str | None:
    reading, _, version = (stored or "").partition(" ")
    return version if reading == _READING else None


_DELETED_AT_ONCE = 200
_PAGE = 2000
