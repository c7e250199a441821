"""Options of the command line besides the question: user, metadata, conversation and advisors."""

import json
from collections.abc import Sequence
from typing import Any

from retrievers.core.errors import BadRequest


def options(
    user: str | None, metadata: str | None, conversation: str | None, advisors: Sequence[str] | None
) -> dict[str, Any]:
    """Return the given options as keyword arguments of a request.

    Args:
        metadata: a JSON object.
        advisors: names, or JSON objects with `name` and parameters.
    Raises:
        BadRequest: a value is not JSON or not an object; the message says which.
    """
    given = {
        "user": user,
        "metadata": _object("--metadata", metadata, '{"app": "intranet"}') if metadata is not None else None,
        "conversation": conversation,
        "advisors": [_advisor(one) for one in advisors or ()] or None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _advisor(text: str) -> dict[str, Any]:
    if not text.lstrip().startswith("{"):
        return {"name": text}
    return _object("--advisor", text, '{"name": "guard", "words": ["merger"]}')


def _object(where: str, text: str, example: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # a number with thousands of digits also raises ValueError
        reason = str(error)[:200] if isinstance(error, ValueError) else "nested too deeply"
        raise BadRequest(f"{where} is not valid JSON: {reason}", where=where) from None
    if not isinstance(value, dict):
        raise BadRequest(f"{where} must be an object like {example}", where=where)
    return value
