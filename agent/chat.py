"""A turn of a conversation: the advisors' `before`, the answer, the advisors' `after`; the same for streams and not."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from types import TracebackType
from typing import Self

from agent.advisors.base import Advisor, Call, ChatAnswer, End
from agent.answer import Answerer
from agent.pipeline import Pipeline
from agent.types import Answer, ChatRequest
from retrievers.core.types import Viewer

_DRAIN_S = 3.0

_log = logging.getLogger(__name__)


class Chat:
    """Answers turns of conversations; open between `async with`.

    Args:
        answerer: asks the model, behind the last advisor.
        advisors: in any order; one of them makes the prompt, see `agent.advisors.retrieval`.
    """

    def __init__(self, answerer: Answerer, advisors: Sequence[Advisor]) -> None:
        self._answerer = answerer
        self._advisors = sorted(advisors, key=lambda advisor: advisor.order)
        self._ending: set[asyncio.Task[End]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """What is still to be done for askers who went away is done."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await self.settled()

    async def settled(self) -> None:
        """Returns when what is done after the answers so far is done."""
        await asyncio.gather(*self._ending)

    async def stream(
        self,
        viewer: Viewer,
        request: ChatRequest,
        at: datetime,
        *,
        pipeline: Pipeline | None = None,
        answerer: Answerer | None = None,
    ) -> AsyncGenerator[str | ChatAnswer]:
        """Pieces of the answer's text, then the answer, whose text is those pieces together.

        Args:
            at: when the request came.
            pipeline, answerer: with the settings of the tenant, in place of those of the service.
        Raises:
            BadRequest: the request is malformed or names what does not exist.
            Unavailable: the database or every source failed.
        """
        answerer = answerer or self._answerer
        timeout_s = request.timeout_s or answerer.settings.timeout_s
        call = Call(viewer, request, at, time.monotonic(), timeout_s, pipeline=pipeline)
        entered: list[Advisor] = []
        said: list[str] = []
        answer: Answer | None = None
        try:
            for advisor in self._advisors:
                call = await advisor.before(call)
                entered.append(advisor)
                if call.refusal is not None:
                    break
            if call.refusal is not None:
                said.append(call.refusal)
                yield call.refusal
            else:
                async with aclosing(_answered(answerer, call)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Answer):
                            answer = piece
                        else:
                            said.append(piece)
                            yield piece
        except BaseException as error:
            gone = isinstance(error, asyncio.CancelledError | GeneratorExit)
            await self._ended(entered, End(call, "abandoned" if gone else "failed", "".join(said), error=error))
            raise
        text = answer.answer if answer else "".join(said)
        degraded = (*call.degraded, *(answer.degraded if answer else ()))
        whole = ChatAnswer(text, call.context, answer, degraded)
        end = await self._ended(entered, End(call, "refused" if answer is None else "answered", text, whole))
        yield end.answer or whole

    async def _ended(self, entered: Sequence[Advisor], end: End) -> End:
        """The end as the advisors leave it. They go on when the asker has gone away."""
        task = asyncio.create_task(_after(entered, end))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return await asyncio.shield(task)


def _answered(answerer: Answerer, call: Call) -> AsyncGenerator[str | Answer]:
    if call.prompt is None or call.decision is None:
        raise RuntimeError("no advisor made a prompt: agent.advisors.retrieval does")
    return answerer.stream(call.request, call.prompt, call.decision, call.started)


async def _after(entered: Sequence[Advisor], end: End) -> End:
    for advisor in reversed(entered):
        try:
            end = await advisor.after(end)
        except Exception as error:
            # The answer is there: what is done with it beside cannot take it back.
            _log.warning("after a chat, %s failed: %s", type(advisor).__name__, type(error).__name__)
    return end
