"""Shared by all rerankers: the protocol, the text they read, and functions that read and normalise their scores."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agent.retrieval.fusion import FusedHit
from retrievers.core.errors import Unavailable
from retrievers.http.provider_hits import finite_number, json_objects, value_at

MOST_CHARACTERS = 8_000
"""Maximum characters of a passage sent to a server; more than any of the served models reads."""
MOST_TOTAL_CHARACTERS = 100_000
"""Maximum characters of all passages of one call together; analysing them takes a third of a second of CPU time."""
_LEAST_SPAN = 1e-3


class Reranker(Protocol):
    """Scores how well passages answer a question. Each kind is a module; `open_reranker` builds it."""

    @property
    def name(self) -> str:
        """The name as in the setting, without secrets."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether the question and the passages are sent to another process or server."""
        ...

    @property
    def is_comparable(self) -> bool:
        """Whether scores in [0, 1] mean the same for every question, so that a minimum score can be set."""
        ...

    async def rerank(self, question: str, language: str, pool: Sequence[FusedHit], *, deadline: float) -> list[float]:
        """Return one score per hit, in pool order; higher is better. Scores are comparable within the pool.

        Args:
            language: ISO 639-1 code of the question.
            pool: not empty, best first by fused score, chunks loaded.
            deadline: time of `time.monotonic()` after which the scores are no longer used.
        Raises:
            Unavailable: the reranker cannot score now.
        """
        ...

    async def aclose(self) -> None:
        """Release connections and threads."""
        ...


def passage_text(hit: FusedHit) -> str:
    """Return the text of a hit that a reranker reads: title, headings and text, on separate lines."""
    chunk = hit.chunk
    assert chunk is not None
    return "\n".join(filter(None, (chunk.title, chunk.heading, chunk.text)))


def truncate_longest(texts: Sequence[str], total: int = MOST_TOTAL_CHARACTERS) -> list[str]:
    """Return the texts, the longest cut to one common length, so that all together have at most `total` characters."""
    most = truncation_limit([len(text) for text in texts], total)
    return [text[:most] for text in texts]


def truncation_limit(sizes: Sequence[int], total: int) -> int:
    """Return the common size to which the largest must be cut, so that the sum is at most `total`: [2, 9, 9], 12 -> 5.

    If nothing must be cut, it is the largest size; 0 for no sizes.
    """
    left = total
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def sigmoid(logit: float) -> float:
    """Return the logit as a probability; NaN if it is not finite."""
    if not math.isfinite(logit):
        return math.nan
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0


def normalise_scores(scores: Sequence[float]) -> list[float]:
    """Return the scores in [0, 1].

    Scores that all lie in [0, 1] are kept. Others are min-max normalised, or clipped if they hardly differ.

    Source:
        RAGFlow, rag/llm/rerank_model.py: _normalize_rank.
    """
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    if low >= 0 and high <= 1:
        return list(scores)
    if high - low < _LEAST_SPAN:
        return [min(max(score, 0.0), 1.0) for score in scores]
    return [(score - low) / (high - low) for score in scores]


def sort_by_score(pool: Sequence[FusedHit], scores: Sequence[float]) -> list[FusedHit]:
    """Return the pool sorted by score, ties by fused score, then id.

    The normalised score becomes the hit's `score` and `scores["rerank"]`.
    """
    judged = sorted(
        zip(pool, scores, normalise_scores(scores), strict=True),
        key=lambda one: (-one[1], -one[0].fused_score, one[0].id),
    )
    return [hit._replace(score=shown, scores={**hit.scores, "rerank": shown}) for hit, _, shown in judged]


def parse_scores(answer: object, count: int, source: str) -> list[float]:
    """Return the scores of a server's answer, in the order in which the passages were sent.

    Args:
        answer: a list of objects with `index` and `relevance_score` or `score`, or an object with such a list in
            `results` or `data`.
        count: number of passages sent.
        source: name for errors.
    Raises:
        Unavailable: the answer has another form, or not exactly one finite score per passage.
    """
    listed = answer if isinstance(answer, list) else value_at(answer, "results") or value_at(answer, "data")
    if not isinstance(listed, list):
        raise Unavailable(source, "its answer contains no list of scores")
    scores: dict[int, float] = {}
    for one in json_objects(listed, count + 1):
        index, score = one.get("index"), finite_number(_first(one, "relevance_score", "score"))
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count or index in scores:
            raise Unavailable(source, "its answer has a wrong or repeated passage number")
        if score is None:
            raise Unavailable(source, "its answer contains a score that is not a finite number")
        scores[index] = score
    if len(scores) != count:
        raise Unavailable(source, f"its answer contains {len(scores)} scores for {count} passages")
    return [scores[index] for index in range(count)]


def validate_scores(scores: Sequence[float], count: int, source: str) -> None:
    """Raise Unavailable unless there are exactly `count` scores and all are finite."""
    if len(scores) != count:
        raise Unavailable(source, f"it returned {len(scores)} scores for {count} passages")
    if not all(math.isfinite(score) for score in scores):
        raise Unavailable(source, "it returned a score that is not a finite number")


def _first(found: Mapping[str, Any], *keys: str) -> Any:
    return next((found[key] for key in keys if key in found), None)
