"""Compare stored documents and passages with what ingestion would store. Pure functions, called in threads."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from retrievers.core.file_positions import positions_from_json
from retrievers.ingest.preparation import Passage, PreparedDocument
from retrievers.postgres.connections.database import Row
from retrievers.text import bm25


def find_differences(
    prepared: Sequence[PreparedDocument], kept: Mapping[str, Row], rows: Mapping[str, Sequence[Row]],
    mean: float | None, embedder: tuple[int, int],
) -> dict[str, list[str]]:  # fmt: skip
    """Return the ids of documents that are not stored as they would be now, by kind of difference.

    Args:
        prepared: the documents as they would be stored now.
        kept: stored columns of each document by id, as read by `retrievers.ingest.checking.collection_check`.
        rows: stored columns of each document's passages, by document id.
        mean: mean length of a passage that BM25 uses, in words; None while the weights are recomputed for another one.
        embedder: number and dimension of the collection's embedder.
    Returns:
        Ids under "documents" (the document's row differs), "passages" (their text, terms or weights differ) and
        "vectors" (one is missing or damaged, or another embedder computed it). A kind without ids is left out.
    """
    wrong: dict[str, list[str]] = defaultdict(list)
    for item in prepared:
        id = item.document.id
        if id not in kept:
            wrong["documents"].append(id)
            continue
        language, fields, chunks, words, *scope = kept[id]
        lengths = sum(passage.length for passage in item.passages)
        made = (item.language if item.document.enabled else language, item.fields, len(item.passages), lengths)
        if (language, fields, chunks, words) != made:
            wrong["documents"].append(id)
        own = sorted(rows.get(id, ()), key=lambda row: int(row[0]))
        pairs = enumerate(zip(item.passages, own, strict=False))
        as_made = [_matches_prepared(n, passage, row, fields, scope, mean) for n, (passage, row) in pairs]
        if len(own) != len(item.passages) or not all(as_made):
            wrong["passages"].append(id)
        if not all(row[1] == embedder[0] and _is_valid_vector(row[-1], embedder[1]) for row in own):
            wrong["vectors"].append(id)
    return dict(wrong)


def _matches_prepared(
    n: int, passage: Passage, row: Row, fields: Mapping[str, Any], scope: Sequence[Any], mean: float | None
) -> bool:
    """Return whether a stored passage, apart from its vector, is what ingestion would store.

    Args:
        n: number of the passage in its document, from 0.
        row: stored columns of the passage.
        fields, scope: columns that the document shares with its passages.
        mean: mean length of a passage that BM25 uses, in words; None to leave the weights out.
    """
    given = (n, passage.start, passage.end, passage.length, passage.heading, passage.digest, passage.text, passage.gap)
    ordinal, _, start, end, length, heading, digest, body, gap, places, found, *own, stored, _ = row
    if (ordinal, start, end, length, heading, bytes(digest), body, gap) != given or not found:
        return False
    if positions_from_json(places) != passage.places:
        return False
    if own != [fields, *scope]:
        return False
    if mean is None:
        return True
    made = bm25.passage_vector(passage.lexemes, passage.length, mean)
    kept = dict(zip(stored.indices(), stored.values(), strict=True))
    return kept.keys() == made.keys() and all(np.float32(made[at]) == np.float32(kept[at]) for at in made)


def _is_valid_vector(vector: Any, dimension: int) -> bool:
    """Return whether a stored vector exists, has this dimension, and has length 1 as far as half precision allows."""
    if vector is None:
        return False
    numbers = vector.to_numpy().astype(np.float32)
    return len(numbers) == dimension and abs(float(np.linalg.norm(numbers)) - 1) < 0.02
