"""Fusion: merge several rankings of one question into one.

Every method keeps each source's raw score and rank, and breaks ties by chunk id. Scores can be compared only within one
fused ranking.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

from retrievers.core.ranking import new_tuple, sort_by_score
from retrievers.core.types import Chunk, ChunkId, Hit

Rankings = Mapping[str, Sequence[Hit]]
PAGE_SIZE = 10
"""Default number of hits per page."""
RANK_OFFSET = 60.0
"""Rank offset k of reciprocal rank fusion, as in the paper."""

LEXICAL_WEIGHT = 0.6
FOREIGN_WEIGHT = 0.95
_COSINE_SCALE = 3.5
_LEAST, _MOST = 0.3, 0.8
# About BM25's drop from the best score to the tenth, as a share of the best. It is near 0.35 for questions of common
# words; `lexical_weight` rises with the excess over `_USUAL_MARGIN`.
_SHAPE_RANK, _USUAL_MARGIN, _MARGIN_SLOPE = 10, 0.6, 1.5
_USUAL_DEPTH = 100
_PARTS = attrgetter("component_scores")

SOFT_BOOST = 0.5
"""Maximum boost of a hit that satisfies a likely constraint, in units of the best hit's score.

nDCG@10 on the sample's questions with every condition treated as likely only: 0.582 without a boost, 0.657 with 0.25,
0.705 with 0.5, 0.763 with 1. With a wrong likely condition added to every question: 0.822 without a boost, 0.788 with
0.5, 0.754 with 0.75, 0.693 with 1. With 0.5, a condition that is right half of the time gains more than it loses.
"""


class FusedHit(NamedTuple):
    """A chunk in a fused ranking, with the score and rank that each source gave it.

    Attributes:
        score: the score that the ranking is sorted by: the fused score, or a reranker's.
        fused_score: the fused score, also after reranking.
        scores, ranks: each source's raw score and rank; `scores` also holds a reranker's score.
        part: number of the question's part that the hit belongs to, see `interleave_rankings`; equal for all its hits.
        boost: what `boost_hits` added, in units of the best hit's score, so that a reranker can add it again.
    """

    id: ChunkId
    score: float
    fused_score: float
    scores: Mapping[str, float]
    ranks: Mapping[str, int]
    chunk: Chunk | None = None
    part: int = 0
    boost: float = 0.0


def convex_combination(rankings: Rankings, *, lexical_weight: float) -> list[FusedHit]:
    """Return one ranking by the weighted sum of scores, each min-max normalised to [0, 1] within its source.

    Args:
        rankings: hits by source, best first. The other sources share the weight that `fulltext` leaves.
        lexical_weight: weight of `fulltext`, in [0, 1].
    Returns:
        One entry per chunk; a source that did not return the chunk counts as 0.
    Raises:
        ValueError: the weight is outside [0, 1].
    Source:
        Bruch, Gai, Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", TOIS 2023,
        doi:10.1145/3596512.
    """
    if not 0 <= lexical_weight <= 1:
        raise ValueError(f"lexical_weight is {lexical_weight}, outside [0, 1]")
    return weighted_sum(rankings, weights={"fulltext": lexical_weight})


def merge_by_scale(rankings: Rankings) -> Rankings:
    """Merge rankings whose scores are on the same scale; return the hits by scale, best first.

    So BM25 scores from two sources are compared with each other. `Hit.component_scores` holds a hit's score on each
    scale; a hit without parts was scored on the scale of its own source. A merged ranking is cut to the length of the
    longest given ranking (at least `_USUAL_DEPTH`), as if one source held all documents.

    A folder scores by full text and by vectors. If of these only full text was also searched in the database, the
    folder's vector scores are dropped, because no stored document has such a score to compare with.
    """
    if not any(any(map(_PARTS, hits)) for hits in rankings.values()):
        return rankings
    joint: dict[str, list[Hit]] = {}
    measured = {
        source: {name for hit in hits for name in hit.component_scores or ()} for source, hits in rankings.items()
    }
    plain = {source for source, names in measured.items() if not names}
    for source, hits in rankings.items():
        counted = (measured[source] & plain) or measured[source] or {source}
        for hit in hits:
            parts = hit.component_scores or {source: hit.score}
            for measure in counted & parts.keys():
                joint.setdefault(measure, []).append(hit._replace(score=parts[measure]))
    depth = max(_USUAL_DEPTH, *map(len, rankings.values()))
    return {name: sort_by_score(hits)[:depth] for name, hits in joint.items()}


def reciprocal_rank_fusion(rankings: Rankings, *, k: float = RANK_OFFSET) -> list[FusedHit]:
    """Sum 1 / (k + rank) over the sources, so that only the order counts.

    Args:
        k: rank offset, in ranks, > 0; a larger offset flattens the top of each list.
    Raises:
        ValueError: `k` is not positive.
    Source:
        Cormack, Clarke, Buettcher, SIGIR 2009, doi:10.1145/1571941.1572114.
    """
    if k <= 0:
        raise ValueError(f"k is {k}; it must be positive")
    measures = merge_by_scale(rankings)
    return _summed(rankings, measures, lambda source, hits: [1 / (k + rank) for rank in range(1, len(hits) + 1)])


def weighted_sum(rankings: Rankings, *, weights: Mapping[str, float]) -> list[FusedHit]:
    """Sum min-max normalised scores with fixed weights.

    Args:
        weights: weight by source, in sum at most 1. Sources that are not in it share what is left of 1 evenly. The
            weight of a source without hits goes to the other sources, in proportion to their weights.
    """
    measures = merge_by_scale(rankings)
    present = [source for source in measures if measures[source]]
    unnamed = [source for source in present if source not in weights]
    rest = max(1 - math.fsum(weights.values()), 0.0)
    shares = {source: weights[source] if source in weights else rest / len(unnamed) for source in present}
    total = math.fsum(shares.values())
    if not total:
        # None of these sources has a weight: weigh them equally, so that their order still counts.
        shares, total = dict.fromkeys(present, 1.0), float(len(present))
    return _summed(rankings, measures, lambda source, hits: _min_max(hits, shares[source] / total))


def fuse_searches(
    fused: Sequence[Sequence[FusedHit]], *, weights: Sequence[float] | None = None, k: float | None = None
) -> list[FusedHit]:
    """Merge the rankings of several searches of one question, each already fused over its sources, into one.

    Their scores lie in [0, 1] and are summed; with `k`, reciprocal ranks are summed instead. nDCG@10 with
    a model's searches is 0.958 by scores and 0.947 by ranks on PEPs, 0.94 and 0.77 on the sample: by ranks, a chunk in
    the middle of every list beats one that clearly leads a single list. A single ranking is returned unchanged. Each
    chunk keeps the best of its raw scores and ranks.

    Args:
        weights: one weight per search, by which its scores are multiplied; None weighs all equally.
        k: offset of reciprocal ranks, in ranks; None sums scores.
    Raises:
        ValueError: the number of weights differs from the number of searches.
    Source:
        Fox, Shaw, "Combination of Multiple Searches" (CombSUM), TREC-2, 1994.
    """
    if len(fused) == 1:
        return list(fused[0])
    weights = [1.0] * len(fused) if weights is None else weights
    shares: dict[ChunkId, list[float]] = {}
    merged: dict[ChunkId, FusedHit] = {}
    for ranking, weight in zip(fused, weights, strict=True):
        for rank, item in enumerate(ranking, 1):
            share = item.score if k is None else 1 / (k + rank)
            shares.setdefault(item.id, []).append(weight * share)
            known = merged.get(item.id)
            merged[item.id] = _better(known, item) if known else item
    totals = {id: math.fsum(held) for id, held in shares.items()}
    found = [FusedHit(id, totals[id], totals[id], one.scores, one.ranks, one.chunk) for id, one in merged.items()]
    return sort_by_score(found)


def boost_hits(
    ranking: Sequence[FusedHit], soft_hits: Sequence[FusedHit], *, weight: float = SOFT_BOOST
) -> list[FusedHit]:
    """Raise the scores of the hits that satisfy the likely constraints; no hit is left out.

    Each likely hit gains `weight` * best score of `ranking` * (its score / best score of `soft_hits`): hits that also
    answer well are raised most, hits that hardly answer stay behind.

    Args:
        soft_hits: ranking of the hits that satisfy the constraints, by the same searches, best first.
    Returns:
        The hits of both rankings, best first; `scores["boost"]` is the score added.
    """
    unit = max((one.score for one in ranking), default=0.0) or 1.0
    best = max((one.score for one in soft_hits), default=0.0) or 1.0
    added = {one.id: weight * unit * one.score / best for one in soft_hits}
    known = {one.id for one in ranking}
    more = (one._replace(score=0.0, fused_score=0.0) for one in soft_hits if one.id not in known)
    raised = []
    for hit in (*ranking, *more):
        score = hit.score + added.get(hit.id, 0.0)
        scores = {**hit.scores, "boost": round(added[hit.id], 6)} if hit.id in added else hit.scores
        share = added.get(hit.id, 0.0) / unit
        raised.append(hit._replace(score=score, fused_score=score, scores=scores, boost=share))
    return sort_by_score(raised)


def interleave_rankings(rankings: Sequence[Sequence[FusedHit]], *, distinct_places: int = PAGE_SIZE) -> list[FusedHit]:
    """Merge rankings for different parts of a question so that each part gets its share of the first places.

    The rankings take turns: each gives its best hit that has not been given yet. So a part of the question with many
    passages cannot push another part off the page.

    Args:
        distinct_places: number of first places in which a document appears only once, unless the ranking whose turn it
            is has no other document. With 10 such places, recall at 10 of multi-part questions was 0.86 instead of
            0.80.
    Returns:
        Every chunk once, with the best raw scores and ranks of all rankings. Scores of different rankings cannot be
        compared, so `score` is lowered to at most that of the hit before; `fused_score` is the score in its own
        ranking.
    """
    if len(rankings) == 1:
        return list(rankings[0])
    merged: dict[ChunkId, FusedHit] = {}
    for ranking in rankings:
        for item in ranking:
            known = merged.get(item.id)
            merged[item.id] = _better(known, item) if known else item
    taken: dict[ChunkId, int] = {}
    documents: set[tuple[str, str, str]] = set()
    waiting = [(number, deque(ranking)) for number, ranking in enumerate(rankings)]
    # A ranking may itself consist of several parts.
    parts: dict[tuple[int, int], int] = {}
    while any(left for _, left in waiting):
        for number, left in waiting:
            while left and left[0].id in taken:
                left.popleft()
            if not left:
                continue
            first = left[0]
            if len(taken) < distinct_places and first.id[:3] in documents:
                others = (item for item in left if item.id[:3] not in documents and item.id not in taken)
                first = next(others, first)
            taken[first.id] = parts.setdefault((number, first.part), len(parts))
            documents.add(first.id[:3])
    return cap_rising_scores([merged[id]._replace(part=part) for id, part in taken.items()])


def reorder_within_parts(ranking: Sequence[FusedHit], ordered: Sequence[FusedHit]) -> list[FusedHit]:
    """Return the hits of `ordered`, rearranged so that each part of the question keeps its places of `ranking`.

    A sort by relevance to the whole question could put all passages for one part behind those for another. So a hit
    only changes places with hits of the same part.

    Args:
        ordered: hits of `ranking` in the wanted order; some may be missing.
    """
    if len({hit.part for hit in ranking}) < 2:
        return list(ordered)
    waiting: dict[int, list[FusedHit]] = {}
    for hit in reversed(ordered):
        waiting.setdefault(hit.part, []).append(hit)
    return cap_rising_scores([waiting[hit.part].pop() for hit in ranking if waiting.get(hit.part)])


def cap_rising_scores(ordered: Iterable[FusedHit]) -> list[FusedHit]:
    """Lower scores so that none exceeds the score of the hit before it."""
    lowest = math.inf
    falling = []
    for hit in ordered:
        lowest = min(hit.score, lowest)
        falling.append(hit if hit.score == lowest else hit._replace(score=lowest))
    return falling


def _better(one: FusedHit, other: FusedHit) -> FusedHit:
    scores = {s: max(one.scores.get(s, -1e30), other.scores.get(s, -1e30)) for s in {**one.scores, **other.scores}}
    ranks = {s: min(one.ranks.get(s, 10**9), other.ranks.get(s, 10**9)) for s in {**one.ranks, **other.ranks}}
    raised = max(one.boost, other.boost)
    return FusedHit(one.id, one.score, one.fused_score, scores, ranks, one.chunk or other.chunk, boost=raised)


def _min_max(hits: Sequence[Hit], weight: float) -> list[float]:
    low, high = hits[-1].score, hits[0].score
    if high - low <= 1e-12:
        return [weight] * len(hits)
    return [weight * (hit.score - low) / (high - low) for hit in hits]


def _summed(
    rankings: Rankings, measures: Rankings, contributions: Callable[[str, Sequence[Hit]], list[float]]
) -> list[FusedHit]:
    """Return one ranking of all chunks, each scored by the sum of its contributions from all scales.

    Args:
        rankings: the hits by source, from which `ranks` takes the source that found a hit.
        measures: the rankings as merged by `merge_by_scale`, by scale.
        contributions: returns one contribution per hit, for the name of a scale and its hits.
    """
    # By chunk id: its contributions, scores, ranks and text.
    found: dict[ChunkId, tuple[list[float], dict[str, float], dict[str, int], Chunk | None]] = {}
    # Fixed order of sources and exact sums, so that equal scores are equal whichever source contributed what.
    for source in sorted(measures):
        hits = measures[source]
        if not hits:
            continue
        for rank, (hit, share) in enumerate(zip(hits, contributions(source, hits), strict=True), 1):
            id, score, _, chunk, _, _ = hit
            known = found.get(id)
            if known is None:
                found[id] = [share], {source: score}, {source: rank}, chunk
            else:
                shares, scores, ranks, text = known
                shares.append(share)
                scores[source], ranks[source] = score, rank
                if text is None and chunk is not None:
                    found[id] = shares, scores, ranks, chunk
    for source, hits in rankings.items() if measures is not rankings else ():
        for rank, hit in enumerate(hits, 1):
            if hit.component_scores and hit.id in found:
                # Record the source that found the hit, since the measure's name does not say which source it was.
                _, scores, ranks, _ = found[hit.id]
                scores[source] = hit.score
                ranks.clear()
                ranks[source] = rank
    ranking: list[FusedHit] = []
    for id, (shares, scores, ranks, chunk) in found.items():
        total = math.fsum(shares)
        ranking.append(new_tuple(FusedHit, (id, total, total, scores, ranks, chunk, 0, 0.0)))
    return sort_by_score(ranking)


def lexical_weight(language: str, rankings: Rankings, *, languages: frozenset[str] | None) -> float:
    """Return the weight of full text for one question.

    If the embedder does not know the question's language, its cosines say little: full text gets `FOREIGN_WEIGHT`.
    Otherwise full text and vectors are weighted by the spread between their best and last score: a ranking of nearly
    equal scores separates little, and min-max would hide that. BM25's spread is relative to its best score; the
    cosine's is multiplied by `_COSINE_SCALE`. Full text gets more weight if BM25's best score is far above its tenth,
    as for an exact name or number. Too few hits give `LEXICAL_WEIGHT`.

    nDCG@10, in brackets with the best fixed weight for that collection out of 0, 0.05, ... 1: SciFact 0.741 (0.738),
    its training claims 0.741 (0.740), both without the abstract of every second document 0.656 (0.649) and 0.661
    (0.652), PEPs in English 0.560 (0.550), the sample in English 0.579 (0.581). `_COSINE_SCALE` is not critical: from
    3.25 to 3.75 no figure changes by more than 0.006. With 2.5 they are 0.742, 0.742, 0.638, 0.654, 0.548 and 0.562. It
    fits the packaged embedder; with an embedder of narrower cosines, the bounds `_LEAST` and `_MOST` keep the weight
    from ignoring full text or vectors.

    Args:
        language: language of the question.
        rankings: hits by source, best first.
        languages: languages the embedder knows, None if it knows many.
    Returns:
        A weight from 0 to 1.
    """
    if languages is not None and language not in languages:
        return FOREIGN_WEIGHT
    measured = merge_by_scale(rankings)
    lexical, near = measured.get("fulltext", ()), measured.get("vector", ())
    if len(lexical) < _SHAPE_RANK or not near:
        return LEXICAL_WEIGHT  # too few hits for the shape of the scores to mean anything
    spread = 1 - lexical[-1].score / lexical[0].score if lexical[0].score > 0 else 0.0
    spread_near = _COSINE_SCALE * (near[0].score - near[-1].score)
    if spread <= 0 or spread_near <= 0:
        return LEXICAL_WEIGHT
    weight = min(max(spread / (spread + spread_near), _LEAST), _MOST)
    margin = 1 - lexical[_SHAPE_RANK - 1].score / lexical[0].score
    return min(weight + _MARGIN_SLOPE * max(margin - _USUAL_MARGIN, 0.0), FOREIGN_WEIGHT)
