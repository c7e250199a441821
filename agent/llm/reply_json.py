"""Read JSON from a model's reply: strip reasoning, code fences and surrounding words, then parse and validate."""

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
# Only at the start of the reply: later, the tags may be what the question is about. Some servers put the opening tag
# into the prompt, and a truncated reply has no closing tag.
_THOUGHTS = re.compile(rf"\A\s*(?:<{_TAG}>.*?</{_TAG}>\s*)+", re.DOTALL | re.IGNORECASE)
_THOUGHTS_END = re.compile(rf"\A.*</{_TAG}>", re.DOTALL | re.IGNORECASE)
_NOTHING_ELSE = re.compile(rf"\A\s*<{_TAG}>.*\Z", re.DOTALL | re.IGNORECASE)
_FENCE = re.compile(r"```[\w-]*[ \t]*\n(.*?)(?:```|\Z)", re.DOTALL)

_MOST_BRACES = 64
_MOST_FENCES = 8
_MOST_PROBLEMS = 5
# Keywords that OpenAI's strict mode may reject. Our own validation of the reply enforces them.
_LEFT_OUT = frozenset(
    {"title", "default", "examples", "format", "pattern", "minLength", "maxLength", "minimum", "maximum",
     "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems", "uniqueItems",
     "minProperties", "maxProperties"}
)  # fmt: skip


class BadReply(ValueError):
    """A reply that cannot be used.

    Attributes:
        reason: why, without quoting the reply.
        prose: True if the reply contains no JSON at all.
    """

    def __init__(self, reason: str, *, prose: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.prose = reason, prose


def strip_reasoning(text: str) -> str:
    """Return the answer without the reasoning before it, stripped of white space at its ends.

    Reasoning is what stands in `<think>` or similar tags at the start. Without an opening tag at the start it is
    everything up to the last closing tag; without a closing tag it is the whole text.
    """
    text = text.removeprefix("\ufeff")
    answer = _THOUGHTS.sub("", text)
    if answer == text:
        answer = _THOUGHTS_END.sub("", text)
    return _NOTHING_ELSE.sub("", answer).strip()


class ReasoningFilter:
    """Removes the reasoning from a reply that arrives in pieces, as `strip_reasoning` does from a whole one.

    Args:
        thinks_first: the model starts with reasoning that has no opening tag; hold back everything until the closing
            tag.
    """

    def __init__(self, *, thinks_first: bool = False) -> None:
        self._held = ""
        self._thoughts: list[str] = []
        self._unmarked = thinks_first
        self._state: Literal["beginning", "thinking", "speaking"] = "thinking" if thinks_first else "beginning"

    def feed(self, piece: str) -> str:
        """Take the next piece; return the answer text that is certain so far, "" while it may be reasoning."""
        if self._state == "speaking":
            return piece
        self._held += piece
        while True:
            if self._state == "thinking":
                ended = _THOUGHT_ENDS.search(self._held)
                if ended is None:
                    # A tag may be split over two pieces, so keep only a tail that could be part of a tag and do not
                    # search the rest again.
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
        """Return the text that was held back and belongs to the answer, once the stream has ended."""
        if self._state == "thinking":
            return "".join(self._thoughts) + self._held if self._unmarked else ""
        return self._flushed()

    def _flushed(self) -> str:
        held, self._held = self._held, ""
        return held


def has_unopened_reasoning(text: str) -> bool:
    """Return whether a reply starts with reasoning that has a closing tag but no opening tag."""
    text = text.removeprefix("\ufeff").lstrip()
    return not _THOUGHT_BEGINS.match(text) and _THOUGHTS_END.match(text) is not None


def extract_json(text: str, *, finite: bool = True) -> Any:
    """Return the JSON value in a reply: the whole reply, the content of a code fence, or the first object in the text.

    Args:
        finite: reject NaN, Infinity and numbers too large for a double; otherwise they become floats.
    Raises:
        BadReply: the reply holds no JSON, or its JSON is cut short.
    """
    decoder = _FINITE if finite else _ANY
    answer = strip_reasoning(text)
    if not answer:
        raise BadReply("it is empty", prose=True)
    for candidate in (text.strip(), answer, *(found[1] for found in islice(_FENCE.finditer(answer), _MOST_FENCES))):
        try:
            value = decoder.decode(candidate)
        except (_NotFinite, RecursionError):
            raise BadReply("it contains NaN, an infinite number or too many levels") from None
        except ValueError:
            continue
        # Some models encode the arguments of a tool call twice.
        return extract_json(value, finite=finite) if isinstance(value, str) and "{" in value else value
    return _first_object(answer, decoder)


def parse(text: str, schema: type[S]) -> S:
    """Return a reply as an instance of the schema.

    NaN and infinite numbers are refused, except for a schema with `tolerant = True`, which checks them itself.

    Raises:
        BadReply: no JSON, or it does not match the schema. The reason names the fields and never quotes a value.
    """
    value = extract_json(text, finite=not getattr(schema, "tolerant", False))
    try:
        return schema.model_validate(value)
    except ValidationError as error:
        raise BadReply(_readable(error)) from None
    except RecursionError:
        raise BadReply("it has too many levels") from None


@cache
def strict_schema(schema: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema as strict structured output requires it: every key required, no additional keys."""
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
        # The keys of `properties` are field names, which may be spelled like a keyword.
        kept["properties"] = {name: _strict(value) for name, value in properties.items()}
        kept |= {"required": list(properties), "additionalProperties": False}
    return kept


class _NotFinite(Exception):
    """A number is NaN or infinite. It is no ValueError, because after those the search goes on at the next brace."""


def _refuse(_: str) -> NoReturn:
    raise _NotFinite


def _finite(digits: str) -> float:
    number = float(digits)
    return number if math.isfinite(number) else _refuse(digits)


_FINITE = json.JSONDecoder(parse_constant=_refuse, parse_float=_finite)
_ANY = json.JSONDecoder()


def _first_object(text: str, decoder: json.JSONDecoder) -> Any:
    """Return the first JSON object in a text that is not empty; raise BadReply if there is none or it is broken."""
    for start in _braces(text):
        try:
            value, _ = decoder.raw_decode(text, start)
        except (_NotFinite, RecursionError):
            raise BadReply("it contains NaN, an infinite number or too many levels") from None
        except json.JSONDecodeError as error:
            if error.pos > start + 1 + len(text[start + 1 :]) - len(text[start + 1 :].lstrip()):
                # It began as JSON, so an object further inside must not be taken for the whole reply.
                raise BadReply(f"its JSON is broken or cut short at character {error.pos}") from None
        except ValueError:
            raise BadReply("it contains a number with too many digits") from None
        else:
            # Text about code may contain empty braces.
            if value:
                return value
    raise BadReply("it contains no JSON object", prose=True)


def _braces(text: str) -> Iterator[int]:
    start = -1
    for _ in range(_MOST_BRACES):
        start = text.find("{", start + 1)
        if start < 0:
            return
        yield start


def _readable(error: ValidationError) -> str:
    """Return the first problems as "field: message", without values of the reply."""
    problems = error.errors(include_input=False, include_url=False, include_context=False)
    shown = "; ".join(
        f"{'.'.join(str(part)[:40] for part in one['loc'][:6]) or 'the reply'}: {one['msg'][:120]}"
        for one in problems[:_MOST_PROBLEMS]
    )
    more = len(problems) - _MOST_PROBLEMS
    return shown + (f"; and {more} more" if more > 0 else "")
