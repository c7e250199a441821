"""Rerank stage: choose the reranker of a request and rerank a fixed pool of top hits with `reordering`."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import prompts
from agent.llm.call_log import CallLog
from agent.options import deadline_shares
from agent.options.rerankers import reranker_label
from agent.retrieval.fusion import FusedHit
from agent.retrieval.passage_loader import PassageLoader
from agent.retrieval.planning import RequestContext
from agent.retrieval.rerank.hybrid import HybridReranker
from agent.retrieval.rerank.llm import ListwiseReranker
from agent.retrieval.rerank.reordering import RerankLimits, RerankRecord, rerank
from agent.retrieval.rerank.reranker import Reranker
from agent.settings import Settings
from agent.types import Intent, Request
from retrievers.core.circuit_breakers import CircuitBreakers
from retrievers.core.errors import BadRequest, Unavailable, join_names
from retrievers.core.filters import Filter
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Scope
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.postgres.documents.stored import DocumentPhrases

RERANK_POOL = 64
"""Number of top hits that are reranked, whatever page is asked for."""

_RERANK_PATIENCE = 0.2
"""`RerankLimits.patience_s` as a share of the setting `timeout_s`."""


@dataclass(frozen=True, slots=True)
class RerankStage:
    """Reranks the top hits of a request. Arguments as for `Pipeline`."""

    settings: Settings
    catalogue: Catalogue
    loader: PassageLoader
    breakers: CircuitBreakers
    reranker: Reranker | None
    templates: prompts.TemplateLibrary

    def choose_reranker(self, request: Request, calls: CallLog) -> Reranker | None:
        """Return the reranker that the request names, by default the configured one; None if that is `none`.

        Raises:
            BadRequest: the request names a reranker other than `none`, `hybrid` and the configured one.
        """
        configured = self.reranker.name if self.reranker is not None else reranker_label(self.settings.reranker)
        name = request.reranker or configured
        if name == "none":
            return None
        if self.reranker is not None and name == configured:
            if isinstance(self.reranker, ListwiseReranker):
                return self.reranker.for_request(calls, self.templates)
            return self.reranker
        if name == "hybrid":
            return HybridReranker()
        valid = tuple(dict.fromkeys(("none", "hybrid", configured)))
        raise BadRequest(
            f'there is no reranker "{name}" for a request; there are: {join_names(valid)}',
            where="reranker",
            valid=valid,
        )

    async def rerank(
        self,
        reranker: Reranker,
        context: RequestContext,
        intent: Intent,
        wanted: Filter | None,
        ranking: list[FusedHit],
    ) -> tuple[list[FusedHit], RerankRecord | None]:
        """Return the ranking with its first `RERANK_POOL` hits reranked, and the record of the reranking.

        The pool is the same for every page, so that all pages are cut from one final ranking. (`ranking`, None) if the
        documents of the whole pool were deleted meanwhile.
        """
        pool = await self.loader.load_hits(context.scope, wanted, ranking[:RERANK_POOL])
        if not pool:
            return ranking, None
        blend = 0.0 if isinstance(reranker, HybridReranker) else self.settings.rerank_blend
        given_s = deadline_shares.RERANKING * (context.deadline_at(1.0) - time.monotonic())
        if blend or isinstance(reranker, HybridReranker):
            with suppress(Unavailable, OSError):  # phrases improve the score, but reranking works without them
                pool = await wait_within(self._with_phrases(context.scope, pool), given_s / 2)
        breaker = self.breakers.of(f"the reranker {reranker.name}")
        limits = RerankLimits(given_s, _RERANK_PATIENCE * self.settings.timeout_s, breaker)
        minimum = self.settings.rerank_min_score if reranker.name == reranker_label(self.settings.reranker) else None
        ranking = [*pool, *ranking[RERANK_POOL:]]
        return await rerank(
            reranker, intent.question, intent.language, ranking, limits, pool=len(pool), minimum=minimum, blend=blend
        )

    async def _with_phrases(self, scope: Scope, pool: Sequence[FusedHit]) -> list[FusedHit]:
        """Return the hits with the key terms and questions of their documents."""
        phrases = await self.catalogue.phrases(scope, {hit.id[:3] for hit in pool})
        return [_phrased(hit, phrases.get(hit.id[:3])) for hit in pool]


def _phrased(hit: FusedHit, phrases: DocumentPhrases | None) -> FusedHit:
    if phrases is None or hit.chunk is None:
        return hit
    return hit._replace(chunk=replace(hit.chunk, important=phrases.important, questions=phrases.questions))
