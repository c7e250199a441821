"""The searches for one question: those of the first reading, those a model's reading adds, and the ladder."""

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from agent.intent import transform
from agent.intent.reading import Off, Reading, question_language
from agent.intent.sources import is_place, usual
from agent.llm.breaker import Breakers
from agent.llm.model import no_answer
from agent.retrieval import router
from agent.retrieval.execute import GuardedSources, MakeQuery, StepResult, climb, resting, retrieve
from agent.retrieval.router import Constraints, Plan, RoutingFailed, Rung, SearchLimits
from agent.settings import Settings
from agent.types import Intent, Missing, Relaxed, Request, SourceChoice, Step
from retrievers.core.aggregates import Aggregate, parse_aggregate
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.filters import Filter, to_json
from retrievers.core.tasks import leave, within
from retrievers.core.types import Chunk, ChunkId, Holder, Query, Retriever, Scope
from retrievers.embed import Embedder
from retrievers.embed.pool import Embedders
from retrievers.postgres.catalogue import Catalogue, filterable
from retrievers.text.glosses import gloss_for

MODEL_UNAVAILABLE = "intent_model_unavailable"
"""In `SearchResults.degraded`: a model was asked for its reading and gave none."""

# Shares of the request's time at which a model's reading and the searches must have ended: what comes after
# each needs the rest.
_JOIN_BY, SEARCH_BY = 0.8, 0.9
# What the slowest reading leaves to a source of the time that a request has by the settings.
_LEAST_SHARE = 0.4

_log = logging.getLogger(__name__)
# Without a handler of the program's own, the lines would go to stderr as they are.
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with what it may read, and when it began, on the clock of `time.monotonic`.

    Attributes:
        depth: least hits asked of each source of documents.
        partial: sources of which the request may search a part only.
        narrows: whether a reading may choose among the collections of the scope.
    """

    request: Request
    scope: Scope
    wanted: Filter | None
    started: float
    timeout_s: float
    depth: int = 0
    narrows: bool = True
    partial: Collection[str] = ()

    def at(self, share: float) -> float:
        """The moment at which that share of the time is used up."""
        return self.started + share * self.timeout_s


@dataclass(frozen=True, slots=True)
class Course:
    """An intent and how it is carried out.

    Attributes:
        says_where: whether the intent's choice of sources says where to look, and not only how.
    """

    intent: Intent
    constraints: Constraints
    aggregate: Aggregate | None
    statement: str | None
    plan: Plan
    says_where: bool = False


@dataclass(frozen=True, slots=True)
class SearchResults:
    """What the searches gave.

    Attributes:
        answers: of every step, of both readings.
        used: those whose hits count: of the first reading's only what a later one leaves standing.
        rung: the last that was run; its filter holds for every hit.
        likely: of `answers`, what the searches gave among the documents that satisfy the intent's soft filter.
    """

    course: Course
    later: Intent | None
    answers: tuple[StepResult, ...]
    used: tuple[StepResult, ...]
    rung: Rung | None
    degraded: tuple[str, ...]
    likely: tuple[StepResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """The sources of a pipeline, and how one request is put to them. Arguments as of `Pipeline`."""

    settings: Settings
    catalogue: Catalogue
    sources: Mapping[str, Retriever]
    embedder: Embedder
    breakers: Breakers

    async def run(self, asked: Asked, reading: Reading) -> SearchResults:
        """The first reading's searches, joined by the model's reading; then the ladder, where nothing was found.

        Raises:
            RoutingFailed: so it did, by whichever reading, and the fallback strategy is to fail.
        """
        degraded: tuple[str, ...] = ()
        sources, by = self._guarded(asked.scope), asked.at(SEARCH_BY)
        later = asyncio.ensure_future(reading.later) if reading.later is not None else None
        try:
            try:
                first = self._course(asked, reading.first, reading)
            except BadRequest:
                # Read from a catalogue that has changed since: what the caller asked for still stands.
                degraded = ("intent_unavailable",)
                first = self._course(asked, (await unread(asked, self.sources)).first)
            (answers, rung), likely = await asyncio.gather(
                climb(first.plan.rungs[:1], self._queries(asked, first), sources, deadline=by),
                self._likely(asked, first, sources),
            )
            number = 2 if answers else 1
            second = said = await self._second(asked, reading, later, number=number) if later is not None else None
        finally:
            if later is not None:
                leave(later)
        used = answers
        if later is not None and said is None:
            degraded += (MODEL_UNAVAILABLE,)
            second = self._unrouted(asked, reading, number)
        if second is not None:
            replaces = reading.transforms.replaced
            rung, more, used = await self._join(asked, second, answers, sources, replaces=replaces)
            answers = [*answers, *more]
        course = second or first
        rungs = [replace(rung, steps=self._affordable(rung.steps, answers)) for rung in course.plan.rungs[1:]]
        # What has failed once is not asked again, whichever reading asked it.
        before = [*used, *(answer for answer in answers if answer.unavailable)]
        more, last = await climb(rungs, self._queries(asked, course), sources, deadline=by, before=before)
        if last is not None and last.dropped and any(one.gave for one in more):
            # A table without rows says nothing of what was found by letting a condition go.
            used = [one for one in used if one.gave or not one.hits]
        if not any(one.gave for one in (*used, *more)):
            again, kept = self._answered_outside(course.plan.rungs[1:], answers)
            last, used = again or last, [*used, *kept]
        return SearchResults(
            course=course,
            later=said.intent if said else None,
            answers=(*answers, *likely, *more),
            used=(*used, *more),
            rung=last or rung,
            degraded=(*course.plan.degraded, *degraded, *reading.transforms.degraded, *_unsearched(course, reading)),
            likely=() if second is not None else tuple(likely),
        )

    async def _likely(self, asked: Asked, course: Course, sources: GuardedSources) -> list[StepResult]:
        """What the first rung's searches give among the documents that satisfy the soft constraints."""
        rung = course.plan.likely
        if rung is None:
            return []
        make = self._queries(asked, course)
        return await retrieve(rung.steps, rung.filter, make, sources, deadline=asked.at(SEARCH_BY))

    async def again(
        self, asked: Asked, found: SearchResults, searches: Sequence[str], *, outside: bool, deadline: float
    ) -> list[tuple[list[StepResult], Rung | None]]:
        """More searches of the documents, under what the searches before ended with; each with its own ladder.

        Args:
            outside: what is searched for is missing in the documents, so the sources outside that may be asked are
                asked as well, by the question.
            deadline: on the clock of `time.monotonic`.
        Returns:
            For each search, the one outside last, what became of its steps, and the last rung that was run.
        """
        more = [self._again(asked, found, search, deadline) for search in searches]
        if outside and (names := self._outside(asked, found)):
            more.append(self._ask_outside(asked, found, names, deadline))
        return await asyncio.gather(*more)

    async def _again(
        self, asked: Asked, found: SearchResults, search: str, deadline: float
    ) -> tuple[list[StepResult], Rung | None]:
        course, constraints = found.course, found.course.constraints
        dropped = {json.dumps(one.dropped) for one in found.rung.dropped} if found.rung else set()
        firm = tuple(one for one in constraints.firm if json.dumps(to_json(one)) not in dropped)
        choices = tuple(one for one in course.intent.sources if self.is_of_documents(one.name))
        held = replace(constraints, firm=firm, soft=())
        return await self._climb_again(asked, found, search, choices, held, deadline)

    async def _ask_outside(
        self, asked: Asked, found: SearchResults, names: Sequence[str], deadline: float
    ) -> tuple[list[StepResult], Rung | None]:
        """The question put to sources outside.

        A search text that a model has made after it read the documents could carry what they say to others: it is
        never sent. Of the constraints the caller's alone hold, as on the ladder; the question's own words say the rest.
        """
        constraints = found.course.constraints
        choices = tuple(SourceChoice(name=one, confidence=1.0, reason="to find what is missing") for one in names)
        bare = replace(constraints, firm=(), soft=())
        answers, rung = await self._climb_again(asked, found, found.course.intent.question, choices, bare, deadline)
        left_out = constraints.firm if any(one.gave for one in answers) else ()
        dropped = tuple(Relaxed(dropped=to_json(one), reason="a source outside cannot tell") for one in left_out)
        return answers, replace(rung, dropped=dropped) if rung else None

    async def _climb_again(
        self,
        asked: Asked,
        found: SearchResults,
        search: str,
        choices: tuple[SourceChoice, ...],
        constraints: Constraints,
        deadline: float,
    ) -> tuple[list[StepResult], Rung | None]:
        course = found.course
        intent = course.intent.model_copy(
            update={"kind": "retrieve", "searches": (search,), "aggregate": None, "sources": choices}
        )
        outside = any(not self.is_of_documents(one.name) for one in choices)
        plan = router.plan(
            intent,
            {name: source.card for name, source in self.sources.items()},
            resting(self.sources, self.breakers, asked.scope),
            constraints=constraints,
            limits=replace(self._limits(asked), outside=False),
            fallback="ordered_backoff",
            # Outside is no way round to the documents, which have a search of their own.
            caller_sources=outside or bool(asked.request.sources) or course.plan.is_held,
            number=max((one.step.step for one in found.answers), default=0) + 1,
        )
        make = self._queries(asked, replace(course, intent=intent, aggregate=None, statement=None))
        failed = [answer for answer in found.answers if answer.unavailable]
        return await climb(plan.rungs, make, self._guarded(asked.scope), deadline=deadline, before=failed)

    def _outside(self, asked: Asked, found: SearchResults) -> list[str]:
        """The sources outside that may be asked the question, and were not yet."""
        chosen = {one.name for one in found.course.intent.sources}
        allowed = self.settings.outside_fallback and not asked.request.sources
        question, paid = found.course.intent.question, self._paid(found.answers)
        known = {one.step.source for one in found.answers if one.query is not None and one.step.search == question}
        return [
            name
            for name, one in self.sources.items()
            if one.card.kind == "outside"
            and (name in chosen or allowed)
            and name not in known
            and paid[name] < self.settings.metered_searches
        ]

    def is_of_documents(self, name: str) -> bool:
        """Whether there is such a source, and it searches the documents' texts."""
        return name in self.sources and self.sources[name].card.kind == "documents"

    async def _second(
        self, asked: Asked, reading: Reading, later: asyncio.Future[Intent | None], *, number: int
    ) -> Course | None:
        """The model's reading; None when it does not come in time or cannot be used."""
        given_s = asked.at(_JOIN_BY) - asked.started
        try:
            intent = await within(later, asked.at(_JOIN_BY) - time.monotonic())
            only = reading.transforms.vector_only
            return self._course(asked, intent, number=number, vector_only=only) if intent is not None else None
        except TimeoutError:
            _log.warning("the model's reading was not used: %s", no_answer(given_s))
            return None
        except RoutingFailed:
            raise  # it was asked for by the fallback strategy
        except Exception as error:
            # It would have been an improvement: whatever is wrong with it, the first reading stands.
            _log.warning("the model's reading was not used: it does not fit (%s)", type(error).__name__)
            return None

    def _unrouted(self, asked: Asked, reading: Reading, number: int) -> Course | None:
        """What the strategy makes of a model that was to choose and gave no reading; None to keep the rules' choice.

        Raises:
            RoutingFailed: it is to fail.
        """
        fallback = asked.request.fallback or self.settings.fallback
        rules_may = (asked.request.intent or self.settings.intent) != "llm" or fallback == "ordered_backoff"
        if rules_may or asked.request.sources:
            return None
        missing = (Missing(kind="choice", name="model"),)
        intent = reading.first.model_copy(update={"sources": (), "missing": missing})
        return self._course(asked, intent, reading, number=number)

    async def _join(
        self, asked: Asked, second: Course, answers: Sequence[StepResult], sources: GuardedSources, *, replaces: bool
    ) -> tuple[Rung | None, list[StepResult], list[StepResult]]:
        """Run what the model's reading adds to the searches of the first.

        Args:
            answers: to the searches of the first.
            replaces: these do not count beside hits of the model's own searches.
        Returns:
            Its first rung, as far as it was still to be run; the answers of that; and all answers whose hits
            satisfy its filter.
        """
        if not second.plan.rungs:
            return None, [], []
        rung, make = second.plan.rungs[0], self._queries(asked, second)
        known = {_key(one.step, one.query): one for one in answers if one.query and not one.failed}
        keys = [_key(step, make(step, rung.filter)) for step in rung.steps]
        same = [known[key] for key in keys if key in known]
        new = [step for step, key in zip(rung.steps, keys, strict=True) if key not in known]
        fresh = self._affordable(new, answers)
        failed = [answer for answer in answers if answer.unavailable]
        more, _ = await climb(
            [replace(rung, steps=fresh)] if fresh else [],
            make,
            sources,
            deadline=asked.at(SEARCH_BY),
            before=failed,
        )
        # The same search under the right filter says all that the first one did, and more.
        places = {(one.step.source, one.step.search) for one in (*same, *more) if one.hits}
        # Where the model says where to look, what was found elsewhere is not meant.
        meant = {step.source for step in rung.steps}
        anywhere = not (second.plan.is_held or second.says_where)
        others = [
            one
            for one in (() if replaces and places else answers)
            if one.hits
            and (anywhere or one.step.source in meant)
            and (one.step.source, one.step.search) not in places
            and self.sources[one.step.source].card.kind != "metadata"
        ]
        return rung, more, [*same, *more, *await self._satisfying(asked, second, others, rung.filter)]

    def _affordable(self, steps: Sequence[Step], answers: Sequence[StepResult]) -> tuple[Step, ...]:
        """The steps without those at a source outside that was asked as often for this question as it may be."""
        asked = self._paid(answers)
        kept = []
        for step in steps:
            metered = self.sources[step.source].card.is_metered
            if not metered or asked[step.source] < self.settings.metered_searches:
                asked[step.source] += 1
                kept.append(step)
        return tuple(kept)

    def _answered_outside(
        self, rungs: Sequence[Rung], answers: Sequence[StepResult]
    ) -> tuple[Rung | None, list[StepResult]]:
        """What sources outside, which may not be asked again, have answered to the first rung that would take it."""
        for rung in rungs:
            needed = router.conjuncts(rung.filter)
            names = {step.source for step in rung.steps if self.sources[step.source].card.kind == "outside"}
            given = [one for one in answers if one.gave and one.query is not None and one.step.source in names]
            if fitting := [one for one in given if one.query and needed <= router.conjuncts(one.query.filter)]:
                return rung, fitting
        return None, []

    def _paid(self, answers: Sequence[StepResult]) -> Counter[str]:
        """How often each source was asked; what it refused has cost nothing."""
        return Counter(
            one.step.source for one in answers if one.query is not None and not isinstance(one.error, BadRequest)
        )

    async def _satisfying(
        self, asked: Asked, course: Course, answers: Sequence[StepResult], wanted: Filter | None
    ) -> list[StepResult]:
        """The answers without the hits that do not satisfy the filter, or of which that cannot be known, and without
        those of collections that the course leaves out."""
        kept = {(one.tenant, one.name) for one in asked.scope.only(course.intent.collections).collections}
        left_out = {(one.tenant, one.name) for one in asked.scope.collections} - kept
        answers = [replace(one, hits=[hit for hit in one.hits if hit.id[:2] not in left_out]) for one in answers]
        needed = router.conjuncts(wanted)
        unsure = [one.query is None or not needed <= router.conjuncts(one.query.filter) for one in answers]
        ids = [hit.id for one, check in zip(answers, unsure, strict=True) if check for hit in one.hits if not hit.chunk]
        chunks: Mapping[ChunkId, Chunk] = {}
        if ids:
            loading = self.catalogue.load(asked.scope, dict.fromkeys(ids), wanted)
            with suppress(Unavailable, OSError):
                chunks = await within(loading, asked.at(SEARCH_BY) - time.monotonic())
        return [
            replace(one, hits=[hit._replace(chunk=chunks[hit.id]) for hit in one.hits if hit.id in chunks])
            if check
            else one
            for one, check in zip(answers, unsure, strict=True)
        ]

    def _course(
        self,
        asked: Asked,
        intent: Intent,
        reading: Reading | None = None,
        *,
        number: int = 1,
        vector_only: Collection[str] = (),
    ) -> Course:
        """The intent with what the caller fixed, and its plan.

        Raises:
            BadRequest: the intent names what does not exist.
            Unavailable: no source can be chosen, and the fallback strategy is to fail.
        """
        fallback = asked.request.fallback or self.settings.fallback
        astray = fallback == "route_to_all" and any(one.kind == "collection" for one in intent.missing)
        if intent.scope and (astray or not asked.narrows):
            every = tuple(sorted({one.name for one in asked.scope.all}))
            intent = intent.model_copy(update={"collections": every, "scope": ()})
        named = asked.request.sources
        says_where = any(one.name in self.sources and is_place(self.sources[one.name]) for one in intent.sources)
        if named:
            choices = [SourceChoice(name=one, confidence=1.0, reason="named by the caller") for one in named]
            intent = intent.model_copy(update={"sources": tuple(choices)})
        elif asked.scope.beside and not says_where and any(self.is_of_documents(one.name) for one in intent.sources):
            # Which way the documents are searched says nothing about documents that stand elsewhere; a place does.
            others = [name for name, one in self.sources.items() if isinstance(one, Holder)]
            choices = [SourceChoice(name=one, confidence=1.0, reason="it has documents of its own") for one in others]
            intent = intent.model_copy(update={"sources": (*intent.sources, *choices)})
        fields = filterable(asked.scope)
        firm, soft = (reading.firm, reading.soft) if reading is not None else ((), ())
        constraints = router.constraints_of(intent, asked.wanted, fields, firm=firm, soft=soft)
        stated = router.joined((asked.wanted, *constraints.firm)) if constraints.firm else asked.wanted
        intent = intent.model_copy(update={"filter": to_json(stated) if stated else None})
        plan = router.plan(
            intent,
            {name: source.card for name, source in self.sources.items()},
            resting(self.sources, self.breakers, asked.scope),
            constraints=constraints,
            limits=self._limits(asked),
            fallback=fallback,
            caller_sources=bool(named),
            number=number,
            vector_only=vector_only,
            partial=asked.partial,
        )
        asked_for = intent.aggregate or {}
        statement = asked_for.get("statement")
        aggregate = parse_aggregate(asked_for, fields) if asked_for and statement is None else None
        return Course(intent, constraints, aggregate, statement, plan, says_where)

    def _limits(self, asked: Asked) -> SearchLimits:
        return SearchLimits(
            source_timeout_s=self.settings.source_timeout_s,
            timeout_s=asked.timeout_s,
            outside=self.settings.outside_fallback,
            metered_searches=self.settings.metered_searches,
        )

    def _queries(self, asked: Asked, course: Course) -> MakeQuery:
        """How the query of a step is made."""
        intent = course.intent
        scope = asked.scope.only(intent.collections)

        def make(step: Step, wanted: Filter | None) -> Query:
            language = intent.language
            if step.search != intent.question:
                # A model may well search in the documents' language instead of the question's.
                language = question_language(step.search, asked.scope)
            card = self.sources[step.source].card
            kind = card.kind
            depth = max(self.settings.depth, asked.depth) if kind == "documents" else self.settings.depth
            depth = min(depth, card.top_k or depth)
            if kind != "metadata":
                gloss = gloss_for(step.search, [one.languages for one in asked.scope.all])
                return Query(step.search, language, scope, wanted, depth, gloss=gloss)
            return Query(step.search, language, scope, wanted, depth, course.aggregate, course.statement)

        return make

    def _guarded(self, scope: Scope) -> GuardedSources:
        """The sources; vectors of embedders that cannot be opened are the collections' matter alone."""
        embedders = Embedders.of(self.embedder)
        served = {embedders.has(one.embedder or "") for one in scope.collections if one.chunks} != {False}
        guarded = frozenset(name for name in self.sources if served or name != "vector")
        patience_s = min(self.settings.source_timeout_s, _LEAST_SHARE * self.settings.timeout_s)
        return GuardedSources(self.sources, self.breakers, guarded, patience_s)


async def unread(asked: Asked, sources: Mapping[str, Retriever]) -> Reading:
    """The question as it is."""
    return await Off(usual({name: source.card for name, source in sources.items()})).read(
        asked.request, asked.scope, asked.wanted, asked.at(1.0)
    )


def _unsearched(course: Course, reading: Reading) -> tuple[str, ...]:
    """What is to be said of searches for vectors where vectors are not searched."""
    searched = {step.search for step in course.plan.steps}
    made = reading.transforms.vector_only
    # Where no text is searched at all, none is missing.
    return transform.skipped(name for text, name in made.items() if text not in searched) if searched else ()


def _key(step: Step, query: Query) -> tuple[object, ...]:
    """What makes two searches the same one."""
    among = tuple(one.number for one in query.scope.collections)
    wanted = router.conjuncts(query.filter)
    return (step.source, query.text, query.language, among, wanted, query.aggregate, query.statement)
