"""Decide which documents of a batch are stored: one per id, and none that belongs to another item or source."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from uuid import UUID

from retrievers.ingest.documents import Document, RejectedItem
from retrievers.sync.manifest import DocumentClaim, DocumentOwner
from retrievers.sync.source_batches import SourceBatch


@dataclass(frozen=True, slots=True)
class ClaimedDocument:
    """A document that an item provides, and the item's claim to it."""

    claim: DocumentClaim
    document: Document


@dataclass(frozen=True, slots=True)
class SkippedDocument:
    """A document that is not stored.

    Attributes:
        key: key of the source's item that provides the document.
        item: the document, or why it is invalid.
        reason: why the document is not stored; None if another item provides an identical one.
    """

    key: str
    item: Document | RejectedItem
    reason: str | None


@dataclass(frozen=True, slots=True)
class DocumentSelection:
    """The documents of a batch: those to store (`accepted`), at most one per id, and those not to store."""

    accepted: Sequence[ClaimedDocument]
    skipped: Sequence[SkippedDocument]


def select_documents(batch: SourceBatch) -> DocumentSelection:
    """Select the documents of a batch to store: of several with one id, that of the item whose key sorts first."""
    accepted: dict[str, ClaimedDocument] = {}
    skipped = []
    for found in batch.documents:
        if isinstance(found.item, RejectedItem):
            skipped.append(SkippedDocument(found.key, found.item, found.item.reason))
            continue
        one = ClaimedDocument(DocumentClaim(found.item.id, found.key, _provided_digest(found.item)), found.item)
        first = accepted.setdefault(found.item.id, one)
        if first is one:
            continue
        if first.claim.item > found.key:
            accepted[found.item.id], first, one = one, one, first
        is_same = first.claim.provided_digest == one.claim.provided_digest
        if not is_same or first.claim.item != one.claim.item:
            reason = None if is_same else _duplicate_reason(one.claim.id, first.document.where)
            skipped.append(SkippedDocument(one.claim.item, one.document, reason))
    return DocumentSelection([*accepted.values()], skipped)


def refused_documents(
    documents: Iterable[ClaimedDocument], refused: Mapping[str, DocumentOwner], sync: UUID
) -> Iterator[SkippedDocument]:
    """Yield the documents that are not stored because their id belongs to another item or source.

    Args:
        documents: selected documents, see `select_documents`.
        refused: owners of documents whose claims the manifest refused, by document id.
        sync: id of this source.
    """
    for one in documents:
        owner = refused.get(one.claim.id)
        if owner is None:
            continue
        if owner.sync != sync:
            reason: str | None = (
                f'the id "{one.claim.id}" belongs to another source of this collection; if that is followed no more: '
                f"signalbox sync --forget {owner.sync.hex}"
            )
        elif owner.provided_digest != one.claim.provided_digest:
            reason = _duplicate_reason(one.claim.id, str(owner.item))
        elif owner.item == one.claim.item:
            continue
        else:
            reason = None
        yield SkippedDocument(one.claim.item, one.document, reason)


def _duplicate_reason(id: str, where: str) -> str:
    return f'the id "{id}" was already given at {where}; this one was left out'


def _provided_digest(document: Document) -> bytes:
    """Return the digest of a document as the source provides it, without its location and the notes on repairs."""
    given = {one.name: getattr(document, one.name) for one in fields(document) if one.name not in ("where", "notes")}
    return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode(errors="surrogatepass")).digest()
