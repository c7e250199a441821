"""The pipeline of one request: intent, router, retrieve, fusion, rerank, assemble.

It returns a result or a prompt, with the decision record. Every stage is a pure step over frozen values, except the
searches. Rules read the question first, and its searches start; those that a model's later reading adds follow.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import prompts
from agent.answering import tool_searches
from agent.answering.decision_record import DecisionRecord
from agent.answering.prompt_stage import PromptStage, tool_mode_prompt
from agent.intent import collection_choice as scoping
from agent.intent import sources, transform
from agent.intent.collection_choice import CollectionChoice, CollectionChooser
from agent.intent.reading import IntentReader, Reading, literal_intent
from agent.llm.call_log import CallLog
from agent.llm.model import Model
from agent.options import deadline_shares
from agent.retrieval import request_options, routing_rules
from agent.retrieval.fusion import FusedHit
from agent.retrieval.fusion_stage import FusionStage
from agent.retrieval.paging import COMPLETE_DEPTH, HitPage, cut_page, page_window, wants_complete_list
from agent.retrieval.passage_loader import PassageLoader
from agent.retrieval.plan_execution import resting_sources
from agent.retrieval.planning import IntentPlanner, RequestContext
from agent.retrieval.ranking_stage import FinalRanking, RankingStage, calculated_hit_ids, filter_of_hits
from agent.retrieval.request_validation import validate_request
from agent.retrieval.rerank.reranker import Reranker
from agent.retrieval.rerank.stage import RerankStage
from agent.retrieval.result_builder import build_result
from agent.retrieval.scope_resolver import ScopeResolver
from agent.retrieval.search_loop import LoopResult, SearchLoop
from agent.retrieval.search_stage import MODEL_UNAVAILABLE, SearchResults, SearchStage, plain_reading
from agent.retrieval.stage_times import StageTimes, timeout_error
from agent.settings import Settings
from agent.types import AskRequest, AugmentRequest, Citation, Prompt, Relaxed, Request, Result, SourceSummary
from retrievers.core.circuit_breakers import CircuitBreaker, CircuitBreakers
from retrievers.core.errors import BadRequest, Unavailable, UnknownCollection
from retrievers.core.filters import Filter
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Retriever, Scope, Viewer
from retrievers.embed import Embedder
from retrievers.postgres.catalogue.catalogue import Catalogue
from retrievers.text import chinese_dictionary

_FOUND = 2  # the status `found` in `_status_rank`

_log = logging.getLogger(__name__)
# Without a handler, Python would print these lines to stderr.
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages, applied to one set of sources.

    Args:
        sources: retrievers by name, in order of preference.
        embedder: embeds questions; the languages that it knows decide the weight of vector search.
        reader: reads questions. Without a reader, and for requests with intent "off", nothing is inferred.
        chooser: chooses collections for questions that name none; without a chooser all collections are searched.
        reranker: the reranker of the settings; "none" and "hybrid" are always available.
        model: judges whether the hits are sufficient; with None, rules do.
        model_breaker: the model's circuit breaker, shared with all other callers of the model.
        templates: prompt templates of all tenants.
        withheld: names of sources that the tenant may not use; they are not in `sources`.
        changed: the counter of changes to the readers of the tenant's documents; None reads it from the database.
        default_collection: the tenant's default, for requests that name no collection.
    """

    settings: Settings
    catalogue: Catalogue
    sources: Mapping[str, Retriever]
    embedder: Embedder
    reader: IntentReader | None = None
    chooser: CollectionChooser | None = None
    reranker: Reranker | None = None
    breakers: CircuitBreakers = field(default_factory=CircuitBreakers)
    model: Model | None = None
    model_breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    templates: prompts.TemplateLibrary = field(default_factory=prompts.packaged_templates)
    withheld: frozenset[str] = frozenset()
    changed: int | None = None
    default_collection: str | None = None

    async def retrieve(self, who: str | Viewer, request: Request) -> Result:
        """Return the hits for a question.

        Raises:
            BadRequest: the request names a source, collection, field or reranker that does not exist.
            Unavailable: the database cannot return the tenant's collections or the texts of the hits, or the time is
                over. A source that fails raises nothing; `Result.outcomes` shows the failure.
        """
        return (await self.retrieve_with_record(who, request))[0]

    async def augment(self, who: str | Viewer, request: AugmentRequest) -> Prompt:
        """Return the prompt made from the hits; raises as `retrieve` does."""
        return (await self.augment_with_record(who, request))[0]

    async def augment_with_record(self, who: str | Viewer, request: AugmentRequest) -> tuple[Prompt, DecisionRecord]:
        """Return the prompt and the decision record; raises as `retrieve` does."""
        started = time.monotonic()
        self._check_template(who, request)
        result, decision = await self.retrieve_with_record(who, request)
        if decision.tool_searches is not None:
            return tool_mode_prompt(request, result, decision, self.settings.language), decision
        return await self._prompt_stage.build(request, result, decision, started)

    async def run_tool_search(
        self, who: Viewer, request: AugmentRequest, *, shown: Sequence[Citation], outside: bool
    ) -> tuple[Prompt, DecisionRecord]:
        """Run one search that the model asked for by a tool call; return the prompt and the decision record.

        The prompt's text is the result of the tool call. Raises as `retrieve` does.

        Args:
            shown: passages that earlier searches returned; the numbers of new passages continue after theirs.
            outside: whether to ask external sources (web, cloud), which may charge for each search.
        """
        started = time.monotonic()
        pipeline = self
        if not outside:
            paid = self._outside
            kept = {name: one for name, one in self.sources.items() if name not in paid}
            cards = {name: source.card for name, source in kept.items()}
            # Withhold "web" too: without a source of that name, the reader could choose it and report it as missing.
            reader = self.reader.with_sources(cards, withheld=paid | {sources.WEB}) if self.reader else None
            pipeline = replace(self, sources=kept, reader=reader)
            left = tuple(name for name in request.sources or () if name not in paid)
            if request.sources and not left:
                raise BadRequest(
                    "the sources outside are searched only once for an answer; name other sources", where="sources"
                )
            request = request.model_copy(update={"sources": left or None})
        result, decision = await pipeline.retrieve_with_record(who, request)
        return await self._prompt_stage.build(request, result, decision, started, shown=shown)

    async def retrieve_with_record(self, who: str | Viewer, request: Request) -> tuple[Result, DecisionRecord]:
        """Return the result and its decision record, of which traces are made; raises as `retrieve` does."""
        started, times = time.monotonic(), StageTimes()
        timeout_s = request.timeout_s or self.settings.timeout_s
        names_none = request.collection is None and self.default_collection is not None
        if names_none:
            request = request.model_copy(update={"collection": self.default_collection})
        try:
            request = routing_rules.apply_routing_rules(request, self.settings.routes, self.sources)
            viewer, settings = Viewer.of(who), request_options.apply_request_options(request, self.settings)
            pipeline = replace(self, settings=settings, templates=self.templates.for_tenant(viewer.tenant))
            return await wait_within(pipeline._run(viewer, request, started, timeout_s, times), timeout_s)
        except TimeoutError as error:
            raise timeout_error(timeout_s, times.describe_unfinished()) from error
        except UnknownCollection as error:
            if not names_none:
                raise
            what = f"{error}; the request names no collection, so the tenant's default collection was used"
            raise UnknownCollection(what, where="collection", valid=error.valid) from None

    async def _run(
        self, who: Viewer, request: Request, started: float, timeout_s: float, times: StageTimes
    ) -> tuple[Result, DecisionRecord]:
        validate_request(request, self.sources, self.withheld)
        self._rerank_stage.choose_reranker(request, CallLog())
        scope, wanted = await self._scope_resolver.resolve_scope_and_filter(who, request)
        request_options.check_rank_features(request, scope)
        if chinese_dictionary.contains_chinese(request.question):
            await chinese_dictionary.ensure_dictionary_loaded()
        if isinstance(request, AskRequest) and request.mode == "tool" and self.model is not None:
            times.end_stage("scope")
            return self._tool_mode_result(who, request, scope, wanted, times)
        choice = await self._choose_collections(request, scope, started + timeout_s)
        times.end_stage("scope")
        everywhere = self._limited_to(scope, request)
        partial = sources.partial_groups(everywhere.sources, scope)
        inside = everywhere
        if choice.collections:
            # Search the other collections before any source outside.
            inside = replace(everywhere, settings=self.settings.model_copy(update={"outside_fallback": False}))
        context = RequestContext(request, choice.scope, wanted, started, timeout_s, partial=partial)
        result, decision = await inside._run_stages(who, context, choice, times)
        left_s = started + timeout_s - time.monotonic()
        is_late = left_s < deadline_shares.LEAST_SECOND_SEARCH * timeout_s
        if not result.intent.scope or _status_rank(result) == _FOUND or is_late:
            return result, decision
        context = RequestContext(request, scope, wanted, time.monotonic(), left_s, narrows=False, partial=partial)
        wider, decided = await everywhere._run_stages(who, context, CollectionChoice(scope), times)
        decided.calls.records[:0] = decision.calls.records
        if _status_rank(wider) <= _status_rank(result):
            return result, replace(decision, calls=decided.calls)
        dropped = {"type": "in", "key": "collection", "value": [one.name for one in result.intent.scope]}
        relaxed = (Relaxed(dropped=dropped, reason=scoping.RELAXED_REASON), *wider.relaxed)
        took_ms = round((time.monotonic() - started) * 1000, 3)
        return wider.model_copy(update={"relaxed": relaxed, "took_ms": took_ms}), decided

    async def _choose_collections(self, request: Request, scope: Scope, deadline: float) -> CollectionChoice:
        if self.chooser is None or (request.intent or self.settings.intent) == "off":
            return CollectionChoice(scope)
        try:
            return await self.chooser.choose(request, scope, deadline)
        except (BadRequest, Unavailable, OSError):
            raise
        except Exception as error:
            _log.error("the collections of a question could not be chosen: all are asked", exc_info=error)
            return CollectionChoice(scope)

    async def _run_stages(
        self, who: Viewer, context: RequestContext, choice: CollectionChoice, times: StageTimes
    ) -> tuple[Result, DecisionRecord]:
        """Run all stages from the reading to the page of hits, and return the result and the decision record.

        Args:
            choice: why these collections were chosen; its own scope is not used.
        """
        reading = await self._read(context)
        times.end_stage("intent")
        if wants_complete_list(context.request, reading.first):
            context = replace(context, depth=COMPLETE_DEPTH)
        search = SearchStage(IntentPlanner(self.settings, self.sources, self.embedder, self.breakers), self.catalogue)
        results = await search.run(context, reading)
        times.end_stage("search")
        _raise_bad_request(results)
        ranking, weights = self.fusion_stage.fuse(results)
        times.end_stage("fusion")
        outcome = await self._search_further(context, reading, search, results, ranking)
        times.end_stage("loop")
        ranked = await self._ranking_stage.rank(context, reading, outcome.results, outcome.ranking, times)
        ranked, page, is_listed = await self._page(context, outcome.results, ranked)
        times.end_stage("page")
        intent = results.planned.intent
        intent = intent.model_copy(update={"scope": intent.scope or choice.collections})
        result = build_result(context, reading, intent, outcome, ranked, page, listed=is_listed, embedder=self.embedder)
        results = outcome.results
        decision = DecisionRecord(
            who.tenant, context.request, context.scope, reading.first, results.model_intent, results.answers,
            tuple(ranked.fused_hits), tuple(page.hits), reading.stated, reading.calls, weights, times.elapsed_ms,
            filter_of_hits(context, results), ranked.reranking, search_results=results, rounds=outcome.rounds,
            templates=self.templates,
        )  # fmt: skip
        return result, decision

    async def _read(self, context: RequestContext) -> Reading:
        reading = await self._reading(context)
        if context.request.complete and reading.first.kind == "none":
            return await plain_reading(context, self.sources)  # the caller asks for documents, even in small talk
        return reading

    async def _reading(self, context: RequestContext) -> Reading:
        if self.reader is None or (context.request.intent or self.settings.intent) == "off":
            return replace(
                await plain_reading(context, self.sources), degraded=transform.skipped_notes(self.settings.transforms)
            )
        try:
            # No task of its own: an abandoned reading would run on in the background.
            async with asyncio.timeout(context.deadline_at(deadline_shares.RULES_BY) - time.monotonic()):
                return await self.reader.read(context.request, context.scope, context.wanted, context.deadline_at(1.0))
        except BadRequest:
            raise
        except Exception as error:
            if not isinstance(error, Unavailable | OSError):  # a bug in a rule must not cost the answer
                _log.error("a question could not be read: it is searched as it is", exc_info=error)
            degraded = ("intent_unavailable", *transform.skipped_notes(self.settings.transforms))
            return replace(await plain_reading(context, self.sources), degraded=degraded)

    async def _search_further(
        self,
        context: RequestContext,
        reading: Reading,
        search: SearchStage,
        results: SearchResults,
        ranking: list[FusedHit],
    ) -> LoopResult:
        """Judge the hits and search again for what is missing, unless intent is "off" or all documents are wanted."""
        mode = context.request.intent or self.settings.intent
        if mode == "off" or wants_complete_list(context.request, results.planned.intent):
            return LoopResult(results, ranking)  # a complete list has no gaps, and its filter must not be relaxed
        # A model too slow to read the question would also use up the time for a judgement.
        asks = mode != "rules" and MODEL_UNAVAILABLE not in results.degraded
        model = self.model if asks else None
        fusion_stage = self.fusion_stage
        loop = SearchLoop(
            self.settings, search, model, self.model_breaker, lambda *given: fusion_stage.fuse_answers(*given)[0],
            self._loader.load_hits, self.templates,
        )  # fmt: skip
        return await loop.run(context, results, ranking, reading.calls)

    async def _page(
        self, context: RequestContext, results: SearchResults, ranked: FinalRanking
    ) -> tuple[FinalRanking, HitPage, bool]:
        """Return the ranking that pages are cut from, the page, and whether it is part of a requested complete list."""
        request, intent, wanted = context.request, results.planned.intent, filter_of_hits(context, results)
        relaxed = bool(results.level and results.level.dropped)
        window = page_window(
            request, intent, self.settings, filtered=wanted is not None, relaxed=relaxed, bounded=ranked.is_bounded
        )
        if window.complete:  # a calculated table is a hit, but not a document of the list
            calculated = calculated_hit_ids(results)
            ranked = replace(ranked, hits=[hit for hit in ranked.hits if hit.id not in calculated])
        load = partial(self._loader.load_hits, context.scope, wanted)
        listed = partial(self._loader.list_documents, context.scope, wanted)
        page = await cut_page(ranked.hits, window, intent.question, load, listed)
        return ranked, page, bool(window.complete and request.complete)

    def _tool_mode_result(
        self, who: Viewer, request: AskRequest, scope: Scope, wanted: Filter | None, times: StageTimes
    ) -> tuple[Result, DecisionRecord]:
        """Return an empty result and its record for mode "tool": `DecisionRecord.tool_searches` runs the searches."""
        intent = literal_intent(request, scope, wanted, ()).model_copy(update={"kind": "none", "searches": ()})
        result = Result.model_construct(
            trace_id=uuid.uuid4().hex, query=request.question, intent=intent, plan=(), hits=(), outcomes=(),
            status="no_retrieval_needed", took_ms=0.0, degraded=transform.skipped_notes(self.settings.transforms),
        )  # fmt: skip
        # With None, each search reads the caller's rights again: they may change while the model works.
        look = partial(replace(self, changed=None).run_tool_search, who)
        searches = tool_searches.open_tool_searches(look, request, self.settings, scope, self._outside)
        decision = DecisionRecord(
            who.tenant, request, scope, intent, None, (), (), (), elapsed_ms=times.elapsed_ms, required_filter=wanted,
            templates=self.templates, tool_searches=searches,
        )  # fmt: skip
        return result, decision

    def _limited_to(self, scope: Scope, request: Request) -> "Pipeline":
        """Return a pipeline with only the sources that have documents in the scope or that the request names."""
        offered = sources.readable_sources(self.sources, scope, request.sources or ())
        if offered.keys() == self.sources.keys():
            return self
        cards = {name: source.card for name, source in offered.items()}
        return replace(self, sources=offered, reader=self.reader.with_sources(cards) if self.reader else None)

    async def summaries(self, who: Viewer) -> tuple[SourceSummary, ...]:
        """Return the sources that the viewer's questions can be sent to; raises as `retrieve` does."""
        try:
            scope = await self._scope_resolver.readable_scope(who, None)
        except UnknownCollection:
            scope = Scope(who.tenant, (), principals=who.principals)  # the tenant has no collection yet
        offered, timeout_s = sources.readable_sources(self.sources, scope), self.settings.source_timeout_s
        rests = resting_sources(offered, self.breakers, scope)
        return tuple(
            sources.summarise_source(one, scope, timeout_s=timeout_s, resting=name in rests)
            for name, one in offered.items()
        )

    @property
    def _outside(self) -> frozenset[str]:
        """Names of the external sources (web, cloud), which may charge for each search."""
        return frozenset(name for name, source in self.sources.items() if source.card.kind == "outside")

    def _check_template(self, who: str | Viewer, request: AugmentRequest) -> None:
        try:
            self.templates.for_tenant(Viewer.of(who).tenant).answer_template(request.template)
        except prompts.BadTemplate as error:
            raise BadRequest(str(error), where="template", valid=error.valid) from error

    @property
    def fusion_stage(self) -> FusionStage:
        """The stage that merges the rankings of the sources."""
        return FusionStage(self.settings, self.sources, self.embedder)

    @property
    def _scope_resolver(self) -> ScopeResolver:
        return ScopeResolver(self.catalogue, self.sources, self.changed)

    @property
    def _loader(self) -> PassageLoader:
        return PassageLoader(self.catalogue, self.sources)

    @property
    def _rerank_stage(self) -> RerankStage:
        return RerankStage(self.settings, self.catalogue, self._loader, self.breakers, self.reranker, self.templates)

    @property
    def _ranking_stage(self) -> RankingStage:
        return RankingStage(
            self.settings, self.catalogue, self.sources, self.embedder, self._loader, self._rerank_stage
        )

    @property
    def _prompt_stage(self) -> PromptStage:
        return PromptStage(self.settings, self._loader)


def _raise_bad_request(results: SearchResults) -> None:
    """Raise the first `BadRequest` of the searches, if every search ended with one and no condition was inferred."""
    refused = [answer.error for answer in results.answers if isinstance(answer.error, BadRequest)]
    if results.planned.intent.by == "caller" and refused and len(refused) == len(results.answers):
        raise refused[0]


def _status_rank(result: Result) -> int:
    """Return a number to compare results by status: 0 for nothing found, 1 for weak, `_FOUND` for any other."""
    return {"nothing_found": 0, "weak": 1}.get(result.status, _FOUND)
