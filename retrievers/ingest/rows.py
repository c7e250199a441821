"""Compute values for a collection's rows from the terms of its passages. Pure functions, called in threads."""

from collections import Counter
from collections.abc import Sequence

from pgvector import SparseVector

from retrievers.ingest.prepare import Prepared
from retrievers.postgres.database import Row
from retrievers.text import weights


def term_counts(documents: Sequence[Prepared]) -> list[tuple[str, int]]:
    """Return the number of the documents' passages that contain each term, sorted by term."""
    counts = Counter(term for item in documents for passage in item.passages for term in passage.lexemes)
    return sorted(counts.items())


def reweighed(rows: Sequence[Row], mean: float) -> list[SparseVector]:
    """Return the BM25 vectors of stored passages for another mean length.

    Args:
        rows: document id, ordinal, length, terms, and the labels of each term's occurrences.
        mean: mean length of a passage, in words.
    """
    return [
        SparseVector(
            weights.document_weights(
                {term: [(0, label) for label in labels] for term, labels in zip(terms, marks, strict=True)},
                length,
                mean,
            ),
            weights.DIMENSIONS,
        )
        for _, _, length, terms, marks in rows
    ]
