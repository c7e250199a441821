"""One run of a mirror: what a source has is stored in its collection, and what it has no more is deleted.

The source is listed, and only what has changed by the manifest is read. Before documents are stored it is written down
which item they come from, and an item counts as read when all of its documents are stored: a run that is killed at any
moment leaves nothing that the next attempt does not know of. Deletions come last, when all that moved has been seen.
"""

import asyncio
import hashlib
import json
import threading
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from dataclasses import dataclass, field, fields
from typing import Protocol, TypeVar
from uuid import UUID

from retrievers.core.errors import BadRequest, RetrievalError
from retrievers.core.tasks import leave
from retrievers.core.types import whole
from retrievers.ingest import store
from retrievers.ingest.declare import declare
from retrievers.ingest.documents import Document, Rejected
from retrievers.ingest.jobs import Jobs, Lease
from retrievers.ingest.run import Failure, Progress, Report, Written, check_name
from retrievers.postgres.database import Database
from retrievers.sandbox import Stopped
from retrievers.sync.forgotten import Remains
from retrievers.sync.manifest import Claim, Known, Manifest, Owner, Writer, id_of, may_have
from retrievers.sync.source import (
    MOST_ITEMS,
    MOST_KEY_CHARACTERS,
    End,
    Found,
    Item,
    Listing,
    Read,
    Source,
    Unread,
    Wanted,
)

Returned = TypeVar("Returned")

MOST_FAILURES = 10_000
"""Of one run, with their reasons; further ones are only counted as not stored."""
_DOCUMENTS_AT_ONCE, _CHARACTERS_AT_ONCE = 500, 8_000_000
_ITEMS_AT_ONCE = 2_000
_END_S = 2.0


class DeletionRefused(RetrievalError):
    """A source has lost so much that it may not be the source that was meant."""


class Store(Protocol):
    """`retrievers.ingest.run.ingest` with all that is the same for every run."""

    async def __call__(
        self,
        tenant: str,
        collection: str,
        items: Sequence[Document | Rejected],
        *,
        delivery: int,
        written: Written,
        progress: Progress,
    ) -> Report: ...


@dataclass(frozen=True, slots=True)
class Limits:
    """Attributes:
    most_deleted: share of a source's documents that may be deleted by one run, 0 to 1.
    force: delete whatever the source has no more.
    """

    most_deleted: float = 0.5
    force: bool = False


@dataclass(slots=True)
class Mirrored(Report):
    """What one run did; counts are documents."""

    deleted: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run would do: ids of documents, each sorted.

    Attributes:
        refused: why its deletions would be refused.
    """

    added: Sequence[str]
    changed: Sequence[str]
    deleted: Sequence[str]
    unchanged: int
    failed: Sequence[Failure]
    refused: str | None


@dataclass(slots=True)
class _Portion:
    """So much of what was read as is stored at once."""

    found: list[Found] = field(default_factory=list)
    ends: list[End] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    characters: int = 0

    def add(self, one: Read) -> None:
        if isinstance(one, Found):
            self.found.append(one)
            self.characters += len(one.item.text) if isinstance(one.item, Document) else 0
        elif isinstance(one, End):
            self.ends.append(one)
        else:
            self.unread.append(one)

    def __bool__(self) -> bool:
        return bool(self.found or self.ends or self.unread)

    @property
    def is_full(self) -> bool:
        many = len(self.found) >= _DOCUMENTS_AT_ONCE or len(self.ends) >= _ITEMS_AT_ONCE
        return many or self.characters >= _CHARACTERS_AT_ONCE


@dataclass(frozen=True, slots=True)
class _Difference:
    """What has to be looked at.

    Attributes:
        wanted: items to read; `vanished`: keys of those that are there no more.
        versions: of all items by key.
    """

    wanted: Sequence[Wanted]
    vanished: Sequence[str]
    versions: dict[str, str | None]
    failed: Sequence[Rejected]


@dataclass(frozen=True, slots=True)
class Mirror:
    """A source and the collection that follows it."""

    database: Database
    tenant: str
    collection: str
    source: Source

    def __post_init__(self) -> None:
        check_name(self.collection)

    @property
    def manifest(self) -> Manifest:
        """What was stored of the source."""
        sync = id_of(self.tenant, self.collection, self.source.shown)
        return Manifest(self.database, self.tenant, sync, self.collection)

    async def plan(self, limits: Limits) -> Plan:
        """What `run` would do now; nothing is written.

        Raises:
            BadRequest: there is no such source.
            Unavailable: it, or the database, cannot be asked.
        """
        manifest = self.manifest
        difference, _ = await self._differ(manifest)
        gone = await manifest.documents_of([*difference.vanished, *(one.key for one in difference.wanted)])
        damaged = {row[1] for row in await manifest.damaged()}
        plan = _Planning(manifest, damaged, gone, _failures(difference.failed))
        async with aclosing(_portions(self.source, difference.wanted)) as portions:
            async for portion in portions:
                await plan.look_at(portion)
        stored, before = await manifest.stored()
        return plan.made(stored, before, await manifest.remains(), limits)

    async def run(self, jobs: Jobs, lease: Lease, into: Store, limits: Limits, progress: Progress) -> Mirrored:
        """Bring the collection up to date.

        Args:
            lease: of the job that is this run; every change is made only while it is held.
            progress: called after every portion that is stored.
        Raises:
            BadRequest: there is no such source, or its documents cannot be stored in this collection at all.
            DeletionRefused: too much of the source is gone; what it has is stored, and nothing is deleted.
            Unavailable: the source, the database or the embedder failed; the next attempt goes on from there.
            LostLease: another worker has the job.
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
        run = _Run(Writer(manifest, jobs, lease, attempt, report), report, into, difference, progress)
        for one in difference.failed:
            run.fail(one.where, one.id, one.reason, one.readers)
        await run.writer.vanish(difference.vanished)
        async with aclosing(_portions(self.source, difference.wanted)) as portions:
            async for portion in portions:
                await run.store(portion)
        await run.delete(before, limits)
        report.unchanged = max(await run.writer.end() - report.inserted - report.updated, 0)
        return report

    async def _differ(self, manifest: Manifest) -> tuple[_Difference, Listing]:
        listing = await _in_thread(self.source.listing)
        known = await manifest.known()
        return await asyncio.to_thread(_difference, listing, known), listing


def mirroring(
    mirror: Mirror, jobs: Jobs, into: Store, limits: Limits
) -> Callable[[Lease, Progress], Awaitable[Mirrored]]:
    """A run of a mirror, as a worker carries it out."""

    async def run(lease: Lease, progress: Progress) -> Mirrored:
        return await mirror.run(jobs, lease, into, limits, progress)

    return run


def _difference(listing: Listing, known: dict[str, Known]) -> _Difference:
    failed, versions = list(listing.failed), dict[str, str | None]()
    for item in listing.items:
        if len(versions) >= MOST_ITEMS:
            raise BadRequest(
                f"the source has more than {MOST_ITEMS:,} items: sync its parts, each by itself", where="source"
            )
        if reason := _unfit(item):
            failed.append(Rejected(item.key[:100], None, reason))
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


def _unfit(item: Item) -> str | None:
    if not item.key or len(item.key) > MOST_KEY_CHARACTERS:
        return f"its name has {len(item.key):,} characters; 1 to {MOST_KEY_CHARACTERS} are possible"
    return None if item.key.isprintable() else "its name holds characters that cannot be printed"


@dataclass(slots=True)
class _Run:
    """The state of one attempt."""

    writer: Writer
    report: Mirrored
    into: Store
    difference: _Difference
    progress: Progress
    failing: set[str] = field(default_factory=set)
    """Items of which something failed, or that share a document with another: they are read again each time."""

    def fail(self, where: str, id: str | None, reason: str, readers: tuple[str, ...] = ()) -> None:
        if len(self.report.failed) < MOST_FAILURES:
            self.report.failed.append(Failure(len(self.report.failed), where, id, reason, readers))

    async def store(self, portion: _Portion) -> None:
        """Store the documents of a portion, and note the items that end in it."""
        for unread in portion.unread:
            self.fail(unread.key, None, unread.reason)
        offered = await asyncio.to_thread(_offered, portion)
        self._leave_out(offered.left_out)
        ended = [one.key for one in portion.ends if not one.is_same]
        delivery, refused, displaced = await self.writer.claim([one.claim for one in offered.good], ended)
        self._leave_out(_losers(offered.good, refused, self.writer.manifest.sync))
        # One that ends in this portion would count as read otherwise, although it gives what it does not own.
        self.failing |= displaced
        good = [one for one in offered.good if one.claim.id not in refused]
        failed = await self._ingest([one.document for one in good], delivery)
        self.failing.update(one.claim.item for one in good if one.claim.id in failed)
        versions = self.difference.versions
        await self.writer.complete(
            {one.key: Known(None, None) if one.key in self.failing else Known(versions.get(one.key), one.digest)
             for one in portion.ends},
            stored=[one.claim.id for one in good if one.claim.id not in failed],
            failed=sorted(failed),
            delivery=delivery,
        )  # fmt: skip
        self.progress(self.report)

    def _leave_out(self, losers: Iterable["_LeftOut"]) -> None:
        for one in losers:
            self.failing.add(one.key)
            if one.reason is not None:
                self.fail(one.item.where, one.item.id, one.reason, one.item.readers)

    async def _ingest(self, documents: Sequence[Document], delivery: int) -> set[str]:
        """Store documents; ids of those that could not be."""
        report = self.report

        async def written(connection: store.Connection, portion: Report, inserted: int, updated: int) -> None:
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

    async def delete(self, before: int, limits: Limits) -> None:
        """Delete what no item gives any more.

        Args:
            before: documents that the last whole run left.
        """
        doomed = await self.writer.manifest.doomed()
        if refused := _refusal(doomed, before, limits):
            raise DeletionRefused(refused)
        for one in await self.writer.manifest.remains():
            if not self.report.failed and one.goes(limits.most_deleted, force=limits.force):
                await self.writer.inherit(one.sync)
            elif one.taken:
                self.report.notes.append(_stays(one))
        while (some := await self.writer.delete_some()) is not None:
            self.report.deleted += some
            self.progress(self.report)


@dataclass(slots=True)
class _Planning:
    """What a run would do, as far as it has been looked at."""

    manifest: Manifest
    damaged: Collection[str]
    gone: set[str]
    failed: list[Failure]
    added: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    owners: dict[str, Owner] = field(default_factory=dict)
    taken: dict[str, UUID] = field(default_factory=dict)
    """Sources that documents are taken over from, by id."""

    async def look_at(self, portion: _Portion) -> None:
        """As `_Run.store`, without writing."""
        offered = await asyncio.to_thread(_offered, portion)
        found = await self.manifest.owners([one.claim.id for one in offered.good])
        owners = {
            **found,
            **{id: owner for id, owner in self.owners.items() if id in {o.claim.id for o in offered.good}},
        }
        sync = self.manifest.sync
        refused = {one.claim.id: owners[one.claim.id] for one in offered.good
                   if one.claim.id in owners and one.claim.id not in self.gone
                   and not may_have(one.claim, owners[one.claim.id], sync, _THIS_RUN)}  # fmt: skip
        losers = [*offered.left_out, *_losers(offered.good, refused, sync)]
        failed = [(one.item.where, one.item.id, one.reason, one.item.readers) for one in losers if one.reason]
        failed += [(one.key, None, one.reason, ()) for one in portion.unread]
        self.failed += [Failure(len(self.failed) + n, *one) for n, one in enumerate(failed)]
        same = {one.key for one in portion.ends if one.is_same}
        if stay := same | {one.key for one in portion.unread}:
            self.gone -= await self.manifest.documents_of(stay, orphans=False)
        for one in offered.good:
            id = one.claim.id
            if id in refused:
                continue
            self.gone.discard(id)
            if id not in found:
                self.added.add(id)
            elif found[id].sync != sync:
                self.taken[id] = found[id].sync
            if id in found and (found[id].given != one.claim.given or id in self.damaged):
                self.changed.add(id)
            self.owners[id] = Owner(sync, one.claim.item, _THIS_RUN, one.claim.given)

    def made(self, stored: int, before: int, forgotten: Sequence[Remains], limits: Limits) -> Plan:
        """The plan, when all has been looked at.

        Args:
            stored: documents that there are by the manifest; `before`: as of `_Run.delete`.
            forgotten: what was left of forgotten sources before.
        """
        refused = _refusal(len(self.gone), before, limits)
        unchanged = stored + len(self.taken) - len(self.gone) - len(self.changed)
        for one in forgotten:
            ids = [id for id in one.ids if id not in self.taken]
            left = Remains(one.sync, one.taken + len(one.ids) - len(ids), ids)
            if not refused and not self.failed and left.goes(limits.most_deleted, force=limits.force):
                self.gone.update(ids)
        lists = (sorted(self.added), sorted(self.changed), sorted(self.gone))
        return Plan(*lists, unchanged, self.failed, refused)


_THIS_RUN = 0
"""In place of the number of an attempt: those that there were have higher ones."""


@dataclass(frozen=True, slots=True)
class _Offer:
    claim: Claim
    document: Document


@dataclass(frozen=True, slots=True)
class _LeftOut:
    """What an item gives and is not stored; without a reason where another item gives the very same."""

    key: str
    item: Document | Rejected
    reason: str | None


@dataclass(frozen=True, slots=True)
class _Offered:
    good: Sequence[_Offer]
    left_out: Sequence[_LeftOut]


def _offered(portion: _Portion) -> _Offered:
    """The documents of a portion, each id once: that of the first item by name."""
    good: dict[str, _Offer] = {}
    left_out = []
    for found in portion.found:
        if isinstance(found.item, Rejected):
            left_out.append(_LeftOut(found.key, found.item, found.item.reason))
            continue
        one = _Offer(Claim(found.item.id, found.key, _given(found.item)), found.item)
        first = good.setdefault(found.item.id, one)
        if first is one:
            continue
        if first.claim.item > found.key:
            good[found.item.id], first, one = one, one, first
        is_same = first.claim.given == one.claim.given
        if not is_same or first.claim.item != one.claim.item:
            reason = None if is_same else _given_already(one.claim.id, first.document.where)
            left_out.append(_LeftOut(one.claim.item, one.document, reason))
    return _Offered([*good.values()], left_out)


def _losers(offers: Iterable[_Offer], refused: Mapping[str, Owner], sync: UUID) -> Iterator[_LeftOut]:
    """What belongs to other items or sources already."""
    for one in offers:
        owner = refused.get(one.claim.id)
        if owner is None:
            continue
        if owner.sync != sync:
            reason: str | None = (
                f'the id "{one.claim.id}" belongs to another source of this collection; if that is followed no more: '
                f"signalbox sync --forget {owner.sync.hex}"
            )
        elif owner.given != one.claim.given:
            reason = _given_already(one.claim.id, str(owner.item))
        elif owner.item == one.claim.item:
            continue
        else:
            reason = None
        yield _LeftOut(one.claim.item, one.document, reason)


def _given_already(id: str, where: str) -> str:
    return f'the id "{id}" was already given at {where}; this one was left out'


def _given(document: Document) -> bytes:
    """Digest of a document as it was given: its place and what was mended on the way are none of it."""
    given = {one.name: getattr(document, one.name) for one in fields(document) if one.name not in ("where", "notes")}
    return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode(errors="surrogatepass")).digest()


def _failures(rejected: Iterable[Rejected]) -> list[Failure]:
    return [Failure(n, one.where, one.id, one.reason, one.readers) for n, one in enumerate(rejected)]


def _refusal(doomed: int, before: int, limits: Limits) -> str | None:
    """Why so many documents are not deleted; None where they are."""
    # Some may have come since the last whole run.
    doomed = min(doomed, before)
    if limits.force or doomed <= limits.most_deleted * before:
        return None
    return (
        f"{doomed:,} of {before:,} documents are gone from the source, more than SYNC_MAX_DELETE allows "
        f"({limits.most_deleted:.0%}): none was deleted; if they are meant to go, sync it with --force"
    )


def _stays(left: Remains) -> str:
    return (
        f"{len(left.ids):,} documents of a source that was forgotten stay: more than SYNC_MAX_DELETE allows, or "
        "something failed; if they are meant to go, sync it with --force once nothing fails"
    )


async def _portions(source: Source, wanted: Sequence[Wanted]) -> AsyncGenerator[_Portion]:
    """What is read, in portions: one is read while the one before is stored, and no more."""
    stop = threading.Event()
    reads = source.read(wanted, stop.is_set)

    def take() -> _Portion:
        portion = _Portion()
        for one in reads:
            portion.add(one)
            if portion.is_full:
                break
        return portion

    task = asyncio.create_task(asyncio.to_thread(take))
    try:
        while portion := await asyncio.shield(task):
            task = asyncio.create_task(asyncio.to_thread(take))
            yield portion
    finally:
        stop.set()
        await _ended(task, reads)


async def _ended(task: "asyncio.Task[_Portion]", reads: Iterator[Read]) -> None:
    """Wait a little for a thread that was told to stop, then have the source let go of what it holds."""
    await asyncio.wait({task}, timeout=_END_S)
    if not task.done():
        leave(task)
    elif not task.cancelled():
        task.exception()
        if isinstance(reads, Generator):
            await asyncio.to_thread(reads.close)


async def _in_thread(function: Callable[[Stopped], Returned]) -> Returned:
    """Call what waits for files and servers; cancelled, it is told so and left."""
    stop = threading.Event()
    try:
        return await asyncio.shield(asyncio.create_task(asyncio.to_thread(function, stop.is_set)))
    finally:
        stop.set()


def _nothing(report: Report) -> None:
    pass
