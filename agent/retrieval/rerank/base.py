"""What the rerankers share: the protocol, the text they judge, and how their scores are read and used."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from agent.retrieval.fusion import Fused
from retrievers.core.errors import Unavailable
from retrievers.http.found import number, part, records

MOST_CHARACTERS = 8_000
"""Of a passage as it is sent to a server: more than any of its models reads."""
MOST_TOTAL_CHARACTERS = 100_000
"""Of all passages of one call together: to analyse them takes a third of a second of processor."""
_LEAST_SPAN = 1e-3


class Reranker(Protocol):
    """Judges how well passages answer a question. `open_reranker` builds one module per kind."""

    @property
    def name(self) -> str:
        """As the setting names it; holds no secret."""
        ...

    @property
    def remote(self) -> bool:
        """Whether it asks somebody outside this process, who sees the question and the passages."""
        ...

    @property
    def comparable(self) -> bool:
        """Whether a score in [0, 1] means the same for every question, so that a minimum can be set."""
        ...

    async def rerank(self, question: str, language: str, pool: Sequence[Fused], *, deadline: float) -> list[float]:
        """One score per hit, in the order of the pool; higher is better, comparable within the pool.

        Args:
            language: of the question, ISO 639-1.
            pool: not empty, best first by the fused score, chunks loaded.
            deadline: moment of `time.monotonic()` after which nobody waits for the answer.
        Raises:
            Unavailable: it cannot judge now.
        """
        ...

    async def aclose(self) -> None:
        """Let go of connections and threads."""
        ...


def passage(hit: Fused) -> str:
    """What a reranker reads of a hit: title, headings and text, a line each."""
    chunk = hit.chunk
    assert chunk is not None
    return "\n".join(filter(None, (chunk.title, chunk.heading, chunk.text)))


def cut_longest(texts: Sequence[str], total: int = MOST_TOTAL_CHARACTERS) -> list[str]:
    """The texts with at most `total` characters together: the longest are cut, to one length."""
    most = most_each([len(text) for text in texts], total)
    return [text[:most] for text in texts]


def most_each(sizes: Sequence[int], total: int) -> int:
    """The size to which the largest must be cut so that all together have at most `total`."""
    left = total
    for place, size in enumerate(sorted(sizes)):
        share = left // (len(sizes) - place)
        if size > share:
            return share
        left -= size
    return max(sizes, default=0)


def sigmoid(logit: float) -> float:
    """The logit as a probability; NaN for one that is not finite."""
    if not math.isfinite(logit):
        return math.nan
    return 1 / (1 + math.exp(-logit)) if logit > -700 else 0.0


def normalised(scores: Sequence[float]) -> list[float]:
    """The scores in [0, 1]: as they are when all lie there, else by min-max; clipped when they hardly differ.

    Source:
        RAGFlow, rag/llm/rerank_model.py: _normalize_rank.
    """
    low, high = min(scores, default=0.0), max(scores, default=0.0)
    if low >= 0 and high <= 1:
        return list(scores)
    if high - low < _LEAST_SPAN:
        return [min(max(score, 0.0), 1.0) for score in scores]
    return [(score - low) / (high - low) for score in scores]


def ordered(pool: Sequence[Fused], scores: Sequence[float]) -> list[Fused]:
    """The pool by score, ties by the fused score, then by id; each hit with its normalised score as "rerank"."""
    judged = sorted(
        zip(pool, scores, normalised(scores), strict=True), key=lambda one: (-one[1], -one[0].fused, one[0].id)
    )
    return [hit._replace(score=shown, scores={**hit.scores, "rerank": shown}) for hit, _, shown in judged]


def scores_in(answer: object, count: int, source: str) -> list[float]:
    """The scores of a server's answer, in the order of the passages that were sent.

    Args:
        answer: a list of objects with `index` and `relevance_score` or `score`, or an object that holds such a
            list as `results` or `data`.
        count: passages that were sent.
        source: for errors.
    Raises:
        Unavailable: not of that form, or not exactly one finite score for every passage.
    """
    listed = answer if isinstance(answer, list) else part(answer, "results") or part(answer, "data")
    if not isinstance(listed, list):
        raise Unavailable(source, "its answer holds no list of scores")
    scores: dict[int, float] = {}
    for one in records(listed, count + 1):
        index, score = one.get("index"), number(_first(one, "relevance_score", "score"))
        if isinstance(index, bool) or not isinstance(index, int) or not 0 <= index < count or index in scores:
            raise Unavailable(source, "its answer numbers the passages in another way than they were sent")
        if score is None:
            raise Unavailable(source, "its answer holds a score that is no finite number")
        scores[index] = score
    if len(scores) != count:
        raise Unavailable(source, f"its answer holds {len(scores)} scores for {count} passages")
    return [scores[index] for index in range(count)]


def check_scores(scores: Sequence[float], count: int, source: str) -> None:
    """Raise Unavailable unless there are `count` scores and every one is finite."""
    if len(scores) != count:
        raise Unavailable(source, f"it gave {len(scores)} scores for {count} passages")
    if not all(math.isfinite(score) for score in scores):
        raise Unavailable(source, "it gave a score that is no finite number")


def _first(found: Mapping[str, Any], *keys: str) -> Any:
    return next((found[key] for key in keys if key in found), None)
