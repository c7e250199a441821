"""Write and delete documents, in a transaction that carries the tenant."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from retrievers.embed import Vectors
from retrievers.ingest import collection_counts, collections
from retrievers.ingest.collections import Connection
from retrievers.ingest.derived_data import set_expected_mean
from retrievers.ingest.loaded_documents import LoadedDocument
from retrievers.ingest.preparation import Passage, PreparedDocument
from retrievers.ingest.rows import (
    INSERT_CHUNK,
    INSERT_DOCUMENT,
    ROWS_AT_ONCE,
    chunk_row,
    document_row,
    removed_terms,
    term_changes,
)
from retrievers.postgres.connections.database import Row
from retrievers.postgres.connections.row_batches import fetch_in_batches

_COUNTED_AT_ONCE = 256
"""Number of passages whose terms are counted together. Each has up to 3,000 terms."""


async def next_delivery(connection: Connection) -> int:
    """Draw the number of a delivery (a set of submitted documents), higher than all numbers drawn before.

    If two deliveries contain the same document, the one with the higher number takes precedence.
    """
    row = await (await connection.execute("SELECT nextval('signalbox.delivery')")).fetchone()
    return int((row or (0,))[0])


async def stored_versions(
    connection: Connection, tenant: str, number: int, documents: Mapping[str, bytes], delivery: int, *, name: str
) -> dict[str, tuple[bytes, int]]:
    """Return the stored (digest, delivery number) of documents by id. Documents that are not stored are left out.

    If an earlier delivery to the collection is still queued or running, unchanged documents get this delivery's number,
    so that the earlier delivery does not overwrite them. Runs of mirrors do not count as earlier deliveries, because
    they store what their source contains when they run.

    Args:
        documents: digest of each document of this delivery, by id.
        delivery: number of this delivery.
        name: name of the collection.
    Raises:
        UnknownCollection, CollectionReplaced: as of `collections.lock_collection`.
    """
    cursor = await connection.execute(_EARLIER_TO_COME, (tenant, name, delivery, tenant, number))
    contended, present = await cursor.fetchone() or (False, True)
    if contended or not present:
        await collections.lock_collection(connection, tenant, number)
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
    """Return the stored vectors of the passages of documents, by the digest of the embedded text.

    Args:
        ids: ids of the documents.
        embedder: number of the embedder whose vectors are wanted; None for those of any embedder.
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
    documents: Sequence[PreparedDocument],
    vectors: Mapping[bytes, Vectors],
    *,
    embedder: int,
    mean_length: float,
    delivery: int,
) -> frozenset[str]:
    """Replace documents by id, with everything derived from them, in the caller's transaction.

    Args:
        vectors: a vector for every passage, by digest of the embedded text.
        embedder: number of the embedder that computed the vectors.
        mean_length: mean passage length for BM25, used if the collection has none yet.
        delivery: number of the documents' delivery.
    Returns:
        Ids of the documents that were not replaced, because a later delivery has stored them.
    """
    mean_length = (await collections.lock_collection(connection, tenant, number))[1] or mean_length
    cursor = await connection.execute(
        "SELECT id FROM signalbox.document WHERE tenant = %s AND collection = %s AND id = ANY (%s) AND delivery > %s",
        (tenant, number, [item.document.id for item in documents], delivery),
    )
    newer = frozenset(row[0] for row in await cursor.fetchall())
    documents = [item for item in documents if item.document.id not in newer]
    parts = await collections.open_parts(connection, tenant, number, {item.document.readers for item in documents})
    await _record_reader_changes(connection, tenant, number, documents, parts)
    changes = collection_counts.empty_changes()
    ids = [item.document.id for item in documents]
    # A new version of a document has mostly the terms of the old one, so only the differences are written.
    old_terms = await collection_counts.stored_terms(connection, tenant, number, ids)
    if old_terms is None:
        await collection_counts.uncount_terms(connection, tenant, number, ids)
        old_terms = defaultdict(Counter)
    await _delete_rows(connection, tenant, number, ids, changes)
    lengths = [passage.length for item in documents for passage in item.passages]
    mean_length = await set_expected_mean(connection, tenant, number, lengths, mean_length)
    rows = _RowWriter(tenant, number, parts, embedder, mean_length, delivery)
    await rows.insert(connection, documents, vectors)
    for readers, part in parts.items():
        own = [item for item in documents if item.document.readers == readers]
        counted = part or number
        await _count_terms(connection, tenant, counted, own, old_terms[counted])
        shown = [item for item in own if item.document.enabled]
        await collection_counts.count_documents(connection, tenant, counted, shown)
        await changes[counted].add_all([(item.document.id, item.document.title, item.fields) for item in shown], 1)
    for counted, old in old_terms.items():
        terms = await asyncio.to_thread(removed_terms, old)
        await collection_counts.count_terms(connection, tenant, counted, terms)
    await connection.execute(
        "UPDATE signalbox.collection SET mean_length = %s WHERE tenant = %s AND number = %s AND mean_length = 0",
        (mean_length, tenant, number),
    )
    await collection_counts.apply_field_changes(connection, tenant, changes)
    return newer


async def _count_terms(
    connection: Connection, tenant: str, counted: int, documents: Sequence[PreparedDocument], old: Counter[str]
) -> None:
    """Count the terms of documents, a limited number of passages at a time: the terms of a long document fill memory.

    Args:
        counted: number of the collection or part that counts the documents.
        old: number of replaced passages with each term. At the end: of those that are still to be subtracted.
    """
    passages = [passage for item in documents for passage in item.passages]
    for start in range(0, len(passages), _COUNTED_AT_ONCE):
        terms = await asyncio.to_thread(term_changes, passages[start : start + _COUNTED_AT_ONCE], old)
        await collection_counts.count_terms(connection, tenant, counted, terms)


@dataclass(frozen=True, slots=True)
class _RowWriter:
    """Inserts the rows of documents and their passages.

    Attributes:
        parts: readers to the number of their part of the collection, see `collections.open_parts`.
    """

    tenant: str
    number: int
    parts: Mapping[tuple[str, ...], int | None]
    embedder: int
    mean_length: float
    delivery: int

    async def insert(
        self, connection: Connection, documents: Sequence[PreparedDocument], vectors: Mapping[bytes, Vectors]
    ) -> None:
        passages = ((item, n, passage) for item in documents for n, passage in enumerate(item.passages))
        async with connection.cursor() as writer:
            for start in range(0, len(documents), ROWS_AT_ONCE):
                some_documents = documents[start : start + ROWS_AT_ONCE]
                rows = await asyncio.to_thread(lambda some: [self._document(item) for item in some], some_documents)
                await writer.executemany(INSERT_DOCUMENT, rows)

            def next_rows() -> list[Row]:
                some = islice(passages, ROWS_AT_ONCE)
                return [self._passage(item, n, one, vectors[one.digest]) for item, n, one in some]

            rows = await asyncio.to_thread(next_rows)
            while rows:
                # All other writers of the collection wait, so the next rows are made while the database stores these.
                rows, _ = await asyncio.gather(asyncio.to_thread(next_rows), writer.executemany(INSERT_CHUNK, rows))

    def _document(self, item: PreparedDocument) -> Row:
        return document_row(self.tenant, self.number, item, self.parts[item.document.readers], self.delivery)

    def _passage(self, item: PreparedDocument, ordinal: int, passage: Passage, vector: Vectors) -> Row:
        part = self.parts[item.document.readers]
        return chunk_row(
            self.tenant, self.number, item, part, ordinal, passage, vector, self.embedder, self.mean_length
        )


async def _record_reader_changes(
    connection: Connection,
    tenant: str,
    number: int,
    documents: Sequence[PreparedDocument],
    parts: Mapping[tuple[str, ...], int | None],
) -> None:
    """Raise the tenant's counter of access changes if documents change their readers, which invalidates caches.

    Call it before the old rows of the documents are deleted.
    """
    values = {
        "tenant": tenant,
        "number": number,
        "ids": [item.document.id for item in documents],
        "parts": [parts[item.document.readers] for item in documents],
    }
    await connection.execute(_RECORD_READER_CHANGES, values)


_RECORD_READER_CHANGES = """
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


async def remove_documents(connection: Connection, tenant: str, number: int, ids: Sequence[str]) -> int:
    """Delete documents with everything derived from them. Return the number of documents that existed."""
    changes = collection_counts.empty_changes()
    await collections.lock_collection(connection, tenant, number)
    await collection_counts.uncount_terms(connection, tenant, number, ids)
    count = await _delete_rows(connection, tenant, number, ids, changes)
    await collection_counts.apply_field_changes(connection, tenant, changes)
    await connection.execute(
        "DELETE FROM signalbox.feedback_document WHERE collection = %s AND document_id = ANY (%s)", (number, list(ids))
    )
    return count


async def _delete_rows(
    connection: Connection, tenant: str, number: int, ids: Sequence[str], changes: collection_counts.ChangesByPart
) -> int:
    """Delete documents of a locked collection and subtract them from its counts. Return the number that existed.

    The counts of terms are left to the caller. Field values are subtracted in `changes`, which the caller then applies.
    """
    cursor = await connection.execute(
        """
        DELETE FROM signalbox.document
        WHERE tenant = %(tenant)s AND collection = %(collection)s AND id = ANY (%(ids)s)
        RETURNING id, title, fields, language, chunks, words, public, coalesce(part, collection), enabled
        """,
        {"tenant": tenant, "collection": number, "ids": list(ids)},
    )
    gone = await fetch_in_batches(cursor, 8)  # a document may have thousands of fields
    await collection_counts.uncount_documents(connection, tenant, [row[:-1] for row in gone if row[-1]], changes)
    return len(gone)


async def restore_timestamps(
    connection: Connection, tenant: str, number: int, documents: Sequence[LoadedDocument]
) -> None:
    """Give documents that were written again the delivery numbers and times that they had before, as in `documents`."""
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
