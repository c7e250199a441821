"""Hybrid rerank: words in common with the question and cosine, without a model (RAGFlow's formula)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from agent.retrieval.fusion import Fused
from agent.retrieval.rerank.overlap import overlap

TOKEN_WEIGHT = 0.7
VECTOR_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class Hybrid:
    """0.7 x lexical overlap + 0.3 x cosine, which is the score of the source "vector", 0 without one.

    Source:
        RAGFlow, rag/nlp/query.py: hybrid_similarity.
    """

    name: str = "hybrid"
    remote: bool = False
    comparable: bool = True

    async def rerank(self, question: str, language: str, pool: Sequence[Fused], *, deadline: float) -> list[float]:
        """Scores in [0, 1], see `Reranker.rerank`."""
        # Not on the event loop: a pool is analysed for tens of milliseconds.
        shares = await asyncio.to_thread(overlap, question, language, pool)
        cosines = (min(max(hit.scores.get("vector", 0.0), 0.0), 1.0) for hit in pool)
        return [TOKEN_WEIGHT * share + VECTOR_WEIGHT * cosine for share, cosine in zip(shares, cosines, strict=True)]

    async def aclose(self) -> None:
        """There is nothing to let go of."""
