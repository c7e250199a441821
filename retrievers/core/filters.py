"""The filter grammar (OpenAI's vector-store filters, extended): read, check, match, compile.

A filter has the same meaning in two engines: `matches_filter` evaluates it in Python, `filter_to_jsonpath` compiles it
to a PostgreSQL jsonpath. The jsonpath is bound as one parameter (`fields @@ %(filter)s`), so no value becomes part of a
statement. Both work on the normal form of `retrievers.core.metadata`, where a field holds a list of values, possibly
empty. A comparison is true if any of the values satisfies it. `ne`, `nin` and `not` are exact negations, so a result is
never unknown.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, cast, get_args

from retrievers.core.errors import BadFilter, join_names
from retrievers.core.metadata import (
    Field,
    MetadataValues,
    Scalar,
    ScalarType,
    is_finite,
    parse_date,
    scalar_type,
    shorten_text,
)

Operator = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "contains", "prefix", "exists"]
OPERATORS: tuple[str, ...] = get_args(Operator)
GROUPS = ("and", "or", "not")

MAX_DEPTH = 8
MAX_NODES = 128
MAX_VALUES = 1000
MAX_VALUE_CHARACTERS = 8000
MAX_SOUGHT_CHARACTERS = 4000
"""Maximum length of all texts to find with `contains`; for 8,000 characters PostgreSQL can need 1.7 GB of memory."""
MAX_CHARACTERS = 200_000
"""Maximum number of characters of all values of a filter together."""

_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_ORDER: Mapping[str, str] = {"eq": "==", "gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_ALLOWED: Mapping[ScalarType, frozenset[str]] = {
    "string": frozenset(OPERATORS),
    "number": frozenset(OPERATORS) - {"prefix"},
    "date": frozenset(OPERATORS) - {"prefix"},
    "boolean": frozenset({"eq", "ne", "in", "nin", "contains", "exists"}),
}


@dataclass(frozen=True, slots=True)
class FieldCondition:
    """One condition on one field. `value` is a tuple for `in` and `nin`, a bool for `exists`."""

    op: Operator
    key: str
    value: Scalar | tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class And:
    filters: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    filters: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Not:
    filter: "Filter"


Filter = FieldCondition | And | Or | Not


def parse_filter(data: object, fields: Mapping[str, Field], where: str = "filter") -> Filter:
    """Read a filter from JSON and check it.

    Args:
        data: the filter as decoded JSON.
        fields: the fields that it may use, by name.
        where: the filter's place in the request, for errors.
    Returns:
        The filter, with dates in normal form.
    Raises:
        BadFilter: the filter is malformed or too large, or names an unknown key, operator or value. The message lists
            the valid ones.
    """
    return _FilterReader(fields).read(data, where, 1)


@dataclass(slots=True)
class _FilterReader:
    """Reads one filter and counts its conditions and characters.

    A recursive function inside `parse_filter` would form a reference cycle, which only the garbage collector frees.
    """

    fields: Mapping[str, Field]
    nodes: int = 0
    characters: int = 0
    sought: int = 0

    def read(self, node: object, where: str, depth: int) -> Filter:
        """Return the filter that a JSON value describes.

        Args:
            node: the JSON value.
            where: its place in the request, for errors.
            depth: its nesting level, 1 for the outermost.
        """
        self.nodes += 1
        if depth > MAX_DEPTH:
            raise BadFilter(f"the filter is nested deeper than {MAX_DEPTH} levels", where=where)
        if self.nodes > MAX_NODES:
            raise BadFilter(f"the filter has more than {MAX_NODES} conditions", where=where)
        if not isinstance(node, Mapping):
            raise BadFilter(f"{where} must be an object, not {_named(node)}", where=where)
        kind = node.get("type")
        if kind in ("and", "or"):
            return self._group(node, kind, where, depth)
        if kind == "not":
            _only(node, {"type", "filter"}, where)
            return Not(self.read(node.get("filter"), f"{where}.filter", depth + 1))
        if kind not in OPERATORS:
            valid = (*GROUPS, *OPERATORS)
            raise BadFilter(
                f"{where}.type is {_named(kind)}; valid types: {', '.join(valid)}", where=f"{where}.type", valid=valid
            )
        comparison = _read_comparison(node, kind, self.fields, where)
        self.characters += _characters(comparison.value)
        if self.characters > MAX_CHARACTERS:
            raise BadFilter(f"the filter's values have more than {MAX_CHARACTERS:,} characters together", where=where)
        if comparison.op == "contains" and isinstance(comparison.value, str):
            self.sought += len(comparison.value)
            if self.sought > MAX_SOUGHT_CHARACTERS:
                reason = f"the texts to find with contains have more than {MAX_SOUGHT_CHARACTERS:,} characters together"
                raise BadFilter(reason, where=f"{where}.value")
        return comparison

    def _group(self, node: Mapping[Any, Any], kind: object, where: str, depth: int) -> Filter:
        _only(node, {"type", "filters"}, where)
        inner = node.get("filters")
        if not isinstance(inner, Sequence) or isinstance(inner, str) or not inner:
            raise BadFilter(f"{where}.filters must be a list with at least one filter", where=f"{where}.filters")
        parts = tuple(self.read(item, f"{where}.filters.{n}", depth + 1) for n, item in enumerate(inner))
        return And(parts) if kind == "and" else Or(parts)


def _characters(value: Scalar | tuple[Scalar, ...]) -> int:
    return sum(map(len, map(str, value))) if isinstance(value, tuple) else len(str(value))


def _read_comparison(node: Mapping[Any, Any], op: Operator, fields: Mapping[str, Field], where: str) -> FieldCondition:
    _only(node, {"type", "key", "value"}, where)
    key = node.get("key")
    if not isinstance(key, str) or key not in fields:
        raise BadFilter(
            f"{where}.key is {_named(key)}; valid keys: {join_names(fields, 40)}", where=f"{where}.key", valid=fields
        )
    field = fields[key]
    allowed = _ALLOWED[field.item]
    if field.item != "string" and field.type != "list":
        allowed -= {"contains"}
    if op not in allowed:
        valid = sorted(allowed)
        raise BadFilter(
            f'{where}.type "{op}" does not work on "{key}", a {field.type} field; valid types: {", ".join(valid)}',
            where=f"{where}.type",
            valid=valid,
        )
    value = node.get("value", True if op == "exists" else None)
    where_value = f"{where}.value"
    if op == "exists":
        if not isinstance(value, bool):
            raise BadFilter(f"{where_value} must be true or false for exists, not {_named(value)}", where=where_value)
        return FieldCondition(op, key, value)
    if op in ("in", "nin"):
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise BadFilter(f"{where_value} must be a list for {op}, not {_named(value)}", where=where_value)
        if len(value) > MAX_VALUES:
            raise BadFilter(f"{where_value} has {len(value):,} values; the limit is {MAX_VALUES:,}", where=where_value)
        return FieldCondition(op, key, _read_values(field, value, where_value))
    return FieldCondition(op, key, _read_value(field, value, where_value))


def _read_values(field: Field, values: Sequence[object], where: str) -> tuple[Scalar, ...]:
    """Return the checked values of `in` or `nin`. For speed (there may be 120,000), C functions check plain lists."""
    kinds = set(map(type, values))
    if field.item == "string" and kinds == {str}:
        texts = cast(Sequence[str], values)
        if max(map(len, texts)) <= MAX_VALUE_CHARACTERS and not _NO_TEXT.search("".join(texts)):
            return tuple(texts)
    if field.item == "number" and kinds and kinds <= {int, float}:
        numbers = cast(Sequence[int | float], values)
        with suppress(OverflowError):
            if all(map(math.isfinite, numbers)):
                return tuple(numbers)
    return tuple(_read_value(field, item, where) for item in values)


def _read_value(field: Field, value: object, where: str) -> Scalar:
    kind = scalar_type(value)
    if isinstance(value, str):
        if len(value) > MAX_VALUE_CHARACTERS:
            raise BadFilter(f"{where} has more than {MAX_VALUE_CHARACTERS:,} characters", where=where)
        if _NO_TEXT.search(value):
            raise BadFilter(f"{where} holds a NUL character or half a surrogate pair", where=where)
        if field.item == "date":
            try:
                return parse_date(value)
            except ValueError as error:
                raise BadFilter(f'{where}: {error}; "{field.name}" is a date field', where=where) from None
        if field.item == "string":
            return value
    elif kind == field.item and isinstance(value, bool | int | float):
        if kind == "number" and not is_finite(value):
            raise BadFilter(f"{where} is not a finite number", where=where)
        return value
    raise BadFilter(f'{where} is {_named(value)}; "{field.name}" needs a {field.item}', where=where)


def _only(node: Mapping[Any, Any], keys: set[str], where: str) -> None:
    unknown = [key for key in node if key not in keys]
    if unknown:
        raise BadFilter(
            f"{where} has the unknown key {_named(unknown[0])}; valid keys: {join_names(keys)}", where=where, valid=keys
        )


def _named(value: object) -> str:
    if value is None:
        return "missing"
    if isinstance(value, str):
        return f'"{shorten_text(value)}"'
    if isinstance(value, bool | float):
        return str(value)
    if isinstance(value, int):
        return str(value) if abs(value) < 10**38 else "a huge number"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, Sequence) else f"a {type(value).__name__}"


def filter_to_json(wanted: Filter) -> dict[str, Any]:
    """Return the filter as JSON that `parse_filter` reads back."""
    match wanted:
        case And(parts):
            return {"type": "and", "filters": [filter_to_json(part) for part in parts]}
        case Or(parts):
            return {"type": "or", "filters": [filter_to_json(part) for part in parts]}
        case Not(part):
            return {"type": "not", "filter": filter_to_json(part)}
        case FieldCondition(op, key, value):
            return {"type": op, "key": key, "value": list(value) if isinstance(value, tuple) else value}


_IN_WORDS = {
    "eq": "=", "ne": "is not", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=",
    "in": "is one of", "nin": "is none of", "contains": "contains", "prefix": "begins with",
}  # fmt: skip


def describe_filter(expression: Mapping[str, Any]) -> str:
    """Describe a filter, given as JSON values, in one line for people: `team = red and created >= 2024-01-01`."""
    kind = expression.get("type")
    if kind in ("and", "or"):
        inner = [describe_filter(part) for part in expression["filters"]]
        return f" {kind} ".join(f"({one})" if " or " in one or " and " in one else one for one in inner)
    if kind == "not":
        return f"not ({describe_filter(expression['filter'])})"
    if kind == "exists":
        return (
            f"{' '.join(str(expression['key']).split())} is {'there' if expression.get('value', True) else 'missing'}"
        )
    value, key = expression.get("value"), " ".join(str(expression.get("key")).split())
    text = " ".join((", ".join(map(str, value)) if isinstance(value, list) else str(value)).split())
    shown = text if len(text) <= 60 else text[:59] + "…"
    return f"{key} {_IN_WORDS.get(str(kind), kind)} {shown}"


def filter_keys(wanted: Filter) -> set[str]:
    """Return the names of all fields in the filter."""
    match wanted:
        case And(parts) | Or(parts):
            return set().union(*(filter_keys(part) for part in parts))
        case Not(part):
            return filter_keys(part)
        case FieldCondition(key=key):
            return {key}


def matches_filter(wanted: Filter, values: MetadataValues) -> bool:
    """Return whether a document whose fields have these values, in normal form, satisfies the filter."""
    match wanted:
        case And(parts):
            return all(matches_filter(part, values) for part in parts)
        case Or(parts):
            return any(matches_filter(part, values) for part in parts)
        case Not(part):
            return not matches_filter(part, values)
        case FieldCondition(op, key, value):
            return _matches_field(op, values.get(key), value)


def _matches_field(op: Operator, held: Scalar | list[Scalar] | None, value: Scalar | tuple[Scalar, ...]) -> bool:
    items = held if isinstance(held, list) else [] if held is None else [held]
    if op == "exists":
        return bool(items) == value
    if op in ("ne", "nin"):
        return not _matches_field("eq" if op == "ne" else "in", held, value)
    if isinstance(value, tuple):
        return any(_same(item, one) for item in items for one in value)
    if op == "contains" and isinstance(held, str) and isinstance(value, str):
        return value in held
    if op in ("eq", "contains"):
        return any(_same(item, value) for item in items)
    if op == "prefix":
        return any(isinstance(item, str) and item.startswith(str(value)) for item in items)
    return any(_ordered(op, item, value) for item in items)


def _same(one: Scalar, other: Scalar) -> bool:
    return isinstance(one, bool) == isinstance(other, bool) and _exact(one) == _exact(other)


def _exact(value: Scalar) -> Any:
    # 1e23 is exactly 10^23 in JSON and in PostgreSQL, but the nearest double is not.
    return Decimal(repr(value)) if isinstance(value, float) and abs(value) >= 2**53 else value


def _ordered(op: Operator, item: Scalar, value: Scalar) -> bool:
    # Text is compared by code point and never with a number, as in PostgreSQL's jsonpath.
    if isinstance(item, bool) or isinstance(value, bool) or isinstance(item, str) != isinstance(value, str):
        return False
    left, right = _exact(item), _exact(value)
    if op == "gt":
        return bool(left > right)
    if op == "gte":
        return bool(left >= right)
    return bool(left < right) if op == "lt" else bool(left <= right)


def filter_to_jsonpath(wanted: Filter) -> str:
    """Compile the filter to a jsonpath predicate over a document's normalised fields.

    Every comparison is inside an `exists(...)`, which is true or false but never unknown. So `not` negates exactly.
    """
    match wanted:
        case And(parts):
            return "(" + " && ".join(filter_to_jsonpath(part) for part in parts) + ")"
        case Or(parts):
            return "(" + " || ".join(filter_to_jsonpath(part) for part in parts) + ")"
        case Not(part):
            return f"(!({filter_to_jsonpath(part)}))"
        case FieldCondition(op, key, value):
            return _field_jsonpath(op, f"$.{_quoted(key)}", value)


def _field_jsonpath(op: Operator, path: str, value: Scalar | tuple[Scalar, ...]) -> str:
    if op == "exists":
        return f"(exists({path}[*]))" if value else f"(!(exists({path}[*])))"
    if op in ("ne", "nin"):
        return f"(!{_field_jsonpath('eq' if op == 'ne' else 'in', path, value)})"
    if isinstance(value, tuple):
        if not value:
            return "(exists($.a ? (1 == 0)))"
        # One call encodes all values, because a jsonpath has the same literals as JSON.
        literals = json.dumps(value, ensure_ascii=False, separators=(" || @ == ", ":"))[1:-1]
        return f"(exists({path}[*] ? (@ == {literals})))"
    if op == "contains":
        member = f"exists({path}[*] ? (@ == {_literal(value)}))"
        if not isinstance(value, str):
            return f"({member})"
        # `contains` compares list members as a whole, but searches inside a single text.
        inside = f'exists({path} ? (@ like_regex {_quoted(value)} flag "q"))' if value else f"exists({path})"
        return f'(({path}.type() == "string" && {inside}) || ({path}.type() == "array" && {member}))'
    if op == "prefix":
        return f"(exists({path}[*] ? (@ starts with {_literal(value)})))"
    return f"(exists({path}[*] ? (@ {_ORDER[op]} {_literal(value)})))"


def _literal(value: Scalar) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str) else repr(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
