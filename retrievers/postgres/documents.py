"""One stored document as it was given, for who may see it."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retrievers.core.types import Scope
from retrievers.postgres.database import Database


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as it is stored."""

    id: str
    collection: str
    title: str
    text: str
    url: str | None
    metadata: dict[str, Any]
    language: str
    chunks: int
    public: bool
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime


async def read_document(database: Database, scope: Scope, id: str) -> StoredDocument | None:
    """The document of that id in the scope, the tenant's own before the platform's; None where there is none.

    What has expired is not there any more, and of the platform's only what is public is there.
    """
    values = {"among": [one.number for one in scope.collections], "id": id, "tenant": scope.tenant}
    rows = await database.fetch(scope.tenant, _READ, values)
    return StoredDocument(*rows[0]) if rows else None


_READ = """
    SELECT d.id, c.name, d.title, d.body, d.url, d.metadata, d.language, d.chunks, d.public, d.expires_at,
           d.created_at, d.updated_at
    FROM signalbox.document d JOIN signalbox.collection c ON c.tenant = d.tenant AND c.number = d.collection
    WHERE d.collection = ANY (%(among)s) AND d.id = %(id)s AND (d.expires_at IS NULL OR d.expires_at > now())
    ORDER BY d.tenant <> %(tenant)s
    LIMIT 1
"""
