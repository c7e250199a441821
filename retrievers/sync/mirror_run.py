"""One run of a mirror: stores the source's changes in its collection, and deletes documents that the source lost.

A source consists of items, such as files, each of which provides documents. The manifest is the record, in the
database, of the items read and the documents stored from each. A run lists the source and reads only items that differ
from the manifest. A document is recorded before it is stored, and an item is recorded as read after all of its
documents are stored. So a run can be killed at any moment, and the next one finds in the manifest what it had begun.
Documents are deleted at the end, since an item that is read late may provide a document that another item has lost.
"""

import asyncio
from collections.abc import (
    Awaitable,
    Callable,
    Iterable,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Protocol

from retrievers.core.collection_schema import Schema
from retrievers.core.types import unrestricted_viewer
from retrievers.ingest import collections, document_store
from retrievers.ingest.collection_schema import store_schema
from retrievers.ingest.collections import check_collection_name
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import Lease
from retrievers.ingest.report import Failure, IngestReport, OnWrite, Progress
from retrievers.postgres.connections.database import Database
from retrievers.sync.deletion_guard import DeletionLimits, DeletionRefused, refusal_reason, unclaimed_note
from retrievers.sync.document_selection import SkippedDocument, refused_documents, select_documents
from retrievers.sync.manifest import KnownItem, Manifest, ManifestWriter, mirror_id
from retrievers.sync.plan import SyncPlan, SyncPlanner
from retrievers.sync.source import ItemRequest, Listing, Source, check_item_count, key_problem, rejected_item
from retrievers.sync.source_batches import SourceBatch, read_batches, run_in_thread

MOST_FAILURES = 10_000
"""Maximum number of failures of one run that are recorded with their reasons; further ones are only counted."""


class StoreDocuments(Protocol):
    """`retrievers.ingest.run.ingest` with the arguments that are the same for every run."""

    async def __call__(
        self,
        tenant: str,
        collection: str,
        items: Sequence[Document | RejectedItem],
        *,
        delivery: int,
        on_write: OnWrite,
        progress: Progress,
    ) -> IngestReport: ...


@dataclass(slots=True)
class MirrorReport(IngestReport):
    """Result of one run. `deleted` is the number of deleted documents."""

    deleted: int = 0


@dataclass(frozen=True, slots=True)
class _Difference:
    """The difference between a listing and the manifest.

    Attributes:
        requests: items to read, because they are new, have changed or may have changed.
        removed_keys: keys of items in the manifest that the source no longer has.
        versions: version of every listed item, by key.
        failed: items that could not be listed or have an invalid key, with the reason.
    """

    requests: Sequence[ItemRequest]
    removed_keys: Sequence[str]
    versions: dict[str, str | None]
    failed: Sequence[RejectedItem]


@dataclass(frozen=True, slots=True)
class Mirror:
    """A source and the collection that is kept equal to it.

    Args:
        check: called with the source's schema before the schema is stored; raises BadRequest to refuse it. None to
            accept every schema.
    """

    database: Database
    tenant: str
    collection: str
    source: Source
    check: Callable[[Schema], None] | None = None

    def __post_init__(self) -> None:
        check_collection_name(self.collection)

    @property
    def manifest(self) -> Manifest:
        """The manifest of this mirror."""
        sync = mirror_id(self.tenant, self.collection, self.source.name)
        return Manifest(self.database, self.tenant, sync, self.collection)

    async def plan(self, limits: DeletionLimits) -> SyncPlan:
        """Return what `run` would do now, without writing.

        Raises:
            BadRequest: the source does not exist, or its schema is refused.
            Unavailable: the source or the database cannot be reached.
        """
        manifest = self.manifest
        difference, _ = await self._find_difference(manifest)
        candidates = await manifest.documents_of([*difference.removed_keys, *(one.key for one in difference.requests)])
        damaged = {row[1] for row in await manifest.damaged_documents()}
        planner = SyncPlanner(manifest, damaged, candidates, _failures(difference.failed))
        async with aclosing(read_batches(self.source, difference.requests)) as batches:
            async for batch in batches:
                await planner.add_batch(batch)
        stored, before = await manifest.document_counts()
        return planner.build_plan(stored, before, await manifest.unclaimed_documents(), limits)

    async def run(
        self, jobs: JobQueue, lease: Lease, into: StoreDocuments, limits: DeletionLimits, progress: Progress
    ) -> MirrorReport:
        """Bring the collection up to date.

        Args:
            lease: lease of this run's job; every change requires it.
            into: stores documents.
            progress: called with the result so far after every stored batch.
        Raises:
            BadRequest: the source does not exist, its schema is refused, or none of its documents can be stored in
                this collection.
            DeletionRefused: too many documents are gone from the source. None is deleted; all others are stored.
            Unavailable: the source, the database or the embedder failed. The next attempt continues from there.
            LostLease: another worker has taken over the job.
        """
        manifest = self.manifest
        report = MirrorReport()
        difference, listing = await self._find_difference(manifest)
        if listing.schema:
            await store_schema(self.database, self.tenant, self.collection, listing.schema)
        stored, before = await manifest.document_counts()
        touched = await manifest.documents_of([*difference.removed_keys, *(one.key for one in difference.requests)])
        report.unchanged = stored - len(touched)
        async with self.database.transaction(unrestricted_viewer(self.tenant)) as connection:
            attempt = await document_store.next_delivery(connection)
        run = _MirrorRun(ManifestWriter(manifest, jobs, lease, attempt, report), report, into, difference, progress)
        for one in difference.failed:
            run.fail(one.where, one.id, one.reason, one.readers)
        await run.writer.remove_items(difference.removed_keys)
        async with aclosing(read_batches(self.source, difference.requests)) as batches:
            async for batch in batches:
                await run.store(batch)
        await run.delete(before, limits)
        report.unchanged = max(await run.writer.finish_run() - report.inserted - report.updated, 0)
        return report

    async def _find_difference(self, manifest: Manifest) -> tuple[_Difference, Listing]:
        listing = await run_in_thread(self.source.list_items)
        if self.check is not None:
            self.check(listing.schema)
        known = await manifest.known_items()
        return await asyncio.to_thread(_difference, listing, known), listing


def bind_run(
    mirror: Mirror, jobs: JobQueue, into: StoreDocuments, limits: DeletionLimits
) -> Callable[[Lease, Progress], Awaitable[MirrorReport]]:
    """Return `mirror.run` as a function of lease and progress only, as a worker calls it for the mirror's job."""

    async def run(lease: Lease, progress: Progress) -> MirrorReport:
        return await mirror.run(jobs, lease, into, limits, progress)

    return run


def _difference(listing: Listing, known: dict[str, KnownItem]) -> _Difference:
    failed, versions = list(listing.failed), dict[str, str | None]()
    for item in listing.items:
        check_item_count(len(versions) + 1)
        if reason := key_problem(item.key):
            failed.append(rejected_item(item.key, reason))
        else:
            versions[item.key] = item.version
    requests = []
    for key in sorted(versions):
        version, was = versions[key], known.get(key)
        if was is None or version is None or was.version != version:
            requests.append(ItemRequest(key, was.digest if was is not None else None))
    out_of_sight = tuple(f"{one}/" for one in listing.unlisted)
    removed_keys = [
        key for key in sorted(known.keys() - versions.keys())
        if key not in listing.unlisted and not key.startswith(out_of_sight)
    ]  # fmt: skip
    return _Difference(requests, removed_keys, versions, failed)


@dataclass(slots=True)
class _MirrorRun:
    """The state of one run.

    Attributes:
        into: stores documents.
        difference: what the run has to do.
        progress: called after every stored batch and deleted batch.
    """

    writer: ManifestWriter
    report: MirrorReport
    into: StoreDocuments
    difference: _Difference
    progress: Progress
    failing: set[str] = field(default_factory=set)
    """Items with a failure, or with a document that another item also provides. They are read again in every run."""

    def fail(self, where: str, id: str | None, reason: str, readers: tuple[str, ...] = ()) -> None:
        if len(self.report.failed) < MOST_FAILURES:
            self.report.failed.append(Failure(len(self.report.failed), where, id, reason, readers))

    async def store(self, batch: SourceBatch) -> None:
        """Store the documents of a batch, and record the items that were read completely with it."""
        for unreadable in batch.unreadable:
            self.fail(unreadable.key, None, unreadable.reason)
        selection = await asyncio.to_thread(select_documents, batch)
        self._skip(selection.skipped)
        ended = [one.key for one in batch.item_ends if not one.is_unchanged]
        delivery, refused, displaced = await self.writer.claim_documents(
            [one.claim for one in selection.accepted], ended
        )
        self._skip(refused_documents(selection.accepted, refused, self.writer.manifest.sync))
        # These items lost a document that they provide. If they end in this batch, they must not count as read.
        self.failing |= displaced
        accepted = [one for one in selection.accepted if one.claim.id not in refused]
        failed = await self._ingest([one.document for one in accepted], delivery)
        self.failing.update(one.claim.item for one in accepted if one.claim.id in failed)
        versions = self.difference.versions
        await self.writer.complete_items(
            {one.key: KnownItem(None, None) if one.key in self.failing else KnownItem(versions.get(one.key), one.digest)
             for one in batch.item_ends},
            stored=[one.claim.id for one in accepted if one.claim.id not in failed],
            failed=sorted(failed),
            delivery=delivery,
        )  # fmt: skip
        self.progress(self.report)

    def _skip(self, skipped: Iterable[SkippedDocument]) -> None:
        for one in skipped:
            self.failing.add(one.key)
            if one.reason is not None:
                self.fail(one.item.where, one.item.id, one.reason, one.item.readers)

    async def _ingest(self, documents: Sequence[Document], delivery: int) -> set[str]:
        """Store documents, and return the ids of those that failed."""
        report = self.report

        async def on_write(
            connection: collections.Connection, batch: IngestReport, inserted: int, updated: int
        ) -> None:
            done, failed = report.done + batch.done + inserted + updated, len(report.failed) + len(batch.failed)
            jobs, lease = self.writer.jobs, self.writer.lease
            await jobs.record_batch(connection, lease, inserted=inserted, updated=updated, done=done, failed=failed)

        if not documents:
            return set()
        manifest = self.writer.manifest
        stored = await self.into(
            manifest.tenant, manifest.collection, documents, delivery=delivery, on_write=on_write, progress=_nothing
        )
        failed, stored.failed = stored.failed, []
        report.add(stored)
        for one in failed:
            self.fail(one.where, one.id, one.reason, one.readers)
        return {documents[one.index].id for one in failed}

    async def delete(self, before: int, limits: DeletionLimits) -> None:
        """Delete documents that no item provides any more.

        Args:
            before: number of the source's documents after the last complete run.
        Raises:
            DeletionRefused: there are too many of these documents; none is deleted.
        """
        orphans = await self.writer.manifest.count_orphans()
        if reason := refusal_reason(orphans, before, limits):
            raise DeletionRefused(reason)
        for one in await self.writer.manifest.unclaimed_documents():
            if not self.report.failed and one.may_delete(limits.most_deleted, force=limits.force):
                await self.writer.take_over_documents(one.sync)
            elif one.taken_over:
                self.report.notes.append(unclaimed_note(one))
        while (count := await self.writer.delete_batch()) is not None:
            self.report.deleted += count
            self.progress(self.report)


def _failures(rejected: Iterable[RejectedItem]) -> list[Failure]:
    return [Failure(n, one.where, one.id, one.reason, one.readers) for n, one in enumerate(rejected)]


def _nothing(report: IngestReport) -> None:
    pass
