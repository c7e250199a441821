"""Run the additional searches that `search_loop` asked for, without the constraints that were dropped before."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.retrieval import router
from agent.retrieval.plan_execution import StepResult, resting_sources, run_levels
from agent.retrieval.planning import IntentPlanner, RequestContext, query_counts_by_source
from agent.retrieval.router import Constraints, FallbackLevel
from agent.retrieval.search_stage import SearchResults
from agent.types import Relaxed, SourceChoice
from retrievers.core.filters import filter_to_json


@dataclass(frozen=True, slots=True)
class AdditionalSearcher:
    """Runs further searches for one question.

    Args:
        results: results of the earlier searches.
        deadline: on the clock of `time.monotonic`.
    """

    planner: IntentPlanner
    context: RequestContext
    results: SearchResults
    deadline: float

    async def run(
        self, searches: Sequence[str], *, outside: bool
    ) -> list[tuple[list[StepResult], FallbackLevel | None]]:
        """Run the searches in parallel; each has its own fallback levels.

        Args:
            searches: queries for the documents.
            outside: whether to send the question also to external sources (web, cloud), where allowed, because the
                documents lack the answer.
        Returns:
            Per search (the results of its steps, the last level that ran or None). That of external sources is last.
        """
        more = [self._search(search) for search in searches]
        if outside and (names := self._outside()):
            more.append(self._search_outside(names))
        return await asyncio.gather(*more)

    async def _search(self, search: str) -> tuple[list[StepResult], FallbackLevel | None]:
        planned, constraints = self.results.planned, self.results.planned.constraints
        dropped = {json.dumps(one.dropped) for one in self.results.level.dropped} if self.results.level else set()
        firm = tuple(one for one in constraints.firm if json.dumps(filter_to_json(one)) not in dropped)
        choices = tuple(one for one in planned.intent.sources if self.planner.is_document_source(one.name))
        return await self._run_search(search, choices, replace(constraints, firm=firm, soft=()))

    async def _search_outside(self, names: Sequence[str]) -> tuple[list[StepResult], FallbackLevel | None]:
        """Send the question to the external sources (web, cloud) with these names; returns as an item of `run`.

        Only the question itself is sent: a query that a model wrote after reading the documents could leak their
        content. Only the caller's filter applies, because external sources do not know the metadata from which the
        other constraints were made.
        """
        intent, constraints = self.results.planned.intent, self.results.planned.constraints
        choices = tuple(SourceChoice(name=one, confidence=1.0, reason="to find what is missing") for one in names)
        answers, level = await self._run_search(intent.question, choices, replace(constraints, firm=(), soft=()))
        left_out = constraints.firm if any(one.has_hits for one in answers) else ()
        dropped = tuple(
            Relaxed(dropped=filter_to_json(one), reason="a source outside cannot apply it") for one in left_out
        )
        return answers, replace(level, dropped=dropped) if level else None

    async def _run_search(
        self, search: str, choices: tuple[SourceChoice, ...], constraints: Constraints
    ) -> tuple[list[StepResult], FallbackLevel | None]:
        context, results, planner = self.context, self.results, self.planner
        planned = results.planned
        intent = planned.intent.model_copy(
            update={"kind": "retrieve", "searches": (search,), "aggregate": None, "sources": choices}
        )
        outside = any(not planner.is_document_source(one.name) for one in choices)
        plan = router.plan_searches(
            intent,
            {name: source.card for name, source in planner.sources.items()},
            resting_sources(planner.sources, planner.breakers, context.scope),
            constraints=constraints,
            limits=replace(planner.search_limits(context), outside=False),
            fallback="ordered_backoff",
            # A search outside must not fall back to the documents, which have searches of their own.
            caller_sources=outside or bool(context.request.sources) or planned.plan.is_restricted,
            number=max((one.step.step for one in results.answers), default=0) + 1,
        )
        make = planner.query_maker(context, replace(planned, intent=intent, aggregate=None, statement=None))
        failed = [answer for answer in results.answers if answer.is_unavailable]
        return await run_levels(
            plan.levels, make, planner.guarded_sources(context.scope), deadline=self.deadline, before=failed
        )

    def _outside(self) -> list[str]:
        """Return the names of the external sources that may be sent the question and have not got it yet."""
        settings, results = self.planner.settings, self.results
        chosen = {one.name for one in results.planned.intent.sources}
        allowed = settings.outside_fallback and not self.context.request.sources
        question, paid = results.planned.intent.question, query_counts_by_source(results.answers)
        known = {one.step.source for one in results.answers if one.query is not None and one.step.search == question}
        return [
            name
            for name, one in self.planner.sources.items()
            if one.card.kind == "outside"
            and (name in chosen or allowed)
            and name not in known
            and paid[name] < settings.metered_searches
        ]
