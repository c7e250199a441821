"""Search: run the searches of the first reading, then those that a model's reading adds, then the fallback ladder.

It takes a request and its reading and returns the hits and outcome of every step.
"""

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
"""Entry in `SearchResults.degraded`: a model was asked to read the question but gave no usable reading in time."""

# Shares of the request's time by which the model's reading and the searches must have ended, so that the later
# stages have time left.
_JOIN_BY, SEARCH_BY = 0.8, 0.9
# Minimum share of the `timeout_s` setting that a source gets, even after the slowest reading.
_LEAST_SHARE = 0.4

_log = logging.getLogger(__name__)
# Without a handler configured by the program, the lines would go straight to stderr.
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Asked:
    """A request with what it may read and when it started, on the clock of `time.monotonic`.

    Attributes:
        wanted: the caller's filter.
        depth: minimum hits requested from each source of documents.
        partial: sources of which this request may search only a part.
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
        """Return the time at which that share of the request's time is used up."""
        return self.started + share * self.timeout_s


@dataclass(frozen=True, slots=True)
class Course:
    """An intent and the plan made for it.

    Attributes:
        statement: an SQL statement to run, if the intent holds one.
        says_where: whether the intent's sources say where to look (a folder), and not only how (by words).
    """

    intent: Intent
    constraints: Constraints
    aggregate: Aggregate | None
    statement: str | None
    plan: Plan
    says_where: bool = False


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of all searches.

    Attributes:
        later: the model's reading, if it arrived.
        answers: the results of all steps, of both readings.
        used: the results whose hits count; of the first reading's, only those that the later reading keeps.
        rung: the last rung that ran; every hit satisfies its filter.
        likely: those of `answers` that searched only documents satisfying the intent's soft filter.
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
    """Sends the searches of one request to the sources. Arguments as for `Pipeline`."""

    settings: Settings
    catalogue: Catalogue
    sources: Mapping[str, Retriever]
    embedder: Embedder
    breakers: Breakers

    async def run(self, asked: Asked, reading: Reading) -> SearchResults:
        """Run the first reading's searches, then those the model's reading adds; climb the ladder if nothing was found.

        Raises:
            RoutingFailed: routing failed for either reading, and the fallback strategy is `fail`.
        """
        degraded: tuple[str, ...] = ()
        sources, by = self._guarded(asked.scope), asked.at(SEARCH_BY)
        later = asyncio.ensure_future(reading.later) if reading.later is not None else None
        try:
            try:
                first = self._course(asked, reading.first, reading)
            except BadRequest:
                # The reading used a catalogue that has changed since. Search the plain question under the caller's
                # options.
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
        # A source that failed once is not asked again, whichever reading asked it.
        before = [*used, *(answer for answer in answers if answer.unavailable)]
        more, last = await climb(rungs, self._queries(asked, course), sources, deadline=by, before=before)
        if last is not None and last.dropped and any(one.gave for one in more):
            # Hits were found after a constraint was dropped, so an empty table calculated under it is not shown.
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
        """Run the first rung's searches over the documents that also satisfy the soft constraints."""
        rung = course.plan.likely
        if rung is None:
            return []
        make = self._queries(asked, course)
        return await retrieve(rung.steps, rung.filter, make, sources, deadline=asked.at(SEARCH_BY))

    async def again(
        self, asked: Asked, found: SearchResults, searches: Sequence[str], *, outside: bool, deadline: float
    ) -> list[tuple[list[StepResult], Rung | None]]:
        """Run more searches, under the constraints that the earlier searches ended with; each has its own ladder.

        Args:
            searches: queries for the documents.
            outside: whether the documents lack the answer, so that sources outside, where allowed, also get the
                question.
            deadline: on the clock of `time.monotonic`.
        Returns:
            For each search, and last for the one outside, the results of its steps and the last rung that ran.
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
        """Send the question to sources outside.

        Only the question itself is sent: a query that a model wrote after reading the documents could leak their
        content. Only the caller's constraints apply, as on the ladder; the question's words state the others.
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
            # A search outside must not fall back to the documents, which have searches of their own.
            caller_sources=outside or bool(asked.request.sources) or course.plan.is_held,
            number=max((one.step.step for one in found.answers), default=0) + 1,
        )
        make = self._queries(asked, replace(course, intent=intent, aggregate=None, statement=None))
        failed = [answer for answer in found.answers if answer.unavailable]
        return await climb(plan.rungs, make, self._guarded(asked.scope), deadline=deadline, before=failed)

    def _outside(self, asked: Asked, found: SearchResults) -> list[str]:
        """Return the sources outside that may be asked the question and have not been asked yet."""
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
        """Return whether the source exists and searches document texts."""
        return name in self.sources and self.sources[name].card.kind == "documents"

    async def _second(
        self, asked: Asked, reading: Reading, later: asyncio.Future[Intent | None], *, number: int
    ) -> Course | None:
        """Plan the model's reading; None if it is late or cannot be used."""
        given_s = asked.at(_JOIN_BY) - asked.started
        try:
            intent = await within(later, asked.at(_JOIN_BY) - time.monotonic())
            only = reading.transforms.vector_only
            return self._course(asked, intent, number=number, vector_only=only) if intent is not None else None
        except TimeoutError:
            _log.warning("the model's reading was not used: %s", no_answer(given_s))
            return None
        except RoutingFailed:
            raise  # the fallback strategy asked for this error
        except Exception as error:
            # The model's reading is only an improvement: if anything is wrong with it, the first reading stands.
            _log.warning("the model's reading was not used: it does not fit (%s)", type(error).__name__)
            return None

    def _unrouted(self, asked: Asked, reading: Reading, number: int) -> Course | None:
        """Apply the fallback strategy if a model had to choose the sources but gave no reading.

        Returns:
            A new course, or None to keep the sources that the rules chose.
        Raises:
            RoutingFailed: the strategy is `fail`.
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
        """Run the searches that the model's reading adds to the first reading's.

        Args:
            answers: results of the first reading's searches.
            replaces: whether hits of the model's searches replace the first reading's.
        Returns:
            The model's first rung; the results of the steps that ran for it; and all results that count, whose hits
            satisfy its filter. Without a rung: None and two empty lists.
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
        # The model's search with the same text applies the right filter, so its hits replace those of the first one.
        places = {(one.step.source, one.step.search) for one in (*same, *more) if one.hits}
        # If the model says where to look, hits from other sources are dropped.
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
        """Drop steps at paid sources that this question has already used as often as allowed."""
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
        """Return the first rung whose filter earlier results of sources outside satisfy, and those results."""
        for rung in rungs:
            needed = router.conjuncts(rung.filter)
            names = {step.source for step in rung.steps if self.sources[step.source].card.kind == "outside"}
            given = [one for one in answers if one.gave and one.query is not None and one.step.source in names]
            if fitting := [one for one in given if one.query and needed <= router.conjuncts(one.query.filter)]:
                return rung, fitting
        return None, []

    def _paid(self, answers: Sequence[StepResult]) -> Counter[str]:
        """Count how often each source was asked; refused queries cost nothing and do not count."""
        return Counter(
            one.step.source for one in answers if one.query is not None and not isinstance(one.error, BadRequest)
        )

    async def _satisfying(
        self, asked: Asked, course: Course, answers: Sequence[StepResult], wanted: Filter | None
    ) -> list[StepResult]:
        """Drop hits that do not satisfy the filter, or may not, and hits of collections that the course leaves out."""
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
        """Apply the caller's options to the intent and plan it.

        Raises:
            BadRequest: the intent names a field or value that does not exist.
            RoutingFailed: no source can be chosen, and the fallback strategy is `fail`.
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
            # Choosing full text or vectors does not exclude sources with documents of their own; choosing a place does.
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
        """Return the function that makes the query of a step."""
        intent = course.intent
        scope = asked.scope.only(intent.collections)

        def make(step: Step, wanted: Filter | None) -> Query:
            language = intent.language
            if step.search != intent.question:
                # A model may write queries in the documents' language instead of the question's.
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
        """Return the sources with their breakers.

        `vector` is not guarded if no embedder of this scope can be opened, since it may work for other scopes.
        """
        embedders = Embedders.of(self.embedder)
        served = {embedders.has(one.embedder or "") for one in scope.collections if one.chunks} != {False}
        guarded = frozenset(name for name in self.sources if served or name != "vector")
        patience_s = min(self.settings.source_timeout_s, _LEAST_SHARE * self.settings.timeout_s)
        return GuardedSources(self.sources, self.breakers, guarded, patience_s)


async def unread(asked: Asked, sources: Mapping[str, Retriever]) -> Reading:
    """Return a reading that infers nothing: the question is searched as it is."""
    return await Off(usual({name: source.card for name, source in sources.items()})).read(
        asked.request, asked.scope, asked.wanted, asked.at(1.0)
    )


def _unsearched(course: Course, reading: Reading) -> tuple[str, ...]:
    """Return `degraded` notes for transformers whose queries, meant only for vectors, were not searched."""

    searched = {step.search for step in course.plan.steps}
    made = reading.transforms.vector_only
    # If no query was searched at all, none is missing.
    return transform.skipped(name for text, name in made.items() if text not in searched) if searched else ()


def _key(step: Step, query: Query) -> tuple[object, ...]:
    """Return a key that is equal for two steps that run the same search."""
    among = tuple(one.number for one in query.scope.collections)
    wanted = router.conjuncts(query.filter)
    return (step.source, query.text, query.language, among, wanted, query.aggregate, query.statement)
