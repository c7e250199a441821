"""An ingestion job as its worker holds it (lease, content) and as its tenant sees it (state, failed documents)."""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any


class LostLease(Exception):
    """Another worker has the job, or it was cancelled. Nothing more may be written for it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to carry out one job."""

    tenant: str
    id: uuid.UUID
    token: uuid.UUID


@dataclass(frozen=True, slots=True)
class Work:
    """The content of a leased job.

    Attributes:
        payload: None if only the letters are to be tried again.
        letters: index and record of each document that failed before; None for a record that was deleted since.
        tries: how often a failed dependency interrupted the job.
        deaths: how many workers died while carrying it out.
        parked: indexes of documents during which workers died.
        rebuild: parameters for rebuilding the collection, see `retrievers.ingest.rebuild`; None for an ingestion.
        done: number of documents processed before.
        sync: the mirror to update, in place of documents.
    """

    collection: str
    delivery: int
    file: str | None
    payload: bytes | None
    letters: Sequence[tuple[int, bytes | None]]
    documents: int | None
    tries: int
    deaths: int
    parked: Sequence[int]
    rebuild: Mapping[str, Any] | None = None
    done: int = 0
    sync: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A document that was not stored."""

    index: int
    where: str
    id: str | None
    reason: str
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its tenant sees it. Counts are documents.

    For a job that rebuilds a collection, `documents` and `done` are limited to the number of documents that the viewer
    may read.

    Attributes:
        kind: "ingest", or "reembed" and "rebuild", which rebuild a collection.
        embedder: the new embedder of the collection.
        status: queued, running, done (some documents may have failed), or failed (all of them failed, or the job was
            given up; see `error`).
        documents: total number; None until a file has been read.
        done: number processed.
        sync: the mirror that this is a run of; None for submitted documents.
        deleted: number of documents deleted because a mirror's source no longer has them.
        error: why it failed, or what it is waiting for.
        next_try_at: time of the next attempt of a queued job, after a failure.
        failures: the documents that failed, in order; only if a single job is requested.
    """

    id: str
    collection: str
    file: str | None
    status: str
    documents: int | None
    done: int
    inserted: int
    updated: int
    unchanged: int
    failed: int
    deleted: int
    error: str | None
    sync: str | None
    next_try_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    kind: str = "ingest"
    embedder: str | None = None
    failures: tuple[DeadLetter, ...] = ()
