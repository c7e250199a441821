"""Make filter JSON in the grammar of requests, one filter for each constraint read from a question."""

from collections.abc import Mapping, Sequence
from datetime import date, datetime, time, tzinfo
from typing import Any

from agent.intent.conditions.document_numbers import NumberCondition
from agent.intent.deciding.constraints import Constraint
from agent.intent.time.periods import Period
from agent.intent.time.run_reader import DateRange
from agent.intent.values.date_units import DateUnits
from retrievers.core.types import FieldValues

Json = dict[str, Any]


def filter_values(filter: Json) -> list[Any]:
    """Return the values of an `eq` or `in` condition."""
    value = filter["value"]
    return list(value) if isinstance(value, list) else [value]


def constraint_filter(one: Constraint, fields: Mapping[str, FieldValues]) -> Json:
    """Return the filter for a constraint on values.

    If several fields may satisfy the constraint, their filters are joined by "or"; by "and" if it is negated.
    """
    parts = [_values(name, one, fields) for name in (one.field, *one.alternative_fields)]
    return parts[0] if len(parts) == 1 else {"type": "and" if one.negated else "or", "filters": parts}


def _values(name: str, one: Constraint, fields: Mapping[str, FieldValues]) -> Json:
    values = [_typed(value, fields[name]) for value in one.values]
    if len(values) == 1:
        return {"type": "ne" if one.negated else "eq", "key": name, "value": values[0]}
    if one.requires_all and not one.negated:
        return {"type": "and", "filters": [{"type": "eq", "key": name, "value": value} for value in values]}
    return {"type": "nin" if one.negated else "in", "key": name, "value": values}


def _typed(value: str, values: FieldValues) -> str | bool | int:
    if values.field.item == "number":
        return int(value)
    return value == "true" if values.field.item == "boolean" else value


def date_filter(one: DateRange, values: FieldValues, zone: tzinfo, units: DateUnits | None = None) -> Json | None:
    """Return the filter for a range of days on a date field: from its first day to before its end.

    Args:
        values: the field, with its first and last stored date.
        zone: the asker's time zone.
        units: for a field of months, quarters or years.
    Returns:
        The filter; None if the range begins or ends inside one of the units, or no stored text lies in it.
    """
    period, high = one.period, one.period.high
    if period.until is not None and str(values.high or "") >= period.until.isoformat():
        high = period.until  # "the past year" ends today, even if there are later documents
    if units is not None:
        high = units.up_to(high) if high is not None and high == period.until else high
        return units.filter(values.field.name, Period(period.low, high))
    with_time = any("T" in str(bound) for bound in (values.low, values.high) if bound is not None)
    parts: list[Json] = []
    for kind, day in (("gte", period.low), ("lt", high)):
        if day is not None:
            # Days are in the asker's time zone; stored times are UTC.
            text = datetime.combine(day, time(), zone).isoformat() if with_time else day.isoformat()
            parts.append({"type": kind, "key": values.field.name, "value": text})
    return all_of(parts)


def number_filter(one: NumberCondition) -> Json:
    """Return the filter for a range of numbers or for single numbers; for a field of texts, for the texts in `one`."""
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
    return all_of(parts)


_OPPOSITES = {"gte": "lt", "gt": "lte", "lt": "gte", "lte": "gt", "eq": "ne", "in": "nin"}


def negate_range(bounds: Json) -> Json:
    """Return the filter for values outside a range, given as one comparison or an "and" of two."""
    parts: list[Json] = bounds["filters"] if bounds["type"] == "and" else [bounds]
    return any_of([{**part, "type": _OPPOSITES[part["type"]]} for part in parts])


def all_of(parts: Sequence[Json]) -> Json:
    """Return the "and" of at least one filter; nested "and" groups are flattened."""
    flat = [inner for part in parts for inner in (part["filters"] if part["type"] == "and" else [part])]
    return flat[0] if len(flat) == 1 else {"type": "and", "filters": flat}


def any_of(parts: Sequence[Json]) -> Json:
    """Return the "or" of at least one filter."""
    return parts[0] if len(parts) == 1 else {"type": "or", "filters": list(parts)}


def is_negation(filter: Json) -> bool:
    """Return whether a filter is a negation: "ne", "nin" or "not"."""
    return filter["type"] in ("ne", "nin", "not")


def is_outside_range(filter: Json) -> bool:
    """Return whether a filter is the outside of a range: "not in 2025"."""
    return filter["type"] == "or" and [one["type"] for one in filter["filters"]] == ["lt", "gte"]


def is_exclusion(filter: Json) -> bool:
    """Return whether a filter says only which documents are excluded: a negation, or the outside of a range."""
    return is_negation(filter) or is_outside_range(filter)


def filter_fields(filter: Json) -> set[str]:
    """Return the fields of all conditions in a filter."""
    inner = filter.get("filters") or ([filter["filter"]] if "filter" in filter else [])
    return {key for one in inner for key in filter_fields(one)} if inner else {str(filter["key"])}


def with_field(filter: Json, field: str) -> Json:
    """Return the filter with all its conditions moved to another field."""
    if "filters" in filter:
        return {**filter, "filters": [with_field(one, field) for one in filter["filters"]]}
    return {**filter, "filter": with_field(filter["filter"], field)} if "filter" in filter else {**filter, "key": field}


def shift_years(filter: Json, years: int) -> Json:
    """Return a filter on dates moved by some years; its values are days, times, or texts that begin with the year.

    29 February becomes 28 February, also in a leap year.
    """
    if "filters" in filter:
        return {**filter, "filters": [shift_years(one, years) for one in filter["filters"]]}
    value = str(filter["value"])
    if len(value) < len("2025-01-01"):
        return {**filter, "value": f"{int(value[:4]) + years}{value[4:]}"}
    day, time_of_day = date.fromisoformat(value[:10]), value[10:]
    last = 28 if (day.month, day.day) == (2, 29) else day.day
    return {**filter, "value": f"{day.replace(year=day.year + years, day=last)}{time_of_day}"}
