"""Chat: run every advisor's `before`, then answer the request, then run every advisor's `after`.

An advisor is a step around a request, such as memory or a guard. All requests go this way: for hits, prompts and
answers, streamed or not, over HTTP, MCP or Python.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from types import TracebackType
from typing import Self

from agent.answering.answer import Answerer
from agent.chat.advisors.advisor import AdvisedRequest, Advisor, ChatAnswer, RequestOutcome
from agent.chat.advisors.selection import select_advisors
from agent.types import Answer, AskRequest, AugmentRequest, Intent, Prompt, Request, Result
from retrievers.core.types import Viewer
from retrievers.text.chinese_dictionary import contains_chinese

_DRAIN_S = 3.0

_log = logging.getLogger(__name__)


class Chat:
    """Answers requests, wrapped in advisors. Open inside `async with`.

    Args:
        answerer: calls the model, after the last `before`, for requests that ask for an answer.
        advisors: in any order; `Advisor.order` sorts them.
    """

    def __init__(self, answerer: Answerer, advisors: Sequence[Advisor]) -> None:
        self._answerer = answerer
        self._advisors = tuple(advisors)
        self._ending: set[asyncio.Task[RequestOutcome]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait a few seconds for the `after` of requests whose caller has gone away."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await self.wait_until_idle()

    async def wait_until_idle(self) -> None:
        """Wait until the `after` of all requests so far has ended."""
        await asyncio.gather(*self._ending)

    async def stream(
        self,
        viewer: Viewer,
        request: Request,
        at: datetime,
        *,
        more: Sequence[Advisor] = (),
        answerer: Answerer | None = None,
    ) -> AsyncGenerator[str | ChatAnswer]:
        """Yield pieces of the answer's text, then the `ChatAnswer`, whose text is all pieces joined.

        Requests for hits or a prompt yield no pieces, unless an advisor refuses.

        Args:
            at: when the request arrived.
            more: further advisors; one of all must make the prompt, see `agent.chat.advisors.retrieval`.
            answerer: replaces the usual one.
        Raises:
            BadRequest: the request is malformed or names something that does not exist.
            Unavailable: the database or every source failed.
        """
        advisors = select_advisors((*self._advisors, *more), request.advisors)
        answerer = answerer or self._answerer
        settings = answerer.settings
        timeout_s = request.timeout_s or settings.timeout_s
        call = AdvisedRequest(viewer, request, at, time.monotonic(), timeout_s, language=settings.language)
        entered: list[Advisor] = []
        said: list[str] = []
        result: Result | None = None
        try:
            for advisor in advisors:
                call = await advisor.before(call)
                entered.append(advisor)
                if call.refusal is not None:
                    break
            if call.refusal is not None:
                said.append(call.refusal)
                yield call.refusal
            else:
                async with aclosing(_stream_result(call, answerer)) as pieces:
                    async for piece in pieces:
                        if isinstance(piece, Result):
                            result = piece
                        else:
                            said.append(piece)
                            yield piece
        except BaseException as error:
            gone = isinstance(error, asyncio.CancelledError | GeneratorExit)
            await self._run_after(
                entered, RequestOutcome(call, "abandoned" if gone else "failed", "".join(said), error=error)
            )
            raise
        text = result.answer if isinstance(result, Answer) else "".join(said)
        degraded = (*call.degraded, *(result.degraded if result else ()))
        whole = ChatAnswer(text, call.context, result, degraded)
        outcome = await self._run_after(
            entered, RequestOutcome(call, "refused" if result is None else "answered", text, whole)
        )
        yield outcome.answer or whole

    async def _run_after(self, entered: Sequence[Advisor], outcome: RequestOutcome) -> RequestOutcome:
        """Run the `after` of all advisors in `entered`, even if the caller has gone away; return the final outcome."""
        task = asyncio.create_task(_after(entered, outcome))
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)
        return await asyncio.shield(task)


async def _after(entered: Sequence[Advisor], outcome: RequestOutcome) -> RequestOutcome:
    for advisor in reversed(entered):
        try:
            outcome = await advisor.after(outcome)
        except Exception as error:
            # The answer has been given already, so a failing `after` cannot change it.
            _log.warning("the advisor %s failed after the answer: %s", type(advisor).__name__, type(error).__name__)
    return outcome


async def _stream_result(call: AdvisedRequest, answerer: Answerer) -> AsyncGenerator[str | Result]:
    """Yield pieces of the answer, then the result; for hits and prompts, the result alone."""
    if call.decision is None or (call.prompt is None and call.result is None):
        raise RuntimeError("no advisor made a prompt: add agent.chat.advisors.retrieval to the advisors")
    if call.result is not None:
        yield call.result
        return
    assert call.prompt is not None
    if not isinstance(call.request, AskRequest):
        yield call.prompt
        return
    async with aclosing(answerer.stream(call.request, call.prompt, call.decision, call.started)) as pieces:
        async for piece in pieces:
            yield piece


def result_of(request: Request, answer: ChatAnswer) -> Result:
    """Return the hits, prompt or `Answer` that the request asks for; for a refusal, an empty result with its text."""
    if answer.details is not None:
        return answer.details
    question, text = request.question, answer.text
    language = "zh" if contains_chinese(question) else "en"
    intent = Intent(kind="none", question=question, language=language, searches=(), collections=())
    found = {
        "trace_id": "", "query": question, "intent": intent, "plan": (), "hits": (), "outcomes": (),
        "status": "refused", "degraded": answer.degraded, "took_ms": 0.0, "refusal": text,
    }  # fmt: skip
    if not isinstance(request, AugmentRequest):
        return Result.model_validate(found)
    prompt = {**found, "messages": (), "prompt": "", "citations": (), "tokens": 0}
    if not isinstance(request, AskRequest):
        return Prompt.model_validate(prompt)
    return Answer.model_validate({**prompt, "answer": text, "answered": False, "finish_reason": answer.finish_reason})
