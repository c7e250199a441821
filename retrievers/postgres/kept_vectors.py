"""Vectors of small collections, kept in memory between changes and scored here.

The database says before each search which passages the viewer may read, and in which version: only vectors read in that
state are used. They are read when a state is asked for a second time, so that a collection that is being written is
searched by the database.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from psycopg import AsyncConnection

from retrievers.core.types import Viewer
from retrievers.postgres.database import Database, Row
from retrievers.postgres.faults import faults_explained
from retrievers.postgres.pool import searching

MOST_VALUES = 4_000_000
"""Maximum numbers in the vectors of one search: 16 MB, scored in about 1 ms."""
_MOST_KEPT_VALUES = 4 * MOST_VALUES
_MOST_ASKED = 1024
_LANES = 8
_UNIT = 2.0**-24

_STATE = "SELECT state, at FROM signalbox.vectors_state(%(scope)s, %(among)s)"
_READ = "SELECT * FROM signalbox.visible_vectors(%(scope)s, %(among)s, %(model)s)"

Place = tuple[str, int, str, int]
"""Tenant, collection number, document id, ordinal."""
_Key = tuple[str, str, tuple[int, ...], int]
"""Tenant, state, collection numbers, number of the embedder."""


@dataclass(frozen=True, slots=True)
class Kept:
    """The passages of one state.

    Attributes:
        vectors: shape (passages, dimension), of length 1, exact values of half precision.
        expiries: place in `places` and time of every passage that expires.
    """

    places: Sequence[Place]
    vectors: NDArray[np.float32]
    expiries: Sequence[tuple[int, datetime]]

    def nearest(self, question: NDArray[np.float16], amount: int, at: datetime) -> list[Row]:
        """Return the rows of `signalbox.nearest`: the `amount` passages of the highest inner product, best first.

        Args:
            question: shape (dimension,).
            at: the database's time; passages that have expired by then are left out.
        """
        asked = question.astype(np.float32)
        rough = np.einsum("ij,j->i", self.vectors, asked)  # not `@`, which would start threads
        for place, expires_at in self.expiries:
            if expires_at <= at:
                rough[place] = -np.inf
        if amount < len(rough):
            # Sums in another order differ by less than this.
            error = 4 * len(asked) * _UNIT
            near = np.flatnonzero(rough >= np.partition(rough, -amount)[-amount] - error)
        else:
            near = np.arange(len(rough))
        near = near[rough[near] > -np.inf]
        scores = _as_database(self.vectors[near], asked).tolist()
        rows = [(*self.places[place], score) for place, score in zip(near.tolist(), scores, strict=True)]
        return sorted(rows, key=lambda row: (-row[4], row[:4]))[:amount]


def _as_database(vectors: NDArray[np.float32], question: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return inner products, summed in the order of pgvector, so that equal searches give equal scores to the last bit.

    Products of two half-precision numbers are exact, so only the order counts: eight sums, their halves added until one
    is left, then the rest.
    """
    products = vectors * question
    whole = products.shape[1] // _LANES * _LANES
    sums = np.zeros((len(products), _LANES), np.float32)
    for start in range(0, whole, _LANES):
        sums += products[:, start : start + _LANES]
    while sums.shape[1] > 1:
        half = sums.shape[1] // 2
        sums = sums[:, :half] + sums[:, half:]
    total = sums[:, 0]
    for column in products[:, whole:].T:
        total = total + column
    return total


def _unpacked(
    tenants: Sequence[str],
    numbers: Sequence[int],
    documents: Sequence[str],
    ordinals: Sequence[int],
    expiries: Sequence[datetime | None],
    sent: bytes,
) -> Kept | None:
    """Return what the columns of `signalbox.visible_vectors` hold; None if it is more than `MOST_VALUES`."""
    # Each vector is sent as its dimension, an unused number, and its values, all of two bytes, high byte first.
    halves = np.frombuffer(sent, dtype=">f2").reshape(len(documents), -1)[:, 2:]
    if halves.size > MOST_VALUES:
        return None
    expiring = [(place, one) for place, one in enumerate(expiries) if one is not None]
    vectors = np.ascontiguousarray(halves, dtype=np.float32)
    return Kept(list(zip(tenants, numbers, documents, ordinals, strict=True)), vectors, expiring)


class KeptVectors:
    """The vectors of the states that were asked for lately."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._kept: OrderedDict[_Key, Kept] = OrderedDict()
        self._asked: OrderedDict[_Key, None] = OrderedDict()
        self._reading: set[_Key] = set()
        self._values = 0

    async def of(self, viewer: Viewer, among: Sequence[int], model: int) -> tuple[Kept, datetime] | None:
        """Return the vectors of one embedder that the viewer may search, and the database's time.

        Args:
            among: numbers of collections whose vectors hold at most `MOST_VALUES` numbers.
            model: number of the embedder.
        Returns:
            None if the database must search, because the state is new or is being read.
        Raises:
            Unavailable: the database cannot be reached.
        """
        values: dict[str, Any] = {"among": list(among), "model": model}
        state, at = (await self._database.reads.search(viewer, _STATE, values))[0]
        key = (viewer.tenant, state, tuple(among), model)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key], at
        if key in self._asked and key not in self._reading:
            self._reading.add(key)
            try:
                kept = await self._read(viewer, values, state)
            finally:
                self._reading.discard(key)
            if kept is not None:
                self._keep(key, kept)
                return kept, at
        self._asked[key] = None
        while len(self._asked) > _MOST_ASKED:
            self._asked.popitem(last=False)
        return None

    async def _read(self, viewer: Viewer, values: dict[str, Any], state: str) -> Kept | None:
        """Read the vectors; None if the state has changed, or there are none."""
        search = searching(_READ, {"scope": self._database.scope(viewer), **values})

        async def reading(connection: AsyncConnection[Row]) -> list[Row]:
            rows = await search(connection)
            self._database.retire(connection, len(rows[0][-1] or b""))
            return rows

        with faults_explained():
            rows = await self._database.reads.run(viewer, reading)
        read_state, *columns = rows[0]
        if read_state != state or not columns[-1]:
            return None
        return await asyncio.to_thread(_unpacked, *columns)  # takes some 20 ms

    def _keep(self, key: _Key, kept: Kept) -> None:
        self._asked.pop(key, None)
        self._kept[key] = kept
        self._values += kept.vectors.size
        while self._values > _MOST_KEPT_VALUES:
            self._values -= self._kept.popitem(last=False)[1].vectors.size
