"""The next round: further searches for a question, under the constraints that its earlier searches did not drop."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from agent.retrieval import router
from agent.retrieval.execute import StepResult, climb, resting
from agent.retrieval.planning import Asked, IntentPlanner, times_asked
from agent.retrieval.router import Constraints, Rung
from agent.retrieval.search import SearchResults
from agent.types import Relaxed, SourceChoice
from retrievers.core.filters import to_json


@dataclass(frozen=True, slots=True)
class FurtherSearches:
    """Runs further searches for one question.

    Args:
        found: results of the earlier searches.
        deadline: on the clock of `time.monotonic`.
    """

    planner: IntentPlanner
    asked: Asked
    found: SearchResults
    deadline: float

    async def run(self, searches: Sequence[str], *, outside: bool) -> list[tuple[list[StepResult], Rung | None]]:
        """Run the searches in parallel; each has its own ladder.

        Args:
            searches: queries for the documents.
            outside: whether to send the question also to external sources (web, cloud), where allowed, because the
                documents lack the answer.
        Returns:
            Per search (the results of its steps, the last rung that ran or None). That of external sources is last.
        """
        more = [self._search(search) for search in searches]
        if outside and (names := self._outside()):
            more.append(self._search_outside(names))
        return await asyncio.gather(*more)

    async def _search(self, search: str) -> tuple[list[StepResult], Rung | None]:
        planned, constraints = self.found.planned, self.found.planned.constraints
        dropped = {json.dumps(one.dropped) for one in self.found.rung.dropped} if self.found.rung else set()
        firm = tuple(one for one in constraints.firm if json.dumps(to_json(one)) not in dropped)
        choices = tuple(one for one in planned.intent.sources if self.planner.is_of_documents(one.name))
        return await self._climb(search, choices, replace(constraints, firm=firm, soft=()))

    async def _search_outside(self, names: Sequence[str]) -> tuple[list[StepResult], Rung | None]:
        """Send the question to the external sources (web, cloud) with these names; returns as an item of `run`.

        Only the question itself is sent: a query that a model wrote after reading the documents could leak their
        content. Only the caller's filter applies, because external sources do not know the metadata from which the
        other constraints were made.
        """
        intent, constraints = self.found.planned.intent, self.found.planned.constraints
        choices = tuple(SourceChoice(name=one, confidence=1.0, reason="to find what is missing") for one in names)
        answers, rung = await self._climb(intent.question, choices, replace(constraints, firm=(), soft=()))
        left_out = constraints.firm if any(one.gave for one in answers) else ()
        dropped = tuple(Relaxed(dropped=to_json(one), reason="a source outside cannot apply it") for one in left_out)
        return answers, replace(rung, dropped=dropped) if rung else None

    async def _climb(
        self, search: str, choices: tuple[SourceChoice, ...], constraints: Constraints
    ) -> tuple[list[StepResult], Rung | None]:
        asked, found, planner = self.asked, self.found, self.planner
        planned = found.planned
        intent = planned.intent.model_copy(
            update={"kind": "retrieve", "searches": (search,), "aggregate": None, "sources": choices}
        )
        outside = any(not planner.is_of_documents(one.name) for one in choices)
        plan = router.plan(
            intent,
            {name: source.card for name, source in planner.sources.items()},
            resting(planner.sources, planner.breakers, asked.scope),
            constraints=constraints,
            limits=replace(planner.limits(asked), outside=False),
            fallback="ordered_backoff",
            # A search outside must not fall back to the documents, which have searches of their own.
            caller_sources=outside or bool(asked.request.sources) or planned.plan.is_held,
            number=max((one.step.step for one in found.answers), default=0) + 1,
        )
        make = planner.queries(asked, replace(planned, intent=intent, aggregate=None, statement=None))
        failed = [answer for answer in found.answers if answer.unavailable]
        return await climb(plan.rungs, make, planner.guarded(asked.scope), deadline=self.deadline, before=failed)

    def _outside(self) -> list[str]:
        """Return the names of the external sources that may be sent the question and have not got it yet."""
        settings, found = self.planner.settings, self.found
        chosen = {one.name for one in found.planned.intent.sources}
        allowed = settings.outside_fallback and not self.asked.request.sources
        question, paid = found.planned.intent.question, times_asked(found.answers)
        known = {one.step.source for one in found.answers if one.query is not None and one.step.search == question}
        return [
            name
            for name, one in self.planner.sources.items()
            if one.card.kind == "outside"
            and (name in chosen or allowed)
            and name not in known
            and paid[name] < settings.metered_searches
        ]
