"""Translate Dify's metadata conditions (all 18 operators) into signalbox's filter grammar."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from retrievers.core.errors import BadFilter
from retrievers.core.metadata import RESERVED, Field, shorten_text
from retrievers.core.types import FieldValues

Operator = Literal[
    "contains", "not contains", "start with", "end with", "is", "is not", "in", "not in", "empty", "not empty",
    "=", "≠", ">", "<", "≥", "≤", "before", "after",
]  # fmt: skip
OPERATORS: tuple[str, ...] = get_args(Operator)

_OPPOSITES: Mapping[str, str] = {
    "not contains": "contains", "is not": "is", "not in": "in", "not empty": "empty", "≠": "=",
}  # fmt: skip
_COMPARISONS: Mapping[str, str] = {
    "contains": "contains", "start with": "prefix", "is": "eq", "in": "in", "=": "eq", ">": "gt", "<": "lt",
    "≥": "gte", "≤": "lte", "before": "lt", "after": "gt",
}  # fmt: skip


def translate_condition(
    names: list[str],
    operator: Operator,
    value: object,
    fields: Mapping[str, Field],
    field_values: Mapping[str, FieldValues],
    where: str,
) -> dict[str, Any]:
    """Return one condition as a filter expression.

    Args:
        names: the metadata keys; if there are several, one must match (for a negative operator: none may match).
        fields: the collection's fields; they give the type of a value that Dify sends as text or number.
        field_values: the values of each field in the collection's documents, used to resolve "end with".
        where: the condition's path, for errors.
    Raises:
        BadFilter: "end with" on a field that is not text or has too many values to list.
    """
    positive = _OPPOSITES.get(operator, operator)
    parts = [
        _translate_positive(name, positive, value, fields.get(name), field_values.get(name), where) for name in names
    ]
    either = parts[0] if len(parts) == 1 else {"type": "or", "filters": parts}
    return either if positive == operator else {"type": "not", "filter": either}


def _translate_positive(
    key: str, operator: str, value: object, field: Field | None, field_values: FieldValues | None, where: str
) -> dict[str, Any]:
    if operator == "empty":
        return {"type": "exists", "key": key, "value": False}
    if operator == "end with":
        return {"type": "in", "key": key, "value": _values_ending_with(key, value, field, field_values, where)}
    if operator == "in" and isinstance(value, str):
        value = [part.strip() for part in value.split(",") if part.strip()]
    values = [_convert_value(one, field) for one in value] if isinstance(value, list) else _convert_value(value, field)
    return {"type": _COMPARISONS[operator], "key": key, "value": values}


def _values_ending_with(
    key: str, value: object, field: Field | None, field_values: FieldValues | None, where: str
) -> list[str]:
    if not isinstance(value, str):
        raise BadFilter(f'{where}: "end with" needs a text as its value', where=where)
    if field is None or field.item != "string":
        raise BadFilter(
            f'{where}: "end with" needs a field of texts, and "{shorten_text(key)}" is not one', where=where
        )
    if field_values is None and key not in RESERVED:
        return []  # no document has the field
    if field_values is None or field_values.distinct > len(field_values.values):
        raise BadFilter(f'{where}: "{key}" has too many values for "end with"', where=where)
    return [one for one in field_values.values if one.endswith(value)]


def _convert_value(value: object, field: Field | None) -> object:
    """Return a value in its field's type: Dify sends variables as text and times as seconds since 1970.

    A value that cannot be converted is returned unchanged.
    """
    match field.item if field else None, value:
        case "number", str() as text:
            for kind in (int, float):
                try:
                    return kind(text)
                except ValueError:
                    continue
        case "string", int() | float() as number if not isinstance(number, bool):
            return str(number)
        case "boolean", str() as text if text.lower() in ("true", "false"):
            return text.lower() == "true"
        case "date", int() | float() as seconds if not isinstance(seconds, bool):
            try:
                return datetime.fromtimestamp(seconds, UTC).isoformat()
            except (ValueError, OverflowError, OSError):
                return value
    return value
