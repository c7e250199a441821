"""Chat models over the network: the openai SDK for what speaks OpenAI's API, litellm for the rest.

Output is asked for in the strictest form the server takes (`ReplyForm`). One that is refused is remembered, so
that only the first call pays for finding out. All tries of a call, repairs included, share its deadline.
"""

import asyncio
import importlib
import json
import re
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel

from agent.llm.json import BadReply, Spoken, ends_unmarked_thoughts, parse, strict_schema, without_thoughts
from agent.llm.messages import cleaned
from agent.llm.model import CallUsage, Fault, Messages, ModelFailed, Reply, begin_try, no_answer
from agent.llm.options import Options, ToolCalls
from agent.types import FinishReason
from retrievers.embed.retry import RetryPolicy, of_the_connection, repeat, retry_after_s, status_of
from retrievers.http.bounds import bad_answer_in, limits, parse_json
from retrievers.http.sdks import open_openai

T = TypeVar("T")

_OPENAI_MODELS = ("gpt-", "chatgpt-", "o1", "o3", "o4")
# Names of servers rather than parts of a model's name; "anthropic/..." at a gateway is a model's name.
_SERVERS = ("openai/", "ollama/", "ollama_chat/", "hosted_vllm/", "lm_studio/", "litellm_proxy/")

_RETRIES = 2
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 2.0
_LONGEST_ASKED_S = 60.0
_LONGEST_TEXT = 200_000
_LARGEST_WHOLE = 1 << 20
"""Bytes of an answer that does not come in pieces, where a library reads it more than once."""
_MOST_VALUES = 50_000
"""Of such an answer: litellm makes an object of each, some of them twice."""
_MOST_CHUNKS = 16
"""Of a stream that litellm keeps; the first states the tokens of the prompt, the last those of the answer."""
_DONE: dict[str, Any] = {"done": True}
_PROSE_BEFORE_STEPPING_DOWN = 2
_LONGEST_SENT_BACK = 8000

_REFUSALS = (400, 404, 405, 415, 422, 501)
_OF_THE_FORM = re.compile(
    r"response_?format|json|schema|structured|grammar|guided|strict|tool|function|unsupported|not support|parameter"
)
_OF_THE_USAGE = re.compile(r"stream_options|include_usage")
_OF_THE_TEMPERATURE = re.compile(r"temperature")
_OF_THE_LENGTH = re.compile(r"context.{0,9}(length|window)|too (long|many tokens)|maximum.{0,20}tokens")
_OF_THE_MODEL = re.compile(
    r"model_not_found|model\b.{0,80}(not found|not exist|unknown)|(unknown|invalid|no such) model"
)
_CUT = {
    "length": "its answer was cut at the token limit",
    "content_filter": "its provider's filter stopped the answer",
}
_MEANINGS = {
    401: "its key is refused",
    403: "its key may not use it",
    404: "there is no such address or model",
    413: "the prompt is too long for it",
    429: "too many requests, or its quota is used up",
}


class ReplyForm(IntEnum):
    """How a JSON reply is asked for, strictest first."""

    SCHEMA = 0
    OBJECT = 1
    TOOL = 2
    TEXT = 3


class Wire(Protocol):
    """One request, without repetition."""

    async def send(self, body: dict[str, Any], timeout_s: float) -> Any:
        """The decoded answer to a chat completion.

        Raises:
            ModelFailed: the answer is no JSON or too large.
            openai.OpenAIError: what the SDK raises; what its HTTP client does may also come through.
        """
        ...

    def events(self, body: dict[str, Any], timeout_s: float) -> AsyncGenerator[dict[str, Any]]:
        """The decoded chunks of a streamed chat completion; the last is `_DONE` when the server says that it was.

        Raises: as `send` does.
        """
        ...

    async def models(self, timeout_s: float) -> list[str] | None:
        """Ids of the models there are; None when the server does not say."""
        ...

    async def aclose(self) -> None: ...


class FormRefused(Exception):
    """The server will not take the request as it is. `said` is for deciding what to change, never shown."""

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.said = status, said.lower()


@dataclass(slots=True)
class _CallState:
    """What one `complete` has used so far."""

    deadline: float
    started: float = field(default_factory=time.monotonic)
    attempts: int = 0
    retries_left: int = _RETRIES
    usage: CallUsage = field(default_factory=CallUsage)

    def left_s(self) -> float:
        return self.deadline - time.monotonic()


class ChatModel:
    """A chat model, see `agent.llm.model.Model`. It learns which forms of output its server refuses."""

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
        """One answer, see `Model.complete`."""
        run = _CallState(deadline)
        given_s = run.left_s()
        if given_s <= 0:
            raise ModelFailed("no time was left for it", fault="late")
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
        """One answer as it comes, see `Model.stream`. Only what fails before the first piece is tried again."""
        run = _CallState(deadline)
        given_s = run.left_s()
        if given_s <= 0:
            raise ModelFailed("no time was left for it", fault="late")
        spoken, text, finished = Spoken(thinks_first=self._thinks_first), "", None
        wanted, calls = Options(options), ToolCalls()
        events, event = await self._begin(await cleaned(messages), run, wanted)
        async with aclosing(events):
            while event is not None:
                # Some servers count up in every chunk: the last figure is that of the whole.
                run.usage = CallUsage.from_json(event["usage"]) if event.get("usage") else run.usage
                said, finished = self._delta(event, finished, calls)
                text += said
                if len(text) > _LONGEST_TEXT:
                    raise ModelFailed(f"its answer is longer than {_LONGEST_TEXT:,} characters")
                if piece := spoken.feed(said):
                    yield piece
                if finished in _CUT and not (finished == "length" and wanted.limited):
                    raise ModelFailed(_CUT[finished])
                event = await _following(events, run, given_s)
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
        """Whether the server knows the model; without a list of models, whether it answers a short prompt."""
        try:
            known = await _tried(self._wire.models, _CallState(deadline, retries_left=0))
        except FormRefused:
            known = None
        if known is None:
            ask = [{"role": "user", "content": "Answer with the word ok."}]
            reply = await self.complete(ask, stage="probe", deadline=deadline, key={})
            return f"{self.name} answers, after {reply.elapsed_ms:.0f} ms"
        if known and self._model not in known:
            return f"{self.name}: the server answers but does not list that model"
        return f"{self.name}, the server answers and lists it"

    async def aclose(self) -> None:
        """Close the connections."""
        await self._wire.aclose()

    async def _answer(
        self, messages: list[dict[str, Any]], schema: type[BaseModel] | None, run: _CallState
    ) -> tuple[str, BaseModel | None]:
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
            # A server that takes the schema and ignores it never showed it to the model.
            self._prose += 1
            if self._prose >= _PROSE_BEFORE_STEPPING_DOWN:
                self._rung = max(self._rung, ReplyForm.OBJECT)
        # Another answer takes about as long as the first one did.
        if run.left_s() < (time.monotonic() - run.started) / 2:
            raise ModelFailed(f"its reply cannot be used: {problem.reason}")
        repair = f"That reply cannot be used: {problem.reason}. {_shape(schema)}"
        again = [
            {"role": "assistant", "content": text[:_LONGEST_SENT_BACK] or "{}"},
            {"role": "user", "content": repair},
        ]
        text, _ = await self._ask([*messages, *again], schema, run)
        try:
            return text, parse(text, schema)
        except BadReply as error:
            raise ModelFailed(f"its reply cannot be used, nor its repair: {error.reason}") from None

    async def _ask(
        self, messages: list[dict[str, Any]], schema: type[BaseModel] | None, run: _CallState
    ) -> tuple[str, ReplyForm]:
        """The text of one answer, down the ladder as far as the server demands."""
        rung = self._rung if schema else ReplyForm.TEXT
        while True:
            body = {"model": self._model, "messages": messages, **self._options, **_form(rung, schema)}
            if schema and rung is not ReplyForm.SCHEMA:
                last = messages[-1]
                body["messages"] = [*messages[:-1], {**last, "content": f"{last['content']}\n\n{_shape(schema)}"}]
            try:
                text = self._read(
                    await _tried(partial(self._wire.send, body), run), run, by_tool=rung is ReplyForm.TOOL
                )
            except FormRefused as refusal:
                rung = self._step_down(rung, refusal)
                continue
            if schema:
                # Only now is it known that the form was what the server refused.
                self._rung = max(self._rung, rung)
            return text, rung

    async def _begin(
        self, messages: list[dict[str, Any]], run: _CallState, options: Options
    ) -> tuple[AsyncGenerator[dict[str, Any]], dict[str, Any] | None]:
        """A stream and its first event."""

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
                return await _tried(begin, run)
            except FormRefused as refusal:
                if self._stream_options and _OF_THE_USAGE.search(refusal.said):
                    self._stream_options = {}
                elif _OF_THE_LENGTH.search(refusal.said) or not options.reduce(refusal.said):
                    self._step_down(ReplyForm.TEXT, refusal)

    def _delta(self, event: dict[str, Any], finished: str | None, calls: ToolCalls) -> tuple[str, str | None]:
        """The text that an event adds, and why the answer ended, once that is known; tool calls go to `calls`."""
        if event.get("error"):
            raise ModelFailed("its answer holds an error")
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return "", finished or ("stop" if event == _DONE else None)
        # A server that does not stream answers with a whole message.
        delta = choice.get("delta") or choice.get("message")
        delta = delta if isinstance(delta, dict) else {}
        if delta.get("refusal"):
            raise ModelFailed("it refused to answer")
        calls.add(delta.get("tool_calls"))
        calls.add_legacy(delta.get("function_call"))
        reason = choice.get("finish_reason")
        return _content(delta.get("content")), str(reason) if reason else finished

    def _step_down(self, rung: ReplyForm, refusal: FormRefused) -> ReplyForm:
        """The form to try next.

        Raises:
            ModelFailed: the form is not what was refused.
        """
        if _OF_THE_LENGTH.search(refusal.said):
            raise ModelFailed("the prompt is too long for it") from None
        if _OF_THE_MODEL.search(refusal.said):
            raise ModelFailed(f"there is no model {self._model} there") from None
        if "temperature" in self._options and _OF_THE_TEMPERATURE.search(refusal.said):
            self._options = {}
            return rung
        if rung is ReplyForm.TEXT:
            raise ModelFailed(_of_status(refusal.status), fault=_fault_of_status(refusal.status)) from None
        if rung is ReplyForm.OBJECT and not _OF_THE_FORM.search(refusal.said):
            # A refusal without a reason may be of anything; the plainest form tells soonest.
            return ReplyForm.TEXT
        return ReplyForm(rung + 1)

    def _read(self, data: Any, run: _CallState, *, by_tool: bool) -> str:
        """The text of an answer; the arguments of a tool call where a tool was offered."""
        if not isinstance(data, dict):
            raise ModelFailed("its answer is no JSON object")
        run.usage += CallUsage.from_json(data.get("usage"))
        choices = data.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = choice.get("message") if isinstance(choice, dict) else None
        if not isinstance(choice, dict) or not isinstance(message, dict):
            raise ModelFailed("its answer holds an error" if data.get("error") else "its answer holds no message")
        if message.get("refusal"):
            raise ModelFailed("it refused to answer")
        if choice.get("finish_reason") in _CUT:
            # What is missing cannot be repaired: the next answer would be cut as well.
            raise ModelFailed(_CUT[choice["finish_reason"]])
        text = (_arguments(message.get("tool_calls")) if by_tool else "") or _content(message.get("content"))
        if len(text) > _LONGEST_TEXT:
            raise ModelFailed(f"its answer is longer than {_LONGEST_TEXT:,} characters")
        return text


def open_chat(name: str, *, base_url: str | None, api_key: str | None) -> ChatModel:
    """The model "openai/MODEL", any name at a `base_url`, or another of litellm's."""
    if base_url or name.startswith(("openai/", *_OPENAI_MODELS)):
        model = next((name.removeprefix(server) for server in _SERVERS if name.startswith(server)), name)
        return ChatModel(name, model, OpenAIWire(base_url, api_key))
    return ChatModel(name, name, LiteLLMWire(api_key))


class OpenAIWire:
    """The openai SDK against OpenAI or any server that speaks its API."""

    def __init__(self, base_url: str | None, api_key: str | None) -> None:
        self._client = open_openai(base_url, api_key)
        # The SDK imports this part on its first use, and would hold the event loop for 0.2 s.
        threading.Thread(target=importlib.import_module, args=("openai.resources.chat",), daemon=True).start()

    async def send(self, body: dict[str, Any], timeout_s: float) -> Any:
        """The decoded answer, see `Wire.send`."""
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**body, timeout=timeout_s) as response:
            return _decoded(await response.read())

    async def events(self, body: dict[str, Any], timeout_s: float) -> AsyncGenerator[dict[str, Any]]:
        """The chunks as they come, see `Wire.events`."""
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**body, timeout=timeout_s) as response:
            if "event-stream" not in response.headers.get("content-type", ""):
                yield _chunk(await response.read())
                return
            async for line in _lines(response.iter_bytes()):
                if line.startswith(b"data:"):
                    yield _chunk(line.removeprefix(b"data:").strip())

    async def models(self, timeout_s: float) -> list[str] | None:
        """Ids of the models there are, see `Wire.models`."""
        client = self._client.with_options(timeout=timeout_s)
        async with client.models.with_streaming_response.list() as response:
            content = await response.read()
        try:
            return [model["id"] for model in parse_json(content)["data"] if isinstance(model["id"], str)]
        except (ValueError, TypeError, KeyError):
            return None

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()


class LiteLLMWire:
    """litellm, for providers with an API of their own. Importing it takes seconds, so a thread begins at once."""

    def __init__(self, api_key: str | None, base_url: str | None = None) -> None:
        self._options: dict[str, Any] = {"num_retries": 0, "max_retries": 0}
        self._options |= {"api_key": api_key} if api_key else {}
        self._options |= {"api_base": base_url} if base_url else {}
        # Before the thread: the event loop would wait for the lock of an import that is under way.
        importlib.import_module("openai")
        threading.Thread(target=_litellm, daemon=True).start()

    async def send(self, body: dict[str, Any], timeout_s: float) -> Any:
        """The decoded answer, see `Wire.send`."""
        litellm = await asyncio.to_thread(_litellm)
        with limits(_LARGEST_WHOLE, _MOST_VALUES):
            answer = await litellm.acompletion(**body, **self._options, timeout=timeout_s)
        data = answer.model_dump()
        cost = (getattr(answer, "_hidden_params", None) or {}).get("response_cost")
        return data | {"usage": {**(data.get("usage") or {}), "cost": cost}}

    async def events(self, body: dict[str, Any], timeout_s: float) -> AsyncGenerator[dict[str, Any]]:
        """The chunks as they come, see `Wire.events`."""
        litellm = await asyncio.to_thread(_litellm)
        stream = await litellm.acompletion(**body, **self._options, timeout=timeout_s)
        stream.chunks = kept = _LastChunks(stream.chunks)
        async for chunk in stream:
            # litellm joins all the text so far anew for each piece.
            stream.response_uptil_now = ""
            event = chunk.model_dump()
            # Where the server states no usage, litellm counts what it has kept.
            yield event if kept.state_usage else event | {"usage": None}
            await asyncio.sleep(0)  # as in `_lines`
        yield _DONE

    async def models(self, timeout_s: float) -> list[str] | None:
        """Nobody says."""
        return None

    async def aclose(self) -> None:
        """Close the connections; litellm keeps them for all its users together."""
        await (await asyncio.to_thread(_litellm)).close_litellm_async_clients()


class _LastChunks(list[Any]):
    """What litellm keeps of a stream: the chunks that state a usage, and the last two, which it compares.

    It would keep them all, to join and count them when the stream ends. Thousands of them hold the event loop: while
    that is done, and whenever Python's collector looks at them.
    """

    @property
    def state_usage(self) -> bool:
        return any(getattr(chunk, "usage", None) for chunk in self)

    def append(self, chunk: Any) -> None:
        """Add a chunk; some servers state the usage so far in each of them."""
        if len(self) > 1 and (len(self) >= _MOST_CHUNKS or not getattr(self[-2], "usage", None)):
            del self[-2]
        super().append(chunk)


async def _lines(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """The lines of a body; the rest behind the last line break is none."""
    rest: list[bytes] = []
    async for part in parts:
        first, *more = part.split(b"\n")
        rest.append(first)
        for line in more:
            yield b"".join(rest)
            rest = [line]
            # A part may hold thousands of events, and each is work for whoever reads them.
            await asyncio.sleep(0)


def _decoded(content: bytes) -> Any:
    try:
        return parse_json(content)
    except ValueError:
        raise ModelFailed("its answer is not JSON") from None


def _chunk(data: bytes) -> dict[str, Any]:
    """One event of a stream."""
    chunk = _DONE if data == b"[DONE]" else _decoded(data)
    if not isinstance(chunk, dict):
        raise ModelFailed("its answer is no JSON object")
    return chunk


def _litellm() -> Any:
    from retrievers.embed import remote

    return remote._import_litellm()


async def _tried(send: Callable[[float], Awaitable[T]], run: _CallState) -> T:
    """What a wire answers, tried again within the retries and the time that are left.

    Raises:
        Refused: another form of the request may be taken.
        ModelFailed: no try succeeded.
    """
    import openai

    async def once() -> T:
        run.attempts += 1
        begin_try()
        return await _plainly(send(run.left_s()))

    given_s = run.left_s()
    before = run.attempts
    policy = RetryPolicy(given_s, run.retries_left + 1, _FIRST_WAIT_S, _LONGEST_WAIT_S, _LONGEST_ASKED_S)
    try:
        return await repeat(once, policy=policy, timeout_s=given_s)
    except (TimeoutError, ConnectionError, openai.OpenAIError) as error:
        # The SDK's error stays out of the chain: it may quote the key.
        raise _failed(error, given_s, run.attempts - before) from None
    finally:
        run.retries_left = max(0, run.retries_left - (run.attempts - before - 1))


async def _following(events: AsyncGenerator[dict[str, Any]], run: _CallState, given_s: float) -> dict[str, Any] | None:
    """The next event of a stream that has begun; None at its end.

    Raises:
        ModelFailed: it broke off, or the time is over.
    """
    import openai

    try:
        async with asyncio.timeout(run.left_s()):
            return await _plainly(anext(events, None))
    except FormRefused as refusal:
        raise ModelFailed(_of_status(refusal.status), fault=_fault_of_status(refusal.status)) from None
    except (TimeoutError, ConnectionError, openai.OpenAIError) as error:
        raise _failed(error, given_s) from None
    except Exception as error:
        # What the HTTP client raises when a connection ends amid a chunk.
        if not of_the_connection(error):
            raise
        raise ModelFailed("its answer broke off", fault="down") from None


def _failed(error: Exception, given_s: float, tries: int = 1) -> ModelFailed:
    reason, fault = _reason(error, given_s)
    reason = f"after {tries} tries: {reason}" if tries > 1 else reason
    return ModelFailed(reason, retry_after_s=retry_after_s(error), fault=fault)


async def _plainly(answer: Awaitable[T]) -> T:
    """What a wire answers, its errors sorted into those that repeat, refuse and end."""
    import openai

    try:
        return await answer
    except (TimeoutError, ModelFailed):
        raise
    except Exception as error:
        if bad := bad_answer_in(error):
            raise ModelFailed(bad.reason) from None
        if of_the_connection(error):
            raise
        if not isinstance(error, openai.OpenAIError):
            # A client's own mistake, such as a header that cannot be encoded.
            raise ModelFailed(f"its client failed ({type(error).__name__})") from None
        status = status_of(error)
        said = json.dumps(getattr(error, "body", None), default=str) + str(error)
        # Some servers fail over a schema they cannot compile instead of refusing it.
        if status in _REFUSALS or (status == 500 and re.search(r"response_format|json_schema|grammar|guided", said)):
            raise FormRefused(status or 400, said) from None
        raise


def _form(rung: ReplyForm, schema: type[BaseModel] | None) -> dict[str, Any]:
    if schema is None or rung is ReplyForm.TEXT:
        return {}
    if rung is ReplyForm.OBJECT:
        return {"response_format": {"type": "json_object"}}
    wanted = strict_schema(schema)
    if rung is ReplyForm.SCHEMA:
        named = {"name": "reply", "strict": True, "schema": wanted}
        return {"response_format": {"type": "json_schema", "json_schema": named}}
    function = {"name": "reply", "description": "Give the reply.", "parameters": wanted}
    return {
        "tools": [{"type": "function", "function": function}],
        "tool_choice": {"type": "function", "function": {"name": "reply"}},
    }


def _shape(schema: type[BaseModel]) -> str:
    shape = json.dumps(strict_schema(schema), ensure_ascii=False)
    return f"Reply with one JSON object of this JSON schema, and with nothing else:\n{shape}"


def _arguments(calls: object) -> str:
    for call in calls if isinstance(calls, list) else []:
        function = call.get("function") if isinstance(call, dict) else None
        arguments = function.get("arguments") if isinstance(function, dict) else None
        if isinstance(arguments, dict):
            return json.dumps(arguments, ensure_ascii=False)
        if isinstance(arguments, str) and arguments.strip():
            return arguments
    return ""


def _content(content: object) -> str:
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "".join(part for part in parts if isinstance(part, str))
    return content if isinstance(content, str) else ""


def _reason(error: Exception, given_s: float) -> tuple[str, Fault]:
    import openai

    if isinstance(error, TimeoutError | openai.APITimeoutError):
        return no_answer(given_s), "late"
    if isinstance(error, ConnectionError | openai.APIConnectionError):
        return "the connection failed", "down"
    status = status_of(error)
    return (_of_status(status), _fault_of_status(status)) if status else ("its answer cannot be read", "answer")


def _fault_of_status(status: int) -> Fault:
    return "down" if status == 429 or status >= 500 else "answer"


def _of_status(status: int) -> str:
    meaning = _MEANINGS.get(status, "the server failed" if status >= 500 else "it refuses the request")
    return f"HTTP {status}, {meaning}"
