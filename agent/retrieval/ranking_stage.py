"""Rank the merged hits: by relevance, by a reranker and by rank features."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.intent.reading import Reading
from agent.options import deadline_shares
from agent.retrieval import fusion, relevance
from agent.retrieval.fusion import FusedHit
from agent.retrieval.passage_loader import PassageLoader
from agent.retrieval.planning import RequestContext
from agent.retrieval.rank_feature_stage import RankFeatureStage
from agent.retrieval.rerank.reordering import RerankRecord
from agent.retrieval.rerank.stage import RERANK_POOL, RerankStage
from agent.retrieval.search_stage import SearchResults
from agent.retrieval.stage_times import StageTimes
from agent.settings import Settings
from agent.types import Table
from retrievers.core.errors import Unavailable
from retrievers.core.filters import Filter
from retrievers.core.timeouts import wait_within
from retrievers.core.types import ChunkId, Retriever
from retrievers.embed import Embedder
from retrievers.embed.embedders import Embedders
from retrievers.postgres.catalogue.catalogue import Catalogue


@dataclass(frozen=True, slots=True)
class FinalRanking:
    """The final order of the hits.

    Attributes:
        hits: in the final order.
        fused_hits: the hits before they were reranked.
        relevance: of each hit, 0 to 1; empty if it could not be computed in time.
        minimum: minimum relevance that was applied; None if there was none.
        is_bounded: whether hits below a minimum score were left out, so that unranked documents must not be listed.
        table: the calculated table; its hits have an order of their own, which is kept.
        degraded: notes about relevance and rank features; those of the reranker are in `reranking`.
    """

    hits: list[FusedHit]
    fused_hits: list[FusedHit]
    relevance: Mapping[ChunkId, float]
    minimum: float | None
    is_bounded: bool
    table: Table | None = None
    reranking: RerankRecord | None = None
    degraded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RankingStage:
    """Ranks the hits of a request. Arguments as for `Pipeline`."""

    settings: Settings
    catalogue: Catalogue
    sources: Mapping[str, Retriever]
    embedder: Embedder
    loader: PassageLoader
    rerank_stage: RerankStage

    async def rank(
        self,
        context: RequestContext,
        reading: Reading,
        results: SearchResults,
        ranking: list[FusedHit],
        times: StageTimes,
    ) -> FinalRanking:
        """Return the final ranking; hits below the minimum relevance are left out.

        Raises:
            BadRequest: the request names a reranker that does not exist.
            Unavailable: the database cannot give the texts of the hits.
        """
        request, intent, wanted = context.request, results.planned.intent, filter_of_hits(context, results)
        table = calculated_table(results) if intent.kind != "none" else None
        judged, unjudged = await self._judged(context, reading, results, ranking)
        minimum = self.settings.min_relevance if request.min_relevance is None else request.min_relevance
        if minimum is not None:
            ranking = [hit for hit in ranking if judged.get(hit.id, 1.0) >= minimum]
        ranking = self._relevant(ranking, judged)
        final: list[FusedHit] = ranking
        reranking: RerankRecord | None = None
        unfeatured: tuple[str, ...] = ()
        # Calculated hits have their own order, for example earliest first.
        if (
            table is None
            and ranking
            and (reranker := self.rerank_stage.choose_reranker(request, reading.calls)) is not None
        ):
            final, reranking = await self.rerank_stage.rerank(reranker, context, intent, wanted, ranking)
            times.end_stage("rerank")
        if table is None and self.settings.rank_features and final:
            pool = await self.loader.load_hits(context.scope, wanted, final[:RERANK_POOL])
            pool, unfeatured = await RankFeatureStage(self.settings, self.catalogue).apply(context, intent, pool)
            final = fusion.cap_rising_scores([*pool, *final[RERANK_POOL:]])
        # If the question consists of conditions only, every document that satisfies them is relevant.
        is_bounded = minimum is not None and not reading.is_listing
        is_bounded |= reranking is not None and reranking.minimum is not None
        return FinalRanking(
            final, ranking, judged, minimum, is_bounded, table, reranking, degraded=(*unfeatured, *unjudged)
        )

    async def _judged(
        self, context: RequestContext, reading: Reading, results: SearchResults, ranking: Sequence[FusedHit]
    ) -> tuple[Mapping[ChunkId, float], tuple[str, ...]]:
        """Return {id of a hit: relevance, 0 to 1}, and notes for `degraded`.

        If relevance cannot be computed in time, return {} and the note `relevance.UNAVAILABLE`.
        """
        if not ranking:
            return {}, ()
        judging = relevance.estimate_relevance(
            results,
            ranking,
            scope=context.scope,
            catalogue=self.catalogue,
            sources=self.sources,
            embedder=Embedders.of(self.embedder),
            is_listing=reading.is_listing,
        )
        try:
            return await wait_within(judging, context.deadline_at(deadline_shares.RELEVANCE_BY) - time.monotonic()), ()
        except (Unavailable, OSError):
            return {}, (relevance.UNAVAILABLE,)

    def _relevant(self, ranking: list[FusedHit], judged: Mapping[ChunkId, float]) -> list[FusedHit]:
        """Return the ranking without hits whose relevance is below the `min_relevance` of every source that found them.

        Args:
            judged: relevance by hit id; hits that are missing here are kept.
        """
        bounds = {name: source.card.min_relevance or 0.0 for name, source in self.sources.items()}
        if not any(bounds.values()):
            return ranking
        least = (min((bounds.get(name, 0.0) for name in hit.ranks), default=0.0) for hit in ranking)
        return [hit for hit, bound in zip(ranking, least, strict=True) if judged.get(hit.id, 1.0) >= bound]


def filter_of_hits(context: RequestContext, results: SearchResults) -> Filter | None:
    """Return the filter that every hit satisfies; None if there is none."""
    return results.level.filter if results.level else context.wanted


def calculated_table(results: SearchResults) -> Table | None:
    """Return the first calculated table among the hits of `results.used_answers`; None if there is none."""
    tables = (hit.table for answer in results.used_answers for hit in answer.hits if hit.table is not None)
    table = next(tables, None)
    return None if table is None else Table(columns=table.columns, rows=table.rows, sql=table.sql)


def calculated_hit_ids(results: SearchResults) -> frozenset[ChunkId]:
    """Return the ids of hits that hold a table; they are not stored documents."""
    hits = (hit for answer in results.used_answers for hit in answer.hits)
    return frozenset(hit.id for hit in hits if hit.table is not None and hit.chunk is not None)
