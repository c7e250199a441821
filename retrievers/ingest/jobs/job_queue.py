"""The queue of ingestion jobs: a delivery is stored first, then leased to one worker at a time."""

import asyncio
import json
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from psycopg.types.json import Jsonb

from retrievers.core.errors import BadRequest, NotFound, Unavailable
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.ingest import collections
from retrievers.ingest.collections import Connection
from retrievers.ingest.database_timeout import with_database_timeout
from retrievers.ingest.expiry import ExpirySweeper
from retrievers.ingest.jobs import job_statements as sql
from retrievers.ingest.jobs.delivery import Delivery
from retrievers.ingest.jobs.job_types import DeadLetter, Job, JobContent, Lease, LostLease
from retrievers.ingest.report import Failure
from retrievers.postgres.connections.database import Database, Row
from retrievers.postgres.connections.row_batches import fetch_in_batches

MAX_WAITING = 1000
"""Maximum number of unfinished jobs of one tenant."""
KEPT_DAYS = 30
MAX_LISTED = 100
_SWEEP_BATCH = 100
_BURIED_AT_ONCE = 200
"""Number of failed documents per statement. The driver blocks the event loop while it prepares a statement."""
_FULL_RETRY_S = 30.0

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def _with_time_limit(
    method: Callable[Concatenate["JobQueue", Given], Coroutine[Any, Any, Returned]],
) -> Callable[Concatenate["JobQueue", Given], Coroutine[Any, Any, Returned]]:
    """Limit a method's time to `patience_s`. A database that hangs then raises `Unavailable`."""

    @wraps(method)
    async def bounded(self: "JobQueue", /, *args: Given.args, **options: Given.kwargs) -> Returned:
        return await with_database_timeout(method(self, *args, **options), self.patience_s)

    return bounded


class JobQueue:
    """The jobs of all tenants in one database. Several processes may share it.

    Args:
        lease_s: time without a sign of life from a worker, in seconds, after which another worker takes over its job.
        patience_s: how long to wait for the database to store or report a job's state, in seconds.
        most_of_tenant: maximum number of a tenant's jobs carried out at once, on all machines together; None for no
            limit.

    Attributes:
        expiry: deletes what has expired, for all tenants.
        known: ids of the mirrors whose sources this process knows. Runs of other mirrors are left to other workers.
    """

    def __init__(
        self,
        database: Database,
        *,
        lease_s: float = 30.0,
        patience_s: float = 10.0,
        most_of_tenant: int | None = None,
    ) -> None:
        self.lease_s, self.patience_s = lease_s, patience_s
        self.known_mirrors: Sequence[uuid.UUID] = ()
        self._most_of_tenant = most_of_tenant
        self._database = database
        self.expiry = ExpirySweeper(database, patience_s=patience_s)

    async def submit(self, tenant: str, delivery: Delivery) -> str:
        """Queue a delivery for the next free worker. Return the job's id once it is on disk.

        Raises:
            Unavailable: the database cannot accept it, or too many of the tenant's jobs are waiting.
        """
        return (await self._insert(tenant, delivery, None)).hex

    async def submit_leased(self, tenant: str, delivery: Delivery) -> Lease:
        """Like `submit`, but return the job's lease: the caller carries it out at once."""
        token = uuid.uuid4()
        return Lease(tenant, await self._insert(tenant, delivery, token), token)

    @_with_time_limit
    async def submit_rebuild(self, tenant: str, number: int, name: str, embedder: str | None) -> str:
        """Queue the rebuild of a collection for the next free worker. Return the job's id.

        If a job is already rebuilding it with the same embedder, that job's id is returned.

        Args:
            number, name: number and name of the collection.
            embedder: name of the new embedder; None to keep the current one.
        Raises:
            BadRequest: the collection is being rebuilt with another embedder.
            UnknownCollection, CollectionReplaced: see `collections.lock_collection`.
        """
        new = uuid.uuid4()
        values = {"tenant": tenant, "collection": name, "number": number, "id": new, "embedder": embedder}
        async with self._database.transaction(unrestricted_viewer(tenant)) as connection:
            await collections.lock_collection(connection, tenant, number)
            for id, other in await (await connection.execute(sql.REBUILDS, values)).fetchall():
                if other == embedder:
                    return str(id.hex)
                reason = f'job {id.hex} is already rebuilding collection "{name}"'
                raise BadRequest(f"{reason}; wait for it, or run `signalbox jobs cancel {id.hex}`", where="collection")
            await connection.execute(sql.DURABLE)
            await connection.execute(sql.INSERT_REBUILD, values)
        return new.hex

    @_with_time_limit
    async def cancel(self, who: str | Viewer, id: str) -> Job:
        """Cancel a job that rebuilds a collection, or the run of a mirror.

        A rebuild's result is discarded, and the collection stays unchanged. What a mirror's run has stored and deleted
        stays, and the next run continues from there.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: it has ended, or it is an ingestion of submitted documents.
        """
        tenant = Viewer.of(who).tenant
        values = {"tenant": tenant, "id": _job_uuid(id), "days": KEPT_DAYS}
        async with self._database.transaction(unrestricted_viewer(tenant)) as connection:
            # The shadow is locked first, as by the job that builds it: another order could deadlock.
            await collections.show_shadows(connection)
            await connection.execute(sql.RETIRE_SHADOW, values)
            ended = await connection.execute(sql.CANCEL_JOB, values)
        job = await self.job(who, id)
        if not ended.rowcount:
            is_delivery = job.kind == "ingest" and job.sync is None
            reason = "it ingests documents" if is_delivery else f"it is already {job.status}"
            raise BadRequest(f"job {job.id} cannot be cancelled: {reason}", where="job_id")
        return job

    async def unfinished_rebuild(self, who: str | Viewer, collection: str) -> Job | None:
        """Return the unfinished job that rebuilds a collection; None if there is none."""
        rows = await self._database.fetch(who, sql.UNFINISHED_REBUILD, (Viewer.of(who).tenant, collection))
        return _job(rows[0]) if rows else None

    async def record_rebuild_progress(self, connection: Connection, lease: Lease, *, done: int, documents: int) -> None:
        """Record the progress of a rebuild, in the transaction that makes it. Raises LostLease."""
        _check_lease(
            await connection.execute(
                sql.RECORD_REBUILD_PROGRESS, _lease_key(lease) | {"done": done, "documents": documents}
            )
        )

    @_with_time_limit
    async def pause_rebuild(self, lease: Lease, at: Mapping[str, Any]) -> None:
        """Return an unfinished rebuild to the end of the queue. Raises LostLease.

        Args:
            at: progress of the rebuild as JSON values, from which its next turn continues.
        """
        async with self._database.transaction(unrestricted_viewer(lease.tenant)) as connection:
            _check_lease(await connection.execute(sql.PAUSE_REBUILD, _lease_key(lease) | {"at": Jsonb(dict(at))}))

    @_with_time_limit
    async def _insert(self, tenant: str, delivery: Delivery, token: uuid.UUID | None) -> uuid.UUID:
        id = uuid.uuid4()
        async with self._database.transaction(tenant) as connection:
            waiting = await (await connection.execute(sql.COUNT_UNFINISHED, (tenant,))).fetchone()
            if waiting and waiting[0] >= MAX_WAITING:
                reason = f"{waiting[0]:,} jobs are waiting; send more when some of them are done"
                raise Unavailable("the job queue", reason, retry_after_s=_FULL_RETRY_S)
            values = {
                "tenant": tenant,
                "id": id,
                "collection": delivery.collection,
                "file": delivery.file,
                "payload": delivery.payload,
                "documents": delivery.documents,
                "token": token,
                "seconds": self.lease_s,
            }
            await connection.execute(sql.DURABLE)
            await connection.execute(sql.INSERT, values)
            self._database.retire(connection, len(delivery.payload))
        return id

    @_with_time_limit
    async def lease_next(self, *, only_idle: bool = False) -> Lease | None:
        """Lease the next due job of any tenant; None if there is none.

        Args:
            only_idle: take only a job of a tenant without a running job.
        """
        most = 1 if only_idle else self._most_of_tenant
        async with self._database.connection() as connection:
            values = (self._database.worker_scope(), self.lease_s, list(self.known_mirrors), most)
            row = await (await connection.execute(sql.LEASE_NEXT, values)).fetchone()
        return Lease(*row) if row else None

    @_with_time_limit
    async def load_content(self, lease: Lease) -> JobContent:
        """Load the content of a job.

        Raises:
            LostLease: another worker has it.
        """
        async with self._database.transaction(unrestricted_viewer(lease.tenant)) as connection:
            # If a document is still recorded as being processed, the last worker died during it.
            await connection.execute(sql.PARK, _lease_key(lease))
            row = await (await connection.execute(sql.LOAD, _lease_key(lease))).fetchone()
            if row is None:
                raise LostLease
            collection, delivery, file, payload, *rest = row
            dead_letters: list[Row] = []
            if payload is None:
                dead_letters = await (await connection.execute(sql.DEAD_LETTERS, (lease.tenant, lease.id))).fetchall()
            self._database.retire(connection, len(payload or b"") + sum(len(one or b"") for _, one in dead_letters))
        return JobContent(
            collection, delivery, file, payload, [(index, one and bytes(one)) for index, one in dead_letters], *rest
        )

    @_with_time_limit
    async def renew_lease(self, lease: Lease, *, done: int, failed: int) -> bool:
        """Extend the lease and record the number of processed documents. Return False if the lease is lost."""
        values = {"seconds": self.lease_s, "done": done, "failed": failed}
        async with self._database.transaction(unrestricted_viewer(lease.tenant)) as connection:
            kept = await connection.execute(sql.RENEW_LEASE, _lease_key(lease) | values)
        return kept.rowcount == 1

    @_with_time_limit
    async def mark_in_progress(self, lease: Lease, index: int) -> None:
        """Record which document is stored next: if this worker dies, that document may be why. Raises LostLease."""
        async with self._database.transaction(unrestricted_viewer(lease.tenant)) as connection:
            _check_lease(await connection.execute(sql.MARK_IN_PROGRESS, _lease_key(lease) | {"index": index}))

    async def record_batch(self, connection: Connection, lease: Lease, **counts: int) -> None:
        """Add a stored batch to the job's counts, in the batch's transaction. Raises LostLease, which rolls it back.

        Args:
            counts: `inserted` and `updated` in this batch, `done` and `failed` in total.
        """
        _check_lease(await connection.execute(sql.RECORD_BATCH, _lease_key(lease) | counts))

    @_with_time_limit
    async def finish(
        self, lease: Lease, *, documents: int, failed: Sequence[Failure], payloads: Mapping[int, bytes | None]
    ) -> None:
        """Mark the job as done, or as failed if all of its documents failed. Failed documents are kept.

        Args:
            documents: number of documents in the delivery.
            failed: the documents that failed.
            payloads: records of the failed documents by their index in the delivery; None for a deleted record. Empty
                for a file, which is then kept as a whole.
        Raises:
            LostLease: another worker has the job.
        """
        error = "none of its documents could be stored" if failed and len(failed) == documents else None
        counts = {"documents": documents, "failed": len(failed), "keep": bool(failed) and not payloads, "error": error}
        async with self._database.transaction(unrestricted_viewer(lease.tenant)) as connection:
            await connection.execute(sql.DURABLE)
            _check_lease(await connection.execute(sql.FINISH, _lease_key(lease) | counts | {"days": KEPT_DAYS}))
            await connection.execute(sql.DELETE_DEAD_LETTERS, (lease.tenant, lease.id))
            for start in range(0, len(failed), _BURIED_AT_ONCE):
                some = failed[start : start + _BURIED_AT_ONCE]
                await connection.execute(sql.INSERT_DEAD_LETTERS, _lease_key(lease) | _letter_columns(some, payloads))
            self._database.retire(connection, sum(len(one) for one in payloads.values() if one is not None))
            await connection.execute(sql.SWEEP, (lease.tenant, lease.tenant, _SWEEP_BATCH))

    @_with_time_limit
    async def fail(self, lease: Lease, reason: str) -> None:
        """Mark the job as a whole as failed. `retry` tries it again."""
        async with self._database.transaction(unrestricted_viewer(lease.tenant)) as connection:
            await connection.execute(sql.FAIL, _lease_key(lease) | {"reason": reason, "days": KEPT_DAYS})

    @_with_time_limit
    async def requeue(self, lease: Lease, *, reason: str | None = None, delay_s: float = 0.0) -> None:
        """Return the job to the queue.

        Args:
            reason: why an attempt failed; None if it was only interrupted, which does not count as a try.
            delay_s: time before the next attempt, in seconds.
        """
        values = {"reason": reason, "seconds": delay_s, "tried": int(reason is not None)}
        async with self._database.transaction(unrestricted_viewer(lease.tenant)) as connection:
            await connection.execute(sql.REQUEUE, _lease_key(lease) | values)

    async def job(self, who: str | Viewer, id: str) -> Job:
        """Return one job with the documents that failed, except those that the viewer may not read.

        Raises:
            NotFound: the tenant has no job with this id, or it is no longer kept.
        """
        number = _job_uuid(id)
        async with self._database.transaction(who) as connection:
            row = await (await connection.execute(sql.JOB, (Viewer.of(who).tenant, number))).fetchone()
            if row is None:
                raise _unknown_job(id)
            job = _job(row)
            if not job.failed:
                return job  # the failed documents are being tried again
            cursor = await connection.execute(sql.FAILURES, (Viewer.of(who).tenant, number))
            letters = await fetch_in_batches(cursor)
        return replace(job, failures=tuple(await asyncio.to_thread(lambda: [DeadLetter(*one) for one in letters])))

    async def recent_jobs(self, who: str | Viewer, limit: int) -> list[Job]:
        """Return the tenant's latest jobs, newest first, without the documents that failed."""
        rows = await self._database.fetch(who, sql.RECENT, (Viewer.of(who).tenant, min(limit, MAX_LISTED)))
        return [_job(row) for row in rows]

    async def retry(self, who: str | Viewer, id: str) -> Job:
        """Queue a job's failed documents again; all of its documents if the job as a whole failed.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: nothing failed, the job has not ended, or the failed documents were deleted since.
        """
        tenant = Viewer.of(who).tenant
        async with self._database.transaction(unrestricted_viewer(tenant)) as connection:
            await connection.execute(sql.DURABLE)
            again = await connection.execute(sql.RETRY, (tenant, _job_uuid(id)))
        job = await self.job(who, id)
        if not again.rowcount:
            if job.status in ("queued", "running"):
                why = f"it is already {job.status}"
            elif job.sync is not None:
                why = "the next run of its source reads its failed documents again: run `signalbox sync`"
            elif job.status == "failed" or job.failed:
                why = "its failed documents were deleted since; send them again"
            else:
                why = "none of its documents failed"
            raise BadRequest(f"job {job.id}: {why}", where="job_id")
        return job


async def cancel_collection_jobs(connection: Connection, tenant: str, collection: str) -> None:
    """Mark a collection's unfinished jobs as failed, because they would create the collection again.

    Call it in the transaction that deletes the collection. The documents that the jobs contain are deleted; the results
    of the jobs are kept.
    """
    values = {"tenant": tenant, "collection": collection, "days": KEPT_DAYS}
    await connection.execute(sql.CANCEL_COLLECTION_JOBS, values)
    await connection.execute(sql.CLEAR_PAYLOADS, values)
    await connection.execute(sql.CLEAR_DEAD_LETTERS, values | {"documents": None})


async def forget_document_payloads(
    connection: Connection, tenant: str, collection: str, documents: Sequence[str]
) -> None:
    """Delete the content that jobs kept of these documents because storing them had failed.

    Call it in the transaction that deletes the documents. Their content stays in deliveries that are kept as a whole:
    files, and deliveries that have not been carried out yet.

    Args:
        documents: ids of the documents.
    """
    values = {"tenant": tenant, "collection": collection, "documents": list(documents)}
    await connection.execute(sql.CLEAR_DEAD_LETTERS, values)


def _lease_key(lease: Lease) -> dict[str, Any]:
    return {"tenant": lease.tenant, "id": lease.id, "token": lease.token}


def _letter_columns(failed: Sequence[Failure], payloads: Mapping[int, bytes | None]) -> dict[str, Any]:
    return {
        "indexes": [one.index for one in failed],
        "places": [one.where for one in failed],
        "documents": [one.id for one in failed],
        "reasons": [one.reason for one in failed],
        "payloads": [payloads.get(one.index) for one in failed],
        "readers": [json.dumps(one.readers) if one.readers else None for one in failed],
    }


def _check_lease(cursor: Any) -> None:
    if cursor.rowcount != 1:
        raise LostLease


def _job_uuid(id: str) -> uuid.UUID:
    try:
        return uuid.UUID(id)
    except ValueError:
        raise _unknown_job(id) from None


def _unknown_job(id: str) -> NotFound:
    return NotFound(f'there is no job "{id[:80]}"; jobs are kept for {KEPT_DAYS} days', where="job_id")


def _job(row: Row) -> Job:
    return Job(row[0].hex, *row[1:])
