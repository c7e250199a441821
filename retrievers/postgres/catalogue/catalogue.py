"""Read what the database contains: the collections a viewer can see, term counts, field values, and passages by id."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Collection as Collected
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from retrievers.core.errors import UnknownCollection, join_names
from retrievers.core.file_positions import positions_from_json
from retrievers.core.filters import Filter, matches_filter
from retrievers.core.metadata import RESERVED, Field
from retrievers.core.types import PLATFORM, Chunk, ChunkId, Collection, FieldCatalogue, FieldValues, Scope, Viewer
from retrievers.postgres.accounts import feedback
from retrievers.postgres.catalogue.description_drafts import draft_description, read_sample
from retrievers.postgres.catalogue.field_values import FieldValueReader
from retrievers.postgres.catalogue.filtered_values import count_filtered_values
from retrievers.postgres.catalogue.value_merging import PartFieldValues, merge_values, shared_document_nouns
from retrievers.postgres.catalogue.value_merging import filterable_fields as filterable_fields
from retrievers.postgres.catalogue.visible_collections import VisibleCollections
from retrievers.postgres.connections.database import Database, Row
from retrievers.postgres.documents import listing as listing_of
from retrievers.postgres.documents.stored import DocumentKey, DocumentPhrases, read_phrases
from retrievers.text.document_ids import MOST_IDS, infer_document_nouns

_TERMS = "SELECT * FROM signalbox.term_counts(%(scope)s, %(tenants)s, %(among)s, %(terms)s)"
_PASSAGES = """
    SELECT tenant, collection, document_id, ordinal, title, body, url, heading, start_character, end_character,
           metadata, gap, places, CASE WHEN %(filtered)s THEN fields END
    FROM signalbox.passages(%(scope)s, %(tenants)s, %(among)s, %(documents)s, %(ordinals)s)
"""
_NAMES = """
    SELECT d.id, left(d.title, 200) FROM unnest(%(tenants)s::text[], %(among)s::integer[]) AS one (tenant, number)
    CROSS JOIN LATERAL (SELECT id, title FROM signalbox.document
                        WHERE tenant = one.tenant AND collection = one.number ORDER BY id LIMIT %(each)s) d
"""
_MOST_TENANTS = 1024
_MOST_TERMS = 65_536


class Catalogue:
    """Reads collections, term counts, field values and passages within a viewer's scope, and caches most of them."""

    def __init__(self, database: Database) -> None:
        self._reads = database.reads
        self._visible = VisibleCollections(database.reads)
        self._terms: OrderedDict[tuple[Hashable, ...], int] = OrderedDict()
        self._fields = FieldValueReader(database)
        self._called: OrderedDict[tuple[bool, int, tuple[tuple[int, ...], ...]], tuple[str, ...]] = OrderedDict()
        self._drafts: OrderedDict[tuple[Viewer, int, tuple[tuple[int, ...], ...]], str] = OrderedDict()

    async def collections(self, who: str | Viewer, *, fresh: bool = False) -> tuple[Collection, ...]:
        """Return all collections that the viewer can see: the tenant's, and the platform's with public documents.

        Args:
            fresh: read from the primary instead of the cache.
        """
        return (await self._visible.of(who, fresh=fresh)).collections

    def invalidate(self, tenant: str) -> None:
        """Discard the cached collections of the tenant's viewers, because this process has changed its data."""
        self._visible.invalidate(tenant)

    async def scope(
        self, who: str | Viewer, collection: str | None, *, fresh: bool = False, changed: int | None = None
    ) -> Scope:
        """Return the scope of a request: one collection (the tenant's and the platform's of this name), or all.

        Args:
            fresh: read from the primary instead of the cache.
            changed: the counter of reader changes, if the request has already read it.
        Raises:
            UnknownCollection: the viewer sees no collection of this name, or none at all.
        """
        known = await self._visible.of(who, fresh=fresh, changed=changed)
        visible = known.collections
        chosen = tuple(one for one in visible if collection is None or one.name == collection)
        if not chosen and not fresh:
            return await self.scope(who, collection, fresh=True)
        if not chosen:
            names = {one.name for one in visible}
            what = f'there is no collection "{collection}"' if collection is not None else "there is no collection yet"
            mend = (
                f"; there are: {join_names(names)}"
                if names
                else ": add documents with `signalbox ingest` or POST /v1/documents"
            )
            raise UnknownCollection(what + mend, where="collection", valid=names)
        tenant, principals = Viewer.of(who)
        return Scope(tenant, chosen, principals=principals, changed=known.changed)

    async def term_counts(self, scope: Scope, terms: Iterable[str]) -> dict[int, dict[str, int]]:
        """Return {collection number: {term: number of passages that contain the term}}, without terms in no passage."""
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
            rows = await self._reads.fetch_autocommit(scope.viewer, _TERMS, values)
            found = {(row[0], row[1]): row[2] for row in rows}
            for collection in scope.collections:
                settled = self._reads.is_settled(_key(collection, ""))
                for term in missing:
                    count = found.get((collection.number, term), 0)
                    known[collection.number][term] = count
                    if settled:
                        self._terms[_key(collection, term)] = count
        counts = {number: {term: n for term, n in known[number].items() if n} for number in known}
        while len(self._terms) > _MOST_TERMS:
            self._terms.popitem(last=False)
        return counts

    async def fields(self, scope: Scope, *, fresh: bool = False) -> FieldCatalogue:
        """Return the fields that a filter over the scope may use, with their values. Cached until a collection changes.

        Args:
            fresh: read the current values. Cached values may be up to a second old while documents are written.
        """
        return await self._fields.catalogue(scope, fresh=fresh)

    async def part_values(self, scope: Scope) -> tuple[PartFieldValues, ...]:
        """Return the field values of each collection in the scope and of its visible parts, one `PartFieldValues` each.

        A part contains the documents with the same readers, see `Collection`. Cached like `fields`.
        """
        return await self._fields.part_values(scope)

    async def document_nouns(self, scope: Scope) -> tuple[str, ...]:
        """Return nouns for the documents of the scope, taken from their ids and titles: "pep" for "pep-1", "pep-2".

        See `document_ids.infer_document_nouns`. Cached until a collection doubles or halves in size, its visible parts
        change, or the readers of a document change.
        """
        key = (scope.tenant == PLATFORM, scope.changed, _size_of(scope))
        if key not in self._called:
            values = {
                "tenants": [one.tenant for one in scope.collections],
                "among": [one.number for one in scope.collections],
                "each": MOST_IDS,
            }
            self._called[key] = infer_document_nouns(await self._reads.fetch(scope.viewer, _NAMES, values))
            while len(self._called) > _MOST_TENANTS:
                self._called.popitem(last=False)
        return self._called[key]

    async def description(self, scope: Scope) -> tuple[str, bool]:
        """Return (description, whether it is a draft) of a scope whose collections have the same name.

        A draft is made from the documents (see `description_drafts`) if nobody has written a description. It is cached
        like the result of `document_nouns`.
        """
        given = next((one.description for one in scope.collections if one.description), "")
        if given:
            return given, False
        key = (scope.viewer, scope.changed, _size_of(scope))
        if key not in self._drafts:
            numbers = {one.number for one in scope.collections}
            others = tuple(one for one in await self.collections(scope.viewer) if one.number not in numbers)
            drawn = await read_sample(
                self._reads, scope.viewer, [(one.tenant, one.number) for one in scope.collections]
            )
            counts = Counter[str]()
            if others:
                beside = replace(scope, collections=others, external_collections=())
                for held in (await self.term_counts(beside, drawn.words)).values():
                    counts.update(held)
            passages = max(sum(one.chunks for one in others), 1)
            fields = [one for name, one in (await self.fields(scope)).fields.items() if name not in RESERVED]
            self._drafts[key] = draft_description(
                drawn, fields, {term: count / passages for term, count in counts.items()}
            )
            while len(self._drafts) > _MOST_TENANTS:
                self._drafts.popitem(last=False)
        return self._drafts[key], True

    async def find_values(self, scope: Scope, folded_spans: Sequence[str]) -> list[tuple[str, str, int]]:
        """Find values that contain words of a question, in the fields that have too many values for `fields` to list.

        Args:
            folded_spans: parts of a question in the form of `text.folding.fold`. A span matches every value that
                contains it as a whole word or as consecutive words: "guido" matches "Guido van Rossum".
        Returns:
            At most 200 (field, value, number of documents): values that equal a span first, then the most common. If no
            field has so many values, the result is [] and the database is not asked.
        """
        return await self._fields.find(scope, folded_spans)

    async def count_filtered_values(
        self,
        scope: Scope,
        wanted: Filter,
        candidates: Mapping[str, Collected[str]],
        *,
        most_documents: int | None = None,
    ) -> dict[str, dict[str, int]]:
        """Return the candidate values that occur in documents satisfying a filter: see `count_filtered_values`.

        The result is {field: {value: number of documents}}.
        """
        return await count_filtered_values(self._reads, scope, wanted, candidates, most_documents=most_documents)

    async def describe(self, scope: Scope) -> dict[str, Any]:
        """Return the field catalogue of a collection, as `signalbox collections show` prints it."""
        held = await self._fields.read(scope)
        fields = {name: field for one in held for name, field in one.fields.items()}
        known = await asyncio.to_thread(merge_values, held, fields)  # folds all values, perhaps tens of thousands
        described = [_described(fields[name], values) for name, values in sorted(known.items())]
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
            "records": list(shared_document_nouns(held)),
            "fields": described,
        }

    async def feedback(
        self, scope: Scope, documents: Collected[feedback.Document]
    ) -> Mapping[feedback.Document, float]:
        """Return the tenant's feedback on documents, from -1 (bad) to 1 (good); see `feedback.document_scores`."""
        return await feedback.document_scores(self._reads, scope, documents)

    async def phrases(self, scope: Scope, documents: Collected[DocumentKey]) -> Mapping[DocumentKey, DocumentPhrases]:
        """Return the key terms and questions given with each document, see `stored.read_phrases`."""
        return await read_phrases(self._reads, scope, documents)

    async def documents(
        self, scope: Scope, wanted: Filter | None, known: Sequence[ChunkId], *, skip: int, most: int
    ) -> listing_of.DocumentListing:
        """List the documents that satisfy a filter; see `retrievers.postgres.documents.listing.list_documents`.

        The result has their number, and the first passages of documents that have no passage in `known`.
        """
        return await listing_of.list_documents(self._reads, scope, wanted, known, skip=skip, most=most)

    async def load(self, scope: Scope, ids: Iterable[ChunkId], wanted_by: Filter | None = None) -> dict[ChunkId, Chunk]:
        """Return {id: chunk}, without chunks that are deleted, out of scope or excluded by the filter `wanted_by`.

        The search that found the ids has checked the same, but documents may have changed since.
        """
        numbers = {(one.tenant, one.name): one.number for one in scope.collections}
        names = {one.number: one.name for one in scope.collections}
        wanted = [id for id in ids if scope.allows(id)]
        if not wanted:
            return {}
        values = {
            "tenants": [id.tenant for id in wanted],
            "among": [numbers[id.tenant, id.collection] for id in wanted],
            "documents": [id.document_id for id in wanted],
            "ordinals": [id.ordinal for id in wanted],
            "filtered": wanted_by is not None,
        }
        rows = await self._reads.fetch_autocommit(scope.viewer, _PASSAGES, values)
        kept = [row[:-1] for row in rows if wanted_by is None or matches_filter(wanted_by, row[-1])]
        chunks = (_chunk(names[row[1]], row) for row in kept)
        return {chunk.id: chunk for chunk in chunks}


def _chunk(collection: str, row: Row) -> Chunk:
    tenant, _, document_id, ordinal, *parts, places = row
    chunk = Chunk(ChunkId(tenant, collection, document_id, ordinal), *parts)
    return replace(chunk, places=positions_from_json(places)) if places else chunk


def _size_of(scope: Scope) -> tuple[tuple[int, ...], ...]:
    """Return a cache key that changes when a collection doubles or halves in size, or its visible parts change."""
    return tuple(
        (one.number, one.documents.bit_length(), *(part for part, _ in one.parts)) for one in scope.collections
    )


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


def _key(collection: Collection, term: str) -> tuple[Hashable, ...]:
    return (collection.tenant, collection.number, collection.version, collection.parts, term)
