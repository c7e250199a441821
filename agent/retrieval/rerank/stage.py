"""The rerank stage: the pool in the order of a reranker, or as it was when there is none in time.

A reranker can only improve an answer, so whatever is wrong with it, the fused order stands and is said to.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from agent.llm.breaker import Breaker
from agent.llm.model import ModelFailed, no_answer
from agent.retrieval.fusion import Fused, in_turns, never_rising
from agent.retrieval.rerank.base import Reranker, check_scores, normalised, ordered
from agent.retrieval.rerank.overlap import overlap
from retrievers.core.errors import Unavailable
from retrievers.core.tasks import within
from retrievers.core.types import ChunkId

_log = logging.getLogger(__name__)
# Without a handler of the program's own, the lines would go to stderr as they are.
_log.addHandler(logging.NullHandler())

# A reranker that stops by itself at the deadline may do so a little before it.
_SLACK_S = 0.05


@dataclass(frozen=True, slots=True)
class Reranking:
    """What a reranker made of the pool, for the record.

    Attributes:
        by: its name.
        scores: of the pool, as it gave them; empty when it gave none.
        error: why it gave none.
        minimum: the score below which hits were left out; None when that was not asked for or could not be done.
        left_out: how many hits have gone for the minimum.
        degraded: what the answer is to say of it.
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
class Patience:
    """How long a reranker is waited for, and what its failures count.

    Attributes:
        given_s: for this question.
        patience_s: how long it must have been silent to count as failed: a caller in a hurry must not open the
            breaker, which is everybody's.
    """

    given_s: float
    patience_s: float
    breaker: Breaker


async def rerank(
    reranker: Reranker,
    question: str,
    language: str,
    ranking: Sequence[Fused],
    patience: Patience,
    *,
    pool: int,
    minimum: float | None = None,
    blend: float = 0.0,
) -> tuple[list[Fused], Reranking]:
    """The ranking with its first hits in the reranker's order, the parts of the question still in turns.

    What is likely meant is raised here as in the fused ranking, see `agent.retrieval.fusion.boost`. Scores never rise:
    those of hits that were not judged are at most the lowest that was given.

    Args:
        ranking: the fused one, not empty; chunks of the pool are loaded.
        pool: how many of the first hits are judged.
        blend: share of the lexical overlap in the scores, in [0, 1].
        minimum: hits with a lower score are left out, and with them those that were not judged. It applies to
            scores that mean the same for every question; where they turn out not to, nothing is left out.
    """
    judged = ranking[:pool]
    try:
        scores = await _scores(reranker, question, language, judged, patience)
    except Unavailable as error:
        _log.warning("the hits were not reranked: %s", error)
        failed = Reranking(
            reranker.name, question, reranker.comparable, error=error.reason, degraded=("rerank_unavailable",)
        )
        return list(ranking), failed
    given = {hit.id: score for hit, score in zip(judged, scores, strict=True)}
    done = Reranking(reranker.name, question, reranker.comparable, given)
    is_comparable = reranker.comparable and all(0 <= score <= 1 for score in scores)
    if blend:
        # Not on the event loop: a pool is analysed for tens of milliseconds.
        words = await asyncio.to_thread(overlap, question, language, judged)
        scores = [blend * word + (1 - blend) * one for word, one in zip(words, normalised(scores), strict=True)]
    first = _boosted(ordered(judged, scores))
    whole = never_rising([*in_turns(judged, first), *ranking[pool:]])
    if minimum is None:
        return whole, done
    if not is_comparable:
        return whole, replace(done, degraded=("rerank_not_comparable",))
    kept = [hit for hit in first if hit.scores["rerank"] >= minimum]
    degraded = () if kept else ("all_below_min_score",)
    return in_turns(judged, kept), replace(done, minimum=minimum, left_out=len(whole) - len(kept), degraded=degraded)


def _boosted(judged: Sequence[Fused]) -> list[Fused]:
    """The hits with the boosts of the fused ranking, in scores of the reranker's best; its own score stays "rerank"."""
    unit = max((hit.score for hit in judged), default=0.0) or 1.0
    raised = [
        hit._replace(score=hit.score + hit.boost * unit, scores={**hit.scores, "boost": round(hit.boost * unit, 6)})
        if hit.boost
        else hit
        for hit in judged
    ]
    return sorted(raised, key=lambda hit: -hit.score)


async def _scores(
    reranker: Reranker, question: str, language: str, pool: Sequence[Fused], patience: Patience
) -> list[float]:
    """What the reranker says, if it says something usable in time; its breaker is told."""
    source = f"the reranker {reranker.name}"
    if not patience.breaker.admit():
        raise Unavailable(source, "it failed too often lately; it is tried again soon")
    deadline = time.monotonic() + patience.given_s
    works: bool | None = None
    try:
        scores = await within(reranker.rerank(question, language, pool, deadline=deadline), patience.given_s)
        check_scores(scores, len(pool), source)
        works = True
    except (Unavailable, TimeoutError, OSError) as error:
        late = time.monotonic() > deadline - _SLACK_S
        says_nothing = isinstance(error, ModelFailed) and error.fault == "answer"
        works = None if says_nothing or (late and patience.given_s < patience.patience_s) else False
        if isinstance(error, Unavailable):
            raise
        if isinstance(error, TimeoutError):
            raise Unavailable(source, no_answer(patience.given_s)) from None
        # Its text may name addresses.
        raise Unavailable(source, f"the connection failed ({type(error).__name__})") from error
    finally:
        patience.breaker.ended(works)
    return scores
