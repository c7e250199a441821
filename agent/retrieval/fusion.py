"""Fusion: several rankings of one question into one.

Every method keeps each source's raw score and rank, and orders ties by chunk id. Scores are comparable
within one fused ranking only.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from retrievers.core.ranking import best_first, new_tuple
from retrievers.core.types import Chunk, ChunkId, Hit

Rankings = Mapping[str, Sequence[Hit]]
PAGE = 10
"""Hits of a page where nothing else is asked for."""
RANK_OFFSET = 60.0
"""Of reciprocal ranks, as in the paper."""

LEXICAL_WEIGHT = 0.6
FOREIGN_WEIGHT = 0.95
_COSINE_SCALE = 3.5
_LEAST, _MOST = 0.3, 0.8
# Of BM25's best over its tenth; around 0.35 where only common words were asked for.
_SHAPE_RANK, _USUAL_MARGIN, _MARGIN_SLOPE = 10, 0.6, 1.5
_USUAL_DEPTH = 100

BOOST = 0.5
"""Most that a hit is raised by for satisfying what is only likely meant, in scores of the best hit.

nDCG@10 of the sample's questions where every condition is taken as likely only: 0.582 without a boost, 0.657 with 0.25,
0.705 with 0.5, 0.763 with 1; and where every question has a wrong likely condition beside its own: 0.822 without, 0.788
with 0.5, 0.754 with 0.75, 0.693 with 1. With 0.5 a condition that is right as often as not gains more than it loses.
"""


class Fused(NamedTuple):
    """A chunk with its place in the answer and what each source said of it.

    Attributes:
        score: what it is ordered by: the fused score, or a reranker's.
        fused: the fused score, also after reranking.
        scores, ranks: each source's own, and a reranker's score.
        part: tells the parts of a question apart that take turns, see `take_turns`; the number itself says nothing.
        boost: what `boost` has added, in scores of the best hit, so that another ranking can add it too.
    """

    id: ChunkId
    score: float
    fused: float
    scores: Mapping[str, float]
    ranks: Mapping[str, int]
    chunk: Chunk | None = None
    part: int = 0
    boost: float = 0.0


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
    return weighted_sum(rankings, weights={"fulltext": lexical_weight})


def by_measure(rankings: Rankings) -> Rankings:
    """The rankings with the hits of sources that measure as others do (`Hit.parts`) among those others' hits.

    A measure's ranking is about as deep as one source's, as if one had all documents. Where others answered by some of
    the measures only, those alone count: by the rest nothing could be compared.
    """
    if not any(hit.parts for hits in rankings.values() for hit in hits):
        return rankings
    joint: dict[str, list[Hit]] = {}
    measured = {source: {name for hit in hits for name in hit.parts or ()} for source, hits in rankings.items()}
    plain = {source for source, names in measured.items() if not names}
    for source, hits in rankings.items():
        counted = (measured[source] & plain) or measured[source] or {source}
        for hit in hits:
            parts = hit.parts or {source: hit.score}
            for measure in counted & parts.keys():
                joint.setdefault(measure, []).append(hit._replace(score=parts[measure]))
    depth = max(_USUAL_DEPTH, *map(len, rankings.values()))
    return {name: best_first(hits)[:depth] for name, hits in joint.items()}


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
    measures = by_measure(rankings)
    return _summed(rankings, measures, lambda source, hits: [1 / (k + rank) for rank in range(1, len(hits) + 1)])


def weighted_sum(rankings: Rankings, *, weights: Mapping[str, float]) -> list[Fused]:
    """Weighted sum of min-max scores with fixed weights.

    Args:
        weights: share of each source, together at most 1; the sources that are not named divide the rest evenly. A
            source that found nothing leaves its share to those that did.
    """
    measures = by_measure(rankings)
    present = [source for source in measures if measures[source]]
    unnamed = [source for source in present if source not in weights]
    rest = max(1 - math.fsum(weights.values()), 0.0)
    shares = {source: weights[source] if source in weights else rest / len(unnamed) for source in present}
    total = math.fsum(shares.values())
    if not total:
        # Without a weight among them, their own order still says more than none.
        shares, total = dict.fromkeys(present, 1.0), float(len(present))
    return _summed(rankings, measures, lambda source, hits: _min_max(hits, shares[source] / total))


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
    return best_first(found)


def boost(ranking: Sequence[Fused], likely: Sequence[Fused], *, weight: float = BOOST) -> list[Fused]:
    """The ranking with the hits raised that satisfy what is likely meant; no hit is left out.

    Each gets its place among the likely hits, in scores of the best hit, times the weight: of two that satisfy it the
    one that answers better is raised more, and one that answers little stays behind.

    Args:
        likely: the same searches' ranking of the hits that satisfy it, best first.
    Returns:
        All hits of both; `scores["boost"]` is what was added.
    """
    unit = max((one.score for one in ranking), default=0.0) or 1.0
    best = max((one.score for one in likely), default=0.0) or 1.0
    added = {one.id: weight * unit * one.score / best for one in likely}
    known = {one.id for one in ranking}
    more = (one._replace(score=0.0, fused=0.0) for one in likely if one.id not in known)
    raised = []
    for hit in (*ranking, *more):
        score = hit.score + added.get(hit.id, 0.0)
        scores = {**hit.scores, "boost": round(added[hit.id], 6)} if hit.id in added else hit.scores
        share = added.get(hit.id, 0.0) / unit
        raised.append(hit._replace(score=score, fused=score, scores=scores, boost=share))
    return best_first(raised)


def take_turns(rankings: Sequence[Sequence[Fused]], *, apart: int = PAGE) -> list[Fused]:
    """Rankings of different things asked for into one in which each has its share of every top.

    They take turns: each gives its best hit that none has given yet. So no part of a question is pushed off the page
    by another one that more passages speak of.

    Args:
        apart: places among which no document stands twice while the one whose turn it is has another to give. With
            1 of 10 places for every document, recall of multi-part questions in the first ten passages was 0.86
            instead of 0.80.
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
    taken: dict[ChunkId, int] = {}
    documents: set[tuple[str, str, str]] = set()
    waiting = [(number, deque(ranking)) for number, ranking in enumerate(rankings)]
    # A ranking may itself be of several parts.
    parts: dict[tuple[int, int], int] = {}
    while any(left for _, left in waiting):
        for number, left in waiting:
            while left and left[0].id in taken:
                left.popleft()
            if not left:
                continue
            first = left[0]
            if len(taken) < apart and first.id[:3] in documents:
                others = (item for item in left if item.id[:3] not in documents and item.id not in taken)
                first = next(others, first)
            taken[first.id] = parts.setdefault((number, first.part), len(parts))
            documents.add(first.id[:3])
    return never_rising([merged[id]._replace(part=part) for id, part in taken.items()])


def in_turns(ranking: Sequence[Fused], ordered: Sequence[Fused]) -> list[Fused]:
    """Hits of a ranking in another order, in which every part of the question keeps its turns.

    By how well they answer the question as a whole, the passages for one of its parts may all stand behind those for
    another: so a hit only changes places with others for the same part.

    Args:
        ordered: hits of the ranking, not necessarily all of them.
    """
    if len({hit.part for hit in ranking}) < 2:
        return list(ordered)
    waiting: dict[int, list[Fused]] = {}
    for hit in reversed(ordered):
        waiting.setdefault(hit.part, []).append(hit)
    return never_rising([waiting[hit.part].pop() for hit in ranking if waiting.get(hit.part)])


def never_rising(ordered: Iterable[Fused]) -> list[Fused]:
    """The hits with scores that are never more than that of the hit before."""
    lowest = math.inf
    falling = []
    for hit in ordered:
        lowest = min(hit.score, lowest)
        falling.append(hit if hit.score == lowest else hit._replace(score=lowest))
    return falling


def _better(one: Fused, other: Fused) -> Fused:
    scores = {s: max(one.scores.get(s, -1e30), other.scores.get(s, -1e30)) for s in {**one.scores, **other.scores}}
    ranks = {s: min(one.ranks.get(s, 10**9), other.ranks.get(s, 10**9)) for s in {**one.ranks, **other.ranks}}
    raised = max(one.boost, other.boost)
    return Fused(one.id, one.score, one.fused, scores, ranks, one.chunk or other.chunk, boost=raised)


def _min_max(hits: Sequence[Hit], weight: float) -> list[float]:
    low, high = hits[-1].score, hits[0].score
    if high - low <= 1e-12:
        return [weight] * len(hits)
    return [weight * (hit.score - low) / (high - low) for hit in hits]


class _Sum(NamedTuple):
    """What a chunk has from its sources."""

    shares: list[float]
    scores: dict[str, float]
    ranks: dict[str, int]
    chunk: Chunk | None


def _summed(
    rankings: Rankings, measures: Rankings, contributions: Callable[[str, Sequence[Hit]], list[float]]
) -> list[Fused]:
    """The shares of every measure added up.

    Args:
        measures: what `by_measure` makes of the rankings.
    """
    found: dict[ChunkId, _Sum] = {}
    # Sources in a fixed order, and exact sums: equal scores must be equal, whoever gave which share.
    for source in sorted(measures):
        hits = measures[source]
        if not hits:
            continue
        for rank, (hit, share) in enumerate(zip(hits, contributions(source, hits), strict=True), 1):
            known = found.get(hit.id)
            if known is None:
                found[hit.id] = new_tuple(_Sum, ([share], {source: hit.score}, {source: rank}, hit.chunk))
            else:
                known.shares.append(share)
                known.scores[source], known.ranks[source] = hit.score, rank
                if known.chunk is None and hit.chunk is not None:
                    found[hit.id] = known._replace(chunk=hit.chunk)
    for source, hits in rankings.items() if measures is not rankings else ():
        for rank, hit in enumerate(hits, 1):
            if hit.parts and hit.id in found:
                # It is this source that found it; by the measures' names alone one would not know.
                one = found[hit.id]
                one.scores[source] = hit.score
                one.ranks.clear()
                one.ranks[source] = rank
    ranking: list[Fused] = []
    for id, (shares, scores, ranks, chunk) in found.items():
        total = math.fsum(shares)
        ranking.append(new_tuple(Fused, (id, total, total, scores, ranks, chunk, 0, 0.0)))
    return best_first(ranking)


def lexical_weight(language: str, rankings: Rankings, *, languages: frozenset[str] | None) -> float:
    """Share of full text for one question.

    Vectors that do not know the question's language say little. Otherwise each side counts by how far its best passage
    stands above its last: a ranking whose scores hardly differ knows little, and min-max would hide that. BM25's
    spread is taken as a part of its best score, the cosine's as it is. Where BM25's best stands far above its tenth,
    as when an exact name or number was asked for, full text counts more.

    nDCG@10, and in brackets that of the best fixed weight of the collection itself, of 0, 0.05, ... 1: SciFact 0.741
    (0.738), its training claims 0.741 (0.740), without the abstract of every second document 0.656 (0.649) and 0.661
    (0.652), PEPs in English 0.560 (0.550), the sample in English 0.579 (0.581). The constant between BM25's relative
    spread and the cosine's is no fine tuning: from 3.25 to 3.75 none of them differs by more than 0.006. With 2.5 they
    are 0.742, 0.742, 0.638, 0.654, 0.548 and 0.562. It is that of the packaged embedder; bounds keep one with narrower
    cosines from silencing either side.

    Args:
        languages: those the embedder knows, None when it knows many.
    """
    if languages is not None and language not in languages:
        return FOREIGN_WEIGHT
    measured = by_measure(rankings)
    lexical, near = measured.get("fulltext", ()), measured.get("vector", ())
    if len(lexical) < _SHAPE_RANK or not near:
        return LEXICAL_WEIGHT  # so few hold any of the words that their scores have no shape
    spread = 1 - lexical[-1].score / lexical[0].score if lexical[0].score > 0 else 0.0
    spread_near = _COSINE_SCALE * (near[0].score - near[-1].score)
    if spread <= 0 or spread_near <= 0:
        return LEXICAL_WEIGHT
    weight = min(max(spread / (spread + spread_near), _LEAST), _MOST)
    margin = 1 - lexical[_SHAPE_RANK - 1].score / lexical[0].score
    return min(weight + _MARGIN_SLOPE * max(margin - _USUAL_MARGIN, 0.0), FOREIGN_WEIGHT)
