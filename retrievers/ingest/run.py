"""One ingestion: stores a stream of documents in one collection.

Batches overlap: while one is embedded, the next is split and analysed and the previous one is written. Documents can
have megabytes, so their texts are processed in threads: on the event loop, questions would have to wait. Each batch is
one transaction, so a killed run leaves only whole documents, and running it again stores the others.
"""

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any

import psycopg

from retrievers.core.errors import BadDocument, UnknownCollection
from retrievers.core.metadata import Field, fields_from_json, infer_fields
from retrievers.core.types import PLATFORM, unrestricted_viewer
from retrievers.embed import Embedder, Vectors
from retrievers.ingest import collections, document_store
from retrievers.ingest.batches import Numbered, batch_weight, next_items
from retrievers.ingest.derived_data import update_derived_data
from retrievers.ingest.document_validation import (
    MIXED_VISIBILITY,
    find_misfits,
    flatten_valid,
    reject_mixed_visibility,
    values_and_digest,
)
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.jobs.delivery_queues import WriteLocks
from retrievers.ingest.passage_weights import reweigh_collection
from retrievers.ingest.preparation import PreparedDocument, prepare
from retrievers.ingest.report import Failure, IngestReport, OnWrite, Progress
from retrievers.ingest.target_collection import TargetCollection
from retrievers.postgres.connections.database import Database
from retrievers.text import bm25

_SAMPLE_DOCUMENTS = 1000
_SAMPLE_PASSAGES = 2000
_BATCH_DOCUMENTS = 256
_BATCH_PASSAGES = 256
# Limits on the texts that are in memory: a prepared document takes up to 50 bytes for each character of its text.
_SAMPLE_CHARACTERS = 16_000_000
_BATCH_CHARACTERS = 2_000_000
_STATISTICS_AFTER = 500
# Errors with which the database refuses a document permanently: bad data, or a limit (a word list of 1 MB).
_REFUSED = (psycopg.DataError, psycopg.errors.ProgramLimitExceeded)

_Embedded = tuple[int, dict[bytes, Vectors]]
"""The number of the collection that the vectors were computed for, and the vectors by digest of their texts."""


async def ingest(
    database: Database,
    embedder: Embedder,
    tenant: str,
    collection: str,
    items: Iterable[Document | RejectedItem],
    *,
    declared: Mapping[str, Field] | None = None,
    progress: Progress | None = None,
    delivery: int | None = None,
    on_write: OnWrite | None = None,
    write_locks: WriteLocks | None = None,
    reads_in_thread: bool = False,
    reweighs: bool = True,
) -> IngestReport:
    """Store documents. Documents whose content is already stored are neither embedded nor written.

    Args:
        items: the input, in order. Rejected items are reported and do not affect others.
        declared: fields of a schema; others are inferred from the first documents.
        progress: called after every batch with the report so far.
        delivery: number of the delivery (`document_store.next_delivery`) if it was accepted earlier; None to draw a new
            one. A document that a later delivery has stored since is left unchanged.
        on_write: called in every transaction that writes documents.
        write_locks: acquired to lock the collection and to write a batch.
        reads_in_thread: take the items in threads, because reading one would block the event loop.
        reweighs: recompute the BM25 vectors at the end if the mean length has changed; False leaves them to a worker.
    Raises:
        EmbedderMismatch: the collection has vectors of another embedder.
        Unavailable: the database or the embedder failed. Committed documents stay.
    """
    collections.check_collection_name(collection)
    on_progress = progress or (lambda report: None)
    run = _IngestRun(database, embedder, tenant, collection, declared or {}, on_progress, write_locks or WriteLocks())
    run.reads_in_thread = reads_in_thread
    report = await run.store_all(items, delivery, on_write)
    if reweighs:
        await reweigh_collection(database, tenant, run.number)
    return report


class _IngestRun:
    def __init__(
        self,
        database: Database,
        embedder: Embedder,
        tenant: str,
        collection: str,
        declared: Mapping[str, Field],
        progress: Progress,
        write_locks: WriteLocks,
    ) -> None:
        self._database = database
        self._target = TargetCollection(database, embedder, tenant, collection, write_locks.exclusive)
        self._tenant, self._collection, self._declared = tenant, collection, declared
        self._writer = unrestricted_viewer(tenant)
        self._progress = progress
        self._report = IngestReport()
        self._seen: dict[str, tuple[int, str, bytes]] = {}  # id to (index, position, digest) of its first occurrence
        self._existing: set[str] = set()  # ids of the documents under way that were stored before this run
        self._faults: dict[int, str] = {}  # faults of items still to be reported, by index
        self._sampled = 0  # index after the sample
        self._delivery = 0
        self._on_write: OnWrite | None = None
        self._write_locks = write_locks
        self.reads_in_thread = False

    @property
    def number(self) -> int:
        """Number of the collection; 0 if no document could be stored."""
        return self._target.number

    async def store_all(
        self, items: Iterable[Document | RejectedItem], delivery: int | None, on_write: OnWrite | None
    ) -> IngestReport:
        self._on_write = on_write
        documents = enumerate(await self._reject_mixed_visibility(items) if self._tenant == PLATFORM else items)
        # No collection is created and no fields are added before a document can be stored.
        while not await self._open(
            sample := await self._take(documents, _SAMPLE_DOCUMENTS, _SAMPLE_CHARACTERS), delivery
        ):
            for index, item in sample:
                self._fail(index, item, self._faults.pop(index))
            if not sample:
                return self._report
        tasks: list[asyncio.Task[Any]] = []
        try:
            async for batch in self._batches(chain(sample, documents)):
                vectors = asyncio.create_task(self._embed(batch))
                before, tasks = tasks, [*tasks, vectors]
                await asyncio.gather(*before)
                # The loop above prepares the next batch while this one is embedded and written.
                tasks = [vectors, asyncio.create_task(self._write(batch, vectors))]
                await asyncio.sleep(0)
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        await self._update_derived_data()
        return self._report

    async def _reject_mixed_visibility(
        self, items: Iterable[Document | RejectedItem]
    ) -> Iterable[Document | RejectedItem]:
        """Return the items, with each document rejected whose `public` differs from the collection's documents.

        Used for the platform tenant only. All tenants see the counts, words and field names of a collection with public
        documents, so it may not contain private ones.
        """
        async with self._database.transaction(self._writer) as connection:
            cursor = await connection.execute(
                "SELECT public_documents > 0 FROM signalbox.collection"
                " WHERE tenant = %s AND name = %s AND part_of IS NULL AND documents > 0",
                (self._tenant, self._collection),
            )
            row = await cursor.fetchone()
        return reject_mixed_visibility(row[0] if row else None, items)

    async def _open(self, sample: Sequence[tuple[int, Document | RejectedItem]], delivery: int | None) -> bool:
        """Open the collection, created if missing. Return False if no document of the sample can be stored."""
        flat = await self._flatten(sample)
        self._sampled = sample[-1][0] + 1 if sample else 0
        if not flat:
            return False
        inferred = await asyncio.to_thread(infer_fields, flat.values())
        async with self._database.transaction(self._writer) as connection:
            stored = fields_from_json(await collections.read_fields(connection, self._tenant, self._collection))
        documents = {index: item for index, item in sample if isinstance(item, Document) and index in flat}
        misfits = await asyncio.to_thread(find_misfits, documents, {**inferred, **stored, **self._declared})
        self._faults.update(misfits)
        if len(misfits) == len(documents):
            return False

        async def begin(connection: collections.Connection) -> None:
            self._delivery = await document_store.next_delivery(connection) if delivery is None else delivery
            await self._target.update_fields(connection, inferred, self._declared, documents.values())

        await self._target.open(begin)
        return True

    async def _take(self, items: Iterator[Numbered], most: int, characters: int) -> list[Numbered]:
        """Return the next items, at most `most`, and no more once they have this many characters."""
        if self.reads_in_thread:
            return await asyncio.to_thread(next_items, items, most, characters)
        return next_items(items, most, characters)

    async def _flatten(self, items: Sequence[tuple[int, Document | RejectedItem]]) -> dict[int, Mapping[str, Any]]:
        """Return the flattened metadata of the valid items by index, and record why the other items are invalid."""
        flat, faults = await asyncio.to_thread(flatten_valid, items)
        self._faults.update(faults)
        return flat

    async def _batches(self, items: Iterator[tuple[int, Document | RejectedItem]]) -> Any:
        """Yield batches of prepared documents that must be stored. Unchanged and invalid ones are only counted."""
        batch: list[tuple[int, PreparedDocument]] = []
        passages = 0
        sampling = not self._target.mean_length
        while documents := await self._take(items, _BATCH_DOCUMENTS, _BATCH_CHARACTERS):
            for index, item in await self._changed_documents(documents):
                batch.append((index, item))
                passages += batch_weight(item)
                if passages >= (_SAMPLE_PASSAGES if sampling else _BATCH_PASSAGES):
                    for part in self._split_batch(batch):
                        yield part
                    batch, passages, sampling = [], 0, False
            self._progress(self._report)
        for part in self._split_batch(batch):
            yield part

    def _split_batch(self, batch: list[tuple[int, PreparedDocument]]) -> Iterator[list[tuple[int, PreparedDocument]]]:
        """Yield a batch in pieces of limited size. The first batch also determines the initial mean length."""
        lengths = [passage.length for _, item in batch for passage in item.passages]
        if not self._target.mean_length and lengths:
            self._target.mean_length = bm25.round_mean_length(sum(lengths) / len(lengths))
        part: list[tuple[int, PreparedDocument]] = []
        passages = 0
        for index, item in batch:
            weight = batch_weight(item)
            # A large document is written on its own: the documents before it do not wait for its transaction.
            if passages >= _BATCH_PASSAGES or (part and weight >= _BATCH_PASSAGES):
                yield part
                part, passages = [], 0
            part.append((index, item))
            passages += weight
        if part:
            yield part

    async def _changed_documents(
        self, items: Sequence[tuple[int, Document | RejectedItem]]
    ) -> list[tuple[int, PreparedDocument]]:
        # The sample was flattened before, and its fields are known.
        flat = await self._flatten([one for one in items if one[0] >= self._sampled])
        await self._add_new_fields(flat.values(), [item for _, item in items if isinstance(item, Document)])
        judged = []
        for index, item in items:
            if isinstance(item, Document):
                self._report.notes += [f"{item.where}: {note}" for note in item.notes]
            if isinstance(item, RejectedItem) or index in self._faults:
                self._fail(index, item, self._faults.pop(index))
                continue
            try:
                values, digest = await asyncio.to_thread(values_and_digest, item, self._target.fields)
                judged.append((index, item, values, digest))
            except BadDocument as error:
                self._fail(index, item, str(error))
        given = {document.id: digest for _, document, _, digest in reversed(judged)}
        stored = await self._target.transaction(
            lambda connection: document_store.stored_versions(
                connection, self._tenant, self._target.number, given, self._delivery, name=self._collection
            )
        )
        changed = []
        for index, document, values, digest in judged:
            first, where, known = self._seen.setdefault(document.id, (index, document.where, digest))
            if first != index:
                if known != digest:
                    reason = f'the id "{document.id}" was already given at {where}; this one was left out'
                    self._fail(index, document, reason)
                else:
                    self._report.unchanged += 1
                    self._report.notes.append(f"{document.where}: the same document as at {where}")
            elif stored.get(document.id, (b"", 0))[0] == digest:
                self._report.unchanged += 1
            elif stored.get(document.id, (b"", 0))[1] == self._delivery:
                reason = f'the id "{document.id}" was already given in this delivery; this one was left out'
                self._fail(index, document, reason)
            else:
                changed.append((index, await asyncio.to_thread(prepare, document, values, digest)))
        self._existing.update(item.document.id for _, item in changed if item.document.id in stored)
        return changed

    async def _add_new_fields(self, flat: Collection[Mapping[str, Any]], documents: Iterable[Document]) -> None:
        if any(key not in self._target.fields for one in flat for key in one):
            inferred = await asyncio.to_thread(infer_fields, flat)
            documents = list(documents)
            await self._target.transaction(
                lambda connection: self._target.update_fields(connection, inferred, {}, documents)
            )

    async def _embed(self, batch: Sequence[tuple[int, PreparedDocument]]) -> _Embedded:
        """Return a vector for every passage: a stored one of the same text, or else a new one of the embedder."""
        number, embedder = self._target.number, self._target.embedder
        texts = {passage.digest: passage.embedded for _, item in batch for passage in item.passages}
        replaced = [item.document.id for _, item in batch if item.document.id in self._existing]
        vectors: dict[bytes, Vectors] = {}
        if replaced:
            async with self._database.transaction(self._writer) as connection:
                known = await document_store.known_vectors(connection, self._tenant, number, replaced)
            vectors = {digest: vector for digest, vector in known.items() if digest in texts}
        missing = [digest for digest in texts if digest not in vectors]
        if missing:
            computed = await embedder.embed([texts[digest] for digest in missing])
            vectors.update(zip(missing, computed, strict=True))
            self._report.embedded += len(missing)
        return number, vectors

    async def _write(self, batch: Sequence[tuple[int, PreparedDocument]], vectors: "asyncio.Task[_Embedded]") -> None:
        known = await vectors
        try:
            await self._replace(batch, known)
        except _REFUSED:
            # One document that the database refuses must not affect the others.
            for index, item in batch:
                try:
                    await self._replace([(index, item)], known)
                except _REFUSED as error:
                    reason = str(error).strip().splitlines()[0]
                    self._fail(index, item.document, f"the database refused it: {reason}")
        self._existing.difference_update(item.document.id for _, item in batch)
        self._progress(self._report)

    async def _replace(self, batch: Sequence[tuple[int, PreparedDocument]], embedded: _Embedded) -> None:
        while True:
            number, vectors = embedded
            try:
                # Vectors from before the collection was rebuilt may be another embedder's.
                if number == self._target.number:
                    async with self._write_locks.exclusive, self._write_locks.slot:
                        return await self._replace_in_transaction(batch, vectors)
            except collections.CollectionReplaced:
                await self._target.open()
            embedded = await self._embed(batch)

    async def _replace_in_transaction(
        self, batch: Sequence[tuple[int, PreparedDocument]], vectors: Mapping[bytes, Vectors]
    ) -> None:
        async with self._database.transaction(self._writer) as connection:
            if self._tenant == PLATFORM:
                # Another delivery may have written to the collection since this one was admitted.
                public = await collections.lock_public(connection, self._tenant, self._target.number)
                if public is not None and public != batch[0][1].document.public:
                    for index, item in batch:
                        self._fail(index, item.document, MIXED_VISIBILITY)
                    return
            newer = await document_store.replace_documents(
                connection,
                self._tenant,
                self._target.number,
                [item for _, item in batch],
                vectors,
                embedder=self._target.embedder_number,
                mean_length=self._target.mean_length,
                delivery=self._delivery,
            )
            self._database.retire(connection, sum(len(item.document.text) for _, item in batch))
            stored = [item for _, item in batch if item.document.id not in newer]
            updated = sum(item.document.id in self._existing for item in stored)
            inserted = len(stored) - updated
            if self._on_write is not None:
                await self._on_write(connection, self._report, inserted, updated)
        self._report.updated += updated
        self._report.inserted += inserted
        self._report.unchanged += len(newer)
        self._report.chunks += sum(len(item.passages) for item in stored)

    async def _update_derived_data(self) -> None:
        async def update(connection: collections.Connection) -> bool:
            await collections.lock_collection(connection, self._tenant, self._target.number)
            return await update_derived_data(connection, self._tenant, self._target.number)

        with suppress(UnknownCollection):  # it was deleted in the meantime, with everything written
            while await self._target.transaction(update):
                pass
        if self._report.inserted + self._report.updated >= _STATISTICS_AFTER:
            async with self._database.transaction(self._writer) as connection:
                await connection.execute("SELECT signalbox.refresh_statistics()")

    def _fail(self, index: int, item: Document | RejectedItem, reason: str) -> None:
        self._report.failed.append(Failure(index, item.where, item.id, reason, item.readers))
