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

from agent.llm.answers import CUT, LONGEST_TEXT, read_answer, read_delta
from agent.llm.attempts import CallState, FormRefused, fault_of_status, next_event, reason_of_status, with_retries
from agent.llm.forms import ReplyForm, reply_format, schema_text
from agent.llm.json import BadReply, Spoken, ends_unmarked_thoughts, parse, without_thoughts
from agent.llm.messages import cleaned, cleaned_options
from agent.llm.model import CallUsage, Messages, ModelFailed, Reply, no_answer
from agent.llm.options import Options, ToolCalls
from agent.llm.wire import Wire
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
        wire: the client that sends the requests.
    """

    def __init__(self, name: str, model: str, wire: Wire) -> None:
        self.name = name
        self._model, self._wire = model, wire
        self._rung = ReplyForm.SCHEMA
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
                text, parsed = await self._answer(await cleaned(messages), schema, run)
        except TimeoutError:
            raise ModelFailed(no_answer(given_s), fault="late") from None
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
        spoken, text, finished = Spoken(thinks_first=self._thinks_first), "", None
        wanted, calls = Options(await cleaned_options(options or {})), ToolCalls()
        events, event = await self._begin(await cleaned(messages), run, wanted)
        async with aclosing(events):
            while event is not None:
                # Some servers report running totals in every chunk: the last one is the total.
                run.usage = CallUsage.from_json(event["usage"]) if event.get("usage") else run.usage
                said, finished = read_delta(event, finished, calls)
                text += said
                if len(text) > LONGEST_TEXT:
                    raise ModelFailed(f"its answer is longer than {LONGEST_TEXT:,} characters")
                if piece := spoken.feed(said):
                    yield piece
                if finished in CUT and not (finished == "length" and wanted.limited):
                    raise ModelFailed(CUT[finished])
                if calls.is_over:
                    finished = "tool_calls"
                    break
                event = await next_event(events, run, given_s)
        if finished is None:
            raise ModelFailed("its answer broke off", fault="down")
        if piece := spoken.end():
            yield piece
        self._thinks_first = self._thinks_first or ends_unmarked_thoughts(text)
        made = calls.made()
        if not without_thoughts(text) and not made:
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
            known = await with_retries(self._wire.models, CallState(deadline, retries_left=0))
        except FormRefused:
            known = None
        if known is None or self._model not in known:
            ask = [{"role": "user", "content": "Answer with the word ok."}]
            reply = await self.complete(ask, stage="probe", deadline=deadline, key={})
            unlisted = ", although the server does not list it" if known else ""
            return f"{self.name} answers{unlisted}, after {reply.elapsed_ms:.0f} ms"
        return f"{self.name}: the server answers and lists this model"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    async def _answer(
        self, messages: list[dict[str, Any]], schema: type[BaseModel] | None, run: CallState
    ) -> tuple[str, BaseModel | None]:
        """Return (text of the answer, parsed answer or None without a schema); ask for one repair if it is unusable."""
        text, rung = await self._ask(messages, schema, run)
        if schema is None:
            if not without_thoughts(text):
                raise ModelFailed("its answer is empty")
            return text, None
        try:
            return text, parse(text, schema)
        except BadReply as error:
            problem = error
        if problem.prose and rung is ReplyForm.SCHEMA:
            # The server probably ignores schemas, so that the model never saw it. Other forms put it into the prompt.
            self._prose += 1
            if self._prose >= _PROSE_BEFORE_STEPPING_DOWN:
                self._rung = max(self._rung, ReplyForm.OBJECT)
        # A repair takes about as long as the first answer, so it would be late.
        if run.left_s() < (time.monotonic() - run.started) / 2:
            raise ModelFailed(f"its reply cannot be used: {problem.reason}")
        repair = f"That reply cannot be used: {problem.reason}. {schema_text(schema)}"
        again = [
            {"role": "assistant", "content": text[:_LONGEST_SENT_BACK] or "{}"},
            {"role": "user", "content": repair},
        ]
        text, _ = await self._ask([*messages, *again], schema, run)
        try:
            return text, parse(text, schema)
        except BadReply as error:
            raise ModelFailed(f"neither its reply nor the repaired reply can be used: {error.reason}") from None

    async def _ask(
        self, messages: list[dict[str, Any]], schema: type[BaseModel] | None, run: CallState
    ) -> tuple[str, ReplyForm]:
        """Return (text of one answer, output form used); while the server rejects the form, try the next one."""
        rung = self._rung if schema else ReplyForm.TEXT
        while True:
            body = {"model": self._model, "messages": messages, **self._options, **reply_format(rung, schema)}
            if schema and rung is not ReplyForm.SCHEMA:
                last = messages[-1]
                body["messages"] = [*messages[:-1], {**last, "content": f"{last['content']}\n\n{schema_text(schema)}"}]
            try:
                text = read_answer(
                    await with_retries(partial(self._wire.send, body), run), run, by_tool=rung is ReplyForm.TOOL
                )
            except FormRefused as refusal:
                rung = self._step_down(rung, refusal)
                continue
            if schema:
                # Only a success shows that the form was what the server rejected.
                self._rung = max(self._rung, rung)
            return text, rung

    async def _begin(
        self, messages: list[dict[str, Any]], run: CallState, options: Options
    ) -> tuple[AsyncGenerator[dict[str, Any]], dict[str, Any] | None]:
        """Start a stream and return (its events after the first, its first event or None if it is empty)."""

        async def begin(timeout_s: float) -> tuple[AsyncGenerator[dict[str, Any]], dict[str, Any] | None]:
            events = self._wire.events(body, timeout_s)
            try:
                return events, await anext(events, None)
            except BaseException:
                await events.aclose()
                raise

        while True:
            body = {"model": self._model, "messages": messages, "stream": True, **self._options, **self._stream_options}
            body |= options.values
            try:
                return await with_retries(begin, run)
            except FormRefused as refusal:
                if self._stream_options and _OF_THE_USAGE.search(refusal.said):
                    self._stream_options = {}
                elif _OF_THE_LENGTH.search(refusal.said) or not options.reduce(refusal.said):
                    self._step_down(ReplyForm.TEXT, refusal)

    def _step_down(self, rung: ReplyForm, refusal: FormRefused) -> ReplyForm:
        """Return the output form to try after `rung` was rejected; `rung` again if the temperature was the reason.

        Raises:
            ModelFailed: the rejection is not about the output form.
        """
        if _OF_THE_LENGTH.search(refusal.said):
            raise ModelFailed("the prompt is too long for the model") from None
        if _OF_THE_MODEL.search(refusal.said):
            raise ModelFailed(f"the server has no model {self._model}") from None
        if "temperature" in self._options and _OF_THE_TEMPERATURE.search(refusal.said):
            self._options = {}
            return rung
        if rung is ReplyForm.TEXT:
            raise ModelFailed(reason_of_status(refusal.status), fault=fault_of_status(refusal.status)) from None
        if rung is ReplyForm.OBJECT and not _OF_THE_FORM.search(refusal.said):
            # An error without a reason may have any cause. Plain text shows at once whether the form is the cause.
            return ReplyForm.TEXT
        return ReplyForm(rung + 1)
