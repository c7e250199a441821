"""Search: run the searches of the first reading, then those that a model's reading adds, then the fallback ladder.

A reading is what rules, or later a model, understood of the question. The result has the hits and outcome of every
step, that is, of one search at one source.
"""

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from agent.intent import transform
from agent.intent.reading import Off, Reading
from agent.intent.sources import usual
from agent.llm.model import no_answer
from agent.retrieval import router
from agent.retrieval.execute import GuardedSources, StepResult, climb, retrieve
from agent.retrieval.planning import Asked, IntentPlanner, PlannedIntent
from agent.retrieval.router import RoutingFailed, Rung
from agent.types import Intent, Missing, Step
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.filters import Filter
from retrievers.core.tasks import leave, within
from retrievers.core.types import Chunk, ChunkId, Query, Retriever
from retrievers.postgres.catalogue import Catalogue

MODEL_UNAVAILABLE = "intent_model_unavailable"
"""Entry in `SearchResults.degraded`: a model was asked to read the question but gave no usable reading in time."""

# Shares of the request's time by which the model's reading and the searches must have ended, so that the later
# stages have time left.
_JOIN_BY, SEARCH_BY = 0.8, 0.9

_log = logging.getLogger(__name__)
# Without a handler configured by the program, the lines would go straight to stderr.
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of all searches.

    Attributes:
        later: the model's reading; None if it did not arrive.
        answers: the results of all steps, of both readings.
        used: the results in `answers` whose hits count: the model's reading may discard results of the first reading.
        rung: the last level of the fallback ladder that ran; every hit satisfies its filter. None if no level ran.
        likely: results in `answers` of searches over only the documents that satisfy the intent's soft filter.
    """

    planned: PlannedIntent
    later: Intent | None
    answers: tuple[StepResult, ...]
    used: tuple[StepResult, ...]
    rung: Rung | None
    degraded: tuple[str, ...]
    likely: tuple[StepResult, ...] = ()


@dataclass(frozen=True, slots=True)
class Search:
    """Sends the searches of one request to the sources.

    Args:
        catalogue: loads the chunks of hits that may not satisfy the model's filter.
    """

    planner: IntentPlanner
    catalogue: Catalogue

    async def run(self, asked: Asked, reading: Reading) -> SearchResults:
        """Run the first reading's searches, then those the model's reading adds, then fallbacks if nothing is found.

        Raises:
            RoutingFailed: routing failed for either reading, and the fallback strategy is `fail`.
        """
        degraded: tuple[str, ...] = ()
        sources, by = self.planner.guarded(asked.scope), asked.at(SEARCH_BY)
        later = asyncio.ensure_future(reading.later) if reading.later is not None else None
        try:
            try:
                first = self.planner.plan(asked, reading.first, reading)
            except BadRequest:
                # The reading used a catalogue that has changed since. Search the plain question under the caller's
                # options.
                degraded = ("intent_unavailable",)
                first = self.planner.plan(asked, (await plain_reading(asked, self.planner.sources)).first)
            climbing = climb(first.plan.rungs[:1], self.planner.queries(asked, first), sources, deadline=by)
            likely: list[StepResult] = []
            if first.plan.likely is None:
                answers, rung = await climbing
            else:
                searching = self._likely(asked, first.plan.likely, first, sources)
                (answers, rung), likely = await asyncio.gather(climbing, searching)
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
            if not second.plan.rungs:
                answers, likely = list(map(_not_needed, answers)), list(map(_not_needed, likely))
            rung, more, used = await self._join(asked, second, answers, sources, replaces=replaces)
            answers = [*answers, *more]
        planned = second or first
        rungs = [replace(rung, steps=self.planner.affordable(rung.steps, answers)) for rung in planned.plan.rungs[1:]]
        # A source that failed once is not asked again, whichever reading asked it.
        before = [*used, *(answer for answer in answers if answer.unavailable)]
        more, last = await climb(rungs, self.planner.queries(asked, planned), sources, deadline=by, before=before)
        if last is not None and last.dropped and any(one.gave for one in more):
            # Hits were found after a constraint was dropped, so an empty table calculated under it is not shown.
            used = [one for one in used if one.gave or not one.hits]
        if not any(one.gave for one in (*used, *more)):
            again, kept = self._answered_outside(planned.plan.rungs[1:], answers)
            last, used = again or last, [*used, *kept]
        return SearchResults(
            planned=planned,
            later=said.intent if said else None,
            answers=(*answers, *likely, *more),
            used=(*used, *more),
            rung=last or rung,
            degraded=(*planned.plan.degraded, *degraded, *reading.transforms.degraded, *_unsearched(planned, reading)),
            likely=() if second is not None else tuple(likely),
        )

    async def _likely(
        self, asked: Asked, rung: Rung, planned: PlannedIntent, sources: GuardedSources
    ) -> list[StepResult]:
        """Run `rung`, which is `Plan.likely`: searches of the documents that also satisfy the soft constraints."""
        make = self.planner.queries(asked, planned)
        return await retrieve(rung.steps, rung.filter, make, sources, deadline=asked.at(SEARCH_BY))

    async def _second(
        self, asked: Asked, reading: Reading, later: asyncio.Future[Intent | None], *, number: int
    ) -> PlannedIntent | None:
        """Return the plan for the model's reading; None if that reading is late or cannot be used.

        Args:
            later: gives the model's reading.
            number: number of the plan's first rung.
        """
        given_s = asked.at(_JOIN_BY) - asked.started
        try:
            intent = await within(later, asked.at(_JOIN_BY) - time.monotonic())
            only = reading.transforms.vector_only
            return self.planner.plan(asked, intent, number=number, vector_only=only) if intent is not None else None
        except TimeoutError:
            _log.warning("the model's reading was not used: %s", no_answer(given_s))
            return None
        except RoutingFailed:
            raise  # the fallback strategy asked for this error
        except Exception as error:
            # The model's reading is only an improvement: if anything is wrong with it, the first reading stands.
            _log.warning("the model's reading was not used: it cannot be applied (%s)", type(error).__name__)
            return None

    def _unrouted(self, asked: Asked, reading: Reading, number: int) -> PlannedIntent | None:
        """Apply the fallback strategy if a model had to choose the sources but gave no reading.

        Returns:
            A new plan, or None to keep the sources that the rules chose.
        Raises:
            RoutingFailed: the strategy is `fail`.
        """
        fallback = asked.request.fallback or self.planner.settings.fallback
        rules_may = (asked.request.intent or self.planner.settings.intent) != "llm" or fallback == "ordered_backoff"
        if rules_may or asked.request.sources:
            return None
        missing = (Missing(kind="choice", name="model"),)
        intent = reading.first.model_copy(update={"sources": (), "missing": missing})
        return self.planner.plan(asked, intent, reading, number=number)

    async def _join(
        self,
        asked: Asked,
        second: PlannedIntent,
        answers: Sequence[StepResult],
        sources: GuardedSources,
        *,
        replaces: bool,
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
        rung, make = second.plan.rungs[0], self.planner.queries(asked, second)
        known = {_key(one.step, one.query): one for one in answers if one.query and not one.failed}
        keys = [_key(step, make(step, rung.filter)) for step in rung.steps]
        same = [known[key] for key in keys if key in known]
        new = [step for step, key in zip(rung.steps, keys, strict=True) if key not in known]
        fresh = self.planner.affordable(new, answers)
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
            and self.planner.sources[one.step.source].card.kind != "metadata"
        ]
        return rung, more, [*same, *more, *await self._satisfying(asked, second, others, rung.filter)]

    def _answered_outside(
        self, rungs: Sequence[Rung], answers: Sequence[StepResult]
    ) -> tuple[Rung | None, list[StepResult]]:
        """Return the first rung for which external sources (web, cloud) have hits already, and these results.

        The filter of their earlier search must include all conditions of the rung. (None, []) if there is no such rung.
        """
        for rung in rungs:
            needed = router.conjuncts(rung.filter)
            names = {step.source for step in rung.steps if self.planner.sources[step.source].card.kind == "outside"}
            given = [one for one in answers if one.gave and one.query is not None and one.step.source in names]
            if fitting := [one for one in given if one.query and needed <= router.conjuncts(one.query.filter)]:
                return rung, fitting
        return None, []

    async def _satisfying(
        self, asked: Asked, planned: PlannedIntent, answers: Sequence[StepResult], wanted: Filter | None
    ) -> list[StepResult]:
        """Return the results, without hits that violate the filter or are in collections that the plan does not search.

        Hits are checked by loading them under the filter, unless the filter of their search already includes all its
        conditions. Hits that cannot be loaded in time are dropped.

        Args:
            wanted: the filter.
        """
        kept = {(one.tenant, one.name) for one in asked.scope.only(planned.intent.collections).collections}
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


async def plain_reading(asked: Asked, sources: Mapping[str, Retriever]) -> Reading:
    """Return a reading that infers nothing: the question is searched as it is."""
    return await Off(usual({name: source.card for name, source in sources.items()})).read(
        asked.request, asked.scope, asked.wanted, asked.at(1.0)
    )


def _unsearched(planned: PlannedIntent, reading: Reading) -> tuple[str, ...]:
    """Return `degraded` notes for the transformers whose queries were not searched; () if all were.

    This happens to queries for the source `vector` only, if that source is not asked. (A transformer rewrites the
    question into further queries.)
    """

    searched = {step.search for step in planned.plan.steps}
    made = reading.transforms.vector_only
    # If no query was searched at all, none is missing.
    return transform.skipped(name for text, name in made.items() if text not in searched) if searched else ()


def _not_needed(answer: StepResult) -> StepResult:
    """Return the result of a search without its hits, because the model's later reading asks no source.

    The status becomes "skipped". The query stays, since it counts as paid. A failed result is returned unchanged.
    """
    if answer.failed:
        return answer
    reason = "not needed: the search began before the model's reading, which asks no source"
    outcome = answer.outcome.model_copy(update={"status": "skipped", "hits": 0, "reason": reason})
    return replace(answer, hits=(), outcome=outcome, is_partial=False)


def _key(step: Step, query: Query) -> tuple[object, ...]:
    """Return a key that is equal for two steps that run the same search."""
    among = tuple(one.number for one in query.scope.collections)
    wanted = router.conjuncts(query.filter)
    return (step.source, query.text, query.language, among, wanted, query.aggregate, query.statement)
