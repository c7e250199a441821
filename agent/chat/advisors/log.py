"""Log advisor: write one log line per answer, without the question, the answer or the user."""

import logging
import time
from dataclasses import dataclass

from agent.chat.advisors.advisor import AdvisedRequest, RequestOutcome

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogAdvisor:
    """Advisor that writes one log line when a request has ended, in `after`."""

    order: int = 0

    async def before(self, call: AdvisedRequest) -> AdvisedRequest:
        return call

    async def after(self, outcome: RequestOutcome) -> RequestOutcome:
        answer = outcome.answer
        if outcome.call.request.kind != "ask":
            return outcome  # the request log covers searches; there is nothing to add
        _log.info(
            "chat %s: trace %s, %.0f ms, %d + %d tokens%s%s",
            outcome.status,
            (answer.trace_id if answer else None) or "none",
            (time.monotonic() - outcome.call.started) * 1000,
            answer.usage.prompt_tokens if answer else 0,
            answer.usage.completion_tokens if answer else 0,
            f", degraded: {' '.join(answer.degraded)}" if answer and answer.degraded else "",
            f", {type(outcome.error).__name__}" if outcome.status == "failed" else "",
        )
        return outcome
