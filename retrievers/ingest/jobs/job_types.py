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
class JobContent:
    """The content of a leased job: documents to store, a collection to rebuild, or a mirror to run.

    Attributes:
        delivery: number of the delivery. The documents of a higher number take precedence.
        file: name of the file that `payload` contains; None if it contains records.
        payload: the delivery, see `delivery.Delivery`; None if only `dead_letters` are to be stored.
        dead_letters: (index in the delivery, record) of each document that failed before and is tried again. The
            record is None if it was deleted since.
        documents: number of documents; None for a file that has not been read.
        tries: how often a failed dependency interrupted the job.
        deaths: how many workers died while carrying it out.
        parked: indexes of documents during whose storing a worker died.
        rebuild: parameters for rebuilding the collection, see `retrievers.ingest.rebuild`; None for other jobs.
        done: number of documents processed before.
        sync: id of the mirror to run; None for other jobs.
    """

    collection: str
    delivery: int
    file: str | None
    payload: bytes | None
    dead_letters: Sequence[tuple[int, bytes | None]]
    documents: int | None
    tries: int
    deaths: int
    parked: Sequence[int]
    rebuild: Mapping[str, Any] | None = None
    done: int = 0
    sync: uuid.UUID | None = None


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A document of a job that was not stored. It is kept, so that it can be tried again."""

    index: int
    where: str
    id: str | None
    reason: str
    failed_at: datetime


@dataclass(frozen=True, slots=True)
class Job:
    """A job as its tenant sees it. All counts are numbers of documents.

    For a job that rebuilds a collection, `documents` and `done` are at most the number of documents that the viewer
    may read.

    Attributes:
        kind: "ingest" for documents and runs of mirrors; "reembed" or "rebuild" for a collection that is rebuilt.
        embedder: the new embedder of the collection.
        status: queued, running, done (some documents may have failed), or failed (all of them failed, or the job was
            given up; see `error`).
        documents: total number; None until a file has been read.
        done: number processed.
        sync: id of the mirror that this is a run of; None for other jobs.
        deleted: number of documents deleted because a mirror's source no longer has them.
        error: why the job failed, or what a queued job is waiting for.
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
