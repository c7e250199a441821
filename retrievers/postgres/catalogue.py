"""What exists: the collections a tenant can see, how often terms occur in them, and passages by identity."""

import asyncio
import re
import time
from collections import Counter, OrderedDict
from collections.abc import Collection as Collected
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from retrievers.core.errors import UnknownCollection, listing
from retrievers.core.fields import RESERVED, Field, from_catalogue
from retrievers.core.filters import Filter, matches
from retrievers.core.types import Chunk, ChunkId, Collection, FieldCatalogue, FieldValues, Scope
from retrievers.postgres import feedback
from retrievers.postgres import listing as listing_of
from retrievers.postgres.database import Database
from retrievers.postgres.documents import Named, Phrases, read_phrases
from retrievers.postgres.drafts import draft, read_sample
from retrievers.postgres.values import VISIBLE_FIELDS, FieldReader, Held, merged, shared_records
from retrievers.postgres.values import filterable as filterable
from retrievers.postgres.values_within import values_within

_COLLECTIONS = f"""
    SELECT k.number, k.tenant, k.name, e.name, e.number, e.dimension, k.documents, k.chunks, k.mean_length, k.languages,
           {VISIBLE_FIELDS}, k.version, k.records, k.description
    FROM signalbox.collection k LEFT JOIN signalbox.embedder e ON e.number = k.embedder
    ORDER BY k.name, k.tenant
"""  # noqa: S608 - constants both
_TERMS = "SELECT * FROM signalbox.term_counts(%(scope)s, %(tenants)s, %(among)s, %(terms)s)"
_PASSAGES = """
    SELECT tenant, collection, document_id, ordinal, title, body, url, heading, start_character, end_character,
           metadata, gap, CASE WHEN %(filtered)s THEN fields END
    FROM signalbox.passages(%(scope)s, %(tenants)s, %(among)s, %(documents)s, %(ordinals)s)
"""
_IDS = """
    SELECT d.id FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, number)
    CROSS JOIN LATERAL (SELECT id FROM signalbox.document
                        WHERE tenant = one.tenant AND collection = one.number ORDER BY id LIMIT %(each)s) d
"""
_NUMBERED = re.compile(r"([^\W\d_]{2,12})[-_# ]?\d[\w-]*")
_MOST_IDS = 50
_ALIKE = 0.8
"""Share of the ids that must begin with one word for it to be what documents are called."""
# Counters and fields may be this old where another process has written; a name that is not found is looked up anew at
# once.
_FRESH_S = 0.2
_MOST_TENANTS = 1024
_MOST_TERMS = 65_536


class Catalogue:
    """Reads of what the database holds, each within a tenant's scope."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._collections: OrderedDict[str, tuple[float, tuple[Collection, ...]]] = OrderedDict()
        self._reading: dict[str, asyncio.Lock] = {}
        self._terms: OrderedDict[tuple[str, int, int, str], int] = OrderedDict()
        self._fields = FieldReader(database)
        self._called: OrderedDict[tuple[tuple[int, int], ...], str | None] = OrderedDict()
        self._drafts: OrderedDict[tuple[str, tuple[tuple[int, int], ...]], str] = OrderedDict()

    async def collections(self, tenant: str, *, fresh: bool = False) -> tuple[Collection, ...]:
        """Every collection the tenant can see: its own, and the platform's with public documents."""
        known = self._collections.get(tenant)
        if known and not fresh and _is_new(known[0]):
            return known[1]
        asked_at = time.monotonic()
        # Those who ask at once wait for one reading: what is old by now is so for all of them.
        async with self._reading.setdefault(tenant, asyncio.Lock()):
            known = self._collections.get(tenant)
            if known and (known[0] > asked_at or (not fresh and _is_new(known[0]))):
                return known[1]
            read_at = time.monotonic()
            found = await self._read_collections(tenant)
            self._collections[tenant] = (read_at, found)
            self._collections.move_to_end(tenant)
        while len(self._collections) > _MOST_TENANTS:
            self._reading.pop(self._collections.popitem(last=False)[0], None)
        return found

    async def _read_collections(self, tenant: str) -> tuple[Collection, ...]:
        rows = await self._database.fetch(tenant, _COLLECTIONS, {})
        return tuple(
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
                records=tuple(row[12]),
                description=row[13],
            )
            for row in rows
        )

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
            mend = (
                f"; there are: {listing(names)}"
                if names
                else ": add documents with `signalbox ingest` or POST /v1/documents"
            )
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
                "scope": self._database.scope(scope.tenant),
                "tenants": [collection.tenant for collection in scope.collections],
                "among": [collection.number for collection in scope.collections],
                "terms": sorted(missing),
            }
            rows = await self._database.search(_TERMS, values)
            found = {(row[0], row[1]): row[2] for row in rows}
            for collection in scope.collections:
                for term in missing:
                    count = found.get((collection.number, term), 0)
                    known[collection.number][term] = self._terms[_key(collection, term)] = count
        counts = {number: {term: n for term, n in known[number].items() if n} for number in known}
        while len(self._terms) > _MOST_TERMS:
            self._terms.popitem(last=False)
        return counts

    async def fields(self, scope: Scope, *, fresh: bool = False) -> FieldCatalogue:
        """What the fields that a filter over the scope may name hold; costs nothing while nothing changes.

        Args:
            fresh: as of now; otherwise, while documents are being written, up to a second old.
        """
        return await self._fields.catalogue(scope, fresh=fresh)

    async def held(self, scope: Scope) -> tuple[Held, ...]:
        """What the fields of each collection hold, as of `fields`."""
        return await self._fields.held(scope)

    async def called(self, scope: Scope) -> str | None:
        """What documents are called by their ids, "pep" of "pep-1" and "pep-2"; None where the ids have no such word.

        It is kept as long as the collections are what they were: their size is of no account.
        """
        key = _size_of(scope)
        if key not in self._called:
            values = {
                "tenants": [one.tenant for one in scope.collections],
                "among": [one.number for one in scope.collections],
                "each": _MOST_IDS,
            }
            ids = [row[0] for row in await self._database.fetch(scope.tenant, _IDS, values)]
            words = Counter(found[1].casefold() for id in ids if (found := _NUMBERED.fullmatch(id)) is not None)
            word, count = words.most_common(1)[0] if words else ("", 0)
            self._called[key] = word if count >= _ALIKE * len(ids) and count else None
            while len(self._called) > _MOST_TENANTS:
                self._called.popitem(last=False)
        return self._called[key]

    async def description(self, scope: Scope) -> tuple[str, bool]:
        """What the collections of one name hold, and whether that is a draft, kept as `called` is."""
        given = next((one.description for one in scope.collections if one.description), "")
        if given:
            return given, False
        key = (scope.tenant, _size_of(scope))
        if key not in self._drafts:
            numbers = {one.number for one in scope.collections}
            others = tuple(one for one in await self.collections(scope.tenant) if one.number not in numbers)
            drawn = await read_sample(
                self._database, scope.tenant, [(one.tenant, one.number) for one in scope.collections]
            )
            counts = Counter[str]()
            if others:
                for held in (await self.term_counts(Scope(scope.tenant, others), drawn.words)).values():
                    counts.update(held)
            passages = max(sum(one.chunks for one in others), 1)
            fields = [one for name, one in (await self.fields(scope)).fields.items() if name not in RESERVED]
            self._drafts[key] = draft(drawn, fields, {term: count / passages for term, count in counts.items()})
            while len(self._drafts) > _MOST_TENANTS:
                self._drafts.popitem(last=False)
        return self._drafts[key], True

    async def find_values(self, scope: Scope, folded_spans: Sequence[str]) -> list[tuple[str, str, int]]:
        """Values by their names, in the fields that have too many for `fields` to give all of them.

        Args:
            folded_spans: parts of a question as `text.folding.fold` writes them. One finds every value that it
                is a whole word or consecutive words of ("guido": "Guido van Rossum").
        Returns:
            (field, value, documents), at most 200: values that are a whole span first, then the commonest.
            [] without a query where no field is that large.
        """
        return await self._fields.find(scope, folded_spans)

    async def values_within(
        self,
        scope: Scope,
        wanted: Filter,
        candidates: Mapping[str, Collected[str]],
        *,
        most_documents: int | None = None,
    ) -> dict[str, dict[str, int]]:
        """The candidates that documents inside a filter hold, see `retrievers.postgres.values_within`."""
        return await values_within(self._database, scope, wanted, candidates, most_documents=most_documents)

    async def describe(self, scope: Scope) -> dict[str, Any]:
        """The field catalogue of a collection: what `signalbox collections show` prints."""
        held = await self._fields.read(scope)
        fields = {name: field for one in held for name, field in one.fields.items()}
        described = [_described(fields[name], values) for name, values in sorted(merged(held, fields).items())]
        first = scope.collections[0]
        description, is_draft = await self.description(scope)
        return {
            "name": first.name,
            "description": description,
            "draft": is_draft,
            "documents": sum(one.documents for one in scope.collections),
            "chunks": sum(one.chunks for one in scope.collections),
            "embedder": first.embedder,
            "dimension": first.dimension,
            "languages": dict(first.languages),
            "records": list(shared_records(held)),
            "fields": described,
        }

    async def feedback(
        self, scope: Scope, documents: Collected[feedback.Document]
    ) -> Mapping[feedback.Document, float]:
        """What the tenant has said of documents, see `retrievers.postgres.feedback.of_documents`."""
        return await feedback.of_documents(self._database, scope, documents)

    async def phrases(self, scope: Scope, documents: Collected[Named]) -> Mapping[Named, Phrases]:
        """Key terms and questions of documents, see `retrievers.postgres.documents.read_phrases`."""
        return await read_phrases(self._database, scope, documents)

    async def documents(
        self, scope: Scope, wanted: Filter | None, known: Sequence[ChunkId], *, skip: int, most: int
    ) -> listing_of.Listed:
        """The documents that satisfy a filter, see `retrievers.postgres.listing.list_documents`."""
        return await listing_of.list_documents(self._database, scope, wanted, known, skip=skip, most=most)

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
            "filtered": wanted_by is not None,
        }
        rows = await self._database.search(_PASSAGES, values)
        kept = [row[:-1] for row in rows if wanted_by is None or matches(wanted_by, row[-1])]
        chunks = (Chunk(ChunkId(row[0], names[row[1]], row[2], row[3]), *row[4:]) for row in kept)
        return {chunk.id: chunk for chunk in chunks}


def _size_of(scope: Scope) -> tuple[tuple[int, int], ...]:
    """The collections with their sizes, which change when one has twice or half as many documents."""
    return tuple((one.number, one.documents.bit_length()) for one in scope.collections)


def _is_new(read_at: float) -> bool:
    return time.monotonic() - read_at < _FRESH_S


def _described(field: Field, values: FieldValues) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": field.type,
        "item": field.item,
        "separator": field.separator,
        "declared": field.declared,
        "description": field.description,
        "unit": field.unit,
        "documents": values.documents,
        "distinct": values.distinct,
        "min": values.low,
        "max": values.high,
        "top": [[value, count] for value, count in islice(values.values.items(), 10)],
        "aliases": {value: list(names) for value, names in field.aliases.items()},
    }


def _key(collection: Collection, term: str) -> tuple[str, int, int, str]:
    return (collection.tenant, collection.number, collection.version, term)
