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
from retrievers.core.filters import And, FieldCondition, Filter, Or, filter_keys, matches_filter
from retrievers.core.metadata import RESERVED, Field, Scalar, flatten_metadata, normalise_metadata
from retrievers.http.provider_hits import ProviderHit, clean_text, value_at


@dataclass(frozen=True, slots=True)
class ProviderCondition:
    """A comparison of a metadata field with a value, for a provider to express in its language.

    Attributes:
        op: `has` if the field is a list that must contain the value; the others are for fields with a single value.
            Order comparisons are on numbers.
        value: a tuple for `in`, with members of one type.
    """

    op: Literal["eq", "gt", "gte", "lt", "lte", "in", "contains", "prefix", "has"]
    key: str
    value: Any


def provider_filter(
    wanted: Filter | None,
    fields: Mapping[str, Field],
    express: Callable[[ProviderCondition], Any],
    combine: Callable[[Literal["and", "or"], list[Any]], Any],
) -> Any:
    """Return the conditions of a filter that a provider can apply, in its language; None if there are none.

    Every document that satisfies `wanted` also satisfies the result.

    Args:
        fields: the fields that the filter names, by name.
        express, combine: the provider's methods, see `CloudProvider`.
    """
    match wanted:
        case And(parts):
            known = [one for part in parts if (one := provider_filter(part, fields, express, combine)) is not None]
            return _joined("and", known, combine)
        case Or(parts):
            every = [provider_filter(part, fields, express, combine) for part in parts]
            known = [one for one in every if one is not None]
            return _joined("or", known, combine) if len(known) == len(every) else None
        case FieldCondition("in", key, tuple() as values) if key in fields and fields[key].type == "list":
            return provider_filter(
                Or(tuple(FieldCondition("eq", key, one) for one in values)), fields, express, combine
            )
        case FieldCondition():
            condition = _condition(wanted, fields[wanted.key])
            return express(condition) if condition else None
        case _:
            return None


def _joined(
    how: Literal["and", "or"], known: list[Any], combine: Callable[[Literal["and", "or"], list[Any]], Any]
) -> Any:
    if len(known) < 2:
        return known[0] if known else None
    return combine(how, known)


def _condition(wanted: FieldCondition, field: Field) -> ProviderCondition | None:
    """Convert a comparison to a condition that all providers interpret alike; None if there is no such condition."""
    op, key, value = wanted.op, wanted.key, wanted.value
    if key in RESERVED or field.item == "date" or field.separator is not None or value in ((), ""):
        return None
    if field.type == "list":
        return ProviderCondition("has", key, value) if op in ("eq", "contains") else None
    if op == "eq" or (op == "in" and field.item != "boolean"):
        return ProviderCondition(op, key, value)
    if op in ("gt", "gte", "lt", "lte") and field.item == "number":
        return ProviderCondition(op, key, value)
    return ProviderCondition(op, key, value) if op in ("contains", "prefix") and field.item == "string" else None


def satisfies_filter(found: ProviderHit, wanted: Filter, fields: Mapping[str, Field]) -> bool:
    """Return whether the metadata of a provider's result satisfies a filter.

    False for a result that cannot be checked: a value does not have its field's type, or a key in `RESERVED`, which
    every document has, is missing.

    Args:
        fields: the fields that the filter names, by name.
    """
    keys = filter_keys(wanted)
    own = {"id": found.id, "title": clean_text(found.title) or None}
    held = {key: value for key in keys if (value := _stored(found.metadata, key, own.get(key))) is not None}
    if any(key in RESERVED and key not in held for key in keys):
        return False
    try:
        flat = {key: value for key, value in flatten_metadata(held).items() if key in keys}
        return matches_filter(wanted, normalise_metadata(flat, fields))
    except BadDocument:
        return False


def _stored(metadata: Mapping[str, Any], key: str, otherwise: Scalar | None) -> Any:
    """Return the value of a key, or of a path of keys joined by dots; `otherwise` if it is missing."""
    stored = metadata.get(key)
    if stored is None and "." in key:
        stored = value_at(metadata, *key.split("."))
    return otherwise if stored is None else stored
