"""Choose the reranker of a request and rerank a fixed pool of top hits."""

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import prompts
from agent.llm.calls import Calls
from agent.options.rerankers import reranker_label
from agent.retrieval.fusion import Fused
from agent.retrieval.loading import PassageLoader
from agent.retrieval.planning import Asked
from agent.retrieval.rerank.base import Reranker
from agent.retrieval.rerank.hybrid import Hybrid
from agent.retrieval.rerank.llm import ListwiseReranker
from agent.retrieval.rerank.stage import Patience, Reranking, rerank
from agent.settings import Settings
from agent.types import Intent, Request
from retrievers.core.breakers import Breakers
from retrievers.core.errors import BadRequest, Unavailable, listing
from retrievers.core.filters import Filter
from retrievers.core.tasks import within
from retrievers.core.types import Scope
from retrievers.postgres.catalogue import Catalogue
from retrievers.postgres.documents import Phrases

RERANK_POOL = 64
"""Number of top hits that are reranked, whatever page is asked for."""

# `Patience.given_s` as a share of the request's remaining time, `patience_s` as a share of the setting `timeout_s`.
_RERANK_SHARE, _RERANK_PATIENCE = 0.4, 0.2


@dataclass(frozen=True, slots=True)
class RerankStage:
    """Reranks the top hits of a request. Arguments as for `Pipeline`."""

    settings: Settings
    catalogue: Catalogue
    loader: PassageLoader
    breakers: Breakers
    reranker: Reranker | None
    templates: prompts.Library

    def reranker_of(self, request: Request, calls: Calls) -> Reranker | None:
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
                return self.reranker.noted(calls, self.templates)
            return self.reranker
        if name == "hybrid":
            return Hybrid()
        valid = tuple(dict.fromkeys(("none", "hybrid", configured)))
        raise BadRequest(
            f'there is no reranker "{name}" for a request; there are: {listing(valid)}', where="reranker", valid=valid
        )

    async def rerank(
        self, reranker: Reranker, asked: Asked, intent: Intent, wanted: Filter | None, ranking: list[Fused]
    ) -> tuple[list[Fused], Reranking | None]:
        """Return the ranking with its first `RERANK_POOL` hits reranked, and the record of the reranking.

        The pool is the same for every page, so that all pages are cut from one final ranking. (`ranking`, None) if the
        documents of the whole pool were deleted meanwhile.
        """
        pool = await self.loader.hits(asked.scope, wanted, ranking[:RERANK_POOL])
        if not pool:
            return ranking, None
        blend = 0.0 if isinstance(reranker, Hybrid) else self.settings.rerank_blend
        given_s = _RERANK_SHARE * (asked.at(1.0) - time.monotonic())
        if blend or isinstance(reranker, Hybrid):
            with suppress(Unavailable, OSError):  # phrases improve the score, but reranking works without them
                pool = await within(self._with_phrases(asked.scope, pool), given_s / 2)
        breaker = self.breakers.of(f"the reranker {reranker.name}")
        patience = Patience(given_s, _RERANK_PATIENCE * self.settings.timeout_s, breaker)
        minimum = self.settings.rerank_min_score if reranker.name == reranker_label(self.settings.reranker) else None
        ranking = [*pool, *ranking[RERANK_POOL:]]
        return await rerank(
            reranker, intent.question, intent.language, ranking, patience, pool=len(pool), minimum=minimum, blend=blend
        )

    async def _with_phrases(self, scope: Scope, pool: Sequence[Fused]) -> list[Fused]:
        """Return the hits with the key terms and questions of their documents."""
        phrases = await self.catalogue.phrases(scope, {hit.id[:3] for hit in pool})
        return [_phrased(hit, phrases.get(hit.id[:3])) for hit in pool]


def _phrased(hit: Fused, phrases: Phrases | None) -> Fused:
    if phrases is None or hit.chunk is None:
        return hit
    return hit._replace(chunk=replace(hit.chunk, important=phrases.important, questions=phrases.questions))
