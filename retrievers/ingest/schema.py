"""A folder's own schema file, which is no document."""

import json
from pathlib import Path

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
