"""Fusion stage: merge the results of the sources of each search, then of all searches, by the methods of `fusion`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.options.fusion import parse_weights
from agent.retrieval import fusion
from agent.retrieval.fusion import FusedHit
from agent.retrieval.plan_execution import StepResult
from agent.retrieval.search_loop import searches_by_part
from agent.retrieval.search_stage import SearchResults
from agent.settings import Settings
from agent.types import Intent
from retrievers.core.types import Hit, Retriever, Scope
from retrievers.embed import Embedder
from retrievers.embed.embedders import Embedders
from retrievers.text import chinese_dictionary

SUPERSEDED_WEIGHT = 0.5
"""Weight of a search that the rules made and the model's later reading does not repeat. The model's have weight 1."""
GLOSSED_WEIGHT = 0.8
"""Weight of a search for the word-by-word English translation of a Chinese question. The question itself has 1."""


@dataclass(frozen=True, slots=True)
class FusionStage:
    """Merges search results by the fusion method of the settings. Arguments as for `Pipeline`."""

    settings: Settings
    sources: Mapping[str, Retriever]
    embedder: Embedder

    def fuse(self, results: SearchResults) -> tuple[list[FusedHit], dict[str, float]]:
        """Return one ranking of all hits that count, and {search text: weight of full text against vectors}.

        If the question has several parts, each part gets its own ranking; `fusion.interleave_rankings` merges these.

        Args:
            results: results of the first round, before any search for what is missing.
        """
        groups = searches_by_part(results.planned.intent)
        if len(groups) < 2:
            return self.fuse_answers(results, results.used_answers)
        merged = [
            self.fuse_answers(results, [one for one in results.used_answers if one.step.search in group])
            for group in groups
        ]
        weights = {search: weight for _, one in merged for search, weight in one.items()}
        return fusion.interleave_rankings([ranking for ranking, _ in merged]), weights

    def fuse_answers(
        self, results: SearchResults, answers: Sequence[StepResult]
    ) -> tuple[list[FusedHit], dict[str, float]]:
        """Return one ranking of the hits in `answers`, and {search text: weight of full text against vectors}.

        Hits that also satisfy the likely constraints, that is, are in `results.soft_results`, are boosted.
        """
        ranking, weights = self._fuse_unboosted(results, answers)
        searches = {one.step.search for one in answers}
        soft_results = [one for one in results.soft_results if one.step.search in searches and one.hits]
        if soft_results and ranking:
            ranking = fusion.boost_hits(ranking, self._fuse_unboosted(results, soft_results)[0])
        return ranking, weights

    def _fuse_unboosted(
        self, results: SearchResults, answers: Sequence[StepResult]
    ) -> tuple[list[FusedHit], dict[str, float]]:
        """Fuse the sources of each search, then the searches. Returns as `fuse_answers`, but boosts nothing."""
        rankings: dict[tuple[str, str], dict[str, Sequence[Hit]]] = {}
        languages: dict[str, str] = {}
        for answer in answers:
            search, source = answer.step.search, answer.step.source
            if answer.query is not None:
                # The embedder gets the English translation of a Chinese question if there is one.
                languages[search] = "en" if answer.query.translation else answer.query.language
            # Calculated hits, and hits from outside, have an order of their own. Their scores cannot be compared with
            # those of document texts, so each kind is fused separately.
            ranking = rankings.setdefault((search, self.sources[source].card.kind), {})
            # A failed source is left out; an empty one takes part with no hits.
            if answer.hits or (source not in ranking and not answer.is_failed):
                ranking[source] = answer.hits
        default = results.planned.intent.language
        merged: list[list[FusedHit]] = []
        weights: dict[str, float] = {}
        scope = next((answer.query.scope for answer in answers if answer.query), None)
        for (search, _), one in rankings.items():
            if self.settings.fusion == "convex":
                weight = self._lexical_weight(one, languages.get(search, default), scope)
                merged.append(fusion.convex_combination(one, lexical_weight=weight))
                if one.get("fulltext"):
                    weights[search] = round(weight, 4)
            else:
                merged.append(self._fuse_sources(one))
        shares = [_weight(search, results.planned.intent) for search, _ in rankings]
        by_rank = fusion.RANK_OFFSET if self.settings.fusion == "rrf" else None
        return fusion.fuse_searches(merged, weights=shares, k=by_rank), weights

    def _fuse_sources(self, rankings: fusion.Rankings) -> list[FusedHit]:
        if self.settings.fusion == "rrf":
            return fusion.reciprocal_rank_fusion(rankings, k=fusion.RANK_OFFSET)
        return fusion.weighted_sum(rankings, weights=parse_weights(self.settings.fusion_weights))

    def _lexical_weight(self, rankings: fusion.Rankings, language: str, scope: Scope | None) -> float:
        if self.settings.lexical_weight is not None:
            return self.settings.lexical_weight
        known = Embedders.of(self.embedder).languages_in(scope) if scope is not None else self.embedder.languages
        return fusion.lexical_weight(language, rankings, languages=known)


def _weight(search: str, intent: Intent) -> float:
    """Return the weight of a search in fusion: `SUPERSEDED_WEIGHT`, `GLOSSED_WEIGHT`, or 1 for any other search."""
    if search not in intent.searches:
        return SUPERSEDED_WEIGHT
    is_gloss = (
        intent.by == "rules"
        and chinese_dictionary.contains_chinese(intent.searches[0])
        and not chinese_dictionary.contains_chinese(search)
    )
    return GLOSSED_WEIGHT if is_gloss else 1.0
