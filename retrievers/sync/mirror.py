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

from retrievers.core.errors import BadRequest
from retrievers.core.schema import Schema
from retrievers.core.types import whole
from retrievers.ingest import collections, store
from retrievers.ingest.collections import check_name
from retrievers.ingest.declare import declare
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.job_types import Lease
from retrievers.ingest.jobs import JobQueue
from retrievers.ingest.report import Failure, Progress, Report, Written
from retrievers.postgres.database import Database
from retrievers.sync.guard import DeletionLimits, DeletionRefused, why_kept, why_refused
from retrievers.sync.manifest import KnownItem, Manifest, Writer, id_of
from retrievers.sync.offers import LeftOut, losers_of, offers_of
from retrievers.sync.plan import Planning, SyncPlan
from retrievers.sync.portions import Portion, in_thread, portions_of
from retrievers.sync.source import MOST_ITEMS, MOST_KEY_CHARACTERS, Listing, Source, SourceItem, Wanted

MOST_FAILURES = 10_000
"""Maximum number of failures of one run that are recorded with their reasons; further ones are only counted."""


class Store(Protocol):
    """`retrievers.ingest.run.ingest` with the arguments that are the same for every run."""

    async def __call__(
        self,
        tenant: str,
        collection: str,
        items: Sequence[Document | RejectedItem],
        *,
        delivery: int,
        written: Written,
        progress: Progress,
    ) -> Report: ...


@dataclass(slots=True)
class Mirrored(Report):
    """Result of one run. `deleted` is the number of deleted documents."""

    deleted: int = 0


@dataclass(frozen=True, slots=True)
class _Difference:
    """The difference between a listing and the manifest.

    Attributes:
        wanted: items to read, because they are new, have changed or may have changed.
        vanished: keys of items in the manifest that the source no longer has.
        versions: version of every listed item, by key.
        failed: items that could not be listed or have an invalid key, with the reason.
    """

    wanted: Sequence[Wanted]
    vanished: Sequence[str]
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
        check_name(self.collection)

    @property
    def manifest(self) -> Manifest:
        """The manifest of this mirror."""
        sync = id_of(self.tenant, self.collection, self.source.shown)
        return Manifest(self.database, self.tenant, sync, self.collection)

    async def plan(self, limits: DeletionLimits) -> SyncPlan:
        """Return what `run` would do now, without writing.

        Raises:
            BadRequest: the source does not exist, or its schema is refused.
            Unavailable: the source or the database cannot be reached.
        """
        manifest = self.manifest
        difference, _ = await self._differ(manifest)
        gone = await manifest.documents_of([*difference.vanished, *(one.key for one in difference.wanted)])
        damaged = {row[1] for row in await manifest.damaged()}
        plan = Planning(manifest, damaged, gone, _failures(difference.failed))
        async with aclosing(portions_of(self.source, difference.wanted)) as portions:
            async for portion in portions:
                await plan.look_at(portion)
        stored, before = await manifest.stored()
        return plan.made(stored, before, await manifest.remains(), limits)

    async def run(
        self, jobs: JobQueue, lease: Lease, into: Store, limits: DeletionLimits, progress: Progress
    ) -> Mirrored:
        """Bring the collection up to date.

        Args:
            lease: lease of this run's job; every change requires it.
            into: stores documents.
            progress: called with the result so far after every stored portion.
        Raises:
            BadRequest: the source does not exist, its schema is refused, or none of its documents can be stored in
                this collection.
            DeletionRefused: too many documents are gone from the source. None is deleted; all others are stored.
            Unavailable: the source, the database or the embedder failed. The next attempt continues from there.
            LostLease: another worker has taken over the job.
        """
        manifest = self.manifest
        report = Mirrored()
        difference, listing = await self._differ(manifest)
        if listing.schema:
            await declare(self.database, self.tenant, self.collection, listing.schema)
        stored, before = await manifest.stored()
        touched = await manifest.documents_of([*difference.vanished, *(one.key for one in difference.wanted)])
        report.unchanged = stored - len(touched)
        async with self.database.transaction(whole(self.tenant)) as connection:
            attempt = await store.next_delivery(connection)
        run = _MirrorRun(Writer(manifest, jobs, lease, attempt, report), report, into, difference, progress)
        for one in difference.failed:
            run.fail(one.where, one.id, one.reason, one.readers)
        await run.writer.vanish(difference.vanished)
        async with aclosing(portions_of(self.source, difference.wanted)) as portions:
            async for portion in portions:
                await run.store(portion)
        await run.delete(before, limits)
        report.unchanged = max(await run.writer.end() - report.inserted - report.updated, 0)
        return report

    async def _differ(self, manifest: Manifest) -> tuple[_Difference, Listing]:
        listing = await in_thread(self.source.listing)
        if self.check is not None:
            self.check(listing.schema)
        known = await manifest.known()
        return await asyncio.to_thread(_difference, listing, known), listing


def mirroring(
    mirror: Mirror, jobs: JobQueue, into: Store, limits: DeletionLimits
) -> Callable[[Lease, Progress], Awaitable[Mirrored]]:
    """Return `mirror.run` as a function of lease and progress only, as a worker calls it for the mirror's job."""

    async def run(lease: Lease, progress: Progress) -> Mirrored:
        return await mirror.run(jobs, lease, into, limits, progress)

    return run


def _difference(listing: Listing, known: dict[str, KnownItem]) -> _Difference:
    failed, versions = list(listing.failed), dict[str, str | None]()
    for item in listing.items:
        if len(versions) >= MOST_ITEMS:
            raise BadRequest(
                f"the source has more than {MOST_ITEMS:,} items: sync its parts one by one", where="source"
            )
        if reason := _unfit(item):
            failed.append(RejectedItem(item.key[:100], None, reason))
        else:
            versions[item.key] = item.version
    wanted = []
    for key in sorted(versions):
        version, was = versions[key], known.get(key)
        if was is None or version is None or was.version != version:
            wanted.append(Wanted(key, was.digest if was is not None else None))
    out_of_sight = tuple(f"{one}/" for one in listing.unlisted)
    vanished = [
        key for key in sorted(known.keys() - versions.keys())
        if key not in listing.unlisted and not key.startswith(out_of_sight)
    ]  # fmt: skip
    return _Difference(wanted, vanished, versions, failed)


def _unfit(item: SourceItem) -> str | None:
    if not item.key or len(item.key) > MOST_KEY_CHARACTERS:
        return f"its name has {len(item.key):,} characters; 1 to {MOST_KEY_CHARACTERS} are allowed"
    return None if item.key.isprintable() else "its name holds characters that cannot be printed"


@dataclass(slots=True)
class _MirrorRun:
    """The state of one run.

    Attributes:
        into: stores documents.
        difference: what the run has to do.
        progress: called after every stored portion and deleted batch.
    """

    writer: Writer
    report: Mirrored
    into: Store
    difference: _Difference
    progress: Progress
    failing: set[str] = field(default_factory=set)
    """Items with a failure, or with a document that another item also provides. They are read again in every run."""

    def fail(self, where: str, id: str | None, reason: str, readers: tuple[str, ...] = ()) -> None:
        if len(self.report.failed) < MOST_FAILURES:
            self.report.failed.append(Failure(len(self.report.failed), where, id, reason, readers))

    async def store(self, portion: Portion) -> None:
        """Store the documents of a portion, and record the items that were read completely with it."""
        for unread in portion.unread:
            self.fail(unread.key, None, unread.reason)
        offered = await asyncio.to_thread(offers_of, portion)
        self._leave_out(offered.left_out)
        ended = [one.key for one in portion.ends if not one.is_same]
        delivery, refused, displaced = await self.writer.claim([one.claim for one in offered.good], ended)
        self._leave_out(losers_of(offered.good, refused, self.writer.manifest.sync))
        # These items lost a document that they provide. If they end in this portion, they must not count as read.
        self.failing |= displaced
        good = [one for one in offered.good if one.claim.id not in refused]
        failed = await self._ingest([one.document for one in good], delivery)
        self.failing.update(one.claim.item for one in good if one.claim.id in failed)
        versions = self.difference.versions
        await self.writer.complete(
            {one.key: KnownItem(None, None) if one.key in self.failing else KnownItem(versions.get(one.key), one.digest)
             for one in portion.ends},
            stored=[one.claim.id for one in good if one.claim.id not in failed],
            failed=sorted(failed),
            delivery=delivery,
        )  # fmt: skip
        self.progress(self.report)

    def _leave_out(self, losers: Iterable["LeftOut"]) -> None:
        for one in losers:
            self.failing.add(one.key)
            if one.reason is not None:
                self.fail(one.item.where, one.item.id, one.reason, one.item.readers)

    async def _ingest(self, documents: Sequence[Document], delivery: int) -> set[str]:
        """Store documents, and return the ids of those that failed."""
        report = self.report

        async def written(connection: collections.Connection, portion: Report, inserted: int, updated: int) -> None:
            done, failed = report.done + portion.done + inserted + updated, len(report.failed) + len(portion.failed)
            jobs, lease = self.writer.jobs, self.writer.lease
            await jobs.record(connection, lease, inserted=inserted, updated=updated, done=done, failed=failed)

        if not documents:
            return set()
        manifest = self.writer.manifest
        stored = await self.into(
            manifest.tenant, manifest.collection, documents, delivery=delivery, written=written, progress=_nothing
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
        doomed = await self.writer.manifest.doomed()
        if refused := why_refused(doomed, before, limits):
            raise DeletionRefused(refused)
        for one in await self.writer.manifest.remains():
            if not self.report.failed and one.goes(limits.most_deleted, force=limits.force):
                await self.writer.inherit(one.sync)
            elif one.taken:
                self.report.notes.append(why_kept(one))
        while (some := await self.writer.delete_some()) is not None:
            self.report.deleted += some
            self.progress(self.report)


def _failures(rejected: Iterable[RejectedItem]) -> list[Failure]:
    return [Failure(n, one.where, one.id, one.reason, one.readers) for n, one in enumerate(rejected)]


def _nothing(report: Report) -> None:
    pass
