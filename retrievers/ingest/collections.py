"""Open, lock, describe and delete a collection, in a transaction that carries the tenant."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, LiteralString

from psycopg import AsyncConnection
from psycopg.types.json import Jsonb

from retrievers.core.errors import BadRequest, UnknownCollection
from retrievers.core.metadata import Field, fields_to_json
from retrievers.postgres.connections.database import Row
from retrievers.text import analysis, chunking, folding

Connection = AsyncConnection[Row]

MAX_NAME_CHARACTERS = 128


class CollectionReplaced(Exception):
    """The collection was rebuilt in the meantime: its name now belongs to a collection with another number."""


def check_collection_name(collection: str) -> None:
    """Check the name of a collection.

    Raises:
        BadRequest: no collection can have this name.
    """
    if not collection or len(collection) > MAX_NAME_CHARACTERS or not collection.isprintable() or "/" in collection:
        raise BadRequest(
            f"a collection's name has 1 to {MAX_NAME_CHARACTERS} printable characters and no slash", where="collection"
        )


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
            (tenant, name, analysis.VERSION, chunking.VERSION, folding.VERSION),
        )
        row = await (await connection.execute(select, (tenant, name))).fetchone()
    assert row is not None
    return row


async def read_fields(connection: Connection, tenant: str, name: str) -> dict[str, Any]:
    """Return the field catalogue of a collection; {} if there is no such collection."""
    cursor = await connection.execute(
        "SELECT fields FROM signalbox.collection WHERE tenant = %s AND name = %s AND part_of IS NULL", (tenant, name)
    )
    row = await cursor.fetchone()
    return dict(row[0]) if row is not None else {}


async def lock_fields(connection: Connection, tenant: str, number: int) -> dict[str, Any]:
    """Lock a collection with this number until the end of the transaction; return its field catalogue as stored.

    Raises:
        UnknownCollection: the collection was deleted meanwhile.
        CollectionReplaced: the collection was rebuilt meanwhile.
    """
    return dict((await lock_collection(connection, tenant, number))[0])


async def lock_public(connection: Connection, tenant: str, number: int) -> bool | None:
    """Lock a collection as `lock_collection` does; return whether it has public documents, None if it is empty.

    Raises:
        UnknownCollection: the collection was deleted meanwhile.
        CollectionReplaced: the collection was rebuilt meanwhile.
    """
    await lock_collection(connection, tenant, number)
    cursor = await connection.execute(
        "SELECT public_documents > 0 FROM signalbox.collection WHERE tenant = %s AND number = %s AND documents > 0",
        (tenant, number),
    )
    row = await cursor.fetchone()
    return bool(row[0]) if row is not None else None


async def lock_collection(connection: Connection, tenant: str, number: int) -> Row:
    """Lock a collection against other writers until the end of the transaction; return (fields, mean length).

    Every change of documents starts here, so counts stay exact and writers can't deadlock.

    Raises:
        UnknownCollection: the collection was deleted meanwhile.
        CollectionReplaced: the collection was rebuilt meanwhile.
    """
    return await _select_collection(connection, tenant, number, _LOCK)


async def check_exists(connection: Connection, tenant: str, number: int) -> None:
    """Check that a collection exists, without locking it, for a transaction that only reads.

    Raises like `lock_collection`.
    """
    await _select_collection(connection, tenant, number, _LIVE)


_LIVE: LiteralString = "SELECT fields, mean_length FROM signalbox.collection WHERE tenant = %s AND number = %s"


_LOCK: LiteralString = _LIVE + " FOR UPDATE"


async def _select_collection(connection: Connection, tenant: str, number: int, statement: LiteralString) -> Row:
    row = await (await connection.execute(statement, (tenant, number))).fetchone()
    if row is None:
        await show_shadows(connection)
        known = await connection.execute(
            "SELECT FROM signalbox.collection WHERE tenant = %s AND number = %s", (tenant, number)
        )
        if known.rowcount:
            raise CollectionReplaced
        raise UnknownCollection("the collection was deleted meanwhile", where="collection")
    return row


async def lock_with_shadows(connection: Connection, tenant: str, number: int) -> None:
    """Lock a collection, then its shadows (collections that are built to replace it). Raises like `lock_collection`.

    Rebuilds lock in the same order, so there are no deadlocks.
    """
    await lock_collection(connection, tenant, number)
    await show_shadows(connection)
    await connection.execute(
        "SELECT FROM signalbox.collection WHERE tenant = %s AND shadow_of = %s ORDER BY number FOR UPDATE",
        (tenant, number),
    )


async def show_shadows(connection: Connection) -> None:
    """Make collections under construction and replaced ones visible until the end of the transaction."""
    await connection.execute("SELECT set_config('signalbox.shadows', 'on', true)")


async def set_fields(connection: Connection, tenant: str, number: int, fields: Mapping[str, Field]) -> None:
    """Store the field catalogue."""
    await connection.execute(
        "UPDATE signalbox.collection SET fields = %s, version = version + 1 WHERE tenant = %s AND number = %s",
        (Jsonb(fields_to_json(fields)), tenant, number),
    )


async def set_records(connection: Connection, tenant: str, number: int, records: Sequence[str]) -> None:
    """Store the nouns for a document of the collection, such as "upload"."""
    await connection.execute(
        "UPDATE signalbox.collection SET records = %(records)s, version = version + 1"
        " WHERE tenant = %(tenant)s AND number = %(number)s AND records <> %(records)s",
        {"records": list(records), "tenant": tenant, "number": number},
    )


async def set_description(connection: Connection, tenant: str, number: int, description: str) -> None:
    """Store the description of the collection."""
    await connection.execute(
        "UPDATE signalbox.collection SET description = %(description)s, version = version + 1"
        " WHERE tenant = %(tenant)s AND number = %(number)s AND description <> %(description)s",
        {"description": description, "tenant": tenant, "number": number},
    )


async def open_parts(
    connection: Connection, tenant: str, number: int, wanted: Iterable[tuple[str, ...]]
) -> dict[tuple[str, ...], int | None]:
    """Return the numbers of parts of a locked collection, by the readers of each part. Missing parts are created.

    A part is the documents with the same readers. Documents without readers belong to no part: () -> None.

    Args:
        wanted: sets of readers, each a sorted tuple.
    """
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
