"""Rank passages in memory by words (BM25) and by meaning (vectors), as the database ranks stored passages."""

from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from retrievers.core.ranking import blend_scores
from retrievers.core.types import Hit, Query
from retrievers.embed import Vectors
from retrievers.memory.corpus import Corpus
from retrievers.text.question_terms import question_term_weights, quoted_phrases, weigh_by_rarity


def search_corpus(
    corpus: Corpus,
    query: Query,
    vectors: Vectors | None,
    question: Vectors | None,
    *,
    lexical_weight: float,
    source: str,
) -> list[Hit]:
    """Return the best passages by BM25 and by cosine, sorted by the weighted sum of both scores.

    BM25 scores and cosines are each scaled to [0, 1] (min-max) before they are added.

    Args:
        vectors: passage vectors, shape (passages, dimension); None if not embedded yet.
        question: the question's vector, shape (dimension,); None to rank by words only.
        lexical_weight: weight of BM25, in [0, 1]; the cosine has the rest.
        source: the retriever's name, for the hits.
    Returns:
        At most `query.limit` hits with their chunks. `component_scores` of a hit contains its BM25 score under
        "fulltext" and its cosine under "vector".
    """
    allowed = corpus.allowed_passages(query.filter, datetime.now(UTC))
    measured = {"fulltext": _best(*_bm25(corpus, query, allowed), query.limit)}
    if vectors is not None and question is not None and len(vectors):
        measured["vector"] = _best((vectors @ question).astype(np.float64), allowed, query.limit)
    weights = {"fulltext": lexical_weight, "vector": 1 - lexical_weight}
    return [
        Hit(
            corpus.chunks[place].id,
            score,
            source,
            corpus.chunks[place],
            component_scores={measure: found[place] for measure, found in measured.items() if place in found},
        )
        for place, score in blend_scores(measured, weights)[: query.limit]
    ]


def _bm25(corpus: Corpus, query: Query, allowed: NDArray[np.bool_]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the BM25 score of every passage, and an array with True for the passages that match the question.

    A match contains all text that the question puts in quotation marks, unless no allowed passage contains it.

    Args:
        allowed: True for passages that may be found.
    """
    shares = question_term_weights(query.text, query.language, query.translation)
    postings = corpus.postings
    scores = postings.scores(weigh_by_rarity(shares, postings.passage_counts(shares), len(postings)))
    found = allowed & (scores > 0)
    phrases = quoted_phrases(query.text, query.language)
    quoting = found & postings.passages_containing(phrases) if phrases else found
    return scores, quoting if quoting.any() else found


def _best(scores: NDArray[np.float64], among: NDArray[np.bool_], limit: int) -> dict[int, float]:
    """Return the `limit` best of the passages for which `among` is True: index to score; of equal scores by index."""
    places = np.flatnonzero(among)
    chosen = places[np.argsort(-scores[places], kind="stable")[:limit]]
    return {int(place): float(scores[place]) for place in chosen}
