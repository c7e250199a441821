"""The result of an ingestion: counts of documents and the documents that failed."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from retrievers.ingest.collections import Connection


@dataclass(frozen=True, slots=True)
class Failure:
    """One document that was not stored.

    Attributes:
        index: index of the document in the input, from 0.
        where: position of the document in the input, for messages ("docs.jsonl:17").
        readers: users and groups that may read the document, and so may see this failure; () for everybody.
    """

    index: int
    where: str
    id: str | None
    reason: str
    readers: tuple[str, ...] = ()


@dataclass(slots=True)
class IngestReport:
    """Result of one ingestion, in numbers of documents.

    Attributes:
        chunks: number of passages stored.
        embedded: number of passages whose vectors were computed.
        notes: repairs made while reading documents, each with the document's position in the input.
    """

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

    def add(self, other: "IngestReport") -> None:
        """Add the counts, failures and notes of another report to this one."""
        self.inserted += other.inserted
        self.updated += other.updated
        self.unchanged += other.unchanged
        self.chunks += other.chunks
        self.embedded += other.embedded
        self.failed += other.failed
        self.notes += other.notes


Progress = Callable[[IngestReport], None]


OnWrite = Callable[[Connection, IngestReport, int, int], Awaitable[None]]
"""Called in the transaction that writes a batch of documents, with the report before this batch, and the numbers of
inserted and updated documents in the batch. An exception rolls the batch back.
"""
