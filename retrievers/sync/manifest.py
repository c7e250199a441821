"""The manifest of a mirror: which documents were stored from which item (such as a file) of its source.

Only the run that holds the lease writes the manifest.
"""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import NamedTuple
from uuid import NAMESPACE_URL, UUID, uuid5

from retrievers.core.types import unrestricted_viewer
from retrievers.ingest import collections, document_store
from retrievers.ingest.collections import Connection
from retrievers.ingest.derived_data import settle_collection
from retrievers.ingest.jobs import job_queue as queue
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import Lease
from retrievers.ingest.report import IngestReport
from retrievers.postgres.connections.database import Database, Row
from retrievers.postgres.connections.row_batches import stream_batches
from retrievers.sync import manifest_statements as sql
from retrievers.sync.forgotten_sources import (
    UnclaimedDocuments,
    lock_manifest,
    take_over_documents,
    unclaimed_documents,
)

_CONVERSION_VERSION = "1"
"""Version of the conversion from items to documents. When it changes, every item is read again."""


def mirror_id(tenant: str, collection: str, source: str) -> UUID:
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
class DocumentClaim:
    """The claim of an item to a document that it provides. A document can belong to one item only.

    Attributes:
        id: the document's id.
        item: the item's key.
        provided_digest: digest of the document as the item provides it.
    """

    id: str
    item: str
    provided_digest: bytes


class DocumentOwner(NamedTuple):
    """The source and item that a document belongs to.

    Attributes:
        sync: id of the source.
        item: key of the item; None if no item provides the document any more.
        run: number of the run in which the item claimed it.
        provided_digest: digest of the document as the item provided it.
    """

    sync: UUID
    item: str | None
    run: int
    provided_digest: bytes


def may_claim(claim: DocumentClaim, owner: DocumentOwner, sync: UUID, run: int) -> bool:
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

    async def known_items(self) -> dict[str, KnownItem]:
        """Return the items that were read before, by key.

        Version and digest are None for an item whose documents others have changed or deleted since, or whose reading
        was interrupted.
        """
        known: dict[str, KnownItem] = {}
        async with self.database.transaction(unrestricted_viewer(self.tenant), frozen=True) as connection:
            async for page in stream_batches(connection, sql.KNOWN_ITEMS, self._sql_parameters(), _PAGE):
                for item, version, digest in page:
                    known[item] = KnownItem(_current_version(version), digest and bytes(digest))
            async for page in stream_batches(connection, sql.DAMAGED, self._sql_parameters(), _PAGE):
                known.update((row[0], KnownItem(None, None)) for row in page)
        return known

    async def damaged_documents(self) -> list[tuple[str, str]]:
        """Return (item, document id) of every document that others have changed or deleted since it was stored."""
        found: list[tuple[str, str]] = []
        async with self.database.transaction(unrestricted_viewer(self.tenant), frozen=True) as connection:
            async for page in stream_batches(connection, sql.DAMAGED, self._sql_parameters(), _PAGE):
                found += [(row[0], row[1]) for row in page]
        return found

    async def documents_of(self, items: Iterable[str], *, orphans: bool = True) -> set[str]:
        """Return the ids of the documents stored from these items.

        Args:
            orphans: also return the ids of all documents in the manifest that no item provides any more.
        """
        found: set[str] = set()
        async with self.database.transaction(unrestricted_viewer(self.tenant), frozen=True) as connection:
            if orphans:
                async for page in stream_batches(connection, sql.ORPHANS, self._sql_parameters(), _PAGE):
                    found.update(row[0] for row in page)
            for some in _batched([*items]):
                async for page in stream_batches(connection, sql.DOCUMENTS_OF, self._sql_parameters(items=some), _PAGE):
                    found.update(row[0] for row in page)
        return found

    async def count_orphans(self) -> int:
        """Return the number of documents that no item provides any more."""
        rows = await self.database.fetch(unrestricted_viewer(self.tenant), sql.COUNT_ORPHANS, self._sql_parameters())
        return int(rows[0][0])

    async def document_counts(self) -> tuple[int, int]:
        """Return (number of documents in the manifest now, their number after the last complete run).

        Before the first complete run, the second number is the same as the first.
        """
        async with self.database.transaction(unrestricted_viewer(self.tenant)) as connection:
            row = await (await connection.execute(sql.DOCUMENT_COUNTS, self._sql_parameters())).fetchone()
        return (row[0], row[0] if row[1] is None else row[1]) if row else (0, 0)

    async def unclaimed_documents(self) -> list[UnclaimedDocuments]:
        """Return the unclaimed documents of the collection's forgotten sources, see `UnclaimedDocuments`."""
        async with self.database.transaction(unrestricted_viewer(self.tenant)) as connection:
            return await unclaimed_documents(connection, self.tenant, self.collection, self.sync)

    async def owners(self, ids: Sequence[str]) -> dict[str, DocumentOwner]:
        """Return the owner of each document by document id. Documents without an owner are left out."""
        async with self.database.transaction(unrestricted_viewer(self.tenant)) as connection:
            return await self._owners(connection, ids)

    async def _owners(self, connection: Connection, ids: Sequence[str]) -> dict[str, DocumentOwner]:
        cursor = await connection.execute(sql.OWNERS, self._sql_parameters(ids=sorted(ids)))
        return {row[0]: DocumentOwner(row[1], row[2], row[3], bytes(row[4])) for row in await cursor.fetchall()}

    def _sql_parameters(self, **more: object) -> dict[str, object]:
        return {"tenant": self.tenant, "sync": self.sync, "collection": self.collection, **more}


@dataclass(frozen=True, slots=True)
class ManifestWriter:
    """Changes a manifest. Every change is one transaction that also verifies the lease.

    Attributes:
        run: number of this run, higher than that of any earlier run.
        report: what has been done so far.
    """

    manifest: Manifest
    jobs: JobQueue
    lease: Lease
    run: int
    report: IngestReport

    async def remove_items(self, items: Sequence[str]) -> None:
        """Remove items that the source no longer has. Raises LostLease, like all methods of this class."""
        for some in _batched(items):
            async with self._transaction() as connection:
                which = self.manifest._sql_parameters(items=some)
                await connection.execute(sql.ORPHAN_ITEMS, which)
                await connection.execute(sql.FORGET_ITEMS, which)

    @asynccontextmanager
    async def _transaction(self, *, deletes: bool = False) -> AsyncIterator[Connection]:
        """Open a transaction that is rolled back if the lease is lost. Takes locks in the order of `lock_manifest`.

        Args:
            deletes: the transaction also deletes documents, so it locks the collection first.
        """
        manifest = self.manifest
        async with manifest.database.transaction(unrestricted_viewer(manifest.tenant)) as connection:
            if deletes and (number := await _collection_number(connection, manifest)) is not None:
                await collections.lock_fields(connection, manifest.tenant, number)
            await lock_manifest(connection, manifest.tenant, manifest.collection)
            yield connection
            report = self.report
            # This comes last, because it locks the job's row. While that is locked, the lease cannot be renewed.
            await self.jobs.record_batch(
                connection, self.lease, inserted=0, updated=0, done=report.done, failed=len(report.failed)
            )

    async def claim_documents(
        self, claims: Sequence[DocumentClaim], ended: Sequence[str]
    ) -> tuple[int, dict[str, DocumentOwner], set[str]]:
        """Assign documents to the items that claim them, except where `may_claim` refuses the claim.

        Args:
            claims: claims to different documents.
            ended: keys of items that have been read completely. Documents that these items no longer provide lose
                their item.
        Returns:
            The delivery number for storing the documents; the owner of each document whose claim was refused, by
            document id; and the keys of other items that lost a document. Those of this source will be read again.
        """
        async with self._transaction() as connection:
            delivery = await document_store.next_delivery(connection)
            pairs = {"ids": [one.id for one in claims], "items": [one.item for one in claims]}
            which = self.manifest._sql_parameters(ended=list(ended), run=self.run, **pairs)
            await connection.execute(sql.ORPHAN_UNSEEN, which)
            before = await self.manifest._owners(connection, [one.id for one in claims])
            sync = self.manifest.sync
            refused = {one.id: owner for one in claims
                       if (owner := before.get(one.id)) and not may_claim(one, owner, sync, self.run)}  # fmt: skip
            granted = [one for one in claims if one.id not in refused]
            values = {
                "ids": [one.id for one in granted],
                "items": [one.item for one in granted],
                "given": [one.provided_digest for one in granted],
                "run": self.run,
            }
            await connection.execute(sql.CLAIM, self.manifest._sql_parameters(**values))
            displaced = {owner.item for one in granted if (owner := before.get(one.id)) and owner.item != one.item}
            items = {item for item in displaced if item is not None}
            await connection.execute(sql.READ_AGAIN, self.manifest._sql_parameters(items=sorted(items)))
        return delivery, refused, items

    async def complete_items(
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
            which = self.manifest._sql_parameters(ids=list(stored), failed=list(failed), delivery=delivery)
            await connection.execute(sql.DROP_FAILED, which)
            await connection.execute(sql.ORPHAN_FAILED, which)
            await connection.execute(sql.RECORD_DIGESTS, which)
            items = self.manifest._sql_parameters(
                items=list(read),
                versions=[_stored_version(one.version) for one in read.values()],
                digests=[one.digest for one in read.values()],
            )
            await connection.execute(sql.RECORD_ITEMS, items)
            # Progress was made, so earlier interruptions no longer count towards giving up the job.
            await connection.execute(sql.RESET_TRIES, {"tenant": self.lease.tenant, "id": self.lease.id})

    async def take_over_documents(self, former: UUID) -> None:
        """Take over the unclaimed documents of a forgotten source, to delete them with this source's own deletions."""
        async with self._transaction() as connection:
            await take_over_documents(connection, self.manifest.tenant, self.manifest.sync, former)

    async def delete_batch(self) -> int | None:
        """Delete a batch of documents that no item provides any more.

        Returns:
            The number of stored documents deleted, which may be 0 if others had deleted them; None if no document is
            left to delete.
        """
        while True:
            try:
                return await self._delete_batch()
            except collections.CollectionReplaced:
                continue  # the collection was recreated in the meantime, under another number

    async def _delete_batch(self) -> int | None:
        manifest = self.manifest
        async with self._transaction(deletes=True) as connection:
            number = await _collection_number(connection, manifest)
            rows = await (
                await connection.execute(sql.SELECT_ORPHANS, manifest._sql_parameters(most=_DELETED_AT_ONCE))
            ).fetchall()
            if not rows:
                return None
            ids, count = [row[0] for row in rows], 0
            if number is not None:
                count = await document_store.remove_documents(connection, manifest.tenant, number, ids)
                await queue.forget_document_payloads(connection, manifest.tenant, manifest.collection, ids)
            await connection.execute(sql.DELETE, manifest._sql_parameters(ids=ids))
            await connection.execute(
                sql.COUNT_DELETED, {"tenant": self.lease.tenant, "id": self.lease.id, "count": count}
            )
        return count

    async def finish_run(self) -> int:
        """Finish the run with `settle_collection`. Return the number of the source's documents."""
        manifest = self.manifest
        async with manifest.database.transaction(unrestricted_viewer(manifest.tenant)) as connection:
            number = await _collection_number(connection, manifest)
        if number is not None:
            await settle_collection(manifest.database, manifest.tenant, number)
        async with self._transaction() as connection:
            row = await (await connection.execute(sql.FINISH_RUN, manifest._sql_parameters())).fetchone()
        return row[0] if row else 0


async def _collection_number(connection: Connection, manifest: Manifest) -> int | None:
    row: Row | None = await (await connection.execute(sql.COLLECTION_NUMBER, manifest._sql_parameters())).fetchone()
    return int(row[0]) if row else None


async def forget_documents(connection: Connection, tenant: str, collection: str, document: str | None = None) -> None:
    """Remove a document, or all documents of a collection, from the manifests of all mirrors of the collection.

    Call it in the transaction that deletes the documents, before that touches the collection's jobs, to keep the lock
    order of `lock_manifest`. The next run of a source that still has a document stores it again.

    Args:
        document: id of the document; None for all.
    """
    which = {"tenant": tenant, "collection": collection, "document": document}
    await lock_manifest(connection, tenant, collection)
    await connection.execute(sql.RESET_ITEMS, which)
    await connection.execute(sql.FORGET_DOCUMENTS, which)


def _batched(items: Sequence[str]) -> Iterator[list[str]]:
    """Split the items into batches, so that no statement gets all of them at once."""
    return (list(items[start : start + _PAGE]) for start in range(0, len(items), _PAGE))


def _stored_version(version: str | None) -> str | None:
    return None if version is None else f"{_CONVERSION_VERSION} {version}"


def _current_version(stored: str | None) -> str | None:
    reading, _, version = (stored or "").partition(" ")
    return version if reading == _CONVERSION_VERSION else None


_DELETED_AT_ONCE = 200
_PAGE = 2000
