"""BM25 as two sparse vectors whose inner product is the score.

The document vector holds BM25's saturated and length-normalised frequency of each term, the question vector holds
inverse document frequencies. Dimensions are hashes of the terms, below pgvector's limit.
"""

import hashlib
import math
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from retrievers.text.analysis import Term, analyse

DIMENSIONS = 1_000_000_000
K1 = 1.2
B = 0.75
FIELD_WEIGHTS: Mapping[str, float] = {"D": 1.0, "A": 2.0, "B": 5.0, "C": 6.0}
"""Weight per tsvector label (BM25F): D text, A title and headings, B important terms, C questions."""

_FIELD_GAP = 16
_LAST_POSITION = 16383
_MOST_POSITIONS = 255
# Limits on the fields beside a passage's text, because the size of a tsvector and a sparsevec is limited.
_MOST_TERMS = 3000
_MOST_CHARACTERS = 20_000
MOST_FIELD_TERMS = 1_000_000
"""Maximum number of terms that the fields of a document add to all its passages together, repeated terms included."""
_FIELDS_AT_ONCE = 4
"""Number of texts (a title, important terms, questions) whose terms are cached. Those of one text may take 10 MB."""
# Average lengths are rounded to a grid of 10 % steps, which hardly changes BM25. Without it, each new document would
# change the average, and stored vectors would depend on the order and the batches in which documents arrive.
_STEP = math.log(1.1)

_BETWEEN = "\0"
"""Separates terms and positions in packed text; no stored text contains it."""
_FASTEST = 1
"""Compression level. Higher ones save little: at this one, packed terms shrink to a third or half."""

Number = TypeVar("Number", float, NDArray[np.float64])

Positions = dict[str, list[tuple[int, str]]]


Analyser = Callable[[str, str], Sequence[Term]]
"""Returns the terms of a text in a language."""


def cached_analyser() -> Analyser:
    """Return an `analyse` with a cache, for one document: its passages share title, key terms and questions."""
    return lru_cache(maxsize=_FIELDS_AT_ONCE)(analyse)


def passage_lexemes(
    text: str,
    language: str,
    *,
    title: str = "",
    important: Iterable[str] = (),
    questions: Iterable[str] = (),
    analysed: Analyser = analyse,
    most_field_terms: int = MOST_FIELD_TERMS,
) -> tuple[Positions, int]:
    """Analyse a passage into terms with positions and field labels, and return its length.

    Args:
        analysed: analyses title, important terms and questions, see `cached_analyser`.
        most_field_terms: maximum number of terms of title, important terms and questions together; others are ignored.
    Returns:
        A dict of term to [(position from 1, label of its field in `FIELD_WEIGHTS`)], positions ascending; and the
        length that BM25 normalises by: the number of words in all fields, each field weighted as its terms are. If only
        the text counted, a title without a text would outrank everything (nDCG@10 of SciFact when only relevant
        documents have
        abstracts: 0.12, and 0.65 with the weighted length).
    """
    found: dict[str, dict[int, str]] = {}
    offset, length = 1, 0.0
    # The text comes first, because positions end at 16383: all later words share that position.
    parts = (("D", text), ("A", title), ("B", "\n".join(important)), ("C", "\n".join(questions)))
    for label, part in parts:
        if label == "D":
            terms: Sequence[Term] = analyse(part, language)
        else:
            terms = analysed(part[:_MOST_CHARACTERS], language)[:most_field_terms]
            most_field_terms -= len(terms)
        for term in terms:
            places = found.get(term.text)
            if places is None:
                if len(found) >= _MOST_TERMS:
                    continue
                places = found[term.text] = {}
            position = min(offset + term.position, _LAST_POSITION)
            if len(places) < _MOST_POSITIONS:
                # As in a tsvector, a position has one label: A before B before C before D.
                places[position] = min(label, places.get(position, label))
        length += FIELD_WEIGHTS[label] * count_words(terms)
        if terms:
            offset += terms[-1].position + _FIELD_GAP
    return {term: sorted(places.items()) for term, places in found.items()}, round(length)


class PackedPositions(NamedTuple):
    """Terms with their positions, compressed.

    Attributes:
        characters: length before compression, a measure of the work to store them.
    """

    data: bytes
    characters: int


def pack_positions(found: Positions) -> PackedPositions:
    """Return terms with their positions as compressed text; `unpack_positions` is the inverse."""
    text = _BETWEEN.join(
        part
        for term, places in found.items()
        for part in (term, ",".join(f"{position}{label}" for position, label in places))
    )
    return PackedPositions(zlib.compress(text.encode(), _FASTEST), len(text))


def unpack_positions(packed: PackedPositions) -> Positions:
    """Return the terms with their positions from what `pack_positions` made."""
    parts = _unpacked(packed)
    return {
        term: [(int(mark[:-1]), mark[-1]) for mark in marks.split(",")]
        for term, marks in zip(parts[::2], parts[1::2], strict=True)
    }


def unpack_terms(packed: PackedPositions) -> list[str]:
    """Return the terms alone from what `pack_positions` made. The positions would take most of the time and memory."""
    return _unpacked(packed)[::2]


def _unpacked(packed: PackedPositions) -> list[str]:
    text = zlib.decompress(packed.data).decode()
    return text.split(_BETWEEN) if text else []


def count_words(terms: Iterable[Term]) -> int:
    """Return the length of a text in words. Derived terms do not count."""
    return sum(not term.derived for term in terms)


def passage_vector(found: Mapping[str, Iterable[tuple[int, str]]], length: int, mean: float) -> dict[int, float]:
    """Return the sparse BM25 vector of a passage: dimension to weight.

    Args:
        found: terms with positions and labels, from `passage_lexemes` or a stored tsvector.
        length: length of the passage, from `passage_lexemes`.
        mean: mean length of the collection's passages, as rounded by `round_mean_length`.
    """
    norm = length_norm(length, mean)
    weights: dict[int, float] = {}
    for term, places in found.items():
        dimension = term_dimension(term)
        # Terms whose hashes collide (1 in 10^9) share their weight.
        weights[dimension] = weights.get(dimension, 0.0) + saturated_frequency(term_frequency(places), norm)
    return weights


def term_frequency(places: Iterable[tuple[int, str]]) -> float:
    """Return how often a term occurs, each occurrence weighted by its field (BM25F).

    Args:
        places: (position, label of the field) of each occurrence.
    """
    return sum(FIELD_WEIGHTS[label] for _, label in places)


def length_norm(length: Number, mean: float) -> Number:
    """Return the length term of BM25 for `saturated_frequency`, from a passage's length and the mean, in words."""
    return K1 * (1 - B + B * length / mean)


def saturated_frequency(count: Number, norm: Number) -> Number:
    """Return a term's weight in a passage, in [0, K1 + 1). Takes and returns numbers or arrays.

    Args:
        count: result of `term_frequency`.
        norm: result of `length_norm`.
    """
    return count * (K1 + 1) / (count + norm)


def idf(documents: int, chunks: int) -> float:
    """Return the inverse document frequency of a term. Always positive.

    Args:
        documents: number of passages, not of documents, that contain the term.
        chunks: number of all passages.
    """
    return math.log(1 + (chunks - documents + 0.5) / (documents + 0.5)) if chunks >= documents else math.log(1.5)


def round_mean_length(mean: float) -> float:
    """Round a mean length to the nearest of the values 1, 1.1, 1.21, ... ("the grid"), so that it rarely changes."""
    return math.exp(round(math.log(max(mean, 1.0)) / _STEP) * _STEP)


@lru_cache(maxsize=1 << 13)
def term_dimension(term: str) -> int:
    """Return the dimension that stands for a term in the sparse vectors, in [0, DIMENSIONS)."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest()) % DIMENSIONS
