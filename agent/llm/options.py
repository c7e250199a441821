"""A caller's options of a model call, those a server accepts, and tool calls assembled from a stream."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from retrievers.core.errors import BadRequest

_SAMPLING = ("temperature", "top_p", "seed", "parallel_tool_calls")
"""Options that may be dropped without changing the meaning of a request."""
_LIMITS = ("max_tokens", "max_completion_tokens")
"""Two names of the same limit: a server may accept either or both."""
LONGEST_ARGUMENTS = 200_000
MOST_CALLS = 128


class Options:
    """A caller's options of one call, reduced whenever the server rejects some.

    Attributes:
        values: options to send, under the names of OpenAI's API.
    """

    def __init__(self, values: Mapping[str, Any] | None) -> None:
        self.values = dict(values or {})
        self._renamed = False

    @property
    def limited(self) -> bool:
        """True if the caller limits the tokens of the answer."""
        return any(name in self.values for name in _LIMITS)

    def reduce(self, said: str) -> bool:
        """Drop or rename the options a server rejects; return False if its error text names no option.

        Args:
            said: the server's error text, in lower case.
        Raises:
            BadRequest: the server rejects an option that changes the meaning of the answer, such as the tools.
        """
        named = [name for name in self.values if re.search(rf"\b{name}\b", said)]
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


class ToolCalls:
    """Assemble an answer's tool calls from the pieces of a stream.

    Attributes:
        is_over: True once there are too many calls, or one is too long; the rest of the stream need not be read.
    """

    def __init__(self) -> None:
        self.is_over = False
        self._calls: dict[int, _Call] = {}

    def add(self, pieces: object) -> None:
        """Add the tool-call pieces of a stream event.

        A piece not in OpenAI's form makes its call `unreadable`, and so does a call beyond the limits.
        """
        for place, piece in enumerate(pieces if isinstance(pieces, list) else [pieces] if pieces else []):
            index = piece.get("index") if isinstance(piece, dict) else None
            number = index if isinstance(index, int) else place
            call = self._calls.setdefault(number, _Call())
            if (function := _function(piece)) is None:
                call.type = "unreadable"
            else:
                call.id = call.id or _text(piece.get("id"))
                call.add(function.get("name") or "", function.get("arguments") or "")
            if len(self._calls) > MOST_CALLS or call.length > LONGEST_ARGUMENTS:
                self.is_over, call.type, call.arguments = True, "unreadable", []
                return

    def add_legacy(self, call: object) -> None:
        """Add a `function_call`, the form used before tools; no request here can offer it."""
        if call:
            self.add({"function_call": call})

    def made(self) -> tuple[dict[str, Any], ...]:
        """Return the calls in OpenAI's form, in order; `agent.answering.tool_calls.permitted` checks them."""
        return tuple(
            {
                "id": _whole(call.id) or f"call_{number}",
                "type": call.type,
                "function": {"name": _whole("".join(call.name)), "arguments": _whole("".join(call.arguments))},
            }
            for number, call in sorted(self._calls.items())
        )


@dataclass(slots=True)
class _Call:
    """A tool call while its pieces arrive. The pieces are joined only at the end because each may be one character."""

    id: str = ""
    type: str = "function"
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    length: int = 0

    def add(self, name: str, arguments: str) -> None:
        self.name.append(name)
        self.arguments.append(arguments)
        self.length += len(name) + len(arguments)


def _function(piece: Any) -> dict[str, Any] | None:
    """Return a piece's `function` object; None if the piece is not in OpenAI's form."""
    if not isinstance(piece, dict) or piece.get("type") not in (None, "", "function"):
        return None
    function = piece.get("function") or {}
    texts = [function.get(name) for name in ("name", "arguments")] if isinstance(function, dict) else [0]
    return function if all(one is None or isinstance(one, str) for one in texts) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(text: str) -> str:
    """Join surrogate pairs that arrived in two pieces and replace single halves, which cannot be encoded."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
