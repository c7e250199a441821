"""Features for learning to rank: numbers that describe a hit within its pool, one per name in `NAMES`."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agent.retrieval.fusion import FusedHit
from retrievers.core.types import Chunk
from retrievers.text.analysis import Term, analyse
from retrievers.text.question_terms import analyse_question

VERSION = 1
"""Increase it when the meaning of a feature changes, so that models trained on the old features are rejected."""

NAMES = (
    "fused",  # the fused score
    "fused_share",  # the fused score min-max normalised to [0, 1] within the pool; so are all "_share" features
    "fused_place",  # 1 / rank by fused score, ranks from 1
    "bm25",  # full text's score, unbounded; NaN if full text did not find the hit
    "bm25_share",
    "bm25_place",  # 1 / rank in full text, 0 if full text did not find the hit
    "cosine",  # the vector search's score; NaN if it did not find the hit
    "cosine_share",
    "cosine_place",
    "covered",  # share of the question's words in the passage or its titles, weighted by rarity
    "covered_title",  # the same for the document's title
    "covered_heading",
    "covered_window",  # the same for the `_WINDOW_WORDS` consecutive words of the passage that cover most
    "pairs",  # share of the question's pairs of adjacent words that are adjacent in the passage
    "phrase",  # longest run of the question's words that occurs unchanged, as a share of the question
    "identifiers",  # share of the question's identifiers that occur; NaN without identifiers
    "title_asked",  # share of the title's words that occur in the question; NaN without a title
    "question_words",
    "passage_words",  # log(1 + number of words)
    "ordinal",  # log(1 + the passage's index in its document, from 0)
    "siblings",  # number of passages of the same document in the pool, itself included
    "sibling_place",  # 1 / the hit's rank among them
    "sibling_sum",  # sum of the fused shares of the document's passages
    "age_years",  # years before the latest date in the pool; NaN without a date
)

_WINDOW_WORDS = 40
# Maximum words of a question, as in full text: some features cost question length times passage length.
_MOST_WORDS = 64
_DAYS_A_YEAR = 365.25

Matrix = NDArray[np.float64]


def compute_ltr_features(question: str, language: str, pool: Sequence[FusedHit]) -> Matrix:
    """Compute the features of every hit of a pool.

    Args:
        language: ISO 639-1 code of the question.
        pool: in fused order, with chunks loaded.
    Returns:
        One row per hit in pool order, one column per name in `NAMES`; NaN where a value is unknown.
    Raises:
        ValueError: a hit has no chunk.
    """
    terms = analyse_question(question, language)
    asked = [term for term in terms if not term.derived][:_MOST_WORDS]
    identifiers = {term.text for term in terms if term.derived and "-" in term.text}
    passages = [_Passage(hit, language) for hit in pool]
    weights = _weights({term.text for term in asked}, passages)
    columns: dict[str, Sequence[float]] = {
        **_of_scores(pool),
        **_of_documents(pool),
        "age_years": _ages([passage.chunk for passage in passages]),
        "question_words": [float(len(asked))] * len(pool),
        "passage_words": [math.log1p(len(passage.text)) for passage in passages],
        "ordinal": [math.log1p(passage.chunk.id.ordinal) for passage in passages],
        "covered": [_covered(weights, passage.everywhere) for passage in passages],
        "covered_title": [_covered(weights, passage.title) for passage in passages],
        "covered_heading": [_covered(weights, passage.heading) for passage in passages],
        "covered_window": [_covered_window(weights, passage.text) for passage in passages],
        "pairs": [_pairs(asked, passage.text) for passage in passages],
        "phrase": [_phrase(asked, passage.text) for passage in passages],
        "identifiers": [_share(identifiers, passage.everywhere) for passage in passages],
        "title_asked": [_share(passage.title, weights) for passage in passages],
    }
    return np.array([columns[name] for name in NAMES], dtype=np.float64).T.reshape(len(pool), len(NAMES))


class _Passage:
    """A hit's chunk with its analysed words."""

    def __init__(self, hit: FusedHit, language: str) -> None:
        if hit.chunk is None:
            raise ValueError(f"{hit.id} has no chunk: features need the text")
        self.chunk: Chunk = hit.chunk
        analysed = analyse(hit.chunk.text, language)
        self.text: list[Term] = [term for term in analysed if not term.derived]
        self.title = {term.text for term in analyse(hit.chunk.title, language)}
        self.heading = {term.text for term in analyse(hit.chunk.heading, language)}
        self.everywhere = {term.text for term in analysed} | self.title | self.heading


def _weights(asked: Iterable[str], passages: Sequence[_Passage]) -> dict[str, float]:
    """Return the inverse document frequency, > 0, of the question's distinct words within the pool."""
    held = Counter(term for passage in passages for term in passage.everywhere)
    count = len(passages)
    return {term: math.log(1 + (count - held[term] + 0.5) / (held[term] + 0.5)) for term in asked}


def _of_scores(pool: Sequence[FusedHit]) -> dict[str, Sequence[float]]:
    fused = [hit.fused_score for hit in pool]
    columns: dict[str, Sequence[float]] = {
        "fused": fused,
        "fused_share": _shares(fused),
        "fused_place": [1 / rank for rank in range(1, len(pool) + 1)],
    }
    for name, source in (("bm25", "fulltext"), ("cosine", "vector")):
        scores = [hit.scores.get(source, math.nan) for hit in pool]
        places = [1 / hit.ranks[source] if source in hit.ranks else 0.0 for hit in pool]
        columns |= {name: scores, f"{name}_share": _shares(scores), f"{name}_place": places}
    return columns


def _shares(values: Sequence[float]) -> list[float]:
    """Min-max normalise to [0, 1]; NaN stays NaN, and equal values become 1."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return list(values)
    low, span = min(known), max(known) - min(known)
    return [value if math.isnan(value) else (value - low) / span if span > 0 else 1.0 for value in values]


def _of_documents(pool: Sequence[FusedHit]) -> dict[str, Sequence[float]]:
    shares = _shares([hit.fused_score for hit in pool])
    documents = [hit.id[:3] for hit in pool]
    sums: defaultdict[tuple[str, str, str], float] = defaultdict(float)
    places = []
    seen: Counter[tuple[str, str, str]] = Counter()
    for document, share in zip(documents, shares, strict=True):
        seen[document] += 1
        sums[document] += share
        places.append(1 / seen[document])
    return {
        "siblings": [float(seen[document]) for document in documents],
        "sibling_place": places,
        "sibling_sum": [sums[document] for document in documents],
    }


def _covered(weights: Mapping[str, float], held: Iterable[str]) -> float:
    total = math.fsum(weights.values())
    # Exact sums, because the order of a set differs between processes.
    return math.fsum(weights[term] for term in set(held) & weights.keys()) / total if total else math.nan


def _covered_window(weights: Mapping[str, float], text: Sequence[Term]) -> float:
    """Return the largest weighted share of the question's words in any `_WINDOW_WORDS` consecutive words of the text.

    NaN if the question has no words.

    Args:
        weights: weight of each word of the question.
    """
    places = [term for term in text if term.text in weights]
    best, first = 0.0, 0
    inside: Counter[str] = Counter()
    for term in places:
        inside[term.text] += 1
        while term.position - places[first].position >= _WINDOW_WORDS:
            inside[places[first].text] -= 1
            first += 1
        best = max(best, _covered(weights, (word for word, count in inside.items() if count)))
    return best if weights else math.nan


def _pairs(asked: Sequence[Term], text: Sequence[Term]) -> float:
    wanted = {(one.text, other.text) for one, other in pairwise(asked)}
    return _share(wanted, {(one.text, other.text) for one, other in pairwise(text)})


def _phrase(asked: Sequence[Term], text: Sequence[Term]) -> float:
    """Return the length of the longest run of words in both question and text, divided by the question's length.

    Words that the analyser drops, such as "the", do not interrupt a run. NaN if the question has no words.
    """
    if not asked:
        return math.nan
    words = [term.text for term in asked]
    longest, before = 0, [0] * (len(words) + 1)
    known = set(words)
    for term in text:
        if term.text not in known:
            before = [0] * (len(words) + 1)
            continue
        now = [0] + [before[n] + 1 if term.text == word else 0 for n, word in enumerate(words)]
        longest, before = max(longest, *now), now
    return longest / len(words)


def _share(wanted: Iterable[Any], held: Iterable[Any]) -> float:
    """Return the share of `wanted` that is in `held`; NaN if nothing is wanted."""
    wanted = set(wanted)
    return len(wanted & set(held)) / len(wanted) if wanted else math.nan


def _ages(chunks: Sequence[Chunk]) -> list[float]:
    dates = [max(_dates(chunk.metadata), default=None) for chunk in chunks]
    latest = max((day for day in dates if day is not None), default=None)
    return [math.nan if day is None or latest is None else (latest - day).days / _DAYS_A_YEAR for day in dates]


def _dates(metadata: Mapping[str, Any]) -> list[date]:
    """Return the ISO dates among a document's metadata values."""
    found = []
    for value in metadata.values():
        if isinstance(value, str) and len(value) >= len("2026-11-20"):
            try:
                found.append(datetime.fromisoformat(value).date())
            except ValueError:
                continue
    return found
