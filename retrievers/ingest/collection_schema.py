"""Declare a collection's fields, the nouns for its documents ("invoices"), and its description."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from retrievers.core.collection_schema import Schema
from retrievers.core.errors import BadRequest
from retrievers.core.metadata import Field, fields_from_json
from retrievers.core.types import unrestricted_viewer
from retrievers.ingest import collections

if TYPE_CHECKING:
    from retrievers.postgres.connections.database import Database


async def store_schema(database: "Database", tenant: str, collection: str, schema: Schema) -> None:
    """Store a schema without documents. The collection is created if it does not exist.

    Fields that the schema does not name stay unchanged, and so do nouns and description if the schema has none.

    Raises:
        BadRequest: the collection has documents, and the schema changes the type of one of their fields.
    """
    while True:
        try:
            async with database.transaction(unrestricted_viewer(tenant)) as connection:
                number = (await collections.open_collection(connection, tenant, collection))[0]
                await update_schema(connection, tenant, number, collection, declared=schema)
            return
        except collections.CollectionReplaced:
            continue


async def update_schema(
    connection: collections.Connection,
    tenant: str,
    number: int,
    collection: str,
    *,
    declared: Mapping[str, Field],
    inferred: Mapping[str, Field] | None = None,
) -> dict[str, Field]:
    """Add new fields to a collection, and store what is declared.

    Args:
        declared: declared fields by name. A `Schema` also has the nouns for a document and the description.
        inferred: fields inferred from documents. They are only added if the collection does not have them yet.
    Returns:
        All fields of the collection.
    Raises:
        BadRequest: see `store_schema`.
    """
    # Locked, because others may be adding fields to the same collection.
    known = fields_from_json(await collections.lock_fields(connection, tenant, number))
    fields = {**(inferred or {}), **known, **declared}
    if fields != known:
        # Stored values depend on type and separator. Everything else may change at any time.
        changed = [name for name, spec in declared.items() if name in known and not known[name].is_stored_like(spec)]
        if changed and await _has_documents(connection, tenant, number):
            raise BadRequest(
                f'the schema changes the type of "{changed[0]}" in collection "{collection}", which has '
                "documents: delete the collection and ingest it again",
                where="schema",
            )
        await collections.set_fields(connection, tenant, number, fields)
    if isinstance(declared, Schema) and declared.records is not None:
        await collections.set_records(connection, tenant, number, declared.records)
    if isinstance(declared, Schema) and declared.description is not None:
        await collections.set_description(connection, tenant, number, declared.description)
    return fields


async def _has_documents(connection: collections.Connection, tenant: str, number: int) -> bool:
    cursor = await connection.execute(
        "SELECT sum(documents) > 0 FROM signalbox.collection WHERE tenant = %s AND %s IN (number, part_of)",
        (tenant, number),
    )
    return bool((await cursor.fetchone() or (False,))[0])
