"""What exists: the collections a tenant can see, how often terms occur in them, and passages by identity."""

import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from retrievers.core.errors import UnknownCollection, listing
from retrievers.core.fields import RESERVED, Field, from_catalogue
from retrievers.core.filters import Filter, matches
from retrievers.core.types import Chunk, ChunkId, Collection, Scope
from retrievers.postgres.database import Database, Row

_COLLECTIONS = """
    SELECT c.number, c.tenant, c.name, e.name, e.number, e.dimension, c.documents, c.chunks, c.mean_length, c.languages,
           c.fields, c.version
    FROM signalbox.collection c LEFT JOIN signalbox.embedder e ON e.number = c.embedder
    ORDER BY c.name, c.tenant
"""
_TERMS = """
    SELECT t.collection, t.term, t.chunks
    FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, collection)
    JOIN signalbox.term t USING (tenant, collection)
    WHERE t.term = ANY (%(terms)s)
"""
_PASSAGES = """
    SELECT * FROM signalbox.passages(%(scope)s, %(tenants)s, %(among)s, %(documents)s, %(ordinals)s)
"""
_VALUES = """
    WITH held AS (
        SELECT entry.key, item.value #>> '{}' AS value,
               CASE WHEN jsonb_typeof(item.value) = 'number' THEN item.value::numeric END AS number, count(*) AS times
        FROM signalbox.document d, jsonb_each(d.fields) AS entry,
             LATERAL jsonb_path_query(entry.value, '$[*]') AS item (value)
        WHERE d.tenant = ANY (%(tenants)s) AND d.collection = ANY (%(among)s)
        GROUP BY 1, 2, 3),
    ranked AS (SELECT *, row_number() OVER (PARTITION BY key ORDER BY times DESC, value COLLATE "C") AS place FROM held)
    SELECT key, count(*), min(value COLLATE "C"), max(value COLLATE "C"),
           min(number)::float8, max(number)::float8,
           array_agg(value ORDER BY place) FILTER (WHERE place <= 10),
           array_agg(times ORDER BY place) FILTER (WHERE place <= 10)
    FROM ranked GROUP BY key
"""
_HOLDING = """
    SELECT key, count(*) FROM signalbox.document d, jsonb_object_keys(d.fields) AS key
    WHERE d.tenant = ANY (%(tenants)s) AND d.collection = ANY (%(among)s) GROUP BY key
"""
# Counters and fields may be this old; a name that is not found is looked up anew at once.
_FRESH_S = 1.0
_MOST_TENANTS = 1024
_MOST_TERMS = 65_536


class Catalogue:
    """Reads of what the database holds, each within a tenant's scope."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._collections: OrderedDict[str, tuple[float, tuple[Collection, ...]]] = OrderedDict()
        self._terms: OrderedDict[tuple[str, int, int, str], int] = OrderedDict()

    async def collections(self, tenant: str, *, fresh: bool = False) -> tuple[Collection, ...]:
        """Every collection the tenant can see: its own, and the platform's with public documents."""
        known = self._collections.get(tenant)
        if known and not fresh and time.monotonic() - known[0] < _FRESH_S:
            return known[1]
        rows = await self._database.fetch(tenant, _COLLECTIONS, {})
        found = tuple(
            Collection(
                number=row[0],
                tenant=row[1],
                name=row[2],
                embedder=row[3],
                embedder_number=row[4],
                dimension=row[5],
                documents=row[6],
                chunks=row[7],
                mean_length=row[8],
                languages=row[9],
                fields=from_catalogue(row[10]),
                version=row[11],
            )
            for row in rows
        )
        self._collections[tenant] = (time.monotonic(), found)
        while len(self._collections) > _MOST_TENANTS:
            self._collections.popitem(last=False)
        return found

    async def scope(self, tenant: str, collection: str | None, *, fresh: bool = False) -> Scope:
        """The scope of a request: one collection (the tenant's and the platform's of that name), or all.

        Raises:
            UnknownCollection: none of that name is visible; never a wider scope.
        """
        visible = await self.collections(tenant, fresh=fresh)
        chosen = tuple(one for one in visible if collection is None or one.name == collection)
        if not chosen and not fresh:
            return await self.scope(tenant, collection, fresh=True)
        if not chosen:
            names = {one.name for one in visible}
            what = f'there is no collection "{collection}"' if collection is not None else "there is no collection yet"
            mend = f"; there are: {listing(names)}" if names else ": add documents with `signalbox ingest`"
            raise UnknownCollection(what + mend, where="collection", valid=names)
        return Scope(tenant, chosen)

    async def term_counts(self, scope: Scope, terms: Iterable[str]) -> dict[int, dict[str, int]]:
        """In how many passages each term occurs, per collection number; absent terms are left out."""
        wanted = list(dict.fromkeys(terms))
        known = {
            collection.number: {term: self._terms.get(_key(collection, term)) for term in wanted}
            for collection in scope.collections
        }
        missing = {term for counts in known.values() for term, count in counts.items() if count is None}
        if missing:
            values = {
                "tenants": [collection.tenant for collection in scope.collections],
                "among": [collection.number for collection in scope.collections],
                "terms": sorted(missing),
            }
            rows = await self._database.fetch(scope.tenant, _TERMS, values)
            found = {(row[0], row[1]): row[2] for row in rows}
            for collection in scope.collections:
                for term in missing:
                    count = found.get((collection.number, term), 0)
                    known[collection.number][term] = self._terms[_key(collection, term)] = count
        counts = {number: {term: n for term, n in known[number].items() if n} for number in known}
        while len(self._terms) > _MOST_TERMS:
            self._terms.popitem(last=False)
        return counts

    async def describe(self, scope: Scope) -> dict[str, Any]:
        """The field catalogue of a collection: what `signalbox collections show` prints."""
        fields = {name: field for one in scope.collections for name, field in one.fields.items()}
        values = {
            "tenants": sorted({one.tenant for one in scope.collections}),
            "among": [one.number for one in scope.collections],
        }
        seen = {row[0]: row[1:] for row in await self._database.fetch(scope.tenant, _VALUES, values)}
        holding = {row[0]: row[1] for row in await self._database.fetch(scope.tenant, _HOLDING, values)}
        first = scope.collections[0]
        return {
            "name": first.name,
            "documents": sum(one.documents for one in scope.collections),
            "chunks": sum(one.chunks for one in scope.collections),
            "embedder": first.embedder,
            "dimension": first.dimension,
            "languages": dict(first.languages),
            "fields": [
                _described(field, seen.get(name), holding.get(name, 0)) for name, field in sorted(fields.items())
            ],
        }

    async def load(self, scope: Scope, ids: Iterable[ChunkId], wanted_by: Filter | None = None) -> dict[ChunkId, Chunk]:
        """The chunks of those identities.

        What is gone meanwhile, is out of scope or does not (any more) satisfy the filter is left out: the
        searches have applied both, this applies them again to what is shown.
        """
        numbers = {(one.tenant, one.name): one.number for one in scope.collections}
        names = {one.number: one.name for one in scope.collections}
        wanted = [id for id in ids if scope.allows(id)]
        if not wanted:
            return {}
        values = {
            "scope": self._database.scope(scope.tenant),
            "tenants": [id.tenant for id in wanted],
            "among": [numbers[id.tenant, id.collection] for id in wanted],
            "documents": [id.document_id for id in wanted],
            "ordinals": [id.ordinal for id in wanted],
        }
        rows = await self._database.search(_PASSAGES, values)
        kept = [row[:-1] for row in rows if wanted_by is None or matches(wanted_by, row[-1])]
        chunks = (Chunk(ChunkId(row[0], names[row[1]], row[2], row[3]), *row[4:]) for row in kept)
        return {chunk.id: chunk for chunk in chunks}


def _described(field: Field, seen: Row | None, documents: int) -> dict[str, Any]:
    distinct, low, high, least, most, values, times = seen or (0, None, None, None, None, [], [])
    bounds = {"number": (_number(least), _number(most)), "date": (low, high)}.get(field.item, (None, None))
    return {
        "name": field.name,
        "type": field.type,
        "item": field.item,
        "separator": field.separator,
        "declared": field.declared,
        "description": field.description,
        "documents": documents,
        "distinct": distinct,
        "min": bounds[0],
        "max": bounds[1],
        "top": [[value, count] for value, count in zip(values, times, strict=True)],
    }


def _number(value: float | None) -> float | int | None:
    return int(value) if value is not None and value.is_integer() else value


def filterable(scope: Scope) -> Mapping[str, Field]:
    """The fields a filter over the scope may name.

    A field that is of one type here and of another there can be used within one collection only; where
    it is a list in one of them it is treated as a list.
    """
    fields = {name: Field(name, kind, kind) for name, kind in RESERVED.items()}
    disagreed: set[str] = set()
    for name, field in ((name, field) for collection in scope.collections for name, field in collection.fields.items()):
        known = fields.get(name)
        if known is not None and known.item != field.item and name not in RESERVED:
            disagreed.add(name)
        elif known is None or name in RESERVED or field.type == "list":
            fields[name] = field
    return {name: field for name, field in fields.items() if name not in disagreed}


def _key(collection: Collection, term: str) -> tuple[str, int, int, str]:
    return (collection.tenant, collection.number, collection.version, term)
