"""The service: its Python interface. `agent.service.factory` builds it from the settings."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, TypeVar

from pydantic import ValidationError

from agent.answering import search_tool
from agent.answering.answer import Answerer
from agent.answering.decision_record import DecisionRecord
from agent.chat.advisors.advisor import ChatAnswer
from agent.chat.advisors.retrieval import RetrievalAdvisor
from agent.chat.chat import Chat, result_of
from agent.chat.conversation_memory import ConversationMemory
from agent.errors import to_bad_request
from agent.records.observers import Observers
from agent.records.replay import compare_traces
from agent.records.trace import Trace
from agent.retrieval.stage_times import describe_unfinished_scope, timeout_error
from agent.service.jobs import JobService
from agent.service.metering import Metering
from agent.service.question_records import QuestionRecordService
from agent.service.replay_run import prepare_replay
from agent.service.syncs import SyncService
from agent.service.tenancy import (
    TenantChanges,
    TenantService,
    allowed_sources,
    build_tenant_service,
    tenant_settings_report,
)
from agent.service.time_limit import with_time_limit
from agent.settings import Settings
from agent.types import LEAST_TIMEOUT_S, Answer, AskRequest, AugmentRequest, Prompt, Request, Result, SourceSummary
from retrievers.core.errors import BadRequest
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Viewer
from retrievers.postgres.accounts.api_keys import ApiKeyStore
from retrievers.postgres.accounts.tenants import SELF_SERVICE_SETTINGS

AnyRequest = TypeVar("AnyRequest", bound=Request)
_NOTABLE_WAIT_S = 0.05
"""Waits for the database shorter than this, in seconds, are not deducted from a request's time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Service(QuestionRecordService, JobService, SyncService):
    """The open service; every interface (command line, HTTP, MCP, Python) calls it.

    Arguments as for `DocumentService`.

    Attributes:
        chats: runs requests through the advisors, which are steps around a request, such as a guard or a memory.
        memory: stored conversations; None if CHAT_DAYS is 0.
        observers: notified of every question.
    """

    answerer: Answerer
    keys: ApiKeyStore
    chats: Chat
    metering: Metering
    memory: ConversationMemory | None = None
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
        """Yield pieces of the answer's text, then the `Answer`, whose text is all pieces joined; see `ask`."""
        async with aclosing(self._results(AskRequest, query, tenant, options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, str | Answer):
                    yield piece

    async def _results(
        self, shape: type[AnyRequest], query: str | None, tenant: str | Viewer | None, options: Mapping[str, Any]
    ) -> AsyncGenerator[str | Result]:
        """Yield pieces of the answer's text, then the result that the request asks for.

        Args:
            shape: the class of the request: it decides whether hits, a prompt or an answer is asked for.
        """
        who, request = self._viewer_and_request(tenant, _request(shape, query, options))
        async with aclosing(self._advised(who, request)) as pieces:
            async for piece in pieces:
                yield piece if isinstance(piece, str) else result_of(request, piece)

    async def _advised(self, who: Viewer, request: Request) -> AsyncGenerator[str | ChatAnswer]:
        """Admit the request and run it through the advisors with the tenant's settings; see `Chat.stream`."""
        at = datetime.now(UTC)
        async with self._admitted(who, request) as (tenant_service, asked):
            retrieval = RetrievalAdvisor(tenant_service.pipeline, self.traces, self.observers)
            stream = self.chats.stream(who, asked, at, more=[retrieval], answerer=tenant_service.answerer)
            async with aclosing(stream) as pieces:
                async for piece in pieces:
                    if isinstance(piece, ChatAnswer):
                        await self.metering.settle(tenant_service.account)
                    yield piece

    async def chat(self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any) -> ChatAnswer:
        """Answer as `ask` does, and also return what the advisors report, in `ChatAnswer.context`.

        `ChatAnswer.details` is the `Answer`; None if an advisor refused the question.
        """
        async with aclosing(self.chat_stream(query, tenant=tenant, **options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, ChatAnswer):
                    return piece
        raise AssertionError("a stream ends with its answer")

    async def chat_stream(
        self, query: str | None = None, *, tenant: str | Viewer | None = None, **options: Any
    ) -> AsyncGenerator[str | ChatAnswer]:
        """Yield pieces of the answer's text, then the `ChatAnswer`; see `chat`."""
        who, request = self._viewer_and_request(tenant, _request(AskRequest, query, options))
        async with aclosing(self._advised(who, request)) as pieces:
            async for piece in pieces:
                yield piece

    async def replay(
        self, trace_id: str, *, tenant: str | Viewer | None = None, changes: Mapping[str, Any] | None = None
    ) -> Result:
        """Run the request of a trace again, with its original time as the current time and without calling a model.

        The recorded replies are used instead. A remote reranker is not called either: if the passages are the same, its
        recorded scores are used; otherwise they are not reranked, and `degraded` says so.

        Args:
            changes: settings to change, by name; see `agent.records.trace.REPLAYABLE`.
        Returns:
            Hits, a prompt or an answer, whichever the first run made. The replay is stored as a trace of its own.
        Raises:
            BadSetting: a setting cannot be changed, or a value is not valid.
            BadRequest: there is no such trace, or the request names something that does not exist any more.
            Unavailable: as for `retrieve`.
        """
        return (await self.replay_compared(trace_id, tenant=tenant, changes=changes))[0]

    async def replay_compared(
        self, trace_id: str, *, tenant: str | Viewer | None = None, changes: Mapping[str, Any] | None = None
    ) -> tuple[Result, dict[str, Any]]:
        """Return the result of `replay` and its differences from the first run, see `records.replay.compare_traces`."""
        who, at = self.viewer(tenant), datetime.now(UTC)
        changes = changes or {}
        before = await self.explain(trace_id, tenant=who)
        async with self._admitted(who, Request()) as (tenant_service, _):
            rerun = prepare_replay(before, changes, tenant_service, self.pipeline.reranker, self.observers)
            result, decision = await rerun.run(who)
        origin = {"clocked": before["clocked"], "replay_of": before["trace_id"]}
        trace = self._keep(rerun.settings, result, decision, at, changes=changes, **origin)
        return result, compare_traces(before, trace.json())

    @asynccontextmanager
    async def _admitted(self, who: Viewer, request: AnyRequest) -> AsyncIterator[tuple[TenantService, AnyRequest]]:
        """Admit and count a request; yield the tenant's pipeline and answerer, and the request.

        If admission took long, the `timeout_s` of the yielded request is reduced by that time.

        Raises:
            QuotaUsedUp: the tenant has used up its quota for today.
            Unavailable: the database cannot return the tenant's settings.
        """
        started = time.monotonic()
        timeout_s = request.timeout_s or self.settings.timeout_s
        with self.observers.notify_failure():
            try:
                account = await wait_within(self.metering.admit(who.tenant), timeout_s)
            except (TimeoutError, ConnectionAbortedError) as error:
                raise timeout_error(timeout_s, describe_unfinished_scope()) from error
        waited_s = time.monotonic() - started
        if waited_s > _NOTABLE_WAIT_S and (request.timeout_s is not None or not isinstance(request, AskRequest)):
            request = request.model_copy(update={"timeout_s": max(timeout_s - waited_s, LEAST_TIMEOUT_S)})
        tenant_service = build_tenant_service(account, self.pipeline, self.answerer)
        try:
            yield tenant_service, request
        finally:
            self.metering.release(account)

    @asynccontextmanager
    async def admitted(self, *, tenant: str | Viewer | None = None) -> AsyncIterator[TenantService]:
        """Admit and count a question that no other method here answers; yield the tenant's pipeline.

        Raises:
            QuotaUsedUp: the tenant has used up its quota for today.
            Unavailable: the database cannot return the tenant's settings.
        """
        async with self._admitted(self.viewer(tenant), Request()) as (tenant_service, _):
            yield tenant_service
            await self.metering.settle(tenant_service.account)

    @with_time_limit
    async def tenant(self, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Return the tenant's settings and today's usage, see `agent.service.tenancy.tenant_settings_report`."""
        who = self.viewer(tenant).tenant
        return tenant_settings_report(who, await self.metering.state(who), self.settings, tuple(self.pipeline.sources))

    @with_time_limit
    async def change_tenant(self, changes: TenantChanges, *, tenant: str | Viewer | None = None) -> dict[str, Any]:
        """Change settings on behalf of the tenant itself: only `SELF_SERVICE_SETTINGS`, which grant no further rights.

        Returns:
            The settings as returned by `tenant`.
        Raises:
            BadRequest: only the operator may change one of the settings, or a value is not valid.
        """
        who = self.viewer(tenant).tenant
        given = changes.checked(self.settings)
        if foreign := sorted(set(given) - set(SELF_SERVICE_SETTINGS)):
            what = f"{', '.join(foreign)}: only the operator can change this, with `signalbox tenants set`"
            raise BadRequest(what, where=foreign[0], valid=SELF_SERVICE_SETTINGS)
        if given:
            await self.metering.tenants.change_own_settings(who, given)
        return await self.tenant(tenant=who)

    def _keep(self, settings: Settings, result: Result, decision: DecisionRecord, at: datetime, **more: Any) -> Trace:
        """Store a decision record as a trace in the background, notify the observers, and return the trace."""
        trace = Trace(settings, self.embedder.name, result, decision, at, **more)
        self.traces.save(trace)
        self.observers.on_answer(trace)
        return trace

    @with_time_limit
    async def sources(self, *, tenant: str | Viewer | None = None) -> tuple[SourceSummary, ...]:
        """Return the sources that the tenant's questions can use, including those of `signalbox.toml`."""
        who = self.viewer(tenant)
        state = await self.metering.state(who.tenant)
        allowed = allowed_sources(self.pipeline.sources, state.rules)
        return await replace(self.pipeline, sources=allowed).summaries(who)

    def _viewer_and_request(self, tenant: str | Viewer | None, request: AnyRequest) -> tuple[Viewer, AnyRequest]:
        """Return the viewer of a request, and the request without `principals`, which are then in the viewer only."""
        viewer = self.viewer(tenant, request.principals)
        if request.principals is None:
            return viewer, request
        return viewer, request.model_copy(update={"principals": None})

    def as_tool(self, api: Literal["chat", "responses"] = "chat") -> dict[str, Any]:
        """Return the OpenAI function schema of `call_tool`, in strict mode; see `tool.schema`."""
        return search_tool.schema(api)

    async def call_tool(self, arguments: str | Mapping[str, Any], *, tenant: str | Viewer | None = None) -> str:
        """Run a model's call of the tool and return the JSON to answer it with.

        Args:
            arguments: the call's arguments, as JSON or decoded. If they are invalid, the returned JSON explains the
                error to the model.
        Raises:
            Unavailable: as for `retrieve`.
        """
        try:
            found = await self.retrieve(tenant=tenant, **search_tool.read_arguments(arguments))
            return await asyncio.to_thread(search_tool.result_output, found)
        except BadRequest as error:
            return search_tool.error_output(error)


def _request(shape: type[AnyRequest], query: str | None, options: Mapping[str, Any]) -> AnyRequest:
    given = {**options, "query": query} if query is not None else dict(options)
    try:
        return shape.model_validate(given)
    except ValidationError as error:
        raise to_bad_request(error, given) from None
