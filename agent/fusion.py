"""Fusion: several rankings of one question into one.

Every method keeps each source's raw score and rank, and orders ties by chunk id. Scores are comparable
within one fused ranking only.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from retrievers.core.types import Chunk, ChunkId, Hit

Rankings = Mapping[str, Sequence[Hit]]

RANK_OFFSET = 60.0
"""Of reciprocal ranks, as in the paper."""

LEXICAL_WEIGHT = 0.6
FOREIGN_WEIGHT = 0.95
# Measured on SciFact and CMRC: the margin of the best over the tenth lies around 0.35.
_SHAPE_RANK = 10
_USUAL_MARGIN = 0.35
_SHAPE_SLOPE = 0.6


class Fused(NamedTuple):
    """A chunk with its place in the answer and what each source said of it.

    Attributes:
        score: what it is ordered by: the fused score, or a reranker's.
        fused: the fused score, also after reranking.
        scores, ranks: each source's own, and a reranker's score.
    """

    id: ChunkId
    score: float
    fused: float
    scores: Mapping[str, float]
    ranks: Mapping[str, int]
    chunk: Chunk | None = None


def convex(rankings: Rankings, *, lexical_weight: float) -> list[Fused]:
    """Weighted sum of scores brought to [0, 1] per source and question (min-max).

    Args:
        rankings: per source, best first. `fulltext` is the lexical side; all others share the rest.
        lexical_weight: share of the lexical side, in [0, 1].
    Returns:
        One entry per chunk; a chunk that a source did not return has 0 of that source.
    Raises:
        ValueError: the weight is outside [0, 1].
    Source:
        Bruch, Gai, Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", TOIS 2023,
        doi:10.1145/3596512.
    """
    if not 0 <= lexical_weight <= 1:
        raise ValueError(f"lexical_weight is {lexical_weight}, outside [0, 1]")
    others = [source for source in rankings if source != "fulltext" and rankings[source]]
    present = {source for source in rankings if rankings[source]}
    weights = {source: (1 - lexical_weight) / len(others) for source in others}
    weights["fulltext"] = lexical_weight
    # A source that found nothing leaves its share to the others.
    total = sum(weights[source] for source in present)
    if not total:
        weights, total = dict.fromkeys(present, 1.0), float(len(present))
    return _summed(rankings, lambda source, hits: _min_max(hits, weights[source] / total))


def reciprocal_rank(rankings: Rankings, *, k: float = RANK_OFFSET) -> list[Fused]:
    """Sum of 1 / (k + rank) over the sources: only order counts.

    Args:
        k: rank offset, in ranks, > 0; a larger one flattens the top of each list.
    Raises:
        ValueError: `k` is not positive.
    Source:
        Cormack, Clarke, Buettcher, SIGIR 2009, doi:10.1145/1571941.1572114.
    """
    if k <= 0:
        raise ValueError(f"k is {k}, it must be positive")
    return _summed(rankings, lambda source, hits: [1 / (k + rank) for rank in range(1, len(hits) + 1)])


def weighted_sum(rankings: Rankings, *, weights: Mapping[str, float]) -> list[Fused]:
    """Weighted sum of min-max scores with one fixed weight per source (RAGFlow: 0.05 text, 0.95 vector)."""
    return _summed(rankings, lambda source, hits: _min_max(hits, weights.get(source, 0.0)))


def fuse_searches(
    fused: Sequence[Sequence[Fused]], *, weights: Sequence[float] | None = None, k: float | None = None
) -> list[Fused]:
    """Second stage: the rankings of several searches of one question into one.

    Scores of the first stage lie in [0, 1] and are summed; with `k` reciprocal ranks are summed instead. Measured on
    questions with a model's searches, nDCG@10 0.958 by scores and 0.947 by ranks (PEPs), 0.94 and 0.77 (sample): by
    rank, what stands somewhere in every list wins over what clearly leads in one. One search is returned as it is. Of
    the raw scores and ranks of a chunk the best are kept.

    Args:
        weights: one per search, by which its shares are multiplied; all the same when None.
        k: offset of reciprocal ranks, in ranks; None sums scores.
    Raises:
        ValueError: there are not as many weights as searches.
    Source:
        Fox, Shaw, "Combination of Multiple Searches" (CombSUM), TREC-2, 1994.
    """
    if len(fused) == 1:
        return list(fused[0])
    weights = [1.0] * len(fused) if weights is None else weights
    shares: dict[ChunkId, list[float]] = {}
    merged: dict[ChunkId, Fused] = {}
    for ranking, weight in zip(fused, weights, strict=True):
        for rank, item in enumerate(ranking, 1):
            share = item.score if k is None else 1 / (k + rank)
            shares.setdefault(item.id, []).append(weight * share)
            known = merged.get(item.id)
            merged[item.id] = _better(known, item) if known else item
    totals = {id: math.fsum(held) for id, held in shares.items()}
    found = [Fused(id, totals[id], totals[id], one.scores, one.ranks, one.chunk) for id, one in merged.items()]
    return sorted(found, key=_order)


def take_turns(rankings: Sequence[Sequence[Fused]]) -> list[Fused]:
    """Rankings of different things asked for into one in which each has its share of every top.

    They take turns: each gives its best hit that none has given yet. So no part of a question is pushed off the page
    by another one that more passages speak of.

    Returns:
        Every chunk once, with the best raw scores and ranks of all its rankings. Scores of different rankings cannot
        be compared, so `score` is never more than that of the hit before; `fused` is what its own ranking gave.
    """
    if len(rankings) == 1:
        return list(rankings[0])
    merged: dict[ChunkId, Fused] = {}
    for ranking in rankings:
        for item in ranking:
            known = merged.get(item.id)
            merged[item.id] = _better(known, item) if known else item
    taken: dict[ChunkId, None] = {}
    waiting = [iter(ranking) for ranking in rankings]
    while waiting:
        for turn in list(waiting):
            fresh = next((item.id for item in turn if item.id not in taken), None)
            if fresh is None:
                waiting.remove(turn)
            else:
                taken[fresh] = None
    lowest, ordered = math.inf, []
    for id in taken:
        lowest = min(lowest, merged[id].score)
        ordered.append(merged[id]._replace(score=lowest))
    return ordered


def _better(one: Fused, other: Fused) -> Fused:
    scores = {s: max(one.scores.get(s, -1e30), other.scores.get(s, -1e30)) for s in {**one.scores, **other.scores}}
    ranks = {s: min(one.ranks.get(s, 10**9), other.ranks.get(s, 10**9)) for s in {**one.ranks, **other.ranks}}
    return Fused(one.id, one.score, one.fused, scores, ranks, one.chunk or other.chunk)


def _min_max(hits: Sequence[Hit], weight: float) -> list[float]:
    low, high = hits[-1].score, hits[0].score
    if high - low <= 1e-12:
        return [weight] * len(hits)
    return [weight * (hit.score - low) / (high - low) for hit in hits]


def _summed(rankings: Rankings, contributions: Callable[[str, Sequence[Hit]], list[float]]) -> list[Fused]:
    found: dict[ChunkId, tuple[list[float], dict[str, float], dict[str, int], Chunk | None]] = {}
    # Sources in a fixed order, and exact sums: equal scores must be equal, whoever gave which share.
    for source in sorted(rankings):
        hits = rankings[source]
        if not hits:
            continue
        for rank, (hit, share) in enumerate(zip(hits, contributions(source, hits), strict=True), 1):
            known = found.get(hit.id)
            if known is None:
                found[hit.id] = ([share], {source: hit.score}, {source: rank}, hit.chunk)
            else:
                shares, scores, ranks, chunk = known
                shares.append(share)
                scores[source], ranks[source] = hit.score, rank
                found[hit.id] = (shares, scores, ranks, chunk or hit.chunk)
    ranking = []
    for id, (shares, scores, ranks, chunk) in found.items():
        total = math.fsum(shares)
        ranking.append(Fused(id, total, total, scores, ranks, chunk))
    ranking.sort(key=_order)
    return ranking


def _order(item: Fused) -> tuple[float, ChunkId]:
    return (-item.score, item.id)


def lexical_weight(language: str, rankings: Rankings, *, languages: frozenset[str] | None) -> float:
    """Share of full text for one question.

    Vectors that do not know the question's language say little; and full text is trusted the more, the
    further its best passage stands above the tenth, which is what rare and exact words look like.

    Args:
        languages: those the embedder knows, None when it knows many.
    """
    if languages is not None and language not in languages:
        return FOREIGN_WEIGHT
    hits = rankings.get("fulltext", ())
    if len(hits) < _SHAPE_RANK or hits[0].score <= 0:
        return LEXICAL_WEIGHT
    margin = 1 - hits[_SHAPE_RANK - 1].score / hits[0].score
    return min(max(LEXICAL_WEIGHT + _SHAPE_SLOPE * (margin - _USUAL_MARGIN), 0.3), FOREIGN_WEIGHT)
