"""Hybrid reranking: lexical overlap with the question plus cosine, without a model (RAGFlow's formula)."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.lexical_overlap import lexical_overlap

TOKEN_WEIGHT = 0.7
VECTOR_WEIGHT = 0.3


@dataclass(frozen=True, slots=True)
class HybridReranker:
    """0.7 * lexical overlap + 0.3 * cosine; the cosine is the score of the source "vector", or 0.

    Source:
        RAGFlow, rag/nlp/query.py: hybrid_similarity.
    """

    name: str = "hybrid"
    is_remote: bool = False
    is_comparable: bool = True

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return scores in [0, 1], see `Reranker.rerank`."""
        # In a thread: analysing a pool takes tens of milliseconds, which would block the event loop.
        shares = await asyncio.to_thread(lexical_overlap, question, language, pool)
        cosines = (min(max(hit.scores.get("vector", 0.0), 0.0), 1.0) for hit in pool)
        return [TOKEN_WEIGHT * share + VECTOR_WEIGHT * cosine for share, cosine in zip(shares, cosines, strict=True)]

    async def aclose(self) -> None:
        """Do nothing: there are no resources to release."""
