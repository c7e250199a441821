"""The guard of deletions: a source that has lost much may not be the source that was meant."""

from dataclasses import dataclass

from retrievers.core.errors import RetrievalError
from retrievers.sync.forgotten import Remains


class DeletionRefused(RetrievalError):
    """A source has lost so much that it may not be the source that was meant."""


@dataclass(frozen=True, slots=True)
class DeletionLimits:
    """Attributes:
    most_deleted: share of a source's documents that may be deleted by one run, 0 to 1.
    force: delete whatever the source has no more.
    """

    most_deleted: float = 0.5
    force: bool = False


def why_refused(doomed: int, before: int, limits: DeletionLimits) -> str | None:
    """Why so many documents are not deleted; None where they are."""
    # Some may have come since the last whole run.
    doomed = min(doomed, before)
    if limits.force or doomed <= limits.most_deleted * before:
        return None
    return (
        f"{doomed:,} of {before:,} documents are gone from the source, more than SYNC_MAX_DELETE allows "
        f"({limits.most_deleted:.0%}): none was deleted; if they are meant to go, sync it with --force"
    )


def why_kept(left: Remains) -> str:
    """Why what is left of a forgotten source is not deleted."""
    return (
        f"{len(left.ids):,} documents of a source that was forgotten stay: more than SYNC_MAX_DELETE allows, or "
        "something failed; if they are meant to go, sync it with --force once nothing fails"
    )
