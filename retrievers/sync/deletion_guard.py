"""Refuse deletions if a source has lost many documents, because it may be the wrong source, such as an empty mount."""

from dataclasses import dataclass

from retrievers.core.errors import RetrievalError
from retrievers.sync.forgotten_sources import UnclaimedDocuments


class DeletionRefused(RetrievalError):
    """A source has lost so many documents that it may be the wrong source. None of them was deleted."""


@dataclass(frozen=True, slots=True)
class DeletionLimits:
    """Limits of the deletions of one run.

    Attributes:
        most_deleted: maximum share of a source's documents that one run may delete, 0 to 1.
        force: delete everything that the source no longer has, however much.
    """

    most_deleted: float = 0.5
    force: bool = False


def refusal_reason(deletion_count: int, previous_count: int, limits: DeletionLimits) -> str | None:
    """Return a message that says why a run may not delete documents that its source has lost; None if it may.

    Args:
        deletion_count: number of documents to delete.
        previous_count: number of the source's documents after the last complete run.
    """
    # `deletion_count` may include documents stored since the last complete run, which are not in `previous_count`.
    deletion_count = min(deletion_count, previous_count)
    if limits.force or deletion_count <= limits.most_deleted * previous_count:
        return None
    return (
        f"{deletion_count:,} of {previous_count:,} documents are gone from the source, more than SYNC_MAX_DELETE "
        f"allows ({limits.most_deleted:.0%}): none was deleted; to delete them, run the sync with --force"
    )


def unclaimed_note(unclaimed: UnclaimedDocuments) -> str:
    """Return a message that says why the unclaimed documents of a forgotten source are not deleted."""
    return (
        f"{len(unclaimed.ids):,} documents of a source that was forgotten stay: more than SYNC_MAX_DELETE allows, or "
        "something failed; to delete them, run the sync with --force when nothing fails"
    )
