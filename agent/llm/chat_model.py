"""A chat model on a server: it requests the strictest JSON form that the server accepts, and repairs bad replies once.

A rejected form is remembered, so that later calls do not send it in vain. All attempts of a call, including repairs,
share its deadline.
"""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from functools import partial
from typing import Any

from pydantic import BaseModel

from agent.llm.call_options import CallOptions, ToolCallAssembler
from agent.llm.chat_client import ChatClient
from agent.llm.completion_parsing import CUT_REASONS, LONGEST_TEXT, parse_completion, parse_stream_event
from agent.llm.message_cleaning import clean_messages, clean_options
from agent.llm.model import CallUsage, Messages, ModelFailed, Reply, timeout_reason
from agent.llm.reply_format import ReplyFormat, reply_format, schema_text
from agent.llm.reply_json import BadReply, ReasoningFilter, has_unopened_reasoning, parse, strip_reasoning
from agent.llm.retries import (
    CallState,
    RequestFormRejected,
    fault_of_status,
    next_event,
    reason_of_status,
    send_with_retries,
)
from agent.types import FinishReason

_PROSE_BEFORE_STEPPING_DOWN = 2
_LONGEST_SENT_BACK = 8000
_OF_THE_FORM = re.compile(
    r"response_?format|json|schema|structured|grammar|guided|strict|tool|function|unsupported|not support|parameter"
)
_OF_THE_USAGE = re.compile(r"stream_options|include_usage")
_OF_THE_TEMPERATURE = re.compile(r"temperature")
_OF_THE_LENGTH = re.compile(r"context.{0,9}(length|window)|too (long|many tokens)|maximum.{0,20}tokens")
_OF_THE_MODEL = re.compile(
    r"model_not_found|model\b.{0,80}(not found|not exist|unknown)|(unknown|invalid|no such) model"
)


class ChatModel:
    """A chat model on a server; see `agent.llm.model.Model`. It remembers which output forms the server rejects.

    Args:
        name: the name in the settings, shown in errors.
        model: the name by which the server knows the model.
        client: the client that sends the requests.
    """

    def __init__(self, name: str, model: str, client: ChatClient) -> None:
        self.name = name
        self._model, self._client = model, client
        self._rung = ReplyFormat.SCHEMA
        self._prose = 0
        self._options: dict[str, Any] = {"temperature": 0}
        self._stream_options: dict[str, Any] = {"stream_options": {"include_usage": True}}
        self._thinks_first = False

    async def complete(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        schema: type[BaseModel] | None = None,
    ) -> Reply:
        """Return one answer; see `Model.complete`."""
        run = CallState(deadline)
        given_s = run.left_s()
        if given_s <= 0:
            raise ModelFailed("no time was left for the call", fault="late")
        try:
            async with asyncio.timeout(given_s):
                text, parsed = await self._answer(await clean_messages(messages), schema, run)
        except TimeoutError:
            raise ModelFailed(timeout_reason(given_s), fault="late") from None
        elapsed_ms = round((time.monotonic() - run.started) * 1000, 3)
        return Reply(text, parsed, run.usage, self._model, run.attempts, elapsed_ms)

    async def stream(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[str | Reply]:
        """Yield one answer in pieces; see `Model.stream`. Only failures before the first piece are retried."""
        run = CallState(deadline)
        given_s = run.left_s()
        if given_s <= 0:
            raise ModelFailed("no time was left for the call", fault="late")
        spoken, text, finished = ReasoningFilter(thinks_first=self._thinks_first), "", None
        wanted, calls = CallOptions(await clean_options(options or {})), ToolCallAssembler()
        events, event = await self._begin(await clean_messages(messages), run, wanted)
        async with aclosing(events):
            while event is not None:
                # Some servers report running totals in every chunk: the last one is the total.
                run.usage = CallUsage.from_json(event["usage"]) if event.get("usage") else run.usage
                said, finished = parse_stream_event(event, finished, calls)
                text += said
                if len(text) > LONGEST_TEXT:
                    raise ModelFailed(f"its answer is longer than {LONGEST_TEXT:,} characters")
                if piece := spoken.feed(said):
                    yield piece
                if finished in CUT_REASONS and not (finished == "length" and wanted.limits_tokens):
                    raise ModelFailed(CUT_REASONS[finished])
                if calls.is_over_limit:
                    finished = "tool_calls"
                    break
                event = await next_event(events, run, given_s)
        if finished is None:
            raise ModelFailed("its answer broke off", fault="down")
        if piece := spoken.end():
            yield piece
        if text:
            # The last answer decides: an answer may mention the closing tag although its model does not think.
            self._thinks_first = has_unopened_reasoning(text)
        made = calls.assembled_calls()
        if not strip_reasoning(text) and not made:
            raise ModelFailed("its answer is empty")
        elapsed_ms = round((time.monotonic() - run.started) * 1000, 3)
        # Some servers end an answer of tool calls with "stop".
        reason: FinishReason = "length" if finished == "length" else "tool_calls" if made else "stop"
        yield Reply(text, None, run.usage, self._model, run.attempts, elapsed_ms, reason, made)

    async def probe(self, deadline: float) -> str:
        """Return a sentence: the server lists the model or, if it does not, the model has answered a short question.

        Raises:
            ModelFailed: the server or the model does not answer.
        """
        try:
            known = await send_with_retries(self._client.list_models, CallState(deadline, retries_left=0))
        except RequestFormRejected:
            known = None
        if known is None or self._model not in known:
            ask = [{"role": "user", "content": "Answer with the word ok."}]
            reply = await self.complete(ask, stage="probe", deadline=deadline, key={})
            unlisted = ", although the server does not list it" if known else ""
            return f"{self.name} answers{unlisted}, after {reply.elapsed_ms:.0f} ms"
        return f"{self.name}: the server answers and lists this model"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def _answer(
        self, messages: list[dict[str, Any]], schema: type[BaseModel] | None, run: CallState
    ) -> tuple[str, BaseModel | None]:
        """Return (text of the answer, parsed answer or None without a schema); ask for one repair if it is unusable."""
        text, form = await self._ask(messages, schema, run)
        if schema is None:
            if not strip_reasoning(text):
                raise ModelFailed("its answer is empty")
            return text, None
        try:
            return text, parse(text, schema)
        except BadReply as error:
            problem = error
        if problem.prose and form is ReplyFormat.SCHEMA:
            # The server probably ignores schemas, so that the model never saw it. Other forms put it into the prompt.
            self._prose += 1
            if self._prose >= _PROSE_BEFORE_STEPPING_DOWN:
                self._rung = max(self._rung, ReplyFormat.OBJECT)
        # A repair takes about as long as the first answer, so it would be late.
        if run.left_s() < (time.monotonic() - run.started) / 2:
            raise ModelFailed(f"its reply cannot be used: {problem.reason}")
        repair = f"That reply cannot be used: {problem.reason}. {schema_text(schema)}"
        again = [
            {"role": "assistant", "content": text[:_LONGEST_SENT_BACK] or "{}"},
            {"role": "user", "content": repair},
        ]
        text, _ = await self._ask([*messages, *await clean_messages(again)], schema, run)
        try:
            return text, parse(text, schema)
        except BadReply as error:
            raise ModelFailed(f"neither its reply nor the repaired reply can be used: {error.reason}") from None

    async def _ask(
        self, messages: list[dict[str, Any]], schema: type[BaseModel] | None, run: CallState
    ) -> tuple[str, ReplyFormat]:
        """Return (text of one answer, output form used); while the server rejects the form, try the next one."""
        form = self._rung if schema else ReplyFormat.TEXT
        while True:
            body = {"model": self._model, "messages": messages, **self._options, **reply_format(form, schema)}
            if schema and form is not ReplyFormat.SCHEMA:
                last = messages[-1]
                body["messages"] = [*messages[:-1], {**last, "content": f"{last['content']}\n\n{schema_text(schema)}"}]
            try:
                text = parse_completion(
                    await send_with_retries(partial(self._client.send, body), run),
                    run,
                    by_tool=form is ReplyFormat.TOOL,
                )
            except RequestFormRejected as refusal:
                form = self._step_down(form, refusal)
                continue
            if schema:
                # Only a success shows that the form was what the server rejected.
                self._rung = max(self._rung, form)
            return text, form

    async def _begin(
        self, messages: list[dict[str, Any]], run: CallState, options: CallOptions
    ) -> tuple[AsyncGenerator[dict[str, Any]], dict[str, Any] | None]:
        """Start a stream and return (its events after the first, its first event or None if it is empty)."""

        async def begin(timeout_s: float) -> tuple[AsyncGenerator[dict[str, Any]], dict[str, Any] | None]:
            events = self._client.stream_events(body, timeout_s)
            try:
                return events, await anext(events, None)
            except BaseException:
                await events.aclose()
                raise

        while True:
            body = {"model": self._model, "messages": messages, "stream": True, **self._options, **self._stream_options}
            body |= options.values
            try:
                return await send_with_retries(begin, run)
            except RequestFormRejected as refusal:
                if self._stream_options and _OF_THE_USAGE.search(refusal.error_text):
                    self._stream_options = {}
                elif _OF_THE_LENGTH.search(refusal.error_text) or not options.drop_rejected(refusal.error_text):
                    self._step_down(ReplyFormat.TEXT, refusal)

    def _step_down(self, form: ReplyFormat, refusal: RequestFormRejected) -> ReplyFormat:
        """Return the output form to try after `form` was rejected; `form` again if the temperature was the reason.

        Raises:
            ModelFailed: the rejection is not about the output form.
        """
        if _OF_THE_LENGTH.search(refusal.error_text):
            raise ModelFailed("the prompt is too long for the model") from None
        if _OF_THE_MODEL.search(refusal.error_text):
            raise ModelFailed(f"the server has no model {self._model}") from None
        if "temperature" in self._options and _OF_THE_TEMPERATURE.search(refusal.error_text):
            self._options = {}
            return form
        if form is ReplyFormat.TEXT:
            raise ModelFailed(reason_of_status(refusal.status), fault=fault_of_status(refusal.status)) from None
        if form is ReplyFormat.OBJECT and not _OF_THE_FORM.search(refusal.error_text):
            # An error without a reason may have any cause. Plain text shows at once whether the form is the cause.
            return ReplyFormat.TEXT
        return ReplyFormat(form + 1)
