"""Plan an intent: apply the request's options to it, choose its sources, and make the queries of the plan's steps."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from agent.intent.reading import Reading, question_language
from agent.intent.sources import is_place
from agent.retrieval import router
from agent.retrieval.execute import GuardedSources, MakeQuery, StepResult, resting
from agent.retrieval.router import Constraints, Plan, SearchLimits
from agent.settings import Settings
from agent.types import Intent, Request, SourceChoice, Step
from retrievers.core.aggregates import Aggregate, parse_aggregate
from retrievers.core.breakers import Breakers
from retrievers.core.errors import BadRequest
from retrievers.core.filters import Filter, to_json
from retrievers.core.protocols import is_holder
from retrievers.core.types import Query, Retriever, Scope
from retrievers.embed import Embedder
from retrievers.embed.pool import Embedders
from retrievers.postgres.catalogue import filterable
from retrievers.text.glosses import gloss_for

# Minimum share of the `timeout_s` setting that is left for a source after the slowest reading of the question.
_LEAST_SHARE = 0.4


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, the collections that it may search (`scope`), and its time limit.

    Attributes:
        wanted: the caller's filter.
        started: time of `time.monotonic` at which the request arrived.
        depth: minimum number of hits to request from each source of documents.
        partial: names of the sources that can search only some of the documents in `scope`.
        narrows: whether the interpretation of the question may select some of the collections in `scope`.
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
        """Return the time of `time.monotonic` at which `share` (0 to 1) of the request's time is used up."""
        return self.started + share * self.timeout_s


@dataclass(frozen=True, slots=True)
class PlannedIntent:
    """An intent and the plan made for it.

    Attributes:
        statement: an SQL statement to run, if the intent holds one.
        says_where: whether a source of the intent is a place to search (a folder), not just a method (full text).
    """

    intent: Intent
    constraints: Constraints
    aggregate: Aggregate | None
    statement: str | None
    plan: Plan
    says_where: bool = False


@dataclass(frozen=True, slots=True)
class IntentPlanner:
    """Plans intents over a set of sources. Arguments as for `Pipeline`."""

    settings: Settings
    sources: Mapping[str, Retriever]
    embedder: Embedder
    breakers: Breakers

    def plan(
        self,
        asked: Asked,
        intent: Intent,
        reading: Reading | None = None,
        *,
        number: int = 1,
        vector_only: Collection[str] = (),
    ) -> PlannedIntent:
        """Apply the caller's options to the intent and plan it.

        Args:
            reading: the reading that contains the intent and ranks its inferred constraints; None if they are unranked.
            number: number of the first rung.
            vector_only: queries for the source `vector` only, because a model made up their words.
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
            # The choice of full text or vectors does not exclude sources with documents of their own. The choice of a
            # place (a folder) does.
            others = [name for name, one in self.sources.items() if is_holder(one)]
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
            limits=self.limits(asked),
            fallback=fallback,
            caller_sources=bool(named),
            number=number,
            vector_only=vector_only,
            partial=asked.partial,
        )
        asked_for = intent.aggregate or {}
        statement = asked_for.get("statement")
        aggregate = parse_aggregate(asked_for, fields) if asked_for and statement is None else None
        return PlannedIntent(intent, constraints, aggregate, statement, plan, says_where)

    def limits(self, asked: Asked) -> SearchLimits:
        """Return the limits of this request's searches."""
        return SearchLimits(
            source_timeout_s=self.settings.source_timeout_s,
            timeout_s=asked.timeout_s,
            outside=self.settings.outside_fallback,
            metered_searches=self.settings.metered_searches,
        )

    def queries(self, asked: Asked, planned: PlannedIntent) -> MakeQuery:
        """Return the function that makes the query of a step."""
        intent = planned.intent
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
            return Query(step.search, language, scope, wanted, depth, planned.aggregate, planned.statement)

        return make

    def guarded(self, scope: Scope) -> GuardedSources:
        """Return the sources with their circuit breakers, for searches of the scope.

        `vector` gets no breaker if no embedder of this scope can be opened, since it may work for other scopes.
        """
        embedders = Embedders.of(self.embedder)
        served = {embedders.has(one.embedder or "") for one in scope.collections if one.chunks} != {False}
        guarded = frozenset(name for name in self.sources if served or name != "vector")
        patience_s = min(self.settings.source_timeout_s, _LEAST_SHARE * self.settings.timeout_s)
        return GuardedSources(self.sources, self.breakers, guarded, patience_s)

    def is_of_documents(self, name: str) -> bool:
        """Return whether the source exists and searches document texts."""
        return name in self.sources and self.sources[name].card.kind == "documents"

    def affordable(self, steps: Sequence[Step], answers: Sequence[StepResult]) -> tuple[Step, ...]:
        """Return the steps that may run: without steps at paid sources that have been asked as often as is allowed.

        Args:
            answers: results of this question's earlier steps.
        """
        asked = times_asked(answers)
        kept = []
        for step in steps:
            metered = self.sources[step.source].card.is_metered
            if not metered or asked[step.source] < self.settings.metered_searches:
                asked[step.source] += 1
                kept.append(step)
        return tuple(kept)


def times_asked(answers: Sequence[StepResult]) -> Counter[str]:
    """Return the number of queries sent to each source, by its name, to compare with the limit of paid queries.

    A query that the source rejected as invalid (`BadRequest`) costs nothing and is not counted.
    """
    return Counter(
        one.step.source for one in answers if one.query is not None and not isinstance(one.error, BadRequest)
    )
