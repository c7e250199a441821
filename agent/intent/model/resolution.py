"""Match a model's filter to the fields and values of the catalogue, and turn its calculation into an aggregate.

A filter's key must be a field. If a field has few values, the filter's value must be one of them: as written, by an
alias, in another spelling, or misspelt beyond doubt. Other conditions are left out and reported with valid candidates.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rapidfuzz import fuzz, process

from agent.intent.conditions.date_fields import choose_occurrence
from agent.intent.conditions.filter_json import Json, all_of, date_filter
from agent.intent.model.reply import ModelReading, TimeRestriction
from agent.intent.time.dates import find_date
from agent.intent.time.periods import Calendar
from agent.intent.time.run_reader import DateRange
from agent.intent.values.vocabulary import Vocabulary
from agent.types import Rejected
from retrievers.core.errors import BadRequest
from retrievers.core.filters import parse_filter
from retrievers.core.metadata import Field
from retrievers.core.types import FieldValues
from retrievers.text.folding import fold

_OPERATORS_WITH_VALUES = frozenset({"eq", "ne", "in", "nin"})
_LEAST_SIMILARITY = 88
_LEAST_LEAD = 4
_MOST_CANDIDATES = 8
_DATE_PERIOD = re.compile(r"(?:year|quarter|month)\(.+\)")
_ASKS_A_VALUE = re.compile(
    r"\s*(?:when|how|since when|on (?:which|what) da(?:y|te)|in (?:which|what) year"
    r"|what (?:is|was|are|were) the (?:date|year|number|value|\w+est|maximum|minimum|max|min)\b"
    r"|what(?:'s| is| was) the \w+ (?:date|year|number|value))",
    re.IGNORECASE,
)
_ASKS_A_DIFFERENCE = re.compile(r"\bhow (?:many|much) (?:more|fewer|less)\b", re.IGNORECASE)


def resolve_filter(
    reading: ModelReading, vocabulary: Vocabulary, fields: Mapping[str, Field], calendar: Calendar, now: datetime
) -> tuple[Json | None, list[Rejected]]:
    """Return the model's filter with the catalogue's fields and values, and with its date words resolved.

    Args:
        fields: the fields that a filter may use, by name.
    Returns:
        (filter or None if nothing is left of it, reports of its parts that were left out, with the valid candidates).
    """
    rejected: list[Rejected] = []
    parts: list[Json] = []
    if reading.filter is not None:
        made = _resolve_node(reading.filter, vocabulary, fields, rejected)
        if made is not None:
            parts = list(made["filters"]) if made["type"] == "and" else [made]
    dated = _resolve_time(reading.time, vocabulary, calendar, now, rejected) if reading.time else None
    if dated is not None:
        name, resolved = dated
        # The question's words decide the days, not the model's arithmetic.
        parts = [part for part in parts if not _is_range_of(part, name)] + [resolved]
    return (all_of(parts) if parts else None), rejected


def _resolve_node(
    node: Mapping[str, Any], vocabulary: Vocabulary, fields: Mapping[str, Field], rejected: list[Rejected]
) -> Json | None:
    """Return a node of the filter with the catalogue's fields and values, None if all of it is left out.

    What is left out is added to `rejected`.
    """
    kind = node["type"]
    if kind in ("and", "or"):
        inner = [
            made for one in node["filters"] if (made := _resolve_node(one, vocabulary, fields, rejected)) is not None
        ]
        # Dropping one alternative would narrow the filter more than was meant, so the whole choice is dropped.
        if not inner or (kind == "or" and len(inner) < len(node["filters"])):
            return None
        return inner[0] if len(inner) == 1 else {"type": kind, "filters": inner}
    if kind == "not":
        made = _resolve_node(node["filter"], vocabulary, fields, rejected)
        return None if made is None else {"type": "not", "filter": made}
    return _resolve_condition(dict(node), vocabulary, fields, rejected)


def _resolve_condition(
    node: Json, vocabulary: Vocabulary, fields: Mapping[str, Field], rejected: list[Rejected]
) -> Json | None:
    """Return a condition with the catalogue's field and values; None if it is left out and added to `rejected`."""
    key = _field(str(node["key"]), fields)
    if key is None:
        what, valid = f"filter on {node['key']}"[:200], tuple(sorted(fields))[:40]
        rejected.append(Rejected(what=what, reason="there is no such field", valid=valid))
        return None
    node["key"] = key
    values = vocabulary.catalogue.fields.get(key)
    if values is not None and node["type"] in _OPERATORS_WITH_VALUES and fields[key].item == "string":
        known = _known_values(node["value"], key, values, rejected)
        kept = [one for one in known if one]
        if len(kept) < len(known) and (not kept or node["type"] in ("eq", "ne")):
            return None
        node["value"] = kept if isinstance(node["value"], list) else kept[0]
    if values is not None and fields[key].item == "number" and isinstance(node.get("value"), str):
        node["value"] = _number(node["value"])
    try:
        parse_filter(node, fields)
    except BadRequest as error:
        rejected.append(Rejected(what=f"filter on {key}", reason=str(error)[:300], valid=error.valid[:40]))
        return None
    return node


def _known_values(given: Any, key: str, values: FieldValues, rejected: list[Rejected]) -> list[str | None]:
    """Return the known value for each given value; None for an unknown one, which is added to `rejected`."""
    known: list[str | None] = []
    for one in given if isinstance(given, list) else [given]:
        known.append(_value(str(one), values))
        if known[-1] is None:
            reason = f'"{key}" has no such value'
            rejected.append(
                Rejected(what=f"{key} = {one}"[:200], reason=reason, valid=suggested_values(str(one), values))
            )
    return known


def _field(name: str, fields: Mapping[str, Field]) -> str | None:
    if name in fields:
        return name
    folded = [one for one in fields if fold(one) == fold(name)]
    return folded[0] if len(folded) == 1 else None


def _value(given: str, values: FieldValues) -> str | None:
    """Return the value that `given` means, None if unknown. If the catalogue lists only some values, all are valid."""
    if given in values.values:
        return given
    if given in values.aliases:
        return values.aliases[given]
    wanted = fold(given)
    folded = {fold(value): value for value in values.values} | {
        fold(alias): value for alias, value in values.aliases.items()
    }
    if wanted in folded:
        return folded[wanted]
    best = (
        process.extract(wanted, list(folded), scorer=fuzz.ratio, score_cutoff=_LEAST_SIMILARITY - _LEAST_LEAD, limit=2)
        if wanted
        else []
    )
    if best and best[0][1] >= _LEAST_SIMILARITY and (len(best) == 1 or best[0][1] - best[1][1] >= _LEAST_LEAD):
        return folded[best[0][0]]
    return given if values.distinct > len(values.values) else None


def suggested_values(given: str, values: FieldValues) -> tuple[str, ...]:
    """Return at most eight values: those spelt most like `given`, or the most frequent ones if none is like it."""
    near = process.extract(given, list(values.values), scorer=fuzz.WRatio, score_cutoff=60, limit=_MOST_CANDIDATES)
    common = sorted(values.values, key=lambda value: (-values.values[value], value))
    return tuple(match[0] for match in near) or tuple(common[:_MOST_CANDIDATES])


def _number(text: str) -> float | int | str:
    try:
        return int(text) if text.strip().lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def _resolve_time(
    time: TimeRestriction, vocabulary: Vocabulary, calendar: Calendar, now: datetime, rejected: list[Rejected]
) -> tuple[str, Json] | None:
    """Return (date field, filter of the days that the words of `time` name), or None if there is no such filter.

    The model's own dates are used only if the words name no days. A report is added to `rejected` if there is no date
    field, or if the days are not whole units of a field of months, quarters or years.
    """
    dates = vocabulary.of_role("date")
    name = time.key if time.key in dates else (dates[0] if dates else None)
    if name is None:
        rejected.append(Rejected(what=f'time "{time.phrase}"'[:200], reason="no field holds dates"))
        return None
    zone = now.tzinfo
    assert zone is not None
    period = find_date(time.phrase, calendar)
    if period is not None:
        stated, units = DateRange(period, 0, 0, time.phrase), vocabulary.date_units.get(name)
        values = vocabulary.catalogue.fields[name]
        made = date_filter(choose_occurrence(stated, values, calendar.today)[0], values, zone, units)
        if made is None:
            rejected.append(Rejected(what=f'time "{time.phrase}"'[:200], reason=f"it cuts the periods of {name}"))
        return (name, made) if made is not None else None
    parts: list[Json] = [
        {"type": kind, "key": name, "value": value[:10]}
        for kind, value in (("gte", time.start), ("lt", time.end))
        if value
    ]
    return (name, all_of(parts)) if parts else None


def _is_range_of(part: Mapping[str, Any], name: str) -> bool:
    inner: Sequence[Mapping[str, Any]] = part["filters"] if part["type"] == "and" else [part]
    return all(one.get("key") == name and one["type"] in ("gt", "gte", "lt", "lte") for one in inner)


def translate_aggregate(
    aggregate: Mapping[str, Any], *, question: str = "", filter: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the JSON that `retrievers.core.aggregates.parse_aggregate` checks and reads, from the model's aggregate.

    Args:
        aggregate: that of a `ModelReading`: its `field` is counted, shown, compared or added up.
        question: self-contained; "which" asks for the documents with an extreme value, "when" for the value itself.
        filter: the filter that `resolve_filter` returned; if it lists groups, only these are calculated.
    """
    op, field, group_by = aggregate["op"], aggregate.get("field"), aggregate.get("group_by")
    order, limit = aggregate.get("order"), aggregate.get("limit")
    kept = {key: aggregate[key] for key in ("where", "decimals") if aggregate.get(key) is not None}
    if op in ("group", "top", "count", "difference") and group_by is not None:
        made: dict[str, Any] = {"op": "difference" if op == "difference" else "count", "group_by": group_by}
        if op == "top":
            made |= {"order": order or "desc", "limit": limit or 1}
        elif not (_DATE_PERIOD.fullmatch(group_by) and limit is None):
            # "per year, ascending" orders the years, but `order` would order the counts.
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
    """Return the values of the grouping field that a filter lists, [] if it lists none."""
    if node is None:
        return []
    if node.get("type") == "and":
        found = (_named_groups(inner, group_by) for inner in node["filters"])
        return next((values for values in found if values), [])
    if node.get("key") == group_by and node.get("type") == "in" and isinstance(node.get("value"), list):
        return list(node["value"])
    return []
