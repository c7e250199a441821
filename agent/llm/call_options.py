"""The options of a model call, reduced to those that the server accepts, and tool calls assembled from a stream."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from retrievers.core.errors import BadRequest

_SAMPLING = ("temperature", "top_p", "seed", "parallel_tool_calls")
"""Options that may be dropped without changing the meaning of a request."""
_LIMITS = ("max_tokens", "max_completion_tokens")
"""Two names of the same limit: a server may accept either or both."""
LONGEST_ARGUMENTS = 200_000
MOST_CALLS = 128
_TEXTS = {"function": "arguments", "custom": "input"}
"""The key of the arguments in OpenAI's API, by type of tool."""


class CallOptions:
    """A caller's options of one call, reduced whenever the server rejects some.

    Attributes:
        values: options to send, under the names of OpenAI's API.
    """

    def __init__(self, values: Mapping[str, Any] | None) -> None:
        self.values = dict(values or {})
        self._renamed = False

    @property
    def limits_tokens(self) -> bool:
        """True if the caller limits the tokens of the answer."""
        return any(name in self.values for name in _LIMITS)

    def drop_rejected(self, error_text: str) -> bool:
        """Drop or rename the options a server rejects; return False if its error text names no option.

        Args:
            said: the server's error text, in lower case.
        Raises:
            BadRequest: the server rejects an option that changes the meaning of the answer, such as the tools.
        """
        named = [name for name in self.values if re.search(rf"\b{name}\b", error_text)]
        limits = [name for name in named if name in _LIMITS]
        # The error about one limit names the other one too: "use max_completion_tokens instead".
        if len(limits) == 1 and not self._renamed and not all(name in self.values for name in _LIMITS):
            self._renamed = True
            self.values[_LIMITS[1 - _LIMITS.index(limits[0])]] = self.values.pop(limits[0])
            return True
        dropped = [name for name in named if name in (*_SAMPLING, *limits[:1])]
        if named and not dropped:
            raise BadRequest(f"the model does not accept the option {named[0]}", where=named[0])
        for name in dropped:
            del self.values[name]
        return bool(named)


class ToolCallAssembler:
    """Assemble an answer's tool calls from the pieces of a stream.

    Attributes:
        is_over: True once there are too many calls, or one is too long; the rest of the stream need not be read.
    """

    def __init__(self) -> None:
        self.is_over_limit = False
        self._calls: list[_Call] = []
        self._open: dict[int | str, _Call] = {}

    def add(self, pieces: object) -> None:
        """Add the tool-call pieces of a stream event to their calls.

        A piece belongs to the call with the same index. A piece without an index belongs to the call of an earlier
        event with the same id or, if it has only extra content, to the last call. A call gets the type "unreadable" if
        one of its pieces is not in OpenAI's form or has another id, or if a limit is exceeded. All pieces whose index
        is no integer form one unreadable call.
        """
        before = len(self._calls)
        for place, piece in enumerate(pieces if isinstance(pieces, list) else [pieces] if pieces else []):
            index = piece.get("index") if isinstance(piece, dict) else ""
            number = place if index is None else index if type(index) is int else "no integer"
            read = None if number == "no integer" else _read(piece)
            call = (self._named(read, before) if read and index is None else None) or self._open.get(number)
            if call is None or (read is not None and call.is_followed_by(read)):
                call = self._open[number] = _Call(type=(read.type or "function") if read else "unreadable")
                self._calls.append(call)
            call.add(read)
            if len(self._calls) > MOST_CALLS or call.length > LONGEST_ARGUMENTS:
                self.is_over_limit, call.type, call.arguments = True, "unreadable", []
                return

    def _named(self, piece: "_Piece", before: int) -> "_Call | None":
        """Return the call that a piece without an index belongs to, or None; `before` calls are of older events."""
        if piece.id:
            return next((one for one in reversed(self._calls[:before]) if one.id == piece.id), None)
        return self._calls[-1] if self._calls and piece.is_extra else None

    def add_legacy(self, call: object) -> None:
        """Add a `function_call` (older than tool calls) as a call without a name; no request offers functions."""
        if call:
            self.add({"function_call": call})

    def assembled_calls(self) -> tuple[dict[str, Any], ...]:
        """Return the assembled calls in OpenAI's form, in order; `agent.answering.tool_call_check` checks them."""
        return tuple(
            {"id": _whole(call.id) or f"call_{number}", "type": call.type, **call.content()}
            for number, call in enumerate(self._calls)
        )


@dataclass(frozen=True, slots=True)
class _Piece:
    """A piece of a tool call; `type` is "" if it states none. `arguments` is also the input of a custom tool."""

    id: str
    type: str
    name: str
    arguments: str
    extra: dict[str, Any] | None

    @property
    def is_extra(self) -> bool:
        """True if the piece holds nothing but extra content."""
        return self.extra is not None and not (self.id or self.name or self.arguments)


@dataclass(slots=True)
class _Call:
    """A tool call while its pieces arrive. The pieces are joined only at the end because each may be one character."""

    type: str
    id: str = ""
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    length: int = 0
    extra: dict[str, Any] | None = None

    def add(self, piece: _Piece | None) -> None:
        if piece is None or piece.type not in ("", self.type) or (piece.id and self.id not in ("", piece.id)):
            self.type = "unreadable"
            return
        self.id = self.id or piece.id
        self.extra = self.extra if piece.extra is None else piece.extra
        # Some servers repeat the whole name in every piece.
        if piece.name and self.name != [piece.name]:
            self.name.append(piece.name)
            self.length += len(piece.name)
        if piece.arguments:
            self.arguments.append(piece.arguments)
            self.length += len(piece.arguments)

    def is_followed_by(self, piece: _Piece) -> bool:
        """Return whether this call is complete and the piece begins another call.

        Some servers send whole calls one after the other under the same index or without one.
        """
        # Without ids, check only a call of one piece: parsing the arguments again after each piece would be slow.
        is_other = piece.id != self.id if piece.id else len(self.arguments) == 1 and bool(piece.arguments.strip())
        return bool(piece.name) and is_other and self._is_whole(by_id=bool(piece.id))

    def _is_whole(self, *, by_id: bool) -> bool:
        if self.type != "function":
            return by_id and self.type == "custom"
        try:
            return isinstance(json.loads("".join(self.arguments)), dict)
        except (ValueError, RecursionError):
            return False

    def content(self) -> dict[str, dict[str, Any]]:
        """Return the name, the arguments and any extra content in OpenAI's form."""
        kind = "custom" if self.type == "custom" else "function"
        called = {kind: {"name": _whole("".join(self.name)), _TEXTS[kind]: _whole("".join(self.arguments))}}
        return called if self.extra is None else {**called, "extra_content": self.extra}


def _read(piece: Any) -> _Piece | None:
    """Return the content of a piece; None if it is not in OpenAI's form."""
    kind = piece.get("type")
    if kind in (None, ""):
        kind = next((one for one in _TEXTS if piece.get(one) is not None), "")
    content = piece.get(kind) or {} if kind in ("", *_TEXTS) else None
    if not isinstance(content, dict):
        return None
    name, text = content.get("name") or "", content.get(_TEXTS.get(kind)) or ""
    if not isinstance(name, str) or not isinstance(text, str):
        return None
    return _Piece(_text(piece.get("id")), kind, name, text, _extra(piece.get("extra_content")))


def _extra(value: object) -> dict[str, Any] | None:
    """Return extra content if it is a JSON object that can be encoded and is not too long; else None."""
    if not isinstance(value, dict):
        return None
    try:
        # Encode it as deep as it will be in an answer, so that the encoder's limit on depth applies to that.
        text = to_json([[[[[[[[value]]]]]]]])[8:-8]
    except ValueError:
        return None
    return json.loads(text) if len(text) <= LONGEST_ARGUMENTS else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(text: str) -> str:
    """Join surrogate pairs that arrived in two pieces and replace single halves, which cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
