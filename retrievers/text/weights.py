"""BM25 as two sparse vectors whose inner product is the score (DESIGN section 4).

The document side holds, per term, BM25's saturated and length-normalised frequency; the question side
holds inverse document frequencies. Dimensions are hashes of the terms, below pgvector's limit.
"""

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from retrievers.text.analysis import Term, analyse

DIMENSIONS = 1_000_000_000
K1 = 1.2
B = 0.75
FIELDS: Mapping[str, float] = {"D": 1.0, "A": 2.0, "B": 5.0, "C": 6.0}
"""Weight per tsvector label (BM25F): text, title and headings, important terms, questions."""

_FIELD_GAP = 16
_LAST_POSITION = 16383
_MOST_POSITIONS = 255
# What a passage brings beside its text is bounded: a tsvector and a sparsevec hold only so much.
_MOST_TERMS = 3000
_MOST_CHARACTERS = 20_000
# Average lengths live on a grid of 10 % steps: BM25 hardly notices, and stored vectors depend on the
# documents alone, not on the order or the batches in which they came.
_STEP = math.log(1.1)

Number = TypeVar("Number", float, NDArray[np.float64])

Positions = dict[str, list[tuple[int, str]]]


def lexemes(
    text: str, language: str, *, title: str = "", important: Iterable[str] = (), questions: Iterable[str] = ()
) -> tuple[Positions, int]:
    """Analysed terms of a passage with their positions and field labels, and the passage's length.

    Returns:
        Term to [(position from 1, label)], positions ascending; and the length that BM25 normalises by: the words of
        every field, counted by its weight like the terms themselves. Were the text alone counted, a title without a
        text would outrank everything (nDCG@10 of SciFact with abstracts of relevant documents alone: 0.12, and 0.65
        with the weighted length).
    """
    found: dict[str, dict[int, str]] = {}
    offset, length = 1, 0.0
    # The text comes first: positions end at 16383, and what is beyond is not told apart.
    parts = (("D", text), ("A", title), ("B", "\n".join(important)), ("C", "\n".join(questions)))
    for label, part in parts:
        terms = analyse(part, language) if label == "D" else _analysed(part[:_MOST_CHARACTERS], language)
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
        length += FIELDS[label] * count_words(terms)
        if terms:
            offset += terms[-1].position + _FIELD_GAP
    return {term: sorted(places.items()) for term, places in found.items()}, round(length)


@lru_cache(maxsize=32)
def _analysed(text: str, language: str) -> Sequence[Term]:
    # The passages of a document share their title, important terms and questions.
    return analyse(text, language)


def count_words(terms: Iterable[Term]) -> int:
    """Length of a text in words: derived terms do not count."""
    return sum(not term.extra for term in terms)


def document_weights(found: Mapping[str, Iterable[tuple[int, str]]], length: int, mean: float) -> dict[int, float]:
    """The document side of BM25: dimension to weight.

    Args:
        found: terms with positions and labels, as `lexemes` gives them or a stored tsvector holds them.
        length: of the passage, as `lexemes` gives it.
        mean: the collection's mean length in use (`on_grid`).
    """
    norm = length_norm(length, mean)
    weights: dict[int, float] = {}
    for term, places in found.items():
        dimension = hashed(term)
        # Terms whose hashes collide (1 in 10^9) share their weight.
        weights[dimension] = weights.get(dimension, 0.0) + saturated(frequency(places), norm)
    return weights


def frequency(places: Iterable[tuple[int, str]]) -> float:
    """How often a term occurs, each place counted by its field (BM25F)."""
    return sum(FIELDS[label] for _, label in places)


def length_norm(length: Number, mean: float) -> Number:
    """What a passage's length in words, beside the mean one, adds to the denominator of `saturated`."""
    return K1 * (1 - B + B * length / mean)


def saturated(count: Number, norm: Number) -> Number:
    """A term's weight in a passage, in [0, K1 + 1); numbers or arrays."""
    return count * (K1 + 1) / (count + norm)


def idf(documents: int, chunks: int) -> float:
    """Inverse document frequency of a term in `documents` of `chunks` passages; always positive."""
    return math.log(1 + (chunks - documents + 0.5) / (documents + 0.5)) if chunks >= documents else math.log(1.5)


def on_grid(mean: float) -> float:
    """The mean length to use for an actual one: the nearest point of a 10 % grid, at least 1."""
    return math.exp(round(math.log(max(mean, 1.0)) / _STEP) * _STEP)


@lru_cache(maxsize=1 << 17)
def hashed(term: str) -> int:
    """The term's dimension, from 0."""
    return int.from_bytes(hashlib.blake2b(term.encode(), digest_size=8).digest()) % DIMENSIONS
