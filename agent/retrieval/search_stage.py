"""Search: run the searches of the first reading, then those that a model's reading adds, then the fallbacks.

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
from agent.intent.reading import LiteralReader, Reading
from agent.intent.sources import default_sources
from agent.llm.model import timeout_reason
from agent.options import deadline_shares
from agent.retrieval import router
from agent.retrieval.plan_execution import GuardedSources, StepResult, run_levels, run_steps
from agent.retrieval.planning import IntentPlanner, PlannedIntent, RequestContext
from agent.retrieval.router import FallbackLevel, RoutingFailed
from agent.types import Intent, Missing, Step
from retrievers.core.errors import BadRequest, Unavailable
from retrievers.core.filters import Filter
from retrievers.core.log_filter import RepetitionFilter
from retrievers.core.timeouts import abandon_task, wait_within
from retrievers.core.types import Chunk, ChunkId, Query, Retriever
from retrievers.postgres.catalogue.catalogue import Catalogue

MODEL_UNAVAILABLE = "intent_model_unavailable"
"""Entry in `SearchResults.degraded`: a model was asked to read the question but gave no usable reading in time."""

_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())
# Without a handler configured by the program, the lines would go straight to stderr.
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The results of all searches.

    Attributes:
        model_intent: the model's reading; None if it did not arrive.
        answers: the results of all steps, of both readings.
        used_answers: the results in `answers` whose hits count: the model's reading may discard results of the first
            reading.
        level: the last fallback level that ran; every hit satisfies its filter. None if no level ran.
        soft_results: results in `answers` of searches over only the documents that satisfy the intent's soft filter.
    """

    planned: PlannedIntent
    model_intent: Intent | None
    answers: tuple[StepResult, ...]
    used_answers: tuple[StepResult, ...]
    level: FallbackLevel | None
    degraded: tuple[str, ...]
    soft_results: tuple[StepResult, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchStage:
    """Sends the searches of one request to the sources.

    Args:
        catalogue: loads the chunks of hits that may not satisfy the model's filter.
    """

    planner: IntentPlanner
    catalogue: Catalogue

    async def run(self, context: RequestContext, reading: Reading) -> SearchResults:
        """Run the first reading's searches, then those the model's reading adds, then fallbacks if nothing is found.

        Raises:
            RoutingFailed: routing failed for either reading, and the fallback strategy is `fail`.
        """
        degraded: tuple[str, ...] = ()
        sources, by = self.planner.guarded_sources(context.scope), context.deadline_at(deadline_shares.SEARCH_BY)
        later = asyncio.ensure_future(reading.later) if reading.later is not None else None
        try:
            try:
                first = self.planner.plan(context, reading.first, reading)
            except BadRequest:
                # The reading used a catalogue that has changed since. Search the plain question under the caller's
                # options.
                degraded = ("intent_unavailable",)
                first = self.planner.plan(context, (await plain_reading(context, self.planner.sources)).first)
            running = run_levels(first.plan.levels[:1], self.planner.query_maker(context, first), sources, deadline=by)
            soft_results: list[StepResult] = []
            if first.plan.soft_level is None:
                answers, level = await running
            else:
                searching = self._search_soft_level(context, first.plan.soft_level, first, sources)
                (answers, level), soft_results = await asyncio.gather(running, searching)
            number = 2 if answers else 1
            second = said = (
                await self._plan_model_reading(context, reading, later, number=number) if later is not None else None
            )
        finally:
            if later is not None:
                abandon_task(later)
        used = answers
        if later is not None and said is None:
            degraded += (MODEL_UNAVAILABLE,)
            second = self._unrouted(context, reading, number)
        if second is not None:
            replaces = reading.transforms.replaced
            if not second.plan.levels:
                answers, soft_results = list(map(_not_needed, answers)), list(map(_not_needed, soft_results))
            level, more, used = await self._join(context, second, answers, sources, replaces=replaces)
            answers = [*answers, *more]
        planned = second or first
        levels = [
            replace(level, steps=self.planner.affordable_steps(level.steps, answers))
            for level in planned.plan.levels[1:]
        ]
        # A source that failed once is not asked again, whichever reading asked it.
        before = [*used, *(answer for answer in answers if answer.is_unavailable)]
        more, last = await run_levels(
            levels, self.planner.query_maker(context, planned), sources, deadline=by, before=before
        )
        if last is not None and last.dropped and any(one.has_hits for one in more):
            # Hits were found after a constraint was dropped, so an empty table calculated under it is not shown.
            used = [one for one in used if one.has_hits or not one.hits]
        if not any(one.has_hits for one in (*used, *more)):
            again, kept = self._answered_outside(planned.plan.levels[1:], answers)
            last, used = again or last, [*used, *kept]
        return SearchResults(
            planned=planned,
            model_intent=said.intent if said else None,
            answers=(*answers, *soft_results, *more),
            used_answers=(*used, *more),
            level=last or level,
            degraded=(*planned.plan.degraded, *degraded, *reading.transforms.degraded, *_unsearched(planned, reading)),
            soft_results=() if second is not None else tuple(soft_results),
        )

    async def _search_soft_level(
        self, context: RequestContext, level: FallbackLevel, planned: PlannedIntent, sources: GuardedSources
    ) -> list[StepResult]:
        """Run `level`, which is `SearchPlan.soft_level`: documents that also satisfy the soft constraints."""
        make = self.planner.query_maker(context, planned)
        return await run_steps(
            level.steps, level.filter, make, sources, deadline=context.deadline_at(deadline_shares.SEARCH_BY)
        )

    async def _plan_model_reading(
        self, context: RequestContext, reading: Reading, later: asyncio.Future[Intent | None], *, number: int
    ) -> PlannedIntent | None:
        """Wait for the model's reading and return the plan for it.

        Args:
            later: gives the model's reading; None if the model failed.
            number: number that the plan's first level gets: 2 after a level of the first reading, otherwise 1.
        Returns:
            None if the model's reading is late or missing, or cannot be planned.
        Raises:
            RoutingFailed: routing failed, and the fallback strategy is `fail`.
        """
        given_s = context.deadline_at(deadline_shares.JOIN_MODEL_BY) - context.started
        try:
            intent = await wait_within(later, context.deadline_at(deadline_shares.JOIN_MODEL_BY) - time.monotonic())
            only = reading.transforms.vector_only
            return self.planner.plan(context, intent, number=number, vector_only=only) if intent is not None else None
        except TimeoutError:
            _log.warning("the model's reading was not used: %s", timeout_reason(given_s))
            return None
        except RoutingFailed:
            raise  # the fallback strategy asked for this error
        except Exception as error:
            # The model's reading is only an improvement: if anything is wrong with it, the first reading stands.
            _log.warning("the model's reading was not used: it cannot be applied (%s)", type(error).__name__)
            return None

    def _unrouted(self, context: RequestContext, reading: Reading, number: int) -> PlannedIntent | None:
        """Apply the fallback strategy if a model had to choose the sources but gave no reading.

        Returns:
            A new plan, or None to keep the sources that the rules chose.
        Raises:
            RoutingFailed: the strategy is `fail`.
        """
        fallback = context.request.fallback or self.planner.settings.fallback
        rules_may = (context.request.intent or self.planner.settings.intent) != "llm" or fallback == "ordered_backoff"
        if rules_may or context.request.sources:
            return None
        missing = (Missing(kind="choice", name="model"),)
        intent = reading.first.model_copy(update={"sources": (), "missing": missing})
        return self.planner.plan(context, intent, reading, number=number)

    async def _join(
        self,
        context: RequestContext,
        second: PlannedIntent,
        answers: Sequence[StepResult],
        sources: GuardedSources,
        *,
        replaces: bool,
    ) -> tuple[FallbackLevel | None, list[StepResult], list[StepResult]]:
        """Run the searches that the model's reading adds to the first reading's.

        Args:
            answers: results of the first reading's searches.
            replaces: whether hits of the model's searches replace the first reading's.
        Returns:
            The first level of the model's plan; the results of the steps that ran for it; and all results that count,
            whose hits satisfy its filter. Without a level: None and two empty lists.
        """
        if not second.plan.levels:
            return None, [], []
        level, make = second.plan.levels[0], self.planner.query_maker(context, second)
        known = {_key(one.step, one.query): one for one in answers if one.query and not one.is_failed}
        keys = [_key(step, make(step, level.filter)) for step in level.steps]
        same = [known[key] for key in keys if key in known]
        new = [step for step, key in zip(level.steps, keys, strict=True) if key not in known]
        fresh = self.planner.affordable_steps(new, answers)
        failed = [answer for answer in answers if answer.is_unavailable]
        more, _ = await run_levels(
            [replace(level, steps=fresh)] if fresh else [],
            make,
            sources,
            deadline=context.deadline_at(deadline_shares.SEARCH_BY),
            before=failed,
        )
        # The model's search with the same text applies the right filter, so its hits replace those of the first one.
        places = {(one.step.source, one.step.search) for one in (*same, *more) if one.hits}
        # If the model says where to look, hits from other sources are dropped.
        meant = {step.source for step in level.steps}
        anywhere = not (second.plan.is_restricted or second.names_place)
        others = [
            one
            for one in (() if replaces and places else answers)
            if one.hits
            and (anywhere or one.step.source in meant)
            and (one.step.source, one.step.search) not in places
            and self.planner.sources[one.step.source].card.kind != "metadata"
        ]
        return level, more, [*same, *more, *await self._satisfying(context, second, others, level.filter)]

    def _answered_outside(
        self, levels: Sequence[FallbackLevel], answers: Sequence[StepResult]
    ) -> tuple[FallbackLevel | None, list[StepResult]]:
        """Return the first level for which external sources (web, cloud) have hits already, and these results.

        The filter of their earlier search must include all conditions of the level. (None, []) if no level fits.
        """
        for level in levels:
            needed = router.filter_conjuncts(level.filter)
            names = {step.source for step in level.steps if self.planner.sources[step.source].card.kind == "outside"}
            given = [one for one in answers if one.has_hits and one.query is not None and one.step.source in names]
            if fitting := [one for one in given if one.query and needed <= router.filter_conjuncts(one.query.filter)]:
                return level, fitting
        return None, []

    async def _satisfying(
        self, context: RequestContext, planned: PlannedIntent, answers: Sequence[StepResult], wanted: Filter | None
    ) -> list[StepResult]:
        """Return the results, without hits that violate the filter or are in collections that the plan does not search.

        Hits are checked by loading them under the filter, unless the filter of their search already includes all its
        conditions. Hits that cannot be loaded in time are dropped.

        Args:
            wanted: the filter.
        """
        kept = {(one.tenant, one.name) for one in context.scope.restricted_to(planned.intent.collections).collections}
        left_out = {(one.tenant, one.name) for one in context.scope.collections} - kept
        answers = [replace(one, hits=[hit for hit in one.hits if hit.id[:2] not in left_out]) for one in answers]
        needed = router.filter_conjuncts(wanted)
        unsure = [one.query is None or not needed <= router.filter_conjuncts(one.query.filter) for one in answers]
        ids = [hit.id for one, check in zip(answers, unsure, strict=True) if check for hit in one.hits if not hit.chunk]
        chunks: Mapping[ChunkId, Chunk] = {}
        if ids:
            loading = self.catalogue.load(context.scope, dict.fromkeys(ids), wanted)
            with suppress(Unavailable, OSError):
                chunks = await wait_within(loading, context.deadline_at(deadline_shares.SEARCH_BY) - time.monotonic())
        return [
            replace(one, hits=[hit._replace(chunk=chunks[hit.id]) for hit in one.hits if hit.id in chunks])
            if check
            else one
            for one, check in zip(answers, unsure, strict=True)
        ]


async def plain_reading(context: RequestContext, sources: Mapping[str, Retriever]) -> Reading:
    """Return a reading that infers nothing: the question is searched as it is."""
    return await LiteralReader(default_sources({name: source.card for name, source in sources.items()})).read(
        context.request, context.scope, context.wanted, context.deadline_at(1.0)
    )


def _unsearched(planned: PlannedIntent, reading: Reading) -> tuple[str, ...]:
    """Return `degraded` notes for the transformers whose queries were not searched; () if all were.

    This happens to queries for the source `vector` only, if that source is not asked. (A transformer rewrites the
    question into further queries.)
    """

    searched = {step.search for step in planned.plan.steps}
    made = reading.transforms.vector_only
    # If no query was searched at all, none is missing.
    return transform.skipped_notes(name for text, name in made.items() if text not in searched) if searched else ()


def _not_needed(answer: StepResult) -> StepResult:
    """Return the result of a search without its hits, because the model's later reading asks no source.

    The status becomes "skipped". The query stays, since it counts as paid. A failed result is returned unchanged.
    """
    if answer.is_failed:
        return answer
    reason = "not needed: the search began before the model's reading, which asks no source"
    outcome = answer.outcome.model_copy(update={"status": "skipped", "hits": 0, "reason": reason})
    return replace(answer, hits=(), outcome=outcome, is_partial=False)


def _key(step: Step, query: Query) -> tuple[object, ...]:
    """Return a key that is equal for two steps that run the same search."""
    among = tuple(one.number for one in query.scope.collections)
    wanted = router.filter_conjuncts(query.filter)
    return (step.source, query.text, query.language, among, wanted, query.aggregate, query.statement)
