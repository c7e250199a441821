"""Limits on the size of a request. They are checked first, because parsing or validating a huge body takes seconds."""

from collections import deque
from collections.abc import Mapping
from typing import Any

from retrievers.core.json_limits import JsonLimits

MOST_KEYS = 200
"""Maximum number of keys of a request."""
_MOST_INNER_KEYS = 1_000
"""Maximum number of keys of an object inside a request. One field of a schema may need so many for its aliases."""
MOST_ITEMS = 10_000
"""Maximum number of items of a list."""
_MOST_DEPTH = 8
"""Maximum nesting depth that is checked. Deeper values are free-form JSON, for which pydantic creates no errors."""
_OWN_LIMITS = frozenset(["filter", "filters", "advisors"])
"""Keys whose values are not checked inside, because other code limits their contents."""

QUESTION_LIMITS = JsonLimits(values=200_000, containers=25_000)
"""For every body but documents. The largest filter has 128,000 values, the longest conversation 20,000 objects."""
TOOL_CALL_LIMITS = JsonLimits(values=200_000, containers=10_000)
"""For an MCP tool call. Its limit is lower, because the MCP package parses it several times on the event loop."""
DOCUMENT_LIMITS = JsonLimits(values=1_000_000, containers=500_000)


def find_oversized_part(request: Mapping[str, Any]) -> tuple[tuple[str, ...], str] | None:
    """Return the path of the first object or list that is too large, and the reason; None if there is none.

    The path has the keys and list indexes from the outside in; () is the whole request.

    Args:
        request: a JSON object, of any depth.
    """
    if len(request) > MOST_KEYS:
        return (), f"it has {len(request):,} keys; at most {MOST_KEYS} are possible"
    left: deque[tuple[tuple[str, ...], Any]] = deque(((key,), part) for key, part in request.items())
    while left:
        path, value = left.popleft()
        if isinstance(value, list) and len(value) > MOST_ITEMS:
            return path, f"it has {len(value):,} items; at most {MOST_ITEMS:,} are possible"
        if not isinstance(value, dict | list) or path[-1] in _OWN_LIMITS or len(path) > _MOST_DEPTH:
            continue
        if isinstance(value, dict) and len(value) > _MOST_INNER_KEYS:
            return path, f"it has {len(value):,} keys; at most {_MOST_INNER_KEYS:,} are possible"
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        left.extend(((*path, str(key)), part) for key, part in pairs if isinstance(part, dict | list))
    return None
