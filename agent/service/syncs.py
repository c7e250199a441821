"""Syncs of a tenant: each keeps a collection equal to a source, such as a folder or a database table."""

from dataclasses import dataclass

from agent.intent.values.measures import check_units
from agent.service.documents import DocumentService
from agent.service.sync_schedules import sync_schedules
from agent.service.time_limit import with_time_limit
from retrievers.core.errors import Unavailable
from retrievers.core.types import Viewer
from retrievers.ingest.jobs.job_types import Lease, LostLease
from retrievers.ingest.report import IngestReport, Progress
from retrievers.sync.deletion_guard import DeletionLimits
from retrievers.sync.mirror_run import Mirror, MirrorReport, bind_run
from retrievers.sync.plan import SyncPlan
from retrievers.sync.schedule import MirrorScheduler, MirrorStatus
from retrievers.sync.source import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncService(DocumentService):
    """Runs, lists and removes syncs; arguments as for `DocumentService`."""

    def mirror(self, source: Source, collection: str, *, tenant: str | Viewer | None = None) -> Mirror:
        """Return a mirror: a source and the collection to keep equal to it. Nothing is read or stored yet.

        Args:
            source: see `retrievers.sync.source_factory.open_source`.
        """
        return Mirror(self.database, self.viewer(tenant).tenant, collection, source, check_units)

    async def plan_sync(self, mirror: Mirror, *, force: bool = False) -> SyncPlan:
        """Return what `sync` would add, change and delete now, without writing anything.

        Raises:
            BadRequest: the source does not exist.
            Unavailable: the source or the database cannot be reached.
        """
        return await mirror.plan(DeletionLimits(self.settings.sync_max_delete, force))

    async def sync(
        self, mirror: Mirror, *, force: bool = False, progress: Progress | None = None
    ) -> tuple[str, MirrorReport]:
        """Make the collection equal to the source, in this process. Only one run of a mirror is possible at a time.

        Args:
            force: delete every document that the source does not have any more, even if these are all documents.
        Returns:
            The id of the job of this run, and its report.
        Raises:
            BadRequest: the source does not exist, or the collection cannot store its documents.
            DeletionRefused: the run would delete more documents than SYNC_MAX_DELETE allows. It deletes none, but
                stores new and changed documents.
            Unavailable: another run is in progress; or the source, the database or the embedder failed.
        """
        limits = DeletionLimits(self.settings.sync_max_delete, force)
        lease = await self._schedules.begin_run(mirror)
        run = bind_run(mirror, self.worker.jobs, self.worker.ingest, limits)

        async def watched(lease: Lease, show_progress: Progress) -> MirrorReport:
            def both(report: IngestReport) -> None:
                show_progress(report)
                if progress is not None:
                    progress(report)

            return await run(lease, both)

        try:
            report = await self.worker.run_mirror(lease, watched)
        except LostLease:
            reason = f"job {lease.id.hex} was cancelled, or another process has taken it over"
            raise Unavailable("the job", reason) from None
        finally:
            self.catalogue.invalidate(mirror.tenant)
        assert isinstance(report, MirrorReport)
        return lease.id.hex, report

    @property
    def _schedules(self) -> MirrorScheduler:
        return MirrorScheduler(self.database, self.worker.jobs, sync_schedules(self.settings, self.database))

    @with_time_limit
    async def syncs(self, *, tenant: str | Viewer | None = None) -> list[MirrorStatus]:
        """Return the tenant's mirrors, each with its last run, and the schedules of the settings that never ran."""
        return await self._schedules.list_mirrors(self.viewer(tenant))

    @with_time_limit
    async def run_sync(self, name: str, *, tenant: str | Viewer | None = None) -> MirrorStatus:
        """Queue a run of a scheduled sync now, for a worker, and return the mirror.

        Args:
            name: name of the schedule, or id of the mirror.
        Raises:
            NotFound: the tenant has no schedule of that name.
            BadRequest: no running worker has the schedule in its settings, so nobody would run it.
        """
        return await self._schedules.queue_run(self.viewer(tenant), name)

    @with_time_limit
    async def forget_sync(self, name: str, *, tenant: str | Viewer | None = None) -> MirrorStatus:
        """Remove a mirror, for example because its source was moved or renamed, and return its last state.

        The documents stay in the collection.

        Args:
            name: name of its schedule, its id, its source as `syncs` shows it, or its collection if that follows only
                one source.
        Raises:
            NotFound: the tenant follows no such source.
            BadRequest: the collection follows several sources.
        """
        return await self._schedules.forget_source(self.viewer(tenant), name)
