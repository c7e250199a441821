"""The service: what can be asked of it in Python; `agent.opening` builds it from its settings."""

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

from agent import erasure, tool
from agent import replay as replaying
from agent.advisors.base import ChatAnswer
from agent.advisors.retrieval import Retrieval
from agent.answer import Answerer
from agent.breaker import Breaker, Breakers
from agent.chat import Chat, result_of
from agent.erasure import Erased
from agent.errors import readable
from agent.following import scheduled
from agent.intent.derived import derive, with_derived
from agent.intent.reader import Cascade
from agent.memory import Memory
from agent.metering import Metering
from agent.observe.observer import Observers
from agent.pipeline import Decision, Pipeline, late, unfinished_scope
from agent.records import Exchange, Records
from agent.settings import Settings
from agent.tenancy import Desk, TenantChanges, desk_for, shown, sources_for
from agent.trace import Trace, TraceStore
from agent.types import LEAST_TIMEOUT_S, Answer, AskRequest, AugmentRequest, Prompt, Request, Result, SourceSummary
from retrievers.core.errors import BadDocument, BadRequest, NotFound, Unavailable, UnknownCollection
from retrievers.core.fields import Field
from retrievers.core.principals import check_principals
from retrievers.core.schema import read_schema
from retrievers.core.tasks import within
from retrievers.core.types import EVERYTHING, ChunkId, Collection, FieldValues, Scope, Viewer, whole
from retrievers.embed import Embedder
from retrievers.embed.pool import Embedders
from retrievers.ingest import delivery as deliveries
from retrievers.ingest import jobs as queue
from retrievers.ingest import store
from retrievers.ingest.check import Checker
from retrievers.ingest.declare import declare
from retrievers.ingest.documents import Document, Rejected
from retrievers.ingest.findings import Report as CheckReport
from retrievers.ingest.jobs import Job, Lease, LostLease
from retrievers.ingest.run import Progress, Report, check_name, ingest
from retrievers.ingest.worker import Worker
from retrievers.postgres import feedback
from retrievers.postgres.catalogue import Catalogue, filterable
from retrievers.postgres.database import Database
from retrievers.postgres.documents import StoredDocument, read_document
from retrievers.postgres.keys import Keys
from retrievers.postgres.tenants import OWN
from retrievers.sync import manifest
from retrievers.sync.guard import Limits
from retrievers.sync.mirror import Mirror, Mirrored, mirroring
from retrievers.sync.plan import Plan
from retrievers.sync.schedule import Followed, Schedules
from retrievers.sync.source import Source

_NOTABLE_WAIT_S = 0.05
"""Of a request for the database: what is less costs it none of its time."""

_log = logging.getLogger(__name__)

AnyRequest = TypeVar("AnyRequest", bound=Request)
Given = ParamSpec("Given")
Returned = TypeVar("Returned")


def _in_time(
    method: Callable[Concatenate["Service", Given], Awaitable[Returned]],
) -> Callable[Concatenate["Service", Given], Coroutine[Any, Any, Returned]]:
    """A method that waits for nothing but the database: one that hangs holds its caller no longer than a question."""

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
    """The open service: what every door calls.

    Every method takes `tenant`; None is the tenant of the settings. A tenant by its name reads what has no readers, a
    `Viewer` also what its principals read; methods that write, write for the tenant. The `observers` are told of
    every question.
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
    records: Records | None = None
    observers: Observers = field(default_factory=Observers)

    async def retrieve(self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any) -> Result:
        """Ranked hits for a question.

        Args:
            query: the question; or give `messages`.
            options: the other keys of `agent.types.Request`: collection, filter, sources, top_k, page, ...
        Raises:
            BadRequest: the request is malformed or names what does not exist.
            Unavailable: the database or every source failed.
        """
        async with aclosing(self._results(Request, query, tenant, options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Result):
                    return piece
        raise AssertionError("a stream ends with its result")

    async def augment(self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any) -> Prompt:
        """The single prompt with numbered citations; options of `agent.types.AugmentRequest`, raises as `retrieve`."""
        async with aclosing(self._results(AugmentRequest, query, tenant, options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Prompt):
                    return piece
        raise AssertionError("a stream ends with its prompt")

    async def ask(self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any) -> Answer:
        """The answer with its citations; options of `agent.types.AskRequest`, raises as `retrieve`.

        Without a model, or when it fails, the prompt's passages are the answer and `degraded` says so.
        """
        async with aclosing(self.ask_stream(query, tenant=tenant, **options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Answer):
                    return piece
        raise AssertionError("a stream ends with its answer")

    async def ask_stream(
        self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any
    ) -> AsyncGenerator[str | Answer]:
        """The answer as it comes: pieces of its text, then the `Answer`, whose text is the pieces together."""
        async with aclosing(self._results(AskRequest, query, tenant, options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str | Answer):
                    yield piece

    async def _results(
        self, shape: type[AnyRequest], query: str | None, tenant: str | Viewer | None, options: Mapping[str, Any]
    ) -> AsyncGenerator[str | Result]:
        """Pieces of text, then the result that the request asks for."""
        who, request = self._asked(tenant, _request(shape, query, options))
        async with aclosing(self._advised(who, request)) as pieces:
            async for piece in pieces:
                yield piece if isinstance(piece, str) else result_of(request, piece)

    async def _advised(self, who: Viewer, request: Request) -> AsyncGenerator[str | ChatAnswer]:
        """The request let in and on its way through the advisors, as its tenant has them; see `Chat.stream`."""
        at = datetime.now(UTC)
        async with self._admitted(who, request) as (desk, asked):
            retrieval = Retrieval(desk.pipeline, self.traces, self.observers)
            stream = self.chats.stream(who, asked, at, more=[retrieval], answerer=desk.answerer)
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ChatAnswer):
                        await self.metering.settle(desk.account)
                    yield piece

    async def _answered(
        self, pipeline: Pipeline, answerer: Answerer, who: Viewer, request: AskRequest
    ) -> AsyncGenerator[str | tuple[Answer, Decision]]:
        """The pieces of an answer, then the answer with how it came about."""
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
        """As `ask`, with what the advisors left for the asker (`ChatAnswer.context`); a refusal has no `details`."""
        async with aclosing(self.chat_stream(query, tenant=tenant, **options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatAnswer):
                    return piece
        raise AssertionError("a stream ends with its answer")

    async def chat_stream(
        self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any
    ) -> AsyncGenerator[str | ChatAnswer]:
        """The answer as it comes: pieces of its text, then the `ChatAnswer`."""
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
        """What was asked, the newest first, with answers and feedback; none while CHAT_DAYS is 0."""
        if self.records is None:
            return []
        return await self.records.newest(self.viewer(tenant), conversation=conversation, asker=user, limit=limit)

    @_in_time
    async def erase(
        self, *, user: str | None = None, conversation: str | None = None, tenant: str | Viewer | None = None
    ) -> Erased:
        """Erase what one user asked, or what was asked in one conversation, with all that was derived from it.

        Of a question that is under way meanwhile nothing is kept either. A second time, there is nothing to erase.

        Args:
            tenant: by its name, all of what it was asked; a `Viewer`, what was asked as principals of its own.
        Returns:
            How many of each were erased.
        Raises:
            BadRequest: not one of the two is given.
            Unavailable: the database cannot be asked.
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
        """How an answer came about: the record of `agent.trace.Trace.record`, with `trace_id` and `request`.

        Raises:
            BadRequest: the tenant has no trace of that id, or no more.
            Unavailable: the database cannot be asked.
        """
        return await self.traces.load(self.viewer(tenant), trace_id)

    async def replay(
        self, trace_id: str, *, tenant: str | Viewer | None = None, changes: Mapping[str, Any] | None = None
    ) -> Result:
        """The request of a trace again, as of its own day, without calling a model: its recorded replies are used.

        Nor is a reranker called that asks a server: its recorded scores are used where the same passages come up,
        and where others do, the answer's `degraded` says that they were not reranked.

        Args:
            changes: settings that differ from those of the first run, by name; see `agent.trace.REPLAYABLE`.
        Returns:
            A result as of `retrieve`, or a prompt where the first run made one; with a trace of its own.
        Raises:
            BadSetting: a setting that cannot be changed or a value that does not fit.
            BadRequest: there is no such trace, or what it asked for is not there any more.
            Unavailable: as of `retrieve`.
        """
        return (await self.replay_compared(trace_id, tenant=tenant, changes=changes))[0]

    async def replay_compared(
        self, trace_id: str, *, tenant: str | Viewer | None = None, changes: Mapping[str, Any] | None = None
    ) -> tuple[Result, dict[str, Any]]:
        """As `replay`, with what came out differently, see `agent.replay.compare`."""
        who, at = self.viewer(tenant), datetime.now(UTC)
        changes = changes or {}
        before = await self.explain(trace_id, tenant=who)
        async with self._admitted(who, Request()) as (desk, _):
            settings = replaying.settings_for(before, desk.settings, changes)
            request = replaying.request_of(before, settings, changes)
            reader, model = desk.pipeline.reader, replaying.model_of(before, changes)
            if isinstance(reader, Cascade):
                reader = replace(reader, settings=settings, model=model, breaker=Breaker())
            # What failed for others lately says nothing about this run, nor this run about theirs.
            pipeline = replace(
                desk.pipeline,
                settings=settings,
                reader=reader,
                reranker=replaying.reranker_of(before, settings, self.pipeline.reranker, model),
                breakers=Breakers(),
                model=model,
                model_breaker=Breaker(),
                default_collection=None,  # the trace says what was asked then
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
        """What a request gives, in the form that it asks for."""
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
        """Keep what somebody thought of an answer; the rank feature `feedback` learns from it.

        Args:
            score: 0 (useless) to 10 (just right). A second judgement of the same answer replaces the first.
        Raises:
            BadRequest: the tenant has no such trace, or the score is none.
            Unavailable: the database cannot be asked.
        """
        viewer = self.viewer(tenant)
        who = viewer.tenant
        if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= 10:
            raise BadRequest("a score is a whole number from 0 to 10", where="score")
        # Nothing of it is shown: of an answer that is shown no more, an opinion is welcome as well.
        trace = await self.traces.load(whole(who), trace_id)
        if not viewer.sees_all_of(trace.get("principals", ())):
            raise self.traces.unknown(trace_id)
        scope = await self.catalogue.scope(whole(who), None, fresh=True)
        collections = {str(ChunkId(one.tenant, one.name, "", 0))[:-3]: one for one in scope.collections}
        documents = []
        for hit in trace["hits"]:
            # What stands before the document's id in the hit's; a source outside is no collection.
            name = hit["id"][: hit["id"].rindex("#") - len(hit["document_id"]) - 1]
            if name in collections:
                documents.append((collections[name].number, hit["document_id"]))
        asked_by = {"asker": trace["request"].get("user"), "conversation": trace["request"].get("conversation")}
        await feedback.record(self.database, who, trace["trace_id"], score, comment, documents, **asked_by)

    @asynccontextmanager
    async def _admitted(self, who: Viewer, request: AnyRequest) -> AsyncIterator[tuple[Desk, AnyRequest]]:
        """The parts of the service as the tenant has them, and the request with the time that is left of its own.

        Raises:
            QuotaUsedUp: the tenant has asked as much as it may today.
            Unavailable: the database does not say what holds for it.
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
        """The parts of the service for a question that no other method here answers, which is counted.

        Raises:
            QuotaUsedUp: the tenant has asked as much as it may today.
            Unavailable: the database does not say what holds for it.
        """
        async with self._admitted(self.viewer(tenant), Request()) as (desk, _):
            yield desk
            await self.metering.settle(desk.account)

    @_in_time
    async def tenant(self, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """The settings of the tenant and its use of today, see `agent.tenancy.shown`."""
        who = self._tenant(tenant)
        return shown(who, await self.metering.state(who), self.settings, tuple(self.pipeline.sources))

    @_in_time
    async def change_tenant(self, changes: TenantChanges, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Set settings of the tenant on its own behalf: those that widen no right.

        Returns:
            The settings as `tenant` does.
        Raises:
            BadRequest: a setting that the operator alone sets, or a value that cannot be.
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
        """Have the decision stored behind the answer's back, and tell the observers."""
        trace = Trace(settings, self.embedder.name, result, decision, at, **more)
        self.traces.save(trace)
        self.observers.answered(trace)
        return trace

    async def ingest(
        self,
        items: Iterable[Document | Rejected],
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
            BadRequest: an item is no document; `retrievers.ingest.read.read_record` makes one of a mapping.
        """
        who = self._tenant(tenant)
        items = _documents(items)
        try:
            return await ingest(
                self.database, self.embedder, who, collection, items, declared=schema, progress=progress
            )
        finally:
            # What was written is found at once by this process.
            self.catalogue.forget(who)

    async def submit(
        self, collection: str, documents: Sequence[object], *, wait: bool = True, tenant: str | Viewer | None = None
    ) -> Job:
        """Store documents given as records, see `retrievers.ingest.read.read_record`; a bad one loses no other.

        Args:
            wait: store them before this returns. Otherwise they are on disk when it does, and a worker of
                `signalbox serve` stores them.
        Raises:
            BadRequest: they cannot be stored in this collection, or are no or too many documents.
            Unavailable: the database or the embedder failed.
        """
        # Megabytes of JSON take a while to write.
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
        """As `submit`, for the documents of a file of any form that `signalbox ingest` reads.

        Args:
            name: of the file: its ending tells the form, and a document that has no id or title gets this one.
            within_s: how long is waited until its documents are stored; the job of one that takes longer is still
                running when this returns.
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
        # Who has sent the documents is told what is wrong with them, whoever their readers are.
        return await self.job(id, tenant=whole(who))

    @_in_time
    async def _accept(self, tenant: str, delivery: deliveries.Delivery) -> str:
        """Write a delivery down for a worker."""
        id = await self.worker.jobs.submit(tenant, delivery)
        self.worker.wake()
        return id

    @_in_time
    async def jobs(self, *, limit: int = 50, tenant: str | Viewer | None = None) -> list[Job]:
        """The last ingestion jobs, newest first, at most 100, each without its `failures`."""
        return await self.worker.jobs.recent(self.viewer(tenant), limit)

    @_in_time
    async def job(self, job_id: str, *, tenant: str | Viewer | None = None) -> Job:
        """One ingestion job with the documents that failed.

        Raises:
            NotFound: the tenant has none of that id, or no more.
        """
        viewer = self.viewer(tenant)
        job = await self.worker.jobs.job(viewer, job_id)
        self.database.reads.wrote(viewer.tenant)  # what it is said to have stored is found by the next question
        return job

    @_in_time
    async def retry_job(self, job_id: str, *, tenant: str | Viewer | None = None) -> Job:
        """Have the documents of a job that failed stored by a worker after all; what came later is not replaced.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: nothing of it failed, or it is not over yet.
        """
        job = await self.worker.jobs.retry(self.viewer(tenant), job_id)
        self.worker.wake()
        return job

    async def reembed(self, collection: str, embedder: str, *, tenant: str | Viewer | None = None) -> Job:
        """Have a collection made anew with another embedder by a worker; questions are answered from the old vectors
        until all of it is there.

        Args:
            embedder: as of the setting EMBEDDER.
        Returns:
            The job; the one under way, where the collection is being made anew with that embedder already.
        Raises:
            UnknownCollection: the tenant has no such collection of its own that the viewer sees.
            BadRequest: there is no such embedder, the collection has it, or is being made anew with another.
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
        """Have the documents of a collection split, analysed and indexed anew, as `reembed` does; what is embedded
        already is not embedded again.

        Raises:
            UnknownCollection, BadRequest: as `reembed`.
        """
        who = self.viewer(tenant)
        return await self._make_anew(await self._own(who, collection), None, who)

    @_in_time
    async def _make_anew(self, own: Collection, embedder: str | None, who: Viewer) -> Job:
        try:
            id = await self.worker.jobs.submit_rebuild(own.tenant, own.number, own.name, embedder)
        except store.Replaced:
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
        """Compare all that is stored of a collection with what its documents make of it; see `retrievers.ingest.check`.

        A viewer that does not read everything is told nothing of documents that it does not read, but that something
        is wrong.

        Args:
            mend: put right what is wrong.
            progress: called with how many documents are compared.
            timeout_s: how long it may take; as long as it needs when None.
        Raises:
            UnknownCollection: the tenant has no such collection of its own that the viewer sees.
            Unavailable: the database failed, or the embedder of vectors that are to be mended; or it is late.
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
            except store.Replaced:
                continue
            finally:
                self.catalogue.forget(who.tenant)

    @_in_time
    async def cancel_job(self, job_id: str, *, tenant: str | Viewer | None = None) -> Job:
        """End a job of `reembed` or `rebuild`, where the collection stays as it is, or the run of a sync, where what it
        has stored stays.

        Raises:
            NotFound: the tenant has no such job.
            BadRequest: it is over, or an ingestion of documents that were sent.
        """
        return await self.worker.jobs.cancel(self.viewer(tenant), job_id)

    @_in_time
    async def collections(self, *, tenant: str | Viewer | None = None) -> Sequence[Collection]:
        """The collections the tenant can see."""
        return await self.catalogue.collections(self.viewer(tenant), fresh=True)

    @_in_time
    async def sources(self, *, tenant: str | Viewer | None = None) -> tuple[SourceSummary, ...]:
        """The sources that the tenant's questions may be put to, those of `signalbox.toml` by their names."""
        who = self.viewer(tenant)
        state = await self.metering.state(who.tenant)
        allowed = sources_for(self.pipeline.sources, state.rules)
        return await replace(self.pipeline, sources=allowed).summaries(who)

    @_in_time
    async def describe(self, collection: str, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """A collection's field catalogue: per field its type, ranges, and its commonest values with counts; with what
        is declared and what the reading derives: words for a document, units, words for a field.

        Raises:
            UnknownCollection: the tenant sees none of that name.
        """
        scope = await self.catalogue.scope(self.viewer(tenant), collection, fresh=True)
        described, fields = await self.catalogue.describe(scope), await self.catalogue.fields(scope)
        described["job"] = await self._under_way(self.viewer(tenant), scope)
        called = await self.catalogue.called(scope)
        return with_derived(described, derive(fields, [called] if called else []))

    async def _under_way(self, viewer: Viewer, scope: Scope) -> dict[str, Any] | None:
        """The job that makes the tenant's own collection anew, in short; who reads as somebody sees no jobs."""
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

        The collection is made when it is missing; what the schema does not name stays as it is.

        Returns:
            The collection as `describe` does.
        Raises:
            BadRequest: it is no schema, or changes the type of a field of documents.
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
        """The fields that a filter on a collection may name, and what those of its documents hold.

        Raises:
            UnknownCollection: the tenant sees none of that name.
        """
        scope = await self.catalogue.scope(self.viewer(tenant), collection)
        return filterable(scope), (await self.catalogue.fields(scope)).fields

    @_in_time
    async def document(self, collection: str, id: str, *, tenant: str | Viewer | None = None) -> StoredDocument:
        """One document as it is stored.

        Raises:
            UnknownCollection: the tenant sees none of that name.
            NotFound: the collection holds no such document that the tenant can see.
        """
        _check_id(id)
        scope = await self.catalogue.scope(self.viewer(tenant), collection, fresh=True)
        found = await read_document(self.database.reads, scope, id)
        if found is None:
            raise NotFound(f'collection "{collection}" holds no document "{id[:80]}"', where="id")
        return found

    @_in_time
    async def recent_traces(self, limit: int = 50, *, tenant: str | Viewer | None = None) -> list[dict[str, Any]]:
        """The latest traces in short, newest first, see `agent.trace.TraceStore.recent`."""
        return await self.traces.recent(self.viewer(tenant), limit)

    def mirror(self, source: Source, collection: str, *, tenant: str | Viewer | None = None) -> Mirror:
        """A collection that follows a source, see `retrievers.sync.sources.open_source`; nothing is done yet."""
        return Mirror(self.database, self._tenant(tenant), collection, source)

    async def plan_sync(self, mirror: Mirror, *, force: bool = False) -> Plan:
        """What `sync` would add, change and delete now; nothing is written.

        Raises:
            BadRequest: there is no such source.
            Unavailable: it, or the database, cannot be asked.
        """
        return await mirror.plan(Limits(self.settings.sync_max_delete, force))

    async def sync(
        self, mirror: Mirror, *, force: bool = False, progress: Progress | None = None
    ) -> tuple[str, Mirrored]:
        """Bring a mirror up to date in this process; one run of it at a time, whoever asks.

        Args:
            force: delete whatever the source has no more, be it all.
        Returns:
            The id of the job that this run was, and what it did.
        Raises:
            BadRequest: there is no such source, or its documents cannot be stored in this collection at all.
            DeletionRefused: more of it is gone than SYNC_MAX_DELETE allows; what it has is stored.
            Unavailable: it is being synced already; or the source, the database or the embedder failed.
        """
        limits = Limits(self.settings.sync_max_delete, force)
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
        """The mirrors of the tenant, each with its last run, and the schedules of these settings before their first."""
        return await self._schedules.listed(self.viewer(tenant))

    @_in_time
    async def run_sync(self, name: str, *, tenant: str | Viewer | None = None) -> Followed:
        """Have a worker run a scheduled mirror now.

        Raises:
            NotFound: the tenant has no schedule of that name.
            BadRequest: no worker has it in its settings any more.
        """
        return await self._schedules.run_now(self.viewer(tenant), name)

    @_in_time
    async def forget_sync(self, name: str, *, tenant: str | Viewer | None = None) -> Followed:
        """Follow a source no more, because it was moved or named otherwise; the documents stay. Returns what it was.

        Args:
            name: of its schedule, its id, the source as it is listed, or a collection that follows one alone.
        Raises:
            NotFound: the tenant follows no such source.
            BadRequest: the collection follows several.
        """
        return await self._schedules.forget(self.viewer(tenant), name)

    async def delete(self, collection: str, document: str | None = None, *, tenant: str | Viewer | None = None) -> int:
        """Delete one document, or a collection with all of them; returns how many documents went.

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
                    # Rows before jobs, as those who write them do.
                    await store.lock_all(connection, who, own.number)
                    await manifest.forget(connection, who, collection)
                    await queue.cancel(connection, who, collection)
                    count = await store.delete_collection(connection, who, own.number)
                self.catalogue.forget(who)
                return count
            except store.Replaced:
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
            await store.settle(connection, tenant, own.number)
        self.catalogue.forget(tenant)
        return count

    @_in_time
    async def _own(self, who: Viewer, collection: str, *, told: Viewer | None = None) -> Collection:
        """The collection of that name of the viewer's tenant, not the platform's.

        Args:
            told: whose collections an error names; the viewer's when None.
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
        """On whose behalf a call reads. An empty tenant is none, and an error further down: never the default.

        Args:
            principals: in place of the given viewer's.
        """
        viewer = Viewer.of(self.settings.tenant if given is None else given)
        if principals is None:
            return viewer
        return Viewer(viewer.tenant, check_principals(principals, everything=True))

    def _tenant(self, given: str | Viewer | None) -> str:
        """The tenant of a call that writes."""
        return self.viewer(given).tenant

    def _asked(self, tenant: str | Viewer | None, request: AnyRequest) -> tuple[Viewer, AnyRequest]:
        """On whose behalf a question is asked, and the question without that: no trace lets others ask as them."""
        viewer = self.viewer(tenant, request.principals)
        if request.principals is None:
            return viewer, request
        return viewer, request.model_copy(update={"principals": None})

    def as_tool(self, api: Literal["chat", "responses"] = "chat") -> dict[str, Any]:
        """The OpenAI function schema of `call_tool`, strict, for a model's tool list; see `agent.tool.schema`."""
        return tool.schema(api)

    async def call_tool(self, arguments: str | Mapping[str, Any], *, tenant: str | Viewer | None = None) -> str:
        """What a model's call of the tool finds, as the JSON it is to be answered with.

        Args:
            arguments: of the call, as JSON or decoded. What is wrong with them the model is told in the answer.
        Raises:
            Unavailable: as of `retrieve`.
        """
        try:
            found = await self.retrieve(tenant=tenant, **tool.read_arguments(arguments))
            return await asyncio.to_thread(tool.output, found)
        except BadRequest as error:
            return tool.refusal(error)


def _as_of(request: AnyRequest, at: datetime, desk: Desk) -> AnyRequest:
    """The request with its moment fixed, so that it means the same when it is run again."""
    if request.now is not None:
        return request
    return request.model_copy(update={"now": at.astimezone(desk.settings.zone)})


def _documents(items: Iterable[object]) -> Iterator[Document | Rejected]:
    for number, item in enumerate(items):
        if not isinstance(item, Document | Rejected):
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
