"""JSON from a model's words: what was thought aloud, fences and chatter around it are taken off."""

import json
import math
import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from typing import Any, Literal, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

S = TypeVar("S", bound=BaseModel)

_TAG_NAMES = ("think", "thinking", "thought", "reasoning")
_TAG = f"(?:{'|'.join(_TAG_NAMES)})"
_LONGEST_TAG = max(map(len, _TAG_NAMES)) + len("</>")
_OPENING_TAGS = tuple(f"<{name}>" for name in _TAG_NAMES)
_THOUGHT_BEGINS = re.compile(rf"<{_TAG}>", re.IGNORECASE)
_THOUGHT_ENDS = re.compile(rf"</{_TAG}>", re.IGNORECASE)
# Only before the answer: inside it the tags may be what the question is about. Some servers put the opening
# tag into the prompt, and an answer cut short has no closing one.
_THOUGHTS = re.compile(rf"\A\s*(?:<{_TAG}>.*?</{_TAG}>\s*)+", re.DOTALL | re.IGNORECASE)
_THOUGHTS_END = re.compile(rf"\A.*</{_TAG}>", re.DOTALL | re.IGNORECASE)
_NOTHING_ELSE = re.compile(rf"\A\s*<{_TAG}>.*\Z", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)

_MOST_BRACES = 64
_MOST_FENCES = 8
_MOST_PROBLEMS = 5
# OpenAI's strict mode knows only a part of JSON Schema, and what it does not know is refused. Our own
# check of the reply sees to the rest.
_LEFT_OUT = frozenset(
    {"title", "default", "examples", "format", "pattern", "minLength", "maxLength", "minimum", "maximum",
     "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems",
     "minProperties", "maxProperties"}
)  # fmt: skip


class BadReply(ValueError):
    """A reply that cannot be used.

    Attributes:
        prose: it holds no JSON at all.
    """

    def __init__(self, reason: str, *, prose: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.prose = reason, prose


def without_thoughts(text: str) -> str:
    """The answer without what the model thought aloud before it."""
    text = _THOUGHTS.sub("", text.removeprefix("\ufeff"))
    return _NOTHING_ELSE.sub("", _THOUGHTS_END.sub("", text)).strip()


class Spoken:
    """What of a reply that comes in pieces is the answer: `without_thoughts` for streams.

    Args:
        thinks_first: the model begins with thoughts that no opening tag marks, so all is held back until they end.
    """

    def __init__(self, *, thinks_first: bool = False) -> None:
        self._held = ""
        self._thoughts: list[str] = []
        self._unmarked = thinks_first
        self._state: Literal["beginning", "thinking", "speaking"] = "thinking" if thinks_first else "beginning"

    def feed(self, piece: str) -> str:
        """What can be said of the answer now, "" while it is not clear that it has begun."""
        if self._state == "speaking":
            return piece
        self._held += piece
        while True:
            if self._state == "thinking":
                ended = _THOUGHT_ENDS.search(self._held)
                if ended is None:
                    # A tag may come in two pieces. What cannot be a part of it is not looked at again.
                    self._thoughts.append(self._held[:-_LONGEST_TAG])
                    self._held = self._held[-_LONGEST_TAG:]
                    return ""
                self._held, self._unmarked, self._state = self._held[ended.end() :], False, "beginning"
                self._thoughts.clear()
            self._held = self._held.lstrip("\ufeff \t\r\n")
            if not _THOUGHT_BEGINS.match(self._held):
                break
            self._state = "thinking"
        if not self._held or any(tag.startswith(self._held.lower()) for tag in _OPENING_TAGS):
            return ""
        self._state = "speaking"
        return self._flushed()

    def end(self) -> str:
        """What was held back and is part of the answer after all."""
        if self._state == "thinking":
            return "".join(self._thoughts) + self._held if self._unmarked else ""
        return self._flushed()

    def _flushed(self) -> str:
        held, self._held = self._held, ""
        return held


def ends_unmarked_thoughts(text: str) -> bool:
    """Whether a reply begins with thoughts that only a closing tag shows to be some."""
    text = text.removeprefix("\ufeff").lstrip()
    return not _THOUGHT_BEGINS.match(text) and _THOUGHTS_END.match(text) is not None


def json_in(text: str, *, finite: bool = True) -> Any:
    """The JSON value in a reply: the whole of it, in a fence, or the first object between other words.

    Args:
        finite: NaN, Infinity and numbers too large for a double are refused; else they are floats.
    Raises:
        BadReply: there is none, or it is cut short.
    """
    decoder = _FINITE if finite else _ANY
    answer = without_thoughts(text)
    if not answer:
        raise BadReply("it is empty", prose=True)
    for candidate in (text.strip(), answer, *(found[1] for found in islice(_FENCE.finditer(answer), _MOST_FENCES))):
        try:
            value = decoder.decode(candidate)
        except (_NotFinite, RecursionError):
            raise BadReply("it holds NaN, an infinite number or too many levels") from None
        except ValueError:
            continue
        # Arguments of a tool call are sometimes encoded twice.
        return json_in(value, finite=finite) if isinstance(value, str) and "{" in value else value
    return _first_object(answer, decoder)


def parse(text: str, schema: type[S]) -> S:
    """A reply as its schema. A schema with `tolerant = True` judges its parts itself, NaN among them.

    Raises:
        BadReply: no JSON, or not of the schema; the reason names the fields and repeats no value.
    """
    value = json_in(text, finite=not getattr(schema, "tolerant", False))
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise BadReply(_readable(error)) from None
    except RecursionError:
        raise BadReply("it has too many levels") from None


@cache
def strict_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema in the form that strict structured output asks for: all keys required, no others."""
    strict: dict[str, Any] = _strict(schema.model_json_schema())
    return strict


def _strict(node: Any) -> Any:
    if isinstance(node, list):
        return [_strict(item) for item in node]
    if not isinstance(node, dict):
        return node
    properties = node.get("properties")
    kept = {key: _strict(value) for key, value in node.items() if key not in _LEFT_OUT and key != "properties"}
    if isinstance(properties, dict):
        # Below it the keys are names of fields, which may be spelled like a keyword.
        kept["properties"] = {name: _strict(value) for name, value in properties.items()}
        kept |= {"required": list(properties), "additionalProperties": False}
    return kept


class _NotFinite(Exception):
    """No ValueError: it ends the search for JSON instead of going on elsewhere in the text."""


def _refuse(_: str) -> NoReturn:
    raise _NotFinite


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


_FINITE = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
_ANY = json.JSONDecoder()


def _first_object(text: str, decoder: json.JSONDecoder) -> Any:
    for start in _braces(text):
        try:
            value, _ = decoder.raw_decode(text, start)
        except (_NotFinite, RecursionError):
            raise BadReply("it holds NaN, an infinite number or too many levels") from None
        except json.JSONDecodeError as error:
            if error.pos > start + 1 + len(text[start + 1 :]) - len(text[start + 1 :].lstrip()):
                # It began as JSON. An object further inside must not be taken for the whole.
                raise BadReply(f"its JSON is broken or cut short at character {error.pos}") from None
        except ValueError:
            raise BadReply("it holds a number of too many digits") from None
        else:
            # Chatter about code may hold empty braces.
            if value:
                return value
    raise BadReply("it holds no JSON object", prose=True)


def _braces(text: str) -> Iterator[int]:
    start = -1
    for _ in range(_MOST_BRACES):
        start = text.find("{", start + 1)
        if start < 0:
            return
        yield start


def _readable(error: ValidationError) -> str:
    problems = error.errors(include_input=False, include_url=False, include_context=False)
    shown = "; ".join(
        f"{'.'.join(str(part)[:40] for part in one['loc'][:6]) or 'the reply'}: {one['msg'][:120]}"
        for one in problems[:_MOST_PROBLEMS]
    )
    more = len(problems) - _MOST_PROBLEMS
    return shown + (f"; and {more} more" if more > 0 else "")
