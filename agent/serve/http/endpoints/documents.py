"""Documents over HTTP: store, read and delete them, and follow the jobs that store them."""

import asyncio
from collections.abc import Sequence
from dataclasses import asdict, fields
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request, Response

from agent.serve.http import schemas
from agent.serve.http.dependencies import CallerDep, ServiceDep, WaitedDep, WriterDep
from agent.serve.http.endpoints.native import CollectionParam, json_response, openapi_response
from agent.serve.http.json_body import JsonBody
from agent.serve.http.problems import Problem
from agent.types import LEAST_TIMEOUT_S
from retrievers.core.errors import NotFound
from retrievers.ingest.jobs.job_queue import MAX_LISTED
from retrievers.ingest.jobs.job_types import DeadLetter, Job

_EXAMPLE = {
    "collection": "notes",
    "documents": [{"id": "a/1", "title": "Rollback", "text": "We rolled back.", "metadata": {"team": "payments"}}],
}
_UNFINISHED = ("queued", "running")
_RETRY_AFTER_S = 10
_FILE = {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}

DocumentIdParam = Annotated[
    str, Path(description="id of the document; it may contain slashes", min_length=1, max_length=512)
]
FileName = Annotated[str, Path(description="name of the file; it may contain slashes", min_length=1, max_length=512)]
JobId = Annotated[str, Path(description="job_id of an earlier answer", min_length=1, max_length=64)]


def router() -> APIRouter:
    """Return the routes of this module."""
    routes = APIRouter(prefix="/v1")
    one_document, one_job = "/documents/{collection}/{id:path}", "/jobs/{id}"
    stored = openapi_response(schemas.Ingested) | openapi_response(schemas.Accepted, 202)
    routes.post("/documents", tags=["documents"], responses=stored)(add_documents)
    routes.get(one_document, tags=["documents"], responses=openapi_response(schemas.DocumentBody))(get_document)
    routes.delete(one_document, tags=["documents"], responses=openapi_response(schemas.Deleted))(delete_document)
    routes.put("/files/{collection}/{name:path}", tags=["documents"], responses=stored,
               openapi_extra={"requestBody": _FILE})(upload_file)  # fmt: skip
    routes.get("/jobs", tags=["jobs"], responses=openapi_response(schemas.Jobs))(list_jobs)
    routes.get(one_job, tags=["jobs"], responses=openapi_response(schemas.JobBody))(get_job)
    routes.post(f"{one_job}/cancel", tags=["jobs"], responses=openapi_response(schemas.JobBody))(cancel_job)
    routes.post(f"{one_job}/retry", tags=["jobs"], status_code=202, responses=openapi_response(schemas.JobBody, 202))(
        retry_job
    )
    return routes


async def add_documents(
    service: ServiceDep,
    caller: WriterDep,
    body: Annotated[schemas.NewDocuments, Depends(JsonBody(schemas.NewDocuments, items="documents", example=_EXAMPLE))],
    waited_s: WaitedDep,  # after the body, so that the time to read it counts
) -> Response:
    """Store documents. Stored documents that are unchanged cost nothing.

    A bad document does not affect the others. If all are bad, the answer is a 422 with the same list `failed`.

    With `timeout_s`, documents that are not stored in time are answered with 503 and the `job_id`; the job continues.
    """
    within_s = None if body.timeout_s is None else max(body.timeout_s - waited_s, LEAST_TIMEOUT_S)
    job = await service.submit(
        body.collection, _take_items(body.documents), wait=body.wait, tenant=caller.viewer, within_s=within_s
    )
    if body.wait and body.timeout_s is not None and job.status in _UNFINISHED:
        raise _still_storing(job, body.timeout_s)
    return await asyncio.to_thread(_ingest_response, job, wait=body.wait)


def _take_items(items: list[Any]) -> list[Any]:
    """Return a copy of the list and empty the list, so that the body does not keep its documents in memory."""
    taken = items[:]
    items.clear()
    return taken


async def upload_file(
    request: Request,
    service: ServiceDep,
    caller: WriterDep,
    waited_s: WaitedDep,
    collection: CollectionParam,
    name: FileName,
    wait: Annotated[bool, Query(description="wait until the documents are stored")] = True,
) -> Response:
    """Store the documents of a file sent as the body.

    The formats are JSONL, JSON, CSV, Markdown, HTML, text, PDF, DOCX, PPTX, XLSX and e-mail.

    A file that takes longer than the service's TIMEOUT_S is answered with 202, and its job continues.
    """
    data, within_s = await request.body(), max(service.settings.timeout_s - waited_s, LEAST_TIMEOUT_S)
    job = await service.submit_file(collection, name, data, wait=wait, tenant=caller.viewer, within_s=within_s)
    return await asyncio.to_thread(_ingest_response, job, wait=wait and job.status not in _UNFINISHED)


async def get_document(
    service: ServiceDep, caller: CallerDep, collection: CollectionParam, id: DocumentIdParam
) -> Response:
    """Return one stored document."""
    found = await service.document(collection, id, tenant=caller.viewer)
    return json_response(schemas.DocumentBody(**asdict(found)))


async def delete_document(
    service: ServiceDep, caller: WriterDep, collection: CollectionParam, id: DocumentIdParam
) -> Response:
    """Delete one document and everything derived from it."""
    count = await service.delete(collection, id, tenant=caller.viewer)
    if not count:
        raise NotFound(f'collection "{collection}" has no document "{id[:80]}" that you may read', where="id")
    return json_response(schemas.Deleted(collection=collection, deleted=count))


async def list_jobs(
    service: ServiceDep,
    caller: WriterDep,
    limit: Annotated[int, Query(ge=1, le=MAX_LISTED, description="how many")] = 50,
) -> Response:
    """Return the latest jobs, newest first."""
    found = await service.jobs(limit=limit, tenant=caller.viewer)
    return json_response(schemas.Jobs(jobs=[schemas.JobSummary(**job_fields(job)) for job in found]))


async def get_job(service: ServiceDep, caller: WriterDep, id: JobId) -> Response:
    """Return the progress of a job and its failed documents."""
    return await job_response(await service.job(id, tenant=caller.viewer))


async def retry_job(service: ServiceDep, caller: WriterDep, id: JobId) -> Response:
    """Retry the failed documents of a job. Newer versions of them are not replaced."""
    return await job_response(await service.retry_job(id, tenant=caller.viewer), 202)


async def cancel_job(service: ServiceDep, caller: WriterDep, id: JobId) -> Response:
    """Cancel a rebuild, which leaves the collection unchanged, or a sync, which keeps the documents stored so far.

    Jobs of uploaded documents cannot be cancelled.
    """
    return await job_response(await service.cancel_job(id, tenant=caller.viewer))


def _ingest_response(job: Job, *, wait: bool) -> Response:
    if not wait:
        return json_response(schemas.Accepted(job_id=job.id, status=job.status), 202)
    failed = [schemas.FailedDocument(index=one.index, id=one.id, reason=one.reason) for one in job.failures]
    if job.status == "failed":
        # A client that reads only the status must not take this for a success.
        detail = f"{job.error}; the first reason: {failed[0].reason}" if failed else str(job.error)
        raise Problem(422, "nothing-stored", detail, job_id=job.id, failed=failed)
    counts = {"inserted": job.inserted, "updated": job.updated, "unchanged": job.unchanged}
    return json_response(schemas.Ingested(job_id=job.id, failed=failed, **counts))


def _still_storing(job: Job, timeout_s: float) -> Problem:
    stored = f"{job.inserted + job.updated:,} of {job.documents or 0:,} documents were inserted or updated so far"
    detail = (
        f"the documents take longer than the {timeout_s:g} s of this request: {stored}, and job {job.id} goes on with "
        f"the others; do not send them again, see /v1/jobs/{job.id}"
    )
    return Problem(503, "still-storing", detail, headers={"Retry-After": str(_RETRY_AFTER_S)}, job_id=job.id)


async def job_response(job: Job, status: int = 200) -> Response:
    """Return a job with its failed documents as a response, made in a thread because there may be thousands."""
    return await asyncio.to_thread(
        lambda: json_response(schemas.JobBody(**job_fields(job), failed=failed_documents(job.failures)), status)
    )


def failed_documents(failures: Sequence[DeadLetter]) -> list[schemas.FailedLetter]:
    """Return failed documents for a response."""
    return [schemas.FailedLetter(**asdict(one)) for one in failures]


def job_fields(job: Job) -> dict[str, Any]:
    """Return a job as keyword arguments of `shapes.JobSummary`."""
    shown = {one.name: getattr(job, one.name) for one in fields(job) if one.name != "failures"}
    return {"job_id": shown.pop("id"), "failed_count": shown.pop("failed"), **shown}
