"""Read, split and analyse documents as ingestion does, and keep them in memory."""

import hashlib
import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from retrievers.core.errors import BadDocument
from retrievers.core.filters import Filter, matches_filter
from retrievers.core.metadata import Field, MetadataValues, flatten_metadata, infer_fields
from retrievers.core.types import PLATFORM, Chunk, ChunkId, Collection
from retrievers.ingest.documents import Document, RejectedItem
from retrievers.ingest.preparation import Passage, check_document, digest_of, field_values, prepare
from retrievers.ingest.readers.record import rejected_item
from retrievers.memory.postings import Postings
from retrievers.text import chunking

MOST_PASSAGES = 20_000
_MOST_CHARACTERS = MOST_PASSAGES * chunking.PASSAGE_CAPACITY * 1.15


class TooManyPassages(Exception):
    """The documents have more than `MOST_PASSAGES` passages, too many to hold in memory."""


class ReadingStopped(Exception):
    """The caller no longer waits for the documents."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Documents in memory, as passages in the order of their ids, so that equal scores are sorted by id.

    Attributes:
        chunks: the passages.
        texts_to_embed: for each passage, the text to embed; equal texts have equal `digests`.
        owners: for each passage, the index of its document in `values` and `expiries`.
        values: for each document, its filterable values.
        expiries: for each document, its expiry time in seconds since 1970; infinity for never.
        failed: documents that could not be read, with the reason.
    """

    collection: Collection
    chunks: Sequence[Chunk]
    texts_to_embed: Sequence[str]
    digests: Sequence[bytes]
    postings: Postings
    owners: NDArray[np.int64]
    values: Sequence[MetadataValues]
    expiries: NDArray[np.float64]
    failed: Sequence[RejectedItem]

    def allowed_passages(self, wanted: Filter | None, now: datetime) -> NDArray[np.bool_]:
        """Return an array, shape (passages,): True for passages that satisfy the filter and have not expired."""
        documents = self.expiries > now.timestamp()
        if wanted is not None:
            documents &= np.fromiter((matches_filter(wanted, one) for one in self.values), np.bool_, len(self.values))
        return documents[self.owners]

    def find(self, id: ChunkId, wanted: Filter | None, now: datetime) -> Chunk | None:
        """Return the passage with this id; None if there is none, if it has expired, or if the filter excludes it."""
        place = bisect_left(self.chunks, id, key=lambda chunk: chunk.id)
        if place == len(self.chunks) or self.chunks[place].id != id:
            return None
        owner = self.owners[place]
        allowed = self.expiries[owner] > now.timestamp() and (
            wanted is None or matches_filter(wanted, self.values[owner])
        )
        return self.chunks[place] if allowed else None

    def first_passage_ids(self, wanted: Filter | None, now: datetime) -> list[ChunkId]:
        """Return the id of the first passage of every document that satisfies the filter and has not expired."""
        first: dict[int, ChunkId] = {}
        for chunk, owner, allowed in zip(
            self.chunks, self.owners.tolist(), self.allowed_passages(wanted, now), strict=True
        ):
            if allowed:
                first.setdefault(owner, chunk.id)
        return list(first.values())


def build_corpus(
    items: Iterable[Document | RejectedItem],
    name: str,
    *,
    declared: Mapping[str, Field] | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> Corpus:
    """Read and prepare documents. A document that cannot be used is listed in `failed` and does not affect others.

    Disabled and expired documents are left out.

    Args:
        name: collection name in the ids of the passages; their tenant is the platform.
        declared: declared fields by name; the types of other fields are inferred from all documents.
        stopped: called before every document; True ends the reading.
    Raises:
        TooManyPassages: there are more than `MOST_PASSAGES`.
        Stopped: `stopped` returned True.
    """
    documents, failed = _distinct(items, stopped)
    documents = [one for one in documents if one.enabled and not _is_expired(one)]
    fields = {**_inferred(documents), **(declared or {})}
    chunks: list[Chunk] = []
    embedded: list[str] = []
    digests: list[bytes] = []
    postings, owners = Postings(), list[int]()
    values, expiries = list[MetadataValues](), list[float]()
    languages: Counter[str] = Counter()
    version = hashlib.sha256()
    for document in sorted(documents, key=lambda one: one.id):
        _go_on(stopped)
        try:
            own = field_values(document, fields)
        except BadDocument as error:
            failed.append(rejected_item(document.where, document.id, str(error)))
            continue
        prepared = prepare(document, own, digest_of(document, own))
        if len(chunks) + len(prepared.passages) > MOST_PASSAGES:
            raise TooManyPassages
        for ordinal, one in enumerate(prepared.passages):
            chunks.append(_chunk(name, document, ordinal, one))
            embedded.append(one.embedded)
            digests.append(one.digest)
            postings.add(one.lexemes, one.length)
            owners.append(len(values))
        values.append(prepared.fields)
        expiries.append(document.expires_at.timestamp() if document.expires_at else math.inf)
        languages[prepared.language] += 1
        version.update(prepared.digest)
    collection = Collection(
        number=0,
        tenant=PLATFORM,
        name=name,
        documents=len(values),
        chunks=len(chunks),
        languages=languages,
        fields=fields,
        version=int.from_bytes(version.digest()[:4]),
    )
    return Corpus(
        collection, chunks, embedded, digests, postings, np.array(owners, np.int64), values, np.array(expiries), failed
    )


def _is_expired(document: Document) -> bool:
    # A document that expires later is excluded at search time, but still counted until the documents are read again.
    return document.expires_at is not None and document.expires_at <= datetime.now(UTC)


def _chunk(collection: str, document: Document, ordinal: int, passage: Passage) -> Chunk:
    return Chunk(
        ChunkId(PLATFORM, collection, document.id, ordinal),
        document.title,
        passage.text,
        document.url,
        passage.heading,
        passage.start,
        passage.end,
        document.metadata,
        passage.gap,
        document.important,
        document.questions,
        passage.places,
    )


def _distinct(
    items: Iterable[Document | RejectedItem], stopped: Callable[[], bool]
) -> tuple[list[Document], list[RejectedItem]]:
    """Return (usable documents, rejected items with the reason). Of several with one id, the first is usable."""
    documents: dict[str, Document] = {}
    failed: list[RejectedItem] = []
    characters = 0
    for item in items:
        _go_on(stopped)
        if isinstance(item, RejectedItem):
            failed.append(item)
            continue
        try:
            check_document(item)
            if item.readers:
                raise BadDocument("it has readers, but everybody can read this folder: ingest it into a collection")
            flatten_metadata(item.metadata)
        except BadDocument as error:
            failed.append(rejected_item(item.where, item.id, str(error)))
            continue
        first = documents.setdefault(item.id, item)
        if first is not item:
            failed.append(rejected_item(item.where, item.id, f'the id "{item.id}" was already given at {first.where}'))
            continue
        characters += len(item.text)
        if characters > _MOST_CHARACTERS or len(documents) > MOST_PASSAGES:
            raise TooManyPassages
    return list(documents.values()), failed


def _inferred(documents: Iterable[Document]) -> dict[str, Field]:
    return infer_fields(flatten_metadata(document.metadata) for document in documents)


def _go_on(stopped: Callable[[], bool]) -> None:
    if stopped():
        raise ReadingStopped
