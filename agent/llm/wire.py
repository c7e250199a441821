"""Chat models over the network: the openai SDK for servers with OpenAI's API, litellm for other providers.

JSON output is requested in the strictest form the server accepts (`ReplyForm`). A rejected form is remembered, so only
the first call pays for finding out. All attempts of a call, including repairs, share its deadline.
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
# Prefixes that name a server. Other prefixes are part of a model's name, such as "anthropic/..." at a gateway.
_SERVERS = ("openai/", "ollama/", "ollama_chat/", "hosted_vllm/", "lm_studio/", "litellm_proxy/")

_RETRIES = 2
_FIRST_WAIT_S = 0.25
_LONGEST_WAIT_S = 2.0
_LONGEST_ASKED_S = 60.0
_LONGEST_TEXT = 200_000
_LARGEST_WHOLE = 1 << 20
"""Maximum size in bytes of a non-streamed litellm answer; the library reads it more than once."""
_MOST_VALUES = 50_000
"""Maximum number of JSON values in such an answer: litellm creates an object for each, for some of them twice."""
_MOST_CHUNKS = 16
"""Maximum number of stream chunks litellm keeps; the first has the prompt's token count, the last the answer's."""
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
    """Ways to request a JSON reply, strictest first."""

    SCHEMA = 0
    OBJECT = 1
    TOOL = 2
    TEXT = 3


class Wire(Protocol):
    """Sends single requests to a model server, without retries."""

    async def send(self, body: dict[str, Any], timeout_s: float) -> Any:
        """Return the decoded answer to a chat completion.

        Raises:
            ModelFailed: the answer is not JSON or too large.
            openai.OpenAIError: raised by the SDK; errors of its HTTP client may also pass through.
        """
        ...

    def events(self, body: dict[str, Any], timeout_s: float) -> AsyncGenerator[dict[str, Any]]:
        """Yield the decoded chunks of a streamed chat completion; the last is `_DONE` if the server marks the end.

        Raises: as `send`.
        """
        ...

    async def models(self, timeout_s: float) -> list[str] | None:
        """Return the ids of the available models; None if the server does not list them."""
        ...

    async def aclose(self) -> None: ...


class FormRefused(Exception):
    """The server rejects the request in this form.

    `said` (its error text) decides what to change and is never shown.
    """

    def __init__(self, status: int, said: str) -> None:
        super().__init__(f"HTTP {status}")
        self.status, self.said = status, said.lower()


@dataclass(slots=True)
class _CallState:
    """Attempts, retries and usage of one `complete` or `stream` call so far."""

    deadline: float
    started: float = field(default_factory=time.monotonic)
    attempts: int = 0
    retries_left: int = _RETRIES
    usage: CallUsage = field(default_factory=CallUsage)

    def left_s(self) -> float:
        return self.deadline - time.monotonic()


class ChatModel:
    """A chat model; see `agent.llm.model.Model`. It remembers which output forms its server rejects."""

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
        """Yield one answer in pieces; see `Model.stream`. Only failures before the first piece are retried."""
        run = _CallState(deadline)
        given_s = run.left_s()
        if given_s <= 0:
            raise ModelFailed("no time was left for it", fault="late")
        spoken, text, finished = Spoken(thinks_first=self._thinks_first), "", None
        wanted, calls = Options(options), ToolCalls()
        events, event = await self._begin(await cleaned(messages), run, wanted)
        async with aclosing(events):
            while event is not None:
                # Some servers report running totals in every chunk: the last one is the total.
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
        """Check that the server lists the model or, if it lists none, that the model answers a short prompt."""
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
            # A server that accepts a schema and ignores it never showed it to the model.
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
        """Return the text of one answer and the form used; step down while the server rejects the form."""
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
                # Only a success shows that the form was what the server rejected.
                self._rung = max(self._rung, rung)
            return text, rung

    async def _begin(
        self, messages: list[dict[str, Any]], run: _CallState, options: Options
    ) -> tuple[AsyncGenerator[dict[str, Any]], dict[str, Any] | None]:
        """Start a stream and return it with its first event (None if it is empty)."""

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
        """Return the text an event adds and the finish reason once known; add its tool calls to `calls`."""
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
        """Return the output form to try next.

        Raises:
            ModelFailed: the rejection is not about the output form.
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
            # An error without a reason may be about anything; the plainest form settles it fastest.
            return ReplyForm.TEXT
        return ReplyForm(rung + 1)

    def _read(self, data: Any, run: _CallState, *, by_tool: bool) -> str:
        """Return the text of an answer, or the arguments of the tool call if a tool was offered."""
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
            # A truncated answer cannot be repaired: the next answer would be truncated as well.
            raise ModelFailed(_CUT[choice["finish_reason"]])
        text = (_arguments(message.get("tool_calls")) if by_tool else "") or _content(message.get("content"))
        if len(text) > _LONGEST_TEXT:
            raise ModelFailed(f"its answer is longer than {_LONGEST_TEXT:,} characters")
        return text


def open_chat(name: str, *, base_url: str | None, api_key: str | None) -> ChatModel:
    """Open "openai/MODEL", any model name at a `base_url`, or a model of litellm."""
    if base_url or name.startswith(("openai/", *_OPENAI_MODELS)):
        model = next((name.removeprefix(server) for server in _SERVERS if name.startswith(server)), name)
        return ChatModel(name, model, OpenAIWire(base_url, api_key))
    return ChatModel(name, name, LiteLLMWire(api_key))


class OpenAIWire:
    """The openai SDK, for OpenAI and any server with its API."""

    def __init__(self, base_url: str | None, api_key: str | None) -> None:
        self._client = open_openai(base_url, api_key)
        # The SDK imports this module on first use, which would block the event loop for 0.2 s.
        threading.Thread(target=importlib.import_module, args=("openai.resources.chat",), daemon=True).start()

    async def send(self, body: dict[str, Any], timeout_s: float) -> Any:
        """Return the decoded answer; see `Wire.send`."""
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**body, timeout=timeout_s) as response:
            return _decoded(await response.read())

    async def events(self, body: dict[str, Any], timeout_s: float) -> AsyncGenerator[dict[str, Any]]:
        """Yield the decoded chunks; see `Wire.events`."""
        create = self._client.chat.completions.with_streaming_response.create
        async with create(**body, timeout=timeout_s) as response:
            if "event-stream" not in response.headers.get("content-type", ""):
                yield _chunk(await response.read())
                return
            async for line in _lines(response.iter_bytes()):
                if line.startswith(b"data:"):
                    yield _chunk(line.removeprefix(b"data:").strip())

    async def models(self, timeout_s: float) -> list[str] | None:
        """Return the ids of the available models; see `Wire.models`."""
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
    """litellm, for providers with an API of their own.

    It takes seconds to import, so a thread starts the import at once.
    """

    def __init__(self, api_key: str | None, base_url: str | None = None) -> None:
        self._options: dict[str, Any] = {"num_retries": 0, "max_retries": 0}
        self._options |= {"api_key": api_key} if api_key else {}
        self._options |= {"api_base": base_url} if base_url else {}
        # Import this before the thread starts: otherwise the event loop would wait for the thread's import lock.
        importlib.import_module("openai")
        threading.Thread(target=_litellm, daemon=True).start()

    async def send(self, body: dict[str, Any], timeout_s: float) -> Any:
        """Return the decoded answer; see `Wire.send`."""
        litellm = await asyncio.to_thread(_litellm)
        with limits(_LARGEST_WHOLE, _MOST_VALUES):
            answer = await litellm.acompletion(**body, **self._options, timeout=timeout_s)
        data = answer.model_dump()
        cost = (getattr(answer, "_hidden_params", None) or {}).get("response_cost")
        return data | {"usage": {**(data.get("usage") or {}), "cost": cost}}

    async def events(self, body: dict[str, Any], timeout_s: float) -> AsyncGenerator[dict[str, Any]]:
        """Yield the decoded chunks; see `Wire.events`."""
        litellm = await asyncio.to_thread(_litellm)
        stream = await litellm.acompletion(**body, **self._options, timeout=timeout_s)
        stream.chunks = kept = _LastChunks(stream.chunks)
        async for chunk in stream:
            # litellm joins the whole text so far again for each piece.
            stream.response_uptil_now = ""
            event = chunk.model_dump()
            # If the server reports no usage, litellm counts the chunks it kept, which are not all.
            yield event if kept.state_usage else event | {"usage": None}
            await asyncio.sleep(0)  # as in `_lines`
        yield _DONE

    async def models(self, timeout_s: float) -> list[str] | None:
        """Return None: litellm does not list models."""
        return None

    async def aclose(self) -> None:
        """Close litellm's connections, which all its users share."""
        await (await asyncio.to_thread(_litellm)).close_litellm_async_clients()


class _LastChunks(list[Any]):
    """The chunks litellm keeps of a stream: those that report usage, and the last two, which it compares.

    By default it keeps all of them, to join and count them when the stream ends. Thousands of chunks block the event
    loop then, and whenever Python's garbage collector scans them.
    """

    @property
    def state_usage(self) -> bool:
        return any(getattr(chunk, "usage", None) for chunk in self)

    def append(self, chunk: Any) -> None:
        """Add a chunk and drop older ones; some servers report the usage so far in every chunk."""
        if len(self) > 1 and (len(self) >= _MOST_CHUNKS or not getattr(self[-2], "usage", None)):
            del self[-2]
        super().append(chunk)


async def _lines(parts: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
    """Yield the lines of a body. Text after the last line break is not a line."""
    rest: list[bytes] = []
    async for part in parts:
        first, *more = part.split(b"\n")
        rest.append(first)
        for line in more:
            yield b"".join(rest)
            rest = [line]
            # A part may hold thousands of events, and the reader does work for each.
            await asyncio.sleep(0)


def _decoded(content: bytes) -> Any:
    try:
        return parse_json(content)
    except ValueError:
        raise ModelFailed("its answer is not JSON") from None


def _chunk(data: bytes) -> dict[str, Any]:
    """Decode one event of a stream."""
    chunk = _DONE if data == b"[DONE]" else _decoded(data)
    if not isinstance(chunk, dict):
        raise ModelFailed("its answer is no JSON object")
    return chunk


def _litellm() -> Any:
    from retrievers.embed import remote

    return remote._import_litellm()


async def _tried(send: Callable[[float], Awaitable[T]], run: _CallState) -> T:
    """Send a request, with retries while retries and time are left, and return the server's answer.

    Raises:
        Refused: the server may accept the request in another form.
        ModelFailed: no attempt succeeded.
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
        # Leave the SDK's error out of the chain: it may quote the key.
        raise _failed(error, given_s, run.attempts - before) from None
    finally:
        run.retries_left = max(0, run.retries_left - (run.attempts - before - 1))


async def _following(events: AsyncGenerator[dict[str, Any]], run: _CallState, given_s: float) -> dict[str, Any] | None:
    """Return the next event of a started stream; None at its end.

    Raises:
        ModelFailed: the stream broke off, or the deadline passed.
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
        # The HTTP client raises this when a connection ends within a chunk.
        if not of_the_connection(error):
            raise
        raise ModelFailed("its answer broke off", fault="down") from None


def _failed(error: Exception, given_s: float, tries: int = 1) -> ModelFailed:
    reason, fault = _reason(error, given_s)
    reason = f"after {tries} tries: {reason}" if tries > 1 else reason
    return ModelFailed(reason, retry_after_s=retry_after_s(error), fault=fault)


async def _plainly(answer: Awaitable[T]) -> T:
    """Await a wire's answer and sort its errors: pass on those to retry, raise Refused or ModelFailed for the rest."""
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
            # A mistake of the client, such as a header that cannot be encoded.
            raise ModelFailed(f"its client failed ({type(error).__name__})") from None
        status = status_of(error)
        said = json.dumps(getattr(error, "body", None), default=str) + str(error)
        # Some servers fail with 500 on a schema they cannot compile instead of rejecting it.
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
