"""Write a model's recorded reading as the reply that a peer's retriever asks models for."""

import json
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any

_LLAMAINDEX = {
    "eq": "==", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=", "in": "in", "nin": "nin",
}  # fmt: skip
_LLAMAINDEX_LISTS = {"eq": "contains", "in": "any"}


def langchain_reply(query: str, wanted: Mapping[str, Any] | None, fields: Mapping[str, str]) -> str:
    """Return the reply for SelfQueryRetriever, as favourably as its translator for PostgreSQL allows.

    The translator lacks `gte` and `lte`, so bounds, which are whole numbers or days, move by one: `gte 5` becomes
    `gt 4`. It also has no operator for lists, so their conditions become `like`.

    Args:
        wanted: a filter expression of comparisons, `and` and `or`; None for no filter.
        fields: type by name.
    """
    written = _called(wanted, fields) if wanted else "NO_FILTER"
    return f"```json\n{json.dumps({'query': query, 'filter': written}, ensure_ascii=False)}\n```"


def _called(wanted: Mapping[str, Any], fields: Mapping[str, str]) -> str:
    """Return a filter as function calls: and(eq("status", "Final"), gt("number", 7))."""
    if "filters" in wanted:
        return f"{wanted['type']}({', '.join(_called(one, fields) for one in wanted['filters'])})"
    kind, key, value = wanted["type"], wanted["key"], wanted["value"]
    if fields.get(key) == "list" and kind in ("eq", "in"):
        likes = [f"like({_json(key)}, {_json(f'%{one}%')})" for one in (value if kind == "in" else [value])]
        return likes[0] if len(likes) == 1 else f"or({', '.join(likes)})"
    if kind in ("gte", "lte"):
        kind, value = ("gt", _moved(value, -1)) if kind == "gte" else ("lt", _moved(value, 1))
    return f"{kind}({_json(key)}, {_json(value)})"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _moved(value: Any, by: int) -> Any:
    """Return a whole number plus `by`, or the ISO date `by` days later."""
    return (date.fromisoformat(value) + timedelta(days=by)).isoformat() if isinstance(value, str) else value + by


def llamaindex_reply(query: str, wanted: Mapping[str, Any] | None, fields: Mapping[str, str]) -> str:
    """Return the reply for VectorIndexAutoRetriever, a flat list of conditions that all hold.

    Args:
        wanted, fields: as for `langchain_reply`.
    Raises:
        ValueError: the filter has an `or`, which cannot be written as a flat list.
    """
    filters = list(_conditions(wanted, fields)) if wanted else []
    return json.dumps({"query": query, "filters": filters}, ensure_ascii=False)


def _conditions(wanted: Mapping[str, Any], fields: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    if wanted["type"] == "and":
        for one in wanted["filters"]:
            yield from _conditions(one, fields)
        return
    if "filters" in wanted:
        raise ValueError(f"the form of a filter has no `{wanted['type']}`")
    kind, key = wanted["type"], wanted["key"]
    operator = (_LLAMAINDEX_LISTS if fields.get(key) == "list" else {}).get(kind, _LLAMAINDEX[kind])
    yield {"key": key, "value": wanted["value"], "operator": operator}
