"""The line of stages: intent, router, retrieve, fusion, rerank, assemble.

Every stage is a pure step over frozen values, except the searches themselves.
"""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import prompts
from agent import assemble, fusion, router
from agent.fusion import Fused
from agent.highlight import Highlighter
from agent.intent import off
from agent.rerank import hybrid
from agent.retrieve import Retrieved, retrieve
from agent.settings import Settings
from agent.types import AugmentRequest, Intent, Prompt, RankedHit, Request, Result, Step
from retrievers.core.errors import BadRequest, Unavailable, listing
from retrievers.core.filters import Filter, parse
from retrievers.core.types import Query, Retriever, Scope
from retrievers.embed import Embedder
from retrievers.postgres.catalogue import Catalogue, filterable

DEPTH = 100
"""Hits asked of each source: fixed, so that a page is always cut from the same ranking."""
RERANK_POOL = 64


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages over one set of sources.

    Args:
        sources: retrievers by name, in the order of preference.
        embedder: of the questions; its languages tell how far vectors can be trusted.
    """

    settings: Settings
    catalogue: Catalogue
    sources: Mapping[str, Retriever]
    embedder: Embedder

    async def retrieve(self, tenant: str, request: Request) -> Result:
        """Hits for a question.

        Raises:
            BadRequest: the request names what does not exist.
            Unavailable: no source could answer.
        """
        result, _ = await self._found(tenant, request)
        return result

    async def augment(self, tenant: str, request: AugmentRequest) -> Prompt:
        """The single prompt made of the hits; raises as `retrieve` does."""
        started = time.perf_counter()
        result, hits = await self._found(tenant, request)
        chunks = [hit.chunk for hit in hits if hit.chunk is not None]
        try:
            made = assemble.assemble(
                result.query, chunks, budget_tokens=request.budget_tokens, template=request.template
            )
        except prompts.BadTemplate as error:
            raise BadRequest(str(error), where="template", valid=prompts.names()) from error
        fields = {name: getattr(result, name) for name in Result.model_fields}
        fields["took_ms"] = round((time.perf_counter() - started) * 1000, 3)
        return Prompt.model_construct(
            **fields, messages=made.messages, prompt=made.prompt, citations=made.citations, tokens=made.tokens
        )

    async def _found(self, tenant: str, request: Request) -> tuple[Result, list[Fused]]:
        started = time.perf_counter()
        timeout_s = request.timeout_s or self.settings.timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._stages(tenant, request, timeout_s, started)
        except TimeoutError as error:
            raise Unavailable("the database", f"no answer after {timeout_s:g} s") from error

    async def _stages(
        self, tenant: str, request: Request, timeout_s: float, started: float
    ) -> tuple[Result, list[Fused]]:
        self._check(request)
        scope, wanted = await self._scope(tenant, request)
        intent = off.read(request, scope, wanted, tuple(self.sources))
        steps = router.plan(
            intent,
            sources=tuple(self.sources),
            source_timeout_s=self.settings.source_timeout_s,
            timeout_s=timeout_s,
        )
        queries = {
            search: Query(search, intent.language, scope, wanted, DEPTH) for search in {step.search for step in steps}
        }
        retrieved = await retrieve(steps, queries, self.sources, timeout_s=timeout_s)
        if steps and len(retrieved.errors) == len(steps):
            raise retrieved.errors[0]
        ranking = self._fused(intent, steps, retrieved)
        page = await self._page(request, intent, scope, wanted, ranking)
        result = Result.model_construct(
            trace_id=uuid.uuid4().hex,
            query=intent.question,
            intent=intent,
            plan=steps,
            hits=_ranked(page, request, intent),
            table=None,
            outcomes=retrieved.outcomes,
            relaxed=(),
            degraded=(
                *(f"{error.source}_unavailable" for error in retrieved.errors if isinstance(error, Unavailable)),
                *self._partial(steps, scope),
            ),
            status="found" if ranking else "nothing_found",
            took_ms=round((time.perf_counter() - started) * 1000, 3),
        )
        return result, page

    def _check(self, request: Request) -> None:
        if not request.question.strip():
            raise BadRequest("the question is empty: give `query`, or `messages` with a user's turn", where="query")
        if len(request.question) > 8000:
            raise BadRequest("the question has more than 8,000 characters", where="query")
        unknown = [name for name in request.sources or () if name not in self.sources]
        if unknown:
            raise BadRequest(
                f'there is no source "{unknown[0]}"; there are: {listing(self.sources)}',
                where="sources",
                valid=tuple(self.sources),
            )
        if request.reranker not in (None, "none", "hybrid"):
            raise BadRequest(
                f'there is no reranker "{request.reranker}"; there are: "hybrid", "none"',
                where="reranker",
                valid=("none", "hybrid"),
            )

    async def _scope(self, tenant: str, request: Request) -> tuple[Scope, Filter | None]:
        scope = await self.catalogue.scope(tenant, request.collection)
        if request.filter is None:
            return scope, None
        try:
            return scope, parse(request.filter, filterable(scope))
        except BadRequest:
            # The field may have come since the catalogue was read.
            scope = await self.catalogue.scope(tenant, request.collection, fresh=True)
            return scope, parse(request.filter, filterable(scope))

    def _fused(self, intent: Intent, steps: Sequence[Step], retrieved: Retrieved) -> list[Fused]:
        """Stage one merges the sources of each search, stage two the searches."""
        searches = list(dict.fromkeys(step.search for step in steps))
        rankings = [
            self._merge({source: hits for (asked, source), hits in retrieved.hits.items() if asked == search}, intent)
            for search in searches
        ]
        return fusion.fuse_searches(rankings) if rankings else []

    def _merge(self, found: fusion.Rankings, intent: Intent) -> list[Fused]:
        if self.settings.fusion == "rrf":
            return fusion.reciprocal_rank(found)
        if self.settings.fusion == "weighted_sum":
            return fusion.weighted_sum(found, weights={"fulltext": 0.05, "vector": 0.95})
        weight = self.settings.lexical_weight
        if weight is None:
            weight = fusion.lexical_weight(intent.language, found, languages=self.embedder.languages)
        return fusion.convex(found, lexical_weight=weight)

    def _partial(self, steps: Sequence[Step], scope: Scope) -> tuple[str, ...]:
        """Vectors of another embedder are not searched: said where that concerns some of the collections."""
        asked = any(step.source == "vector" for step in steps)
        same = {one.embedder == self.embedder.name for one in scope.collections if one.chunks}
        return ("vector_partial",) if asked and same == {True, False} else ()

    async def _page(
        self, request: Request, intent: Intent, scope: Scope, wanted: Filter | None, ranking: list[Fused]
    ) -> list[Fused]:
        """The page of the final ranking, with texts. The pool that is reranked does not depend on the page."""
        first, last = (request.page - 1) * request.top_k, request.page * request.top_k
        if (request.reranker or self.settings.reranker) == "hybrid":
            pool = await self._loaded(scope, wanted, ranking[:RERANK_POOL])
            ranking = [*hybrid.rerank(intent.question, intent.language, pool), *ranking[RERANK_POOL:]]
        return await self._loaded(scope, wanted, ranking[first:last])

    async def _loaded(self, scope: Scope, wanted: Filter | None, hits: Sequence[Fused]) -> list[Fused]:
        """The hits with their chunks read; one whose document was deleted meanwhile is left out."""
        chunks = await self.catalogue.load(scope, [hit.id for hit in hits if hit.chunk is None], wanted)
        loaded = (hit._replace(chunk=hit.chunk or chunks.get(hit.id)) for hit in hits)
        return [hit for hit in loaded if hit.chunk is not None]


def _ranked(page: Sequence[Fused], request: Request, intent: Intent) -> tuple[RankedHit, ...]:
    mark = Highlighter(intent.question, intent.language)
    before = (request.page - 1) * request.top_k
    hits = []
    for rank, hit in enumerate(page, before + 1):
        chunk = hit.chunk
        assert chunk is not None
        scores = {**hit.scores, "fused": hit.fused}
        hits.append(
            RankedHit.model_construct(
                rank=rank,
                id=str(hit.id),
                document_id=hit.id.document_id,
                title=chunk.title,
                text=chunk.text,
                url=chunk.url,
                metadata=dict(chunk.metadata),
                score=hit.score,
                scores=scores,
                sources=tuple(hit.ranks),
                ranks=dict(hit.ranks),
                highlights=mark(chunk.text),
            )
        )
    return tuple(hits)
