"""Router: plan which sources get which searches, and what is tried if they find nothing. A pure function.

The plan is a list of levels. Level 1 asks every chosen source in parallel. Each further level is a fallback: it runs
only if the levels before gave no hit, and drops only constraints that were inferred from the question. A likely (soft)
constraint never narrows a level: an extra search beside level 1 finds the documents that satisfy it, and their hits are
boosted.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent.intent.sources import default_sources
from agent.types import Intent, Relaxed, Step
from retrievers.core.errors import Unavailable, join_names
from retrievers.core.filters import And, Filter, filter_to_json, parse_filter
from retrievers.core.metadata import Field
from retrievers.core.types import Card

Fallback = Literal["ordered_backoff", "do_not_route", "route_to_all", "fail"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_NOTHING_FOUND = "nothing was found with it, though the question states it"


class RoutingFailed(Unavailable):
    """The chosen sources cannot be asked, and the fallback strategy is `fail`."""

    def __init__(self, reason: str) -> None:
        super().__init__("the router", reason)


@dataclass(frozen=True, slots=True)
class Constraints:
    """The constraints of a search.

    Attributes:
        wanted: the caller's filter; every step applies it.
        firm: inferred from the question, weakest first; the fallback levels drop them in this order.
        soft: likely constraints. They filter nothing; documents that satisfy them are boosted.
    """

    wanted: Filter | None = None
    firm: tuple[Filter, ...] = ()
    soft: tuple[Filter, ...] = ()

    def filter(self, *, firm: int = 0) -> Filter | None:
        """Return the caller's filter and the firm constraints, joined by "and"; None if there are none.

        Args:
            firm: number of firm constraints to leave out, the weakest first.
        """
        return join_filters((self.wanted, *self.firm[firm:]))


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """Limits of one request.

    Attributes:
        searches: maximum queries per source.
        metered_searches: maximum queries per source that is paid per search.
        outside: whether the last level may ask external sources (web, cloud), which then see the question.
    """

    source_timeout_s: float
    timeout_s: float
    searches: int = 8
    metered_searches: int = 1
    outside: bool = False


@dataclass(frozen=True, slots=True)
class FallbackLevel:
    """One level of a search plan: steps that run in parallel. The first level is the plan proper, the others fallbacks.

    Attributes:
        number: number of the level, from 1; its steps have the same number.
        filter: the filter of all steps.
        dropped: inferred constraints that `filter` leaves out.
    """

    number: int
    steps: tuple[Step, ...]
    filter: Filter | None
    dropped: tuple[Relaxed, ...] = ()


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """The searches of a request and their fallbacks, level by level.

    Attributes:
        degraded: notes about chosen sources that are missing or cannot search all documents.
        soft_level: the first level's searches over only the documents that also satisfy the soft constraints; None if
            there are no such constraints.
        is_restricted: whether only the chosen sources may be searched, also by searches for what is missing.
    """

    levels: tuple[FallbackLevel, ...] = ()
    degraded: tuple[str, ...] = ()
    soft_level: FallbackLevel | None = None
    is_restricted: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """All steps: those of `soft_level` first, then the levels in order."""
        levels = (self.soft_level, *self.levels) if self.soft_level is not None else self.levels
        return tuple(step for level in levels for step in level.steps)


def plan_searches(
    intent: Intent,
    cards: Mapping[str, Card],
    resting_sources: Collection[str] = (),
    *,
    constraints: Constraints,
    limits: SearchLimits,
    fallback: Fallback = "ordered_backoff",
    caller_sources: bool = False,
    number: int = 1,
    vector_only: Collection[str] = (),
    partial: Collection[str] = (),
) -> SearchPlan:
    """Return the search plan for an intent.

    Args:
        cards: the existing sources by name, in order of preference.
        resting: sources whose circuit breaker is open. They are no fallback; a chosen one keeps its step, so that its
            outcome says why it was not asked.
        constraints: the intent's constraints, see `constraints_of_intent`.
        fallback: strategy if routing failed, see `_choose_sources`.
        caller_sources: whether the caller named the sources; then no other source is asked.
        number: number of the first level.
        vector_only: queries for the source `vector` only, because a model made up their words.
        partial: sources that can search only some of the documents in the request's scope.
    Returns:
        The plan; empty if nothing is to be retrieved.
    Raises:
        RoutingFailed: routing failed, and `fallback` is `fail`.
    """
    if intent.kind == "none":
        return SearchPlan()
    chosen, degraded, is_restricted = _choose_sources(intent, cards, fallback, caller_sources, resting_sources, partial)
    no_others = caller_sources or is_restricted
    others = [
        name for name in default_sources(cards) if name not in chosen and name not in resting_sources and not no_others
    ]
    asked = [name for name in chosen if cards[name].kind == "documents"]
    outside = [
        name for name in cards if cards[name].kind == "outside" and name not in chosen and name not in resting_sources
    ]
    builder = _PlanBuilder(intent, cards, constraints, limits, number, vector_only)

    builder.add(chosen)
    if not builder.levels:
        return SearchPlan(
            (), degraded, None, is_restricted
        )  # no source is asked, so there is nothing to fall back from
    builder.add(others)
    for count in range(1, len(constraints.firm) + 1):
        builder.add([*asked, *others], firm=count)
    # Sources outside cannot apply constraints on the metadata, so all inferred ones are dropped for them.
    builder.add([name for name in chosen if cards[name].kind == "outside"], firm=len(constraints.firm))
    if limits.outside and not no_others:
        builder.add(outside, firm=len(constraints.firm))
    return SearchPlan(tuple(builder.levels), degraded, _soft_level(builder.levels, asked, constraints), is_restricted)


def _soft_level(
    levels: Sequence[FallbackLevel], asked: Collection[str], constraints: Constraints
) -> FallbackLevel | None:
    """Return the first level's searches of documents, narrowed by the soft constraints.

    None if there is no such search, or if the soft constraints add nothing to the level's filter.

    Args:
        asked: names of the chosen sources that search document texts.
    """
    wanted = join_filters((constraints.filter(), *constraints.soft))
    if not levels or wanted is None or filter_conjuncts(wanted) == filter_conjuncts(levels[0].filter):
        return None
    shown = filter_to_json(wanted)
    steps = [step.model_copy(update={"filter": shown}) for step in levels[0].steps if step.source in asked]
    return replace(levels[0], steps=tuple(steps), filter=wanted) if steps else None


def _choose_sources(
    intent: Intent,
    cards: Mapping[str, Card],
    fallback: Fallback,
    caller_sources: bool,
    resting_sources: Collection[str],
    partial: Collection[str],
) -> tuple[list[str], tuple[str, ...], bool]:
    """Return the sources of the first level, the degraded notes, and whether no source may replace the chosen ones.

    Routing fails if any source that a model or the caller chose is unknown, resting or only partly searchable. For
    sources chosen by rules, it fails only if this is true of all of them. It also fails if only a model may choose and
    it gave no reading. If routing fails, the strategy `fallback` decides:

    - `ordered_backoff`: the chosen sources that exist, and others if they find nothing. If none exists, the usual
      sources.
    - `do_not_route`: the chosen sources that can be searched as a whole, and no others.
    - `route_to_all`: every source in parallel.
    - `fail`: raise.

    Sources that the caller named are never replaced by others.
    """
    # Sources of kind "metadata" answer only calculations.
    usable = [name for name in cards if cards[name].kind != "metadata" or intent.aggregate]
    named = list(dict.fromkeys(choice.name for choice in intent.sources))
    unknown = [name for name in named if name not in cards]
    known = [name for name in named if name in (cards if caller_sources else usable)]
    if not (named or caller_sources or any(one.kind != "collection" for one in intent.missing)):
        known = (
            [name for name in usable if cards[name].kind == "metadata"] if intent.aggregate else default_sources(cards)
        )
    broken = [name for name in known if name in resting_sources or name in partial]
    said = (
        *map(_unavailable, unknown),
        *(f"{one.kind}_unavailable" for one in intent.missing if one.kind != "choice"),
        *(f"{name}_partial" for name in known if name in partial),
    )
    degraded = tuple(dict.fromkeys(said))
    lacks = bool(broken) or (not caller_sources and bool(unknown or intent.missing))
    if not (lacks if caller_sources or (known and intent.by == "llm") else len(broken) == len(known)):
        return known, degraded, False
    if fallback == "fail":
        gone = [*unknown, *(one.name for one in intent.missing), *broken] or named
        few = "not all" if len(broken) < len(known) else "none"
        raise RoutingFailed(f"{few} of the chosen sources can be asked: {join_names(map(_shown, gone))}")
    if fallback == "do_not_route":
        lost = not intent.scope and any(one.kind == "collection" for one in intent.missing)
        kept = [] if lost else [name for name in known if name not in partial]
        is_nothing = not caller_sources and all(name in resting_sources for name in kept)
        return kept, (*degraded, "routing_failed") if is_nothing else degraded, True
    if caller_sources:
        return known, degraded, False
    if fallback == "route_to_all":
        return list(dict.fromkeys((*known, *(name for name in usable if not cards[name].part)))), degraded, False
    # If no source of documents may be asked, use any that can answer.
    return known or default_sources(cards) or usable, degraded, False


class _PlanBuilder:
    """Collects levels; a step that is already in an earlier level is not added again."""

    def __init__(
        self,
        intent: Intent,
        cards: Mapping[str, Card],
        constraints: Constraints,
        limits: SearchLimits,
        number: int,
        vector_only: Collection[str],
    ) -> None:
        self.levels: list[FallbackLevel] = []
        self._intent, self._cards, self._constraints, self._limits = intent, cards, constraints, limits
        self._number, self._vector_only = number, vector_only
        self._known: set[tuple[str, str, frozenset[Filter]]] = set()
        self._dropped: tuple[Relaxed, ...] = ()

    def add(self, sources: Sequence[str], *, firm: int = 0) -> None:
        """Add a level that asks these sources, if it has a step that no earlier level has.

        Args:
            firm: number of firm constraints to leave out of the filter, the weakest first.
        """
        constraints, limits = self._constraints, self._limits
        wanted = constraints.filter(firm=firm)
        shown = filter_to_json(wanted) if wanted else None
        steps = []
        for search, source in self._asked(sources):
            key = (source, search, filter_conjuncts(wanted))
            if key in self._known:
                continue
            self._known.add(key)
            steps.append(
                Step(
                    source=source,
                    search=search,
                    filter=shown,
                    timeout_s=min(self._cards[source].timeout_s or limits.source_timeout_s, limits.timeout_s),
                    step=self._number + len(self.levels),
                )
            )
        if not steps:
            return
        dropped = tuple(Relaxed(dropped=filter_to_json(one), reason=_NOTHING_FOUND) for one in constraints.firm[:firm])
        self.levels.append(FallbackLevel(self._number + len(self.levels), tuple(steps), wanted, dropped))

    def _asked(self, sources: Sequence[str]) -> list[tuple[str, str]]:
        """Return (query, source) pairs: paid sources get fewer queries, sources that calculate get one."""
        limits = self._limits
        most = {"documents": limits.searches, "outside": limits.metered_searches, "metadata": 1}
        searches = list(dict.fromkeys(self._intent.searches))[: self._limits.searches]
        searches = searches or [self._intent.question]
        return [
            (search, source)
            for place, search in enumerate(searches)
            for source in sources
            if place < most["outside" if self._cards[source].is_metered else self._cards[source].kind]
            and (source == "vector" or search not in self._vector_only)
        ]


def constraints_of_intent(
    intent: Intent,
    wanted: Filter | None,
    fields: Mapping[str, Field],
    *,
    firm: Sequence[Filter] = (),
    soft: Sequence[Filter] = (),
) -> Constraints:
    """Return the constraints of an intent, with those of the caller's filter kept apart.

    Args:
        wanted: the caller's filter.
        fields: the existing fields.
        firm, soft: inferred constraints, weakest first, if the reader ranked them. Further constraints in the intent's
            filters count as stronger.
    Raises:
        BadFilter: the intent's filters name a field or operator that does not exist.
    """
    callers = _parts(filter_to_json(wanted)) if wanted else []

    def inferred(stated: Mapping[str, Any] | None, known: Sequence[Filter]) -> tuple[Filter, ...]:
        said = [*callers, *(part for one in known for part in _parts(filter_to_json(one)))]
        # Parse each condition alone: joined with the caller's filter, they could exceed the maximum depth.
        return (*known, *(parse_filter(part, fields) for part in _parts(stated) if part not in said))

    return Constraints(wanted, inferred(intent.filter, firm), inferred(intent.soft_filter, soft))


def join_filters(filters: Sequence[Filter | None]) -> Filter | None:
    """Return the conjunction of the filters; None if there is none."""
    parts = tuple(dict.fromkeys(part for one in filters if one is not None for part in _flat(one)))
    if len(parts) > 1:
        return And(parts)
    return parts[0] if parts else None


def filter_conjuncts(wanted: Filter | None) -> frozenset[Filter]:
    """Return the conditions that must all be true for the filter; filters with equal sets mean the same."""
    return frozenset(_flat(wanted)) if wanted else frozenset()


def _flat(wanted: Filter) -> list[Filter]:
    return [part for one in wanted.filters for part in _flat(one)] if isinstance(wanted, And) else [wanted]


def _parts(stated: Any) -> list[Any]:
    """Return the conditions that a JSON filter joins by "and", also nested; they are not validated."""
    if stated is None:
        return []
    inner = stated.get("filters") if isinstance(stated, Mapping) and stated.get("type") == "and" else None
    if isinstance(inner, list | tuple):
        return [part for one in inner for part in _parts(one)]
    return [stated]


def _shown(name: str) -> str:
    # A model may have invented the name: repeat it only if it looks like a name.
    return name if _NAME.fullmatch(name) else "source"


def _unavailable(name: str) -> str:
    return f"{_shown(name)}_unavailable"
