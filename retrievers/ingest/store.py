"""Write documents; every function here runs in a transaction that carries the tenant."""

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, LiteralString

import numpy as np
from pgvector import HalfVector, SparseVector
from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from retrievers.core.errors import UnknownCollection
from retrievers.core.fields import Field, to_catalogue
from retrievers.core.places import Places
from retrievers.embed import Vectors
from retrievers.ingest import values
from retrievers.ingest.prepare import Passage, Prepared
from retrievers.ingest.rows import reweighed, term_counts
from retrievers.postgres.database import Row
from retrievers.text import analysis, folding, split, weights

if TYPE_CHECKING:
    from retrievers.ingest.stored import Stored

Connection = AsyncConnection[Row]


class Replaced(Exception):
    """The collection was rebuilt meanwhile: its name now belongs to another number."""


_ROWS_AT_ONCE, _TERMS_AT_ONCE = 64, 4000
"""Batch sizes that the driver turns into parameters in about 10 ms, which block the event loop."""


async def open_collection(connection: Connection, tenant: str, name: str) -> Row:
    """Return (number, embedder number, mean length, analysis version) of a collection; create it if missing."""
    select = """
        SELECT number, embedder, mean_length, analysis FROM signalbox.collection
        WHERE tenant = %s AND name = %s AND part_of IS NULL
    """
    row = await (await connection.execute(select, (tenant, name))).fetchone()
    if row is None:
        await connection.execute(
            "INSERT INTO signalbox.collection (tenant, name, analysis, split, folding) VALUES (%s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            (tenant, name, analysis.VERSION, split.VERSION, folding.VERSION),
        )
        row = await (await connection.execute(select, (tenant, name))).fetchone()
    assert row is not None
    return row


async def fields_of(connection: Connection, tenant: str, name: str) -> dict[str, Any]:
    """Return the field catalogue of a collection; {} if there is no such collection."""
    cursor = await connection.execute(
        "SELECT fields FROM signalbox.collection WHERE tenant = %s AND name = %s AND part_of IS NULL", (tenant, name)
    )
    row = await cursor.fetchone()
    return dict(row[0]) if row is not None else {}


async def lock_fields(connection: Connection, tenant: str, number: int) -> dict[str, Any]:
    """Return the field catalogue and lock it until the end of the transaction.

    Raises:
        UnknownCollection: the collection was deleted meanwhile.
        Replaced: it was rebuilt meanwhile.
    """
    return dict((await lock(connection, tenant, number))[0])


async def lock_public(connection: Connection, tenant: str, number: int) -> bool | None:
    """Return whether a collection holds public documents, locked until the end of the transaction; None if it is empty.

    Raises:
        UnknownCollection: the collection was deleted meanwhile.
        Replaced: it was rebuilt meanwhile.
    """
    await lock(connection, tenant, number)
    cursor = await connection.execute(
        "SELECT public_documents > 0 FROM signalbox.collection WHERE tenant = %s AND number = %s AND documents > 0",
        (tenant, number),
    )
    row = await cursor.fetchone()
    return bool(row[0]) if row is not None else None


async def lock(connection: Connection, tenant: str, number: int) -> Row:
    """Lock a collection against other writers until the end of the transaction; return (fields, mean length).

    Every change of documents starts here, so counts stay exact and writers can't deadlock.

    Raises:
        UnknownCollection: it was deleted meanwhile.
        Replaced: it was rebuilt meanwhile.
    """
    return await _live(connection, tenant, number, _LOCK)


async def confirm(connection: Connection, tenant: str, number: int) -> None:
    """Check as `lock` does that the collection exists, without a lock, for a transaction that only reads."""
    await _live(connection, tenant, number, _LIVE)


_LIVE: LiteralString = "SELECT fields, mean_length FROM signalbox.collection WHERE tenant = %s AND number = %s"
_LOCK: LiteralString = _LIVE + " FOR UPDATE"


async def _live(connection: Connection, tenant: str, number: int, statement: LiteralString) -> Row:
    row = await (await connection.execute(statement, (tenant, number))).fetchone()
    if row is None:
        await show_shadows(connection)
        known = await connection.execute(
            "SELECT FROM signalbox.collection WHERE tenant = %s AND number = %s", (tenant, number)
        )
        if known.rowcount:
            raise Replaced
        raise UnknownCollection("the collection was deleted meanwhile", where="collection")
    return row


async def lock_all(connection: Connection, tenant: str, number: int) -> None:
    """Lock a collection and the collections built to replace it, in the builders' order; raises as `lock`."""
    await lock(connection, tenant, number)
    await show_shadows(connection)
    await connection.execute(
        "SELECT FROM signalbox.collection WHERE tenant = %s AND shadow_of = %s ORDER BY number FOR UPDATE",
        (tenant, number),
    )


async def show_shadows(connection: Connection) -> None:
    """Make collections under construction and replaced ones visible until the end of the transaction."""
    await connection.execute("SELECT set_config('signalbox.shadows', 'on', true)")


async def set_fields(connection: Connection, tenant: str, number: int, fields: Mapping[str, Field]) -> None:
    """Write the field catalogue."""
    await connection.execute(
        "UPDATE signalbox.collection SET fields = %s, version = version + 1 WHERE tenant = %s AND number = %s",
        (Jsonb(to_catalogue(fields)), tenant, number),
    )


async def set_records(connection: Connection, tenant: str, number: int, records: Sequence[str]) -> None:
    """Write the nouns for a document of the collection, such as "upload"."""
    await connection.execute(
        "UPDATE signalbox.collection SET records = %(records)s, version = version + 1"
        " WHERE tenant = %(tenant)s AND number = %(number)s AND records <> %(records)s",
        {"records": list(records), "tenant": tenant, "number": number},
    )


async def set_description(connection: Connection, tenant: str, number: int, description: str) -> None:
    """Write the description of the collection."""
    await connection.execute(
        "UPDATE signalbox.collection SET description = %(description)s, version = version + 1"
        " WHERE tenant = %(tenant)s AND number = %(number)s AND description <> %(description)s",
        {"description": description, "tenant": tenant, "number": number},
    )


async def next_delivery(connection: Connection) -> int:
    """Return the number of a delivery that is accepted now, higher than all before."""
    row = await (await connection.execute("SELECT nextval('signalbox.delivery')")).fetchone()
    return int((row or (0,))[0])


async def stored(
    connection: Connection, tenant: str, number: int, documents: Mapping[str, bytes], delivery: int, *, name: str
) -> dict[str, tuple[bytes, int]]:
    """Return (digest, delivery number) by id of the given documents that are stored.

    If an earlier delivery to the collection `name` is still queued or running, unchanged documents get this delivery's
    number: the earlier one must not overwrite what this one confirmed. Syncs don't count as earlier deliveries, because
    they store what their source holds when they run.

    Args:
        documents: the digest of each delivered document by id.
    Raises:
        UnknownCollection, Replaced: as of `lock`.
    """
    cursor = await connection.execute(_EARLIER_TO_COME, (tenant, name, delivery, tenant, number))
    contended, present = await cursor.fetchone() or (False, True)
    if contended or not present:
        await lock(connection, tenant, number)
    cursor = await connection.execute(
        "SELECT id, digest, delivery FROM signalbox.document WHERE tenant = %s AND collection = %s AND id = ANY (%s)",
        (tenant, number, list(documents)),
    )
    found = {row[0]: (bytes(row[1]), int(row[2])) for row in await cursor.fetchall()}
    if contended:
        same = [id for id, (digest, _) in found.items() if digest == documents[id]]
        await connection.execute(
            "UPDATE signalbox.document SET delivery = %s"
            " WHERE tenant = %s AND collection = %s AND id = ANY (%s) AND delivery < %s",
            (delivery, tenant, number, same, delivery),
        )
    return found


_EARLIER_TO_COME = """
    SELECT EXISTS (SELECT FROM signalbox.job
                   WHERE tenant = %s AND collection = %s AND delivery < %s AND rebuild IS NULL AND sync IS NULL
                     AND status IN ('queued', 'running')),
           EXISTS (SELECT FROM signalbox.collection WHERE tenant = %s AND number = %s)
"""


async def known_vectors(
    connection: Connection, tenant: str, number: int, ids: Sequence[str], embedder: int | None = None
) -> dict[bytes, Vectors]:
    """Return the stored vectors of the documents' passages by the digest of the embedded text.

    Args:
        embedder: only vectors of the embedder with this number; None for any.
    """
    cursor = await connection.execute(
        "SELECT digest, embedding FROM signalbox.chunk"
        " WHERE tenant = %s AND collection = %s AND document_id = ANY (%s) AND embedding IS NOT NULL"
        " AND embedder = coalesce(%s, embedder)",
        (tenant, number, list(ids), embedder),
        binary=True,
    )
    return {bytes(row[0]): row[1].to_numpy().astype(np.float32) for row in await cursor.fetchall()}


async def replace_documents(
    connection: Connection,
    tenant: str,
    number: int,
    documents: Sequence[Prepared],
    vectors: Mapping[bytes, Vectors],
    *,
    embedder: int,
    mean_length: float,
    delivery: int,
) -> frozenset[str]:
    """Replace documents by id, with everything derived from them, in the caller's transaction.

    Args:
        vectors: by digest of the embedded text; one for every passage.
        embedder: number of the embedder the vectors come from.
        mean_length: mean passage length for BM25, used if the collection has none yet.
        delivery: number of the documents' delivery.
    Returns:
        Ids of the documents that were left alone because a later delivery brought them.
    """
    mean_length = (await lock(connection, tenant, number))[1] or mean_length
    cursor = await connection.execute(
        "SELECT id FROM signalbox.document WHERE tenant = %s AND collection = %s AND id = ANY (%s) AND delivery > %s",
        (tenant, number, [item.document.id for item in documents], delivery),
    )
    newer = frozenset(row[0] for row in await cursor.fetchall())
    documents = [item for item in documents if item.document.id not in newer]
    parts = await open_parts(connection, tenant, number, {item.document.readers for item in documents})
    await _note_readers(connection, tenant, number, documents, parts)
    changes: _ByPart = defaultdict(values.Changes)
    await _remove(connection, tenant, number, [item.document.id for item in documents], changes)
    async with connection.cursor() as writer:
        await writer.executemany(
            _INSERT_DOCUMENT,
            [_document_row(tenant, number, item, parts[item.document.readers], delivery) for item in documents],
        )
        passages = ((item, n, passage) for item in documents for n, passage in enumerate(item.passages))
        while some := list(islice(passages, _ROWS_AT_ONCE)):
            rows = await asyncio.to_thread(
                lambda some: [
                    _chunk_row(
                        tenant,
                        number,
                        item,
                        parts[item.document.readers],
                        n,
                        passage,
                        vectors[passage.digest],
                        embedder,
                        mean_length,
                    )
                    for item, n, passage in some
                ],
                some,
            )
            await writer.executemany(_INSERT_CHUNK, rows)
    for readers, part in parts.items():
        own = [item for item in documents if item.document.readers == readers]
        counted = part or number
        await _count_terms(connection, tenant, counted, await asyncio.to_thread(term_counts, own))
        shown = [item for item in own if item.document.enabled]
        await _count_documents(connection, tenant, counted, shown)
        for item in shown:
            changes[counted].add(item.document.id, item.document.title, item.fields, 1)
    await connection.execute(
        "UPDATE signalbox.collection SET mean_length = %s WHERE tenant = %s AND number = %s AND mean_length = 0",
        (mean_length, tenant, number),
    )
    await _apply(connection, tenant, changes)
    return newer


_ByPart = defaultdict[int, values.Changes]
"""Changes by the number of the collection, or of the part of it, that counts them."""


async def _apply(connection: Connection, tenant: str, changes: _ByPart) -> None:
    for counted, its in changes.items():
        await values.apply(connection, tenant, counted, its)


async def open_parts(
    connection: Connection, tenant: str, number: int, wanted: Iterable[tuple[str, ...]]
) -> dict[tuple[str, ...], int | None]:
    """Return the number of a locked collection's part by set of readers, created if missing; None without readers."""
    parts: dict[tuple[str, ...], int | None] = {}
    for readers in sorted(wanted):
        parts[readers] = None
        if readers:
            name = hashlib.sha256("\n".join(readers).encode()).hexdigest()
            which = {"tenant": tenant, "number": number, "name": name, "readers": list(readers)}
            await connection.execute(_INSERT_PART, which)
            row = await (await connection.execute(_PART, which)).fetchone()
            parts[readers] = (row or (None,))[0]
    return parts


_INSERT_PART = """
    INSERT INTO signalbox.collection (tenant, number, part_of, name, readers, analysis, folding)
    SELECT tenant, -nextval('signalbox.collection_number'), number, %(name)s, %(readers)s, analysis, folding
    FROM signalbox.collection k WHERE tenant = %(tenant)s AND number = %(number)s
      AND NOT EXISTS (SELECT FROM signalbox.collection p WHERE p.tenant = k.tenant AND p.part_of = k.number
                      AND p.name = %(name)s)
"""
_PART = """
    SELECT number FROM signalbox.collection WHERE tenant = %(tenant)s AND part_of = %(number)s AND name = %(name)s
"""


async def _note_readers(
    connection: Connection,
    tenant: str,
    number: int,
    documents: Sequence[Prepared],
    parts: Mapping[tuple[str, ...], int | None],
) -> None:
    """Count changes of readers; runs before the old documents are deleted."""
    values = {
        "tenant": tenant,
        "number": number,
        "ids": [item.document.id for item in documents],
        "parts": [parts[item.document.readers] for item in documents],
    }
    await connection.execute(_NOTE_READERS, values)


_NOTE_READERS = """
    INSERT INTO signalbox.access AS a (tenant, changed, narrowed)
    SELECT %(tenant)s, 1, narrows::integer FROM (
        SELECT bool_or(now.readers IS NOT NULL AND (was.readers IS NULL OR NOT was.readers <@ now.readers)) AS narrows
        FROM unnest(%(ids)s::text[], %(parts)s::integer[]) AS new (id, part)
        JOIN signalbox.document d ON d.tenant = %(tenant)s AND d.collection = %(number)s AND d.id = new.id
        LEFT JOIN signalbox.collection was ON was.tenant = d.tenant AND was.number = d.part
        LEFT JOIN signalbox.collection now ON now.tenant = d.tenant AND now.number = new.part
        WHERE d.part IS DISTINCT FROM new.part) change
    WHERE narrows IS NOT NULL
      AND NOT EXISTS (SELECT FROM signalbox.collection k
                      WHERE k.tenant = %(tenant)s AND k.number = %(number)s AND k.shadow_of IS NOT NULL)
    ON CONFLICT (tenant) DO UPDATE
    SET changed = a.changed + 1, narrowed = CASE WHEN excluded.narrowed > 0 THEN a.changed + 1 ELSE a.narrowed END
"""


_INSERT_DOCUMENT = """
    INSERT INTO signalbox.document (tenant, collection, id, title, url, body, metadata, fields, important, questions,
                                    language, digest, chunks, words, public, part, enabled, expires_at, delivery,
                                    places)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""
_INSERT_CHUNK = """
    INSERT INTO signalbox.chunk (tenant, collection, document_id, ordinal, embedder, public, part, expires_at,
                                 start_character, end_character, length, embedding, bm25, fields, heading, digest,
                                 lexemes, body, gap, places)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %b, %s, %s, %s, %s, %s, %s, %s)
"""


def _document_row(tenant: str, number: int, item: Prepared, part: int | None, delivery: int) -> Row:
    document = item.document
    return (
        tenant,
        number,
        document.id,
        document.title,
        document.url,
        document.text,
        Jsonb(document.metadata, _dumps),
        Jsonb(item.fields),
        list(document.important),
        list(document.questions),
        item.language,
        item.digest,
        len(item.passages),
        sum(passage.length for passage in item.passages),
        document.public,
        part,
        document.enabled,
        document.expires_at,
        delivery,
        _stored_places(document.places),
    )


def _dumps(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


def _chunk_row(
    tenant: str,
    number: int,
    item: Prepared,
    part: int | None,
    ordinal: int,
    passage: Passage,
    vector: Vectors,
    embedder: int,
    mean_length: float,
) -> Row:
    weighted = weights.document_weights(passage.lexemes, passage.length, mean_length)
    return (
        tenant,
        number,
        item.document.id,
        ordinal,
        embedder,
        item.document.public,
        part,
        item.document.expires_at,
        passage.start,
        passage.end,
        passage.length,
        HalfVector(vector),
        SparseVector(weighted, weights.DIMENSIONS),
        Jsonb(item.fields),
        passage.heading,
        passage.digest,
        to_tsvector(number, passage.lexemes),
        passage.text,
        passage.gap,
        _stored_places(passage.places),
    )


def _stored_places(places: Places | None) -> Jsonb | None:
    return Jsonb(places.to_json(), _dumps) if places else None


def to_tsvector(number: int, lexemes: weights.Positions) -> str:
    """Return the text form of a tsvector whose lexemes carry the collection's number."""
    words = []
    for term, places in lexemes.items():
        quoted = term.replace("\\", "\\\\").replace("'", "''")
        marks = ",".join(f"{position}{'' if label == 'D' else label}" for position, label in places)
        words.append(f"'{number}:{quoted}':{marks}")
    return " ".join(words)


async def remove_documents(connection: Connection, tenant: str, number: int, ids: Sequence[str]) -> int:
    """Delete documents with everything derived from them; return how many existed."""
    changes: _ByPart = defaultdict(values.Changes)
    count = await _remove(connection, tenant, number, ids, changes)
    await _apply(connection, tenant, changes)
    await connection.execute(
        "DELETE FROM signalbox.feedback_document WHERE collection = %s AND document_id = ANY (%s)", (number, list(ids))
    )
    return count


async def _remove(connection: Connection, tenant: str, number: int, ids: Sequence[str], changes: _ByPart) -> int:
    """Delete documents and add their field values to the changes, which the caller applies; return how many existed."""
    await lock(connection, tenant, number)
    which = {"tenant": tenant, "collection": number, "ids": list(ids)}
    await connection.execute(_UNCOUNT_TERMS, which)
    cursor = await connection.execute(
        """
        DELETE FROM signalbox.document
        WHERE tenant = %(tenant)s AND collection = %(collection)s AND id = ANY (%(ids)s)
        RETURNING id, title, fields, language, chunks, words, public, coalesce(part, collection), enabled
        """,
        which,
    )
    gone = await cursor.fetchall()
    await _uncount(connection, tenant, [row[:-1] for row in gone if row[-1]], changes)
    return len(gone)


async def _withdraw_expired(connection: Connection, tenant: str, number: int) -> None:
    """Remove expired documents of a locked collection from everything that is searched and counted.

    They are kept like disabled documents, so that they are recognised when they are delivered again.
    """
    while True:
        which = {"tenant": tenant, "collection": number, "most": _EXPIRED_AT_ONCE}
        cursor = await connection.execute(
            """
            SELECT id, title, fields, language, chunks, words, public, coalesce(part, collection)
            FROM signalbox.document
            WHERE tenant = %(tenant)s AND collection = %(collection)s AND enabled AND expires_at <= now()
            LIMIT %(most)s
            """,
            which,
        )
        rows = await cursor.fetchall()
        if not rows:
            return
        which["ids"] = [row[0] for row in rows]
        await connection.execute(_UNCOUNT_TERMS, which)
        await connection.execute(
            "DELETE FROM signalbox.chunk"
            " WHERE tenant = %(tenant)s AND collection = %(collection)s AND document_id = ANY (%(ids)s)",
            which,
        )
        await connection.execute(
            "UPDATE signalbox.document SET enabled = false, fields = '{}', chunks = 0, words = 0"
            " WHERE tenant = %(tenant)s AND collection = %(collection)s AND id = ANY (%(ids)s)",
            which,
        )
        changes: _ByPart = defaultdict(values.Changes)
        await _uncount(connection, tenant, rows, changes)
        await _apply(connection, tenant, changes)


_EXPIRED_AT_ONCE = 1000
_UNCOUNT_TERMS = """
    WITH gone AS (
        SELECT coalesce(c.part, c.collection) AS counted,
               substr(word.lexeme, position(':' IN word.lexeme) + 1) AS term, count(*) AS chunks
        FROM signalbox.chunk c, unnest(c.lexemes) AS word
        WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s AND c.document_id = ANY (%(ids)s)
        GROUP BY 1, 2)
    UPDATE signalbox.term t SET chunks = t.chunks - gone.chunks FROM gone
    WHERE t.tenant = %(tenant)s AND t.collection = gone.counted AND t.term = gone.term
"""


async def _uncount(connection: Connection, tenant: str, rows: Sequence[Row], changes: _ByPart) -> None:
    """Subtract documents from the counts, and add their field values to the changes.

    Args:
        rows: (id, title, fields, language, chunks, words, public, number of the collection or part that counts it).
    """
    by_part: dict[int, list[Row]] = {}
    for row in rows:
        by_part.setdefault(row[7], []).append(row)
    for counted, own in by_part.items():
        for id, title, fields, *_ in own:
            changes[counted].add(id, title, fields, -1)
        chunks, words, public = (sum(row[place] for row in own) for place in (4, 5, 6))
        languages = Counter(row[3] for row in own)
        await _add_to_counts(connection, tenant, counted, -len(own), -chunks, -words, -public, Counter(), languages)


async def _count_terms(connection: Connection, tenant: str, number: int, counts: Sequence[tuple[str, int]]) -> None:
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


async def _count_documents(connection: Connection, tenant: str, number: int, documents: Sequence[Prepared]) -> None:
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


async def settle(connection: Connection, tenant: str, number: int) -> int:
    """Bring a collection to the state that its documents alone define, after they are written.

    Withdraw expired documents, delete terms without passages, and fold names as this version does. If the mean length
    has moved to another grid point, recompute every stored BM25 vector.

    Returns:
        Number of passages whose vectors were recomputed.
    """
    held = await connection.execute(
        "SELECT FROM signalbox.collection WHERE tenant = %s AND number = %s FOR UPDATE", (tenant, number)
    )
    if not held.rowcount:
        return 0  # deleted, or rebuilt; then the rebuild settles it
    await _withdraw_expired(connection, tenant, number)
    row = await (
        await connection.execute(
            """
            SELECT sum(chunks)::bigint, sum(words)::bigint, sum(mean_length) FILTER (WHERE part_of IS NULL),
                   array_agg(number)
            FROM signalbox.collection WHERE tenant = %(tenant)s AND %(number)s IN (number, part_of)
            HAVING count(*) > 0
            """,
            {"tenant": tenant, "number": number},
        )
    ).fetchone()
    if row is None:
        return 0
    await connection.execute(
        "DELETE FROM signalbox.term WHERE tenant = %s AND collection = ANY (%s) AND chunks <= 0", (tenant, row[3])
    )
    for counted in row[3]:
        await values.refold(connection, tenant, counted)
    # Reset an empty collection's mean: the next documents bring their own.
    mean = weights.on_grid(row[1] / row[0]) if row[0] else 0.0
    if abs(mean - row[2]) < 1e-6:
        return 0
    await connection.execute(
        "UPDATE signalbox.collection SET mean_length = %s, version = version + 1 WHERE tenant = %s AND number = %s",
        (mean, tenant, number),
    )
    weighed = 0
    after = ("", -1)
    while True:
        cursor = await connection.execute(
            """
            SELECT document_id, ordinal, length,
                   ARRAY(SELECT substr(w.lexeme, position(':' IN w.lexeme) + 1) FROM unnest(lexemes) w),
                   ARRAY(SELECT array_to_string(w.weights, '') FROM unnest(lexemes) w)
            FROM signalbox.chunk
            WHERE tenant = %s AND collection = %s AND (document_id, ordinal) > (%s, %s)
            ORDER BY document_id, ordinal LIMIT %s
            """,
            (tenant, number, *after, _ROWS_AT_ONCE),
        )
        rows = await cursor.fetchall()
        if not rows:
            return weighed
        vectors = await asyncio.to_thread(reweighed, rows, mean)
        async with connection.cursor() as writer:
            await writer.executemany(
                "UPDATE signalbox.chunk SET bm25 = %b"
                " WHERE tenant = %s AND collection = %s AND document_id = %s AND ordinal = %s",
                [(vector, tenant, number, *row[:2]) for vector, row in zip(vectors, rows, strict=True)],
            )
        weighed += len(rows)
        after = (rows[-1][0], rows[-1][1])


async def restore_moments(connection: Connection, tenant: str, number: int, documents: Sequence["Stored"]) -> None:
    """Restore the delivery numbers and the creation and update times of rewritten documents."""
    columns = [(one.document.id, one.delivery, one.created_at, one.updated_at) for one in documents]
    ids, deliveries, created, updated = zip(*columns, strict=True) if columns else ((), (), (), ())
    await connection.execute(
        """
        UPDATE signalbox.document d
        SET delivery = had.delivery, created_at = had.created_at, updated_at = had.updated_at
        FROM unnest(%s::text[], %s::bigint[], %s::timestamptz[], %s::timestamptz[])
             AS had (id, delivery, created_at, updated_at)
        WHERE d.tenant = %s AND d.collection = %s AND d.id = had.id
        """,
        (list(ids), list(deliveries), list(created), list(updated), tenant, number),
    )


async def delete_collection(connection: Connection, tenant: str, number: int) -> int:
    """Delete a locked collection with its content; return how many documents it had."""
    await connection.execute("DELETE FROM signalbox.feedback_document WHERE collection = %s", (number,))
    cursor = await connection.execute(
        "SELECT sum(documents)::bigint FROM signalbox.collection WHERE tenant = %s AND %s IN (number, part_of)",
        (tenant, number),
    )
    row = await cursor.fetchone()
    await connection.execute(
        "DELETE FROM signalbox.changed WHERE tenant = %s AND collection IN ("
        "SELECT number FROM signalbox.collection WHERE tenant = %s AND shadow_of = %s)",
        (tenant, tenant, number),
    )
    await connection.execute("DELETE FROM signalbox.collection WHERE tenant = %s AND number = %s", (tenant, number))
    return int(row[0] or 0) if row else 0
