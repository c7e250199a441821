"""Rebuild a collection in the background: with another embedder, or with this version's splitting and analysis.

The new collection, the shadow, is visible to nobody while it is built. All stored documents are copied in batches, in
the order of their ids. The database records documents that are written or deleted in the meantime (table `changed`),
and these are copied again. When few changes are left, the collection is locked briefly, the last changes are copied,
and the shadow takes the collection's name. The work under the lock does not depend on the number of documents. Until
then the old collection answers all questions and takes all writes. `retired_collections.py` deletes its rows later.

If a worker is killed, another one continues. It copies only documents that are missing in the shadow or differ there.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
import psycopg

from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.metadata import Field
from retrievers.core.timeouts import wait_within
from retrievers.core.types import unrestricted_viewer
from retrievers.embed import Embedder, Vectors
from retrievers.embed.embedders import Embedders
from retrievers.ingest import collections, document_store
from retrievers.ingest.derived_data import settle_collection
from retrievers.ingest.jobs.job_queue import JobQueue
from retrievers.ingest.jobs.job_types import JobContent, Lease
from retrievers.ingest.loaded_documents import LoadedDocument, load_documents, prepare_again
from retrievers.ingest.preparation import PreparedDocument
from retrievers.ingest.shadow_collection import open_shadow_collection
from retrievers.ingest.target_collection import MAX_DIMENSION
from retrievers.postgres.connections.database import Database
from retrievers.postgres.documents.indexes import ensure_vector_index
from retrievers.text import analysis, bm25, chunking

Progress = Callable[[int], None]
"""Called with the number of documents copied so far."""

_BATCH = 64
_WINDOW = 1000
"""Maximum number of documents compared at once."""
_LAST = 16
"""Maximum number of documents copied at once while writers wait for the switch to the shadow."""
_HOLD_S = 3.0
"""Time after which the switch is put off, in seconds, because writers wait for it."""
_LAST_S = 10.0
_FOLLOW_S = 5.0
"""Maximum time for copying changes before a switch is tried, in seconds; halved with each attempt to switch."""
_STATISTICS_AFTER = 500
_ANY_DELIVERY = (1 << 62) - 1


@dataclass(frozen=True, slots=True)
class _Rebuild:
    """A collection that is being rebuilt, with its shadow (the new collection, which will replace it).

    Attributes:
        live: number of the old collection.
        shadow: number of the new collection.
        embedder: embedder of the new collection.
        embedder_number: number of this embedder.
        reuses: True if the embedder stays the same, so that the old vectors can be used.
        keeps_digests: True if documents are split and analysed as before, so that their digests stay valid.
    """

    tenant: str
    name: str
    live: int
    shadow: int
    embedder: Embedder
    embedder_number: int
    reuses: bool
    keeps_digests: bool


SwitchOutcome = Literal["done", "later", "differs"]
"""Result of an attempt to switch; "later": too many changes are not copied yet; "differs": the document counts do."""
_MOST_TRIES = 20


@dataclass(slots=True)
class _CopyProgress:
    """Progress of a rebuild job.

    Attributes:
        shadow: number of the shadow that the job builds. With another shadow, the job starts from the beginning.
        behind: id of the last document that the copy has seen, "" at its start; None if it has seen all.
        tries: number of attempts to replace the old collection by the shadow.
    """

    shadow: int
    behind: str | None = ""
    tries: int = 0

    @classmethod
    def of(cls, target: _Rebuild, content: JobContent) -> "_CopyProgress":
        """Return the progress of the job at the end of its last turn."""
        at = (content.rebuild or {}).get("at") or {}
        return cls(**at) if at.get("shadow") == target.shadow else cls(target.shadow)


class CollectionRebuilder:
    """Carries out rebuild jobs in turns, between which other jobs run.

    A rebuild copies a collection into a new one, with the current embedder, splitting and analysis, and replaces it.

    Args:
        slice_s: approximate length of a turn, in seconds.
    """

    def __init__(self, database: Database, embedder: Embedder, jobs: JobQueue, *, slice_s: float = 10.0) -> None:
        self._database, self._embedders, self._jobs = database, Embedders.of(embedder), jobs
        self._slice_s = slice_s

    async def run_turn(self, lease: Lease, content: JobContent, progress: Progress) -> bool:
        """Run one turn of a job. Return True if the new collection is in use; otherwise the job is back in the queue.

        Args:
            progress: called with the number of documents copied.
        Raises:
            BadRequest: the rebuild is impossible: the collection was deleted, or the embedder's vectors are too long.
            Unavailable: the embedder or the database failed.
            LostLease: another worker has the job, or it was cancelled.
        """
        target = await self._open(lease, content)
        if target is None:
            return True
        at, until = _CopyProgress.of(target, content), time.monotonic() + self._slice_s
        while True:
            if at.behind is not None:
                at.behind = await self._copy_next(lease, target, at.behind, progress)
            else:
                await self._copy_changes(lease, target, _FOLLOW_S / 2**at.tries, progress)
                match await self._try_switch(lease, target):
                    case "done":
                        return True
                    case "later":
                        at.tries = min(at.tries + 1, _MOST_TRIES)
                    case "differs":
                        at.behind = ""
            if time.monotonic() > until:
                await self._jobs.pause_rebuild(lease, asdict(at))
                return False

    async def _copy_next(self, lease: Lease, target: _Rebuild, behind: str, progress: Progress) -> str | None:
        """Copy the next documents, except those that the shadow already has in the same version.

        Args:
            behind: id of the last document seen before.
        Returns:
            The id of the last document seen now; None if no documents are left.
        """
        async with self._database.transaction(unrestricted_viewer(target.tenant)) as connection:
            await collections.show_shadows(connection)
            which = _sql_parameters(target) | {"behind": behind, "window": _WINDOW, "most": _BATCH}
            last, ids = await (await connection.execute(_NEXT, which)).fetchone() or (None, [])
        if ids:
            progress(await self._copy(lease, target, ids))
        return str(ids[-1]) if len(ids) == _BATCH else last and str(last)

    async def _copy_changes(self, lease: Lease, target: _Rebuild, seconds: float, progress: Progress) -> None:
        """Copy documents that have changed since they were copied, until less than a batch is left or time is up."""
        until = time.monotonic() + seconds
        while True:
            async with self._database.transaction(unrestricted_viewer(target.tenant)) as connection:
                ids = [id for id, _ in await _changes(connection, target, _BATCH)]
            if ids:
                progress(await self._copy(lease, target, ids))
            if len(ids) < _BATCH or time.monotonic() > until:
                return

    async def _open(self, lease: Lease, content: JobContent) -> _Rebuild | None:
        """Return the collection and its shadow, created if missing; None if the shadow has already replaced it."""
        assert content.rebuild is not None
        row = await self._find_live(lease.tenant, content.collection)
        if row is None:
            raise BadRequest(f'collection "{content.collection}" was deleted', where="collection")
        built_by, stored, analysed, cut = row[1:]
        if built_by == lease.id:
            await settle_collection(self._database, lease.tenant, row[0])
            return None
        wanted = content.rebuild["embedder"] or stored
        embedder = await self._embedders.get(wanted) if wanted else self._embedders
        dimension = await embedder.dimension()
        if dimension > MAX_DIMENSION:
            reason = f"the embedder {embedder.name} makes vectors of {dimension:,} dimensions"
            raise BadRequest(f"{reason}; the index takes at most {MAX_DIMENSION:,}", where="embedder")
        number = await ensure_vector_index(self._database, embedder.name, dimension)
        try:
            async with self._database.transaction(unrestricted_viewer(lease.tenant)) as connection:
                await collections.lock_collection(connection, lease.tenant, row[0])
                await collections.show_shadows(connection)
                shadow = await open_shadow_collection(connection, lease, row[0], number)
        except psycopg.errors.ForeignKeyViolation as error:
            reason = f"the embedder {embedder.name} was being removed at this moment"
            raise Unavailable("the database", reason) from error
        same = (analysed, cut) == (analysis.VERSION, chunking.VERSION)
        return _Rebuild(
            lease.tenant, content.collection, row[0], shadow, embedder, number, wanted == stored, keeps_digests=same
        )

    async def _find_live(self, tenant: str, name: str) -> Sequence[Any] | None:
        rows = await self._database.fetch(unrestricted_viewer(tenant), _LIVE, (tenant, name))
        return rows[0] if rows else None

    async def _copy(self, lease: Lease, target: _Rebuild, ids: Sequence[str]) -> int:
        """Copy documents to the shadow; remove those that no longer exist. Return the shadow's number of documents."""
        async with self._database.transaction(unrestricted_viewer(target.tenant)) as connection:
            # Changes are read before documents, so that a change in between is not marked as copied.
            changes = await _changes(connection, target, len(ids), ids)
            stored, fields = await load_documents(connection, target.tenant, target.live, ids)
            known = await self._reusable_vectors(connection, target, ids)
        prepared = await asyncio.to_thread(_prepare_documents, stored, fields, target)
        vectors = await self._vectors(target, prepared, known)
        async with self._database.transaction(unrestricted_viewer(target.tenant)) as connection:
            await collections.show_shadows(connection)
            await _write_documents(connection, target, ids, stored, prepared, vectors)
            await _mark_copied(connection, target, changes)
            counts = await _counts(connection, target)
            await self._jobs.record_rebuild_progress(connection, lease, done=counts[0], documents=counts[1])
        return counts[0]

    async def _reusable_vectors(
        self, connection: collections.Connection, target: _Rebuild, ids: Sequence[str]
    ) -> dict[bytes, Vectors]:
        """Return stored vectors of these documents that can be reused, by digest of the embedded text."""
        known = await document_store.known_vectors(connection, target.tenant, target.shadow, ids)
        if target.reuses:
            known |= await document_store.known_vectors(connection, target.tenant, target.live, ids)
        size = await target.embedder.dimension()
        return {digest: vector for digest, vector in known.items() if len(vector) == size and np.any(vector)}

    async def _vectors(
        self, target: _Rebuild, prepared: Sequence[PreparedDocument], known: Mapping[bytes, Vectors]
    ) -> dict[bytes, Vectors]:
        texts = {passage.digest: passage.embedded for item in prepared for passage in item.passages}
        missing = [digest for digest in texts if digest not in known]
        computed = await target.embedder.embed([texts[digest] for digest in missing]) if missing else ()
        return {**known, **dict(zip(missing, computed, strict=True))}

    async def _try_switch(self, lease: Lease, target: _Rebuild) -> SwitchOutcome:
        """Replace the collection by the shadow, if the last changes are few enough to be copied while writers wait."""
        for number in (target.live, target.shadow):
            # Expired documents are removed from both, so that their counts match.
            await settle_collection(self._database, target.tenant, number)
        async with self._database.transaction(unrestricted_viewer(target.tenant)) as connection:
            await collections.show_shadows(connection)
            counts = await _counts(connection, target)
        await ensure_vector_index(self._database, target.embedder.name, await target.embedder.dimension())
        if counts[0] >= _STATISTICS_AFTER:
            await self._database.fetch(unrestricted_viewer(target.tenant), "SELECT signalbox.refresh_statistics()", ())
        try:
            outcome = await wait_within(self._switch_locked(lease, target), _LAST_S)
        except (TimeoutError, ConnectionAbortedError) as error:
            reason = f"the last documents were not embedded within {_LAST_S:g} s"
            raise Unavailable(f"the embedder {target.embedder.name}", reason) from error
        if outcome == "done":
            await settle_collection(self._database, target.tenant, target.shadow)
        return outcome

    async def _switch_locked(self, lease: Lease, target: _Rebuild) -> SwitchOutcome:
        until = time.monotonic() + _HOLD_S
        async with self._database.transaction(unrestricted_viewer(target.tenant)) as connection:
            await collections.lock_collection(connection, target.tenant, target.live)
            await collections.show_shadows(connection)
            await collections.lock_collection(connection, target.tenant, target.shadow)
            while changes := await _changes(connection, target, _LAST):
                if time.monotonic() > until:
                    break  # what was copied stays copied, and writers can continue
                ids = [id for id, _ in changes]
                stored, fields = await load_documents(connection, target.tenant, target.live, ids)
                prepared = await asyncio.to_thread(_prepare_documents, stored, fields, target)
                vectors = await self._vectors(target, prepared, await self._reusable_vectors(connection, target, ids))
                await _write_documents(connection, target, ids, stored, prepared, vectors)
                await _mark_copied(connection, target, changes)
            counts = await _counts(connection, target)
            # Different counts mean that a document is missing: the copy then starts again from the beginning.
            outcome: SwitchOutcome = "later" if changes else "done" if counts[0] == counts[1] else "differs"
            if outcome == "done":
                await connection.execute(_RETIRE, _sql_parameters(target))
                await connection.execute(_PUT_IN_USE, _sql_parameters(target) | {"name": target.name})
                scope = self._database.scope(unrestricted_viewer(target.tenant))
                await connection.execute(
                    "SELECT signalbox.move_feedback(%s, %s, %s)", (scope, target.live, target.shadow)
                )
            await self._jobs.record_rebuild_progress(
                connection, lease, done=counts[0], documents=counts[1] or counts[0]
            )
        return outcome


async def _changes(
    connection: collections.Connection, target: _Rebuild, most: int, ids: Sequence[str] | None = None
) -> list[tuple[str, str]]:
    """Return documents that have changed since they were copied, as (id, changing transaction), oldest change first.

    Args:
        most: maximum number of documents.
        ids: look only among these documents; None for all.
    """
    which = _sql_parameters(target) | {"most": most, "ids": None if ids is None else list(ids)}
    return [(row[0], row[1]) for row in await (await connection.execute(_CHANGES, which)).fetchall()]


async def _mark_copied(
    connection: collections.Connection, target: _Rebuild, changes: Sequence[tuple[str, str]]
) -> None:
    """Remove changes that `_changes` returned from the table of changes that are still to be copied.

    A document that has changed again since then is there with another transaction, and stays.
    """
    values = {"ids": [id for id, _ in changes], "by": [by for _, by in changes]}
    await connection.execute(_COPIED, _sql_parameters(target) | values)


async def _counts(connection: collections.Connection, target: _Rebuild) -> tuple[int, int]:
    """Return the number of documents of the new and of the old collection."""
    row = await (await connection.execute(_PROGRESS, _sql_parameters(target))).fetchone()
    return (int(row[0] or 0), int(row[1] or 0)) if row else (0, 0)


def _prepare_documents(
    stored: Sequence[LoadedDocument], fields: Mapping[str, Field], target: _Rebuild
) -> list[PreparedDocument]:
    return [prepare_again(one, fields, keeps_digest=target.keeps_digests) for one in stored]


async def _write_documents(
    connection: collections.Connection,
    target: _Rebuild,
    ids: Sequence[str],
    stored: Sequence[LoadedDocument],
    prepared: Sequence[PreparedDocument],
    vectors: Mapping[bytes, Vectors],
) -> None:
    """Make documents in the shadow equal to those in the collection, with their times and delivery numbers.

    Documents in `ids` that are not in `stored` no longer exist, and are removed.
    """
    if gone := sorted({*ids} - {one.document.id for one in stored}):
        await document_store.remove_documents(connection, target.tenant, target.shadow, gone)
    lengths = [passage.length for item in prepared for passage in item.passages]
    await document_store.replace_documents(
        connection, target.tenant, target.shadow, prepared, vectors, embedder=target.embedder_number,
        mean_length=bm25.round_mean_length(sum(lengths) / len(lengths)) if lengths else 0.0, delivery=_ANY_DELIVERY,
    )  # fmt: skip
    await document_store.restore_timestamps(connection, target.tenant, target.shadow, stored)


def _sql_parameters(target: _Rebuild) -> dict[str, Any]:
    return {"tenant": target.tenant, "live": target.live, "shadow": target.shadow}


_LIVE = """
    SELECT k.number, k.built_by, e.name, k.analysis, k.split
    FROM signalbox.collection k LEFT JOIN signalbox.embedder e ON e.number = k.embedder
    WHERE k.tenant = %s AND k.name = %s AND k.part_of IS NULL
"""
# The last of the next documents, and those of them that the shadow lacks or has in another version.
_NEXT = """
    WITH upcoming AS (
        SELECT a.id, a.updated_at, a.delivery, a.enabled FROM signalbox.document a
        WHERE a.tenant = %(tenant)s AND a.collection = %(live)s AND a.id > %(behind)s ORDER BY a.id LIMIT %(window)s)
    SELECT (SELECT max(id) FROM upcoming), ARRAY(
        SELECT a.id FROM upcoming a
        LEFT JOIN signalbox.document b ON b.tenant = %(tenant)s AND b.collection = %(shadow)s AND b.id = a.id
        WHERE (b.updated_at, b.delivery, b.enabled) IS DISTINCT FROM (a.updated_at, a.delivery, a.enabled)
        ORDER BY a.id LIMIT %(most)s)
"""
_CHANGES = """
    SELECT id, changed_by::text FROM signalbox.changed
    WHERE tenant = %(tenant)s AND collection = %(shadow)s AND (%(ids)s::text[] IS NULL OR id = ANY (%(ids)s))
    ORDER BY changed_by, id LIMIT %(most)s
"""
_COPIED = """
    DELETE FROM signalbox.changed c USING unnest(%(ids)s::text[], %(by)s::text[]) AS copied (id, changed_by)
    WHERE c.tenant = %(tenant)s AND c.collection = %(shadow)s AND c.id = copied.id
      AND c.changed_by = copied.changed_by::xid8
"""
_PROGRESS = """
    SELECT sum(documents) FILTER (WHERE %(shadow)s IN (number, part_of))::integer,
           sum(documents) FILTER (WHERE %(live)s IN (number, part_of))::integer
    FROM signalbox.collection WHERE tenant = %(tenant)s
"""
_RETIRE = """
    UPDATE signalbox.collection SET name = name || '/' || number, shadow_of = %(shadow)s, retired_at = now()
    WHERE tenant = %(tenant)s AND number = %(live)s
"""
_PUT_IN_USE = """
    UPDATE signalbox.collection k
    SET name = %(name)s, shadow_of = NULL, fields = old.fields, records = old.records, description = old.description,
        created_at = old.created_at, version = k.version + 1
    FROM signalbox.collection old
    WHERE k.tenant = %(tenant)s AND k.number = %(shadow)s AND old.tenant = k.tenant AND old.number = %(live)s
"""
