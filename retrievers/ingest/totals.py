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
from retrievers.ingest import collections, values
from retrievers.ingest.findings import NAMED, FindingNames, Wrong
from retrievers.ingest.settle import settle
from retrievers.postgres.database import Row
from retrievers.text import analysis, bm25, split

_PAGE = 1000


async def totals(connection: collections.Connection, collection: Collection) -> Wrong:
    """Return the errors in a collection's terms, counts and fields, by kind. {} if there are none.

    The transaction of the connection must see a single state of the collection.
    """
    which = _which(collection)
    wrong: Wrong = {}
    for kind, statement in (("orphans", _ORPHANS), ("terms", _FIRST_TERMS)):
        if named := await _rows(connection, statement, which | {"most": NAMED}):
            wrong[kind] = FindingNames(named[0][1], [row[0] for row in named])
    if counts := await _counts(connection, collection):
        wrong["counts"] = FindingNames.of([name for one in counts.values() for name in one])
    differing: set[str] = set()
    for number, one in (await _changes(connection, collection)).items():
        differing.update(await values.differing(connection, collection.tenant, number, one))
    if differing:
        wrong["fields"] = FindingNames.of(sorted(differing))
    if await _rows(connection, _VERSIONS, which) != [(analysis.VERSION, split.VERSION)]:
        wrong["version"] = FindingNames.of([collection.name])
    await collections.show_shadows(connection)
    if left := await _rows(connection, _LEFTOVERS, which):
        wrong["leftovers"] = FindingNames.of([str(row[0]) for row in left])
    return wrong


async def delete_orphans(connection: collections.Connection, collection: Collection) -> None:
    """Delete passages without a document. The caller holds the collection's lock."""
    await connection.execute(_DELETE_ORPHANS, _which(collection))


async def mend_totals(connection: collections.Connection, collection: Collection) -> None:
    """Recompute the terms, counts and fields from the documents. The caller holds the collection's lock."""
    tenant = collection.tenant
    await connection.execute(_MEND_TERMS, _which(collection))
    for part, counts in (await _counts(connection, collection)).items():
        for name, count in counts.items():
            if name == "mean_length":
                continue  # `settle` below corrects it, together with all weights, which depend on it
            given = Jsonb(count) if name == "languages" else count
            await connection.execute(_MEND_COUNT[name], {"tenant": tenant, "part": part, "count": given})
    for part, changes in (await _changes(connection, collection)).items():
        if await values.differing(connection, tenant, part, changes):
            await values.replace(connection, tenant, part, changes)
    await settle(connection, tenant, collection.number)


async def _counts(connection: collections.Connection, collection: Collection) -> dict[int, dict[str, Any]]:
    """Return correct values for wrong counts: number of collection or part -> count ("words") -> correct value."""
    which = _which(collection)
    made: dict[int, list[Any]] = defaultdict(lambda: [0, 0, 0, 0, Counter()])
    for number, language, documents, chunks, words, public in await _rows(connection, _COUNTED, which):
        one = made[number]
        for place, more in enumerate((documents, chunks, words, public)):
            one[place] += more
        one[4][language] += documents
    wrong: dict[int, dict[str, Any]] = defaultdict(dict)
    chunks, words = sum(one[1] for one in made.values()), sum(one[2] for one in made.values())
    mean = bm25.on_grid(words / chunks) if chunks else 0.0
    if any(abs(row[0] - mean) > 1e-6 for row in await _rows(connection, _MEAN, which)):
        wrong[collection.number]["mean_length"] = mean
    for number, *counts in await _rows(connection, _KEPT, which):
        pairs = zip(
            ("documents", "chunks", "words", "public_documents", "languages"), counts, made[number], strict=True
        )
        if differing := {name: new for name, old, new in pairs if old != new}:
            wrong[number] |= differing
    return wrong


async def _changes(connection: collections.Connection, collection: Collection) -> dict[int, values.Changes]:
    """Return the field values of all documents, as changes to empty statistics, by number of the collection or part."""
    which = _which(collection)
    changes = {row[0]: values.Changes() for row in await _rows(connection, _KEPT, which)}
    after = ""
    while rows := await _rows(connection, _FIELDS, which | {"after": after, "most": _PAGE}):
        await asyncio.to_thread(_add, changes, rows)
        after = rows[-1][1]
    return changes


def _add(changes: dict[int, values.Changes], rows: Sequence[Row]) -> None:
    for number, id, title, given in rows:
        changes.setdefault(number, values.Changes()).add(id, title, json.loads(given), 1)


def _which(collection: Collection) -> dict[str, Any]:
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
# Terms that no longer occur in any passage are kept until the collection is settled.
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
