"""Build the rows of documents and passages, and compute their BM25 vectors. Pure functions, called in threads."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pgvector import HalfVector, SparseVector
from psycopg.types.json import Jsonb

from retrievers.core.file_positions import FilePositions
from retrievers.embed import Vectors
from retrievers.ingest.preparation import Passage, PreparedDocument
from retrievers.postgres.connections.database import Row
from retrievers.text import bm25

ROWS_AT_ONCE = 64
"""Passages per statement. The driver blocks the event loop for about 10 ms to turn them into parameters."""


def term_counts(documents: Sequence[PreparedDocument]) -> list[tuple[str, int]]:
    """Return (term, number of the documents' passages that contain the term), sorted by term."""
    counts = Counter(term for item in documents for passage in item.passages for term in passage.terms)
    return sorted(counts.items())


def term_changes(passages: Sequence[Passage], old: Counter[str]) -> list[tuple[str, int]]:
    """Return (term, change of the number of passages with the term) when passages replace others, sorted by term.

    Args:
        passages: some of the new passages.
        old: the number of replaced passages with each term. What is subtracted from the changes is removed from it, so
            that the next call subtracts only the rest.
    """
    changes = Counter(term for passage in passages for term in passage.terms)
    for term in changes.keys() & old.keys():
        same = min(changes[term], old[term])
        changes[term] -= same
        old[term] -= same
    return sorted((term, change) for term, change in changes.items() if change)


def removed_terms(old: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return the changes, as of `term_changes`, when passages are removed: the terms of `old`, subtracted."""
    return sorted((term, -count) for term, count in old.items() if count)


def recompute_bm25(rows: Sequence[Row], mean: float) -> list[SparseVector]:
    """Return the BM25 vectors of stored passages for a new mean length, in the order of `rows`.

    Args:
        rows: (document id, ordinal, length, terms, labels of each term's occurrences as a string).
        mean: mean length of a passage, in words.
    """
    return [
        SparseVector(
            bm25.passage_vector(
                {term: [(0, label) for label in labels] for term, labels in zip(terms, marks, strict=True)},
                length,
                mean,
            ),
            bm25.DIMENSIONS,
        )
        for _, _, length, terms, marks in rows
    ]


INSERT_DOCUMENT = """
    INSERT INTO signalbox.document (tenant, collection, id, title, url, body, metadata, fields, important, questions,
                                    language, digest, chunks, words, public, part, enabled, expires_at, delivery,
                                    places)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


INSERT_CHUNK = """
    INSERT INTO signalbox.chunk (tenant, collection, document_id, ordinal, embedder, public, part, expires_at,
                                 start_character, end_character, length, embedding, bm25, fields, heading, digest,
                                 lexemes, body, gap, places)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %b, %s, %s, %s, %s, %s, %s, %s)
"""


def document_row(tenant: str, number: int, item: PreparedDocument, part: int | None, delivery: int) -> Row:
    """Return the values of `INSERT_DOCUMENT` for one document.

    Args:
        number: number of the collection.
        part: number of the part of the collection that the document belongs to; None if it has no readers.
        delivery: number of the delivery that contains the document.
    """
    document = item.document
    return (
        tenant,
        number,
        document.id,
        document.title,
        document.url,
        document.text,
        _jsonb(document.metadata),
        _jsonb(item.fields),
        list(document.important),
        list(document.questions),
        item.language,
        item.digest,
        len(item.passages),
        sum(passage.length for passage in item.passages),
        document.public,
        part,
        document.enabled,
        document.expires_at,
        delivery,
        _stored_places(document.places),
    )


def _jsonb(value: Any) -> Jsonb:
    """Return a statement's JSON parameter already encoded: the driver would encode it on the event loop."""
    return Jsonb(json.dumps(value, ensure_ascii=False, default=str), str)


def chunk_row(
    tenant: str,
    number: int,
    item: PreparedDocument,
    part: int | None,
    ordinal: int,
    passage: Passage,
    vector: Vectors,
    embedder: int,
    mean_length: float,
) -> Row:
    """Return the values of `INSERT_CHUNK` for one passage.

    Args:
        part: number of the part of the collection that the document belongs to; None if it has no readers.
        ordinal: number of the passage in its document, from 0.
        mean_length: mean length of a passage, in words.
    """
    lexemes = passage.lexemes
    weighted = bm25.passage_vector(lexemes, passage.length, mean_length)
    return (
        tenant,
        number,
        item.document.id,
        ordinal,
        embedder,
        item.document.public,
        part,
        item.document.expires_at,
        passage.start,
        passage.end,
        passage.length,
        HalfVector(vector),
        SparseVector(weighted, bm25.DIMENSIONS),
        _jsonb(item.fields),
        passage.heading,
        passage.digest,
        to_tsvector(number, lexemes),
        passage.text,
        passage.gap,
        _stored_places(passage.places),
    )


def _stored_places(places: FilePositions | None) -> Jsonb | None:
    return _jsonb(places.to_json()) if places else None


def to_tsvector(number: int, lexemes: bm25.Positions) -> str:
    """Return terms in PostgreSQL's text format of a tsvector, with the collection's number first: "'7:word':1,5A"."""
    words = []
    for term, places in lexemes.items():
        quoted = term.replace("\\", "\\\\").replace("'", "''")
        marks = ",".join(f"{position}{'' if label == 'D' else label}" for position, label in places)
        words.append(f"'{number}:{quoted}':{marks}")
    return " ".join(words)
