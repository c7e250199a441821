"""Request and response models of the native endpoints, beyond those of `agent.types`."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from agent.types import LEAST_TIMEOUT_S, Answer, ApiModel, Prompt, Result, SourceSummary

MAX_DOCUMENTS = 10_000

_NAME = r"^[^/\x00-\x1f\x7f-\x9f]+$"


class NewDocuments(ApiModel):
    """Documents to store. A document that cannot be stored is reported and does not affect the others."""

    collection: Annotated[
        str,
        Field(min_length=1, max_length=128, pattern=_NAME, description="collection to store in; created if missing"),
    ]
    documents: Annotated[
        list[Any],
        Field(
            min_length=1,
            max_length=MAX_DOCUMENTS,
            description="objects with text and, if given, id, title, url, metadata, important, questions, public, "
            "readers, enabled and expires_at; other keys are metadata",
        ),
    ]
    wait: Annotated[bool, Field(description="wait until the documents are stored")] = True
    timeout_s: Annotated[
        float | None,
        Field(ge=LEAST_TIMEOUT_S, le=120, description="how long to wait, in seconds; no limit if left out"),
    ] = None


class FailedDocument(ApiModel):
    index: int
    id: str | None
    reason: str


class Ingested(ApiModel):
    """The result of an ingestion; counts are documents."""

    job_id: str
    inserted: int
    updated: int
    unchanged: int
    failed: list[FailedDocument]


class Accepted(ApiModel):
    """Documents that are on disk and will be stored; the job tells when they are."""

    job_id: str
    status: str


class JobSummary(ApiModel):
    """An ingestion job; counts are documents."""

    job_id: str
    collection: str
    file: Annotated[str | None, Field(description="name of the file that was uploaded")]
    status: Literal["queued", "running", "done", "failed"]
    documents: Annotated[int | None, Field(description="number of documents; null until a file has been read")]
    done: Annotated[int, Field(description="number of processed documents")]
    inserted: int
    updated: int
    unchanged: int
    failed_count: int
    deleted: Annotated[int, Field(description="documents deleted by a sync, because its source no longer has them")]
    sync: Annotated[str | None, Field(description="id of the sync; null for documents that were sent")]
    error: Annotated[str | None, Field(description="why the job failed, or what it waits for")]
    next_try_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    kind: Annotated[
        Literal["ingest", "reembed", "rebuild"],
        Field(description="reembed and rebuild replace the stored data of a collection"),
    ] = "ingest"
    embedder: Annotated[str | None, Field(description="the new embedder of the collection")] = None


class FailedLetter(FailedDocument):
    where: Annotated[str, Field(description="position in the request or the file")]
    failed_at: datetime


class JobBody(JobSummary):
    """A job with its failed documents."""

    failed: list[FailedLetter]


class Jobs(ApiModel):
    """The latest jobs, newest first."""

    jobs: list[JobSummary]


class SyncSummary(ApiModel):
    """A collection that follows a source."""

    id: str
    name: Annotated[str | None, Field(description="name of its schedule; null if it is run by hand")]
    source: Annotated[str, Field(description="without passwords")]
    collection: str
    every_s: Annotated[float | None, Field(description="seconds between two runs")]
    has_worker: Annotated[bool, Field(description="whether a running worker has the schedule in its settings")]
    next_at: Annotated[datetime | None, Field(description="time of the next run, if a worker will run it")]
    documents: Annotated[
        int | None, Field(description="number of documents after its last complete run; null before the first")
    ]
    last: Annotated[JobSummary | None, Field(description="its last or current run")]


class SyncBody(SyncSummary):
    """A collection that follows a source, with the failed documents of its last run."""

    failed: list[FailedLetter]


class Syncs(ApiModel):
    """The collections that follow a source, those with a schedule first."""

    syncs: list[SyncSummary]


class DocumentBody(ApiModel):
    """A stored document."""

    id: str
    collection: str
    title: str
    text: str
    url: str | None
    metadata: dict[str, Any]
    language: str
    chunks: int
    public: bool
    readers: list[str]
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Deleted(ApiModel):
    """The number of deleted documents."""

    collection: str
    deleted: int


class CollectionSummary(ApiModel):
    name: str
    documents: int
    chunks: int
    embedder: str | None
    dimension: int | None
    languages: dict[str, int]


class Collections(ApiModel):
    """The collections the caller may see: its own, and the platform's with public documents."""

    collections: list[CollectionSummary]


class Sources(ApiModel):
    """The sources the caller may search."""

    sources: list[SourceSummary]


class Wrong(ApiModel):
    """A difference between the stored data and the documents."""

    kind: str
    text: Annotated[str, Field(description="what it is")]
    count: Annotated[
        int | None,
        Field(
            description="number of faults; of documents, those the caller may read; null if the caller may not know it"
        ),
    ]
    examples: Annotated[list[str], Field(description="at most five; of documents, only those the caller may read")]
    mended: bool


class Checked(ApiModel):
    """The result of a check: what was compared and what was wrong."""

    collection: str
    documents: Annotated[int, Field(description="number of compared documents that the caller may read")]
    ok: Annotated[bool, Field(description="whether no fault is left")]
    findings: list[Wrong]


class UnderWay(ApiModel):
    """A job that rebuilds a collection; `GET /v1/jobs/{job_id}` tells its progress."""

    job_id: str
    kind: Literal["reembed", "rebuild"]
    embedder: Annotated[str | None, Field(description="new embedder of the collection; null to keep the current one")]
    status: str


class Reembedding(ApiModel):
    """The embedder a collection should get."""

    embedder: Annotated[
        str, Field(min_length=1, max_length=200, description="an embedder named in the server's settings")
    ]


class CollectionBody(CollectionSummary):
    """A collection with its field catalogue: each field's type, range and most common values with counts."""

    description: Annotated[
        str, Field(description="description of the content; questions that name no collection find it by this")
    ]
    draft: Annotated[bool, Field(description="whether the description is a draft made from the documents")]
    records: Annotated[list[str], Field(description="words for one document, as declared")]
    derived_records: Annotated[list[str], Field(description="further words for one document, derived from the data")]
    fields: list[dict[str, Any]]
    job: Annotated[
        UnderWay | None,
        Field(description="the job that rebuilds the collection; until it ends, questions use the old data"),
    ]


class Declaration(ApiModel):
    """A collection's schema. Fields and keys that are not given stay unchanged."""

    fields: Annotated[
        dict[str, Any] | None,
        Field(description="type by name, or an object with type, item, separator, description, aliases and unit"),
    ] = None
    records: Annotated[list[Any] | None, Field(description='words for one document: ["upload", "uploads", "上传"]')] = (
        None
    )
    description: Annotated[
        str | None, Field(description='description of the content; "" for a draft made from the documents')
    ] = None


class TraceSummary(ApiModel):
    trace_id: str
    created_at: datetime
    expires_at: datetime
    kind: str
    query: str
    collection: str | None
    status: str
    hits: int
    replay_of: str | None


class Traces(ApiModel):
    """The latest traces, newest first."""

    traces: list[TraceSummary]


class TraceBody(BaseModel):
    """How an answer was produced: question, interpretation, searches, ranking and answer."""

    trace_id: str
    created_at: datetime
    expires_at: datetime
    request: dict[str, Any]


class Replay(ApiModel):
    """Settings to change for the second run, by name."""

    changes: Annotated[dict[str, Any], Field(default_factory=dict)]


class _SecondRun(ApiModel):
    replay_of: str
    changes: dict[str, Any]
    difference: dict[str, Any]


class Replayed(_SecondRun, Result):
    """The hits of a second run, and the differences from the first."""


class ReplayedPrompt(_SecondRun, Prompt):
    """The prompt of a second run, and the differences from the first."""


class ReplayedAnswer(_SecondRun, Answer):
    """The answer of a second run, and the differences from the first."""


class Judgement(ApiModel):
    """A user's opinion on an answer: a score, the documents they opened, the right filter, or several of these."""

    trace_id: Annotated[str, Field(min_length=1, max_length=64)]
    score: Annotated[int, Field(ge=0, le=10, description="0: useless, 10: fully right")] | None = None
    comment: Annotated[str, Field(max_length=4000)] | None = None
    document_ids: Annotated[
        tuple[Annotated[str, Field(min_length=1, max_length=512)], ...],
        Field(max_length=100, description="documents that the user opened or found right; added to earlier ones"),
    ] = ()
    filter: Annotated[
        dict[str, Any] | None, Field(description="the right filter of the question; {} if no filter is right")
    ] = None


class Judged(ApiModel):
    """The stored opinion. A later score or filter for the same answer replaces it."""

    trace_id: str
    score: int | None
