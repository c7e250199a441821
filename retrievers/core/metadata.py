"""Metadata fields: their types, and the normal form in which field values are stored and compared.

A document's metadata is kept as given for display. Filters use the normal form beside it: dates are ISO strings in UTC
(midnight as the bare date, so that string order is time order), nested objects are flattened to dotted keys, nulls and
empty strings are left out.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from dataclasses import field as field_of
from datetime import UTC, date, datetime, time
from typing import Any, Literal

from retrievers.core.errors import BadDocument

ScalarType = Literal["string", "number", "date", "boolean"]
FieldType = Literal["string", "number", "date", "boolean", "list"]
Scalar = str | int | float | bool
MetadataValues = Mapping[str, "Scalar | list[Scalar]"]

MAX_KEYS = 256
MAX_KEY_CHARACTERS = 128
MAX_DEPTH = 5
RESERVED: Mapping[str, ScalarType] = {"id": "string", "title": "string", "language": "string", "public": "boolean"}
"""Keys that can be filtered by in every collection, unless a document's own metadata uses the name."""

_LOOKS_LIKE_DATE = re.compile(r"\d{4,}-\d{1,2}-\d{1,2}(?:[T ][\d:.,+\-Z]+)?", re.ASCII)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ](.+))?", re.ASCII)
_LONGEST_NUMBER = 400
"""Maximum length of a number as text; the largest finite number has 309 digits."""
_NUMBER = re.compile(r"[+-]?(?=\.?\d)\d*((?:\.\d*)?(?:[eE][+-]?\d+)?)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Field:
    """A metadata field of a collection.

    Attributes:
        item: type of the values; for a list, of its members.
        separator: where to split a list that is written as one string ("2.6, 3.0" at ","); None for real lists.
        declared: True if a schema file declares the field, False if it was inferred.
        aliases: value to its other names, as a schema file declares them: {"infrastructure": ("infra",)}.
        unit: unit of a number, as a schema file declares it ("kb"); None if none is declared.
    """

    name: str
    type: FieldType
    item: ScalarType
    separator: str | None = None
    declared: bool = False
    description: str = ""
    aliases: Mapping[str, tuple[str, ...]] = field_of(default_factory=dict, hash=False)
    unit: str | None = None

    def is_stored_like(self, other: "Field") -> bool:
        """Return whether both fields store values in the same form, so that one can replace the other.

        Attributes that do not matter here, such as the description, can be changed while a collection has documents.
        """
        return (self.type, self.item, self.separator) == (other.type, other.item, other.separator)


def parse_date(text: str) -> str:
    """Return the normal form of an ISO 8601 date or date-time.

    Returns:
        "2025-07-01" for a date or midnight, "2025-07-01T08:30:00" (UTC) for other times. A time without an offset is
        taken as UTC.
    Raises:
        ValueError: not a date between years 1 and 9999.
    """
    found = _DATE.fullmatch(text.strip())
    if not found:
        raise ValueError(f'"{shorten_text(text)}" is not an ISO 8601 date')
    try:
        day = date(int(found[1]), int(found[2]), int(found[3]))
        clock = time.fromisoformat(found[4]) if found[4] else time()
        moment = datetime.combine(day, clock)
        if moment.tzinfo is not None:
            moment = moment.astimezone(UTC).replace(tzinfo=None)
    except (ValueError, OverflowError) as error:
        why = f" ({error})" if re.search("must be in|out of range", str(error)) else ""
        raise ValueError(f'"{shorten_text(text)}" is not an ISO 8601 date{why}') from None
    if moment.time() == time():
        return moment.date().isoformat()
    return moment.isoformat().rstrip("0") if moment.microsecond else moment.isoformat()


def shorten_text(text: str) -> str:
    """Shorten a text for a message: one line of at most 40 printable characters."""
    line = "".join(character if character.isprintable() else " " for character in text[:41])
    return line if len(line) <= 40 else line[:39] + "…"


def scalar_type(value: object) -> ScalarType | None:
    """Return the type that a single JSON value seems to have; None for a value that is not a scalar."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "date" if _LOOKS_LIKE_DATE.fullmatch(value.strip()) else "string"
    return None


def flatten_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Flatten nested objects to dotted keys: {"a": {"b": 1}} -> {"a.b": 1}.

    Dates become strings. Nulls, empty strings and empty lists are dropped.

    Raises:
        BadDocument: too many keys, a key too long or empty, objects nested too deeply, or a value that is not a JSON
            scalar.
    """
    if len(metadata) > MAX_KEYS:
        raise BadDocument(f"metadata has {len(metadata):,} keys; the limit is {MAX_KEYS}")
    flat: dict[str, Any] = {}
    _flatten(flat, "", metadata, 0)
    return flat


def _flatten(flat: dict[str, Any], prefix: str, value: Any, depth: int, *, named: bool = True) -> None:
    """Add a value to `flat`; of an object, add its values under dotted keys.

    Args:
        flat: dotted key to value; this function adds to it.
        prefix: dotted key of `value`.
        depth: number of objects around `value`.
        named: False if a component of the key is empty, which only a value that is dropped may have.
    """
    if isinstance(value, Mapping):
        if depth > MAX_DEPTH:
            raise BadDocument(f"metadata is nested deeper than {MAX_DEPTH} levels at {_short(prefix)}")
        for key, inner in value.items():
            path = f"{prefix}.{key}" if depth else str(key)
            # An empty value is dropped below, so its key may be empty too.
            _flatten(flat, path, inner, depth + 1, named=named and bool(str(key).strip()))
        return
    if len(prefix) > MAX_KEY_CHARACTERS:
        raise BadDocument(f"a metadata key has {len(prefix):,} characters; the limit is {MAX_KEY_CHARACTERS}")
    if isinstance(value, list | tuple | set):
        items = [_trimmed(item) for item in value]
        value = [item for item in items if item is not None] or None
        for item in value or ():
            _check_scalar(prefix, item)
    else:
        value = _trimmed(value)
        if value is not None:
            _check_scalar(prefix, value)
    if value is not None:
        if not named:
            raise BadDocument(f'a metadata key is empty: "{shorten_text(prefix)}"; give it a name')
        flat[prefix] = value
    if len(flat) > MAX_KEYS:
        raise BadDocument(f"metadata has more than {MAX_KEYS} keys")


def _trimmed(value: Any) -> Any:
    """Return a date as text, a text stripped of white space (None if nothing is left), and other values unchanged."""
    if isinstance(value, date):
        value = value.isoformat()
    return value.strip() or None if isinstance(value, str) else value


def _short(key: str) -> str:
    return f'"{key[:60]}…"' if len(key) > 60 else f'"{key}"'


def _check_scalar(key: str, value: Any) -> None:
    if isinstance(value, bool | str):
        return
    if isinstance(value, int | float) and is_finite(value):
        return
    if isinstance(value, int | float):
        raise BadDocument(f"metadata {_short(key)} holds a number that is not finite or too large")
    what = "an object inside a list" if isinstance(value, Mapping) else f"a {type(value).__name__}"
    raise BadDocument(f"metadata {_short(key)} holds {what}; use text, numbers, true/false or lists of them")


def is_finite(number: float) -> bool:
    """Return whether the number can be represented as a finite double."""
    try:
        return math.isfinite(float(number))
    except OverflowError:
        return False


def infer_fields(documents: Iterable[Mapping[str, Any]]) -> dict[str, Field]:
    """Infer fields, by name, from the flattened metadata of a sample of documents.

    A field is a date if every value in the sample looks like a date. It stays a date field afterwards, and documents
    with other values in it are invalid. A field with mixed types is a string.
    """
    kinds: dict[str, set[ScalarType]] = {}
    lists: set[str] = set()
    texts: dict[str, list[str]] = {}
    for metadata in documents:
        for key, value in metadata.items():
            if isinstance(value, list):
                lists.add(key)
            for item in value if isinstance(value, list) else [value]:
                kind = scalar_type(item)
                if kind is not None:
                    kinds.setdefault(key, set()).add(kind)
            if isinstance(value, str):
                texts.setdefault(key, []).append(value)
    fields = {}
    for key, seen in kinds.items():
        agreed: ScalarType = next(iter(seen)) if len(seen) == 1 else "string"
        separator = None if key in lists or agreed != "string" else _list_separator(texts.get(key, []))
        fields[key] = Field(key, "list" if key in lists or separator else agreed, agreed, separator)
    return fields


def _list_separator(texts: list[str]) -> str | None:
    """Return "," or ";" if some of a field's texts are lists written with this separator, else None.

    At least two texts must contain the separator, and at least 60 % of the items between separators must also be whole
    texts: "red, blue" and "red, green" are lists if "red" and "blue" are texts, too.
    """
    alone = set(texts)
    for separator in (",", ";"):
        written = [text for text in texts if separator in text]
        parts = [part.strip() for text in written for part in text.split(separator)]
        if len(written) >= 2 and all(0 < len(part) <= 32 for part in parts):
            known = sum(part in alone for part in parts)
            if known >= 0.6 * len(parts):
                return separator
    return None


def normalise_metadata(flat: Mapping[str, Any], fields: Mapping[str, Field]) -> dict[str, Scalar | list[Scalar]]:
    """Return a document's flattened metadata in normal form.

    Raises:
        BadDocument: a value does not fit its field's type.
    """
    values: dict[str, Scalar | list[Scalar]] = {}
    for key, value in flat.items():
        field = fields[key]
        if field.type == "list":
            items = value if isinstance(value, list) else _split(value, field.separator)
            values[key] = [_fit(field, item) for item in items]
        elif isinstance(value, list):
            if len(value) != 1:
                raise BadDocument(f'metadata "{key}" is a list, but a {field.type} in this collection')
            values[key] = _fit(field, value[0])
        else:
            values[key] = _fit(field, value)
    return values


def _split(value: Any, separator: str | None) -> list[Any]:
    if separator is None or not isinstance(value, str):
        return [value]
    return [part.strip() for part in value.split(separator) if part.strip()]


def _fit(field: Field, value: Any) -> Scalar:
    """Convert a value to its field's type: "12" -> 12 for a number field.

    Raises:
        BadDocument: the value does not fit the type.
    """
    if field.item == "date":
        try:
            return parse_date(value if isinstance(value, str) else str(value))
        except ValueError as error:
            raise BadDocument(f'metadata "{field.name}" is a date in this collection: {error}') from None
    if field.item == "string":
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else str(value)
    if field.item == "number" and not isinstance(value, bool):
        if isinstance(value, int | float):
            return value
        if isinstance(value, str):
            number = _parse_number(value)
            if number is not None:
                return number
    if field.item == "boolean":
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
    raise BadDocument(
        f'metadata "{field.name}" is a {field.item} in this collection; "{shorten_text(str(value))}" is not one'
    )


def _parse_number(text: str) -> int | float | None:
    """Return the number that a text consists of, in JSON or Python notation; None if it is not a finite number.

    Non-ASCII digits and underscores are not accepted. Nor are texts of over `_LONGEST_NUMBER` characters, because
    Python refuses to read integers of thousands of digits.
    """
    text = text.strip()
    found = _NUMBER.fullmatch(text) if len(text) <= _LONGEST_NUMBER else None
    if not found or not math.isfinite(float(text)):
        return None
    return float(text) if found[1] else int(text)


def fields_to_json(fields: Mapping[str, Field]) -> dict[str, dict[str, Any]]:
    """Return name to attributes of each field as JSON values, as the database stores them."""
    return {name: _to_stored(field) for name, field in fields.items()}


def _to_stored(field: Field) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "type": field.type,
        "item": field.item,
        "separator": field.separator,
        "declared": field.declared,
        "description": field.description,
    }
    if field.aliases:
        spec["aliases"] = {value: list(names) for value, names in field.aliases.items()}
    if field.unit is not None:
        spec["unit"] = field.unit
    return spec


def fields_from_json(catalogue: Mapping[str, Mapping[str, Any]]) -> dict[str, Field]:
    """Read fields that `fields_to_json` wrote."""
    return {name: _from_stored(name, spec) for name, spec in catalogue.items()}


def _from_stored(name: str, spec: Mapping[str, Any]) -> Field:
    aliases = {value: tuple(names) for value, names in spec.get("aliases", {}).items()}
    return Field(name, **{**spec, "aliases": aliases})
