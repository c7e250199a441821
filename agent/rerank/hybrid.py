"""Hybrid rerank: words in common with the question and cosine, without a model (RAGFlow's formula)."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.fusion import Fused
from retrievers.text.analysis import analyse

TOKEN_WEIGHT = 0.7
VECTOR_WEIGHT = 0.3
_UNIGRAM, _BIGRAM = 0.4, 0.6


@dataclass(frozen=True, slots=True)
class Hybrid:
    """0.7 x token similarity + 0.3 x cosine, which is the score of the source "vector", 0 without one.

    Source:
        RAGFlow, rag/nlp/query.py: hybrid_similarity and token_similarity.
    """

    name: str = "hybrid"
    remote: bool = False
    comparable: bool = True

    async def rerank(self, question: str, language: str, pool: Sequence[Fused], *, deadline: float) -> list[float]:
        """Scores in [0, 1], see `Reranker.rerank`."""
        # Not on the event loop: a pool is analysed for tens of milliseconds.
        return await asyncio.to_thread(_scores, question, language, pool)

    async def aclose(self) -> None:
        """There is nothing to let go of."""


def _scores(question: str, language: str, pool: Sequence[Fused]) -> list[float]:
    asked = _terms(question, language)
    return [_score(asked, language, hit) for hit in pool]


def _score(asked: Sequence[str], language: str, hit: Fused) -> float:
    assert hit.chunk is not None
    held = [_terms(hit.chunk.title, language), _terms(hit.chunk.text, language)]
    cosine = min(max(hit.scores.get("vector", 0.0), 0.0), 1.0)
    return TOKEN_WEIGHT * _similarity(asked, held) + VECTOR_WEIGHT * cosine


def _terms(text: str, language: str) -> list[str]:
    return [term.text for term in analyse(text, language) if not term.extra]


def _similarity(asked: Sequence[str], held: Sequence[Sequence[str]]) -> float:
    """The part of what was asked for, words and pairs of neighbours, that occurs, in [0, 1]."""
    words = {term for terms in held for term in terms}
    pairs = {pair for terms in held for pair in _pairs(terms)}
    wanted_words, wanted_pairs = Counter(asked), Counter(_pairs(asked))
    total = _UNIGRAM * wanted_words.total() + _BIGRAM * wanted_pairs.total()
    found = _UNIGRAM * sum(count for term, count in wanted_words.items() if term in words)
    found += _BIGRAM * sum(count for pair, count in wanted_pairs.items() if pair in pairs)
    return found / total if total else 0.0


def _pairs(terms: Sequence[str]) -> list[tuple[str, str]]:
    return list(pairwise(terms))
