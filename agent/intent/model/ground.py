"""Grounding: a model's filter held against what the collections hold.

A key must be a field. A value of a field with few values must be one of them: as it is written, by
another of its names, in another spelling, or misspelt beyond doubt. What cannot be grounded is left out
and reported with what there is; it never widens anything but itself.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from rapidfuzz import fuzz, process

from agent.intent.filters import Json, both, of_date
from agent.intent.model.reply import ModelReading, Time
from agent.intent.time.dates import DateRange, find_date
from agent.intent.time.periods import Calendar
from agent.intent.vocabulary import Vocabulary
from agent.types import Rejected
from retrievers.core.errors import BadRequest
from retrievers.core.fields import Field
from retrievers.core.filters import parse
from retrievers.core.types import FieldValues
from retrievers.text.folding import fold

_MATCHED = frozenset({"eq", "ne", "in", "nin"})
_CLOSE = 88
_MARGIN = 4
_MOST_CANDIDATES = 8


def ground(
    reading: ModelReading, vocabulary: Vocabulary, fields: Mapping[str, Field], calendar: Calendar, now: datetime
) -> tuple[Json | None, list[Rejected]]:
    """The model's filter as far as it can be grounded, its date words resolved by code.

    Args:
        fields: those a filter may name.
    Returns:
        The filter, None when nothing is left of it; and what was left out, with what would do.
    """
    rejected: list[Rejected] = []
    parts: list[Json] = []
    if reading.filter is not None:
        made = _node(reading.filter, vocabulary, fields, rejected)
        if made is not None:
            parts = list(made["filters"]) if made["type"] == "and" else [made]
    dated = _time(reading.time, vocabulary, calendar, now, rejected) if reading.time else None
    if dated is not None:
        name, resolved = dated
        # The words of the question decide about their days, not the model's arithmetic.
        parts = [part for part in parts if not _is_range_of(part, name)] + [resolved]
    return (both(parts) if parts else None), rejected


def _node(
    node: Mapping[str, Any], vocabulary: Vocabulary, fields: Mapping[str, Field], rejected: list[Rejected]
) -> Json | None:
    """A part of the filter, grounded; None when it is left out."""
    kind = node["type"]
    if kind in ("and", "or"):
        inner = [made for one in node["filters"] if (made := _node(one, vocabulary, fields, rejected)) is not None]
        # An alternative less narrows more than was meant: then the whole choice goes.
        if not inner or (kind == "or" and len(inner) < len(node["filters"])):
            return None
        return inner[0] if len(inner) == 1 else {"type": kind, "filters": inner}
    if kind == "not":
        made = _node(node["filter"], vocabulary, fields, rejected)
        return None if made is None else {"type": "not", "filter": made}
    return _leaf(dict(node), vocabulary, fields, rejected)


def _leaf(node: Json, vocabulary: Vocabulary, fields: Mapping[str, Field], rejected: list[Rejected]) -> Json | None:
    """One condition with the field and the values that are meant; None when there are none such."""
    key = _field(str(node["key"]), fields)
    if key is None:
        what, valid = f"filter on {node['key']}"[:200], tuple(sorted(fields))[:40]
        rejected.append(Rejected(what=what, reason="there is no such field", valid=valid))
        return None
    node["key"] = key
    values = vocabulary.catalogue.fields.get(key)
    if values is not None and node["type"] in _MATCHED and fields[key].item == "string":
        known = _known_values(node["value"], key, values, rejected)
        kept = [one for one in known if one]
        if len(kept) < len(known) and (not kept or node["type"] in ("eq", "ne")):
            return None
        node["value"] = kept if isinstance(node["value"], list) else kept[0]
    if values is not None and fields[key].item == "number" and isinstance(node.get("value"), str):
        node["value"] = _number(node["value"])
    try:
        parse(node, fields)
    except BadRequest as error:
        rejected.append(Rejected(what=f"filter on {key}", reason=str(error)[:300], valid=error.valid[:40]))
        return None
    return node


def _known_values(given: Any, key: str, values: FieldValues, rejected: list[Rejected]) -> list[str | None]:
    """For each value the one that is meant; None, and a word about it, for what there is not."""
    known: list[str | None] = []
    for one in given if isinstance(given, list) else [given]:
        known.append(_value(str(one), values))
        if known[-1] is None:
            reason = f'"{key}" has no such value'
            rejected.append(Rejected(what=f"{key} = {one}"[:200], reason=reason, valid=candidates(str(one), values)))
    return known


def _field(name: str, fields: Mapping[str, Field]) -> str | None:
    if name in fields:
        return name
    folded = [one for one in fields if fold(one) == fold(name)]
    return folded[0] if len(folded) == 1 else None


def _value(given: str, values: FieldValues) -> str | None:
    """The value that is meant. A field with more values than are known here takes any."""
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
        process.extract(wanted, list(folded), scorer=fuzz.ratio, score_cutoff=_CLOSE - _MARGIN, limit=2)
        if wanted
        else []
    )
    if best and best[0][1] >= _CLOSE and (len(best) == 1 or best[0][1] - best[1][1] >= _MARGIN):
        return folded[best[0][0]]
    return given if values.distinct > len(values.values) else None


def candidates(given: str, values: FieldValues) -> tuple[str, ...]:
    """The values nearest to what was given; the commonest when none is near."""
    near = process.extract(given, list(values.values), scorer=fuzz.WRatio, score_cutoff=60, limit=_MOST_CANDIDATES)
    common = sorted(values.values, key=lambda value: (-values.values[value], value))
    return tuple(match[0] for match in near) or tuple(common[:_MOST_CANDIDATES])


def _number(text: str) -> float | int | str:
    try:
        return int(text) if text.strip().lstrip("-").isdigit() else float(text)
    except ValueError:
        return text


def _time(
    time: Time, vocabulary: Vocabulary, calendar: Calendar, now: datetime, rejected: list[Rejected]
) -> tuple[str, Json] | None:
    """The days that the words name; the model's own only where they name none."""
    dates = vocabulary.of_role("date")
    name = time.key if time.key in dates else (dates[0] if dates else None)
    if name is None:
        rejected.append(Rejected(what=f'time "{time.phrase}"'[:200], reason="no field holds dates"))
        return None
    zone = now.tzinfo
    assert zone is not None
    period = find_date(time.phrase, calendar)
    if period is not None:
        return name, of_date(DateRange(period, 0, 0, time.phrase), vocabulary.catalogue.fields[name], zone)
    parts: list[Json] = [
        {"type": kind, "key": name, "value": value[:10]}
        for kind, value in (("gte", time.start), ("lt", time.end))
        if value
    ]
    return (name, both(parts)) if parts else None


def _is_range_of(part: Mapping[str, Any], name: str) -> bool:
    inner: Sequence[Mapping[str, Any]] = part["filters"] if part["type"] == "and" else [part]
    return all(one.get("key") == name and one["type"] in ("gt", "gte", "lt", "lte") for one in inner)
