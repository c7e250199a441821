"""Jobs of a tenant: store documents that were sent, rebuild collections and check what is stored."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agent.service.documents import DocumentService
from agent.service.time_limit import with_time_limit
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Collection, Viewer, unrestricted_viewer
from retrievers.embed.embedders import Embedders
from retrievers.ingest import collections
from retrievers.ingest.checking.check_report import CheckReport
from retrievers.ingest.checking.collection_check import CollectionChecker
from retrievers.ingest.database_timeout import with_database_timeout
from retrievers.ingest.jobs import delivery as deliveries
from retrievers.ingest.jobs.job_types import Job

_LEAST_LOOK_S = 1.0
"""Minimum time to load the state of a job, in seconds, even if the caller's time is already over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobService(DocumentService):
    """Runs and shows jobs; arguments as for `DocumentService`."""

    async def submit(
        self,
        collection: str,
        documents: Sequence[object],
        *,
        wait: bool = True,
        tenant: str | Viewer | None = None,
        within_s: float | None = None,
    ) -> Job:
        """Store documents given as records (see `readers.file_input.read_record`), and return the job.

        An invalid record does not stop the others.

        Args:
            wait: True to return after the documents are stored; False to save the job for a worker of
                `signalbox serve` and return at once.
            within_s: maximum seconds to wait; the job continues afterwards. None for no limit.
        Raises:
            BadRequest: the collection cannot store the documents, or there are none or too many.
            Unavailable: the database or the embedder failed.
        """
        deadline = None if within_s is None else time.monotonic() + within_s
        # In a thread: encoding megabytes of JSON would block all other requests.
        delivery = await asyncio.to_thread(deliveries.delivery_of_records, collection, documents)
        del documents  # the records take ten times the memory of the encoded delivery
        return await self._submit(delivery, wait, tenant, deadline)

    async def submit_file(
        self,
        collection: str,
        name: str,
        data: bytes,
        *,
        wait: bool = True,
        tenant: str | Viewer | None = None,
        within_s: float | None = None,
    ) -> Job:
        """Store the documents of a file, as `submit` does, in any format that `signalbox ingest` reads.

        Args:
            name: file name; its ending decides the format. It is the id or title of a document that has none.
            data: the content of the file.
            within_s: maximum seconds to wait; the job continues afterwards.
        """
        deadline = None if within_s is None else time.monotonic() + within_s
        return await self._submit(deliveries.delivery_of_file(collection, name, data), wait, tenant, deadline)

    async def _submit(
        self, delivery: deliveries.Delivery, wait: bool, tenant: str | Viewer | None, deadline: float | None
    ) -> Job:
        who = self.viewer(tenant).tenant
        if wait:
            id, _ = await self.worker.run_delivery(who, delivery, deadline=deadline)
        else:
            id = await self._accept(who, delivery)
        # Read the job with all rights: the sender gets the errors of all documents, whoever may read these.
        found = self.job(id, tenant=unrestricted_viewer(who))
        if deadline is None:
            return await found
        return await with_database_timeout(found, max(deadline - time.monotonic(), _LEAST_LOOK_S))

    @with_time_limit
    async def _accept(self, tenant: str, delivery: deliveries.Delivery) -> str:
        """Save a delivery as a job for a worker, and return the job's id."""
        id = await self.worker.jobs.submit(tenant, delivery)
        self.worker.wake()
        return id

    @with_time_limit
    async def jobs(self, *, limit: int = 50, tenant: str | Viewer | None = None) -> list[Job]:
        """Return the latest ingestion jobs, newest first, at most 100, without their `failures`."""
        return await self.worker.jobs.recent_jobs(self.viewer(tenant), limit)

    @with_time_limit
    async def job(self, job_id: str, *, tenant: str | Viewer | None = None) -> Job:
        """Return one ingestion job with its failed documents.

        Raises:
            NotFound: the tenant has no such job, or it has expired.
        """
        viewer = self.viewer(tenant)
        job = await self.worker.jobs.job(viewer, job_id)
        self.database.reads.note_write(viewer.tenant)  # later questions skip standbys that lack this job's documents
        return job

    @with_time_limit
    async def retry_job(self, job_id: str, *, tenant: str | Viewer | None = None) -> Job:
        """Queue the failed documents of a job for a worker again; all its documents if the whole job failed.

        A document that has been stored again since then is not overwritten.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: no document failed, the job is still running, or the failed documents have been deleted.
        """
        job = await self.worker.jobs.retry(self.viewer(tenant), job_id)
        self.worker.wake()
        return job

    @with_time_limit
    async def cancel_job(self, job_id: str, *, tenant: str | Viewer | None = None) -> Job:
        """Cancel a job of `reembed` or `rebuild`, or a run of a sync.

        A cancelled rebuild leaves the collection unchanged. What a sync has already stored or deleted stays so.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: the job has ended, or it stores documents that a caller sent, which cannot be cancelled.
        """
        return await self.worker.jobs.cancel(self.viewer(tenant), job_id)

    async def reembed(self, collection: str, embedder: str, *, tenant: str | Viewer | None = None) -> Job:
        """Re-embed a collection with another embedder in the background.

        Questions use the old vectors until all new ones are there.

        Args:
            embedder: in the form of the setting EMBEDDER.
        Returns:
            The job; an existing one if the collection is already being re-embedded with that embedder.
        Raises:
            UnknownCollection: the tenant has no such collection of its own that the viewer may see.
            BadRequest: there is no such embedder, the collection already has it, or another rebuild is running.
        """
        Embedders.of(self.embedder).check(embedder)
        who = self.viewer(tenant)
        own = await self.own_collection(who, collection)
        if own.embedder == embedder:
            raise BadRequest(
                f'the collection "{collection}" has vectors of {embedder} already; to make its passages again, run '
                f"`signalbox rebuild {collection}`",
                where="embedder",
            )
        return await self._submit_rebuild(own, embedder, who)

    async def rebuild(self, collection: str, *, tenant: str | Viewer | None = None) -> Job:
        """Split, analyse and index the documents of a collection again, in the background as `reembed` does.

        Embeddings that exist already are reused.

        Raises:
            UnknownCollection, BadRequest: as for `reembed`.
        """
        who = self.viewer(tenant)
        return await self._submit_rebuild(await self.own_collection(who, collection), None, who)

    @with_time_limit
    async def _submit_rebuild(self, own: Collection, embedder: str | None, who: Viewer) -> Job:
        try:
            id = await self.worker.jobs.submit_rebuild(own.tenant, own.number, own.name, embedder)
        except collections.CollectionReplaced:
            own = await self.own_collection(who, own.name)
            id = await self.worker.jobs.submit_rebuild(own.tenant, own.number, own.name, embedder)
        self.worker.wake()
        return await self.job(id, tenant=who)

    async def check(
        self,
        collection: str,
        *,
        mend: bool = False,
        progress: Callable[[int], None] | None = None,
        timeout_s: float | None = None,
        tenant: str | Viewer | None = None,
    ) -> CheckReport:
        """Compare the passages and indexes stored for a collection with those that its documents should give.

        See `ingest.checking.collection_check`. For documents that the viewer may not read, the report says only that
        something is wrong, not what.

        Args:
            mend: also repair the differences.
            progress: called with the number of documents compared so far.
            timeout_s: time limit; None means no limit.
        Raises:
            UnknownCollection: the tenant has no such collection of its own that the viewer may see.
            Unavailable: the database failed, the embedder failed during a repair, or the time is over.
        """
        if timeout_s is not None:
            work = self._checked(collection, mend, progress, timeout_s, self.viewer(tenant))
            try:
                return await wait_within(work, timeout_s)
            except (TimeoutError, ConnectionAbortedError) as error:
                command = f"signalbox check {collection}{' --mend' if mend else ''}"
                reason = f'"{collection}" takes longer than the {timeout_s:.3g} s of a request; run `{command}`'
                raise Unavailable("the check", reason, retry_after_s=60) from error
        return await self._checked(collection, mend, progress, None, self.viewer(tenant))

    async def _checked(
        self,
        collection: str,
        mend: bool,
        progress: Callable[[int], None] | None,
        timeout_s: float | None,
        who: Viewer,
    ) -> CheckReport:
        while True:
            own = await self.own_collection(who, collection)
            try:
                report_progress = progress or (lambda done: None)
                checker = CollectionChecker(self.database, self.embedder, own, who, report_progress, timeout_s)
                return await checker.run(mend=mend)
            except collections.CollectionReplaced:
                continue
            finally:
                self.catalogue.invalidate(who.tenant)
