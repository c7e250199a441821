"""Reordering: sort the top hits by a reranker's scores, or keep the fused order if it fails or is late.

A reranker can only improve a result, so any failure keeps the fused order and is reported in `degraded`.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.llm.model import ModelFailed, timeout_reason
from agent.retrieval.fusion import FusedHit, cap_rising_scores, reorder_within_parts
from agent.retrieval.rerank.lexical_overlap import lexical_overlap
from agent.retrieval.rerank.reranker import Reranker, normalise_scores, sort_by_score, validate_scores
from retrievers.core.circuit_breakers import CircuitBreaker
from retrievers.core.errors import Unavailable
from retrievers.core.log_filter import RepetitionFilter
from retrievers.core.timeouts import wait_within
from retrievers.core.types import ChunkId

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())
# Without a handler configured by the program, the lines would go straight to stderr.
_log.addHandler(logging.NullHandler())

# A reranker that checks the deadline itself may stop slightly before it. Within this time its error counts as late.
_SLACK_S = 0.05


@dataclass(frozen=True, slots=True)
class RerankRecord:
    """The record of a reranking.

    Attributes:
        by: the reranker's name.
        scores: the reranker's raw scores of the pool; empty if it failed.
        error: why it failed.
        minimum: minimum score that was applied; None if none was requested or it could not be applied.
        left_out: number of hits left out because of the minimum.
        degraded: notes for the result.
    """

    by: str
    question: str
    comparable: bool
    scores: Mapping[ChunkId, float] = field(default_factory=dict)
    error: str | None = None
    minimum: float | None = None
    left_out: int = 0
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RerankLimits:
    """Time limits of a reranker, and the breaker that counts its failures.

    Attributes:
        given_s: time limit for this question.
        patience_s: a timeout counts as a failure only if the reranker had at least this long: a caller with a short
            timeout must not open the breaker, which all callers share.
    """

    given_s: float
    patience_s: float
    breaker: CircuitBreaker


async def rerank(
    reranker: Reranker,
    question: str,
    language: str,
    ranking: Sequence[FusedHit],
    limits: RerankLimits,
    *,
    pool: int,
    minimum: float | None = None,
    blend: float = 0.0,
) -> tuple[list[FusedHit], RerankRecord]:
    """Return the ranking with its top hits reranked, and the record of the reranking.

    Each part of the question keeps its places. Boosts of the fused ranking are applied again, see `fusion.boost_hits`.
    Scores never rise along the result: hits outside the pool score at most the lowest score of the pool. If the
    reranker fails, the ranking is returned unchanged.

    Args:
        ranking: the fused ranking, not empty; chunks of the pool are loaded.
        pool: number of top hits to rerank.
        blend: weight of the lexical overlap in the scores, in [0, 1].
        minimum: hits with a lower score are left out, and so are all hits outside the pool. Ignored if the scores are
            not comparable across questions.
    """
    judged = ranking[:pool]
    try:
        scores = await _scores(reranker, question, language, judged, limits)
    except Unavailable as error:
        _log.warning("the hits were not reranked: %s", error)
        failed = RerankRecord(
            reranker.name, question, reranker.is_comparable, error=error.reason, degraded=("rerank_unavailable",)
        )
        return list(ranking), failed
    given = {hit.id: score for hit, score in zip(judged, scores, strict=True)}
    done = RerankRecord(reranker.name, question, reranker.is_comparable, given)
    is_comparable = reranker.is_comparable and all(0 <= score <= 1 for score in scores)
    if blend:
        # In a thread: analysing a pool takes tens of milliseconds, which would block the event loop.
        words = await asyncio.to_thread(lexical_overlap, question, language, judged)
        scores = [blend * word + (1 - blend) * one for word, one in zip(words, normalise_scores(scores), strict=True)]
    first = _boosted(sort_by_score(judged, scores))
    whole = cap_rising_scores([*reorder_within_parts(judged, first), *ranking[pool:]])
    if minimum is None:
        return whole, done
    if not is_comparable:
        return whole, replace(done, degraded=("rerank_not_comparable",))
    kept = [hit for hit in first if hit.scores["rerank"] >= minimum]
    degraded = () if kept else ("all_below_min_score",)
    return reorder_within_parts(judged, kept), replace(
        done, minimum=minimum, left_out=len(whole) - len(kept), degraded=degraded
    )


def _boosted(judged: Sequence[FusedHit]) -> list[FusedHit]:
    """Return the hits with the fused ranking's boosts added, in units of the best score, and sorted again.

    `scores["rerank"]` stays without the boost.
    """
    unit = max((hit.score for hit in judged), default=0.0) or 1.0
    raised = [
        hit._replace(score=hit.score + hit.boost * unit, scores={**hit.scores, "boost": round(hit.boost * unit, 6)})
        if hit.boost
        else hit
        for hit in judged
    ]
    return sorted(raised, key=lambda hit: -hit.score)


async def _scores(
    reranker: Reranker, question: str, language: str, pool: Sequence[FusedHit], limits: RerankLimits
) -> list[float]:
    """Return the reranker's scores and report the outcome to its breaker.

    Raises:
        Unavailable: the breaker is open, or there are no valid scores in time.
    """
    source = f"the reranker {reranker.name}"
    if not limits.breaker.admit():
        raise Unavailable(source, "it failed too often lately; it is tried again soon")
    deadline = time.monotonic() + limits.given_s
    works: bool | None = None
    try:
        scores = await wait_within(reranker.rerank(question, language, pool, deadline=deadline), limits.given_s)
        validate_scores(scores, len(pool), source)
        works = True
    except (Unavailable, TimeoutError, OSError) as error:
        late = time.monotonic() > deadline - _SLACK_S
        says_nothing = isinstance(error, ModelFailed) and error.fault == "answer"
        works = None if says_nothing or (late and limits.given_s < limits.patience_s) else False
        if isinstance(error, Unavailable):
            raise
        if isinstance(error, TimeoutError):
            raise Unavailable(source, timeout_reason(limits.given_s)) from None
        # The error's text may contain addresses.
        raise Unavailable(source, f"the connection failed ({type(error).__name__})") from error
    finally:
        limits.breaker.record_outcome(works)
    return scores
