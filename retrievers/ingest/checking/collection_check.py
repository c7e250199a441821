"""Check that everything stored for a collection is what ingestion makes of its documents, and repair it.

Each document is prepared again from its row and compared with its stored passages. The counts (of documents, passages,
words, terms and field values) are recomputed and compared with the stored counts. Each comparison reads one state of
the collection in a transaction that does not block writers. It sees all or none of the rows that a writer changes, so
concurrent ingestion is not reported as an error. Repairs use the code that ingests, so the result equals a fresh build.
"""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from retrievers.core.metadata import Field
from retrievers.core.types import Collection, Viewer, unrestricted_viewer
from retrievers.embed import Embedder, Vectors
from retrievers.embed.embedders import Embedders
from retrievers.ingest import collections, document_store
from retrievers.ingest.checking.check_report import CheckReport, ErrorNames, ErrorsByKind, build_report
from retrievers.ingest.checking.document_comparison import find_differences
from retrievers.ingest.checking.totals_check import delete_orphan_passages, find_wrong_totals, mend_totals
from retrievers.ingest.loaded_documents import LoadedDocument, load_documents, prepare_again
from retrievers.ingest.passage_weights import reweigh_collection
from retrievers.ingest.preparation import PreparedDocument
from retrievers.ingest.retired_collections import delete_retired_collection
from retrievers.ingest.rows import to_tsvector
from retrievers.postgres.connections.database import Database, Row
from retrievers.postgres.connections.row_batches import fetch_in_batches
from retrievers.postgres.documents import indexes

Progress = Callable[[int], None]
"""Called with the number of documents compared so far."""

_BATCH, _BATCH_PASSAGES = 64, 128
"""Maximum number of documents compared at once, and approximate maximum of passages."""
_MENDED = 16
_ROWS = 50
_LOOKS_S = (0.0, 0.2, *[1.0] * 30)
"""Pauses before each check of the totals, in seconds. A running delivery updates the mean length only at its end."""
_SAME_LOOKS = 3
"""After so many checks with a difference and no change of the collection, no running delivery is the cause."""
_LATE_S = 1.0
_ANY_DELIVERY = (1 << 62) - 1


@dataclass
class CollectionChecker:
    """Checks one collection.

    Args:
        embedder: computes missing vectors during a repair.
        viewer: recipient of the report. All documents are compared, but the report names only those that the viewer may
            read.
        timeout_s: time after which the caller gives up, in seconds. Shortly after it, the server cancels the statements
            itself. None for no limit.
        retired_s: an older build of the collection is removed by a repair if it was replaced this many seconds ago.
    """

    database: Database
    embedder: Embedder
    collection: Collection
    viewer: Viewer
    progress: Progress = lambda done: None
    timeout_s: float | None = None
    retired_s: float = 30.0
    _done: int = field(default=0, init=False)
    _until: float | None = field(default=None, init=False)

    async def run(self, *, mend: bool = False) -> CheckReport:
        """Compare the collection with its documents. With `mend`, repair it and compare again.

        Raises:
            UnknownCollection: the collection was deleted in the meantime.
            Replaced: the collection was rebuilt in the meantime.
            Unavailable: the database failed, or the embedder for missing vectors.
        """
        if self.timeout_s is not None:
            self._until = time.monotonic() + self.timeout_s + _LATE_S
        wrong = left = await self._compare()
        documents = self._done
        if mend and wrong:
            await self._mend(wrong)
            left = await self._compare()
        return await build_report(self.database, self.viewer, self.collection, documents, wrong, left)

    async def _compare(self) -> ErrorsByKind:
        self._done = 0
        names: dict[str, list[str]] = defaultdict(list)
        after = ""
        while ids := await self._next_ids(after):
            for kind, differing in (await self._find_differences(ids)).items():
                names[kind] += differing
            after, self._done = ids[-1], self._done + len(ids)
            self.progress(self._done)
        wrong = {kind: ErrorNames.of(one) for kind, one in names.items()} | await self._wrong_totals()
        if faulty := await indexes.faulty_indexes(self.database):
            wrong["indexes"] = ErrorNames.of(faulty)
        name = self.collection.embedder
        if name is not None and not Embedders.of(self.embedder).can_open(name):
            wrong["embedder"] = ErrorNames.of([name])
        return wrong

    @property
    def _sql_parameters(self) -> dict[str, Any]:
        return {"tenant": self.collection.tenant, "collection": self.collection.number}

    @asynccontextmanager
    async def _transaction(self, *, frozen: bool = False) -> AsyncIterator[collections.Connection]:
        """Open a transaction. With `frozen`, the transaction only reads, and sees a single state of the collection."""
        async with self.database.transaction(unrestricted_viewer(self.collection.tenant), frozen=frozen) as connection:
            if self._until is not None:
                left_ms = max(1, round(1000 * (self._until - time.monotonic())))
                await connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(left_ms),))
            if frozen:
                await collections.check_exists(connection, self.collection.tenant, self.collection.number)
            yield connection

    async def _lock(self, connection: collections.Connection) -> None:
        await collections.lock_collection(connection, self.collection.tenant, self.collection.number)

    async def _next_ids(self, after: str) -> list[str]:
        """Return the ids of the next documents to compare, in order of id; [] at the end.

        Together they have at most `_BATCH_PASSAGES` passages, unless a single document has more.

        Args:
            after: id of the last document compared; "" at the start.
        """
        async with self._transaction() as connection:
            rows = await _rows(connection, _IDS, self._sql_parameters | {"after": after, "most": _BATCH})
        ids: list[str] = []
        passages = 0
        for id, chunks in rows:
            if ids and passages + chunks > _BATCH_PASSAGES:
                break
            ids.append(id)
            passages += chunks
        return ids

    async def _find_differences(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the ids of documents that are not stored as they would be now, by kind; see `find_differences`."""
        async with self._transaction(frozen=True) as connection:
            stored, fields = await load_documents(connection, self.collection.tenant, self.collection.number, ids)
            prepared, lexemes = await asyncio.to_thread(self._prepare_with_lexemes, stored, fields)
            kept = {
                row[0]: row[1:]
                for row in await _rows(connection, _DOCUMENTS, self._sql_parameters | {"ids": list(ids)})
            }
            rows: dict[str, list[Row]] = defaultdict(list)
            values = self._sql_parameters | {"lexemes": lexemes, "ids": list(ids)}
            for row in await fetch_in_batches(await connection.execute(_CHUNKS, values, binary=True), _ROWS):
                rows[row[0]].append(row[1:])
            mean, number, dimension = (await _rows(connection, _MEAN, self._sql_parameters))[0]
        return await asyncio.to_thread(find_differences, prepared, kept, rows, mean, (number, dimension))

    def _prepare_with_lexemes(
        self, stored: Sequence[LoadedDocument], fields: Mapping[str, Field]
    ) -> tuple[list[PreparedDocument], str]:
        """Return the documents as they would be stored now, and the lexemes of their passages as JSON."""
        prepared = _prepare_documents(stored, fields)
        number = self.collection.number
        lexemes = [
            {"document_id": item.document.id, "ordinal": n, "lexemes": to_tsvector(number, passage.lexemes)}
            for item in prepared
            for n, passage in enumerate(item.passages)
        ]
        return prepared, json.dumps(lexemes, ensure_ascii=False)

    async def _wrong_totals(self) -> ErrorsByKind:
        """Return the errors in the collection's counts, except those that last only until a running delivery ends."""
        version, looks = -1, 0
        for pause_s in _LOOKS_S:
            await asyncio.sleep(pause_s)
            async with self._transaction(frozen=True) as connection:
                wrong = await find_wrong_totals(connection, self.collection)
                (now,) = (await _rows(connection, _VERSION, self._sql_parameters))[0]
            looks = looks + 1 if now == version else 1
            version = now
            if not wrong or looks == _SAME_LOOKS:
                break
        return wrong

    async def _mend(self, wrong: ErrorsByKind) -> None:
        ids = sorted({name for kind in ("documents", "passages", "vectors") if kind in wrong
                      for name in wrong[kind].names})  # fmt: skip
        async with self._transaction() as connection:
            await self._lock(connection)
            await delete_orphan_passages(connection, self.collection)
        for start in range(0, len(ids), _MENDED):
            await self._store_again(ids[start : start + _MENDED])
        async with self._transaction() as connection:
            await self._lock(connection)
            await mend_totals(connection, self.collection)
        await reweigh_collection(self.database, self.collection.tenant, self.collection.number)
        for name in wrong["indexes"].names if "indexes" in wrong else ():
            await indexes.repair_index(self.database, name)
        async with self._transaction() as connection:
            await collections.show_shadows(connection)
            left = await _rows(connection, _REMOVABLE, self._sql_parameters | {"seconds": self.retired_s})
        for row in left:
            await delete_retired_collection(self.database, self.collection.tenant, row[0], within_s=600)

    async def _store_again(self, ids: Sequence[str]) -> None:
        """Store documents again, except those that ingestion has written in the meantime: these are correct."""
        tenant, number = self.collection.tenant, self.collection.number
        async with self._transaction(frozen=True) as connection:
            stored, fields = await load_documents(connection, tenant, number, ids)
            _, embedder, dimension = (await _rows(connection, _MEAN, self._sql_parameters))[0]
            known = await document_store.known_vectors(connection, tenant, number, ids, embedder)
        prepared = await asyncio.to_thread(_prepare_documents, stored, fields)
        vectors: Mapping[bytes, Vectors] = {digest: one for digest, one in known.items() if len(one) == dimension}
        texts = {passage.digest: passage.embedded for item in prepared for passage in item.passages}
        if missing := [digest for digest in texts if digest not in vectors]:
            named = await Embedders.of(self.embedder).get(self.collection.embedder or self.embedder.name)
            computed = await named.embed([texts[digest] for digest in missing])
            vectors = {**vectors, **dict(zip(missing, computed, strict=True))}
        async with self._transaction() as connection:
            await self._lock(connection)
            now = {
                one.document.id: one.updated_at for one in (await load_documents(connection, tenant, number, ids))[0]
            }
            same = [n for n, one in enumerate(stored) if now.get(one.document.id) == one.updated_at]
            again = [prepared[n] for n in same]
            await document_store.replace_documents(
                connection, tenant, number, again, vectors, embedder=embedder, mean_length=self.collection.mean_length,
                delivery=_ANY_DELIVERY,
            )  # fmt: skip
            await document_store.restore_timestamps(connection, tenant, number, [stored[n] for n in same])


def _prepare_documents(stored: Sequence[LoadedDocument], fields: Mapping[str, Field]) -> list[PreparedDocument]:
    return [prepare_again(one, fields, keeps_digest=True) for one in stored]


async def _rows(connection: collections.Connection, statement: Any, given: Mapping[str, Any]) -> list[Row]:
    return await (await connection.execute(statement, given)).fetchall()


_IDS = """
    SELECT id, chunks FROM signalbox.document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND id > %(after)s
    ORDER BY id LIMIT %(most)s
"""
_DOCUMENTS = """
    SELECT id, language, fields, chunks, words, public, part, expires_at FROM signalbox.document
    WHERE tenant = %(tenant)s AND collection = %(collection)s AND id = ANY (%(ids)s)
"""
_CHUNKS = """
    SELECT c.document_id, c.ordinal, c.embedder, c.start_character, c.end_character, c.length, c.heading, c.digest,
           c.body, c.gap, c.places, coalesce(c.lexemes = w.lexemes::tsvector, false), c.fields, c.public, c.part,
           c.expires_at, c.bm25, c.embedding
    FROM signalbox.chunk c
    LEFT JOIN json_to_recordset(%(lexemes)s::json) AS w (document_id text, ordinal integer, lexemes text)
         ON w.document_id = c.document_id AND w.ordinal = c.ordinal
    WHERE c.tenant = %(tenant)s AND c.collection = %(collection)s AND c.document_id = ANY (%(ids)s)
"""
_VERSION = "SELECT version FROM signalbox.collection WHERE tenant = %(tenant)s AND number = %(collection)s"
_MEAN = """
    SELECT CASE WHEN k.weighed_id IS NULL THEN k.mean_length END, k.embedder, e.dimension
    FROM signalbox.collection k LEFT JOIN signalbox.embedder e ON e.number = k.embedder
    WHERE k.tenant = %(tenant)s AND k.number = %(collection)s
"""
_REMOVABLE = """
    SELECT number FROM signalbox.collection WHERE tenant = %(tenant)s AND shadow_of = %(collection)s
      AND retired_at <= now() - make_interval(secs => %(seconds)s)
"""
