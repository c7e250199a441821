"""Request and response models of the native endpoints, beyond those of `agent.types`."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from agent.types import Answer, Prompt, Result, Shape, SourceSummary

MAX_DOCUMENTS = 10_000

_NAME = r"^[^/\x00-\x1f\x7f-\x9f]+$"


class NewDocuments(Shape):
    """Documents to store. A document that cannot be stored is reported and does not affect the others."""

    collection: Annotated[
        str, Field(min_length=1, max_length=128, pattern=_NAME, description="where they go; made when missing")
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
    wait: Annotated[bool, Field(description="answer when they are stored, not when they are accepted")] = True


class FailedDocument(Shape):
    index: int
    id: str | None
    reason: str


class Ingested(Shape):
    """The result of an ingestion; counts are documents."""

    job_id: str
    inserted: int
    updated: int
    unchanged: int
    failed: list[FailedDocument]


class Accepted(Shape):
    """Documents that are on disk and will be stored; the job tells when they are."""

    job_id: str
    status: str


class JobSummary(Shape):
    """An ingestion job; counts are documents."""

    job_id: str
    collection: str
    file: Annotated[str | None, Field(description="name of the file that was uploaded")]
    status: Literal["queued", "running", "done", "failed"]
    documents: Annotated[int | None, Field(description="how many there are; null until a file has been read")]
    done: Annotated[int, Field(description="how many are dealt with")]
    inserted: int
    updated: int
    unchanged: int
    failed_count: int
    deleted: Annotated[int, Field(description="by the run of a sync: what its source has no more")]
    sync: Annotated[str | None, Field(description="the sync whose run it is; null for documents that were sent")]
    error: Annotated[str | None, Field(description="why it failed as a whole, or what it is waiting for")]
    next_try_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    kind: Annotated[
        Literal["ingest", "reembed", "rebuild"], Field(description="the last two make a collection anew")
    ] = "ingest"
    embedder: Annotated[str | None, Field(description="that the collection is to have")] = None


class FailedLetter(FailedDocument):
    where: Annotated[str, Field(description="its place in the request or the file")]
    failed_at: datetime


class JobBody(JobSummary):
    """A job with its failed documents."""

    failed: list[FailedLetter]


class Jobs(Shape):
    """The latest jobs, newest first."""

    jobs: list[JobSummary]


class SyncSummary(Shape):
    """A collection that follows a source."""

    id: str
    name: Annotated[str | None, Field(description="of its schedule; null for one that is run by hand")]
    source: Annotated[str, Field(description="without passwords")]
    collection: str
    every_s: Annotated[float | None, Field(description="from one run to the next")]
    has_worker: Annotated[
        bool, Field(description="whether a worker has said lately that its settings hold the schedule")
    ]
    next_at: Annotated[datetime | None, Field(description="when its next run is due, where a worker will run it")]
    documents: Annotated[int | None, Field(description="how many its last whole run left; null before the first")]
    last: Annotated[JobSummary | None, Field(description="its last run, or the one under way")]


class SyncBody(SyncSummary):
    """A collection that follows a source, with the failed documents of its last run."""

    failed: list[FailedLetter]


class Syncs(Shape):
    """The collections that follow a source, those with a schedule first."""

    syncs: list[SyncSummary]


class DocumentBody(Shape):
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


class Deleted(Shape):
    """The number of deleted documents."""

    collection: str
    deleted: int


class CollectionSummary(Shape):
    name: str
    documents: int
    chunks: int
    embedder: str | None
    dimension: int | None
    languages: dict[str, int]


class Collections(Shape):
    """The collections the caller may see: its own, and the platform's with public documents."""

    collections: list[CollectionSummary]


class Sources(Shape):
    """The sources the caller may search."""

    sources: list[SourceSummary]


class Wrong(Shape):
    """A difference between the stored data and the documents."""

    kind: str
    text: Annotated[str, Field(description="what it is")]
    count: Annotated[
        int | None,
        Field(description="how many, of documents those that the caller reads; null where it may not be told"),
    ]
    examples: Annotated[list[str], Field(description="at most five; of documents, such as the caller reads")]
    mended: bool


class Checked(Shape):
    """The result of a check: what was compared and what was wrong."""

    collection: str
    documents: Annotated[int, Field(description="how many of those that the caller reads were compared")]
    ok: Annotated[bool, Field(description="whether nothing is wrong any more")]
    findings: list[Wrong]


class UnderWay(Shape):
    """A job that rebuilds a collection; `GET /v1/jobs/{job_id}` tells its progress."""

    job_id: str
    kind: Literal["reembed", "rebuild"]
    embedder: Annotated[str | None, Field(description="that the collection will have; null for the one it has")]
    status: str


class Reembedding(Shape):
    """The embedder a collection should get."""

    embedder: Annotated[str, Field(min_length=1, max_length=200, description="one that the server's settings name")]


class CollectionBody(CollectionSummary):
    """A collection with its field catalogue: each field's type, range and most common values with counts."""

    description: Annotated[str, Field(description="what it holds: questions that name no collection find it by this")]
    draft: Annotated[bool, Field(description="whether the description was made of the documents, for want of another")]
    records: Annotated[list[str], Field(description="what a document is called, as declared")]
    derived_records: Annotated[list[str], Field(description="what a document is taken to be called beside that")]
    fields: list[dict[str, Any]]
    job: Annotated[UnderWay | None, Field(description="that makes it anew: questions are answered as it was before")]


class Declaration(Shape):
    """A collection's schema. Fields and keys that are not given stay unchanged."""

    fields: Annotated[
        dict[str, Any] | None,
        Field(description="type by name, or an object with type, item, separator, description, aliases and unit"),
    ] = None
    records: Annotated[
        list[Any] | None, Field(description='what a document is called: ["upload", "uploads", "上传"]')
    ] = None
    description: Annotated[
        str | None, Field(description='what the collection holds; "" to have a draft made of its documents')
    ] = None


class TraceSummary(Shape):
    trace_id: str
    created_at: datetime
    expires_at: datetime
    kind: str
    query: str
    collection: str | None
    status: str
    hits: int
    replay_of: str | None


class Traces(Shape):
    """The latest traces, newest first."""

    traces: list[TraceSummary]


class TraceBody(BaseModel):
    """How an answer was produced: question, interpretation, searches, ranking and answer."""

    trace_id: str
    created_at: datetime
    expires_at: datetime
    request: dict[str, Any]


class Replay(Shape):
    """Settings to change for the second run, by name."""

    changes: Annotated[dict[str, Any], Field(default_factory=dict)]


class _SecondRun(Shape):
    replay_of: str
    changes: dict[str, Any]
    difference: dict[str, Any]


class Replayed(_SecondRun, Result):
    """The hits of a second run, and the differences from the first."""


class ReplayedPrompt(_SecondRun, Prompt):
    """The prompt of a second run, and the differences from the first."""


class ReplayedAnswer(_SecondRun, Answer):
    """The answer of a second run, and the differences from the first."""


class Judgement(Shape):
    """A user's rating of an answer."""

    trace_id: Annotated[str, Field(min_length=1, max_length=64)]
    score: Annotated[int, Field(ge=0, le=10, description="0 useless, 10 just right")]
    comment: Annotated[str, Field(max_length=4000)] | None = None


class Judged(Shape):
    """The stored rating; a later rating of the same answer replaces it."""

    trace_id: str
    score: int
