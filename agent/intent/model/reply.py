"""Read a model's reply key by key, so that an invalid part does not invalidate the others.

    {"kind": "retrieve|aggregate|none", "question": "...", "language": "en", "searches": ["..."],
     "filter": FILTER|null, "time": {"key", "phrase", "from", "to"}|null, "sources": ["..."], "collections": ["..."],
     "aggregate": {"op", "field", "group_by", "order", "limit"}|null, "confidence": 0.0-1.0}

Only form and size are checked here. `resolution` checks fields, values and dates against the catalogue.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar

from agent.intent.model.schema import KINDS, OPS, ORDERS
from agent.llm.reply_json import BadReply, extract_json
from retrievers.core.aggregates import MAX_LIMIT, MAX_SHOWN
from retrievers.core.errors import join_names
from retrievers.core.filters import GROUPS, MAX_DEPTH, MAX_NODES, MAX_VALUE_CHARACTERS, MAX_VALUES, OPERATORS
from retrievers.core.metadata import MAX_KEY_CHARACTERS, is_finite, shorten_text

T = TypeVar("T")

Kind = Literal["retrieve", "aggregate", "none"]

MAX_SEARCHES = 3
_LONGEST_SEARCH = 500
_LONGEST_QUESTION = 2000
_LONGEST_PHRASE = 200
_MOST_NAMES = 16
_MOST_PROBLEMS = 20
_LARGEST_NUMBER = 2**53


_LANGUAGE = re.compile(r"[a-z]{2,3}")
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ][\d:.,+\-Z]+)?", re.ASCII)


class ReplyProblem(NamedTuple):
    """A part of the reply that was left out, with the reason. `what` is the part's path: "filter.filters.2"."""

    what: str
    reason: str


class TimeRestriction(NamedTuple):
    """A date restriction: `phrase` has the question's words, which `agent.intent.time` resolves to days.

    `key` is the date field or None. `start` (included) and `end` (excluded) are the model's own ISO dates, used only if
    the words name no days.
    """

    key: str | None
    phrase: str
    start: str | None = None
    end: str | None = None


@dataclass(frozen=True, slots=True)
class ModelReading:
    """The model's reading of a question. Unusable parts have their defaults and are listed in `problems`.

    Attributes:
        question: the question made self-contained; None if the model gave none.
        searches: at most three texts to search for, all different.
        time: a date restriction, None if there is none.
        filter: an expression of the filter grammar of limited size; its fields and values are not checked yet.
        aggregate: the calculation, with the keys of the model's reply; `resolution.translate_aggregate` translates it.
        confidence: 0 to 1; 0.5 if the model gave none.
    """

    kind: Kind = "retrieve"
    question: str | None = None
    language: str | None = None
    searches: tuple[str, ...] = ()
    filter: dict[str, Any] | None = None
    time: TimeRestriction | None = None
    sources: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    aggregate: dict[str, Any] | None = None
    confidence: float = 0.5
    problems: tuple[ReplyProblem, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the reading as a JSON object with the keys of a model's reply."""
        time = self.time
        return {
            "kind": self.kind,
            "question": self.question,
            "language": self.language,
            "searches": list(self.searches),
            "filter": self.filter,
            "time": time and {"key": time.key, "phrase": time.phrase, "from": time.start, "to": time.end},
            "sources": list(self.sources),
            # Replies to prompts that ask for no collections have no such key.
            **({"collections": list(self.collections)} if self.collections else {}),
            "aggregate": self.aggregate,
            "confidence": self.confidence,
        }


def parse_reply(given: object) -> ModelReading:
    """Return the reading in a model's reply; parts that cannot be used are listed in its `problems`.

    Args:
        given: the reply's text, or its decoded JSON.
    Raises:
        BadReply: there is no JSON object in the reply.
    """
    data = extract_json(given, finite=False) if isinstance(given, str) else given
    if not isinstance(data, Mapping):
        raise BadReply("it is not a JSON object")
    problems: list[ReplyProblem] = []

    def part(name: str, read: Callable[[Any, list[ReplyProblem]], T], default: T) -> T:
        value = data.get(name)
        if value is None:
            return default
        try:
            return read(value, problems)
        except _InvalidPart as error:
            problems.append(ReplyProblem(error.where or name, error.reason))
            return default

    reading = ModelReading(
        kind=part("kind", _kind, "retrieve"),
        question=part("question", lambda value, _: _text(value, _LONGEST_QUESTION), None),
        language=part("language", _language, None),
        searches=part("searches", _searches, ()),
        filter=part("filter", _filter, None),
        time=part("time", _time, None),
        sources=part("sources", _sources, ()),
        collections=part("collections", _collections, ()),
        aggregate=part("aggregate", _aggregate, None),
        confidence=part("confidence", _confidence, 0.5),
    )
    if len(problems) > _MOST_PROBLEMS:
        more = ReplyProblem("reply", f"and {len(problems) - _MOST_PROBLEMS:,} more parts like these")
        problems = [*problems[:_MOST_PROBLEMS], more]
    return replace(reading, problems=tuple(problems))


class _InvalidPart(Exception):
    """Raised for a part of the reply that cannot be used; `where` is the path of that part, None for its key."""

    def __init__(self, reason: str, where: str | None = None) -> None:
        self.reason, self.where = reason, where


def _named(value: object) -> str:
    if isinstance(value, str):
        return f'"{shorten_text(value)}"'
    if isinstance(value, bool | float) or value is None:
        return str(value).lower()
    return "an object" if isinstance(value, Mapping) else f"a {type(value).__name__}"


def _text(value: object, longest: int) -> str | None:
    """Return a text as one line of printable characters, cut at a word if too long; None if nothing is left."""
    if not isinstance(value, str):
        raise _InvalidPart(f"text is expected, not {_named(value)}")
    kept = "".join(c if c.isprintable() else " " for c in value[: 4 * longest] if not "\ud800" <= c <= "\udfff")
    line = " ".join(kept.split())
    if len(line) > longest:
        line = line[:longest].rsplit(" ", 1)[0]
    return line or None


def _kind(value: object, _: list[ReplyProblem]) -> Kind:
    match value:
        case "retrieve" | "aggregate" | "none":
            return value
    raise _InvalidPart(f"{_named(value)} is not one of {join_names(KINDS)}")


def _language(value: object, _: list[ReplyProblem]) -> str:
    # "zh-CN" is read as zh.
    code = value.replace("_", "-").partition("-")[0].lower() if isinstance(value, str) else ""
    if not _LANGUAGE.fullmatch(code):
        raise _InvalidPart(f"{_named(value)} is not an ISO 639 code")
    return code


def _searches(value: object, problems: list[ReplyProblem]) -> tuple[str, ...]:
    found: dict[str, str] = {}
    for number, item in enumerate(_list(value)[: 4 * MAX_SEARCHES]):
        try:
            text = _text(item, _LONGEST_SEARCH)
        except _InvalidPart as error:
            problems.append(ReplyProblem(f"searches.{number}", error.reason))
            continue
        if text:
            found.setdefault(text.casefold(), text)
    if len(found) > MAX_SEARCHES:
        problems.append(ReplyProblem("searches", f"there are more than {MAX_SEARCHES}; the first are kept"))
    return tuple(found.values())[:MAX_SEARCHES]


def _sources(value: object, problems: list[ReplyProblem]) -> tuple[str, ...]:
    return _names("sources", value, problems)


def _collections(value: object, problems: list[ReplyProblem]) -> tuple[str, ...]:
    return _names("collections", value, problems)


def _names(part: str, value: object, problems: list[ReplyProblem]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for number, item in enumerate(_list(value)[:_MOST_NAMES]):
        if isinstance(item, str) and 0 < len(item.strip()) <= MAX_KEY_CHARACTERS and item.isprintable():
            names[item.strip()] = None
        else:
            problems.append(ReplyProblem(f"{part}.{number}", f"a name is expected, not {_named(item)}"))
    return tuple(names)


def _list(value: object) -> list[Any]:
    # The most frequent mistake is a text in place of a list with one item.
    if isinstance(value, str):
        return [value]
    if isinstance(value, list | tuple):
        return list(value)
    raise _InvalidPart(f"a list is expected, not {_named(value)}")


def _confidence(value: object, _: list[ReplyProblem]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not is_finite(value):
        raise _InvalidPart(f"a number from 0 to 1 is expected, not {_named(value)}")
    if not 0 <= value <= 1:
        raise _InvalidPart("it is not between 0 and 1")
    return float(value)


def _time(value: object, problems: list[ReplyProblem]) -> TimeRestriction | None:
    if not isinstance(value, Mapping):
        raise _InvalidPart(f"an object is expected, not {_named(value)}")
    phrase, key = _text(value.get("phrase") or "", _LONGEST_PHRASE), value.get("key")
    if key is not None and not _is_key(key):
        problems.append(ReplyProblem("time.key", f"a field's name is expected, not {_named(key)}"))
        key = None
    bounds: dict[str, str | None] = {"from": None, "to": None}
    for name in bounds:
        bound = value.get(name)
        if isinstance(bound, str) and _ISO_DATE.fullmatch(bound.strip()):
            bounds[name] = bound.strip()
        elif bound is not None:
            problems.append(ReplyProblem(f"time.{name}", f"{_named(bound)} is not an ISO 8601 date"))
    if not phrase and not any(bounds.values()):
        raise _InvalidPart("it has neither a phrase nor a date")
    return TimeRestriction(key, phrase or "", bounds["from"], bounds["to"])


def _filter(value: object, problems: list[ReplyProblem]) -> dict[str, Any] | None:
    """Return the filter with known keys only. A bad member of an outermost `and` is dropped and the others are kept."""
    if isinstance(value, list) and value:
        # The `and` around a list of conditions is missing.
        value = {"type": "and", "filters": value}
    _check_size(value)
    if isinstance(value, Mapping) and value.get("type") == "and" and isinstance(value.get("filters"), list):
        members = []
        for number, member in enumerate(value["filters"]):
            try:
                members.append(_node(member, f"filter.filters.{number}"))
            except _InvalidPart as error:
                problems.append(ReplyProblem(error.where or "filter", error.reason))
        return {"type": "and", "filters": members} if members else None
    return _node(value, "filter")


def _check_size(value: object) -> None:
    """Raise `_InvalidPart` for a filter too deep or too large. No recursion: a reply may be nested very deeply."""
    nodes = 0
    open_nodes = [(value, 1)]
    while open_nodes:
        node, depth = open_nodes.pop()
        if not isinstance(node, Mapping):
            continue
        nodes += 1
        inner = node.get("filters")
        children = [*(inner if isinstance(inner, list) else []), node.get("filter")]
        if depth > MAX_DEPTH:
            raise _InvalidPart(f"it is nested deeper than {MAX_DEPTH} levels")
        if nodes + len(open_nodes) > MAX_NODES + 1 or len(children) > MAX_NODES + 1:
            raise _InvalidPart(f"it has more than {MAX_NODES} conditions")
        open_nodes += [(child, depth + 1) for child in children]


def _node(node: object, where: str) -> dict[str, Any]:
    if not isinstance(node, Mapping):
        raise _InvalidPart(f"an object is expected, not {_named(node)}", where)
    kind = node.get("type")
    if kind in ("and", "or"):
        inner = node.get("filters")
        if not isinstance(inner, list) or not inner:
            raise _InvalidPart('"filters" must be a list with at least one filter', where)
        return {"type": kind, "filters": [_node(item, f"{where}.filters.{n}") for n, item in enumerate(inner)]}
    if kind == "not":
        return {"type": "not", "filter": _node(node.get("filter"), f"{where}.filter")}
    if kind not in OPERATORS:
        raise _InvalidPart(f"type {_named(kind)} is not one of {join_names((*GROUPS, *OPERATORS), 20)}", where)
    if not _is_key(node.get("key")):
        raise _InvalidPart(f'"key" must be a field\'s name, not {_named(node.get("key"))}', where)
    made = {"type": kind, "key": node["key"]}
    return made if kind == "exists" and node.get("value") is None else made | {"value": _value(node, where)}


def _value(node: Mapping[Any, Any], where: str) -> Any:
    value = node.get("value")
    items = value if isinstance(value, list) else [value]
    if len(items) > MAX_VALUES:
        raise _InvalidPart(f"it has {len(items):,} values; the limit is {MAX_VALUES:,}", where)
    for item in items:
        if isinstance(item, str):
            if len(item) > MAX_VALUE_CHARACTERS or any(c == "\0" or "\ud800" <= c <= "\udfff" for c in item):
                raise _InvalidPart("a value is too long or contains a character that is not text", where)
        elif not isinstance(item, bool) and not (isinstance(item, int | float) and _is_number(item)):
            raise _InvalidPart(f"text, a finite number, true or false is expected, not {_named(item)}", where)
    return value


def _is_number(value: float) -> bool:
    return math.isfinite(value) if isinstance(value, float) else abs(value) <= _LARGEST_NUMBER


def _is_key(value: object) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_KEY_CHARACTERS and value.isprintable()


def _aggregate(value: object, problems: list[ReplyProblem]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _InvalidPart(f"an object is expected, not {_named(value)}")
    op = value.get("op")
    if op not in OPS:
        raise _InvalidPart(f"op {_named(op)} is not one of {join_names(OPS)}", "aggregate.op")
    made: dict[str, Any] = {"op": op}
    for name, read in _AGGREGATE_PARSERS.items():
        if name not in value:
            continue
        given = value[name]
        try:
            made[name] = None if given is None else read(given)
        except _InvalidPart as error:
            problems.append(ReplyProblem(error.where or f"aggregate.{name}", error.reason))
            made[name] = None
    if op == "distinct" and not made.get("field"):
        raise _InvalidPart("distinct values need a field, and none is named", "aggregate.field")
    return made


def _expression(value: object) -> str:
    if not _is_key(value):
        raise _InvalidPart(f"a field, or a function of one, is expected, not {_named(value)}")
    return str(value).strip()


def _order(value: object) -> str:
    if value not in ORDERS:
        raise _InvalidPart(f"{_named(value)} is not one of {join_names(ORDERS)}")
    return str(value)


def _whole(most: int) -> Callable[[object], int]:
    def read(value: object) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
            raise _InvalidPart(f"a whole number from 0 to {most} is expected, not {_named(value)}")
        return value

    return read


def _shown_fields(value: object) -> list[str]:
    return [_expression(item) for item in _list(value)[:MAX_SHOWN]]


def _groups(value: object) -> list[Any]:
    checked = _value({"value": _list(value)}, "aggregate.between")
    return list(checked)


def _where(value: object) -> dict[str, Any]:
    _check_size(value)
    return _node(value, "aggregate.where")


_AGGREGATE_PARSERS: Mapping[str, Callable[[object], Any]] = {
    "field": _expression,
    "group_by": _expression,
    "order": _order,
    "limit": _whole(MAX_LIMIT),
    "where": _where,
    "between": _groups,
    "show": _shown_fields,
    "decimals": _whole(10),
}
