"""The language model as the stages see it: one call with a deadline, and the record of that call.

    model = open_model("openai/gpt-5-mini", api_key=...)
    calls = Calls()
    reply = await calls.watch(model).complete(messages, stage="intent", key=key, deadline=deadline, schema=Form)

A call is identified by its stage and its key (the question, not the prompt's wording). So a recording stays valid when
a prompt is edited, and a trace can be replayed.
"""

import asyncio
import json
import threading
import time
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel

from agent.errors import BadSetting
from agent.llm.json import BadReply, parse, without_thoughts
from agent.types import FinishReason
from retrievers.core.errors import Unavailable
from retrievers.http.found import number

Messages = Sequence[Mapping[str, Any]]
"""Turns of a conversation, each with `role` and `content`; tool turns have the further keys of OpenAI's API."""

Fault = Literal["down", "late", "answer"]

_SHOWN_QUESTION = 80
_MOST_TOKENS = 1 << 40
_REPLAYED_PIECE = 24
"""Characters per piece when a recorded answer is streamed."""


class ModelFailed(Unavailable):
    """The model gave no usable answer; the caller continues without it. The reason never quotes the SDK or the server.

    Attributes:
        fault: `down`: the server is unreachable, fails or is out of quota; `late`: the deadline passed; `answer`:
            anything else, which does not predict how the next call will go.
    """

    def __init__(self, reason: str, *, retry_after_s: float | None = None, fault: Fault = "answer") -> None:
        super().__init__("the model", reason, retry_after_s=retry_after_s)
        self.source, self.fault = "model", fault


@dataclass(slots=True)
class _Tries:
    count: int = 0


# A cancelled call returns nothing, so its attempts are counted in this variable.
_tries: ContextVar[_Tries | None] = ContextVar("tries", default=None)


def begin_try() -> None:
    """Count one request to the model's server in the record of the current call."""
    if (tries := _tries.get()) is not None:
        tries.count += 1


def no_answer(given_s: float) -> str:
    """Return the reason text for a call that did not answer within `given_s` seconds."""
    return f"no answer within {given_s:{'.2g' if given_s < 10 else '.0f'}} s"


@dataclass(frozen=True, slots=True)
class CallUsage:
    """Tokens and cost of a call, including retries as far as the server reports them.

    Attributes:
        cost: US dollars; None if unknown.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None

    def __add__(self, other: "CallUsage") -> "CallUsage":
        costs = [one.cost for one in (self, other) if one.cost is not None]
        return CallUsage(
            self.prompt_tokens + other.prompt_tokens,
            self.completion_tokens + other.completion_tokens,
            sum(costs) if costs else None,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the usage as JSON values."""
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.completion_tokens, "cost": self.cost}

    @classmethod
    def from_json(cls, data: object) -> "CallUsage":
        """Read the usage that a server or a recording states. Invalid token counts become 0, an invalid cost None."""
        given = data if isinstance(data, Mapping) else {}
        prompt, completion, cost = (given.get(key) for key in ("prompt_tokens", "completion_tokens", "cost"))
        cost = number(cost)
        return cls(_count(prompt), _count(completion), cost if cost is not None and cost >= 0 else None)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < _MOST_TOKENS else 0


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer.

    Attributes:
        text: as received, including reasoning and code fences.
        parsed: the reply as an instance of the schema; None without a schema.
        finish_reason: `length` if the caller's own token limit cut the answer.
        tool_calls: in the form of OpenAI's API, whether or not the tools were offered; see
            `agent.answering.tool_calls.permitted`.
        attempts: requests sent, including retries, rejected output forms and the repair.
    """

    text: str
    parsed: Any = None
    usage: CallUsage = CallUsage()
    model: str = ""
    attempts: int = 1
    elapsed_ms: float = 0.0
    finish_reason: FinishReason = "stop"
    tool_calls: tuple[dict[str, Any], ...] = ()


class Model(Protocol):
    """A language model."""

    @property
    def name(self) -> str:
        """The name in the settings; contains no secret."""
        ...

    async def complete(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        schema: type[BaseModel] | None = None,
    ) -> Reply:
        """Return one answer.

        Args:
            stage: the calling stage, such as "intent"; identifies the call together with `key`.
            deadline: `time.monotonic()` time by which the call answers or fails.
            key: the input as JSON values (question, history, date, collection), not the prompt.
            schema: the reply must be one JSON object of this schema; it is returned in `Reply.parsed`.
        Raises:
            ModelFailed: no usable answer before the deadline.
        """
        ...

    def stream(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[str | Reply]:
        """Yield one answer as pieces of text without the reasoning, then the whole Reply.

        Args: as for `complete`; the last piece must arrive before the deadline.
            options: values of `agent.types.ModelOptions`, by name. Sampling options that the model rejects are dropped.
        Raises:
            BadRequest: the model rejects an option that changes the meaning of the answer, such as the tools.
            ModelFailed: no answer, possibly after some pieces: the stream broke off, was cut at the token limit, or was
                late.
        """
        ...

    async def probe(self, deadline: float) -> str:
        """Return one line that says how the model would answer a call; raise ModelFailed if it would not."""
        ...

    async def aclose(self) -> None:
        """Close the connections."""
        ...


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One model call as kept in a trace or a recording. `text` is None if the call failed; `error` then says why."""

    stage: str
    key: Mapping[str, Any]
    text: str | None
    model: str = ""
    usage: CallUsage = CallUsage()
    attempts: int = 0
    elapsed_ms: float = 0.0
    error: str | None = None
    tool_calls: tuple[dict[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the call as JSON values that `from_json` reads."""
        line: dict[str, Any] = {"stage": self.stage, "key": dict(self.key), "text": self.text, "model": self.model}
        line |= {"usage": self.usage.to_json(), "attempts": self.attempts, "elapsed_ms": self.elapsed_ms}
        line |= {"tool_calls": list(self.tool_calls)} if self.tool_calls else {}
        return line | ({"error": self.error} if self.error else {})

    @classmethod
    def from_json(cls, data: object) -> "ModelCall":
        """Read a call from a line of a recording or from a trace. `reply` may replace `text`; unknown keys are ignored.

        Raises:
            ValueError: the data does not have this form.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("stage"), str):
            raise ValueError('it is no object with a "stage"')
        if not isinstance(data.get("key"), Mapping):
            raise ValueError('its "key" is no object')
        text, error = data.get("text"), data.get("error")
        if text is None and data.get("reply") is not None:
            text = json.dumps(data["reply"], ensure_ascii=False)
        if not isinstance(text, str) and not isinstance(error, str):
            raise ValueError('it has neither a "reply" nor a "text"')
        return cls(
            stage=data["stage"],
            key=data["key"],
            text=text if isinstance(text, str) else None,
            model=str(data.get("model") or ""),
            usage=CallUsage.from_json(data.get("usage")),
            error=error if isinstance(error, str) else None,
            tool_calls=tuple(one for one in data.get("tool_calls") or () if isinstance(one, dict)),
        )


@dataclass(slots=True)
class Calls:
    """The model calls of one request, in the order in which they ended."""

    records: list[ModelCall] = field(default_factory=list)

    def watch(self, model: Model) -> Model:
        """Return a wrapper of the model that records its calls here."""
        return _Watched(model, self)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the calls as JSON values for a trace."""
        return [call.to_json() for call in self.records]


@dataclass(frozen=True, slots=True)
class _Watched:
    model: Model
    calls: Calls

    @property
    def name(self) -> str:
        return self.model.name

    async def complete(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        schema: type[BaseModel] | None = None,
    ) -> Reply:
        started, tries = time.monotonic(), _Tries()
        outer = _tries.set(tries)
        try:
            reply = await self.model.complete(messages, stage=stage, deadline=deadline, key=key, schema=schema)
        except BaseException as error:
            self._note_failure(stage, key, error, started, tries)
            raise
        finally:
            _tries.reset(outer)
        self.calls.records.append(_call(stage, key, reply))
        return reply

    async def stream(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[str | Reply]:
        started, tries = time.monotonic(), _Tries()
        try:
            stream = self.model.stream(messages, stage=stage, deadline=deadline, key=key, options=options)
            async with aclosing(stream) as pieces:
                # Retries happen only before the first piece, and later pieces may be read in another context.
                outer = _tries.set(tries)
                try:
                    piece = await anext(pieces)
                finally:
                    _tries.reset(outer)
                while isinstance(piece, str):
                    yield piece
                    piece = await anext(pieces)
        except BaseException as error:
            self._note_failure(stage, key, error, started, tries)
            raise
        self.calls.records.append(_call(stage, key, piece))
        yield piece

    def _note_failure(
        self, stage: str, key: Mapping[str, Any], error: BaseException, started: float, tries: _Tries
    ) -> None:
        elapsed_s = time.monotonic() - started
        if isinstance(error, asyncio.CancelledError):
            reason = no_answer(elapsed_s)
        elif isinstance(error, GeneratorExit):
            reason = "nobody read it to its end"
        else:
            reason = error.reason if isinstance(error, ModelFailed) else type(error).__name__
        elapsed_ms = round(elapsed_s * 1000, 3)
        failed = ModelCall(stage, key, None, self.model.name, attempts=tries.count, elapsed_ms=elapsed_ms, error=reason)
        self.calls.records.append(failed)

    async def probe(self, deadline: float) -> str:
        return await self.model.probe(deadline)

    async def aclose(self) -> None:
        """Do nothing: the model outlives the request."""


class Recorded:
    """A model that replays recorded answers only. If two calls have the same key, the later recording is used.

    Args:
        calls: from a file, a trace or `Calls.records`.
        name: the name shown in errors and replies.
    """

    def __init__(self, calls: Iterable[ModelCall], name: str = "the recording") -> None:
        self.name = name
        self._calls = {_identity(call.stage, call.key): call for call in calls}

    @classmethod
    def read(cls, path: Path) -> "Recorded":
        """Read a JSONL recording with one call per line.

        Raises:
            BadSetting: the file cannot be read, or a line is not a call; the message gives the line number.
        """
        try:
            lines = path.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"the recording {path} cannot be read: {error}", where="llm") from error
        calls = []
        for place, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                calls.append(ModelCall.from_json(json.loads(line)))
            except (ValueError, RecursionError) as error:
                raise BadSetting(f"the recording {path}, line {place}: {error}", where="llm") from error
        return cls(calls, f"the recording {path}")

    async def complete(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        schema: type[BaseModel] | None = None,
    ) -> Reply:
        """Return the recorded answer; see `Model.complete`."""
        call, text = self._recorded(stage, key)
        try:
            parsed = parse(text, schema) if schema else None
        except BadReply as error:
            raise ModelFailed(f"its reply cannot be used: {error.reason}") from None
        return Reply(text, parsed, call.usage, call.model or self.name)

    async def stream(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[str | Reply]:
        """Yield the recorded answer in pieces; see `Model.stream`."""
        call, text = self._recorded(stage, key)
        spoken = without_thoughts(text)
        for start in range(0, len(spoken), _REPLAYED_PIECE):
            yield spoken[start : start + _REPLAYED_PIECE]
        reason: FinishReason = "tool_calls" if call.tool_calls else "stop"
        yield Reply(text, None, call.usage, call.model or self.name, finish_reason=reason, tool_calls=call.tool_calls)

    def _recorded(self, stage: str, key: Mapping[str, Any]) -> tuple[ModelCall, str]:
        """Return the recorded call and its text; raise ModelFailed if there is none."""
        call = self._calls.get(_identity(stage, key))
        if call is None:
            question = str(key.get("question", ""))[:_SHOWN_QUESTION]
            raise ModelFailed(f'{self.name} has no reply for stage "{stage}", question "{question}" and its other keys')
        if call.text is None:
            raise ModelFailed(call.error or "it failed when it was recorded")
        return call, call.text

    async def probe(self, deadline: float) -> str:
        """Return the name and the number of recorded replies."""
        return f"{self.name}, {len(self._calls)} replies"

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


class Recorder:
    """A model that also appends its answers to a recording.

    Args:
        path: JSONL file, created if missing; one line per answer.
    """

    def __init__(self, model: Model, path: Path) -> None:
        self.name = model.name
        self._model, self._path = model, path
        self._lock = threading.Lock()
        try:
            path.open("a", encoding="utf-8").close()
        except OSError as error:
            raise BadSetting(f"the recording {path} cannot be written: {error}", where="llm") from error

    async def complete(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        schema: type[BaseModel] | None = None,
    ) -> Reply:
        """Return the model's answer and record it; failures are not recorded. See `Model.complete`."""
        reply = await self._model.complete(messages, stage=stage, deadline=deadline, key=key, schema=schema)
        self._append(_call(stage, key, reply))
        return reply

    async def stream(
        self,
        messages: Messages,
        *,
        stage: str,
        deadline: float,
        key: Mapping[str, Any],
        options: Mapping[str, Any] | None = None,
    ) -> AsyncGenerator[str | Reply]:
        """Yield the model's answer and record the complete Reply; failures are not recorded. See `Model.stream`."""
        stream = self._model.stream(messages, stage=stage, deadline=deadline, key=key, options=options)
        async with aclosing(stream) as pieces:
            async for piece in pieces:
                if isinstance(piece, Reply):
                    self._append(_call(stage, key, piece))
                yield piece

    def _append(self, call: ModelCall) -> None:
        # A model may write half of a surrogate pair, which UTF-8 cannot encode.
        line = json.dumps(call.to_json(), ensure_ascii=False).encode(errors="replace") + b"\n"
        try:
            with self._lock, self._path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise ModelFailed(f"the recording {self._path} cannot be written: {error.strerror}") from error

    async def probe(self, deadline: float) -> str:
        """Return the model's own probe text and the path of the recording."""
        return f"{await self._model.probe(deadline)}; recorded in {self._path}"

    async def aclose(self) -> None:
        """Close the model."""
        await self._model.aclose()


def open_model(name: str | None, *, base_url: str | None = None, api_key: str | None = None) -> Model | None:
    """Open the model that a setting names; return None if the name is empty. No request is sent.

    Args:
        name: "openai/MODEL", any model name with `base_url`, a litellm model string ("anthropic/...", "ollama/..."),
            "replay:FILE" or "record:FILE=MODEL".
        base_url: an OpenAI-compatible endpoint, including "/v1".
    Raises:
        BadSetting: the name or address is invalid, or the recording cannot be opened.
    """
    if not name:
        return None
    kind, _, rest = name.partition(":")
    if kind == "replay" and rest:
        return Recorded.read(Path(rest).expanduser())
    if kind == "record" and rest:
        path, _, recorded = rest.rpartition("=")
        if not path or not recorded or recorded.startswith(("record:", "replay:")):
            raise BadSetting("LLM: write record:FILE=MODEL", where="llm")
        model = open_model(recorded, base_url=base_url, api_key=api_key)
        assert model is not None  # rpartition left a name
        return Recorder(model, Path(path).expanduser())
    if base_url and not base_url.startswith(("http://", "https://")):
        raise BadSetting("LLM_BASE_URL must begin with http:// or https://", where="llm_base_url")
    from agent.llm.wire import open_chat

    return open_chat(name, base_url=base_url, api_key=api_key)


def _call(stage: str, key: Mapping[str, Any], reply: Reply) -> ModelCall:
    return ModelCall(
        stage, key, reply.text, reply.model, reply.usage, reply.attempts, reply.elapsed_ms,
        tool_calls=reply.tool_calls,
    )  # fmt: skip


def _identity(stage: str, key: Mapping[str, Any]) -> tuple[str, str]:
    return stage, json.dumps(key, sort_keys=True, ensure_ascii=False, default=str)
