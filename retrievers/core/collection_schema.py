"""Read and check the schema of a collection: its fields, nouns for one of its documents ("upload"), description."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, get_args

from retrievers.core.errors import BadDocument, join_names
from retrievers.core.metadata import MAX_KEY_CHARACTERS, Field, FieldType, ScalarType, shorten_text

MAX_ALIASES = 1000
"""Maximum number of aliases of one field, over all of its values."""
MAX_ALL_ALIASES = 20_000
"""Maximum number of aliases of all fields together."""
MAX_ALIAS_CHARACTERS = 100
MAX_ALIASED_CHARACTERS = 1000
"""Maximum length of a value that has aliases."""
MAX_SEPARATOR_CHARACTERS = 20
MAX_RECORDS = 40
"""Maximum number of nouns in `Schema.records`."""
MAX_RECORD_CHARACTERS = 60
MAX_UNIT_CHARACTERS = 20
MAX_DESCRIPTION_CHARACTERS = 1000
"""Maximum length of the description of a collection, and of that of a field."""
_MOST_BLANKS = 10
"""Maximum length of a text before runs of white space are replaced by single blanks, in multiples of the length
allowed afterwards.
"""
_INVALID = re.compile("[\0\ud800-\udfff]")
"""Characters that the database cannot store."""

_FORM = 'a schema is an object like {"fields": {"published": "date"}, "records": ["upload", "uploads"]}'
_KEYS = {"type", "item", "separator", "description", "aliases", "unit"}


class Schema(dict[str, Field]):
    """The declared fields by name.

    Attributes:
        records: nouns that mean a document of the collection ("upload", "uploads", 上传 "upload"); None if none are
            declared.
        description: what the collection contains; "" if a draft shall be made from its documents; None if none is
            declared.
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
        BadDocument: the value does not have this form.
    """
    if not isinstance(data, Mapping) or not data.keys() & {"fields", "records", "description"}:
        raise BadDocument(_FORM)
    given = data.get("fields", {})
    if not isinstance(given, Mapping):
        raise BadDocument(_FORM)
    if sum(map(_alias_count, given.values())) > MAX_ALL_ALIASES:
        raise BadDocument(f"schema: the fields have more than {MAX_ALL_ALIASES:,} aliases together")
    records = _read_records(data["records"]) if "records" in data else None
    description = None if data.get("description") is None else read_description(data["description"])
    fields = {str(name): _read_field(str(name), spec) for name, spec in given.items()}
    return Schema(fields, records, description)


def read_description(given: object) -> str:
    """Return the description of a collection as one line.

    Raises:
        BadDocument: it is not text, too long, or contains characters that cannot be printed.
    """
    most = MAX_DESCRIPTION_CHARACTERS * _MOST_BLANKS
    text = " ".join(given.split()) if isinstance(given, str) and len(given) <= most else None
    if text is None or not text.isprintable() or len(text) > MAX_DESCRIPTION_CHARACTERS:
        raise BadDocument(f"a description is text of at most {MAX_DESCRIPTION_CHARACTERS:,} printable characters")
    return text


def _read_records(given: object) -> tuple[str, ...]:
    """Return the nouns for a document, without duplicates.

    Raises:
        BadDocument: not a list of texts, or too many or too long.
    """
    if not isinstance(given, list | tuple) or not all(isinstance(one, str) and one.strip() for one in given):
        raise BadDocument('schema: records must be a list of words for a document, such as ["upload", "uploads"]')
    most = MAX_RECORD_CHARACTERS * _MOST_BLANKS
    if any(len(one) > most for one in given):
        raise BadDocument(f"schema: records are at most {MAX_RECORDS} words of {MAX_RECORD_CHARACTERS} characters")
    words = tuple(dict.fromkeys(" ".join(one.split()) for one in given))
    if any(not one.isprintable() for one in words):
        raise BadDocument("schema: a word of records holds a character that cannot be printed")
    if len(words) > MAX_RECORDS or any(len(one) > MAX_RECORD_CHARACTERS for one in words):
        raise BadDocument(f"schema: records are at most {MAX_RECORDS} words of {MAX_RECORD_CHARACTERS} characters")
    return words


def _read_field(name: str, given: object) -> Field:
    if len(name) > MAX_KEY_CHARACTERS or _INVALID.search(name):
        raise BadDocument(f"a schema field has a name of over {MAX_KEY_CHARACTERS} characters or an invalid character")
    if not name.strip():
        raise BadDocument("a schema field has an empty name")
    spec = {"type": given} if isinstance(given, str) else given
    where = f'schema field "{name}"'
    if not isinstance(spec, Mapping):
        raise BadDocument(f"{where} is neither a type name nor an object")
    if unknown := set(spec) - _KEYS:
        raise BadDocument(f"{where} has unknown keys: {join_names(shorten_text(str(key)) for key in unknown)}")
    kind: Any = spec.get("type")
    item: Any = spec.get("item", "string")
    if kind not in get_args(FieldType):
        raise BadDocument(f"{where}: type must be one of {join_names(get_args(FieldType))}")
    if item not in get_args(ScalarType):
        raise BadDocument(f"{where}: item must be one of {join_names(get_args(ScalarType))}")
    separator: Any = spec.get("separator")
    description: Any = spec.get("description")
    if separator is not None and not (kind == "list" and isinstance(separator, str) and separator):
        raise BadDocument(f'{where}: separator must be text, and is for type "list" only')
    members: ScalarType = item if kind == "list" else kind
    return Field(
        name,
        kind,
        members,
        None if separator is None else _bounded(f"{where}: separator", separator, MAX_SEPARATOR_CHARACTERS),
        declared=True,
        description=_bounded(
            f"{where}: description", "" if description is None else description, MAX_DESCRIPTION_CHARACTERS
        ),
        aliases=_read_aliases(name, members, spec.get("aliases", {})),
        unit=_read_unit(where, members, spec.get("unit")),
    )


def _bounded(what: str, given: object, most: int) -> str:
    """Return `given`, checked to be a text that can be stored.

    Raises:
        BadDocument: it is not text, longer than `most`, or contains characters that cannot be stored. The message
            begins with `what`.
    """
    if not isinstance(given, str):
        raise BadDocument(f"{what} must be text")
    if len(given) > most:
        raise BadDocument(f"{what} is longer than {most:,} characters")
    if _INVALID.search(given):
        raise BadDocument(f"{what} contains an invalid character")
    return given


def _read_unit(where: str, item: ScalarType, given: object) -> str | None:
    """Return the unit of a numeric field, None if none is given.

    Raises:
        BadDocument: the unit is not a short text, or the field is not a number.
    """
    if given is None:
        return None
    if item != "number":
        raise BadDocument(f"{where}: unit is for number fields; this is a {item} field")
    if not isinstance(given, str) or len(given) > MAX_UNIT_CHARACTERS or not given.strip() or not given.isprintable():
        raise BadDocument(f'{where}: unit must be text of at most {MAX_UNIT_CHARACTERS} characters, such as "kb"')
    return given.strip()


def _alias_count(spec: object) -> int:
    """Return the number of aliases in a field's specification, or of values with aliases, whichever is larger."""
    aliases = spec.get("aliases") if isinstance(spec, Mapping) else None
    if not isinstance(aliases, Mapping):
        return 0
    return max(len(aliases), sum(len(names) for names in aliases.values() if isinstance(names, list)))


def _read_aliases(field: str, item: ScalarType, given: object) -> dict[str, tuple[str, ...]]:
    """Return value to aliases. The values need not occur in a document yet.

    Raises:
        BadDocument: the aliases are malformed, too many or too long, or one alias stands for two values.
    """
    where = f'schema field "{field}": aliases'
    if not isinstance(given, Mapping):
        raise BadDocument(f'{where} must be an object like {{"infrastructure": ["infra"]}}')
    if given and item not in ("string", "boolean"):
        raise BadDocument(f"{where} are for text and true/false; this is a {item} field")
    if _alias_count({"aliases": given}) > MAX_ALIASES:
        raise BadDocument(f"{where}: there are more than {MAX_ALIASES:,}")
    for value in given:
        _bounded(f'{where}: the value "{shorten_text(str(value))}"', value, MAX_ALIASED_CHARACTERS)
    aliases: dict[str, tuple[str, ...]] = {}
    # Maps each value and alias to the value that it stands for.
    meant: dict[str, str] = {_alias_key(value): value for value in given}
    for value, names in given.items():
        if item == "boolean" and value not in ("true", "false"):
            raise BadDocument(f'{where} can be for "true" and "false" only, not for "{shorten_text(value)}"')
        if not isinstance(names, list) or not all(isinstance(name, str) and name.strip() for name in names):
            raise BadDocument(f'{where} for "{shorten_text(value)}" must be a list of names')
        for name in names:
            _bounded(f'{where}: "{shorten_text(name)}"', name, MAX_ALIAS_CHARACTERS)
            other = meant.setdefault(_alias_key(name), value)
            if other != value:
                raise BadDocument(
                    f'{where}: "{shorten_text(name)}" stands for both "{shorten_text(other)}" '
                    f'and "{shorten_text(value)}"'
                )
        if names:
            aliases[value] = tuple(name.strip() for name in names)
    return aliases


def _alias_key(name: str) -> str:
    return " ".join(name.casefold().split())
