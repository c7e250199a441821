"""Compute what a run of a mirror would do, without writing."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from uuid import UUID

from retrievers.ingest.report import Failure
from retrievers.sync.forgotten import Remains
from retrievers.sync.guard import DeletionLimits, why_refused
from retrievers.sync.manifest import Manifest, Owner, may_have
from retrievers.sync.offers import losers_of, offers_of
from retrievers.sync.portions import Portion

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
class Planning:
    """The plan of a run, as far as it follows from the portions of the source seen so far.

    Attributes:
        damaged: ids of documents that others have changed or deleted since this source stored them.
        gone: ids of documents that would be deleted unless a later portion provides them.
        owners: owner that each document would have after the portions seen so far, by document id.
    """

    manifest: Manifest
    damaged: Collection[str]
    gone: set[str]
    failed: list[Failure]
    added: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    owners: dict[str, Owner] = field(default_factory=dict)
    taken: dict[str, UUID] = field(default_factory=dict)
    """For documents that are taken over from another source: document id to the id of that source."""

    async def look_at(self, portion: Portion) -> None:
        """Add to the plan which documents storing this portion would add, change or keep, and which would fail.

        Decides like `_MirrorRun.store` in `mirror.py`, without writing.
        """
        offered = await asyncio.to_thread(offers_of, portion)
        found = await self.manifest.owners([one.claim.id for one in offered.good])
        owners = {
            **found,
            **{id: owner for id, owner in self.owners.items() if id in {o.claim.id for o in offered.good}},
        }
        sync = self.manifest.sync
        refused = {one.claim.id: owners[one.claim.id] for one in offered.good
                   if one.claim.id in owners and one.claim.id not in self.gone
                   and not may_have(one.claim, owners[one.claim.id], sync, _THIS_RUN)}  # fmt: skip
        losers = [*offered.left_out, *losers_of(offered.good, refused, sync)]
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

    def made(self, stored: int, before: int, forgotten: Sequence[Remains], limits: DeletionLimits) -> SyncPlan:
        """Return the plan, after all portions have been processed.

        Args:
            stored: number of the source's documents in the manifest.
            before: number of the source's documents after the last complete run.
            forgotten: what remains of forgotten sources before the run.
        """
        refused = why_refused(len(self.gone), before, limits)
        unchanged = stored + len(self.taken) - len(self.gone) - len(self.changed)
        for one in forgotten:
            ids = [id for id in one.ids if id not in self.taken]
            left = Remains(one.sync, one.taken + len(one.ids) - len(ids), ids)
            if not refused and not self.failed and left.goes(limits.most_deleted, force=limits.force):
                self.gone.update(ids)
        lists = (sorted(self.added), sorted(self.changed), sorted(self.gone))
        return SyncPlan(*lists, unchanged, self.failed, refused)
