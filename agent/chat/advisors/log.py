"""Log advisor: write one log line per answer, without the question, the answer or the user."""

import logging
import time
from dataclasses import dataclass

from agent.chat.advisors.base import Call, End

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Log:
    """Advisor that writes one log line when a request has ended, in `after`."""

    order: int = 0

    async def before(self, call: Call) -> Call:
        return call

    async def after(self, end: End) -> End:
        answer = end.answer
        if end.call.request.kind != "ask":
            return end  # the request log covers searches; there is nothing to add
        _log.info(
            "chat %s: trace %s, %.0f ms, %d + %d tokens%s%s",
            end.status,
            (answer.trace_id if answer else None) or "none",
            (time.monotonic() - end.call.started) * 1000,
            answer.usage.prompt_tokens if answer else 0,
            answer.usage.completion_tokens if answer else 0,
            f", degraded: {' '.join(answer.degraded)}" if answer and answer.degraded else "",
            f", {type(end.error).__name__}" if end.status == "failed" else "",
        )
        return end
