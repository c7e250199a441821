"""The pipeline of one request: intent, router, retrieve, fusion, rerank, assemble.

It takes a request and returns a result or a prompt, with the decision record. Every stage is a pure step over frozen
values, except the searches. The searches of the first reading run while a model still reads the question; the model's
reading joins them when it arrives.
"""

import asyncio
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

import prompts
from agent.answering import assemble, lookups
from agent.answering.context import Around, surroundings
from agent.answering.decision import Decision
from agent.intent import scope as scoping
from agent.intent import sources, transform
from agent.intent.reader import local
from agent.intent.reading import IntentReader, Reading, stated_alone
from agent.intent.scope import Choice, Chooser
from agent.llm.breaker import Breaker, Breakers
from agent.llm.calls import Calls
from agent.llm.model import Model
from agent.llm.tokens import estimate_tokens
from agent.options import prompt_fields
from agent.options.fusion import parse_weights
from agent.options.rank_features import parse as parse_rank_features
from agent.options.rerankers import shown
from agent.retrieval import fusion, rank_features, relevance, request_options, routes
from agent.retrieval.course import Asked, CoursePlanner
from agent.retrieval.execute import StepResult, resting
from agent.retrieval.fusion import Fused
from agent.retrieval.highlight import Highlighter
from agent.retrieval.paging import COMPLETE_DEPTH, Page, Window, asks_for_all, page_of, window_of
from agent.retrieval.rerank.base import Reranker
from agent.retrieval.rerank.hybrid import Hybrid
from agent.retrieval.rerank.llm import ListwiseReranker
from agent.retrieval.rerank.stage import Patience, Reranking, rerank
from agent.retrieval.rounds import Loop, Looped, searches_by_part
from agent.retrieval.search import MODEL_UNAVAILABLE, Search, SearchResults, unread
from agent.settings import Settings
from agent.types import (
    AskRequest,
    AugmentRequest,
    Citation,
    Intent,
    Message,
    Prompt,
    RankedHit,
    Relaxed,
    Request,
    Result,
    SourceSummary,
    Status,
    Table,
)
from retrievers.core.errors import BadDocument, BadRequest, Unavailable, UnknownCollection, listing
from retrievers.core.fields import Field, Values, flatten, normalise
from retrievers.core.filters import Filter, in_words, parse
from retrievers.core.places import describe, first_page
from retrievers.core.tasks import within
from retrievers.core.types import Chunk, ChunkId, Hit, Holder, Retriever, Scope, Viewer
from retrievers.embed import Embedder
from retrievers.embed.pool import Embedders
from retrievers.postgres.catalogue import Catalogue, filterable
from retrievers.postgres.documents import Phrases
from retrievers.postgres.listing import Listed
from retrievers.text import glosses
from retrievers.text.visible import prompt_text

RERANK_POOL = 64
"""Number of top hits that are reranked, whatever page is asked for."""
SUPERSEDED_WEIGHT = 0.5
"""Weight of a search of the first reading that the model's reading does not repeat; the model's have weight 1."""
GLOSSED_WEIGHT = 0.8
"""Weight of a search in dictionary English, next to weight 1 of the Chinese question itself."""

# Shares of the request's remaining time and of the `timeout_s` setting, see
# `agent.retrieval.rerank.stage.Patience`.
_RERANK_SHARE, _RERANK_PATIENCE = 0.4, 0.2

_READ_BY = 0.5
"""Share of the request's time by which the first reading must have ended."""

_AGAIN_SHARE = 0.5
"""Minimum share of the request's time that must be left to search beyond the chosen collections."""

_FEATURED_BY = 0.95
"""Share of the request's time by which relevance and feedback must be known, so that the page can still be loaded."""

# Sources that exist only with a setting, and the name of that setting.
_SETTINGS = {"web": "WEB_PROVIDER", "cloud": "CLOUD", "local": "LOCAL"}

_WAITS_FOR = {
    "scope": "the database to say what the tenant may read",
    "intent": "the values and words of the documents",
    "search": "the sources",
    "fusion": "the rankings to be merged",
    "loop": "further rounds of searching",
    "page": "the database to give the texts of the hits",
}


class _Clock:
    """Measures how many milliseconds each of several consecutive stages took."""

    def __init__(self, elapsed_ms: dict[str, float] | None = None) -> None:
        self.elapsed_ms = elapsed_ms if elapsed_ms is not None else {}
        self._last = time.monotonic()

    def ended(self, stage: str) -> None:
        now = time.monotonic()
        self.elapsed_ms[stage] = round(self.elapsed_ms.get(stage, 0.0) + (now - self._last) * 1000, 3)
        self._last = now

    def unfinished(self) -> str:
        """Describe the stage that was running when the time ran out."""
        stage = next((stage for stage in _WAITS_FOR if stage not in self.elapsed_ms), "page")
        return f"the {stage} step was still waiting for {_WAITS_FOR[stage]}"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The stages, applied to one set of sources.

    Args:
        sources: retrievers by name, in order of preference.
        embedder: embeds questions; its languages decide how much vectors count.
        reader: reads questions. Without a reader, and for requests with intent "off", nothing is inferred.
        chooser: chooses collections for questions that name none; without a chooser all collections are searched.
        reranker: the reranker of the settings; "none" and "hybrid" are always available.
        model: judges whether the hits are sufficient; with None, rules do.
        model_breaker: the model's circuit breaker, shared with all other callers of the model.
        templates: prompt templates of all tenants.
        withheld: names of sources that the tenant may not use; they are not in `sources`.
        changed: the tenant's change number, see `Catalogue.scope`; None reads it from the database.
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
            Unavailable: the database cannot give the tenant's collections or the texts of the hits, or the time is
                over. A source that fails raises nothing: the result says so.
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
            return _asked_alone(request, result, decision, self.settings.language), decision
        return await self._assembled(request, result, decision, started)

    async def look_up(
        self, who: Viewer, request: AugmentRequest, *, shown: Sequence[Citation], outside: bool
    ) -> tuple[Prompt, Decision]:
        """Run one search that the model asked for; the prompt's text is the tool's answer. Raises as `retrieve` does.

        Args:
            shown: passages that earlier searches returned; new passages continue their numbers.
            outside: whether sources outside, which cost money per search, may be asked.
        """
        started = time.monotonic()
        pipeline = self
        if not outside:
            paid = self._outside
            kept = {name: one for name, one in self.sources.items() if name not in paid}
            cards = {name: source.card for name, source in kept.items()}
            # Withhold the web too, so that the reader routes no query there: earlier searches have asked it already.
            reader = self.reader.over(cards, withheld=paid | {sources.WEB}) if self.reader else None
            pipeline = replace(self, sources=kept, reader=reader)
            left = tuple(name for name in request.sources or () if name not in paid)
            if request.sources and not left:
                raise BadRequest("the sources outside are not searched again for one answer", where="sources")
            request = request.model_copy(update={"sources": left or None})
        return await self._assembled(request, *await pipeline.decide(who, request), started, shown=shown)

    @property
    def _outside(self) -> frozenset[str]:
        """Names of the sources outside, which are paid per search."""
        return frozenset(name for name, source in self.sources.items() if source.card.kind == "outside")

    async def _assembled(
        self,
        request: AugmentRequest,
        result: Result,
        decision: Decision,
        started: float,
        *,
        shown: Sequence[Citation] | None = None,
    ) -> tuple[Prompt, Decision]:
        """Make the prompt from a result; with `shown`, make the answer of the search tool."""
        clock = _Clock(dict(decision.elapsed_ms))
        chunks = [hit.chunk for hit in decision.page if hit.chunk is not None]
        answering_tool = None
        if shown is not None:
            known = {chunk.id: lookups.number_of(chunk, shown) for chunk in chunks}
            again = sorted({number for number in known.values() if number is not None})
            answering_tool = assemble.AnsweringTool(len(shown) + 1, again)
            chunks = [chunk for chunk in chunks if known[chunk.id] is None]
        left_s = started + (request.timeout_s or self.settings.timeout_s) - time.monotonic()
        around, degraded = await self._surroundings(request, decision, chunks, left_s)
        # The collections were chosen by the service, not stated in the question, so the prompt does not mention them.
        relaxed = _distinct(*(in_words(one.dropped) for one in result.relaxed if one.reason != scoping.LET_GO))
        rung = decision.found.rung if decision.found is not None else None
        # Constraints that only later rounds left out may still hold for the first round's hits.
        left_out = _distinct(*(in_words(one.dropped) for one in (rung.dropped if rung else ())))
        fields = prompt_fields.parse(self.settings.prompt_fields)
        made = assemble.assemble(
            _in_own_words(request.question, result.query),
            [prompt_fields.shown(chunk, fields) for chunk in chunks],
            budget_tokens=request.budget_tokens,
            template=request.template,
            templates=decision.templates,
            left_out=left_out,
            left_out_in_part=[one for one in relaxed if one not in left_out],
            unread=[one.what for one in result.intent.rejected] if result.intent.by == "rules" else (),
            looked=result.status != "no_retrieval_needed",
            around={
                id: {other: prompt_fields.shown(chunk, fields) for other, chunk in beside.items()}
                for id, beside in around.items()
            },
            total=result.total,
            language=self.settings.language,
            answering_tool=answering_tool,
        )
        given = {name: getattr(result, name) for name in Result.model_fields}
        given["degraded"] = _distinct(*result.degraded, *degraded)
        given["took_ms"] = round((time.monotonic() - started) * 1000, 3)
        prompt = Prompt.model_construct(
            **given, messages=made.messages, prompt=made.prompt, citations=made.citations, tokens=made.tokens
        )
        clock.ended("assemble")
        return prompt, replace(decision, elapsed_ms=clock.elapsed_ms, passages=made.passages)

    def _check_template(self, who: str | Viewer, request: AugmentRequest) -> None:
        try:
            self.templates.of(Viewer.of(who).tenant).answer(request.template)
        except prompts.BadTemplate as error:
            raise BadRequest(str(error), where="template", valid=error.valid) from error

    async def _surroundings(
        self, request: AugmentRequest, decision: Decision, chunks: Sequence[Chunk], left_s: float
    ) -> tuple[Around, tuple[str, ...]]:
        """Load the text around each passage if the request asks for it. On failure the passages are returned alone."""
        kind = request.context or self.settings.context
        if kind == "passage":
            return {}, ()

        async def load(ids: Iterable[ChunkId]) -> Mapping[ChunkId, Chunk]:
            return await self._chunks(decision.scope, ids, decision.wanted)

        reading = surroundings(chunks, kind, load, budget_tokens=request.budget_tokens)
        try:
            return await within(reading, min(self.settings.source_timeout_s, left_s)), ()
        except (Unavailable, OSError):
            return {}, ("context_unavailable",)

    async def _chunks(self, scope: Scope, ids: Iterable[ChunkId], wanted: Filter | None) -> Mapping[ChunkId, Chunk]:
        """Load chunks from the database and from sources that hold their own documents; other ids are left out."""
        known = list(ids)
        stored = {(one.tenant, one.name) for one in scope.collections}
        # A folder with the name of a stored collection is not searched: its passages would have the same ids.
        held = {(one.tenant, one.name) for one in scope.beside} - stored
        chunks = await self.catalogue.load(scope, [id for id in known if id[:2] in stored], wanted)
        for source in self.sources.values():
            if isinstance(source, Holder):
                chunks.update(source.load([id for id in known if id[:2] in held], wanted))
        return chunks

    async def decide(self, who: str | Viewer, request: Request) -> tuple[Result, Decision]:
        """Return the result and the decision record; raises as `retrieve` does."""
        started, clock = time.monotonic(), _Clock()
        timeout_s = request.timeout_s or self.settings.timeout_s
        names_none = request.collection is None and self.default_collection is not None
        if names_none:
            request = request.model_copy(update={"collection": self.default_collection})
        try:
            request = routes.routed(request, self.settings.routes, self.sources)
            viewer, settings = Viewer.of(who), request_options.settings_for(request, self.settings)
            pipeline = replace(self, settings=settings, templates=self.templates.of(viewer.tenant))
            return await within(pipeline._stages(viewer, request, started, timeout_s, clock), timeout_s)
        except TimeoutError as error:
            raise late(timeout_s, clock.unfinished()) from error
        except UnknownCollection as error:
            if not names_none:
                raise
            what = f"{error}; the request names none, and that is the default collection of this tenant"
            raise UnknownCollection(what, where="collection", valid=error.valid) from None

    async def _stages(
        self, who: Viewer, request: Request, started: float, timeout_s: float, clock: _Clock
    ) -> tuple[Result, Decision]:
        self._check(request)
        scope, wanted = await self._scope(who, request)
        request_options.check_fields(request, scope)
        if glosses.is_chinese(request.question):
            await glosses.loaded()
        if isinstance(request, AskRequest) and request.mode == "tool" and self.model is not None:
            clock.ended("scope")
            return self._unsearched(who, request, scope, wanted, clock)
        choice = await self._chosen(request, scope, started + timeout_s)
        clock.ended("scope")
        everywhere = self._over(scope, request)
        partial = sources.partial(everywhere.sources, scope)
        inside = everywhere
        if choice.collections:
            # Search the other collections before any source outside.
            inside = replace(everywhere, settings=self.settings.model_copy(update={"outside_fallback": False}))
        asked = Asked(request, choice.scope, wanted, started, timeout_s, partial=partial)
        result, decision = await inside._within(who, asked, choice, clock)
        left_s = started + timeout_s - time.monotonic()
        if not result.intent.scope or _rank(result) == _FOUND or left_s < _AGAIN_SHARE * timeout_s:
            return result, decision
        asked = Asked(request, scope, wanted, time.monotonic(), left_s, narrows=False, partial=partial)
        wider, decided = await everywhere._within(who, asked, Choice(scope), clock)
        decided.calls.records[:0] = decision.calls.records
        if _rank(wider) <= _rank(result):
            return result, replace(decision, calls=decided.calls)
        dropped = {"type": "in", "key": "collection", "value": [one.name for one in result.intent.scope]}
        relaxed = (Relaxed(dropped=dropped, reason=scoping.LET_GO), *wider.relaxed)
        took_ms = round((time.monotonic() - started) * 1000, 3)
        return wider.model_copy(update={"relaxed": relaxed, "took_ms": took_ms}), decided

    def _unsearched(
        self, who: Viewer, request: AskRequest, scope: Scope, wanted: Filter | None, clock: _Clock
    ) -> tuple[Result, Decision]:
        """Return an empty result for a request whose model does the searching; nothing is searched yet."""
        intent = stated_alone(request, scope, wanted, ()).model_copy(update={"kind": "none", "searches": ()})
        result = Result.model_construct(
            trace_id=uuid.uuid4().hex, query=request.question, intent=intent, plan=(), hits=(), outcomes=(),
            status="no_retrieval_needed", took_ms=0.0, degraded=transform.skipped(self.settings.transforms),
        )  # fmt: skip
        # Searches in later rounds ask the database again what the caller may read.
        look = partial(replace(self, changed=None).look_up, who)
        searches = lookups.opened(look, request, self.settings, scope, self._outside)
        decision = Decision(
            who.tenant, request, scope, intent, None, (), (), (), elapsed_ms=clock.elapsed_ms, wanted=wanted,
            templates=self.templates, lookups=searches,
        )  # fmt: skip
        return result, decision

    def _over(self, scope: Scope, request: Request) -> "Pipeline":
        """Return a pipeline with only the sources that this request can use."""
        offered = sources.offered(self.sources, scope, request.sources or ())
        if offered.keys() == self.sources.keys():
            return self
        cards = {name: source.card for name, source in offered.items()}
        return replace(self, sources=offered, reader=self.reader.over(cards) if self.reader else None)

    async def summaries(self, who: Viewer) -> tuple[SourceSummary, ...]:
        """Return the sources that the viewer's questions can be sent to; raises as `retrieve` does."""
        try:
            scope = await self._visible(who, None)
        except UnknownCollection:
            scope = Scope(who.tenant, (), principals=who.principals)  # the tenant has no collection yet
        offered, timeout_s = sources.offered(self.sources, scope), self.settings.source_timeout_s
        rests = resting(offered, self.breakers, scope)
        return tuple(
            sources.summary(one, scope, timeout_s=timeout_s, resting=name in rests) for name, one in offered.items()
        )

    async def _chosen(self, request: Request, scope: Scope, deadline: float) -> Choice:
        if self.chooser is None or (request.intent or self.settings.intent) == "off":
            return Choice(scope)
        return await self.chooser.choose(request, scope, deadline)

    async def _within(self, who: Viewer, asked: Asked, choice: Choice, clock: _Clock) -> tuple[Result, Decision]:
        """Run all stages over the scope of `asked`; `choice` says why its collections were chosen."""
        request, scope, wanted = asked.request, asked.scope, asked.wanted
        reading = await self._read(asked)
        if request.complete and reading.first.kind == "none":
            reading = await unread(asked, self.sources)  # the caller asks for documents, even in small talk
        clock.ended("intent")
        if asks_for_all(request, reading.first):
            asked = replace(asked, depth=COMPLETE_DEPTH)
        planner = CoursePlanner(self.settings, self.sources, self.embedder, self.breakers)
        search = Search(planner, self.catalogue)
        found = await search.run(asked, reading)
        clock.ended("search")
        intent = found.course.intent
        intent = intent.model_copy(update={"scope": intent.scope or choice.collections})
        refused = [answer.error for answer in found.answers if isinstance(answer.error, BadRequest)]
        if intent.by == "caller" and refused and len(refused) == len(found.answers):
            raise refused[0]  # nothing was inferred from the question, so the caller's own request is at fault
        ranking, weights = self.fuse(found)
        clock.ended("fusion")
        looped = await self._looped(asked, reading, search, found, ranking)
        found, ranking = looped.found, looped.ranking
        clock.ended("loop")
        held = found.rung.filter if found.rung else wanted
        table = _table(found) if intent.kind != "none" else None
        judged, unjudged = await self._judged(asked, reading, found, ranking)
        minimum = self.settings.min_relevance if request.min_relevance is None else request.min_relevance
        # A question that is nothing but conditions: every document that satisfies them is relevant.
        is_bounded = minimum is not None and not reading.is_listing
        if minimum is not None:
            ranking = [hit for hit in ranking if judged.get(hit.id, 1.0) >= minimum]
        ranking = self._relevant(ranking, judged)
        final: list[Fused] = ranking
        reranking: Reranking | None = None
        unfeatured: tuple[str, ...] = ()
        # Calculated hits have their own order, for example earliest first.
        if table is None and (reranker := self._reranker(request, reading.calls)) is not None and ranking:
            final, reranking = await self._reranked(reranker, asked, intent, held, ranking)
            clock.ended("rerank")
        if table is None and self.settings.rank_features and final:
            pool = await self._loaded(scope, held, final[:RERANK_POOL])
            pool, unfeatured = await self._featured(asked, intent, pool)
            final = fusion.never_rising([*pool, *final[RERANK_POOL:]])
        is_bounded |= reranking is not None and reranking.minimum is not None
        window = self._window(request, found, held, bounded=is_bounded)
        if window.complete:  # the row of a table is not a document of the list
            calculated = _calculated(found)
            final = [hit for hit in final if hit.id not in calculated]
        shown = await self._page(asked, intent, held, final, window)
        page = shown.hits
        clock.ended("page")
        least = relevance.weights().found if minimum is None else minimum
        is_listed = bool(window.complete and request.complete)
        result = Result.model_construct(
            trace_id=uuid.uuid4().hex,
            query=intent.question,
            intent=intent,
            plan=tuple(answer.step for answer in found.answers),
            hits=_ranked(page, shown.first, intent, judged),
            table=table,
            outcomes=tuple(answer.outcome for answer in found.answers),
            relaxed=(*(found.rung.dropped if found.rung else ()), *looped.relaxed),
            degraded=_distinct(
                *reading.degraded,
                *found.degraded,
                *(f"{answer.step.source}_unavailable" for answer in found.answers if answer.unavailable),
                *self._partial(found, scope),
                *(reranking.degraded if reranking else ()),
                *looped.degraded,
                *unfeatured,
                *unjudged,
            ),
            status=_status(intent, table, final, page, judged, least=least, listed=is_listed),
            took_ms=round((time.monotonic() - asked.started) * 1000, 3),
            total=shown.total,
            complete=shown.complete,
        )
        decision = Decision(
            who.tenant, request, scope, reading.first, found.later, found.answers, tuple(ranking), tuple(page),
            reading.stated, reading.calls, weights, clock.elapsed_ms, held, reranking, found=found,
            rounds=looped.rounds, templates=self.templates,
        )  # fmt: skip
        return result, decision

    async def _read(self, asked: Asked) -> Reading:
        if self.reader is None or (asked.request.intent or self.settings.intent) == "off":
            return replace(await unread(asked, self.sources), degraded=transform.skipped(self.settings.transforms))
        try:
            # Within this task, so that an abandoned reading leaves no background work behind.
            async with asyncio.timeout(asked.at(_READ_BY) - time.monotonic()):
                return await self.reader.read(asked.request, asked.scope, asked.wanted, asked.at(1.0))
        except (Unavailable, OSError):
            degraded = ("intent_unavailable", *transform.skipped(self.settings.transforms))
            return replace(await unread(asked, self.sources), degraded=degraded)

    def _check(self, request: Request) -> None:
        if not request.question.strip():
            raise BadRequest("the question is empty: give `query`, or `messages` with a user's turn", where="query")
        if len(request.question) > 8000:
            raise BadRequest("the question has more than 8,000 characters", where="query")
        unknown = [name for name in request.sources or () if name not in self.sources]
        if withheld := [name for name in unknown if name in self.withheld]:
            what = f"this tenant may not ask the source {listing(withheld)}; it may ask: {listing(self.sources)}"
            raise BadRequest(what, where="sources", valid=tuple(self.sources))
        if unknown:
            setting = _SETTINGS.get(unknown[0])
            mend = f"; it comes with the setting {setting}, or as [sources.{unknown[0]}]" if setting else ""
            raise BadRequest(
                f'there is no source "{unknown[0]}"; there are: {listing(self.sources)}{mend}',
                where="sources",
                valid=tuple(self.sources),
            )
        self._reranker(request, Calls())

    async def _scope(self, who: Viewer, request: Request) -> tuple[Scope, Filter | None]:
        try:
            scope = await self._visible(who, request.collection)
        except UnknownCollection:
            outside = {self.sources[one].card.kind for one in request.sources or ()} == {"outside"}
            if not outside or request.collection is not None or request.filter is not None:
                raise
            scope = Scope(
                who.tenant, (), principals=who.principals
            )  # sources outside can be asked without any collection
        if request.filter is None:
            return scope, None
        try:
            return scope, parse(request.filter, filterable(scope))
        except BadRequest:
            # The field may be newer than the cached catalogue.
            scope = await self._visible(who, request.collection, fresh=True)
            return scope, parse(request.filter, filterable(scope))

    async def _visible(self, who: Viewer, collection: str | None, *, fresh: bool = False) -> Scope:
        """Return what the request may read: collections of the database and of sources with documents of their own."""
        holders = {name: source for name, source in self.sources.items() if isinstance(source, Holder)}
        asked = [one for name, one in holders.items() if collection in (None, name)]
        beside = tuple([await one.collection(fresh=fresh) for one in asked])
        try:
            scope = await self.catalogue.scope(who, collection, fresh=fresh, changed=self.changed)
        except UnknownCollection as error:
            if not holders:
                raise
            if not beside:
                names = {*error.valid, *holders}
                what = f'there is no collection "{collection}"; there are: {listing(names)}'
                raise UnknownCollection(what, where="collection", valid=names) from None
            scope = Scope(who.tenant, (), principals=who.principals)
        return replace(scope, beside=beside)

    async def _looped(
        self, asked: Asked, reading: Reading, search: Search, found: SearchResults, ranking: list[Fused]
    ) -> Looped:
        """Run further rounds of searching, unless intent is "off" or a complete list is asked for."""
        mode = asked.request.intent or self.settings.intent
        if mode == "off" or asks_for_all(asked.request, found.course.intent):
            return Looped(found, ranking)  # a complete list has no gaps, and its filter must not be relaxed
        # A model too slow to read the question would also use up the time for a judgement.
        asks = mode != "rules" and MODEL_UNAVAILABLE not in found.degraded
        model = self.model if asks else None
        loop = Loop(
            self.settings, search, model, self.model_breaker, lambda *given: self._fused(*given)[0], self._loaded,
            self.templates,
        )  # fmt: skip
        return await loop.run(asked, found, ranking, reading.calls)

    async def _judged(
        self, asked: Asked, reading: Reading, found: SearchResults, ranking: Sequence[Fused]
    ) -> tuple[Mapping[ChunkId, float], tuple[str, ...]]:
        """Return the relevance of each hit, 0 to 1; empty and marked degraded if it cannot be computed in time."""
        if not ranking:
            return {}, ()
        judging = relevance.judge(
            found,
            ranking,
            scope=asked.scope,
            catalogue=self.catalogue,
            sources=self.sources,
            embedder=Embedders.of(self.embedder),
            is_listing=reading.is_listing,
        )
        try:
            return await within(judging, asked.at(_FEATURED_BY) - time.monotonic()), ()
        except (Unavailable, OSError):
            return {}, (relevance.UNAVAILABLE,)

    def _relevant(self, ranking: list[Fused], judged: Mapping[ChunkId, float]) -> list[Fused]:
        """Drop hits below the `min_relevance` of every source that found them."""
        bounds = {name: source.card.min_relevance or 0.0 for name, source in self.sources.items()}
        if not any(bounds.values()):
            return ranking
        least = (min((bounds.get(name, 0.0) for name in hit.ranks), default=0.0) for hit in ranking)
        return [hit for hit, bound in zip(ranking, least, strict=True) if judged.get(hit.id, 1.0) >= bound]

    def fuse(self, found: SearchResults) -> tuple[list[Fused], dict[str, float]]:
        """Fuse the answers of the first searches into one ranking.

        The rankings for separate parts of the question take turns. Also returns the full-text weight per search.
        """
        groups = searches_by_part(found.course.intent)
        if len(groups) < 2:
            return self._fused(found, found.used)
        merged = [self._fused(found, [one for one in found.used if one.step.search in group]) for group in groups]
        weights = {search: weight for _, one in merged for search, weight in one.items()}
        return fusion.take_turns([ranking for ranking, _ in merged]), weights

    def _fused(self, found: SearchResults, answers: Sequence[StepResult]) -> tuple[list[Fused], dict[str, float]]:
        """Fuse the answers and boost hits that also satisfy the likely constraints.

        Also returns the full-text weight per search.
        """
        ranking, weights = self._merged(found, answers)
        searches = {one.step.search for one in answers}
        likely = [one for one in found.likely if one.step.search in searches and one.hits]
        if likely and ranking:
            ranking = fusion.boost(ranking, self._merged(found, likely)[0])
        return ranking, weights

    def _merged(self, found: SearchResults, answers: Sequence[StepResult]) -> tuple[list[Fused], dict[str, float]]:
        """Fuse the sources of each search, then the searches with each other.

        Also returns the full-text weight per search.
        """
        rankings: dict[tuple[str, str], dict[str, Sequence[Hit]]] = {}
        languages: dict[str, str] = {}
        for answer in answers:
            search, source = answer.step.search, answer.step.source
            if answer.query is not None:
                # The embedder gets the English gloss of the question.
                languages[search] = "en" if answer.query.gloss else answer.query.language
            # Calculated hits, and hits from outside, have an order of their own. Their scores cannot be compared with
            # those of document texts, so each kind is fused separately.
            ranking = rankings.setdefault((search, self.sources[source].card.kind), {})
            # A failed source is left out; an empty one takes part with no hits.
            if answer.hits or (source not in ranking and not answer.failed):
                ranking[source] = answer.hits
        default = found.course.intent.language
        merged: list[list[Fused]] = []
        weights: dict[str, float] = {}
        scope = next((answer.query.scope for answer in answers if answer.query), None)
        for (search, _), one in rankings.items():
            if self.settings.fusion == "convex":
                weight = self._lexical_weight(one, languages.get(search, default), scope)
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
        return fusion.weighted_sum(found, weights=parse_weights(self.settings.fusion_weights))

    def _lexical_weight(self, found: fusion.Rankings, language: str, scope: Scope | None) -> float:
        if self.settings.lexical_weight is not None:
            return self.settings.lexical_weight
        known = Embedders.of(self.embedder).languages_in(scope) if scope is not None else self.embedder.languages
        return fusion.lexical_weight(language, found, languages=known)

    def _partial(self, found: SearchResults, scope: Scope) -> tuple[str, ...]:
        """Return a note such as "vector_partial" for each source that could search only a part of its documents."""
        if partial := [answer for answer in found.answers if answer.is_partial]:
            return _distinct(*(f"{answer.step.source}_partial" for answer in partial))
        asked = any(answer.step.source == "vector" and answer.query for answer in found.answers)
        embedders = Embedders.of(self.embedder)
        served = {embedders.has(one.embedder or "") for one in scope.collections if one.chunks}
        return ("vector_partial",) if asked and served == {True, False} else ()

    def _reranker(self, request: Request, calls: Calls) -> Reranker | None:
        """Return the request's reranker: the configured one or one that needs no setup, never an address or a folder.

        Raises:
            BadRequest: the request names any other reranker.
        """
        configured = self.reranker.name if self.reranker is not None else shown(self.settings.reranker)
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

    async def _reranked(
        self, reranker: Reranker, asked: Asked, intent: Intent, wanted: Filter | None, ranking: list[Fused]
    ) -> tuple[list[Fused], Reranking | None]:
        """Rerank a fixed pool of top hits, so that every page is cut from the same final ranking."""
        pool = await self._loaded(asked.scope, wanted, ranking[:RERANK_POOL])
        if not pool:
            return ranking, None  # all of these documents were deleted meanwhile
        blend = 0.0 if isinstance(reranker, Hybrid) else self.settings.rerank_blend
        given_s = _RERANK_SHARE * (asked.at(1.0) - time.monotonic())
        if blend or isinstance(reranker, Hybrid):
            with suppress(Unavailable, OSError):  # phrases improve the score, but reranking works without them
                pool = await within(self._with_phrases(asked.scope, pool), given_s / 2)
        breaker = self.breakers.of(f"the reranker {reranker.name}")
        patience = Patience(given_s, _RERANK_PATIENCE * self.settings.timeout_s, breaker)
        minimum = self.settings.rerank_min_score if reranker.name == shown(self.settings.reranker) else None
        ranking = [*pool, *ranking[RERANK_POOL:]]
        return await rerank(
            reranker, intent.question, intent.language, ranking, patience, pool=len(pool), minimum=minimum, blend=blend
        )

    async def _featured(
        self, asked: Asked, intent: Intent, pool: Sequence[Fused]
    ) -> tuple[list[Fused], tuple[str, ...]]:
        """Add the rank features of the settings to the scores.

        If feedback cannot be read in time, it counts as 0 and the result is marked degraded.
        """
        features, scope = parse_rank_features(self.settings.rank_features), asked.scope
        fields = filterable(scope)
        documents = [hit.id[:3] for hit in pool]
        said: Mapping[tuple[str, str, str], float] = {}
        degraded: tuple[str, ...] = ()
        if any(feature.kind == "feedback" for feature in features):
            reading = self.catalogue.feedback(scope, set(documents))
            try:
                said = await within(
                    reading, min(self.settings.source_timeout_s, asked.at(_FEATURED_BY) - time.monotonic())
                )
            except (Unavailable, OSError):
                degraded = ("feedback_unavailable",)
        known = rank_features.FeatureInputs(
            question=intent.question,
            now=local(asked.request.now, self.settings.zone),
            values=[_values(hit, fields) for hit in pool],
            catalogue=await self.catalogue.fields(scope),
            feedback=[said.get(document, 0.0) for document in documents],
        )
        return fusion.in_turns(pool, rank_features.apply(features, pool, known)), degraded

    async def _with_phrases(self, scope: Scope, pool: Sequence[Fused]) -> list[Fused]:
        """Return the hits with the key terms and questions of their documents."""
        phrases = await self.catalogue.phrases(scope, {hit.id[:3] for hit in pool})
        return [_phrased(hit, phrases.get(hit.id[:3])) for hit in pool]

    def _window(self, request: Request, found: SearchResults, held: Filter | None, *, bounded: bool) -> Window:
        """Return the window of the final ranking that the request asks for; arguments as for `window_of`."""
        relaxed = bool(found.rung and found.rung.dropped)
        filtered = held is not None
        intent = found.course.intent
        return window_of(request, intent, self.settings, filtered=filtered, relaxed=relaxed, bounded=bounded)

    async def _page(
        self, asked: Asked, intent: Intent, held: Filter | None, ranking: Sequence[Fused], window: Window
    ) -> Page:
        """Cut the page out of the final ranking and load its passages."""

        async def load(hits: Sequence[Fused]) -> list[Fused]:
            return await self._loaded(asked.scope, held, hits)

        async def listed(known: Sequence[ChunkId], skip: int, most: int) -> Listed:
            return await self._listed(asked.scope, held, known, skip, most)

        return await page_of(ranking, window, intent.question, load, listed)

    async def _listed(
        self, scope: Scope, wanted: Filter | None, known: Sequence[ChunkId], skip: int, most: int
    ) -> Listed:
        """List the documents that satisfy a filter, from the database and from sources with documents of their own."""
        found = await self.catalogue.documents(scope, wanted, known, skip=skip, most=most)
        stored = {(one.tenant, one.name) for one in scope.collections}
        ranked, held = {id[:3] for id in known}, {(one.tenant, one.name) for one in scope.beside} - stored
        for source in self.sources.values():
            own = [id for id in source.documents(wanted) if id[:2] in held] if isinstance(source, Holder) else []
            others = [id for id in own if id[:3] not in ranked]
            start = max(skip - found.unknown, 0)
            first = [*found.first, *others[start : start + most - len(found.first)]]
            found = Listed(found.total + len(own), found.unknown + len(others), first)
        return found

    async def _loaded(self, scope: Scope, wanted: Filter | None, hits: Sequence[Fused]) -> list[Fused]:
        """Return the hits with their chunks loaded; hits whose document was deleted meanwhile are left out."""
        chunks = await self._chunks(scope, [hit.id for hit in hits if hit.chunk is None], wanted)
        loaded = (hit._replace(chunk=hit.chunk or chunks.get(hit.id)) for hit in hits)
        return [hit for hit in loaded if hit.chunk is not None]


def late(timeout_s: float, waited_for: str) -> Unavailable:
    """Return the error for a request whose time is over."""
    return Unavailable("the service", f"no answer within {timeout_s:g} s: {waited_for}", retry_after_s=5)


def unfinished_scope() -> str:
    """Return the reason given when the time ran out before the database returned the scope."""
    return _Clock().unfinished()


def _asked_alone(request: AugmentRequest, result: Result, decision: Decision, language: str | None) -> Prompt:
    """Return the prompt for a question for which the model searches by tool calls: instructions and question only."""
    system = decision.templates.load(assemble.TOOL_SYSTEM_TEMPLATE).render({"tool": lookups.NAME})
    question = assemble.in_language(prompt_text(request.question), language)
    messages = (Message(role="system", content=system), Message.model_construct(role="user", content=question))
    given = {name: getattr(result, name) for name in Result.model_fields}
    tokens = estimate_tokens(system) + estimate_tokens(question)
    return Prompt.model_construct(**given, messages=messages, prompt=question, citations=(), tokens=tokens)


_FOUND = 2


def _rank(result: Result) -> int:
    """Rank a result by its status: 0 nothing found, 1 weak, `_FOUND` for everything else."""
    return {"nothing_found": 0, "weak": 1}.get(result.status, _FOUND)


def _values(hit: Fused, fields: Mapping[str, Field]) -> Values:
    """Return a hit's metadata normalised for filters; empty if it does not fit the fields, e.g. from outside."""
    try:
        flat = flatten(hit.chunk.metadata) if hit.chunk else {}
        return normalise({key: value for key, value in flat.items() if key in fields}, fields)
    except BadDocument:
        return {}


def _phrased(hit: Fused, phrases: Phrases | None) -> Fused:
    if phrases is None or hit.chunk is None:
        return hit
    return hit._replace(chunk=replace(hit.chunk, important=phrases.important, questions=phrases.questions))


def _in_own_words(asked: str, question: str) -> str:
    """Return the self-contained question, preceded by the user's own words if a model has translated it.

    The answer must be in the user's language.
    """
    return question if glosses.is_chinese(asked) == glosses.is_chinese(question) else f"{asked} ({question})"


def _weight(search: str, intent: Intent) -> float:
    """Return the weight of a search in fusion; a search in the question's own words has 1."""
    if search not in intent.searches:
        return SUPERSEDED_WEIGHT
    is_gloss = intent.by == "rules" and glosses.is_chinese(intent.searches[0]) and not glosses.is_chinese(search)
    return GLOSSED_WEIGHT if is_gloss else 1.0


def _table(found: SearchResults) -> Table | None:
    """Return the first table among the hits that count; None if there is none."""
    tables = (hit.table for answer in found.used for hit in answer.hits if hit.table is not None)
    table = next(tables, None)
    return None if table is None else Table(columns=table.columns, rows=table.rows, sql=table.sql)


def _status(
    intent: Intent,
    table: Table | None,
    ranking: Sequence[Fused],
    page: Sequence[Fused],
    judged: Mapping[ChunkId, float],
    *,
    least: float,
    listed: bool,
) -> Status:
    """Return whether the documents answer the question.

    Args:
        least: minimum relevance, 0 to 1, of a hit that answers it.
        listed: whether the caller asked for a complete list; then every document on it counts as found.
    """
    if intent.kind == "none":
        return "no_retrieval_needed"
    if table is not None and table.rows:
        return "found"
    if not ranking and not page:
        return "nothing_found"
    # Unranked documents are on the page because their metadata satisfies the filter.
    is_found = listed or not ranking or any(judged.get(hit.id, 1.0) >= least for hit in ranking)
    return "found" if is_found else "weak"


def _calculated(found: SearchResults) -> frozenset[ChunkId]:
    """Return the ids of hits that hold a table; they are not stored documents."""
    hits = (hit for answer in found.used for hit in answer.hits)
    return frozenset(hit.id for hit in hits if hit.table is not None and hit.chunk is not None)


def _distinct(*names: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))


def _ranked(
    page: Sequence[Fused], before: int, intent: Intent, judged: Mapping[ChunkId, float]
) -> tuple[RankedHit, ...]:
    """Convert the hits of a page to `RankedHit`, numbered after the `before` hits of earlier pages."""
    mark = Highlighter(intent.question, intent.language)
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
                start=chunk.start,
                end=chunk.end,
                url=chunk.url,
                metadata=dict(chunk.metadata),
                score=hit.score,
                scores=scores,
                sources=tuple(hit.ranks),
                ranks=dict(hit.ranks),
                highlights=mark(chunk.text),
                relevance=judged.get(hit.id),
                page=first_page([chunk.places]),
                place=describe([chunk.places]),
            )
        )
    return tuple(hits)
