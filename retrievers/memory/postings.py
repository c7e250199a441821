"""BM25 over passages in memory: the same scores as full text in the database."""

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from retrievers.text import bm25
from retrievers.text.question_terms import Phrase

Scores = NDArray[np.float64]

# A place is one number for passage and position: passage * _POSITIONS + position. Positions end at 16383, so the offset
# of a word in a phrase, subtracted from a place, never reaches the positions of the previous passage.
_POSITIONS = 1 << 32


class _Posting:
    """Occurrences of one term: its passages, its frequency in each, and the places of all its occurrences.

    A place is the passage's number times `_POSITIONS`, plus the position in the passage. Arrays of numbers are used
    because one object per place would take ten times the memory.
    """

    __slots__ = ("counts", "passages", "places")

    def __init__(self) -> None:
        self.passages = array("q")
        self.counts = array("d")
        self.places = array("q")


class Postings:
    """The terms of passages. Passages are numbered from 0 in the order they are added."""

    def __init__(self) -> None:
        self._terms: dict[str, _Posting] = {}
        self._lengths = array("d")

    def __len__(self) -> int:
        return len(self._lengths)

    def add(self, lexemes: bm25.Positions, length: int) -> None:
        """Add a passage: its terms with their positions and its length in words, see `bm25.passage_lexemes`."""
        number = len(self._lengths)
        for term, places in lexemes.items():
            posting = self._terms.get(term)
            if posting is None:
                posting = self._terms[term] = _Posting()
            posting.passages.append(number)
            posting.counts.append(bm25.term_frequency(places))
            posting.places.extend(number * _POSITIONS + position for position, _ in places)
        self._lengths.append(length)

    def passage_counts(self, terms: Iterable[str]) -> dict[str, int]:
        """Return the number of passages that contain each term. Absent terms are left out."""
        return {term: len(self._terms[term].passages) for term in terms if term in self._terms}

    def scores(self, question: Mapping[str, float]) -> Scores:
        """Return the BM25 score of every passage, shape (passages,); 0 if it contains none of the terms.

        Args:
            question: term to weight, see `question_terms.weigh_by_rarity`. Each term must occur in some passage.
        """
        lengths = np.frombuffer(self._lengths) if self._lengths else np.zeros(0)
        mean = bm25.round_mean_length(float(lengths.mean())) if self._lengths else 1.0
        norms = bm25.length_norm(lengths, mean)
        scores = np.zeros(len(lengths))
        for term, weight in question.items():
            posting = self._terms[term]
            passages = np.frombuffer(posting.passages, np.int64)
            scores[passages] += weight * bm25.saturated_frequency(np.frombuffer(posting.counts), norms[passages])
        return scores

    def passages_containing(self, phrases: Sequence[Phrase]) -> NDArray[np.bool_]:
        """Return an array, shape (passages,): True for passages that contain every phrase."""
        held = np.ones(len(self), np.bool_)
        for phrase in phrases:
            one = np.zeros(len(self), np.bool_)
            one[self._starts(phrase) // _POSITIONS] = True
            held &= one
        return held

    def _starts(self, phrase: Phrase) -> NDArray[np.int64]:
        """Return the places (see `_Posting`) where the phrase begins; an empty array if it does not occur."""
        first = phrase[0][0]
        starts: NDArray[np.int64] | None = None
        for position, term in phrase:
            if term not in self._terms:
                return np.zeros(0, np.int64)
            places = np.frombuffer(self._terms[term].places, np.int64) - (position - first)
            starts = places if starts is None else np.intersect1d(starts, places)
        assert starts is not None, "a phrase has at least one word"
        return starts
