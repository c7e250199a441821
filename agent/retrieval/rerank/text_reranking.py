"""Rerank texts that a caller sends, rather than hits of a search."""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.hybrid import VECTOR_WEIGHT, HybridReranker
from agent.retrieval.rerank.reordering import RerankLimits, rerank
from agent.retrieval.rerank.reranker import MOST_CHARACTERS, Reranker, truncate_longest, truncation_limit
from retrievers.core.circuit_breakers import CircuitBreaker
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.types import Chunk, ChunkId
from retrievers.embed import Embedder
from retrievers.text.languages import detect_language

MOST_FOR_A_MODEL = 64
"""Maximum number of texts for a language model, which reads each text several times."""
MOST_EMBEDDED = 32
"""Maximum number of texts for which a cosine is computed."""
MOST_EMBEDDED_PIECES = 1500
"""Maximum pieces (`_PIECE`, about a token each) to embed in all texts together. One takes some 0.2 ms of CPU time."""
_EAST_ASIAN = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f"
_PIECE = re.compile(rf"[^\W\d_{_EAST_ASIAN}]{{1,4}}|\S")


@dataclass(frozen=True, slots=True)
class RerankedTexts:
    """The result of reranking texts.

    Attributes:
        by: the reranker's name.
        ranked: (index of the text, score in [0, 1]), best first, ties by index.
    """

    by: str
    ranked: tuple[tuple[int, float], ...]


@dataclass(frozen=True, slots=True)
class TextHybridReranker(HybridReranker):
    """`HybridReranker` for texts without stored vectors.

    It embeds the `MOST_EMBEDDED` texts with the best word overlap; the others get cosine 0.
    """

    embedder: Embedder | None = None

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return scores in [0, 1], see `Reranker.rerank`."""
        scores = await HybridReranker.rerank(self, question, language, pool, deadline=deadline)
        if self.embedder is None:
            return scores
        best = sorted(range(len(pool)), key=lambda place: (-scores[place], place))[:MOST_EMBEDDED]
        texts = [hit.chunk.text[:MOST_CHARACTERS] for place in best if (hit := pool[place]).chunk is not None]
        beginnings = await asyncio.to_thread(_beginnings, texts, MOST_EMBEDDED_PIECES)
        cosines = await self.embedder.embed(beginnings) @ await self.embedder.embed_query(question)
        for place, cosine in zip(best, cosines, strict=True):
            scores[place] += VECTOR_WEIGHT * min(max(float(cosine), 0.0), 1.0)
        return scores


def _beginnings(texts: Sequence[str], total: int) -> list[str]:
    """Return the texts, the longest cut to one common number of pieces, so that their sum is at most `total`.

    A piece estimates a token: up to four letters, or any other single character.
    """
    ends = [[piece.end() for piece in islice(_PIECE.finditer(text), total)] for text in texts]
    most = truncation_limit([len(places) for places in ends], total)
    return [text if len(places) <= most else text[: places[most - 1]] for text, places in zip(texts, ends, strict=True)]


async def rerank_texts(
    question: str,
    texts: Sequence[str],
    reranker: Reranker | None,
    embedder: Embedder,
    breaker: CircuitBreaker,
    *,
    timeout_s: float,
    blend: float = 0.0,
) -> RerankedTexts:
    """Rank texts by how well they answer the question.

    Args:
        texts: not empty. If they exceed `MOST_TOTAL_CHARACTERS` together, the longest are cut.
        reranker: the reranker of the settings. `hybrid` is used instead of None, and instead of a learned ranker, since
            that needs the scores of a search.
        breaker: the reranker's circuit breaker.
        blend: weight of the lexical overlap in a model's scores, in [0, 1].
    Raises:
        BadRequest: there are more texts than the reranker accepts.
        Unavailable: the reranker cannot score now, or not within `timeout_s`.
    """
    if reranker is None or reranker.name in ("hybrid", "ltr") or reranker.name.startswith("ltr:"):
        reranker, blend = TextHybridReranker(embedder=embedder), 0.0
    if reranker.name == "llm" and len(texts) > MOST_FOR_A_MODEL:
        raise BadRequest(
            f"a language model reranks at most {MOST_FOR_A_MODEL} documents per request", where="documents"
        )
    ids = [ChunkId("", "", "", number) for number in range(len(texts))]
    pool = [
        FusedHit(id, 0.0, 0.0, {}, {}, Chunk(id, "", text))
        for id, text in zip(ids, truncate_longest(texts), strict=True)
    ]
    limits = RerankLimits(timeout_s, timeout_s, breaker)
    ranking, done = await rerank(
        reranker, question, detect_language(question), pool, limits, pool=len(pool), blend=blend
    )
    if done.error is not None:
        raise Unavailable(f"the reranker {done.by}", done.error)
    return RerankedTexts(done.by, tuple((hit.id.ordinal, hit.score) for hit in ranking))
