"""Filters at a provider: send the conditions that it can apply, and check the whole filter on its results.

The check decides. The filter that is sent only avoids results that would fail the check, so it must never exclude a
document that would pass. Three kinds of conditions are therefore never sent: negations and `exists`, since providers
differ on documents that lack the field, and these conditions exclude little; dates, which are stored as text, numbers
or seconds; and conditions on the keys in `RESERVED`, such as the document's id.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from retrievers.core.errors import BadDocument
from retrievers.core.fields import RESERVED, Field, Scalar, flatten, normalise
from retrievers.core.filters import And, Compare, Filter, Or, keys_of, matches
from retrievers.http.found import ProviderHit, cleaned, part


@dataclass(frozen=True, slots=True)
class FieldComparison:
    """A comparison of a metadata field with a value, for a provider to express in its language.

    Attributes:
        op: `has` if the field is a list that must contain the value; the others are for fields with a single value.
            Order comparisons are on numbers.
        value: a tuple for `in`, with members of one type.
    """

    op: Literal["eq", "gt", "gte", "lt", "lte", "in", "contains", "prefix", "has"]
    key: str
    value: Any


def sendable(
    wanted: Filter | None,
    fields: Mapping[str, Field],
    spell: Callable[[FieldComparison], Any],
    join: Callable[[Literal["and", "or"], list[Any]], Any],
) -> Any:
    """Return the conditions of a filter that a provider can apply, in its language; None if there are none.

    Every document that satisfies `wanted` also satisfies the result.

    Args:
        fields: the fields that the filter names, by name.
        spell, join: the provider's methods, see `CloudProvider`.
    """
    match wanted:
        case And(parts):
            known = [one for part in parts if (one := sendable(part, fields, spell, join)) is not None]
            return _joined("and", known, join)
        case Or(parts):
            every = [sendable(part, fields, spell, join) for part in parts]
            known = [one for one in every if one is not None]
            return _joined("or", known, join) if len(known) == len(every) else None
        case Compare("in", key, tuple() as values) if key in fields and fields[key].type == "list":
            return sendable(Or(tuple(Compare("eq", key, one) for one in values)), fields, spell, join)
        case Compare():
            condition = _condition(wanted, fields[wanted.key])
            return spell(condition) if condition else None
        case _:
            return None


def _joined(how: Literal["and", "or"], known: list[Any], join: Callable[[Literal["and", "or"], list[Any]], Any]) -> Any:
    if len(known) < 2:
        return known[0] if known else None
    return join(how, known)


def _condition(wanted: Compare, field: Field) -> FieldComparison | None:
    """Convert a comparison to a condition that all providers interpret alike; None if there is no such condition."""
    op, key, value = wanted.op, wanted.key, wanted.value
    if key in RESERVED or field.item == "date" or field.separator is not None or value in ((), ""):
        return None
    if field.type == "list":
        return FieldComparison("has", key, value) if op in ("eq", "contains") else None
    if op == "eq" or (op == "in" and field.item != "boolean"):
        return FieldComparison(op, key, value)
    if op in ("gt", "gte", "lt", "lte") and field.item == "number":
        return FieldComparison(op, key, value)
    return FieldComparison(op, key, value) if op in ("contains", "prefix") and field.item == "string" else None


def satisfies(found: ProviderHit, wanted: Filter, fields: Mapping[str, Field]) -> bool:
    """Return whether the metadata of a provider's result satisfies a filter.

    False for a result that cannot be checked: a value does not have its field's type, or a key in `RESERVED`, which
    every document has, is missing.

    Args:
        fields: the fields that the filter names, by name.
    """
    keys = keys_of(wanted)
    own = {"id": found.id, "title": cleaned(found.title) or None}
    held = {key: value for key in keys if (value := _stored(found.metadata, key, own.get(key))) is not None}
    if any(key in RESERVED and key not in held for key in keys):
        return False
    try:
        flat = {key: value for key, value in flatten(held).items() if key in keys}
        return matches(wanted, normalise(flat, fields))
    except BadDocument:
        return False


def _stored(metadata: Mapping[str, Any], key: str, otherwise: Scalar | None) -> Any:
    """Return the value of a key, or of a path of keys joined by dots; `otherwise` if it is missing."""
    stored = metadata.get(key)
    if stored is None and "." in key:
        stored = part(metadata, *key.split("."))
    return otherwise if stored is None else stored
