"""Answering: stream a model's answer to the prompt, then check every sentence against the passages it cites.

If nothing was found, no model is called: it could only answer from its own knowledge. A fixed sentence says so at once
and costs nothing.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent.answering import faithfulness_check, faithfulness_judge
from agent.answering.decision_record import DecisionRecord
from agent.answering.faithfulness_check import check_sentences, faithfulness, says_answer_missing, split_answer
from agent.answering.link_guard import LinkGuard, guard_links
from agent.answering.sentences import without_citations
from agent.answering.tool_searches import split_calls
from agent.llm.model import Model, ModelFailed, Reply
from agent.llm.reply_json import strip_reasoning
from agent.llm.token_estimates import estimate_tokens
from agent.options.languages import uses_chinese
from agent.settings import Settings
from agent.types import Answer, AnswerSentence, AskRequest, Message, Prompt, Usage
from retrievers.core.circuit_breakers import CircuitBreaker
from retrievers.embed import Embedder
from retrievers.http.provider_hits import safe_link
from retrievers.text.chinese_dictionary import contains_chinese
from retrievers.text.prompt_sanitising import sanitise_prompt_text

STAGE = "answer"
MOST_TURNS = 20
"""Maximum number of conversation turns shown to the model; the newest are kept."""
MOST_HISTORY_TOKENS = 3000

NOTHING_FOUND = ("The documents do not answer this.", "文档中没有找到答案。")
NOT_SEARCHED = ("The documents could not be searched.", "文档无法检索。")
NO_MODEL = (
    "No documents were searched for this, and no model is available to answer it.",
    "此问无需检索，也没有模型作答。",
)
"""Fixed texts, each as (English, Chinese)."""
_CHECK_S = 0.2
"""Minimum seconds for the check, even if the answer has used up its time."""
_PATIENCE = 0.6
"""Share of `timeout_s` of the settings after which a model that has not begun to answer counts as failed.

The request's own timeout does not count here, because the breaker is shared by all callers.
"""


@dataclass(frozen=True, slots=True)
class Answerer:
    """Answers prompts.

    Args:
        embedder: used by the check of sentences where their wording does not decide.
        model: if None, the passages are returned instead of an answer.
        breaker: the model's circuit breaker, shared with all other callers of the model.
    """

    settings: Settings
    embedder: Embedder
    model: Model | None = None
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)

    async def stream(
        self, request: AskRequest, prompt: Prompt, decision: DecisionRecord, started: float
    ) -> AsyncGenerator[str | Answer]:
        """Yield the answer's text in pieces, then the Answer, whose `answer` is all pieces joined.

        If the model fails, the text so far is kept, or the passages replace it, and `degraded` says so.

        Args:
            started: when the request arrived, on the clock of `time.monotonic()`.
        Raises:
            ModelFailed: there is no text, and passages cannot replace the form of answer that the caller asked for.
            BadRequest: the model does not support an option that changes what an answer is.
        """
        if prompt.status == "nothing_found" and not _needs_model_answer(request):
            # A source that rests or was skipped does not show that there is nothing to find.
            searched = not prompt.outcomes or any(one.status in ("ok", "empty") for one in prompt.outcomes)
            text = self._fixed_text(NOTHING_FOUND if searched else NOT_SEARCHED, request)
            yield text
            yield _build_answer(prompt, decision, text)
            return
        if self.model is None:
            text = self._fallback_text(request, prompt, decision)
            yield text
            yield _build_answer(prompt, decision, text, degraded="no_model")
            return
        said: _ModelAnswer | None = None
        async with aclosing(self._run_turns(request, prompt, decision, started)) as pieces:
            async for piece in pieces:
                if isinstance(piece, _ModelAnswer):
                    said = piece
                else:
                    yield piece
        assert said is not None
        prompt, decision, reply, calls = said.prompt, said.decision, said.turn.reply, said.calls
        text = strip_reasoning(said.text)
        dropped = "tool_call_dropped" if said.dropped else None
        if not text and not calls:
            if dropped and request.model_options and request.model_options.response_format:
                raise ModelFailed("it called a tool that it may not call, and gave no answer in the requested format")
            text = self._fallback_text(request, prompt, decision)
            yield text
            yield _build_answer(prompt, decision, text, degraded=dropped or "model_unavailable")
            return
        cut = "answer_cut" if said.turn.error else dropped
        answer = _build_answer(prompt, decision, text, degraded=cut, model=reply.model or self.model.name)
        reason = "length" if said.turn.error or reply.finish_reason == "length" else "tool_calls" if calls else "stop"
        answer = answer.model_copy(update={"finish_reason": reason, "tool_calls": calls})
        # A tool call without text is not an answer yet, so there is nothing to check.
        yield await self._check_answer(answer, request, decision, self._ends_at(request, started)) if text else answer

    async def _run_turns(
        self, request: AskRequest, prompt: Prompt, decision: DecisionRecord, started: float
    ) -> AsyncGenerator["str | _ModelAnswer"]:
        """Yield the model's text with links made safe, then one `_ModelAnswer`.

        If the model calls the search tool, its searches are run and the model takes another turn with the results.

        Raises:
            ModelFailed, BadRequest: as for `stream`.
        """
        searches = decision.tool_searches
        if searches is not None:
            searches.set_deadlines(started, self._ends_at(request, started))
        # An answer in a response format is the last turn alone, so hold each turn until it is known to be the last.
        is_held = searches is not None and bool(request.model_options and request.model_options.response_format)
        turns: list[dict[str, Any]] = []
        parts: list[str] = []
        dropped, goes_on = False, True
        while goes_on:
            turn, before = _Turn(), 0 if is_held else len(parts)
            parts = parts[:before]
            async with aclosing(self._turn(request, prompt, decision, started, turns)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, _Turn):
                        turn = piece
                        continue
                    # Separate the texts of two turns as paragraphs.
                    parts.append(f"\n\n{piece}" if before and len(parts) == before else piece)
                    if not is_held:
                        yield parts[-1]
            if turn.error is not None and not parts and _needs_model_answer(request):
                raise turn.error
            ours, others = split_calls(turn.reply.tool_calls) if searches is not None else ([], turn.reply.tool_calls)
            calls = await _permitted(others, request)
            goes_on = searches is not None and searches.accept_calls(ours, calls_others=bool(calls))
            dropped |= len(calls) < len(others) or (bool(ours) and not goes_on)
            if searches is not None and goes_on:
                found, prompt = await searches.run_calls(ours, turn.reply, prompt, decision)
                turns += found
        for part in parts if is_held else ():
            yield part
        if searches is not None:
            prompt, decision = searches.final_prompt(prompt), replace(decision, passages=tuple(searches.passages))
            dropped |= searches.has_invalid_calls
        yield _ModelAnswer("".join(parts), prompt, decision, turn, calls, dropped)

    async def _turn(
        self,
        request: AskRequest,
        prompt: Prompt,
        decision: DecisionRecord,
        started: float,
        turns: Sequence[dict[str, Any]],
    ) -> AsyncGenerator["str | _Turn"]:
        """Yield the text of one turn of the model with links made safe, then the `_Turn` with its reply or error."""
        guard, turn = LinkGuard(_cited_urls(prompt)), _Turn()
        try:
            async with aclosing(self._stream_turn(request, prompt, decision, started, turns)) as spoken:
                async for piece in spoken:
                    if isinstance(piece, Reply):
                        turn = _Turn(piece)
                    elif shown := guard.feed(piece):
                        yield shown
        except ModelFailed as error:
            turn = _Turn(error=error)
        if shown := guard.end():
            yield shown
        yield turn

    async def _stream_turn(
        self,
        request: AskRequest,
        prompt: Prompt,
        decision: DecisionRecord,
        started: float,
        turns: Sequence[dict[str, Any]],
    ) -> AsyncGenerator[str | Reply]:
        """Yield the text of one turn of the model, then its `Reply`.

        The turn must begin within the request's time limit and end within the answer's.

        Args:
            turns: the model's earlier turns and the results of its searches.
        Raises:
            ModelFailed: the breaker is open, or the model failed or was late.
        """
        assert self.model is not None
        if not self.breaker.admit():
            raise ModelFailed("it failed too often and is not called for a while", fault="down")
        asked, searches = time.monotonic(), decision.tool_searches
        begins_by = (asked if turns else started) + (request.timeout_s or self.settings.timeout_s)
        works: bool | None = None
        try:
            pieces = decision.calls.logged_model(self.model).stream(
                [*chat_messages(prompt, request.history), *_following(request), *turns],
                stage=STAGE,
                deadline=self._ends_at(request, started),
                key=_key(request, prompt) | ({"round": searches.round} if searches is not None else {}),
                options=searches.options() if searches is not None else _options(request),
            )
            async with aclosing(pieces):
                try:
                    async with asyncio.timeout(begins_by - time.monotonic()):
                        piece = await anext(pieces)
                except TimeoutError:
                    raise ModelFailed("it did not begin to answer in time", fault="late") from None
                yield piece
                async for piece in pieces:
                    yield piece
            works = True
        except ModelFailed as error:
            silent = error.fault == "late" and time.monotonic() - asked >= _PATIENCE * self.settings.timeout_s
            works = False if silent or error.fault == "down" else None
            raise
        finally:
            self.breaker.record_outcome(works)

    def _fallback_text(self, request: AskRequest, prompt: Prompt, decision: DecisionRecord) -> str:
        """Return the text for a request that no model answers: the passages, or a fixed sentence without any."""
        if not decision.passages:
            return self._fixed_text(NO_MODEL, request)
        return guard_links("\n\n".join(passage.strip() for passage in decision.passages), _cited_urls(prompt))

    def _fixed_text(self, texts: tuple[str, str], request: AskRequest) -> str:
        return texts[uses_chinese(self.settings.language, contains_chinese(request.question))]

    def _ends_at(self, request: AskRequest, started: float) -> float:
        """Return `started` plus the request's timeout; if it has none, the longer of TIMEOUT_S and ANSWER_TIMEOUT_S."""
        return started + (request.timeout_s or max(self.settings.timeout_s, self.settings.answer_timeout_s))

    async def _check_answer(
        self, answer: Answer, request: AskRequest, decision: DecisionRecord, deadline: float
    ) -> Answer:
        """Return the answer with a verdict on each sentence, by rules and, if requested, a model. Its text is the same.

        `degraded` gets "check_cut" if the check was cut, "judge_unavailable" if the model failed; then rules decide.
        """
        by_then = max(deadline, time.monotonic() + _CHECK_S)
        found = await asyncio.to_thread(split_answer, answer.answer, len(decision.passages))
        by: Literal["rules", "llm"] = "rules"
        degraded = answer.degraded
        if decision.passages:
            found = await check_sentences(
                found, decision.passages, self.embedder, deadline=by_then, patience_s=self.settings.source_timeout_s
            )
            if time.monotonic() >= by_then or len(found) == faithfulness_check.MOST_SENTENCES:
                degraded = (*degraded, "check_cut")
            if (request.judge or self.settings.judge) == "llm":
                try:
                    assert self.model is not None
                    model = decision.calls.logged_model(self.model)
                    key = _key(request, answer)
                    found = await faithfulness_judge.judge_faithfulness(
                        model, found, decision.passages, deadline, key, templates=decision.templates
                    )
                    by = "llm"
                except ModelFailed:
                    degraded = (*degraded, "judge_unavailable")
        declines = await asyncio.to_thread(_declines, found)
        return answer.model_copy(
            update={
                "answered": not declines,
                "sentences": found,
                "faithfulness": faithfulness(found),
                "checked_by": by,
                "degraded": degraded,
                "usage": _usage(decision),
            }
        )


@dataclass(frozen=True, slots=True)
class _Turn:
    """One turn of the model; the reply is empty if it failed."""

    reply: Reply = field(default_factory=lambda: Reply(""))
    error: ModelFailed | None = None


@dataclass(frozen=True, slots=True)
class _ModelAnswer:
    """The model's complete answer.

    Attributes:
        text: the text of all turns, as streamed.
        prompt, decision: including what the model's searches found.
        turn: the last turn.
        calls: calls of the caller's tools that are permitted.
        dropped: whether a call was dropped because it was not permitted or not valid.
    """

    text: str
    prompt: Prompt
    decision: DecisionRecord
    turn: _Turn
    calls: tuple[dict[str, Any], ...]
    dropped: bool


async def _permitted(calls: Sequence[dict[str, Any]], request: AskRequest) -> tuple[dict[str, Any], ...]:
    """Return the tool calls that may be passed on to the caller, see `tool_call_check.permitted_calls`."""
    if not calls:
        return ()
    # Imported only if there are calls, because the import takes 0.1 s.
    from agent.answering.tool_call_check import permitted_calls

    return await asyncio.to_thread(permitted_calls, calls, request.model_options)


def chat_messages(prompt: Prompt, history: Sequence[Message]) -> list[dict[str, str]]:
    """Return the prompt and the conversation before it as messages for a model.

    The caller's system turns are appended to the service's, since many servers accept only one system message, at the
    beginning. Citation numbers are removed from earlier answers, because they refer to other passages.
    """
    system, question = prompt.messages
    instructions = [system.content, *(turn.content for turn in history if turn.role == "system")]
    turns: list[dict[str, str]] = []
    left = MOST_HISTORY_TOKENS
    for turn in reversed([turn for turn in history if turn.role != "system"][-MOST_TURNS:]):
        left -= estimate_tokens(turn.content)
        if left < 0:
            break
        # Clean the text first, so that a citation hidden behind invisible characters is removed too.
        text = sanitise_prompt_text(turn.content)
        turns.insert(0, {"role": turn.role, "content": without_citations(text) if turn.role == "assistant" else text})
    asked = {"role": "user", "content": question.content}
    return [{"role": "system", "content": "\n\n".join(instructions)}, *turns, asked]


def _key(request: AskRequest, prompt: Prompt) -> dict[str, Any]:
    """Return the key under which a recording stores the model call: question, earlier turns, passages and options."""
    key = {
        "question": request.question,
        "history": [turn.model_dump() for turn in request.history],
        "passages": [[one.chunk_id, one.start, one.end] for one in prompt.citations],
        "template": request.template,
    }
    options = _options(request)
    return (
        key
        | ({"options": options} if options else {})
        | ({"following": _following(request)} if request.following else {})
    )


def _following(request: AskRequest) -> list[dict[str, Any]]:
    return [turn.to_openai for turn in request.following]


def _options(request: AskRequest) -> dict[str, Any]:
    return request.model_options.model_dump(exclude_none=True) if request.model_options else {}


def _needs_model_answer(request: AskRequest) -> bool:
    """Return whether the request has tools, their results or a response format.

    Then a program reads the answer, and neither a fixed sentence nor the passages can replace it.
    """
    options = request.model_options
    return bool(request.following or (options and (options.tools or options.response_format)))


def _build_answer(
    prompt: Prompt, decision: DecisionRecord, text: str, *, degraded: str | None = None, model: str | None = None
) -> Answer:
    fields = {name: getattr(prompt, name) for name in Prompt.model_fields}
    fields["degraded"] = (*prompt.degraded, degraded) if degraded else prompt.degraded
    return Answer.model_construct(**fields, answer=text, answered=False, model=model, usage=_usage(decision))


def _usage(decision: DecisionRecord) -> Usage:
    calls = [call.usage for call in decision.calls.records]
    return Usage.model_validate(sum(calls[1:], calls[0]).to_json()) if calls else Usage()


def _cited_urls(prompt: Prompt) -> set[str]:
    return {url for one in prompt.citations if (url := safe_link(one.url))}


def _declines(sentences: Sequence[AnswerSentence]) -> bool:
    return not any(one.supported for one in sentences) and any(says_answer_missing(one.text) for one in sentences)
