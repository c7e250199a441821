"""Run the request of a trace again, on a pipeline that calls no model."""

import time
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from agent.answering.answer import Answerer
from agent.answering.decision import Decision
from agent.intent.reader import Cascade
from agent.pipeline import Pipeline
from agent.records import replay
from agent.records.observer import Observers
from agent.retrieval.rerank.base import Reranker
from agent.service.tenancy import Desk
from agent.settings import Settings
from agent.types import Answer, AskRequest, AugmentRequest, Request, Result
from retrievers.core.breakers import Breaker, Breakers
from retrievers.core.types import Viewer


@dataclass(frozen=True, slots=True)
class Rerun:
    """The request of a trace, and the pipeline and answerer that answer it again."""

    settings: Settings
    request: Request
    pipeline: Pipeline
    answerer: Answerer
    observers: Observers

    async def run(self, who: Viewer) -> tuple[Result, Decision]:
        """Return the hits, prompt or answer that the request asks for, with its decision record."""
        if isinstance(self.request, AskRequest):
            return await self._answer(who, self.request)
        with self.observers.question():
            if isinstance(self.request, AugmentRequest):
                return await self.pipeline.decide_prompt(who, self.request)
            return await self.pipeline.decide(who, self.request)

    async def _answer(self, who: Viewer, request: AskRequest) -> tuple[Answer, Decision]:
        started = time.monotonic()
        with self.observers.question():
            prompt, decision = await self.pipeline.decide_prompt(who, request)
        found_ms = (time.monotonic() - started) * 1000
        async with aclosing(self.answerer.stream(request, prompt, decision, started)) as pieces:
            answer = [piece async for piece in pieces if not isinstance(piece, str)][-1]
        took_ms = (time.monotonic() - started) * 1000
        elapsed_ms = {**decision.elapsed_ms, "answer": round(took_ms - found_ms, 3)}
        return answer.model_copy(update={"took_ms": round(took_ms, 3)}), replace(decision, elapsed_ms=elapsed_ms)


def rerun_of(
    trace: dict[str, Any], changes: Mapping[str, Any], desk: Desk, configured: Reranker | None, observers: Observers
) -> Rerun:
    """Prepare to repeat the request of a trace with the recorded replies of models and rerankers; nothing is run yet.

    Args:
        trace: as returned by `TraceStore.load`.
        changes: settings to change, by name.
        desk: the pipeline and answerer with the tenant's settings, see `Desk`.
        configured: the service's reranker.
    Raises:
        BadSetting: a setting cannot be changed, or a value is not valid.
    """
    settings = replay.settings_for(trace, desk.settings, changes)
    request = replay.request_of(trace, settings, changes)
    reader, model = desk.pipeline.reader, replay.model_of(trace, changes)
    if isinstance(reader, Cascade):
        reader = replace(reader, settings=settings, model=model, breaker=Breaker())
    # New circuit breakers, so that earlier failures do not affect this run, and this run affects no other request.
    pipeline = replace(
        desk.pipeline,
        settings=settings,
        reader=reader,
        reranker=replay.reranker_of(trace, settings, configured, model),
        breakers=Breakers(),
        model=model,
        model_breaker=Breaker(),
        default_collection=None,  # the request in the trace already has the name of the collection
    )
    answerer = replace(desk.answerer, settings=settings, model=model, breaker=Breaker())
    return Rerun(settings, request, pipeline, answerer, observers)
