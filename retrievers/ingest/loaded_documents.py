"""Prepare stored documents again. A document's row is enough to compute everything derived from the document."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from retrievers.core.errors import BadDocument
from retrievers.core.file_positions import positions_from_json
from retrievers.core.metadata import Field, fields_from_json
from retrievers.ingest.collections import Connection
from retrievers.ingest.documents import Document
from retrievers.ingest.preparation import PreparedDocument, digest_of, field_values, prepare


@dataclass(frozen=True, slots=True)
class LoadedDocument:
    """A stored document, with the columns of its row that a `Document` lacks."""

    document: Document
    digest: bytes
    fields: Mapping[str, Any]
    delivery: int
    created_at: datetime
    updated_at: datetime


async def load_documents(
    connection: Connection, tenant: str, number: int, ids: Sequence[str]
) -> tuple[list[LoadedDocument], dict[str, Field]]:
    """Return the documents with these ids that exist, and the fields of their collection."""
    row = await (await connection.execute(_FIELDS, (tenant, number))).fetchone()
    cursor = await connection.execute(_READ, (tenant, number, list(ids)))
    return [_stored(one) for one in await cursor.fetchall()], fields_from_json(row[0] if row else {})


def prepare_again(stored: LoadedDocument, fields: Mapping[str, Field], *, keeps_digest: bool) -> PreparedDocument:
    """Prepare a stored document as an ingestion with this version would.

    Args:
        fields: fields of the collection. A document that no longer fits them keeps its stored values.
        keeps_digest: keep the stored digest, because this version of splitting and analysis processed the document.
    """
    document = stored.document
    try:
        values = field_values(document, fields)
    except BadDocument:
        values = {name: value for name, value in stored.fields.items() if name != "language"}
    return prepare(document, values, stored.digest if keeps_digest else _digest(document, fields, values))


def _digest(document: Document, fields: Mapping[str, Field], values: Mapping[str, Any]) -> bytes:
    """Return the digest that the document would have if it were submitted again.

    A document that was disabled because it expired gets the digest of the enabled one.
    """
    if not document.enabled and document.expires_at is not None and document.expires_at <= datetime.now(UTC):
        given = Document(**{**{name: getattr(document, name) for name in document.__slots__}, "enabled": True})
        try:
            return digest_of(given, field_values(given, fields))
        except BadDocument:
            pass  # it will be stored again when it is submitted again
    return digest_of(document, values)


def _stored(row: Sequence[Any]) -> LoadedDocument:
    id, title, text, url, metadata, important, questions, public, readers, enabled, expires_at, places, *rest = row
    document = Document(
        "stored", id, title, text, url, metadata, tuple(important), tuple(questions), public, tuple(readers), enabled,
        expires_at, places=positions_from_json(places),
    )  # fmt: skip
    return LoadedDocument(document, bytes(rest[0]), *rest[1:])


_FIELDS = "SELECT fields FROM signalbox.collection WHERE tenant = %s AND number = %s"
_READ = """
    SELECT d.id, d.title, d.body, d.url, d.metadata, d.important, d.questions, d.public, coalesce(p.readers, '{}'),
           d.enabled, d.expires_at, d.places, d.digest, d.fields, d.delivery, d.created_at, d.updated_at
    FROM signalbox.document d
    LEFT JOIN signalbox.collection p ON p.tenant = d.tenant AND p.number = d.part
    WHERE d.tenant = %s AND d.collection = %s AND d.id = ANY (%s) ORDER BY d.id
"""
