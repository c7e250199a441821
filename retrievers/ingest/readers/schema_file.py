"""Schema files, which declare fields. A folder's own schema file is not a document."""

import json
from pathlib import Path

from retrievers.core.collection_schema import Schema, read_schema
from retrievers.core.errors import BadDocument, BadRequest

NAME = "schema.json"


def schema_of(folder: Path) -> Path | None:
    """Return the path of a folder's `schema.json`; None if there is none.

    A file of this name that declares no fields is an ordinary document, so the result is None, too.
    """
    path = folder / NAME
    try:
        read = json.loads(path.read_bytes()) if path.is_file() else None
    except (OSError, ValueError, RecursionError):
        return None
    fields = read.get("fields") if isinstance(read, dict) else None
    given = list(fields.values()) if isinstance(fields, dict) else []
    is_schema = all(isinstance(one, str) or (isinstance(one, dict) and "type" in one) for one in given)
    return path if given and is_schema else None


def read_schema_file(path: Path) -> Schema:
    """Read a schema file.

    Raises:
        BadRequest: it cannot be read or is not a schema. The message contains its path.
    """
    try:
        return read_schema(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError as error:
        raise BadRequest(f'there is no file "{path}" to read the schema from', where="schema") from error
    except OSError as error:
        raise BadRequest(f"{path}: the schema cannot be read: {error.strerror or error}", where="schema") from error
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"{path}: the schema cannot be read: {error}", where="schema") from error
    except BadDocument as error:
        raise BadRequest(f"{path}: {error}", where="schema") from error
