"""Read stored documents as they were given, with the permissions of a viewer."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from retrievers.core.types import Scope
from retrievers.postgres.connections.read_routing import ReadRouter


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
    readers: list[str]
    expires_at: datetime | None
    created_at: datetime
    updated_at: datetime


async def read_document(reads: ReadRouter, scope: Scope, id: str) -> StoredDocument | None:
    """Return the document with this id in the scope; None if there is none, or if it is disabled or expired.

    If both the tenant and the platform have a document with this id, the tenant's is returned. Of the platform's
    documents, other tenants find only public ones.
    """
    values = {"among": [one.number for one in scope.collections], "id": id, "tenant": scope.tenant}
    rows = await reads.fetch(scope.viewer, _READ, values)
    return StoredDocument(*rows[0]) if rows else None


async def existing_ids(reads: ReadRouter, scope: Scope, ids: Collection[str]) -> set[str]:
    """Return the given ids that belong to documents in the scope, including the tenant's disabled and expired ones."""
    values = {"among": [one.number for one in scope.collections], "ids": list(ids)}
    return {id for (id,) in await reads.fetch(scope.viewer, _EXISTING, values)}


DocumentKey = tuple[str, str, str]
"""Tenant, collection name and id of a document."""


@dataclass(frozen=True, slots=True)
class DocumentPhrases:
    """Texts given with a document beside its body: its key terms (`important`) and the `questions` that it answers."""

    important: tuple[str, ...]
    questions: tuple[str, ...]


async def read_phrases(
    reads: ReadRouter, scope: Scope, documents: Collection[DocumentKey]
) -> Mapping[DocumentKey, DocumentPhrases]:
    """Return the phrases of each document. Documents without phrases or outside the scope are left out."""
    numbers = {(one.tenant, one.name): one.number for one in scope.collections}
    asked = {(one[0], numbers[one[:2]], one[2]): one for one in documents if one[:2] in numbers}
    if not asked:
        return {}
    tenants, among, ids = zip(*asked, strict=True)
    values = {"tenants": list(tenants), "among": list(among), "ids": list(ids)}
    rows = await reads.fetch(scope.viewer, _PHRASES, values)
    return {asked[row[0], row[1], row[2]]: DocumentPhrases(tuple(row[3]), tuple(row[4])) for row in rows}


_PHRASES = """
    SELECT d.tenant, d.collection, d.id, d.important, d.questions
    FROM unnest(%(tenants)s::text[], %(among)s::integer[], %(ids)s::text[]) AS wanted (tenant, collection, id)
    JOIN signalbox.document d USING (tenant, collection, id)
    WHERE d.important <> '{}' OR d.questions <> '{}'
"""
_EXISTING = """
    SELECT DISTINCT d.id FROM signalbox.document d WHERE d.collection = ANY (%(among)s) AND d.id = ANY (%(ids)s)
"""
_READ = """
    SELECT d.id, c.name, d.title, d.body, d.url, d.metadata, d.language, d.chunks, d.public,
           coalesce(p.readers, '{}'), d.expires_at, d.created_at, d.updated_at
    FROM signalbox.document d JOIN signalbox.collection c ON c.tenant = d.tenant AND c.number = d.collection
    LEFT JOIN signalbox.collection p ON p.tenant = d.tenant AND p.number = d.part
    WHERE d.collection = ANY (%(among)s) AND d.id = %(id)s AND d.enabled
      AND (d.expires_at IS NULL OR d.expires_at > now())
    ORDER BY d.tenant <> %(tenant)s
    LIMIT 1
"""
