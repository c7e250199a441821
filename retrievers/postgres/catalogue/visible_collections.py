"""The collections that each viewer sees, cached for a fraction of a second and read again after a change of readers."""

import asyncio
import json
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from retrievers.core.metadata import Field, fields_from_json
from retrievers.core.types import Collection, Viewer
from retrievers.postgres.catalogue.field_values import VISIBLE_FIELDS
from retrievers.postgres.connections.database import Row
from retrievers.postgres.connections.read_routing import ReadRouter

_COLLECTIONS = f"""
    SELECT k.number, k.tenant, k.name, e.name, e.number, e.dimension, k.documents, k.chunks, k.mean_length, k.languages,
           CASE WHEN k.part_of IS NULL THEN ({VISIBLE_FIELDS})::text END, k.version, k.records, k.description,
           k.part_of, coalesce((SELECT changed FROM signalbox.access), 0)
    FROM signalbox.collection k LEFT JOIN signalbox.embedder e ON e.number = k.embedder
    ORDER BY k.name, k.tenant, k.number
"""  # noqa: S608 - constants both
_CHANGED = "SELECT signalbox.access_changed(%(scope)s)"
# Maximum age of a cached state, in seconds, since another process may have written. If a collection is not found in it,
# the caller asks again for a fresh state.
_FRESH_S = 0.2
_MOST_TENANTS = 1024


class CollectionSnapshot(NamedTuple):
    """The collections that a viewer sees.

    Attributes:
        read_at: when they were read, by `time.monotonic`.
        changed: the tenant's counter of changes to the readers of documents, as it was before they were read.
    """

    read_at: float
    changed: int
    collections: tuple[Collection, ...]


class VisibleCollections:
    """Reads the collections that each viewer sees, and caches them."""

    def __init__(self, reads: ReadRouter) -> None:
        self._reads = reads
        self._known: OrderedDict[Viewer, CollectionSnapshot] = OrderedDict()
        self._reading: dict[Viewer, asyncio.Lock] = {}
        self._written: OrderedDict[str, float] = OrderedDict()

    async def of(self, who: str | Viewer, *, fresh: bool, changed: int | None = None) -> CollectionSnapshot:
        """Return the collections that the viewer sees.

        If the readers of a document have changed, collections that were cached before the change are not returned.

        Args:
            fresh: do not use the cache, and read from the primary.
            changed: the counter of reader changes, if the caller has read it; None to read it here.
        """
        viewer = Viewer.of(who)
        known = self._known.get(viewer)
        if known and not fresh and self._is_new(viewer, known):
            if changed is None:
                changed = await self._changed(viewer)
            if known.changed >= changed:
                return known
        outdated, asked_at = known, time.monotonic()
        # Concurrent callers of one viewer share one read.
        async with self._reading.setdefault(viewer, asyncio.Lock()):
            known = self._known.get(viewer)
            if known and (
                known.read_at > asked_at or (known is not outdated and not fresh and self._is_new(viewer, known))
            ):
                return known
            self._known[viewer] = found = await self._read(viewer, fresh=fresh, changed=changed)
            self._known.move_to_end(viewer)
        while len(self._known) > _MOST_TENANTS:
            self._reading.pop(self._known.popitem(last=False)[0], None)
        return found

    async def _changed(self, viewer: Viewer) -> int:
        """Return the counter of changes to the readers of the tenant's documents."""
        return int((await self._reads.fetch_autocommit(viewer, _CHANGED, {}, current=True))[0][0])

    def invalidate(self, tenant: str) -> None:
        """Discard the cached collections of the tenant's viewers, because this process has changed its data."""
        self._reads.note_write(tenant)
        self._written[tenant] = time.monotonic()
        self._written.move_to_end(tenant)
        while len(self._written) > _MOST_TENANTS:
            self._written.popitem(last=False)

    def _is_new(self, viewer: Viewer, known: CollectionSnapshot) -> bool:
        age_s = time.monotonic() - known.read_at
        return age_s < _FRESH_S and known.read_at > self._written.get(viewer.tenant, -math.inf)

    async def _read(self, viewer: Viewer, *, fresh: bool, changed: int | None) -> CollectionSnapshot:
        if changed is None and not fresh and self._reads.has_standbys:
            changed = await self._changed(viewer)
        found = await self._read_once(viewer, current=fresh)
        if fresh:
            self._reads.note_write(viewer.tenant)  # later reads of the tenant must not be older than this one
        if changed is None or found.changed >= changed:
            return found
        # The standby that was read lacks a change of readers. Later reads of this question must avoid it, too.
        self._reads.note_write(viewer.tenant)
        return await self._read_once(viewer, current=True)

    async def _read_once(self, viewer: Viewer, *, current: bool) -> CollectionSnapshot:
        read_at = time.monotonic()
        # Prepared, because planning this statement takes four times as long as running it.
        rows = await self._reads.fetch(viewer, _COLLECTIONS, {}, current=current, prepare=True)
        parts: dict[int, list[Row]] = {}
        for row in rows:
            if row[14] is not None:
                parts.setdefault(row[14], []).append(row)
        found = tuple(_collection(row, parts.get(row[0], ())) for row in rows if row[14] is None)
        return CollectionSnapshot(read_at, rows[0][15] if rows else 0, found)


@lru_cache(maxsize=_MOST_TENANTS)
def _fields(described: str) -> Mapping[str, Field]:
    """Parse the fields of a collection. Cached: collections are read several times a second, but rarely change."""
    return fields_from_json(json.loads(described))


def _collection(row: Row, parts: Sequence[Row]) -> Collection:
    """Build a collection from its row and the rows of its visible parts."""
    languages: Counter[str] = Counter()
    for one in (row, *parts):
        languages.update(one[9])
    return Collection(
        number=row[0],
        tenant=row[1],
        name=row[2],
        embedder=row[3],
        embedder_number=row[4],
        dimension=row[5],
        documents=sum(one[6] for one in (row, *parts)),
        chunks=sum(one[7] for one in (row, *parts)),
        mean_length=row[8],
        languages=dict(languages),
        fields=_fields(row[10]),
        version=row[11],
        records=tuple(row[12]),
        description=row[13],
        parts=tuple((one[0], one[11]) for one in parts),
    )
