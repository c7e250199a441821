"""A model's calculation in the form of `retrievers.core.aggregates`."""

import re
from collections.abc import Mapping
from typing import Any

_OF_A_DATE = re.compile(r"(?:year|quarter|month)\(.+\)")
_ASKS_A_VALUE = re.compile(
    r"\s*(?:when|how|since when|on (?:which|what) da(?:y|te)|in (?:which|what) year"
    r"|what (?:is|was|are|were) the (?:date|year|number|value|\w+est|maximum|minimum|max|min)\b"
    r"|what(?:'s| is| was) the \w+ (?:date|year|number|value))",
    re.IGNORECASE,
)
_ASKS_A_DIFFERENCE = re.compile(r"\bhow (?:many|much) (?:more|fewer|less)\b", re.IGNORECASE)


def to_aggregate(
    aggregate: Mapping[str, Any], *, question: str = "", filter: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The model's aggregate in the form of `retrievers.core.aggregates`; `parse_aggregate` checks it.

    Args:
        aggregate: of a `ModelReading`: `field` is what is counted, shown, compared or added up.
        question: the self-contained one: "which" asks for the documents of an extreme, "when" for its value.
        filter: the grounded filter; groups it names are the only ones wanted.
    """
    op, field, group_by = aggregate["op"], aggregate.get("field"), aggregate.get("group_by")
    order, limit = aggregate.get("order"), aggregate.get("limit")
    kept = {key: aggregate[key] for key in ("where", "decimals") if aggregate.get(key) is not None}
    if op in ("group", "top", "count", "difference") and group_by is not None:
        made: dict[str, Any] = {"op": "difference" if op == "difference" else "count", "group_by": group_by}
        if op == "top":
            made |= {"order": order or "desc", "limit": limit or 1}
        elif not (_OF_A_DATE.fullmatch(group_by) and limit is None):
            # "per year, ascending" is about the years; `order` would be about the counts.
            made |= {"order": order, "limit": limit}
        between = list(aggregate.get("between") or _named_groups(filter, group_by))
        if len(between) == 2 and _ASKS_A_DIFFERENCE.search(question):
            made = {"op": "difference", "group_by": group_by}
            between.sort(key=lambda value: question.find(str(value)))
        return made | kept | ({"between": between} if between else {})
    if op in ("min", "max") and group_by is None and not _ASKS_A_VALUE.match(question):
        order = "asc" if op == "min" else "desc"
        return {"op": "list", "of": field, "order": order, "limit": limit or 1, "show": _shown(aggregate, field)}
    if op == "top":
        return {
            "op": "list", "of": field, "order": order or "desc", "limit": limit or 1, "show": _shown(aggregate, field)
        }  # fmt: skip
    if op in ("list", "group"):
        ordered = {"of": field, "order": order} if order else {}
        return {"op": "list", **ordered, "limit": limit, "show": _shown(aggregate, field)}
    if op == "distinct":
        return {"op": "count", "of": field, **kept}
    if op in ("count", "share", "difference"):
        return {"op": op, **kept, **({"between": aggregate["between"]} if aggregate.get("between") else {})}
    grouped = {"group_by": group_by, "order": order, "limit": limit} if group_by else {}
    return {"op": op, "of": field, **grouped, **kept}


def _shown(aggregate: Mapping[str, Any], field: str | None) -> list[str]:
    return list(aggregate.get("show") or ([field] if field else []))


def _named_groups(node: Mapping[str, Any] | None, group_by: str) -> list[Any]:
    """The values that a filter leaves of the field that is grouped by, when it lists them outright."""
    if node is None:
        return []
    if node.get("type") == "and":
        found = (_named_groups(inner, group_by) for inner in node["filters"])
        return next((values for values in found if values), [])
    if node.get("key") == group_by and node.get("type") == "in" and isinstance(node.get("value"), list):
        return list(node["value"])
    return []
