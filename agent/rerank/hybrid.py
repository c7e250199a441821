"""Hybrid rerank: words in common with the question and cosine, without a model (RAGFlow's formula)."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from agent.fusion import Fused
from agent.rerank.base import cut_longest
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
    asked = _Asked.of(_terms(question, language))
    chunks = [hit.chunk for hit in pool if hit.chunk is not None]
    texts = cut_longest([chunk.text for chunk in chunks])
    titles = cut_longest([chunk.title for chunk in chunks])
    return [
        TOKEN_WEIGHT * asked.similarity([_terms(title, language), _terms(text, language)])
        + VECTOR_WEIGHT * min(max(hit.scores.get("vector", 0.0), 0.0), 1.0)
        for hit, title, text in zip(pool, titles, texts, strict=True)
    ]


def _terms(text: str, language: str) -> list[str]:
    return [term.text for term in analyse(text, language) if not term.extra]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question's words and pairs of neighbours, counted."""

    words: Counter[str]
    pairs: Counter[tuple[str, str]]

    @classmethod
    def of(cls, terms: Sequence[str]) -> "_Asked":
        return cls(Counter(terms), Counter(pairwise(terms)))

    def similarity(self, held: Sequence[Sequence[str]]) -> float:
        """The part of the question that occurs in a passage, in [0, 1].

        The work is that of the passage alone: a long question is not gone through for every passage.
        """
        words = {term for terms in held for term in terms}
        pairs = {pair for terms in held for pair in pairwise(terms)}
        total = _UNIGRAM * self.words.total() + _BIGRAM * self.pairs.total()
        found = _UNIGRAM * sum(self.words[term] for term in words if term in self.words)
        found += _BIGRAM * sum(self.pairs[pair] for pair in pairs if pair in self.pairs)
        return found / total if total else 0.0
