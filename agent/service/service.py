"""The service: its Python interface. `agent.service.opening` builds it from the settings."""

import asyncio
import logging
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

from pydantic import ValidationError

from agent.answering import tool
from agent.answering.answer import Answerer
from agent.answering.decision import Decision
from agent.chat import erasure
from agent.chat.advisors.base import ChatAnswer
from agent.chat.advisors.retrieval import RetrievalAdvisor
from agent.chat.chat import Chat, result_of
from agent.chat.erasure import Erased
from agent.chat.exchanges import Exchange, ExchangeStore
from agent.chat.memory import Memory
from agent.errors import readable
from agent.intent.derived import derive, with_derived
from agent.intent.reader import Cascade
from agent.llm.breaker import Breaker, Breakers
from agent.pipeline import Pipeline, late, unfinished_scope
from agent.records import replay as replaying
from agent.records.observer import Observers
from agent.records.trace import Trace, TraceStore
from agent.service.metering import Metering
from agent.service.schedules import scheduled
from agent.service.tenancy import Desk, TenantChanges, desk_for, shown, sources_for
from agent.settings import Settings
from agent.types import LEAST_TIMEOUT_S, Answer, AskRequest, AugmentRequest, Prompt, Request, Result, SourceSummary
from retrievers.core.errors import BadDocument, BadRequest, NotFound, Unavailable, UnknownCollection
from retrievers.core.fields import Field
from retrievers.core.principals import check_principals
from retrievers.core.schema import read_schema
from retrievers.core.tasks import within
from retrievers.core.types import EVERYTHING, ChunkId, Collection, FieldValues, Scope, Viewer, whole
from retrievers.embed import Embedder
from retrievers.embed.pool import Embedders
from retrievers.ingest import collections, store
from retrievers.ingest import delivery as deliveries
from retrievers.ingest import jobs as queue
from retrievers.ingest.check import Checker
from retrievers.ingest.collections import check_name
from retrievers.ingest.declare import declare
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.findings import ComparisonReport as CheckReport
from retrievers.ingest.job_types import Job, Lease, LostLease
from retrievers.ingest.report import Progress, Report
from retrievers.ingest.run import ingest
from retrievers.ingest.settle import settle
from retrievers.ingest.worker import Worker
from retrievers.postgres import feedback
from retrievers.postgres.catalogue import Catalogue, filterable
from retrievers.postgres.database import Database
from retrievers.postgres.documents import StoredDocument, read_document
from retrievers.postgres.keys import Keys
from retrievers.postgres.tenants import OWN
from retrievers.sync import manifest
from retrievers.sync.guard import DeletionLimits
from retrievers.sync.mirror import Mirror, Mirrored, mirroring
from retrievers.sync.plan import SyncPlan
from retrievers.sync.schedule import Followed, Schedules
from retrievers.sync.source import Source

_NOTABLE_WAIT_S = 0.05
"""Waits for the database shorter than this, in seconds, are not deducted from a request's time."""

_log = logging.getLogger(__name__)

AnyRequest = TypeVar("AnyRequest", bound=Request)
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def _in_time(
    method: Callable[Concatenate["Service", Given], Awaitable[Returned]],
) -> Callable[Concatenate["Service", Given], Coroutine[Any, Any, Returned]]:
    """Limit a method that only uses the database to the time of a question; raises Unavailable when it is over."""

    @wraps(method)
    async def bounded(self: "Service", /, *args: Given.args, **options: Given.kwargs) -> Returned:
        timeout_s = self.settings.timeout_s
        try:
            return await within(method(self, *args, **options), timeout_s)
        except (TimeoutError, ConnectionAbortedError) as error:
            raise Unavailable("the database", f"no answer within {timeout_s:g} s", retry_after_s=5) from error

    return bounded


@dataclass(frozen=True, slots=True)
class Service:
    """The open service; every interface (command line, HTTP, MCP, Python) calls it.

    Every method takes `tenant`; None means the tenant of the settings. A tenant's name reads only documents without
    readers; a `Viewer` also reads what its principals may read. Methods that write use only the tenant. The `observers`
    are notified of every question.
    """

    settings: Settings
    database: Database
    embedder: Embedder
    catalogue: Catalogue
    pipeline: Pipeline
    answerer: Answerer
    traces: TraceStore
    worker: Worker
    keys: Keys
    chats: Chat
    metering: Metering
    memory: Memory | None = None
    records: ExchangeStore | None = None
    observers: Observers = field(default_factory=Observers)

    async def retrieve(self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any) -> Result:
        """Return ranked hits for a question.

        Args:
            query: the question; or give `messages`.
            options: other fields of `agent.types.Request`: collection, filter, sources, top_k, page, ...
        Raises:
            BadRequest: the request is malformed or names something that does not exist.
            Unavailable: the database or every source failed.
        """
        async with aclosing(self._results(Request, query, tenant, options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Result):
                    return piece
        raise AssertionError("a stream ends with its result")

    async def augment(self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any) -> Prompt:
        """Return the prompt with numbered citations; options of `agent.types.AugmentRequest`, raises as `retrieve`."""
        async with aclosing(self._results(AugmentRequest, query, tenant, options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Prompt):
                    return piece
        raise AssertionError("a stream ends with its prompt")

    async def ask(self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any) -> Answer:
        """Return the answer with its citations; options of `agent.types.AskRequest`, raises as `retrieve`.

        Without a model, or if the model fails, the answer is the prompt's passages, and `degraded` says so.
        """
        async with aclosing(self.ask_stream(query, tenant=tenant, **options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Answer):
                    return piece
        raise AssertionError("a stream ends with its answer")

    async def ask_stream(
        self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any
    ) -> AsyncGenerator[str | Answer]:
        """Yield pieces of the answer's text, then the `Answer`, whose text is all pieces joined."""
        async with aclosing(self._results(AskRequest, query, tenant, options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str | Answer):
                    yield piece

    async def _results(
        self, shape: type[AnyRequest], query: str | None, tenant: str | Viewer | None, options: Mapping[str, Any]
    ) -> AsyncGenerator[str | Result]:
        """Yield pieces of text, then the result that the request asks for."""
        who, request = self._asked(tenant, _request(shape, query, options))
        async with aclosing(self._advised(who, request)) as pieces:
            async for piece in pieces:
                yield piece if isinstance(piece, str) else result_of(request, piece)

    async def _advised(self, who: Viewer, request: Request) -> AsyncGenerator[str | ChatAnswer]:
        """Admit the request and run it through the advisors with the tenant's settings; see `Chat.stream`."""
        at = datetime.now(UTC)
        async with self._admitted(who, request) as (desk, asked):
            retrieval = RetrievalAdvisor(desk.pipeline, self.traces, self.observers)
            stream = self.chats.stream(who, asked, at, more=[retrieval], answerer=desk.answerer)
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ChatAnswer):
                        await self.metering.settle(desk.account)
                    yield piece

    async def _answered(
        self, pipeline: Pipeline, answerer: Answerer, who: Viewer, request: AskRequest
    ) -> AsyncGenerator[str | tuple[Answer, Decision]]:
        """Yield pieces of an answer, then the answer with its decision record."""
        started = time.monotonic()
        with self.observers.question():
            prompt, decision = await pipeline.decide_prompt(who, request)
        found_ms = (time.monotonic() - started) * 1000
        async with aclosing(answerer.stream(request, prompt, decision, started)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str):
                    yield piece
                    continue
                took_ms = (time.monotonic() - started) * 1000
                elapsed_ms = {**decision.elapsed_ms, "answer": round(took_ms - found_ms, 3)}
                answer = piece.model_copy(update={"took_ms": round(took_ms, 3)})
                yield answer, replace(decision, elapsed_ms=elapsed_ms)

    async def chat(self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any) -> ChatAnswer:
        """Answer as `ask` does, but return the advisors' `ChatAnswer.context` too; a refusal has no `details`."""
        async with aclosing(self.chat_stream(query, tenant=tenant, **options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatAnswer):
                    return piece
        raise AssertionError("a stream ends with its answer")

    async def chat_stream(
        self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any
    ) -> AsyncGenerator[str | ChatAnswer]:
        """Yield pieces of the answer's text, then the `ChatAnswer`."""
        who, request = self._asked(tenant, _request(AskRequest, query, options))
        async with aclosing(self._advised(who, request)) as pieces:
            async for piece in pieces:
                yield piece

    @_in_time
    async def asked(
        self,
        *,
        tenant: str | Viewer | None = None,
        conversation: str | None = None,
        user: str | None = None,
        limit: int = 50,
    ) -> list[Exchange]:
        """Return recorded questions, newest first, with answers and feedback; empty if CHAT_DAYS is 0."""
        if self.records is None:
            return []
        return await self.records.newest(self.viewer(tenant), conversation=conversation, asker=user, limit=limit)

    @_in_time
    async def erase(
        self, *, user: str | None = None, conversation: str | None = None, tenant: str | Viewer | None = None
    ) -> Erased:
        """Erase what one user asked, or what was asked in one conversation, with everything derived from it.

        Questions that are being answered meanwhile are not stored either. Repeating the call is harmless.

        Args:
            tenant: a name erases what anybody asked of the tenant; a `Viewer`, only what was asked with its principals.
        Returns:
            The numbers of erased items.
        Raises:
            BadRequest: not exactly one of user and conversation is given.
            Unavailable: the database cannot be reached.
        """
        if (user is None) == (conversation is None):
            raise BadRequest(
                "say whose questions are erased, or of which conversation: user or conversation", where="user"
            )
        who = tenant if isinstance(tenant, Viewer) else whole(self._tenant(tenant))
        subject = {"user": user, "conversation": conversation}
        await erasure.note(self.database, who, **subject)
        self.traces.forget(who, **subject)
        if self.records is not None:
            await self.records.settled()
        return await erasure.erase(self.database, who, **subject)

    @_in_time
    async def explain(self, trace_id: str, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Return the trace of an answer: `agent.records.trace.Trace.record`, with `trace_id` and `request`.

        Raises:
            NotFound: the tenant has no such trace, or it has expired.
            Unavailable: the database cannot be reached.
        """
        return await self.traces.load(self.viewer(tenant), trace_id)

    async def replay(
        self, trace_id: str, *, tenant: str | Viewer | None = None, changes: Mapping[str, Any] | None = None
    ) -> Result:
        """Run the request of a trace again, as of its original time, without calling a model.

        The recorded replies are used instead. A remote reranker is not called either: its recorded scores are used for
        the same passages; for other passages `degraded` says that they were not reranked.

        Args:
            changes: settings to change, by name; see `agent.records.trace.REPLAYABLE`.
        Returns:
            A result as for `retrieve`, or a prompt or answer if the first run made one; with a trace of its own.
        Raises:
            BadSetting: a setting cannot be changed, or a value is not valid.
            BadRequest: there is no such trace, or something that it asked for no longer exists.
            Unavailable: as for `retrieve`.
        """
        return (await self.replay_compared(trace_id, tenant=tenant, changes=changes))[0]

    async def replay_compared(
        self, trace_id: str, *, tenant: str | Viewer | None = None, changes: Mapping[str, Any] | None = None
    ) -> tuple[Result, dict[str, Any]]:
        """Replay as `replay` does, and also return the differences, see `agent.records.replay.compare`."""
        who, at = self.viewer(tenant), datetime.now(UTC)
        changes = changes or {}
        before = await self.explain(trace_id, tenant=who)
        async with self._admitted(who, Request()) as (desk, _):
            settings = replaying.settings_for(before, desk.settings, changes)
            request = replaying.request_of(before, settings, changes)
            reader, model = desk.pipeline.reader, replaying.model_of(before, changes)
            if isinstance(reader, Cascade):
                reader = replace(reader, settings=settings, model=model, breaker=Breaker())
            # Fresh breakers: earlier failures must not affect this run, nor this run other requests.
            pipeline = replace(
                desk.pipeline,
                settings=settings,
                reader=reader,
                reranker=replaying.reranker_of(before, settings, self.pipeline.reranker, model),
                breakers=Breakers(),
                model=model,
                model_breaker=Breaker(),
                default_collection=None,  # the trace holds the collection that was asked
            )
            answerer = replace(desk.answerer, settings=settings, model=model, breaker=Breaker())
            result, decision = await self._again(pipeline, answerer, who, request)
        trace = self._keep(
            settings, result, decision, at, clocked=before["clocked"], replay_of=before["trace_id"], changes=changes
        )
        return result, replaying.compare(before, trace.json())

    async def _again(
        self, pipeline: Pipeline, answerer: Answerer, who: Viewer, request: Request
    ) -> tuple[Result, Decision]:
        """Run a request again and return the hits, prompt or answer that it asks for."""
        if isinstance(request, AskRequest):
            async with aclosing(self._answered(pipeline, answerer, who, request)) as pieces:
                return [piece async for piece in pieces if not isinstance(piece, str)][-1]
        with self.observers.question():
            if isinstance(request, AugmentRequest):
                return await pipeline.decide_prompt(who, request)
            return await pipeline.decide(who, request)

    @_in_time
    async def feedback(
        self, trace_id: str, score: int, comment: str | None = None, *, tenant: str | Viewer | None = None
    ) -> None:
        """Store feedback on an answer; the rank feature `feedback` learns from it.

        Args:
            score: 0 (useless) to 10 (just right). New feedback on the same answer replaces the old.
        Raises:
            BadRequest: the tenant has no such trace, or the score is not valid.
            Unavailable: the database cannot be reached.
        """
        viewer = self.viewer(tenant)
        who = viewer.tenant
        if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= 10:
            raise BadRequest("a score is a whole number from 0 to 10", where="score")
        # Load it without the viewer's restrictions: nothing of it is returned, and feedback on hidden answers is
        # welcome.
        trace = await self.traces.load(whole(who), trace_id)
        if not viewer.sees_all_of(trace.get("principals", ())):
            raise self.traces.unknown(trace_id)
        scope = await self.catalogue.scope(whole(who), None, fresh=True)
        collections = {str(ChunkId(one.tenant, one.name, "", 0))[:-3]: one for one in scope.collections}
        documents = []
        for hit in trace["hits"]:
            # The part of the hit's id before the document's id; for a source outside it is not the name of a
            # collection.
            name = hit["id"][: hit["id"].rindex("#") - len(hit["document_id"]) - 1]
            if name in collections:
                documents.append((collections[name].number, hit["document_id"]))
        asked_by = {"asker": trace["request"].get("user"), "conversation": trace["request"].get("conversation")}
        await feedback.record(self.database, who, trace["trace_id"], score, comment, documents, **asked_by)

    @asynccontextmanager
    async def _admitted(self, who: Viewer, request: AnyRequest) -> AsyncIterator[tuple[Desk, AnyRequest]]:
        """Admit a request; yield the parts adapted to the tenant, and the request with its remaining time.

        Raises:
            QuotaUsedUp: the tenant has used up its quota for today.
            Unavailable: the database cannot return the tenant's settings.
        """
        started = time.monotonic()
        timeout_s = request.timeout_s or self.settings.timeout_s
        with self.observers.question():
            try:
                account = await within(self.metering.admit(who.tenant), timeout_s)
            except (TimeoutError, ConnectionAbortedError) as error:
                raise late(timeout_s, unfinished_scope()) from error
        waited_s = time.monotonic() - started
        if waited_s > _NOTABLE_WAIT_S and (request.timeout_s is not None or not isinstance(request, AskRequest)):
            request = request.model_copy(update={"timeout_s": max(timeout_s - waited_s, LEAST_TIMEOUT_S)})
        desk = desk_for(account, self.pipeline, self.answerer)
        try:
            yield desk, request
        finally:
            self.metering.leave(account)

    @asynccontextmanager
    async def admitted(self, *, tenant: str | Viewer | None = None) -> AsyncIterator[Desk]:
        """Admit and count a question that no other method here answers; yield the parts adapted to the tenant.

        Raises:
            QuotaUsedUp: the tenant has used up its quota for today.
            Unavailable: the database cannot return the tenant's settings.
        """
        async with self._admitted(self.viewer(tenant), Request()) as (desk, _):
            yield desk
            await self.metering.settle(desk.account)

    @_in_time
    async def tenant(self, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Return the tenant's settings and its use of today, see `agent.service.tenancy.shown`."""
        who = self._tenant(tenant)
        return shown(who, await self.metering.state(who), self.settings, tuple(self.pipeline.sources))

    @_in_time
    async def change_tenant(self, changes: TenantChanges, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Change settings on the tenant's own behalf; only settings that widen no right.

        Returns:
            The settings as returned by `tenant`.
        Raises:
            BadRequest: only the operator may change the setting, or the value is not valid.
        """
        who = self._tenant(tenant)
        given = changes.checked(self.settings)
        if foreign := sorted(set(given) - set(OWN)):
            what = f"{', '.join(foreign)}: set by the operator alone, with `signalbox tenants set`"
            raise BadRequest(what, where=foreign[0], valid=OWN)
        if given:
            await self.metering.tenants.change(who, given)
        return await self.tenant(tenant=who)

    def _keep(self, settings: Settings, result: Result, decision: Decision, at: datetime, **more: Any) -> Trace:
        """Store the decision record in the background and notify the observers."""
        trace = Trace(settings, self.embedder.name, result, decision, at, **more)
        self.traces.save(trace)
        self.observers.answered(trace)
        return trace

    async def ingest(
        self,
        items: Iterable[Document | RejectedItem],
        collection: str,
        *,
        tenant: str | Viewer | None = None,
        schema: Mapping[str, Field] | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Store documents, see `retrievers.ingest.run.ingest`.

        Args:
            schema: declared fields; a `retrievers.core.schema.Schema` also says what a document is called.
        Raises:
            BadRequest: an item is not a document; `retrievers.ingest.read.read_record` makes one from a mapping.
        """
        who = self._tenant(tenant)
        items = _documents(items)
        try:
            return await ingest(
                self.database, self.embedder, who, collection, items, declared=schema, progress=progress
            )
        finally:
            # Clear the cache, so that this process finds the new documents at once.
            self.catalogue.forget(who)

    async def submit(
        self, collection: str, documents: Sequence[object], *, wait: bool = True, tenant: str | Viewer | None = None
    ) -> Job:
        """Store documents given as records, see `retrievers.ingest.read.read_record`.

        An invalid record does not stop the others.

        Args:
            wait: return after they are stored. Otherwise the job is saved, and a worker of `signalbox serve` stores
                them.
        Raises:
            BadRequest: the collection cannot store them, or there are none or too many.
            Unavailable: the database or the embedder failed.
        """
        # Encoding megabytes of JSON takes a while.
        delivery = await asyncio.to_thread(deliveries.of_records, collection, documents)
        return await self._submit(delivery, wait, tenant)

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
            name: file name; its ending decides the format, and it becomes the id or title of a document without one.
            within_s: maximum seconds to wait; the job continues afterwards.
        """
        return await self._submit(deliveries.of_file(collection, name, data), wait, tenant, within_s)

    async def _submit(
        self, delivery: deliveries.Delivery, wait: bool, tenant: str | Viewer | None, within_s: float | None = None
    ) -> Job:
        who = self._tenant(tenant)
        if wait:
            id, _ = await self.worker.deliver(who, delivery, within_s=within_s)
        else:
            id = await self._accept(who, delivery)
        # The sender is told about all invalid documents, whoever may read them.
        return await self.job(id, tenant=whole(who))

    @_in_time
    async def _accept(self, tenant: str, delivery: deliveries.Delivery) -> str:
        """Save a delivery for a worker."""
        id = await self.worker.jobs.submit(tenant, delivery)
        self.worker.wake()
        return id

    @_in_time
    async def jobs(self, *, limit: int = 50, tenant: str | Viewer | None = None) -> list[Job]:
        """Return the latest ingestion jobs, newest first, at most 100, without their `failures`."""
        return await self.worker.jobs.recent(self.viewer(tenant), limit)

    @_in_time
    async def job(self, job_id: str, *, tenant: str | Viewer | None = None) -> Job:
        """Return one ingestion job with its failed documents.

        Raises:
            NotFound: the tenant has no such job, or it has expired.
        """
        viewer = self.viewer(tenant)
        job = await self.worker.jobs.job(viewer, job_id)
        self.database.reads.wrote(viewer.tenant)  # what it is said to have stored is found by the next question
        return job

    @_in_time
    async def retry_job(self, job_id: str, *, tenant: str | Viewer | None = None) -> Job:
        """Let a worker store the failed documents of a job again; newer versions are not overwritten.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: no document of it failed, or it is still running.
        """
        job = await self.worker.jobs.retry(self.viewer(tenant), job_id)
        self.worker.wake()
        return job

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
        own = await self._own(who, collection)
        if own.embedder == embedder:
            raise BadRequest(
                f'collection "{collection}" has vectors of {embedder} already; `signalbox rebuild {collection}` makes '
                "its passages anew",
                where="embedder",
            )
        return await self._make_anew(own, embedder, who)

    async def rebuild(self, collection: str, *, tenant: str | Viewer | None = None) -> Job:
        """Split, analyse and index the documents of a collection again, in the background as `reembed` does.

        Embeddings that exist already are reused.

        Raises:
            UnknownCollection, BadRequest: as for `reembed`.
        """
        who = self.viewer(tenant)
        return await self._make_anew(await self._own(who, collection), None, who)

    @_in_time
    async def _make_anew(self, own: Collection, embedder: str | None, who: Viewer) -> Job:
        try:
            id = await self.worker.jobs.submit_rebuild(own.tenant, own.number, own.name, embedder)
        except collections.Replaced:
            own = await self._own(who, own.name)
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
        """Compare everything stored for a collection with what its documents should give.

        See `retrievers.ingest.check`. A viewer who may not read every document learns of the others only that something
        is wrong.

        Args:
            mend: repair what is wrong.
            progress: called with the number of documents compared.
            timeout_s: time limit; None means no limit.
        Raises:
            UnknownCollection: the tenant has no such collection of its own that the viewer may see.
            Unavailable: the database failed, the embedder failed during a repair, or the time is over.
        """
        if timeout_s is not None:
            work = self._checked(collection, mend, progress, timeout_s, self.viewer(tenant))
            try:
                return await within(work, timeout_s)
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
            own = await self._own(who, collection)
            try:
                told = progress or (lambda done: None)
                checker = Checker(self.database, self.embedder, own, who, told, timeout_s)
                return await checker.run(mend=mend)
            except collections.Replaced:
                continue
            finally:
                self.catalogue.forget(who.tenant)

    @_in_time
    async def cancel_job(self, job_id: str, *, tenant: str | Viewer | None = None) -> Job:
        """Cancel a job of `reembed` or `rebuild`, which leaves the collection unchanged, or a sync.

        Documents that a sync has already stored stay.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: the job is over, or stores documents that were sent.
        """
        return await self.worker.jobs.cancel(self.viewer(tenant), job_id)

    @_in_time
    async def collections(self, *, tenant: str | Viewer | None = None) -> Sequence[Collection]:
        """Return the collections that the viewer may see."""
        return await self.catalogue.collections(self.viewer(tenant), fresh=True)

    @_in_time
    async def sources(self, *, tenant: str | Viewer | None = None) -> tuple[SourceSummary, ...]:
        """Return the sources that the tenant's questions can use, including those of `signalbox.toml`."""
        who = self.viewer(tenant)
        state = await self.metering.state(who.tenant)
        allowed = sources_for(self.pipeline.sources, state.rules)
        return await replace(self.pipeline, sources=allowed).summaries(who)

    @_in_time
    async def describe(self, collection: str, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Return a collection's field catalogue: types, ranges and the most frequent values with counts.

        It includes what is declared and what the reader derives: names for documents and fields, and units.

        Raises:
            UnknownCollection: the viewer sees no such collection.
        """
        scope = await self.catalogue.scope(self.viewer(tenant), collection, fresh=True)
        described, fields = await self.catalogue.describe(scope), await self.catalogue.fields(scope)
        described["job"] = await self._under_way(self.viewer(tenant), scope)
        called = await self.catalogue.called(scope)
        return with_derived(described, derive(fields, [called] if called else []))

    async def _under_way(self, viewer: Viewer, scope: Scope) -> dict[str, Any] | None:
        """Return the running rebuild of the tenant's own collection; None for viewers with principals."""
        own = any(one.tenant == viewer.tenant for one in scope.collections)
        if not own or viewer.principals not in ((), EVERYTHING):
            return None
        job = await self.worker.jobs.under_way(viewer, scope.collections[0].name)
        if job is None:
            return None
        return {"job_id": job.id, "kind": job.kind, "embedder": job.embedder, "status": job.status}

    @_in_time
    async def declare(
        self, collection: str, schema: Mapping[str, Any], *, tenant: str | Viewer | None = None
    ) -> dict[str, Any]:
        """Declare a collection's fields and what its documents are called, see `retrievers.core.schema.read_schema`.

        A missing collection is created; what the schema does not mention stays unchanged.

        Returns:
            The collection as returned by `describe`.
        Raises:
            BadRequest: the schema is not valid, or changes the type of a field that documents already have.
        """
        who = self._tenant(tenant)
        check_name(collection)
        try:
            declared = read_schema(schema)
        except BadDocument as error:
            raise BadRequest(str(error), where="schema") from error
        await declare(self.database, who, collection, declared)
        self.catalogue.forget(who)
        viewer = self.viewer(tenant)
        await self.catalogue.fields(await self.catalogue.scope(viewer, collection, fresh=True), fresh=True)
        return await self.describe(collection, tenant=viewer)

    @_in_time
    async def fields(
        self, collection: str, *, tenant: str | Viewer | None = None
    ) -> tuple[Mapping[str, Field], Mapping[str, FieldValues]]:
        """Return the fields that filters on a collection may use, and the values in its documents.

        Raises:
            UnknownCollection: the viewer sees no such collection.
        """
        scope = await self.catalogue.scope(self.viewer(tenant), collection)
        return filterable(scope), (await self.catalogue.fields(scope)).fields

    @_in_time
    async def document(self, collection: str, id: str, *, tenant: str | Viewer | None = None) -> StoredDocument:
        """Return one stored document.

        Raises:
            UnknownCollection: the viewer sees no such collection.
            NotFound: the collection has no such document that the viewer may see.
        """
        _check_id(id)
        scope = await self.catalogue.scope(self.viewer(tenant), collection, fresh=True)
        found = await read_document(self.database.reads, scope, id)
        if found is None:
            raise NotFound(f'collection "{collection}" holds no document "{id[:80]}"', where="id")
        return found

    @_in_time
    async def recent_traces(self, limit: int = 50, *, tenant: str | Viewer | None = None) -> list[dict[str, Any]]:
        """Return summaries of the latest traces, newest first, see `agent.records.trace.TraceStore.recent`."""
        return await self.traces.recent(self.viewer(tenant), limit)

    def mirror(self, source: Source, collection: str, *, tenant: str | Viewer | None = None) -> Mirror:
        """Return a mirror of a source (see `retrievers.sync.sources.open_source`); nothing is synced yet."""
        return Mirror(self.database, self._tenant(tenant), collection, source)

    async def plan_sync(self, mirror: Mirror, *, force: bool = False) -> SyncPlan:
        """Return what `sync` would add, change and delete now, without writing anything.

        Raises:
            BadRequest: the source does not exist.
            Unavailable: the source or the database cannot be reached.
        """
        return await mirror.plan(DeletionLimits(self.settings.sync_max_delete, force))

    async def sync(
        self, mirror: Mirror, *, force: bool = False, progress: Progress | None = None
    ) -> tuple[str, Mirrored]:
        """Run a sync in this process. Only one run of a mirror is possible at a time.

        Args:
            force: delete everything that the source no longer has, even all documents.
        Returns:
            The id of the job of this run, and its report.
        Raises:
            BadRequest: the source does not exist, or the collection cannot store its documents.
            DeletionRefused: more documents are gone than SYNC_MAX_DELETE allows; the others are stored.
            Unavailable: another run is in progress; or the source, the database or the embedder failed.
        """
        limits = DeletionLimits(self.settings.sync_max_delete, force)
        lease = await self._schedules.begin(mirror)
        run = mirroring(mirror, self.worker.jobs, self.worker.ingest, limits)

        async def watched(lease: Lease, told: Progress) -> Mirrored:
            def both(report: Report) -> None:
                told(report)
                if progress is not None:
                    progress(report)

            return await run(lease, both)

        try:
            report = await self.worker.mirror(lease, watched)
        except LostLease:
            reason = f"job {lease.id.hex} was cancelled, or another process has taken it over"
            raise Unavailable("the job", reason) from None
        finally:
            self.catalogue.forget(mirror.tenant)
        assert isinstance(report, Mirrored)
        return lease.id.hex, report

    @property
    def _schedules(self) -> Schedules:
        return Schedules(self.database, self.worker.jobs, scheduled(self.settings, self.database))

    @_in_time
    async def syncs(self, *, tenant: str | Viewer | None = None) -> list[Followed]:
        """Return the tenant's mirrors, each with its last run, and the settings' schedules that have not run yet."""
        return await self._schedules.listed(self.viewer(tenant))

    @_in_time
    async def run_sync(self, name: str, *, tenant: str | Viewer | None = None) -> Followed:
        """Let a worker run a scheduled sync now.

        Raises:
            NotFound: the tenant has no schedule of that name.
            BadRequest: no worker has the schedule in its settings any more.
        """
        return await self._schedules.run_now(self.viewer(tenant), name)

    @_in_time
    async def forget_sync(self, name: str, *, tenant: str | Viewer | None = None) -> Followed:
        """Stop following a source, for example because it was moved or renamed, and return what it was.

        Its documents stay.

        Args:
            name: name of its schedule, its id, the source as listed, or a collection that follows only one source.
        Raises:
            NotFound: the tenant follows no such source.
            BadRequest: the collection follows several sources.
        """
        return await self._schedules.forget(self.viewer(tenant), name)

    async def delete(self, collection: str, document: str | None = None, *, tenant: str | Viewer | None = None) -> int:
        """Delete one document, or a collection with all its documents; return the number of deleted documents.

        Raises:
            UnknownCollection: the tenant has no such collection of its own.
        """
        viewer = self.viewer(tenant)
        who = viewer.tenant
        while True:
            try:
                if document is not None:
                    return await self._delete_document(viewer, collection, document)
                own = await self._own(whole(who), collection, told=viewer)
                async with self.database.transaction(whole(who)) as connection:
                    # Lock rows before jobs, in the same order as writers do.
                    await collections.lock_all(connection, who, own.number)
                    await manifest.forget(connection, who, collection)
                    await queue.cancel(connection, who, collection)
                    count = await collections.delete_collection(connection, who, own.number)
                self.catalogue.forget(who)
                return count
            except collections.Replaced:
                continue

    @_in_time
    async def _delete_document(self, viewer: Viewer, collection: str, document: str) -> int:
        _check_id(document)
        tenant = viewer.tenant
        own = await self._own(whole(tenant), collection, told=viewer)
        async with self.database.transaction(whole(tenant)) as connection:
            count = await store.remove_documents(connection, tenant, own.number, [document])
            await manifest.forget(connection, tenant, collection, document)
            await queue.forget(connection, tenant, collection, [document])
            await settle(connection, tenant, own.number)
        self.catalogue.forget(tenant)
        return count

    @_in_time
    async def _own(self, who: Viewer, collection: str, *, told: Viewer | None = None) -> Collection:
        """Return the collection of that name that belongs to the viewer's tenant, not to the platform.

        Args:
            told: viewer whose collections an error lists; the first viewer's if None.
        """
        try:
            scope = await self.catalogue.scope(who, collection, fresh=True)
        except UnknownCollection:
            scope = await self.catalogue.scope(told or who, collection, fresh=True)
        own = next((one for one in scope.collections if one.tenant == who.tenant), None)
        if own is None:
            raise UnknownCollection(f'collection "{collection}" belongs to the platform', where="collection")
        return own

    def viewer(self, given: str | Viewer | None, principals: Sequence[str] | None = None) -> Viewer:
        """Return the viewer of a call. An empty tenant name is an error further down, never the default tenant.

        Args:
            principals: replace those of the given viewer.
        """
        viewer = Viewer.of(self.settings.tenant if given is None else given)
        if principals is None:
            return viewer
        return Viewer(viewer.tenant, check_principals(principals, everything=True))

    def _tenant(self, given: str | Viewer | None) -> str:
        """Return the tenant of a call that writes."""
        return self.viewer(given).tenant

    def _asked(self, tenant: str | Viewer | None, request: AnyRequest) -> tuple[Viewer, AnyRequest]:
        """Return the viewer of a question, and the question without its principals, which no trace may hold."""
        viewer = self.viewer(tenant, request.principals)
        if request.principals is None:
            return viewer, request
        return viewer, request.model_copy(update={"principals": None})

    def as_tool(self, api: Literal["chat", "responses"] = "chat") -> dict[str, Any]:
        """Return the OpenAI function schema of `call_tool`, in strict mode; see `tool.schema`."""
        return tool.schema(api)

    async def call_tool(self, arguments: str | Mapping[str, Any], *, tenant: str | Viewer | None = None) -> str:
        """Run a model's call of the tool and return the JSON to answer it with.

        Args:
            arguments: the call's arguments, as JSON or decoded. Invalid arguments are explained to the model in the
                answer.
        Raises:
            Unavailable: as for `retrieve`.
        """
        try:
            found = await self.retrieve(tenant=tenant, **tool.read_arguments(arguments))
            return await asyncio.to_thread(tool.output, found)
        except BadRequest as error:
            return tool.refusal(error)


def _documents(items: Iterable[object]) -> Iterator[Document | RejectedItem]:
    for number, item in enumerate(items):
        if not isinstance(item, Document | RejectedItem):
            form = "retrievers.ingest.read.read_record(mapping, where) makes a Document of one"
            raise BadRequest(f"item {number} is a {type(item).__name__}, not a Document: {form}", where=str(number))
        yield item


def _check_id(document: str) -> None:
    if any(c == "\0" or "\ud800" <= c <= "\udfff" for c in document):
        raise BadRequest("the document id holds a character that no stored id can hold", where="document")


def _request(shape: type[AnyRequest], query: str | None, options: Mapping[str, Any]) -> AnyRequest:
    try:
        return shape.model_validate({**options, "query": query} if query is not None else dict(options))
    except ValidationError as error:
        raise readable(error) from None
