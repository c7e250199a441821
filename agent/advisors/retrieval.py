"""The prompt: passages for the question, by the pipeline; and the decision record of the answer made of it."""

import asyncio
import time
from dataclasses import dataclass, replace

from agent.advisors.base import Call, End
from agent.observe.observer import Observers
from agent.pipeline import Decision, Pipeline
from agent.trace import Trace, TraceStore
from agent.types import AskRequest, Prompt
from retrievers.core.errors import Unavailable

_FOUND = "retrieval.found_at"


@dataclass(frozen=True, slots=True)
class Retrieval:
    """Retrieval as an advisor; its `before` raises as `Pipeline.decide_prompt` does.

    Args:
        pipeline: of calls that bring none of their tenant's.
        observers: are told of every answer, and of every question that cannot be answered.
    """

    pipeline: Pipeline
    traces: TraceStore
    observers: Observers
    order: int = 400

    async def before(self, call: Call) -> Call:
        asked = {
            name: getattr(call.request, name) for name in call.request.model_fields_set & AskRequest.model_fields.keys()
        }
        # With its moment fixed, so that it means the same when it is run again.
        pipeline = call.pipeline or self.pipeline
        asked["now"] = call.request.now or call.at.astimezone(pipeline.settings.zone)
        request = AskRequest.model_construct(**asked)
        with self.observers.question():
            prompt, decision = await self._decided(call, request)
        call.context[_FOUND] = time.monotonic()
        return replace(call, prompt=prompt, decision=decision)

    async def _decided(self, call: Call, request: AskRequest) -> tuple[Prompt, Decision]:
        """The prompt, within the time that those before have left."""
        try:
            async with asyncio.timeout(call.started + call.timeout_s - time.monotonic()):
                return await (call.pipeline or self.pipeline).decide_prompt(call.viewer, request)
        except TimeoutError as error:
            raise Unavailable("the service", f"no answer within {call.timeout_s:g} s", retry_after_s=5) from error

    async def after(self, end: End) -> End:
        """Keep the trace of an answer that is whole."""
        found_at = end.call.context.pop(_FOUND, end.call.started)
        if end.answer is None or end.answer.details is None or end.call.decision is None:
            return end
        now = time.monotonic()
        elapsed_ms = {**end.call.decision.elapsed_ms, "answer": round((now - found_at) * 1000, 3)}
        decision = replace(end.call.decision, elapsed_ms=elapsed_ms)
        details = end.answer.details.model_copy(update={"took_ms": round((now - end.call.started) * 1000, 3)})
        trace = Trace(
            (end.call.pipeline or self.pipeline).settings,
            self.pipeline.embedder.name,
            details,
            decision,
            end.call.at,
            clocked=end.call.request.now is None,
        )
        self.traces.save(trace)
        self.observers.answered(trace)
        details = self.traces.noted(details)
        if decision.request.explain:
            details = details.model_copy(update={"explanation": trace.json()})
        return replace(end, answer=replace(end.answer, details=details))
