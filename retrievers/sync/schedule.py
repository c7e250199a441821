"""The mirrors of a tenant: their schedules, their runs, and the results."""

import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from retrievers.core.errors import BadRequest, NotFound, Unavailable
from retrievers.core.types import Viewer, unrestricted_viewer
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import Job, Lease
from retrievers.postgres.connections.database import Database
from retrievers.sync.forgotten_sources import forget_source
from retrievers.sync.mirror_run import Mirror

MOST_LISTED = 200
_RECORD_EVERY_S = 30.0
"""How often a worker records the schedules of its settings in the database, in seconds."""
_WORKER_SEEN_S = 120.0
"""How long after such a record a schedule counts as having a worker, in seconds."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """A mirror that is run at intervals.

    Attributes:
        every_s: interval between the starts of two runs, in seconds.
    """

    name: str
    mirror: Mirror
    every_s: float


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """A source that a collection follows, as its tenant sees it.

    Attributes:
        name: name of its schedule; None if it is run by hand.
        source: name of the source, without passwords.
        every_s: interval between the starts of two runs, in seconds; None if it is run by hand.
        has_worker: a worker that has the schedule in its settings has recently recorded it.
        next_at: time of the next run; None without such a worker.
        documents: number of documents after the last complete run; None before the first one.
        last: job of the last run; None before the first run, and once that job is no longer kept.
    """

    id: str
    name: str | None
    source: str
    collection: str
    every_s: float | None
    has_worker: bool
    next_at: datetime | None
    documents: int | None
    last: Job | None


class MirrorScheduler:
    """The mirrors of all tenants in one database, which several processes may share.

    Args:
        own: schedules in the settings of this process.
    """

    def __init__(self, database: Database, jobs: JobQueue, own: Sequence[Schedule] = ()) -> None:
        self._database, self._jobs, self._own = database, jobs, own
        self._recorded_at = -math.inf

    async def queue_due_runs(self) -> None:
        """Queue the runs of this process's own schedules that are due. Several processes queue a run only once.

        Raises:
            Unavailable: the database cannot be reached.
        """
        if not self._own:
            return
        if time.monotonic() - self._recorded_at >= _RECORD_EVERY_S:
            for one in self._own:
                await self._register(one)
            self._recorded_at = time.monotonic()
        for tenant in {one.mirror.tenant for one in self._own}:
            ids = [one.mirror.manifest.sync for one in self._own if one.mirror.tenant == tenant]
            async with self._database.transaction(unrestricted_viewer(tenant)) as connection:
                await connection.execute(_QUEUE_DUE_RUNS, {"tenant": tenant, "ids": ids})

    async def _register(self, schedule: Schedule) -> None:
        mirror = schedule.mirror
        values = {**_row(mirror), "name": schedule.name, "every_s": schedule.every_s, "heard_s": _WORKER_SEEN_S}
        # One transaction per statement: together, workers with different settings could deadlock.
        for statement in (_REGISTER, _TAKE_NAME):
            async with self._database.transaction(unrestricted_viewer(mirror.tenant)) as connection:
                await connection.execute(statement, values)

    async def begin_run(self, mirror: Mirror) -> Lease:
        """Start a run of a mirror for the caller to carry out. A queued or abandoned run is taken over.

        Raises:
            Unavailable: a run is in progress, or the database cannot be reached.
        """
        job, token = uuid.uuid4(), uuid.uuid4()
        values = {**_row(mirror), "job": job, "lease": token, "seconds": self._jobs.lease_s}
        async with self._database.transaction(unrestricted_viewer(mirror.tenant)) as connection:
            await connection.execute(_INSERT_MIRROR, values)
            await connection.execute(_LOCK, values)
            row = await (await connection.execute(_UNFINISHED_RUN, values)).fetchone()
            if row is not None and row[1]:
                reason = f"job {row[0].hex} is already syncing it; wait until it ends"
                raise Unavailable("the source", reason, retry_after_s=self._jobs.lease_s)
            if row is not None:
                values["job"] = job = row[0]
            await connection.execute(_BEGIN if row is None else _TAKE_OVER, values)
        return Lease(mirror.tenant, job, token)

    async def list_mirrors(self, who: str | Viewer) -> list[MirrorStatus]:
        """Return the tenant's mirrors, at most MOST_LISTED, sorted by name and collection, each with its last run.

        This process's own schedules that have never run come after them.
        """
        found, tenant = {one.id: one for one in await self._recorded_mirrors(who)}, Viewer.of(who).tenant
        for one in self._own:
            source, collection = one.mirror.source.name, one.mirror.collection
            if one.mirror.tenant != tenant:
                continue
            id = one.mirror.manifest.sync.hex
            new = MirrorStatus(id, one.name, source, collection, one.every_s, False, None, None, None)
            status = found.get(id, new)
            if status.every_s is None:  # it was only run by hand so far
                status = replace(status, name=one.name, every_s=one.every_s)
            found[id] = status
        return [*found.values()]

    async def _recorded_mirrors(self, who: str | Viewer) -> list[MirrorStatus]:
        values = {"tenant": Viewer.of(who).tenant, "most": MOST_LISTED, "heard_s": _WORKER_SEEN_S}
        rows = await self._database.fetch(who, _LISTED, values)
        found = []
        for id, *shown, job in rows:
            last = None if job is None else await self._jobs.job(who, job.hex)
            found.append(MirrorStatus(*[id.hex, *shown, last]))
        return found

    async def queue_run(self, who: str | Viewer, name: str) -> MirrorStatus:
        """Queue a run of a mirror now, for a worker that has it in its settings. Return the mirror's new state.

        Args:
            name: name of the mirror's schedule, or the mirror's id.
        Raises:
            NotFound: the tenant has no mirror with this name or id.
            BadRequest: no worker has the mirror in its settings, so nobody would run it.
        """
        tenant = Viewer.of(who).tenant
        one = find_mirror(await self.list_mirrors(who), name)
        if one.every_s is None:
            raise NotFound(f'"{name[:80]}" has no schedule: run it with `signalbox sync`', where="name")
        if not one.has_worker:
            reason = f"no worker has had it in its settings for {_WORKER_SEEN_S:g} s; start a worker that has it"
            raise BadRequest(f'"{name[:80]}" cannot be run now: {reason}', where="name")
        async with self._database.transaction(unrestricted_viewer(tenant)) as connection:
            await connection.execute(_QUEUE_RUN, {"tenant": tenant, "sync": uuid.UUID(one.id)})
        return find_mirror(await self.list_mirrors(who), one.id)

    async def forget_source(self, who: str | Viewer, name: str) -> MirrorStatus:
        """Stop following a source, whose documents stay. Return the state of its mirror before.

        Args:
            name: name of the mirror's schedule, its id, the source, or a collection that follows a single source.
        Raises:
            NotFound: the tenant follows no such source.
            BadRequest: the collection follows several sources.
        """
        viewer = Viewer.of(who)
        one = _find_single(await self._recorded_mirrors(viewer), name)
        async with self._database.transaction(unrestricted_viewer(viewer.tenant)) as connection:
            await forget_source(connection, viewer.tenant, one.collection, uuid.UUID(one.id))
        return one


def find_mirror(mirrors: Sequence[MirrorStatus], name: str) -> MirrorStatus:
    """Return the mirror with this name or id.

    Raises:
        NotFound: there is none.
    """
    for one in mirrors:
        if name in (one.id, one.name):
            return one
    raise NotFound(f'there is no sync "{name[:80]}"', where="name")


def _find_single(mirrors: Sequence[MirrorStatus], name: str) -> MirrorStatus:
    matches = [one for one in mirrors if name in (one.id, one.name)]
    matches = matches or [one for one in mirrors if name == one.source]
    matches = matches or [one for one in mirrors if name == one.collection]
    if len(matches) > 1:
        those = "; ".join(f"{one.id} is {one.source} -> {one.collection}" for one in matches)
        raise BadRequest(f'"{name[:80]}" matches {len(matches)} syncs; give the id of one: {those}', where="name")
    return matches[0] if matches else find_mirror((), name)


def _row(mirror: Mirror) -> dict[str, object]:
    return {
        "tenant": mirror.tenant,
        "sync": mirror.manifest.sync,
        "collection": mirror.collection,
        "source": mirror.source.name,
    }


_INSERT_MIRROR = """
    INSERT INTO signalbox.sync AS s (tenant, id, collection, source)
    VALUES (%(tenant)s, %(sync)s, %(collection)s, %(source)s)
    ON CONFLICT (tenant, id) DO UPDATE SET forgotten_at = NULL WHERE s.forgotten_at IS NOT NULL
"""
_REGISTER = """
    INSERT INTO signalbox.sync AS s (tenant, id, collection, source, name, every_s, due_at, heard_at)
    VALUES (%(tenant)s, %(sync)s, %(collection)s, %(source)s, %(name)s, %(every_s)s, now(), now())
    ON CONFLICT (tenant, id) DO UPDATE
    SET name = excluded.name, every_s = excluded.every_s, heard_at = now(), forgotten_at = NULL,
        due_at = least(coalesce(s.due_at, now()), now() + make_interval(secs => excluded.every_s))
"""
# The settings now use this name for another source.
_TAKE_NAME = """
    UPDATE signalbox.sync SET name = NULL, every_s = NULL, due_at = NULL
    WHERE tenant = %(tenant)s AND name = %(name)s AND id <> %(sync)s
      AND coalesce(heard_at, '-infinity') <= now() - make_interval(secs => %(heard_s)s)
"""
_QUEUE_DUE_RUNS = """
    WITH due AS (
        UPDATE signalbox.sync s SET due_at = now() + make_interval(secs => s.every_s)
        FROM (SELECT id FROM signalbox.sync
              WHERE tenant = %(tenant)s AND id = ANY (%(ids)s) AND due_at <= now() FOR UPDATE SKIP LOCKED) free
        WHERE s.tenant = %(tenant)s AND s.id = free.id
        RETURNING s.tenant, s.id, s.collection)
    INSERT INTO signalbox.job (tenant, id, collection, sync, status)
    SELECT tenant, gen_random_uuid(), collection, id, 'queued' FROM due ON CONFLICT DO NOTHING
"""
_QUEUE_RUN = """
    INSERT INTO signalbox.job (tenant, id, collection, sync, status)
    SELECT tenant, gen_random_uuid(), collection, id, 'queued' FROM signalbox.sync
    WHERE tenant = %(tenant)s AND id = %(sync)s ON CONFLICT DO NOTHING
"""
_LOCK = "SELECT FROM signalbox.sync WHERE tenant = %(tenant)s AND id = %(sync)s FOR UPDATE"
_UNFINISHED_RUN = """
    SELECT id, status = 'running' AND free_at > now() FROM signalbox.job
    WHERE tenant = %(tenant)s AND sync = %(sync)s AND status IN ('queued', 'running') FOR UPDATE
"""
_BEGIN = """
    INSERT INTO signalbox.job (tenant, id, collection, sync, status, lease, free_at, started_at)
    VALUES (%(tenant)s, %(job)s, %(collection)s, %(sync)s, 'running', %(lease)s,
            now() + make_interval(secs => %(seconds)s), now())
"""
_TAKE_OVER = """
    UPDATE signalbox.job SET status = 'running', lease = %(lease)s, started_at = now(),
        free_at = now() + make_interval(secs => %(seconds)s)
    WHERE tenant = %(tenant)s AND id = %(job)s
"""
_LISTED = """
    SELECT s.id, s.name, s.source, s.collection, s.every_s, k.has_worker, CASE WHEN k.has_worker THEN s.due_at END,
           s.documents,
           (SELECT j.id FROM signalbox.job j WHERE j.tenant = s.tenant AND j.sync = s.id
              AND (j.expires_at IS NULL OR j.expires_at > now())
            ORDER BY j.delivery DESC LIMIT 1)
    FROM signalbox.sync s,
         LATERAL (SELECT s.every_s IS NOT NULL AND coalesce(s.heard_at, '-infinity')
                         > now() - make_interval(secs => %(heard_s)s) AS has_worker) k
    WHERE s.tenant = %(tenant)s AND s.forgotten_at IS NULL
    ORDER BY s.name, s.heard_at DESC NULLS LAST, s.collection, s.source LIMIT %(most)s
"""
