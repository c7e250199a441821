"""Compute what a run of a mirror would do, without writing."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from retrievers.ingest.report import Failure
from retrievers.sync.deletion_guard import DeletionLimits, refusal_reason
from retrievers.sync.document_selection import refused_documents, select_documents
from retrievers.sync.forgotten_sources import UnclaimedDocuments
from retrievers.sync.manifest import DocumentOwner, Manifest, may_claim
from retrievers.sync.source_batches import SourceBatch

_THIS_RUN = 0
"""The number of a plan in place of a run's: lower than that of any run."""


@dataclass(frozen=True, slots=True)
class SyncPlan:
    """What a run of a mirror would do.

    Attributes:
        added, changed, deleted: ids of documents, sorted.
        unchanged: number of documents that would stay as they are.
        refused: why the run's deletions would be refused; None if they would be carried out.
    """

    added: Sequence[str]
    changed: Sequence[str]
    deleted: Sequence[str]
    unchanged: int
    failed: Sequence[Failure]
    refused: str | None


@dataclass(slots=True)
class SyncPlanner:
    """The plan of a run, as far as it follows from the batches of the source seen so far.

    Attributes:
        damaged: ids of documents that others have changed or deleted since this source stored them.
        deletion_candidates: ids of documents that would be deleted unless a later batch provides them.
        owners: owner that each document would have after the batches seen so far, by document id.
    """

    manifest: Manifest
    damaged: Collection[str]
    deletion_candidates: set[str]
    failed: list[Failure]
    added: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    owners: dict[str, DocumentOwner] = field(default_factory=dict)
    taken_over: dict[str, UUID] = field(default_factory=dict)
    """For documents that are taken over from another source: document id to the id of that source."""

    async def add_batch(self, batch: SourceBatch) -> None:
        """Add to the plan which documents storing this batch would add, change or keep, and which would fail.

        Decides like `_MirrorRun.store` in `mirror_run.py`, without writing.
        """
        selection = await asyncio.to_thread(select_documents, batch)
        found = await self.manifest.owners([one.claim.id for one in selection.accepted])
        owners = {
            **found,
            **{id: owner for id, owner in self.owners.items() if id in {o.claim.id for o in selection.accepted}},
        }
        sync = self.manifest.sync
        refused = {one.claim.id: owners[one.claim.id] for one in selection.accepted
                   if one.claim.id in owners and one.claim.id not in self.deletion_candidates
                   and not may_claim(one.claim, owners[one.claim.id], sync, _THIS_RUN)}  # fmt: skip
        skipped = [*selection.skipped, *refused_documents(selection.accepted, refused, sync)]
        failed = [(one.item.where, one.item.id, one.reason, one.item.readers) for one in skipped if one.reason]
        failed += [(one.key, None, one.reason, ()) for one in batch.unreadable]
        self.failed += [Failure(len(self.failed) + n, *one) for n, one in enumerate(failed)]
        same = {one.key for one in batch.item_ends if one.is_unchanged}
        if stay := same | {one.key for one in batch.unreadable}:
            self.deletion_candidates -= await self.manifest.documents_of(stay, orphans=False)
        for one in selection.accepted:
            id = one.claim.id
            if id in refused:
                continue
            self.deletion_candidates.discard(id)
            if id not in found:
                self.added.add(id)
            elif found[id].sync != sync:
                self.taken_over[id] = found[id].sync
            if id in found and (found[id].provided_digest != one.claim.provided_digest or id in self.damaged):
                self.changed.add(id)
            self.owners[id] = DocumentOwner(sync, one.claim.item, _THIS_RUN, one.claim.provided_digest)

    def build_plan(
        self, stored: int, before: int, forgotten: Sequence[UnclaimedDocuments], limits: DeletionLimits
    ) -> SyncPlan:
        """Return the plan, after all batches have been processed.

        If the source has lost more documents than the limits allow, `refused` says so, and `deleted` lists them
        although the run would delete none. `deleted` includes the documents of a forgotten source only if `refused` is
        None, nothing failed, and the limits allow it.

        Args:
            stored: number of the source's documents in the manifest.
            before: number of the source's documents after the last complete run.
            forgotten: documents left of each forgotten source before the run.
        """
        refused = refusal_reason(len(self.deletion_candidates), before, limits)
        unchanged = stored + len(self.taken_over) - len(self.deletion_candidates) - len(self.changed)
        for one in forgotten:
            ids = [id for id in one.ids if id not in self.taken_over]
            left = UnclaimedDocuments(one.sync, one.taken_over + len(one.ids) - len(ids), ids)
            if not refused and not self.failed and left.may_delete(limits.most_deleted, force=limits.force):
                self.deletion_candidates.update(ids)
        lists = (sorted(self.added), sorted(self.changed), sorted(self.deletion_candidates))
        return SyncPlan(*lists, unchanged, self.failed, refused)
