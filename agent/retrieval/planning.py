"""Plan an intent: apply the request's options to it, choose its sources, and make the queries of the plan's steps."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from agent.intent.reading import Reading, question_language
from agent.intent.sources import is_location
from agent.options import deadline_shares
from agent.retrieval import router
from agent.retrieval.plan_execution import GuardedSources, MakeQuery, StepResult, resting_sources
from agent.retrieval.router import Constraints, SearchLimits, SearchPlan
from agent.settings import Settings
from agent.types import Intent, Request, SourceChoice, Step
from retrievers.core.aggregates import Aggregate, parse_aggregate
from retrievers.core.circuit_breakers import CircuitBreakers
from retrievers.core.errors import BadRequest
from retrievers.core.filters import Filter, filter_to_json
from retrievers.core.protocol_checks import holds_documents
from retrievers.core.types import Query, Retriever, Scope
from retrievers.embed import Embedder
from retrievers.embed.embedders import Embedders
from retrievers.postgres.catalogue.catalogue import filterable_fields
from retrievers.text.chinese_dictionary import translate_if_needed


@dataclass(frozen=True, slots=True)
class RequestContext:
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

    def deadline_at(self, share: float) -> float:
        """Return the time of `time.monotonic` at which `share` (0 to 1) of the request's time is used up."""
        return self.started + share * self.timeout_s


@dataclass(frozen=True, slots=True)
class PlannedIntent:
    """An intent and the plan made for it.

    Attributes:
        statement: an SQL statement to run, if the intent holds one.
        names_place: whether a source of the intent is a place to search (a folder), not just a method (full text).
    """

    intent: Intent
    constraints: Constraints
    aggregate: Aggregate | None
    statement: str | None
    plan: SearchPlan
    names_place: bool = False


@dataclass(frozen=True, slots=True)
class IntentPlanner:
    """Plans intents over a set of sources. Arguments as for `Pipeline`."""

    settings: Settings
    sources: Mapping[str, Retriever]
    embedder: Embedder
    breakers: CircuitBreakers

    def plan(
        self,
        context: RequestContext,
        intent: Intent,
        reading: Reading | None = None,
        *,
        number: int = 1,
        vector_only: Collection[str] = (),
    ) -> PlannedIntent:
        """Apply the caller's options to the intent and plan it.

        Args:
            reading: the reading that contains the intent and ranks its inferred constraints; None if they are unranked.
            number: number of the first level.
            vector_only: queries for the source `vector` only, because a model made up their words.
        Raises:
            BadRequest: the intent names a field or value that does not exist.
            RoutingFailed: no source can be chosen, and the fallback strategy is `fail`.
        """
        fallback = context.request.fallback or self.settings.fallback
        astray = fallback == "route_to_all" and any(one.kind == "collection" for one in intent.missing)
        if intent.scope and (astray or not context.narrows):
            every = tuple(sorted({one.name for one in context.scope.all_collections}))
            intent = intent.model_copy(update={"collections": every, "scope": ()})
        named = context.request.sources
        names_place = any(one.name in self.sources and is_location(self.sources[one.name]) for one in intent.sources)
        if named:
            choices = [SourceChoice(name=one, confidence=1.0, reason="named by the caller") for one in named]
            intent = intent.model_copy(update={"sources": tuple(choices)})
        elif (
            context.scope.external_collections
            and not names_place
            and any(self.is_document_source(one.name) for one in intent.sources)
        ):
            # The choice of full text or vectors does not exclude sources with documents of their own. The choice of a
            # place (a folder) does.
            others = [name for name, one in self.sources.items() if holds_documents(one)]
            choices = [SourceChoice(name=one, confidence=1.0, reason="it has documents of its own") for one in others]
            intent = intent.model_copy(update={"sources": (*intent.sources, *choices)})
        fields = filterable_fields(context.scope)
        firm, soft = (reading.firm, reading.soft) if reading is not None else ((), ())
        constraints = router.constraints_of_intent(intent, context.wanted, fields, firm=firm, soft=soft)
        stated = router.join_filters((context.wanted, *constraints.firm)) if constraints.firm else context.wanted
        intent = intent.model_copy(update={"filter": filter_to_json(stated) if stated else None})
        plan = router.plan_searches(
            intent,
            {name: source.card for name, source in self.sources.items()},
            resting_sources(self.sources, self.breakers, context.scope),
            constraints=constraints,
            limits=self.search_limits(context),
            fallback=fallback,
            caller_sources=bool(named),
            number=number,
            vector_only=vector_only,
            partial=context.partial,
        )
        asked_for = intent.aggregate or {}
        statement = asked_for.get("statement")
        aggregate = parse_aggregate(asked_for, fields) if asked_for and statement is None else None
        return PlannedIntent(intent, constraints, aggregate, statement, plan, names_place)

    def search_limits(self, context: RequestContext) -> SearchLimits:
        """Return the limits of this request's searches."""
        return SearchLimits(
            source_timeout_s=self.settings.source_timeout_s,
            timeout_s=context.timeout_s,
            outside=self.settings.outside_fallback,
            metered_searches=self.settings.metered_searches,
        )

    def query_maker(self, context: RequestContext, planned: PlannedIntent) -> MakeQuery:
        """Return the function that makes the query of a step."""
        intent = planned.intent
        scope = context.scope.restricted_to(intent.collections)

        def make(step: Step, wanted: Filter | None) -> Query:
            language = intent.language
            if step.search != intent.question:
                # A model may write queries in the documents' language instead of the question's.
                language = question_language(step.search, context.scope)
            card = self.sources[step.source].card
            kind = card.kind
            depth = max(self.settings.depth, context.depth) if kind == "documents" else self.settings.depth
            depth = min(depth, card.top_k or depth)
            if kind != "metadata":
                translation = translate_if_needed(step.search, [one.languages for one in context.scope.all_collections])
                return Query(step.search, language, scope, wanted, depth, translation=translation)
            return Query(step.search, language, scope, wanted, depth, planned.aggregate, planned.statement)

        return make

    def guarded_sources(self, scope: Scope) -> GuardedSources:
        """Return the sources with their circuit breakers, for searches of the scope.

        `vector` gets no breaker if no embedder of this scope can be opened, since it may work for other scopes.
        """
        embedders = Embedders.of(self.embedder)
        served = {embedders.can_open(one.embedder or "") for one in scope.collections if one.chunks} != {False}
        guarded = frozenset(name for name in self.sources if served or name != "vector")
        patience_s = min(self.settings.source_timeout_s, deadline_shares.LEAST_SOURCE * self.settings.timeout_s)
        return GuardedSources(self.sources, self.breakers, guarded, patience_s)

    def is_document_source(self, name: str) -> bool:
        """Return whether the source exists and searches document texts."""
        return name in self.sources and self.sources[name].card.kind == "documents"

    def affordable_steps(self, steps: Sequence[Step], answers: Sequence[StepResult]) -> tuple[Step, ...]:
        """Return the steps that may run: without steps at paid sources that have been asked as often as is allowed.

        Args:
            answers: results of this question's earlier steps.
        """
        counts = query_counts_by_source(answers)
        kept = []
        for step in steps:
            metered = self.sources[step.source].card.is_metered
            if not metered or counts[step.source] < self.settings.metered_searches:
                counts[step.source] += 1
                kept.append(step)
        return tuple(kept)


def query_counts_by_source(answers: Sequence[StepResult]) -> Counter[str]:
    """Return the number of queries sent to each source, by its name, to compare with the limit of paid queries.

    A query that the source rejected as invalid (`BadRequest`) costs nothing and is not counted.
    """
    return Counter(
        one.step.source for one in answers if one.query is not None and not isinstance(one.error, BadRequest)
    )
