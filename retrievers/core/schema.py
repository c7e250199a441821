"""The schema of a collection: its declared fields, the words for one of its documents, and its description."""

from collections.abc import Iterable, Mapping
from typing import Any, get_args

from retrievers.core.errors import BadDocument, listing
from retrievers.core.fields import MAX_KEY_CHARACTERS, Field, FieldType, ScalarType, shortened

MAX_ALIASES = 1000
"""Maximum number of aliases of one field, over all of its values."""
MAX_ALIAS_CHARACTERS = 100
MAX_RECORDS = 40
"""Maximum number of words for a document."""
MAX_RECORD_CHARACTERS = 60
MAX_UNIT_CHARACTERS = 20
MAX_DESCRIPTION_CHARACTERS = 1000

_FORM = 'a schema is an object like {"fields": {"published": "date"}, "records": ["upload", "uploads"]}'
_KEYS = {"type", "item", "separator", "description", "aliases", "unit"}


class Schema(dict[str, Field]):
    """The declared fields by name.

    Attributes:
        records: words for a document of the collection ("upload", "uploads", "上传"); None if none are declared.
        description: what the collection holds; "" to have a draft written; None if none is declared.
    """

    def __init__(
        self,
        fields: Mapping[str, Field] | None = None,
        records: Iterable[str] | None = None,
        description: str | None = None,
    ) -> None:
        super().__init__(fields or {})
        self.records = None if records is None else tuple(records)
        self.description = description


def read_schema(data: object) -> Schema:
    """Read a schema from the JSON value of a file or a request.

    Args:
        data: `{"fields": {"published": "date", "size": {"type": "number", "unit": "kb"}, "tags": {"type": "list",
            "item": "string", "separator": ",", "description": "...", "aliases": {"kubernetes": ["k8s"]}}}, "records":
            ["upload", "uploads"], "description": "What customers sent in"}`; any key may be left out.
    Raises:
        BadDocument: the value has another form.
    """
    if not isinstance(data, Mapping) or not data.keys() & {"fields", "records", "description"}:
        raise BadDocument(_FORM)
    given = data.get("fields", {})
    if not isinstance(given, Mapping):
        raise BadDocument(_FORM)
    records = _read_records(data["records"]) if "records" in data else None
    description = read_description(data["description"]) if "description" in data else None
    return Schema({str(name): _read_field(name, spec) for name, spec in given.items()}, records, description)


def read_description(given: object) -> str:
    """Return the description of a collection as one line.

    Raises:
        BadDocument: it is not text, too long, or contains characters that cannot be printed.
    """
    text = " ".join(given.split()) if isinstance(given, str) else None
    if text is None or not text.isprintable() or len(text) > MAX_DESCRIPTION_CHARACTERS:
        raise BadDocument(f"a description is text of at most {MAX_DESCRIPTION_CHARACTERS:,} printable characters")
    return text


def _read_records(given: object) -> tuple[str, ...]:
    """Return the words for a document, without duplicates.

    Raises:
        BadDocument: not a list of words, too many or too long.
    """
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) and one.strip() for one in given):
        raise BadDocument('schema: records must be a list of words for a document, such as ["upload", "uploads"]')
    words = tuple(dict.fromkeys(" ".join(one.split()) for one in given))
    if any(not one.isprintable() for one in words):
        raise BadDocument("schema: a word of records holds a character that cannot be printed")
    if len(words) > MAX_RECORDS or any(len(one) > MAX_RECORD_CHARACTERS for one in words):
        raise BadDocument(f"schema: records are at most {MAX_RECORDS} words of {MAX_RECORD_CHARACTERS} characters")
    return words


def _read_field(name: str, given: object) -> Field:
    spec = {"type": given} if isinstance(given, str) else given
    where = f'schema field "{name}"'
    if not isinstance(spec, Mapping):
        raise BadDocument(f"{where} is neither a type name nor an object")
    if len(name) > MAX_KEY_CHARACTERS or any(c == "\0" or "\ud800" <= c <= "\udfff" for c in f"{name}{spec}"):
        raise BadDocument(f"a schema field has a name of over {MAX_KEY_CHARACTERS} characters or an invalid character")
    if not name.strip():
        raise BadDocument("a schema field has an empty name")
    if unknown := set(spec) - _KEYS:
        raise BadDocument(f"{where} has unknown keys: {listing(unknown)}")
    kind: Any = spec.get("type")
    item: Any = spec.get("item", "string")
    if kind not in get_args(FieldType):
        raise BadDocument(f"{where}: type must be one of {listing(get_args(FieldType))}")
    if item not in get_args(ScalarType):
        raise BadDocument(f"{where}: item must be one of {listing(get_args(ScalarType))}")
    separator: Any = spec.get("separator")
    if separator is not None and not (kind == "list" and isinstance(separator, str) and separator):
        raise BadDocument(f'{where}: separator must be text, and is for type "list" only')
    members: ScalarType = item if kind == "list" else kind
    return Field(
        str(name),
        kind,
        members,
        separator,
        declared=True,
        description=str(spec.get("description", "")),
        aliases=_read_aliases(name, members, spec.get("aliases", {})),
        unit=_read_unit(where, members, spec.get("unit")),
    )


def _read_unit(where: str, item: ScalarType, given: object) -> str | None:
    """Return the unit of a numeric field, None if none is given.

    Raises:
        BadDocument: the unit is not a short text, or the field is not a number.
    """
    if given is None:
        return None
    if item != "number":
        raise BadDocument(f"{where}: unit is for number fields; this is a {item} field")
    if not isinstance(given, str) or not given.strip() or not given.isprintable() or len(given) > MAX_UNIT_CHARACTERS:
        raise BadDocument(f'{where}: unit must be text of at most {MAX_UNIT_CHARACTERS} characters, such as "kb"')
    return given.strip()


def _read_aliases(field: str, item: ScalarType, given: object) -> dict[str, tuple[str, ...]]:
    """Return the aliases of each value. No document needs to have the value yet.

    Raises:
        BadDocument: the aliases have another form, are too many or too long, or one alias stands for two values.
    """
    where = f'schema field "{field}": aliases'
    if not isinstance(given, Mapping):
        raise BadDocument(f'{where} must be an object like {{"infrastructure": ["infra"]}}')
    if given and item not in ("string", "boolean"):
        raise BadDocument(f"{where} are for text and true/false; this is a {item} field")
    aliases: dict[str, tuple[str, ...]] = {}
    # Maps each name in use to the value it stands for.
    meant = {_alias_key(str(value)): str(value) for value in given}
    for value, names in given.items():
        if item == "boolean" and value not in ("true", "false"):
            raise BadDocument(f'{where} can be for "true" and "false" only, not for "{shortened(value)}"')
        if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
            raise BadDocument(f'{where} for "{shortened(value)}" must be a list of names')
        for name in names:
            if len(name) > MAX_ALIAS_CHARACTERS:
                raise BadDocument(f'{where}: "{shortened(name)}" is longer than {MAX_ALIAS_CHARACTERS} characters')
            other = meant.setdefault(_alias_key(name), value)
            if other != value:
                raise BadDocument(
                    f'{where}: "{shortened(name)}" stands for both "{shortened(other)}" and "{shortened(value)}"'
                )
        if names:
            aliases[value] = tuple(name.strip() for name in names)
    if sum(map(len, aliases.values())) > MAX_ALIASES:
        raise BadDocument(f"{where}: there are more than {MAX_ALIASES:,}")
    return aliases


def _alias_key(name: str) -> str:
    return " ".join(name.casefold().split())
