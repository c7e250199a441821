"""Read the values of metadata fields from the tables that ingestion maintains, and cache them for each scope.

For scopes with few documents, the documents themselves are read to learn which values occur together.
"""

import asyncio
import time
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from retrievers.core.cooccurrence import MOST_DOCUMENTS
from retrievers.core.metadata import RESERVED, Field, fields_from_json
from retrievers.core.types import PLATFORM, FieldCatalogue, FieldValues, Scope
from retrievers.postgres.catalogue import value_merging
from retrievers.postgres.catalogue.cooccurrence_reader import build_cooccurrence, read_field_rows
from retrievers.postgres.catalogue.value_merging import (
    PartFieldValues,
    filterable_fields,
    merge_values,
    shared_document_nouns,
    with_limited_values,
)
from retrievers.postgres.connections.database import Database

MAX_FOUND = 200

_CATALOGUED = ("language", "public")
"""Reserved keys whose values are listed. The other reserved keys have a different value in nearly every document."""
_MOST_FIELDS = 500
"""In a collection with more fields, the rarest fields get their numbers of documents and of values, but no values."""
_MOST_SPANS = 1000
_MOST_PER_SPAN = 30
_SHOWN = 10
# While documents are written, the version changes with every batch, so that cached values may be this old, in seconds.
_FRESH_S = 1.0
_MOST_SCOPES = 64
_MOST_VALUES = 200_000
"""Maximum values in all cached catalogues; a value takes about 1.5 KB with the names that questions may call it by."""
_TEXTUAL = ("string", "boolean")

VISIBLE_FIELDS = """
    CASE WHEN k.tenant = (SELECT signalbox.tenant()) AND NOT k.number = ANY ((SELECT signalbox.concealed(false))::int[])
    THEN k.fields ELSE (
        SELECT coalesce(jsonb_object_agg(f.name, CASE WHEN NOT f.described ? 'aliases' THEN f.described ELSE
            jsonb_set(f.described, '{aliases}', (
                SELECT coalesce(jsonb_object_agg(a.value, a.names), '{}')
                FROM jsonb_each(f.described -> 'aliases') AS a (value, names)
                WHERE EXISTS (
                    SELECT FROM signalbox.field_value v
                    WHERE v.tenant = k.tenant AND v.collection = ANY (seen.parts) AND v.field = f.name
                      AND v.value = a.value))) END), '{}')
        FROM jsonb_each(k.fields) AS f (name, described), (
            SELECT k.number || ARRAY(SELECT p.number FROM signalbox.collection p
                                     WHERE p.tenant = k.tenant AND p.part_of = k.number) AS parts) AS seen
        WHERE EXISTS (SELECT FROM signalbox.field_count n
                      WHERE n.tenant = k.tenant AND n.collection = ANY (seen.parts) AND n.field = f.name)) END
"""
"""SQL for the fields of a collection `k` that a viewer may know. A viewer who sees all documents of its tenant's
collection knows all fields. Others know the fields, and the aliases of values, that occur in documents they can find:
fields that occur only in hidden, disabled, expired or former documents, or are only declared, are hidden.
"""
_HELD = f"""
    SELECT part.number, part.version, part.documents, k.records, {VISIBLE_FIELDS}, (
        SELECT json_agg(json_build_array(f.field, f.documents, f.kept + f.long, top.held, CASE f.item
            WHEN 'number' THEN (
                SELECT json_build_array(min(least.number), max(most.number)) FROM (
                    SELECT v.number FROM signalbox.field_value v
                    WHERE v.tenant = k.tenant AND v.collection = part.number AND v.field = f.field
                      AND v.number IS NOT NULL
                    ORDER BY v.number LIMIT 1) least, (
                    SELECT v.number FROM signalbox.field_value v
                    WHERE v.tenant = k.tenant AND v.collection = part.number AND v.field = f.field
                      AND v.number IS NOT NULL
                    ORDER BY v.number DESC LIMIT 1) most)
            WHEN 'date' THEN (
                SELECT json_build_array(min(least.value), max(most.value)) FROM (
                    SELECT v.value FROM signalbox.field_value v
                    WHERE v.tenant = k.tenant AND v.collection = part.number AND v.field = f.field
                    ORDER BY v.value LIMIT 1) least, (
                    SELECT v.value FROM signalbox.field_value v
                    WHERE v.tenant = k.tenant AND v.collection = part.number AND v.field = f.field
                    ORDER BY v.value DESC LIMIT 1) most)
            END) ORDER BY f.documents DESC, f.field)
        FROM (SELECT c.*, item, CASE WHEN row_number() OVER (ORDER BY c.documents DESC, c.field) > %(fields)s THEN 0
                                     WHEN item IN ('string', 'boolean') THEN %(values)s ELSE %(shown)s END AS wanted
              FROM signalbox.field_count c, coalesce(k.fields -> c.field ->> 'item', 'string') AS item
              WHERE c.tenant = k.tenant AND c.collection = part.number) f
        CROSS JOIN LATERAL (
            WITH often AS MATERIALIZED (
                SELECT v.value, v.documents FROM signalbox.field_value v
                WHERE v.tenant = k.tenant AND v.collection = part.number AND v.field = f.field AND v.documents > 1
                ORDER BY v.documents DESC, v.value LIMIT f.wanted),
            once AS (
                SELECT v.value, v.documents FROM signalbox.field_value v
                WHERE v.tenant = k.tenant AND v.collection = part.number AND v.field = f.field AND v.documents = 1
                  AND (SELECT count(*) FROM often) < least(f.kept, f.wanted)
                ORDER BY v.value LIMIT f.wanted)
            SELECT json_agg(json_build_array(value, documents)) AS held
            FROM (SELECT * FROM often UNION ALL SELECT * FROM once LIMIT f.wanted) AS either) top)
    FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, number)
    JOIN signalbox.collection part USING (tenant, number)
    JOIN signalbox.collection k ON k.tenant = part.tenant AND k.number = coalesce(part.part_of, part.number)
"""  # noqa: S608 - constants both
# All texts that begin with the span and a blank sort between "span" and "span!", because "!" is the character after the
# blank.
_FIND = """
    SELECT w.collection, w.field, w.value, v.documents, bool_or(w.words = span.words AND w.place = 0)
    FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, collection)
    CROSS JOIN unnest(%(words)s::text[], %(beyond)s::text[]) AS span (words, beyond)
    CROSS JOIN LATERAL (
        SELECT * FROM signalbox.field_word w
        WHERE w.tenant = one.tenant AND w.collection = one.collection
          AND w.words >= span.words AND w.words < span.beyond AND w.field = ANY (%(fields)s)
        ORDER BY w.words, w.place, w.field, w.value LIMIT %(each)s) w
    JOIN signalbox.field_value v
      ON v.tenant = w.tenant AND v.collection = w.collection AND v.field = w.field AND v.value = w.value
    GROUP BY w.collection, w.field, w.value, v.documents
"""


@dataclass(frozen=True, slots=True)
class _KnownValues:
    """A cached catalogue.

    Attributes:
        large: text fields whose rarest values are not in the catalogue, because there are too many values.
        is_whole: False if `catalogue.cooccurrence` could not be read in time.
    """

    read_at: float
    catalogue: FieldCatalogue
    held: tuple[PartFieldValues, ...]
    large: frozenset[str]
    is_whole: bool


_Which = tuple[bool, int, tuple[tuple[str, int, tuple[int, ...]], ...]]
"""Cache key. Whether the platform asks: it sees more of its own collections than other tenants. The counter of reader
changes. (tenant, number, numbers of visible parts) of each collection: the visible fields depend on the parts.
"""


class FieldValueReader:
    """Reads the field catalogues of scopes, and caches each until a collection of the scope changes."""

    def __init__(self, database: Database) -> None:
        self._reads = database.reads
        self._known: OrderedDict[_Which, _KnownValues] = OrderedDict()
        self._reading: dict[_Which, asyncio.Lock] = {}

    async def catalogue(self, scope: Scope, *, fresh: bool = False) -> FieldCatalogue:
        """Return the fields that a filter over the scope may use, with their values; see `Catalogue.fields`."""
        return (await self._current(scope, fresh=fresh)).catalogue

    async def part_values(self, scope: Scope) -> tuple[PartFieldValues, ...]:
        """Return the field values of each collection in the scope and of each of its visible parts."""
        return (await self._current(scope)).held

    async def find(self, scope: Scope, folded_spans: Sequence[str]) -> list[tuple[str, str, int]]:
        """Return (field, value, number of documents) for values that contain a span; see `Catalogue.find_values`."""
        known = await self._current(scope)
        spans = [span for span in dict.fromkeys(folded_spans) if span and "\0" not in span][:_MOST_SPANS]
        numbers = {one.number for one in known.held if not one.values.keys().isdisjoint(known.large)}
        among = [one for one in _counted(scope) if one[1] in numbers]
        if not spans or not among:
            return []
        values = {
            "tenants": [tenant for tenant, _ in among],
            "among": [number for _, number in among],
            "words": spans,
            "beyond": [f"{span}!" for span in spans],
            "fields": list(known.large),
            "each": _MOST_PER_SPAN,
        }
        documents: Counter[tuple[str, str]] = Counter()
        whole: set[tuple[str, str]] = set()
        for _, name, value, count, is_whole in await self._reads.fetch(scope.viewer, _FIND, values):
            documents[name, value] += count
            if is_whole:
                whole.add((name, value))
        ranked = sorted(documents.items(), key=lambda item: (item[0] not in whole, -item[1], item[0]))
        return [(name, value, count) for (name, value), count in ranked[:MAX_FOUND]]

    async def read(self, scope: Scope) -> tuple[PartFieldValues, ...]:
        """Read the current values of every collection in the scope and of its parts, in one query and without cache."""
        counted = _counted(scope)
        values = {
            "tenants": [tenant for tenant, _ in counted],
            "among": [number for _, number in counted],
            "fields": _MOST_FIELDS,
            "values": value_merging.MAX_VALUES,
            "shown": _SHOWN,
        }
        rows = {row[0]: row for row in await self._reads.fetch(scope.viewer, _HELD, values)}
        # A collection deleted in the meantime is left out.
        return tuple(_held(rows[number]) for _, number in counted if number in rows)

    async def _current(self, scope: Scope, *, fresh: bool = False) -> _KnownValues:
        which = _which(scope)
        known = self._known.get(which)
        if known and not fresh and _is_good(known, scope):
            return known
        asked_at = time.monotonic()
        async with self._reading.setdefault(which, asyncio.Lock()):
            # Another caller may have read it while this one waited for the lock.
            known = self._known.get(which)
            if known and (known.read_at > asked_at or (not fresh and _is_good(known, scope))):
                return known
            read_at = time.monotonic()
            held = (() if fresh else self._within(scope)) or await self.read(scope)
            few = sum(one.documents for one in held) <= MOST_DOCUMENTS
            rows = await read_field_rows(self._reads, scope) if few else []
            # In a thread, because tens of thousands of values take a while.
            catalogue, large = await asyncio.to_thread(_catalogue_of, held, scope, rows or ())
            known = self._known[which] = _KnownValues(read_at, catalogue, held, large, rows is not None)
            self._known.move_to_end(which)
        while len(self._known) > 1 and (len(self._known) > _MOST_SCOPES or self._values() > _MOST_VALUES):
            self._reading.pop(self._known.popitem(last=False)[0], None)
        return known

    def _values(self) -> int:
        return sum(
            len(one.values)
            for known in self._known.values()
            for fields in (known.catalogue.fields, *(part.values for part in known.held))
            for one in fields.values()
        )

    def _within(self, scope: Scope) -> tuple[PartFieldValues, ...]:
        """Return the scope's values out of the cached values of a larger scope; () if no such values are recent enough.

        In the larger scope each collection must have the same visible parts: with more parts, the values would include
        fields that this viewer must not know.
        """
        wanted = _versions(scope)
        *asked, collections = _which(scope)
        for (*known_by, among), known in reversed(self._known.items()):
            read = {(one.number, one.version): one for one in known.held}
            if known_by == asked and set(collections) <= set(among) and all(one in read for one in wanted):
                return tuple(read[one] for one in wanted)
        return ()


def _catalogue_of(
    held: Sequence[PartFieldValues], scope: Scope, rows: Sequence[str | None]
) -> tuple[FieldCatalogue, frozenset[str]]:
    """Return the catalogue, and the text fields with more values than it has."""
    current = {one.number: one for one in held}
    stored = tuple(
        replace(one, fields=current[one.number].fields) for one in scope.collections if one.number in current
    )
    known = filterable_fields(replace(scope, collections=stored, external_collections=()))
    merged = merge_values(held, {name: known[name] for name in known if _is_catalogued(name, held)})
    fields = with_limited_values(_for_filters(merged), value_merging.MAX_ALL_BYTES)
    large = frozenset(
        name for name, one in fields.items() if one.field.item == "string" and one.distinct > len(one.values)
    )
    catalogue = FieldCatalogue(
        key=tuple((one.number, one.version) for one in held),
        documents=sum(one.documents for one in held),
        fields=fields,
        records=shared_document_nouns(held),
        cooccurrence=build_cooccurrence(rows, fields),
    )
    return catalogue, large


def _which(scope: Scope) -> _Which:
    collections = tuple((one.tenant, one.number, tuple(part for part, _ in one.parts)) for one in scope.collections)
    return scope.tenant == PLATFORM, scope.changed, collections


def _counted(scope: Scope) -> list[tuple[str, int]]:
    """Return (tenant, number) of each collection in a scope, followed by those of its visible parts."""
    return [
        (one.tenant, number) for one in scope.collections for number in (one.number, *(part for part, _ in one.parts))
    ]


def _versions(scope: Scope) -> list[tuple[int, int]]:
    """Return (number, version) of each collection in a scope, followed by those of its visible parts."""
    return [pair for one in scope.collections for pair in ((one.number, one.version), *one.parts)]


def _is_good(known: _KnownValues, scope: Scope) -> bool:
    """Return whether a cached catalogue may be used: complete and of the scope's versions, or read a moment ago."""
    read = dict(known.catalogue.key)
    versions = _versions(scope)
    if known.is_whole and all(read.get(number, -1) >= version for number, version in versions):
        return True
    return time.monotonic() - known.read_at < _FRESH_S


def _is_catalogued(name: str, held: Iterable[PartFieldValues]) -> bool:
    return name not in RESERVED or name in _CATALOGUED or any(name in one.fields for one in held)


def _held(row: tuple[Any, ...]) -> PartFieldValues:
    number, version, documents, records, stored, seen = row
    fields = fields_from_json(stored)
    values = {}
    for name, having, distinct, top, bounds in seen or ():
        low, high = bounds or (None, None)
        field = fields.get(name) or Field(name, RESERVED.get(name, "string"), RESERVED.get(name, "string"))
        values[name] = FieldValues(field, dict(top or ()), distinct, having, _number(low), _number(high))
    values = with_limited_values(values, value_merging.MAX_PART_BYTES)
    return PartFieldValues(number, version, documents, tuple(records), fields, values)


def _for_filters(fields: Mapping[str, FieldValues]) -> dict[str, FieldValues]:
    return {
        name: one if one.field.item in _TEXTUAL else replace(one, values={}) for name, one in sorted(fields.items())
    }


def _number(bound: Any) -> Any:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound
