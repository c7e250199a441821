"""Recordings: a model that writes its answers to a JSONL file, and a model that replays them."""

import json
import threading
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from agent.errors import BadSetting
from agent.llm.call_log import ModelCall
from agent.llm.model import Messages, Model, ModelFailed, Reply
from agent.llm.reply_json import BadReply, parse, strip_reasoning
from agent.types import FinishReason

_SHOWN_QUESTION = 80
_REPLAYED_PIECE = 24
"""Characters per piece when a recorded answer is streamed."""


class ReplayModel:
    """A model that only replays recorded answers. Of two calls with the same stage and key, the later is used.

    Args:
        calls: from a file, a trace or `CallLog.records`.
        name: the name shown in errors and replies.
    """

    def __init__(self, calls: Iterable[ModelCall], name: str = "the recording") -> None:
        self.name = name
        self._calls = {_identity(call.stage, call.key): call for call in calls}

    @classmethod
    def read(cls, path: Path) -> "ReplayModel":
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
        spoken = strip_reasoning(text)
        for start in range(0, len(spoken), _REPLAYED_PIECE):
            yield spoken[start : start + _REPLAYED_PIECE]
        reason: FinishReason = "tool_calls" if call.tool_calls else "stop"
        yield Reply(text, None, call.usage, call.model or self.name, finish_reason=reason, tool_calls=call.tool_calls)

    def _recorded(self, stage: str, key: Mapping[str, Any]) -> tuple[ModelCall, str]:
        """Return the recorded call and its text; raise ModelFailed if there is none."""
        call = self._calls.get(_identity(stage, key))
        if call is None:
            question = str(key.get("question", ""))[:_SHOWN_QUESTION]
            raise ModelFailed(
                f'{self.name} has no reply for stage "{stage}", question "{question}" and the rest of the key'
            )
        if call.text is None:
            raise ModelFailed(call.error or "the call failed when it was recorded")
        return call, call.text

    async def probe(self, deadline: float) -> str:
        """Return a text with the name of the recording and the number of its replies."""
        return f"{self.name}, {len(self._calls)} replies"

    async def aclose(self) -> None:
        """Do nothing: there are no connections."""


class RecordingModel:
    """A model that passes each call on to another model and appends the answer to a recording.

    Args:
        model: the model that answers.
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
        self._append(ModelCall.from_reply(stage, key, reply))
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
                    self._append(ModelCall.from_reply(stage, key, piece))
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


def _identity(stage: str, key: Mapping[str, Any]) -> tuple[str, str]:
    return stage, json.dumps(key, sort_keys=True, ensure_ascii=False, default=str)
