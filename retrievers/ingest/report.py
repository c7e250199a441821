"""The result of an ingestion: counts of documents and the documents that failed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from retrievers.ingest.collections import Connection


@dataclass(frozen=True, slots=True)
class Failure:
    """One document that was not stored."""

    index: int
    where: str
    id: str | None
    reason: str
    readers: tuple[str, ...] = ()


@dataclass(slots=True)
class Report:
    """Result of one ingestion. Counts are documents."""

    inserted: int = 0
    updated: int = 0
    unchanged: int = 0
    chunks: int = 0
    embedded: int = 0
    failed: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def done(self) -> int:
        """Number of documents processed so far."""
        return self.inserted + self.updated + self.unchanged + len(self.failed)

    def add(self, other: "Report") -> None:
        """Add the counts of another report."""
        self.inserted += other.inserted
        self.updated += other.updated
        self.unchanged += other.unchanged
        self.chunks += other.chunks
        self.embedded += other.embedded
        self.failed += other.failed
        self.notes += other.notes


Progress = Callable[[Report], None]


Written = Callable[[Connection, Report, int, int], Awaitable[None]]
"""Called inside the transaction that writes a batch, with the report so far and the number of inserted and of updated
documents in the batch. An exception rolls the batch back.
"""
