"""Keep the counts of a collection and its parts: documents, passages, words, languages, terms and field values.

A part is the documents of a collection with the same readers. It counts them under its own number, and the collection
does not count them.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence

from psycopg.types.json import Jsonb

from retrievers.ingest import field_statistics
from retrievers.ingest.collections import Connection
from retrievers.ingest.preparation import PreparedDocument
from retrievers.postgres.connections.database import Row
from retrievers.postgres.connections.row_batches import fetch_in_batches

_TERMS_AT_ONCE = 4000
"""Terms per statement. The driver blocks the event loop for about 10 ms to turn them into parameters."""

_MOST_STORED_TERMS = 300_000

ChangesByPart = defaultdict[int, field_statistics.FieldValueChanges]
"""Changes of field values, by the number of the collection or part that counts them."""


def empty_changes() -> ChangesByPart:
    """Return an empty `ChangesByPart`, to which changes are added."""
    return defaultdict(field_statistics.FieldValueChanges)


async def apply_field_changes(connection: Connection, tenant: str, changes: ChangesByPart) -> None:
    """Apply changes of field values to the stored statistics."""
    for counted, its in changes.items():
        await field_statistics.apply_changes(connection, tenant, counted, its)


# ON CONFLICT looks each term up in the primary key. An UPDATE with a join would be planned by statistics from before
# the terms of a new collection were stored, and would compare every term here with every stored one.
_UNCOUNT_TERMS = """
    INSERT INTO signalbox.term AS t (tenant, collection, term, chunks)
    SELECT %(tenant)s, coalesce(c.part, c.collection), substr(word.lexeme, position(':' IN word.lexeme) + 1), -count(*)
    FROM signalbox.chunk c, unnest(c.lexemes) AS word
    WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s AND c.document_id = ANY (%(ids)s)
    GROUP BY 2, 3
    ON CONFLICT (tenant, collection, term) DO UPDATE SET chunks = t.chunks + excluded.chunks
"""


async def uncount_terms(connection: Connection, tenant: str, number: int, ids: Sequence[str]) -> None:
    """Subtract the passages of documents from the counts of their terms, before the passages are deleted."""
    await connection.execute(_UNCOUNT_TERMS, {"tenant": tenant, "collection": number, "ids": list(ids)})


async def stored_terms(
    connection: Connection, tenant: str, number: int, ids: Sequence[str]
) -> defaultdict[int, Counter[str]] | None:
    """Return in how many passages of the documents each term occurs: number of collection or part -> term -> count.

    None if there are more than `_MOST_STORED_TERMS`, which would fill the memory.
    """
    which = {"tenant": tenant, "collection": number, "ids": list(ids), "most": _MOST_STORED_TERMS + 1}
    rows = await fetch_in_batches(await connection.execute(_STORED_TERMS, which))
    return await asyncio.to_thread(_term_counts_by_part, rows) if len(rows) <= _MOST_STORED_TERMS else None


def _term_counts_by_part(rows: Sequence[Row]) -> defaultdict[int, Counter[str]]:
    counts: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for counted, term, chunks in rows:
        counts[counted][term] = chunks
    return counts


_STORED_TERMS = """
    SELECT coalesce(c.part, c.collection), substr(word.lexeme, position(':' IN word.lexeme) + 1), count(*)
    FROM signalbox.chunk c, unnest(c.lexemes) AS word
    WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s AND c.document_id = ANY (%(ids)s)
    GROUP BY 1, 2 LIMIT %(most)s
"""


async def uncount_documents(connection: Connection, tenant: str, rows: Sequence[Row], changes: ChangesByPart) -> None:
    """Subtract documents from the stored counts, and their field values from `changes`, which the caller applies.

    Args:
        rows: for each document: id, title, field values, language, number of passages, number of words, whether it is
            public, and the number of the collection or part that counts it.
    """
    by_part: dict[int, list[Row]] = {}
    for row in rows:
        by_part.setdefault(row[7], []).append(row)
    for counted, own in by_part.items():
        await changes[counted].add_all([(id, title, fields) for id, title, fields, *_ in own], -1)
        chunks, words, public = (sum(row[place] for row in own) for place in (4, 5, 6))
        languages = Counter(row[3] for row in own)
        await _add_to_counts(connection, tenant, counted, -len(own), -chunks, -words, -public, Counter(), languages)


async def count_terms(connection: Connection, tenant: str, number: int, counts: Sequence[tuple[str, int]]) -> None:
    """Add to the numbers of passages that contain each term.

    Args:
        number: number of the collection or part that counts the passages.
        counts: (term, change of the number of passages that contain the term), sorted by term.
    """
    for start in range(0, len(counts), _TERMS_AT_ONCE):
        some = counts[start : start + _TERMS_AT_ONCE]
        await connection.execute(
            """
            INSERT INTO signalbox.term AS t (tenant, collection, term, chunks)
            SELECT %s, %s, term, chunks FROM unnest(%s::text[], %s::integer[]) AS new (term, chunks)
            ON CONFLICT (tenant, collection, term) DO UPDATE SET chunks = t.chunks + excluded.chunks
            """,
            (tenant, number, [term for term, _ in some], [count for _, count in some]),
        )


async def count_documents(
    connection: Connection, tenant: str, number: int, documents: Sequence[PreparedDocument]
) -> None:
    """Add documents, with their passages, words and languages, to the stored counts of their collection or part."""
    passages = [passage for item in documents for passage in item.passages]
    await _add_to_counts(
        connection,
        tenant,
        number,
        len(documents),
        len(passages),
        sum(passage.length for passage in passages),
        sum(item.document.public for item in documents),
        Counter(item.language for item in documents),
        Counter(),
    )


async def _add_to_counts(
    connection: Connection,
    tenant: str,
    number: int,
    documents: int,
    chunks: int,
    words: int,
    public: int,
    come: Counter[str],
    gone: Counter[str],
) -> None:
    row = await (
        await connection.execute(
            "SELECT languages FROM signalbox.collection WHERE tenant = %s AND number = %s FOR UPDATE", (tenant, number)
        )
    ).fetchone()
    languages = Counter(row[0] if row else {})
    languages.update(come)
    languages.subtract(gone)
    await connection.execute(
        """
        UPDATE signalbox.collection
        SET documents = documents + %s, chunks = chunks + %s, words = words + %s,
            public_documents = public_documents + %s, languages = %s, version = version + 1
        WHERE tenant = %s AND number = %s
        """,
        (documents, chunks, words, public, Jsonb({k: n for k, n in languages.items() if n > 0}), tenant, number),
    )
