"""What a caller sets of a model's call, what a server takes of it, and the tool calls that come back in pieces."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agent.llm.model import ModelFailed
from retrievers.core.errors import BadRequest

_SAMPLING = ("temperature", "top_p", "seed", "parallel_tool_calls")
"""A request means the same without them."""
_LIMITS = ("max_tokens", "max_completion_tokens")
"""Two names of one limit: servers know the one, the other, or both."""
_LONGEST_ARGUMENTS = 200_000
_MOST_CALLS = 128


class Options:
    """A caller's options of one call, and what is left of them once a server has refused some.

    Attributes:
        values: to be sent, by the names of OpenAI's API.
    """

    def __init__(self, values: Mapping[str, Any] | None) -> None:
        self.values = dict(values or {})
        self._renamed = False

    @property
    def limited(self) -> bool:
        """Whether the caller limits the tokens of the answer."""
        return any(name in self.values for name in _LIMITS)

    def reduce(self, said: str) -> bool:
        """Leave out what a server refuses; False when its refusal names no option.

        Args:
            said: the refusal, in lower case.
        Raises:
            BadRequest: it refuses one that decides what an answer is, such as the tools.
        """
        named = [name for name in self.values if re.search(rf"\b{name}\b", said)]
        limits = [name for name in named if name in _LIMITS]
        # A refusal of one limit names the other: "use max_completion_tokens instead".
        if len(limits) == 1 and not self._renamed and not all(name in self.values for name in _LIMITS):
            self._renamed = True
            self.values[_LIMITS[1 - _LIMITS.index(limits[0])]] = self.values.pop(limits[0])
            return True
        dropped = [name for name in named if name in (*_SAMPLING, *limits[:1])]
        if named and not dropped:
            raise BadRequest(f"the model does not take this {named[0]}", where=named[0])
        for name in dropped:
            del self.values[name]
        return bool(named)


class ToolCalls:
    """The calls of tools in an answer, put together from a stream's pieces."""

    def __init__(self) -> None:
        self._calls: dict[int, _Call] = {}

    def add(self, pieces: object) -> None:
        """Take in what one event of the stream holds of them. A piece that is not of OpenAI's form makes its call one
        of the type `unreadable`.

        Raises:
            ModelFailed: there are too many, or they are too long.
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
            if len(self._calls) > _MOST_CALLS or call.length > _LONGEST_ARGUMENTS:
                raise ModelFailed("its calls of tools are too many or too long")

    def add_legacy(self, call: object) -> None:
        """Take in a `function_call`, the form before tools, which no request here can offer."""
        if call:
            self.add({"function_call": call})

    def made(self) -> tuple[dict[str, Any], ...]:
        """The calls as OpenAI's API has them, in their order, for `agent.answering.tool_calls.permitted` to judge."""
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
    """A call as it comes. Its pieces are joined at the end: each may be one character."""

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
    """What a piece adds to the function of its call; None when it is not of OpenAI's form."""
    if not isinstance(piece, dict) or piece.get("type") not in (None, "", "function"):
        return None
    function = piece.get("function") or {}
    texts = [function.get(name) for name in ("name", "arguments")] if isinstance(function, dict) else [0]
    return function if all(one is None or isinstance(one, str) for one in texts) else None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _whole(text: str) -> str:
    """The text without halves of characters, which no answer can hold; two that came apart belong together."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
