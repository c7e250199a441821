"""Records of the model calls of one request, as traces and recordings store them.

A call is identified by its stage and its key (the question, not the prompt's wording). So a recording stays valid when
a prompt is edited, and a trace can be replayed.
"""

import asyncio
import json
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from agent.llm.model import CallUsage, Messages, Model, ModelFailed, Reply, timeout_reason


@dataclass(slots=True)
class _AttemptCount:
    count: int = 0


# A cancelled call returns nothing, so its attempts are counted in this variable.
_attempts: ContextVar[_AttemptCount | None] = ContextVar("tries", default=None)


def count_attempt() -> None:
    """Count one request to the model's server in the record of the current call."""
    if (tries := _attempts.get()) is not None:
        tries.count += 1


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One model call as kept in a trace or a recording. `text` is None if the call failed; `error` then says why."""

    stage: str
    key: Mapping[str, Any]
    text: str | None
    model: str = ""
    usage: CallUsage = field(default_factory=CallUsage)
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
    def from_reply(cls, stage: str, key: Mapping[str, Any], reply: Reply) -> "ModelCall":
        """Return the record of a call that ended with this reply."""
        return cls(
            stage, key, reply.text, reply.model, reply.usage, reply.attempts, reply.elapsed_ms,
            tool_calls=reply.tool_calls,
        )  # fmt: skip

    @classmethod
    def from_json(cls, data: object) -> "ModelCall":
        """Return a call from the JSON of a recording or a trace.

        Instead of "text", the data may have the JSON value of the answer under "reply". Unknown keys are ignored.

        Raises:
            ValueError: the data does not have this form.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("stage"), str):
            raise ValueError('it is not an object with a "stage"')
        if not isinstance(data.get("key"), Mapping):
            raise ValueError('its "key" is not an object')
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
class CallLog:
    """The model calls of one request, in the order in which they ended."""

    records: list[ModelCall] = field(default_factory=list)

    def logged_model(self, model: Model) -> Model:
        """Return a wrapper of the model that records its calls here."""
        return _LoggedModel(model, self)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the calls as JSON values for a trace."""
        return [call.to_json() for call in self.records]


@dataclass(frozen=True, slots=True)
class _LoggedModel:
    """A model whose calls, failed ones too, are added to `calls`."""

    model: Model
    calls: CallLog

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
        started, tries = time.monotonic(), _AttemptCount()
        outer = _attempts.set(tries)
        try:
            reply = await self.model.complete(messages, stage=stage, deadline=deadline, key=key, schema=schema)
        except BaseException as error:
            self._note_failure(stage, key, error, started, tries)
            raise
        finally:
            _attempts.reset(outer)
        self.calls.records.append(ModelCall.from_reply(stage, key, reply))
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
        started, tries = time.monotonic(), _AttemptCount()
        try:
            stream = self.model.stream(messages, stage=stage, deadline=deadline, key=key, options=options)
            async with aclosing(stream) as pieces:
                # Count tries only until the first piece: later there are none, and the reset in another context fails.
                outer = _attempts.set(tries)
                try:
                    piece = await anext(pieces)
                finally:
                    _attempts.reset(outer)
                while isinstance(piece, str):
                    yield piece
                    piece = await anext(pieces)
        except BaseException as error:
            self._note_failure(stage, key, error, started, tries)
            raise
        self.calls.records.append(ModelCall.from_reply(stage, key, piece))
        yield piece

    def _note_failure(
        self, stage: str, key: Mapping[str, Any], error: BaseException, started: float, tries: _AttemptCount
    ) -> None:
        elapsed_s = time.monotonic() - started
        if isinstance(error, asyncio.CancelledError):
            reason = timeout_reason(elapsed_s)
        elif isinstance(error, GeneratorExit):
            reason = "the caller did not read it to the end"
        else:
            reason = error.reason if isinstance(error, ModelFailed) else type(error).__name__
        elapsed_ms = round(elapsed_s * 1000, 3)
        failed = ModelCall(stage, key, None, self.model.name, attempts=tries.count, elapsed_ms=elapsed_ms, error=reason)
        self.calls.records.append(failed)

    async def probe(self, deadline: float) -> str:
        return await self.model.probe(deadline)

    async def aclose(self) -> None:
        """Do nothing: the model outlives the request."""
