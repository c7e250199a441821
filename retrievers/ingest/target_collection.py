"""The collection that an ingestion writes to: its number, embedder and fields, which change if it is rebuilt."""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

import psycopg

from retrievers.core.errors import BadRequest, EmbedderMismatch
from retrievers.core.metadata import Field
from retrievers.core.types import unrestricted_viewer
from retrievers.embed import Embedder
from retrievers.embed.embedders import Embedders
from retrievers.ingest import collections
from retrievers.ingest.collection_schema import update_schema
from retrievers.ingest.documents import Document
from retrievers.postgres.connections.database import Database
from retrievers.text import analysis

MAX_DIMENSION = 4000
"""pgvector's limit for an index over half-precision vectors."""

Returned = TypeVar("Returned")


class TargetCollection:
    """The collection to write to. Call `open` first. Number and embedder change when the collection is rebuilt.

    Args:
        name: name of the collection.
        exclusive: acquired for each transaction that may lock the collection, see `delivery_queues.WriteLocks`.

    Attributes:
        number: number of the collection.
        embedder: embedder of the collection; before `open`, the configured one.
        embedder_number: number of the embedder.
        mean_length: mean length of a passage, in words; 0 if no document has been stored yet.
        fields: fields of the collection by name, see `update_fields`.
    """

    def __init__(
        self,
        database: Database,
        embedder: Embedder,
        tenant: str,
        name: str,
        exclusive: AbstractAsyncContextManager[object],
    ) -> None:
        self._database, self._embedders = database, Embedders.of(embedder)
        self._tenant, self._name, self._exclusive = tenant, name, exclusive
        self._writer = unrestricted_viewer(tenant)
        self.embedder: Embedder = self._embedders
        self.number = self.embedder_number = 0
        self.mean_length = 0.0
        self.fields: dict[str, Field] = {}

    async def open(self, then: Callable[[collections.Connection], Awaitable[None]] | None = None) -> None:
        """Load the collection's number and embedder; create the collection if it is missing.

        Args:
            then: called in the same transaction, and again if the transaction is repeated.
        Raises:
            BadRequest: another version of signalbox analysed the collection, or the embedder's vectors are too long.
            EmbedderMismatch: it has vectors of an embedder that cannot be opened here.
        """
        while True:
            try:
                name = await self._stored_embedder()
                known = name is not None and self._embedders.can_open(name)
                self.embedder = await self._embedders.get(name) if known and name else self._embedders
                dimension = await self.embedder.dimension()
                async with self._exclusive, self._database.transaction(self._writer) as connection:
                    row = await collections.open_collection(connection, self._tenant, self._name)
                    self.number, embedder, self.mean_length, version = row
                    if version != analysis.VERSION:
                        raise BadRequest(
                            f'collection "{self._name}" was analysed by another version of signalbox: '
                            f"run `signalbox rebuild {self._name}`, which rebuilds it from the stored documents"
                        )
                    await self._use_embedder(connection, embedder, dimension)
                    if then is not None:
                        await then(connection)
                return
            except collections.CollectionReplaced:
                continue

    async def _stored_embedder(self) -> str | None:
        statement = """
            SELECT e.name FROM signalbox.collection k JOIN signalbox.embedder e ON e.number = k.embedder
            WHERE k.tenant = %s AND k.name = %s AND k.part_of IS NULL
        """
        rows = await self._database.fetch(self._writer, statement, (self._tenant, self._name))
        return rows[0][0] if rows else None

    async def transaction(self, work: Callable[[collections.Connection], Awaitable[Returned]]) -> Returned:
        """Return the result of `work`, called in a transaction; repeat that if the collection was rebuilt meanwhile."""
        while True:
            try:
                async with self._exclusive, self._database.transaction(self._writer) as connection:
                    return await work(connection)
            except collections.CollectionReplaced:
                await self.open()

    async def update_fields(
        self,
        connection: collections.Connection,
        inferred: Mapping[str, Field],
        declared: Mapping[str, Field],
        documents: Iterable[Document],
    ) -> None:
        """Add fields to the collection, see `update_schema`, and create the parts that the documents belong to.

        The parts are created together with the fields: viewers of a collection with parts may not see all of its
        fields.
        """
        self.fields = await update_schema(
            connection, self._tenant, self.number, self._name, declared=declared, inferred=inferred
        )
        await collections.open_parts(connection, self._tenant, self.number, {one.readers for one in documents})

    async def _use_embedder(self, connection: collections.Connection, stored: int | None, dimension: int) -> None:
        if dimension > MAX_DIMENSION:
            raise BadRequest(
                f"the embedder {self.embedder.name} makes vectors of {dimension:,} dimensions; the index takes at "
                f"most {MAX_DIMENSION:,}: use another embedder",
                where="embedder",
            )
        if stored is not None:
            cursor = await connection.execute(
                "SELECT name, dimension FROM signalbox.embedder WHERE number = %s", (stored,)
            )
            name, size = await cursor.fetchone() or ("", 0)
            if name != self.embedder.name and self._embedders.can_open(name):
                raise collections.CollectionReplaced
            if (name, size) != (self.embedder.name, dimension):
                raise EmbedderMismatch(
                    f'collection "{self._name}" holds vectors of the embedder {name} ({size} dimensions), not of '
                    f"{self.embedder.name} ({dimension}): set EMBEDDER={name}, or delete the collection and ingest it "
                    f"again, or run `signalbox reembed {self._name} --embedder {self.embedder.name}`",
                    where="collection",
                )
            self.embedder_number = stored
            return
        try:
            cursor = await connection.execute(
                "SELECT signalbox.register_embedder(%s, %s)", (self.embedder.name, dimension)
            )
        except psycopg.errors.DataException as error:
            raise EmbedderMismatch(
                f"{str(error).splitlines()[0]}: give the new model another name in EMBEDDER, or delete the collections "
                f"that were made with the old one",
                where="embedder",
            ) from error
        self.embedder_number = (await cursor.fetchone() or (0,))[0]
        await connection.execute(
            "UPDATE signalbox.collection SET embedder = %s WHERE tenant = %s AND number = %s",
            (self.embedder_number, self._tenant, self.number),
        )
