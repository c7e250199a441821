"""The pipeline of one request: intent, router, retrieve, fusion, rerank, assemble.

It takes a request and returns a result or a prompt, with the decision record. Every stage is a pure step over frozen
values, except the searches. Rules read the question first, and its searches start at once. If a model also reads it,
the searches that the model adds run when its reading arrives.
"""

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import prompts
from agent.answering import lookups
from agent.answering.decision import Decision
from agent.answering.prompting import PromptStage, question_prompt
from agent.intent import scope as scoping
from agent.intent import sources, transform
from agent.intent.reading import IntentReader, Reading, stated_alone
from agent.intent.scope import Choice, Chooser
from agent.llm.calls import Calls
from agent.llm.model import Model
from agent.retrieval import request_options, routes
from agent.retrieval.execute import resting
from agent.retrieval.fusion import Fused
from agent.retrieval.loading import PassageLoader
from agent.retrieval.merging import ResultMerger
from agent.retrieval.paging import COMPLETE_DEPTH, Page, asks_for_all, page_of, window_of
from agent.retrieval.planning import Asked, IntentPlanner
from agent.retrieval.ranking import FinalRanking, RankingStage, calculated_ids, filter_of
from agent.retrieval.request_check import check_request
from agent.retrieval.rerank.base import Reranker
from agent.retrieval.rerank.pool import RerankStage
from agent.retrieval.results import build_result
from agent.retrieval.rounds import Loop, Looped
from agent.retrieval.search import MODEL_UNAVAILABLE, Search, SearchResults, plain_reading
from agent.retrieval.stage_times import StageTimes, late
from agent.retrieval.visibility import Visibility
from agent.settings import Settings
from agent.types import AskRequest, AugmentRequest, Citation, Prompt, Relaxed, Request, Result, SourceSummary
from retrievers.core.breakers import Breaker, Breakers
from retrievers.core.errors import BadRequest, Unavailable, UnknownCollection
from retrievers.core.filters import Filter
from retrievers.core.tasks import within
from retrievers.core.types import Retriever, Scope, Viewer
from retrievers.embed import Embedder
from retrievers.postgres.catalogue import Catalogue
from retrievers.text import glosses

_READ_BY = 0.5
"""Share of the request's time after which the reading of the question by rules is abandoned."""

_AGAIN_SHARE = 0.5
"""Minimum share of the request's time that must be left for a second search, beyond the chosen collections."""

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
    chooser: Chooser | None = None
    reranker: Reranker | None = None
    breakers: Breakers = field(default_factory=Breakers)
    model: Model | None = None
    model_breaker: Breaker = field(default_factory=Breaker)
    templates: prompts.Library = field(default_factory=prompts.packaged)
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
        return (await self.decide(who, request))[0]

    async def augment(self, who: str | Viewer, request: AugmentRequest) -> Prompt:
        """Return the prompt made from the hits; raises as `retrieve` does."""
        return (await self.decide_prompt(who, request))[0]

    async def decide_prompt(self, who: str | Viewer, request: AugmentRequest) -> tuple[Prompt, Decision]:
        """Return the prompt and the decision record; raises as `retrieve` does."""
        started = time.monotonic()
        self._check_template(who, request)
        result, decision = await self.decide(who, request)
        if decision.lookups is not None:
            return question_prompt(request, result, decision, self.settings.language), decision
        return await self._prompts.assemble(request, result, decision, started)

    async def look_up(
        self, who: Viewer, request: AugmentRequest, *, shown: Sequence[Citation], outside: bool
    ) -> tuple[Prompt, Decision]:
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
            reader = self.reader.over(cards, withheld=paid | {sources.WEB}) if self.reader else None
            pipeline = replace(self, sources=kept, reader=reader)
            left = tuple(name for name in request.sources or () if name not in paid)
            if request.sources and not left:
                raise BadRequest(
                    "the sources outside are searched only once for an answer; name other sources", where="sources"
                )
            request = request.model_copy(update={"sources": left or None})
        result, decision = await pipeline.decide(who, request)
        return await self._prompts.assemble(request, result, decision, started, shown=shown)

    async def decide(self, who: str | Viewer, request: Request) -> tuple[Result, Decision]:
        """Return the result and its decision record, of which traces are made; raises as `retrieve` does."""
        started, times = time.monotonic(), StageTimes()
        timeout_s = request.timeout_s or self.settings.timeout_s
        names_none = request.collection is None and self.default_collection is not None
        if names_none:
            request = request.model_copy(update={"collection": self.default_collection})
        try:
            request = routes.routed(request, self.settings.routes, self.sources)
            viewer, settings = Viewer.of(who), request_options.settings_for(request, self.settings)
            pipeline = replace(self, settings=settings, templates=self.templates.of(viewer.tenant))
            return await within(pipeline._stages(viewer, request, started, timeout_s, times), timeout_s)
        except TimeoutError as error:
            raise late(timeout_s, times.unfinished()) from error
        except UnknownCollection as error:
            if not names_none:
                raise
            what = f"{error}; the request names no collection, so the tenant's default collection was used"
            raise UnknownCollection(what, where="collection", valid=error.valid) from None

    async def _stages(
        self, who: Viewer, request: Request, started: float, timeout_s: float, times: StageTimes
    ) -> tuple[Result, Decision]:
        check_request(request, self.sources, self.withheld)
        self._reranks.reranker_of(request, Calls())
        scope, wanted = await self._visibility.scope_and_filter(who, request)
        request_options.check_fields(request, scope)
        if glosses.is_chinese(request.question):
            await glosses.loaded()
        if isinstance(request, AskRequest) and request.mode == "tool" and self.model is not None:
            times.ended("scope")
            return self._unsearched(who, request, scope, wanted, times)
        choice = await self._chosen(request, scope, started + timeout_s)
        times.ended("scope")
        everywhere = self._over(scope, request)
        partial = sources.partial(everywhere.sources, scope)
        inside = everywhere
        if choice.collections:
            # Search the other collections before any source outside.
            inside = replace(everywhere, settings=self.settings.model_copy(update={"outside_fallback": False}))
        asked = Asked(request, choice.scope, wanted, started, timeout_s, partial=partial)
        result, decision = await inside._within(who, asked, choice, times)
        left_s = started + timeout_s - time.monotonic()
        if not result.intent.scope or _rank(result) == _FOUND or left_s < _AGAIN_SHARE * timeout_s:
            return result, decision
        asked = Asked(request, scope, wanted, time.monotonic(), left_s, narrows=False, partial=partial)
        wider, decided = await everywhere._within(who, asked, Choice(scope), times)
        decided.calls.records[:0] = decision.calls.records
        if _rank(wider) <= _rank(result):
            return result, replace(decision, calls=decided.calls)
        dropped = {"type": "in", "key": "collection", "value": [one.name for one in result.intent.scope]}
        relaxed = (Relaxed(dropped=dropped, reason=scoping.LET_GO), *wider.relaxed)
        took_ms = round((time.monotonic() - started) * 1000, 3)
        return wider.model_copy(update={"relaxed": relaxed, "took_ms": took_ms}), decided

    async def _chosen(self, request: Request, scope: Scope, deadline: float) -> Choice:
        if self.chooser is None or (request.intent or self.settings.intent) == "off":
            return Choice(scope)
        try:
            return await self.chooser.choose(request, scope, deadline)
        except (BadRequest, Unavailable, OSError):
            raise
        except Exception as error:
            _log.error("the collections of a question could not be chosen: all are asked", exc_info=error)
            return Choice(scope)

    async def _within(self, who: Viewer, asked: Asked, choice: Choice, times: StageTimes) -> tuple[Result, Decision]:
        """Run all stages from the reading to the page of hits, and return the result and the decision record.

        Args:
            asked: the request and the collections that it may search.
            choice: why these collections were chosen; its own scope is not used.
        """
        reading = await self._read(asked)
        times.ended("intent")
        if asks_for_all(asked.request, reading.first):
            asked = replace(asked, depth=COMPLETE_DEPTH)
        search = Search(IntentPlanner(self.settings, self.sources, self.embedder, self.breakers), self.catalogue)
        found = await search.run(asked, reading)
        times.ended("search")
        _raise_fault(found)
        ranking, weights = self.merger.fuse(found)
        times.ended("fusion")
        looped = await self._looped(asked, reading, search, found, ranking)
        times.ended("loop")
        ranked = await self._ranks.rank(asked, reading, looped.found, looped.ranking, times)
        ranked, page, is_listed = await self._page(asked, looped.found, ranked)
        times.ended("page")
        intent = found.planned.intent
        intent = intent.model_copy(update={"scope": intent.scope or choice.collections})
        result = build_result(asked, reading, intent, looped, ranked, page, listed=is_listed, embedder=self.embedder)
        found = looped.found
        decision = Decision(
            who.tenant, asked.request, asked.scope, reading.first, found.later, found.answers, tuple(ranked.fused),
            tuple(page.hits), reading.stated, reading.calls, weights, times.elapsed_ms, filter_of(asked, found),
            ranked.reranking, found=found, rounds=looped.rounds, templates=self.templates,
        )  # fmt: skip
        return result, decision

    async def _read(self, asked: Asked) -> Reading:
        reading = await self._reading(asked)
        if asked.request.complete and reading.first.kind == "none":
            return await plain_reading(asked, self.sources)  # the caller asks for documents, even in small talk
        return reading

    async def _reading(self, asked: Asked) -> Reading:
        if self.reader is None or (asked.request.intent or self.settings.intent) == "off":
            return replace(
                await plain_reading(asked, self.sources), degraded=transform.skipped(self.settings.transforms)
            )
        try:
            # No task of its own: an abandoned reading would run on in the background.
            async with asyncio.timeout(asked.at(_READ_BY) - time.monotonic()):
                return await self.reader.read(asked.request, asked.scope, asked.wanted, asked.at(1.0))
        except BadRequest:
            raise
        except Exception as error:
            if not isinstance(error, Unavailable | OSError):  # a bug in a rule must not cost the answer
                _log.error("a question could not be read: it is searched as it is", exc_info=error)
            degraded = ("intent_unavailable", *transform.skipped(self.settings.transforms))
            return replace(await plain_reading(asked, self.sources), degraded=degraded)

    async def _looped(
        self, asked: Asked, reading: Reading, search: Search, found: SearchResults, ranking: list[Fused]
    ) -> Looped:
        """Judge the hits and search again for what is missing, unless intent is "off" or all documents are wanted."""
        mode = asked.request.intent or self.settings.intent
        if mode == "off" or asks_for_all(asked.request, found.planned.intent):
            return Looped(found, ranking)  # a complete list has no gaps, and its filter must not be relaxed
        # A model too slow to read the question would also use up the time for a judgement.
        asks = mode != "rules" and MODEL_UNAVAILABLE not in found.degraded
        model = self.model if asks else None
        merger = self.merger
        loop = Loop(
            self.settings, search, model, self.model_breaker, lambda *given: merger.ranking(*given)[0],
            self._loader.hits, self.templates,
        )  # fmt: skip
        return await loop.run(asked, found, ranking, reading.calls)

    async def _page(self, asked: Asked, found: SearchResults, ranked: FinalRanking) -> tuple[FinalRanking, Page, bool]:
        """Cut the page out of the final ranking and load its passages.

        Returns:
            The ranking from which pages are cut, the page, and whether the request's `complete` is true and the page
            is part of a complete list.
        """
        request, intent, wanted = asked.request, found.planned.intent, filter_of(asked, found)
        relaxed = bool(found.rung and found.rung.dropped)
        window = window_of(
            request, intent, self.settings, filtered=wanted is not None, relaxed=relaxed, bounded=ranked.is_bounded
        )
        if window.complete:  # a calculated table is a hit, but not a document of the list
            calculated = calculated_ids(found)
            ranked = replace(ranked, hits=[hit for hit in ranked.hits if hit.id not in calculated])
        load = partial(self._loader.hits, asked.scope, wanted)
        listed = partial(self._loader.listed, asked.scope, wanted)
        page = await page_of(ranked.hits, window, intent.question, load, listed)
        return ranked, page, bool(window.complete and request.complete)

    def _unsearched(
        self, who: Viewer, request: AskRequest, scope: Scope, wanted: Filter | None, times: StageTimes
    ) -> tuple[Result, Decision]:
        """Return an empty result and its decision, for a request whose model searches by tool calls (mode "tool").

        Nothing is searched here: `Decision.lookups` runs the model's searches.
        """
        intent = stated_alone(request, scope, wanted, ()).model_copy(update={"kind": "none", "searches": ()})
        result = Result.model_construct(
            trace_id=uuid.uuid4().hex, query=request.question, intent=intent, plan=(), hits=(), outcomes=(),
            status="no_retrieval_needed", took_ms=0.0, degraded=transform.skipped(self.settings.transforms),
        )  # fmt: skip
        # With None, each search reads the caller's rights again: they may change while the model works.
        look = partial(replace(self, changed=None).look_up, who)
        searches = lookups.opened(look, request, self.settings, scope, self._outside)
        decision = Decision(
            who.tenant, request, scope, intent, None, (), (), (), elapsed_ms=times.elapsed_ms, wanted=wanted,
            templates=self.templates, lookups=searches,
        )  # fmt: skip
        return result, decision

    def _over(self, scope: Scope, request: Request) -> "Pipeline":
        """Return a pipeline with only the sources that have documents in the scope or that the request names."""
        offered = sources.offered(self.sources, scope, request.sources or ())
        if offered.keys() == self.sources.keys():
            return self
        cards = {name: source.card for name, source in offered.items()}
        return replace(self, sources=offered, reader=self.reader.over(cards) if self.reader else None)

    async def summaries(self, who: Viewer) -> tuple[SourceSummary, ...]:
        """Return the sources that the viewer's questions can be sent to; raises as `retrieve` does."""
        try:
            scope = await self._visibility.visible(who, None)
        except UnknownCollection:
            scope = Scope(who.tenant, (), principals=who.principals)  # the tenant has no collection yet
        offered, timeout_s = sources.offered(self.sources, scope), self.settings.source_timeout_s
        rests = resting(offered, self.breakers, scope)
        return tuple(
            sources.summary(one, scope, timeout_s=timeout_s, resting=name in rests) for name, one in offered.items()
        )

    @property
    def _outside(self) -> frozenset[str]:
        """Names of the external sources (web, cloud), which may charge for each search."""
        return frozenset(name for name, source in self.sources.items() if source.card.kind == "outside")

    def _check_template(self, who: str | Viewer, request: AugmentRequest) -> None:
        try:
            self.templates.of(Viewer.of(who).tenant).answer(request.template)
        except prompts.BadTemplate as error:
            raise BadRequest(str(error), where="template", valid=error.valid) from error

    @property
    def merger(self) -> ResultMerger:
        """The stage that merges the rankings of the sources."""
        return ResultMerger(self.settings, self.sources, self.embedder)

    @property
    def _visibility(self) -> Visibility:
        return Visibility(self.catalogue, self.sources, self.changed)

    @property
    def _loader(self) -> PassageLoader:
        return PassageLoader(self.catalogue, self.sources)

    @property
    def _reranks(self) -> RerankStage:
        return RerankStage(self.settings, self.catalogue, self._loader, self.breakers, self.reranker, self.templates)

    @property
    def _ranks(self) -> RankingStage:
        return RankingStage(self.settings, self.catalogue, self.sources, self.embedder, self._loader, self._reranks)

    @property
    def _prompts(self) -> PromptStage:
        return PromptStage(self.settings, self._loader)


def _raise_fault(found: SearchResults) -> None:
    """Raise the first `BadRequest` of the searches, if every search ended with one and no condition was inferred."""
    refused = [answer.error for answer in found.answers if isinstance(answer.error, BadRequest)]
    if found.planned.intent.by == "caller" and refused and len(refused) == len(found.answers):
        raise refused[0]


_FOUND = 2


def _rank(result: Result) -> int:
    """Return a number to compare results by status: 0 for nothing found, 1 for weak, `_FOUND` for any other."""
    return {"nothing_found": 0, "weak": 1}.get(result.status, _FOUND)
