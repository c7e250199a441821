"""Schema files, which declare fields; a folder's own is no document."""

import json
from pathlib import Path

from retrievers.core.errors import BadDocument, BadRequest
from retrievers.core.fields import Field, read_schema

NAME = "schema.json"


def schema_of(folder: Path) -> Path | None:
    """The schema file `schema.json` directly in a folder; None for a file, and for something else of that name."""
    path = folder / NAME
    try:
        fields = json.loads(path.read_bytes())["fields"] if path.is_file() else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    given = list(fields.values()) if isinstance(fields, dict) else []
    is_schema = all(isinstance(one, str) or (isinstance(one, dict) and "type" in one) for one in given)
    return path if given and is_schema else None


def read_schema_file(path: Path) -> dict[str, Field]:
    """The fields declared in a schema file.

    Raises:
        BadRequest: it cannot be read, or is none; the message names it.
    """
    try:
        return read_schema(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise BadRequest(f"{path}: the schema cannot be read: {error}", where="schema") from error
    except BadDocument as error:
        raise BadRequest(f"{path}: {error}", where="schema") from error
