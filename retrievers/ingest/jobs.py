"""The queue of ingestion jobs: a delivery is stored first, then leased to one worker at a time."""

import uuid
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from psycopg.types.json import Jsonb

from retrievers.core.errors import BadRequest, NotFound, Unavailable
from retrievers.core.tasks import within
from retrievers.core.types import Viewer, whole
from retrievers.ingest import collections
from retrievers.ingest.collections import Connection
from retrievers.ingest.delivery import Delivery
from retrievers.ingest.retired import remove_retired
from retrievers.ingest.run import Failure
from retrievers.ingest.settle import settle
from retrievers.postgres.database import Database, Row

MAX_WAITING = 1000
"""Maximum number of unfinished jobs of one tenant."""
KEPT_DAYS = 30
MAX_LISTED = 100
_SWEEP_BATCH = 100
_SWEEP_ALL_BATCH = 1000
_SETTLE_S = 600.0
"""Time limit for settling a collection, in seconds. Reweighing a large collection takes minutes; the limit is for a
hung database.
"""
_FULL_RETRY_S = 30.0
_HUNG_RETRY_S = 5.0

Given = ParamSpec("Given")
Returned = TypeVar("Returned")


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


def _in_time(
    method: Callable[Concatenate["JobQueue", Given], Awaitable[Returned]],
) -> Callable[Concatenate["JobQueue", Given], Coroutine[Any, Any, Returned]]:
    """Limit a method's time to `patience_s`. A database that hangs then raises `Unavailable`."""

    @wraps(method)
    async def bounded(self: "JobQueue", /, *args: Given.args, **options: Given.kwargs) -> Returned:
        try:
            return await within(method(self, *args, **options), self.patience_s)
        except (TimeoutError, ConnectionAbortedError) as error:
            reason = f"no answer within {self.patience_s:g} s"
            raise Unavailable("the database", reason, retry_after_s=_HUNG_RETRY_S) from error

    return bounded


class JobQueue:
    """The jobs of all tenants in one database. Several processes may share it.

    Args:
        lease_s: time without a sign of life from a worker, in seconds, after which another worker takes over its job.
        patience_s: how long to wait for the database to store or report a job's state, in seconds.
        retired_s: how long requests may keep using a collection that was replaced, in seconds, before its rows are
            deleted.
        most_of_tenant: maximum number of a tenant's jobs carried out at once, on all machines together; None for no
            limit.

    Attributes:
        known: mirrors whose sources this process knows. Runs of other mirrors are left to other workers.
    """

    def __init__(
        self,
        database: Database,
        *,
        lease_s: float = 30.0,
        patience_s: float = 10.0,
        retired_s: float = 30.0,
        most_of_tenant: int | None = None,
    ) -> None:
        self.lease_s, self.patience_s, self.retired_s = lease_s, patience_s, retired_s
        self.known: Sequence[uuid.UUID] = ()
        self._most_of_tenant = most_of_tenant
        self._database = database

    async def submit(self, tenant: str, delivery: Delivery) -> str:
        """Queue a delivery for the next free worker. Return the job's id once it is on disk.

        Raises:
            Unavailable: the database cannot accept it, or too many of the tenant's jobs are waiting.
        """
        return (await self._insert(tenant, delivery, None)).hex

    async def begin(self, tenant: str, delivery: Delivery) -> Lease:
        """Like `submit`, but the caller carries it out."""
        token = uuid.uuid4()
        return Lease(tenant, await self._insert(tenant, delivery, token), token)

    @_in_time
    async def submit_rebuild(self, tenant: str, number: int, name: str, embedder: str | None) -> str:
        """Queue the rebuild of a collection for the next free worker. Return the job's id.

        If a job is already rebuilding it with the same embedder, that job's id is returned.

        Args:
            embedder: the new embedder; None to keep the current one.
        Raises:
            BadRequest: it is being rebuilt with another embedder.
            UnknownCollection, Replaced: see `collections.lock`.
        """
        new = uuid.uuid4()
        values = {"tenant": tenant, "collection": name, "number": number, "id": new, "embedder": embedder}
        async with self._database.transaction(whole(tenant)) as connection:
            await collections.lock(connection, tenant, number)
            for id, other in await (await connection.execute(_REBUILDS, values)).fetchall():
                if other == embedder:
                    return str(id.hex)
                reason = f'collection "{name}" is being made anew already: job {id.hex}'
                raise BadRequest(f"{reason}; wait for it, or `signalbox jobs cancel {id.hex}`", where="collection")
            await connection.execute(_DURABLE)
            await connection.execute(_INSERT_REBUILD, values)
        return new.hex

    @_in_time
    async def cancel(self, who: str | Viewer, id: str) -> Job:
        """Cancel a job that rebuilds a collection, or the run of a mirror.

        A rebuild's result is discarded, and the collection stays unchanged. What a mirror's run has stored and deleted
        stays, and the next run continues from there.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: it has ended, or it is an ingestion of submitted documents.
        """
        tenant = Viewer.of(who).tenant
        values = {"tenant": tenant, "id": _number(id), "days": KEPT_DAYS}
        async with self._database.transaction(whole(tenant)) as connection:
            # The shadow first, in the same order as the job that builds it.
            await collections.show_shadows(connection)
            await connection.execute(_GIVE_UP, values)
            ended = await connection.execute(_END, values)
        job = await self.job(who, id)
        if not ended.rowcount:
            is_delivery = job.kind == "ingest" and job.sync is None
            reason = "it is an ingestion" if is_delivery else f"it is {job.status} already"
            raise BadRequest(f"job {job.id} cannot be cancelled: {reason}", where="job_id")
        return job

    async def under_way(self, who: str | Viewer, collection: str) -> Job | None:
        """Return the job that is rebuilding a collection, None if there is none."""
        rows = await self._database.fetch(who, _UNDER_WAY, (Viewer.of(who).tenant, collection))
        return _job(rows[0]) if rows else None

    @_in_time
    async def retired(self) -> list[tuple[str, int]]:
        """Return tenant and number of collections whose rows are to be deleted."""
        async with self._database.connection() as connection:
            values = (self._database.worker_pass(), self.retired_s, _SWEEP_ALL_BATCH)
            cursor = await connection.execute(_RETIRED, values)
            return [(row[0], row[1]) for row in await cursor.fetchall()]

    async def remove_retired(self, tenant: str, number: int, *, within_s: float) -> bool:
        """See `retrievers.ingest.retired.remove_retired`."""
        return await within(remove_retired(self._database, tenant, number, within_s=within_s), _SETTLE_S)

    async def advance(self, connection: Connection, lease: Lease, *, done: int, documents: int) -> None:
        """Record the progress of a rebuild, in the transaction that makes it. Raises LostLease."""
        _one(await connection.execute(_ADVANCE, _held(lease) | {"done": done, "documents": documents}))

    @_in_time
    async def pause(self, lease: Lease, at: Mapping[str, Any]) -> None:
        """Put an unfinished job behind the waiting ones. Raises LostLease.

        Args:
            at: its progress, for the next turn to continue from.
        """
        async with self._database.transaction(whole(lease.tenant)) as connection:
            _one(await connection.execute(_PAUSE, _held(lease) | {"at": Jsonb(dict(at))}))

    @_in_time
    async def _insert(self, tenant: str, delivery: Delivery, token: uuid.UUID | None) -> uuid.UUID:
        id = uuid.uuid4()
        async with self._database.transaction(tenant) as connection:
            waiting = await (await connection.execute(_WAITING, (tenant,))).fetchone()
            if waiting and waiting[0] >= MAX_WAITING:
                reason = f"{waiting[0]:,} jobs are waiting already; send more when some are done"
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
            await connection.execute(_DURABLE)
            await connection.execute(_INSERT, values)
            self._database.retire(connection, len(delivery.payload))
        return id

    @_in_time
    async def take(self) -> Lease | None:
        """Lease the next due job of any tenant; None if there is none."""
        async with self._database.connection() as connection:
            values = (self._database.worker_pass(), self.lease_s, list(self.known), self._most_of_tenant)
            row = await (await connection.execute(_TAKE, values)).fetchone()
        return Lease(*row) if row else None

    @_in_time
    async def sweep(self) -> None:
        """Delete a batch of expired jobs, traces, conversations and records of all tenants."""
        async with self._database.connection() as connection:
            await connection.execute(_SWEEP_ALL, (self._database.worker_pass(), _SWEEP_ALL_BATCH))

    @_in_time
    async def expired(self) -> list[tuple[str, int]]:
        """Return tenant and number of collections with expired documents that are still counted."""
        async with self._database.connection() as connection:
            cursor = await connection.execute(_EXPIRED, (self._database.worker_pass(), _SWEEP_ALL_BATCH))
            return [(row[0], row[1]) for row in await cursor.fetchall()]

    async def settle(self, tenant: str, number: int) -> None:
        """Remove expired documents from a collection's counts.

        Raises:
            TimeoutError: the database does not finish.
        """

        async def settled() -> None:
            async with self._database.transaction(whole(tenant)) as connection:
                await settle(connection, tenant, number)

        await within(settled(), _SETTLE_S)

    @_in_time
    async def load(self, lease: Lease) -> Work:
        """Load the content of a job.

        Raises:
            LostLease: another worker has it.
        """
        async with self._database.transaction(whole(lease.tenant)) as connection:
            # A document that is still in hand is the one during which the last worker died.
            await connection.execute(_PARK, _held(lease))
            row = await (await connection.execute(_LOAD, _held(lease))).fetchone()
            if row is None:
                raise LostLease
            collection, delivery, file, payload, *rest = row
            letters: list[Row] = []
            if payload is None:
                letters = await (await connection.execute(_LETTERS, (lease.tenant, lease.id))).fetchall()
            else:
                self._database.retire(connection, len(payload))
        return Work(collection, delivery, file, payload, [(index, one and bytes(one)) for index, one in letters], *rest)

    @_in_time
    async def keep(self, lease: Lease, *, done: int, failed: int) -> bool:
        """Extend the lease and record the number of processed documents. False if the lease is lost."""
        values = {"seconds": self.lease_s, "done": done, "failed": failed}
        async with self._database.transaction(whole(lease.tenant)) as connection:
            kept = await connection.execute(_KEEP, _held(lease) | values)
        return kept.rowcount == 1

    @_in_time
    async def take_in_hand(self, lease: Lease, index: int) -> None:
        """Record which document is processed next, in case this worker dies during it. Raises LostLease."""
        async with self._database.transaction(whole(lease.tenant)) as connection:
            _one(await connection.execute(_IN_HAND, _held(lease) | {"index": index}))

    async def record(self, connection: Connection, lease: Lease, **counts: int) -> None:
        """Count a batch, in the transaction that stores it. Raises LostLease, which rolls the batch back.

        Args:
            counts: `inserted` and `updated` in this batch, `done` and `failed` in total.
        """
        _one(await connection.execute(_RECORD, _held(lease) | counts))

    @_in_time
    async def finish(
        self, lease: Lease, *, documents: int, failed: Sequence[Failure], payloads: Mapping[int, bytes | None]
    ) -> None:
        """Mark the job as done, or as failed if all of its documents failed. Failed documents are kept.

        Args:
            documents: number of documents in the delivery.
            payloads: records that failed, by index; empty for a file, which is then kept as a whole.
        Raises:
            LostLease: another worker has the job.
        """
        error = "none of its documents could be stored" if failed and len(failed) == documents else None
        counts = {"documents": documents, "failed": len(failed), "keep": bool(failed) and not payloads, "error": error}
        async with self._database.transaction(whole(lease.tenant)) as connection:
            await connection.execute(_DURABLE)
            _one(await connection.execute(_FINISH, _held(lease) | counts | {"days": KEPT_DAYS}))
            await connection.execute(_FORGET, (lease.tenant, lease.id))
            rows = [
                (
                    lease.tenant,
                    lease.id,
                    one.index,
                    one.where,
                    one.id,
                    one.reason,
                    payloads.get(one.index),
                    list(one.readers) or None,
                )
                for one in failed
            ]
            await connection.cursor().executemany(_BURY, rows)
            await connection.execute(_SWEEP, (lease.tenant, lease.tenant, _SWEEP_BATCH))

    @_in_time
    async def fail(self, lease: Lease, reason: str) -> None:
        """Mark the job as a whole as failed. `retry` tries it again."""
        async with self._database.transaction(whole(lease.tenant)) as connection:
            await connection.execute(_FAIL, _held(lease) | {"reason": reason, "days": KEPT_DAYS})

    @_in_time
    async def give_back(self, lease: Lease, *, reason: str | None = None, delay_s: float = 0.0) -> None:
        """Return the job to the queue, with a delay if a dependency failed."""
        values = {"reason": reason, "seconds": delay_s, "tried": int(reason is not None)}
        async with self._database.transaction(whole(lease.tenant)) as connection:
            await connection.execute(_GIVE_BACK, _held(lease) | values)

    async def job(self, who: str | Viewer, id: str) -> Job:
        """Return one job with the documents that failed, except those that the viewer may not read.

        Raises:
            NotFound: the tenant has no job with this id, or no longer.
        """
        number = _number(id)
        async with self._database.transaction(who) as connection:
            row = await (await connection.execute(_JOB, (Viewer.of(who).tenant, number))).fetchone()
            if row is None:
                raise _unknown(id)
            job = _job(row)
            if not job.failed:
                return job  # the failed documents are being tried again
            cursor = await connection.execute(_FAILURES, (Viewer.of(who).tenant, number))
            return replace(job, failures=tuple(DeadLetter(*one) for one in await cursor.fetchall()))

    async def recent(self, who: str | Viewer, limit: int) -> list[Job]:
        """Return the tenant's latest jobs, newest first, without the documents that failed."""
        rows = await self._database.fetch(who, _RECENT, (Viewer.of(who).tenant, min(limit, MAX_LISTED)))
        return [_job(row) for row in rows]

    async def retry(self, who: str | Viewer, id: str) -> Job:
        """Queue a job's failed documents again; all of its documents if the job as a whole failed.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: nothing failed, the job has not ended, or the failed documents were deleted since.
        """
        tenant = Viewer.of(who).tenant
        async with self._database.transaction(whole(tenant)) as connection:
            await connection.execute(_DURABLE)
            again = await connection.execute(_RETRY, (tenant, _number(id)))
        job = await self.job(who, id)
        if not again.rowcount:
            if job.status in ("queued", "running"):
                why = f"it is {job.status} already"
            elif job.sync is not None:
                why = "the next run of its source reads again what failed: `signalbox sync`"
            elif job.status == "failed" or job.failed:
                why = "what failed of it was deleted since; send the documents again"
            else:
                why = "nothing of it failed"
            raise BadRequest(f"job {job.id}: {why}", where="job_id")
        return job


async def cancel(connection: Connection, tenant: str, collection: str) -> None:
    """End the jobs of a collection that this transaction deletes, because they would create it again.

    The documents of all its jobs are deleted; their results are kept.
    """
    values = {"tenant": tenant, "collection": collection, "days": KEPT_DAYS}
    await connection.execute(_CANCEL, values)
    await connection.execute(_CLEAR, values)
    await connection.execute(_CLEAR_LETTERS, values | {"documents": None})


async def forget(connection: Connection, tenant: str, collection: str, documents: Sequence[str]) -> None:
    """Remove documents that this transaction deletes from the dead letters.

    They stay inside deliveries that are kept as a whole: files, and deliveries not carried out yet.
    """
    values = {"tenant": tenant, "collection": collection, "documents": list(documents)}
    await connection.execute(_CLEAR_LETTERS, values)


def _held(lease: Lease) -> dict[str, Any]:
    return {"tenant": lease.tenant, "id": lease.id, "token": lease.token}


def _one(cursor: Any) -> None:
    if cursor.rowcount != 1:
        raise LostLease


def _number(id: str) -> uuid.UUID:
    try:
        return uuid.UUID(id)
    except ValueError:
        raise _unknown(id) from None


def _unknown(id: str) -> NotFound:
    return NotFound(f'there is no job "{id[:80]}"; jobs are kept for {KEPT_DAYS} days', where="job_id")


def _job(row: Row) -> Job:
    return Job(row[0].hex, *row[1:])


# The server may be configured to acknowledge before writing to disk. A stricter setting, as with replication, is kept.
_DURABLE = """
    SELECT set_config('synchronous_commit', 'on', true)
    WHERE current_setting('synchronous_commit') IN ('off', 'local')
"""
_WAITING = "SELECT count(*) FROM signalbox.job WHERE tenant = %s AND status IN ('queued', 'running')"
_INSERT = """
    INSERT INTO signalbox.job (tenant, id, collection, file, payload, documents, status, lease, free_at, started_at)
    VALUES (%(tenant)s, %(id)s, %(collection)s, %(file)s, %(payload)s, %(documents)s,
            CASE WHEN %(token)s::uuid IS NULL THEN 'queued' ELSE 'running' END, %(token)s,
            CASE WHEN %(token)s::uuid IS NULL THEN now() ELSE now() + make_interval(secs => %(seconds)s) END,
            CASE WHEN %(token)s::uuid IS NULL THEN NULL ELSE now() END)
"""
_TAKE = "SELECT tenant, id, lease FROM signalbox.take_job(%s, %s, %s, %s)"
_LOAD = """
    SELECT collection, delivery, file, payload, documents, tries, deaths, parked, rebuild, done, sync
    FROM signalbox.job WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
_PARK = """
    UPDATE signalbox.job SET parked = array_append(parked, in_hand), in_hand = NULL
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s AND in_hand IS NOT NULL
"""
_LETTERS = """
    SELECT index, payload FROM signalbox.dead_letter WHERE tenant = %s AND job = %s ORDER BY index
"""
_KEEP = """
    UPDATE signalbox.job SET free_at = now() + make_interval(secs => %(seconds)s), done = %(done)s, failed = %(failed)s
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
_IN_HAND = """
    UPDATE signalbox.job SET in_hand = %(index)s WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
_RECORD = """
    UPDATE signalbox.job
    SET inserted = inserted + %(inserted)s, updated = updated + %(updated)s, done = %(done)s,
        failed = %(failed)s
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
_FINISH = """
    UPDATE signalbox.job
    SET status = CASE WHEN %(error)s::text IS NULL THEN 'done' ELSE 'failed' END,
        lease = NULL, in_hand = NULL, error = %(error)s, documents = %(documents)s, done = %(documents)s,
        failed = %(failed)s, payload = CASE WHEN %(keep)s THEN payload END, finished_at = now(),
        expires_at = now() + make_interval(days => %(days)s)
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
_FORGET = "DELETE FROM signalbox.dead_letter WHERE tenant = %s AND job = %s"
_BURY = """
    INSERT INTO signalbox.dead_letter (tenant, job, index, place, document_id, reason, payload, readers)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s)
"""
_SWEEP = """
    DELETE FROM signalbox.job WHERE tenant = %s AND id IN (
        SELECT id FROM signalbox.job WHERE tenant = %s AND expires_at <= now() ORDER BY expires_at LIMIT %s
        FOR UPDATE SKIP LOCKED)
"""
_SWEEP_ALL = "SELECT signalbox.sweep(%s, %s)"
_EXPIRED = "SELECT * FROM signalbox.expired_documents(%s, %s)"
_FAIL = """
    UPDATE signalbox.job
    SET status = 'failed', lease = NULL, error = %(reason)s, finished_at = now(),
        expires_at = now() + make_interval(days => %(days)s)
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
_CANCEL = """
    UPDATE signalbox.job
    SET status = 'failed', lease = NULL, error = 'the collection was deleted', finished_at = now(),
        expires_at = now() + make_interval(days => %(days)s)
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND status IN ('queued', 'running')
"""
_CLEAR = """
    UPDATE signalbox.job SET payload = NULL
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND payload IS NOT NULL
"""
_CLEAR_LETTERS = """
    UPDATE signalbox.dead_letter l SET payload = NULL FROM signalbox.job j
    WHERE j.tenant = %(tenant)s AND j.collection = %(collection)s AND (l.tenant, l.job) = (j.tenant, j.id)
      AND l.payload IS NOT NULL AND (%(documents)s::text[] IS NULL OR l.document_id = ANY (%(documents)s))
"""
_GIVE_BACK = """
    UPDATE signalbox.job
    SET status = 'queued', lease = NULL, free_at = now() + make_interval(secs => %(seconds)s),
        tries = tries + %(tried)s, in_hand = NULL, error = %(reason)s
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
# Limits the counts of a rebuild for a viewer who may not read all documents.
_SHOWN = """
    SELECT id, collection, file, status,
           CASE WHEN seen.most IS NULL THEN j.documents ELSE least(j.documents, seen.most) END,
           CASE WHEN seen.most IS NULL THEN done ELSE least(done, seen.most) END, inserted, updated,
           CASE WHEN rebuild IS NULL THEN greatest(done - inserted - updated - failed, 0) ELSE 0 END, failed, deleted,
           error, replace(sync::text, '-', ''),
           CASE WHEN status = 'queued' AND error IS NOT NULL THEN free_at END, created_at, started_at, finished_at,
           CASE WHEN rebuild IS NULL THEN 'ingest' WHEN rebuild ->> 'embedder' IS NULL THEN 'rebuild'
                ELSE 'reembed' END,
           rebuild ->> 'embedder'
    FROM signalbox.job j LEFT JOIN LATERAL (
        SELECT coalesce(sum(c.documents), 0)::integer AS most FROM signalbox.collection c
        WHERE c.tenant = j.tenant AND (c.part_of IS NULL AND c.name = j.collection OR c.part_of IN (
            SELECT k.number FROM signalbox.collection k
            WHERE k.tenant = j.tenant AND k.name = j.collection AND k.part_of IS NULL))
        ) seen ON j.rebuild IS NOT NULL AND (SELECT signalbox.principals()) <> '{*}'
"""
_JOB = _SHOWN + "WHERE tenant = %s AND id = %s AND (expires_at IS NULL OR expires_at > now())"
_UNDER_WAY = (
    _SHOWN
    + """
    WHERE tenant = %s AND collection = %s AND rebuild IS NOT NULL AND status IN ('queued', 'running') LIMIT 1
"""
)
_REBUILDS = """
    SELECT id, rebuild ->> 'embedder' FROM signalbox.job
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND rebuild IS NOT NULL
      AND status IN ('queued', 'running')
"""
_INSERT_REBUILD = """
    INSERT INTO signalbox.job (tenant, id, collection, documents, status, rebuild)
    SELECT %(tenant)s, %(id)s, %(collection)s, sum(documents)::integer, 'queued',
           jsonb_build_object('embedder', %(embedder)s::text)
    FROM signalbox.collection WHERE tenant = %(tenant)s AND %(number)s IN (number, part_of)
"""
_GIVE_UP = """
    UPDATE signalbox.collection SET name = name || '/' || number, retired_at = now()
    WHERE tenant = %(tenant)s AND built_by = %(id)s AND shadow_of IS NOT NULL AND retired_at IS NULL
"""
_END = """
    UPDATE signalbox.job
    SET status = 'failed', lease = NULL, error = 'cancelled', finished_at = now(),
        expires_at = now() + make_interval(days => %(days)s)
    WHERE tenant = %(tenant)s AND id = %(id)s AND (rebuild IS NOT NULL OR sync IS NOT NULL)
      AND status IN ('queued', 'running')
"""
_RETIRED = "SELECT * FROM signalbox.retired_collections(%s, %s, %s)"
_ADVANCE = """
    UPDATE signalbox.job SET done = %(done)s, documents = %(documents)s, tries = 0, deaths = 0, error = NULL
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
_PAUSE = """
    UPDATE signalbox.job
    SET status = 'queued', lease = NULL, free_at = now(), delivery = nextval('signalbox.delivery'),
        rebuild = rebuild || jsonb_build_object('at', %(at)s::jsonb)
    WHERE tenant = %(tenant)s AND id = %(id)s AND lease = %(token)s
"""
_RECENT = _SHOWN + "WHERE tenant = %s AND (expires_at IS NULL OR expires_at > now()) ORDER BY delivery DESC LIMIT %s"
_FAILURES = """
    SELECT index, place, document_id, reason, failed_at FROM signalbox.dead_letter
    WHERE tenant = %s AND job = %s ORDER BY index
"""
_RETRY = """
    UPDATE signalbox.job j
    SET status = 'queued', free_at = now(), tries = 0, deaths = 0, in_hand = NULL, parked = '{}', error = NULL,
        done = done - failed, failed = 0, finished_at = NULL, expires_at = NULL
    WHERE tenant = %s AND id = %s AND expires_at > now() AND (status = 'failed' OR (status = 'done' AND failed > 0))
      AND (payload IS NOT NULL OR rebuild IS NOT NULL OR EXISTS (SELECT FROM signalbox.dead_letter l
                                          WHERE (l.tenant, l.job) = (j.tenant, j.id) AND l.payload IS NOT NULL))
"""
