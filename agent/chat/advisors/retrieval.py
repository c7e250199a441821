"""Retrieval advisor: run the pipeline for hits or a prompt, and store the decision record of the answer."""

import asyncio
import time
from dataclasses import dataclass, replace

from agent.answering.decision_record import DecisionRecord
from agent.chat.advisors.advisor import AdvisedRequest, RequestOutcome
from agent.pipeline import Pipeline
from agent.records.observers import Observers
from agent.records.trace import Trace
from agent.records.trace_store import TraceStore
from agent.types import AskRequest, AugmentRequest, Prompt, Request, Result
from retrievers.core.errors import Unavailable

_FOUND = "retrieval.found_at"
_NOTABLE_S = 0.05


@dataclass(frozen=True, slots=True)
class RetrievalAdvisor:
    """Runs the pipeline in `before`, which raises as `Pipeline.decide` does.

    Args:
        pipeline: with the tenant's settings and sources.
        observers: notified of every answer, and of every question that cannot be answered.
    """

    pipeline: Pipeline
    traces: TraceStore
    observers: Observers
    order: int = 400

    async def before(self, call: AdvisedRequest) -> AdvisedRequest:
        request = call.request
        if request.now is None:
            # Fix the time, so that a replay resolves relative dates the same way.
            request = request.model_copy(update={"now": call.at.astimezone(self.pipeline.settings.zone)})
        with self.observers.notify_failure():
            result, decision = await self._run_pipeline(call, request)
        call.context[_FOUND] = time.monotonic()
        if isinstance(result, Prompt):
            return replace(call, prompt=result, decision=decision)
        return replace(call, result=result, decision=decision)

    async def _run_pipeline(self, call: AdvisedRequest, request: Request) -> tuple[Result, DecisionRecord]:
        """Return the prompt or hits, and the decision record, within the time that earlier advisors have left."""
        passed_s = time.monotonic() - call.started
        # Without a notable delay, the pipeline's own time limit suffices; its error says what it waited for.
        left_s = call.timeout_s - passed_s if passed_s > _NOTABLE_S else None
        try:
            async with asyncio.timeout(left_s) as limit:
                if isinstance(request, AugmentRequest):
                    return await self.pipeline.augment_with_record(call.viewer, request)
                return await self.pipeline.retrieve_with_record(call.viewer, request)
        except TimeoutError as error:
            if not limit.expired():
                raise  # not this time limit but an error elsewhere
            raise Unavailable("the service", f"no answer within {call.timeout_s:g} s", retry_after_s=5) from error

    async def after(self, outcome: RequestOutcome) -> RequestOutcome:
        """Store the trace of a complete answer and notify the observers."""
        found_at = outcome.call.context.pop(_FOUND, outcome.call.started)
        if outcome.answer is None or outcome.answer.details is None or outcome.call.decision is None:
            return outcome
        decision, details = outcome.call.decision, outcome.answer.details
        if isinstance(outcome.call.request, AskRequest):
            now = time.monotonic()
            elapsed_ms = {**decision.elapsed_ms, "answer": round((now - found_at) * 1000, 3)}
            decision = replace(decision, elapsed_ms=elapsed_ms)
            details = details.model_copy(update={"took_ms": round((now - outcome.call.started) * 1000, 3)})
        if len(outcome.answer.degraded) > len(details.degraded):  # earlier advisors reported something unavailable
            details = details.model_copy(update={"degraded": outcome.answer.degraded})
        trace = Trace(
            self.pipeline.settings,
            self.pipeline.embedder.name,
            details,
            decision,
            outcome.call.at,
            clocked=outcome.call.request.now is None,
        )
        self.traces.save(trace)
        self.observers.on_answer(trace)
        details = self.traces.mark_degraded(details)
        if decision.request.explain:
            details = details.model_copy(update={"explanation": trace.json()})
        return replace(outcome, answer=replace(outcome.answer, details=details, degraded=details.degraded))
