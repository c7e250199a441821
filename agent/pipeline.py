"""The line of stages: intent, router, retrieve, fusion, rerank, assemble.

Every stage is a pure step over frozen values, except the searches themselves. While a model still thinks,
the searches of the first reading run; its reading joins them when it arrives.
"""

import asyncio
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import prompts
from agent import assemble, fusion
from agent.breaker import Breaker, Breakers
from agent.fusion import Fused
from agent.highlight import Highlighter
from agent.intent.reading import IntentReader, Reading, Stated
from agent.llm import Calls, Model
from agent.loop import Loop, Looped, Round, searches_by_part
from agent.rerank import hybrid
from agent.retrieve import Answer, within
from agent.search import MODEL_UNAVAILABLE, Asked, Found, Search, unread
from agent.settings import Settings
from agent.types import AugmentRequest, Intent, Prompt, RankedHit, Request, Result, Table
from retrievers.core.errors import BadRequest, Unavailable, listing
from retrievers.core.filters import Filter, in_words, parse
from retrievers.core.types import Hit, Retriever, Scope
from retrievers.embed import Embedder
from retrievers.postgres.catalogue import Catalogue, filterable
from retrievers.text import glosses

RERANK_POOL = 64
SUPERSEDED_WEIGHT = 0.5
"""Of a search that the first reading made and the model's did not, beside 1 for the model's own."""
GLOSSED_WEIGHT = 0.8
"""Of the same search in the English of a dictionary."""

_READ_BY = 0.5
"""Share of the request's time at which the first reading must have ended."""

_WAITS_FOR = {
    "scope": "the database to say what the tenant may read",
    "intent": "the values and words of the documents",
    "search": "the sources",
    "fusion": "the rankings to be merged",
    "loop": "further rounds of searching",
    "page": "the database to give the texts of the hits",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """How a result came about, beside what the result says itself.

    Attributes:
        first: the reading that the first searches ran by.
        later: the model's, when it arrived; then it is the result's intent.
        answers: every step of the plan with its query and its raw hits, in the plan's order.
        ranking: the fused ranking that pages are cut from, before reranking.
        page: the result's hits, with their chunks.
        stated: the constraints the first reading found in the question, with how sure each is.
        calls: of the model; one that was given up may be noted after the result is there.
        weights: full text's share of the fused score, per search of the first round where the method has one.
        rounds: how it was judged what was found, and searched on.
        elapsed_ms: per stage, in their order.
    """

    tenant: str
    request: Request
    scope: Scope
    first: Intent
    later: Intent | None
    answers: tuple[Answer, ...]
    ranking: tuple[Fused, ...]
    page: tuple[Fused, ...]
    stated: tuple[Stated, ...] = ()
    calls: Calls = field(default_factory=Calls)
    weights: Mapping[str, float] = field(default_factory=dict)
    elapsed_ms: Mapping[str, float] = field(default_factory=dict)
    rounds: tuple[Round, ...] = ()


class _Clock:
    """How long each stage took, one after the other."""

    def __init__(self, elapsed_ms: dict[str, float] | None = None) -> None:
        self.elapsed_ms = elapsed_ms if elapsed_ms is not None else {}
        self._last = time.monotonic()

    def ended(self, stage: str) -> None:
        now = time.monotonic()
        self.elapsed_ms[stage] = round((now - self._last) * 1000, 3)
        self._last = now

    def unfinished(self) -> str:
        """What was waited for when the time was over."""
        stage = next((stage for stage in _WAITS_FOR if stage not in self.elapsed_ms), "page")
        return f"the {stage} step was still waiting for {_WAITS_FOR[stage]}"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages over one set of sources.

    Args:
        sources: retrievers by name, in the order of preference.
        embedder: of the questions; its languages tell how far vectors can be trusted.
        reader: of questions; without one, and for requests with intent "off", nothing is read into them.
        model: judges what was found; None leaves that to rules.
        model_breaker: the model's, shared with whoever else asks it.
    """

    settings: Settings
    catalogue: Catalogue
    sources: Mapping[str, Retriever]
    embedder: Embedder
    reader: IntentReader | None = None
    breakers: Breakers = field(default_factory=Breakers)
    model: Model | None = None
    model_breaker: Breaker = field(default_factory=Breaker)

    async def retrieve(self, tenant: str, request: Request) -> Result:
        """Hits for a question.

        Raises:
            BadRequest: the request names what does not exist.
            Unavailable: the database cannot even say what the tenant may read, or give the texts of hits. When
                sources fail, the result says which.
        """
        return (await self.decide(tenant, request))[0]

    async def augment(self, tenant: str, request: AugmentRequest) -> Prompt:
        """The single prompt made of the hits; raises as `retrieve` does."""
        return (await self.decide_prompt(tenant, request))[0]

    async def decide_prompt(self, tenant: str, request: AugmentRequest) -> tuple[Prompt, Decision]:
        """The prompt with how it came about; raises as `retrieve` does."""
        started = time.perf_counter()
        result, decision = await self.decide(tenant, request)
        clock = _Clock(dict(decision.elapsed_ms))
        chunks = [hit.chunk for hit in decision.page if hit.chunk is not None]
        try:
            made = assemble.assemble(
                result.query,
                chunks,
                budget_tokens=request.budget_tokens,
                template=request.template,
                left_out=[in_words(relaxed.dropped) for relaxed in result.relaxed],
                looked=result.status != "no_retrieval_needed",
            )
        except prompts.BadTemplate as error:
            raise BadRequest(str(error), where="template", valid=prompts.names()) from error
        fields = {name: getattr(result, name) for name in Result.model_fields}
        fields["took_ms"] = round((time.perf_counter() - started) * 1000, 3)
        prompt = Prompt.model_construct(
            **fields, messages=made.messages, prompt=made.prompt, citations=made.citations, tokens=made.tokens
        )
        clock.ended("assemble")
        return prompt, replace(decision, elapsed_ms=clock.elapsed_ms)

    async def decide(self, tenant: str, request: Request) -> tuple[Result, Decision]:
        """The result with how it came about; raises as `retrieve` does."""
        started, clock = time.monotonic(), _Clock()
        timeout_s = request.timeout_s or self.settings.timeout_s
        try:
            return await within(self._stages(tenant, request, started, timeout_s, clock), timeout_s)
        except TimeoutError as error:
            reason = f"no answer within {timeout_s:g} s: {clock.unfinished()}"
            raise Unavailable("the service", reason, retry_after_s=5) from error

    async def _stages(
        self, tenant: str, request: Request, started: float, timeout_s: float, clock: _Clock
    ) -> tuple[Result, Decision]:
        self._check(request)
        scope, wanted = await self._scope(tenant, request)
        if glosses.is_chinese(request.question):
            await asyncio.to_thread(glosses.load)
        clock.ended("scope")
        asked = Asked(request, scope, wanted, started, timeout_s)
        reading = await self._read(asked)
        clock.ended("intent")
        search = Search(self.settings, self.catalogue, self.sources, self.embedder, self.breakers)
        found = await search.run(asked, reading)
        clock.ended("search")
        intent = found.course.intent
        refused = [answer.error for answer in found.answers if isinstance(answer.error, BadRequest)]
        if intent.by == "caller" and refused and len(refused) == len(found.answers):
            raise refused[0]  # nothing was read into the question: what the caller asked for is at fault
        ranking, weights = self._by_part(found)
        clock.ended("fusion")
        looped = await self._looped(asked, reading, search, found, ranking)
        found, ranking = looped.found, looped.ranking
        clock.ended("loop")
        page = await self._page(asked, intent, found.rung.filter if found.rung else wanted, ranking)
        clock.ended("page")
        table = _table(found) if intent.kind != "none" else None
        status = "found" if ranking or table else "nothing_found"
        result = Result.model_construct(
            trace_id=uuid.uuid4().hex,
            query=intent.question,
            intent=intent,
            plan=tuple(answer.step for answer in found.answers),
            hits=_ranked(page, request, intent),
            table=table,
            outcomes=tuple(answer.outcome for answer in found.answers),
            relaxed=(*(found.rung.dropped if found.rung else ()), *looped.relaxed),
            degraded=_distinct(
                *reading.degraded,
                *found.degraded,
                *(f"{answer.step.source}_unavailable" for answer in found.answers if answer.unavailable),
                *self._partial(found, scope),
                *looped.degraded,
            ),
            status="no_retrieval_needed" if intent.kind == "none" else status,
            took_ms=round((time.monotonic() - started) * 1000, 3),
        )
        decision = Decision(
            tenant, request, scope, reading.first, found.later, found.answers, tuple(ranking), tuple(page),
            reading.stated, reading.calls, weights, clock.elapsed_ms, looped.rounds,
        )  # fmt: skip
        return result, decision

    async def _read(self, asked: Asked) -> Reading:
        if self.reader is None or (asked.request.intent or self.settings.intent) == "off":
            return await unread(asked, self.sources)
        try:
            # In this task: of a reading that nobody takes, what is still to come would be left lying.
            async with asyncio.timeout(asked.at(_READ_BY) - time.monotonic()):
                return await self.reader.read(asked.request, asked.scope, asked.wanted, asked.at(1.0))
        except (Unavailable, OSError):
            return replace(await unread(asked, self.sources), degraded=("intent_unavailable",))

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

    async def _looped(
        self, asked: Asked, reading: Reading, search: Search, found: Found, ranking: list[Fused]
    ) -> Looped:
        """Further rounds of searching, as far as the request lets its question be read."""
        mode = asked.request.intent or self.settings.intent
        if mode == "off":
            return Looped(found, ranking)
        # Who gave no reading in its time would use up what is left for a judgement.
        asks = mode != "rules" and MODEL_UNAVAILABLE not in found.degraded
        model = self.model if asks else None
        loop = Loop(
            self.settings, search, model, self.model_breaker, lambda *given: self._fused(*given)[0], self._loaded
        )
        return await loop.run(asked, found, ranking, reading.calls)

    def _by_part(self, found: Found) -> tuple[list[Fused], dict[str, float]]:
        """The ranking of the first searches; those for separate parts of the question take turns."""
        groups = searches_by_part(found.course.intent)
        if len(groups) < 2:
            return self._fused(found, found.used)
        merged = [self._fused(found, [one for one in found.used if one.step.search in group]) for group in groups]
        weights = {search: weight for _, one in merged for search, weight in one.items()}
        return fusion.take_turns([ranking for ranking, _ in merged]), weights

    def _fused(self, found: Found, answers: Sequence[Answer]) -> tuple[list[Fused], dict[str, float]]:
        """Stage one merges the sources of each search, stage two the searches; with full text's share in each."""
        rankings: dict[tuple[str, bool], dict[str, Sequence[Hit]]] = {}
        languages: dict[str, str] = {}
        for answer in answers:
            search, source = answer.step.search, answer.step.source
            if answer.query is not None:
                # A glossed question is English to the vectors.
                languages[search] = "en" if answer.query.gloss else answer.query.language
            # What was calculated has an order of its own, whose scores say nothing beside those of texts.
            ranking = rankings.setdefault((search, self.sources[source].card.kind == "metadata"), {})
            if answer.hits or source not in ranking:
                ranking[source] = answer.hits
        default = found.course.intent.language
        merged: list[list[Fused]] = []
        weights: dict[str, float] = {}
        for (search, _), one in rankings.items():
            if self.settings.fusion == "convex":
                weight = self._lexical_weight(one, languages.get(search, default))
                merged.append(fusion.convex(one, lexical_weight=weight))
                if one.get("fulltext"):
                    weights[search] = round(weight, 4)
            else:
                merged.append(self._merge(one))
        shares = [_weight(search, found.course.intent) for search, _ in rankings]
        by_rank = fusion.RANK_OFFSET if self.settings.fusion == "rrf" else None
        return fusion.fuse_searches(merged, weights=shares, k=by_rank), weights

    def _merge(self, found: fusion.Rankings) -> list[Fused]:
        if self.settings.fusion == "rrf":
            return fusion.reciprocal_rank(found, k=fusion.RANK_OFFSET)
        return fusion.weighted_sum(found, weights={"fulltext": 0.05, "vector": 0.95})

    def _lexical_weight(self, found: fusion.Rankings, language: str) -> float:
        if self.settings.lexical_weight is not None:
            return self.settings.lexical_weight
        return fusion.lexical_weight(language, found, languages=self.embedder.languages)

    def _partial(self, found: Found, scope: Scope) -> tuple[str, ...]:
        """Vectors of another embedder are not searched: said where that concerns some of the collections."""
        asked = any(answer.step.source == "vector" and answer.query for answer in found.answers)
        same = {one.embedder == self.embedder.name for one in scope.collections if one.chunks}
        return ("vector_partial",) if asked and same == {True, False} else ()

    async def _page(self, asked: Asked, intent: Intent, wanted: Filter | None, ranking: list[Fused]) -> list[Fused]:
        """The page of the final ranking, with texts. The pool that is reranked does not depend on the page."""
        request, scope = asked.request, asked.scope
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


def _weight(search: str, intent: Intent) -> float:
    """What a search counts beside one in the question's own words."""
    if search not in intent.searches:
        return SUPERSEDED_WEIGHT
    is_gloss = intent.by == "rules" and glosses.is_chinese(intent.searches[0]) and not glosses.is_chinese(search)
    return GLOSSED_WEIGHT if is_gloss else 1.0


def _table(found: Found) -> Table | None:
    """What a source calculated, by the reading that counts."""
    tables = (hit.table for answer in found.used for hit in answer.hits if hit.table is not None)
    table = next(tables, None)
    return None if table is None else Table(columns=table.columns, rows=table.rows, sql=table.sql)


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


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
