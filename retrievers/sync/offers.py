"""Decide which documents of a portion are stored: one per id, and none that belongs to another item or source."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from uuid import UUID

from retrievers.ingest.documents import Document, RejectedItem
from retrievers.sync.manifest import Claim, Owner
from retrievers.sync.portions import Portion


@dataclass(frozen=True, slots=True)
class Offer:
    """A document that an item provides, and the item's claim to it."""

    claim: Claim
    document: Document


@dataclass(frozen=True, slots=True)
class LeftOut:
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
class OfferedDocuments:
    """The documents of a portion: those to store (`good`), at most one per id, and those that are left out."""

    good: Sequence[Offer]
    left_out: Sequence[LeftOut]


def offers_of(portion: Portion) -> OfferedDocuments:
    """Return the documents of a portion. Of several with one id, that of the item whose key sorts first is stored."""
    good: dict[str, Offer] = {}
    left_out = []
    for found in portion.found:
        if isinstance(found.item, RejectedItem):
            left_out.append(LeftOut(found.key, found.item, found.item.reason))
            continue
        one = Offer(Claim(found.item.id, found.key, _given(found.item)), found.item)
        first = good.setdefault(found.item.id, one)
        if first is one:
            continue
        if first.claim.item > found.key:
            good[found.item.id], first, one = one, one, first
        is_same = first.claim.given == one.claim.given
        if not is_same or first.claim.item != one.claim.item:
            reason = None if is_same else _given_already(one.claim.id, first.document.where)
            left_out.append(LeftOut(one.claim.item, one.document, reason))
    return OfferedDocuments([*good.values()], left_out)


def losers_of(offers: Iterable[Offer], refused: Mapping[str, Owner], sync: UUID) -> Iterator[LeftOut]:
    """Yield the offered documents that are not stored because their id belongs to another item or source.

    Args:
        refused: owners of documents whose claims the manifest refused, by document id.
        sync: id of this source.
    """
    for one in offers:
        owner = refused.get(one.claim.id)
        if owner is None:
            continue
        if owner.sync != sync:
            reason: str | None = (
                f'the id "{one.claim.id}" belongs to another source of this collection; if that is followed no more: '
                f"signalbox sync --forget {owner.sync.hex}"
            )
        elif owner.given != one.claim.given:
            reason = _given_already(one.claim.id, str(owner.item))
        elif owner.item == one.claim.item:
            continue
        else:
            reason = None
        yield LeftOut(one.claim.item, one.document, reason)


def _given_already(id: str, where: str) -> str:
    return f'the id "{id}" was already given at {where}; this one was left out'


def _given(document: Document) -> bytes:
    """Return the digest of a document as the source provides it, without its location and the notes on repairs."""
    given = {one.name: getattr(document, one.name) for one in fields(document) if one.name not in ("where", "notes")}
    return hashlib.sha256(json.dumps(given, sort_keys=True, default=str).encode(errors="surrogatepass")).digest()
