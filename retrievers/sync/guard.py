"""Refuse deletions if a source has lost many documents, because it may be the wrong source, such as an empty mount."""

from dataclasses import dataclass

from retrievers.core.errors import RetrievalError
from retrievers.sync.forgotten import Remains


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


def why_refused(doomed: int, before: int, limits: DeletionLimits) -> str | None:
    """Return a message that says why a run may not delete documents that its source has lost; None if it may.

    Args:
        doomed: number of documents to delete.
        before: number of the source's documents after the last complete run.
    """
    # `doomed` may include documents stored since the last complete run, which are not in `before`.
    doomed = min(doomed, before)
    if limits.force or doomed <= limits.most_deleted * before:
        return None
    return (
        f"{doomed:,} of {before:,} documents are gone from the source, more than SYNC_MAX_DELETE allows "
        f"({limits.most_deleted:.0%}): none was deleted; to delete them, run the sync with --force"
    )


def why_kept(left: Remains) -> str:
    """Return a message that says why the documents left of a forgotten source are not deleted."""
    return (
        f"{len(left.ids):,} documents of a source that was forgotten stay: more than SYNC_MAX_DELETE allows, or "
        "something failed; to delete them, run the sync with --force when nothing fails"
    )
