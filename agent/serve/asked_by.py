"""What the command line says of a request beside the question: who asks, in which conversation, by which advisors."""

import json
from collections.abc import Sequence
from typing import Any

from retrievers.core.errors import BadRequest


def options(
    user: str | None, metadata: str | None, conversation: str | None, advisors: Sequence[str] | None
) -> dict[str, Any]:
    """The options of a request, those that were given.

    Args:
        metadata: a JSON object.
        advisors: each a name, or a JSON object with `name` and parameters.
    Raises:
        BadRequest: one is no JSON, or no object; says which.
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
    except (ValueError, RecursionError) as error:  # also a number of thousands of digits
        reason = str(error)[:200] if isinstance(error, ValueError) else "nested too deeply"
        raise BadRequest(f"{where} is not valid JSON: {reason}", where=where) from None
    if not isinstance(value, dict):
        raise BadRequest(f"{where} must be an object like {example}", where=where)
    return value
