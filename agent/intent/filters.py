"""What was read from a question as filters of the contract's grammar, one per constraint."""

from collections.abc import Mapping, Sequence
from datetime import datetime, time, tzinfo
from typing import Any

from agent.intent.deciding import Constraint
from agent.intent.numbered import NumberRange
from agent.intent.time.dates import DateRange
from agent.intent.time.periods import Period
from retrievers.core.types import FieldValues

Json = dict[str, Any]


def of_constraint(one: Constraint, fields: Mapping[str, FieldValues]) -> Json:
    """A constraint on named values."""
    parts = [_values(name, one, fields) for name in (one.field, *one.also)]
    return parts[0] if len(parts) == 1 else {"type": "and" if one.negated else "or", "filters": parts}


def _values(name: str, one: Constraint, fields: Mapping[str, FieldValues]) -> Json:
    values = [_typed(value, fields[name]) for value in one.values]
    if len(values) == 1:
        return {"type": "ne" if one.negated else "eq", "key": name, "value": values[0]}
    if one.together and not one.negated:
        return {"type": "and", "filters": [{"type": "eq", "key": name, "value": value} for value in values]}
    return {"type": "nin" if one.negated else "in", "key": name, "value": values}


def _typed(value: str, values: FieldValues) -> str | bool | int:
    if values.field.item == "number":
        return int(value)
    return value == "true" if values.field.item == "boolean" else value


def of_date(one: DateRange, values: FieldValues, zone: tzinfo) -> Json:
    """A range of days on a date field, half-open; of a part of every year the one of which there are documents."""
    period = _with_documents(one.period, values)
    with_time = any("T" in str(bound) for bound in (values.low, values.high) if bound is not None)
    parts: list[Json] = []
    high = period.high
    if period.until is not None and str(values.high or "") >= period.until.isoformat():
        high = period.until  # "the past year" ends today where documents lie ahead
    for kind, day in (("gte", period.low), ("lt", high)):
        if day is not None:
            # Days are the asker's; stored times are UTC.
            text = datetime.combine(day, time(), zone).isoformat() if with_time else day.isoformat()
            parts.append({"type": kind, "key": values.field.name, "value": text})
    return both(parts)


def _with_documents(period: Period, values: FieldValues) -> Period:
    """What comes next, where all documents lie behind the latest: of contracts of this year what ends "in June"."""
    first, last = str(values.low or "")[:10], str(values.high or "")[:10]
    ahead = period.coming
    if ahead is None or not first or period.end.isoformat() > first:
        return period
    return ahead if ahead.begin.isoformat() <= last and ahead.end.isoformat() > first else period


def of_number(one: NumberRange) -> Json:
    """A range of numbers, or certain ones; of numbers kept as text the texts."""
    if one.texts is not None:
        return {"type": "nin" if one.negated else "in", "key": one.field, "value": sorted(one.texts)}
    if one.values:
        if len(one.values) == 1:
            return {"type": "ne" if one.negated else "eq", "key": one.field, "value": one.values[0]}
        return {"type": "nin" if one.negated else "in", "key": one.field, "value": list(one.values)}
    parts: list[Json] = []
    if one.low is not None:
        parts.append({"type": "gte" if one.low_included else "gt", "key": one.field, "value": one.low})
    if one.high is not None:
        parts.append({"type": "lte" if one.high_included else "lt", "key": one.field, "value": one.high})
    return both(parts)


_OPPOSITES = {"gte": "lt", "gt": "lte", "lt": "gte", "lte": "gt", "eq": "ne"}


def outside(bounds: Json) -> Json:
    """What lies outside of a range, given as one comparison or two of them together."""
    parts: list[Json] = bounds["filters"] if bounds["type"] == "and" else [bounds]
    return either([{**part, "type": _OPPOSITES[part["type"]]} for part in parts])


def both(parts: Sequence[Json]) -> Json:
    """All of the filters, of which there is at least one; nested groups of the same kind are unfolded."""
    flat = [inner for part in parts for inner in (part["filters"] if part["type"] == "and" else [part])]
    return flat[0] if len(flat) == 1 else {"type": "and", "filters": flat}


def either(parts: Sequence[Json]) -> Json:
    """Any of the filters."""
    return parts[0] if len(parts) == 1 else {"type": "or", "filters": list(parts)}


def excludes(filter: Json) -> bool:
    """Whether a filter states what is not wanted."""
    return filter["type"] in ("ne", "nin", "not")


def keys_named(filter: Json) -> set[str]:
    """The fields that a filter names."""
    inner = filter.get("filters") or ([filter["filter"]] if "filter" in filter else [])
    return {key for one in inner for key in keys_named(one)} if inner else {str(filter["key"])}


def keyed(filter: Json, field: str) -> Json:
    """The filter on another field."""
    if "filters" in filter:
        return {**filter, "filters": [keyed(one, field) for one in filter["filters"]]}
    return {**filter, "filter": keyed(filter["filter"], field)} if "filter" in filter else {**filter, "key": field}


def of_years_later(filter: Json, years: int) -> Json:
    """A filter on a range of days, so many years later."""
    if "filters" in filter:
        return {**filter, "filters": [of_years_later(one, years) for one in filter["filters"]]}
    value = str(filter["value"])
    return {**filter, "value": f"{int(value[:4]) + years:04d}{value[4:]}"}
