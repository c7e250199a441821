"""Compare the totals of a collection with its documents: terms, counts, fields.

A part of a collection is its documents with the same readers. The collection itself counts only documents without
readers; each part has counts of its own, under its own number.
"""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.types.json import Jsonb

from retrievers.core.types import Collection
from retrievers.ingest import collections, field_statistics
from retrievers.ingest.checking.check_report import MAX_EXAMPLES, ErrorNames, ErrorsByKind
from retrievers.ingest.derived_data import update_derived_data
from retrievers.postgres.connections.database import Row
from retrievers.text import analysis, bm25, chunking

_PAGE = 1000


async def find_wrong_totals(connection: collections.Connection, collection: Collection) -> ErrorsByKind:
    """Return the errors in a collection's terms, counts and fields, by kind. {} if there are none.

    The transaction of the connection must see a single state of the collection.
    """
    which = _sql_parameters(collection)
    wrong: ErrorsByKind = {}
    for kind, statement in (("orphans", _ORPHANS), ("terms", _FIRST_TERMS)):
        if named := await _rows(connection, statement, which | {"most": MAX_EXAMPLES}):
            wrong[kind] = ErrorNames(named[0][1], [row[0] for row in named])
    if counts := await _wrong_counts(connection, collection):
        wrong["counts"] = ErrorNames.of([name for one in counts.values() for name in one])
    differing: set[str] = set()
    for number, one in (await _all_field_values(connection, collection)).items():
        differing.update(await field_statistics.differing_fields(connection, collection.tenant, number, one))
    if differing:
        wrong["fields"] = ErrorNames.of(sorted(differing))
    if await _rows(connection, _VERSIONS, which) != [(analysis.VERSION, chunking.VERSION)]:
        wrong["version"] = ErrorNames.of([collection.name])
    await collections.show_shadows(connection)
    if left := await _rows(connection, _LEFTOVERS, which):
        wrong["leftovers"] = ErrorNames.of([str(row[0]) for row in left])
    return wrong


async def delete_orphan_passages(connection: collections.Connection, collection: Collection) -> None:
    """Delete passages without a document. The caller holds the collection's lock."""
    await connection.execute(_DELETE_ORPHANS, _sql_parameters(collection))


async def mend_totals(connection: collections.Connection, collection: Collection) -> None:
    """Recompute the terms, counts and fields from the documents. The caller holds the collection's lock."""
    tenant = collection.tenant
    await connection.execute(_MEND_TERMS, _sql_parameters(collection))
    for part, counts in (await _wrong_counts(connection, collection)).items():
        for name, count in counts.items():
            if name == "mean_length":
                continue  # `update_derived_data` below corrects it, together with all weights, which depend on it
            given = Jsonb(count) if name == "languages" else count
            await connection.execute(_MEND_COUNT[name], {"tenant": tenant, "part": part, "count": given})
    for part, changes in (await _all_field_values(connection, collection)).items():
        if await field_statistics.differing_fields(connection, tenant, part, changes):
            await field_statistics.replace_statistics(connection, tenant, part, changes)
    while await update_derived_data(connection, tenant, collection.number):
        pass


async def _wrong_counts(connection: collections.Connection, collection: Collection) -> dict[int, dict[str, Any]]:
    """Return correct values for wrong counts: number of collection or part -> count ("words") -> correct value."""
    which = _sql_parameters(collection)
    made: dict[int, list[Any]] = defaultdict(lambda: [0, 0, 0, 0, Counter()])
    for number, language, documents, chunks, words, public in await _rows(connection, _COUNTED, which):
        one = made[number]
        for place, more in enumerate((documents, chunks, words, public)):
            one[place] += more
        one[4][language] += documents
    wrong: dict[int, dict[str, Any]] = defaultdict(dict)
    chunks, words = sum(one[1] for one in made.values()), sum(one[2] for one in made.values())
    mean = bm25.round_mean_length(words / chunks) if chunks else 0.0
    if any(abs(row[0] - mean) > 1e-6 for row in await _rows(connection, _MEAN, which)):
        wrong[collection.number]["mean_length"] = mean
    for number, *counts in await _rows(connection, _KEPT, which):
        pairs = zip(
            ("documents", "chunks", "words", "public_documents", "languages"), counts, made[number], strict=True
        )
        if differing := {name: new for name, old, new in pairs if old != new}:
            wrong[number] |= differing
    return wrong


async def _all_field_values(
    connection: collections.Connection, collection: Collection
) -> dict[int, field_statistics.FieldValueChanges]:
    """Return the field values of all documents, as changes to empty statistics, by number of the collection or part."""
    which = _sql_parameters(collection)
    changes = {row[0]: field_statistics.FieldValueChanges() for row in await _rows(connection, _KEPT, which)}
    after = ""
    while rows := await _rows(connection, _FIELDS, which | {"after": after, "most": _PAGE}):
        await asyncio.to_thread(_add, changes, rows)
        after = rows[-1][1]
    return changes


def _add(changes: dict[int, field_statistics.FieldValueChanges], rows: Sequence[Row]) -> None:
    for number, id, title, given in rows:
        changes.setdefault(number, field_statistics.FieldValueChanges()).add(id, title, json.loads(given), 1)


def _sql_parameters(collection: Collection) -> dict[str, Any]:
    return {"tenant": collection.tenant, "collection": collection.number}


async def _rows(connection: collections.Connection, statement: Any, given: Mapping[str, Any]) -> list[Row]:
    return await (await connection.execute(statement, given)).fetchall()


_MEAN = "SELECT mean_length FROM signalbox.collection WHERE tenant = %(tenant)s AND number = %(collection)s"
_VERSIONS = "SELECT analysis, split FROM signalbox.collection WHERE tenant = %(tenant)s AND number = %(collection)s"
_WITHOUT_DOCUMENT = """
    c.tenant = %(tenant)s AND c.collection = %(collection)s AND NOT EXISTS (
        SELECT FROM signalbox.document d
        WHERE d.tenant = c.tenant AND d.collection = c.collection AND d.id = c.document_id)
"""
_ORPHANS = f"""
    SELECT c.document_id || '#' || c.ordinal, count(*) OVER () FROM signalbox.chunk c WHERE {_WITHOUT_DOCUMENT}
    ORDER BY c.document_id, c.ordinal LIMIT %(most)s
"""  # noqa: S608
_DELETE_ORPHANS = f"DELETE FROM signalbox.chunk c WHERE {_WITHOUT_DOCUMENT}"  # noqa: S608
_NUMBERS = """
    ARRAY(SELECT number FROM signalbox.collection
          WHERE tenant = %(tenant)s AND %(collection)s IN (number, part_of))
"""
# Terms that no longer occur in any passage are kept until `update_derived_data` deletes them.
_TERMS = f"""
    WITH counted AS (
        SELECT coalesce(c.part, c.collection) AS collection,
               substr(w.lexeme, position(':' IN w.lexeme) + 1) COLLATE "C" AS term, count(*)::integer AS chunks
        FROM signalbox.chunk c, unnest(c.lexemes) AS w
        WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s GROUP BY 1, 2),
    kept AS (SELECT collection, term, chunks FROM signalbox.term
             WHERE tenant = %(tenant)s AND collection = ANY ({_NUMBERS}))
    SELECT coalesce(n.collection, t.collection) AS collection, coalesce(n.term, t.term) AS term,
           coalesce(n.chunks, 0) AS chunks
    FROM counted n FULL JOIN kept t ON t.collection = n.collection AND t.term = n.term
    WHERE coalesce(n.chunks, 0) <> coalesce(t.chunks, 0)
"""  # noqa: S608
_FIRST_TERMS = f"""
    SELECT term, count(*) OVER () FROM ({_TERMS}) wrong ORDER BY term, collection LIMIT %(most)s
"""  # noqa: S608
_MEND_TERMS = f"""
    INSERT INTO signalbox.term (tenant, collection, term, chunks)
    SELECT %(tenant)s, collection, term, chunks FROM ({_TERMS}) wrong
    ON CONFLICT (tenant, collection, term) DO UPDATE SET chunks = excluded.chunks
"""  # noqa: S608
_COUNTED = """
    SELECT coalesce(part, collection), language, count(*), sum(chunks)::bigint, sum(words)::bigint, sum(public::integer)
    FROM signalbox.document WHERE tenant = %(tenant)s AND collection = %(collection)s AND enabled GROUP BY 1, 2
"""
_KEPT = """
    SELECT number, documents, chunks, words, public_documents, languages FROM signalbox.collection
    WHERE tenant = %(tenant)s AND %(collection)s IN (number, part_of) ORDER BY number
"""
_MEND_COUNT = {
    name: f"UPDATE signalbox.collection SET {name} = %(count)s, version = version + 1"  # noqa: S608
    " WHERE tenant = %(tenant)s AND number = %(part)s"
    for name in ("documents", "chunks", "words", "public_documents", "languages")
}
_FIELDS = """
    SELECT coalesce(part, collection), id, title, fields::text FROM signalbox.document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND enabled AND id > %(after)s ORDER BY id LIMIT %(most)s
"""
_LEFTOVERS = """
    SELECT number FROM signalbox.collection WHERE tenant = %(tenant)s AND shadow_of = %(collection)s
      AND retired_at < now() - interval '1 hour'
"""
