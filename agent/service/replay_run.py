"""Run the request of a trace again, on a pipeline that calls no model."""

import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from agent.answering.answer import Answerer
from agent.answering.decision_record import DecisionRecord
from agent.intent.reader import CascadeReader
from agent.pipeline import Pipeline
from agent.records import replay
from agent.records.observers import Observers
from agent.retrieval.rerank.reranker import Reranker
from agent.service.tenancy import TenantService
from agent.settings import Settings
from agent.types import Answer, AskRequest, AugmentRequest, Request, Result
from retrievers.core.circuit_breakers import CircuitBreaker, CircuitBreakers
from retrievers.core.types import Viewer


@dataclass(frozen=True, slots=True)
class ReplayRun:
    """The request of a trace, and the pipeline and answerer that answer it again, without calling a model."""

    settings: Settings
    request: Request
    pipeline: Pipeline
    answerer: Answerer
    observers: Observers

    async def run(self, who: Viewer) -> tuple[Result, DecisionRecord]:
        """Return the hits, prompt or answer that the request asks for, with its decision record."""
        if isinstance(self.request, AskRequest):
            return await self._answer(who, self.request)
        with self.observers.notify_failure():
            if isinstance(self.request, AugmentRequest):
                return await self.pipeline.augment_with_record(who, self.request)
            return await self.pipeline.retrieve_with_record(who, self.request)

    async def _answer(self, who: Viewer, request: AskRequest) -> tuple[Answer, DecisionRecord]:
        started = time.monotonic()
        with self.observers.notify_failure():
            prompt, decision = await self.pipeline.augment_with_record(who, request)
        found_ms = (time.monotonic() - started) * 1000
        async with aclosing(self.answerer.stream(request, prompt, decision, started)) as pieces:
            answer = [piece async for piece in pieces if not isinstance(piece, str)][-1]
        took_ms = (time.monotonic() - started) * 1000
        elapsed_ms = {**decision.elapsed_ms, "answer": round(took_ms - found_ms, 3)}
        return answer.model_copy(update={"took_ms": round(took_ms, 3)}), replace(decision, elapsed_ms=elapsed_ms)


def prepare_replay(
    trace: dict[str, Any],
    changes: Mapping[str, Any],
    tenant_service: TenantService,
    configured: Reranker | None,
    observers: Observers,
) -> ReplayRun:
    """Prepare to repeat the request of a trace with the recorded replies of models and rerankers; nothing is run yet.

    Args:
        trace: as returned by `TraceStore.load`.
        changes: settings to change, by name.
        desk: the pipeline and answerer with the tenant's settings, see `TenantService`.
        configured: the service's reranker.
    Raises:
        BadSetting: a setting cannot be changed, or a value is not valid.
    """
    settings = replay.replay_settings(trace, tenant_service.settings, changes)
    request = replay.replay_request(trace, settings, changes)
    reader, model = tenant_service.pipeline.reader, replay.replay_model(trace, changes)
    if isinstance(reader, CascadeReader):
        reader = replace(reader, settings=settings, model=model, breaker=CircuitBreaker())
    # New circuit breakers, so that earlier failures do not affect this run, and this run affects no other request.
    pipeline = replace(
        tenant_service.pipeline,
        settings=settings,
        reader=reader,
        reranker=replay.replay_reranker(trace, settings, configured, model),
        breakers=CircuitBreakers(),
        model=model,
        model_breaker=CircuitBreaker(),
        default_collection=None,  # the request in the trace already has the name of the collection
    )
    answerer = replace(tenant_service.answerer, settings=settings, model=model, breaker=CircuitBreaker())
    return ReplayRun(settings, request, pipeline, answerer, observers)
