"""Router: which sources are asked what, and what is tried when that gives nothing. A pure function.

Rung 1 asks every chosen source at once. The rungs above it are the ladder: each runs only when those
before gave no hit, and every constraint it leaves out is one that was read from the question. A constraint that is
only likely narrows no rung: beside rung 1 the documents that satisfy it are searched, to be raised.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from agent.intent.sources import usual
from agent.types import Intent, Relaxed, Step
from retrievers.core.errors import Unavailable, listing
from retrievers.core.fields import Field
from retrievers.core.filters import And, Filter, parse, to_json
from retrievers.core.types import Card

Fallback = Literal["ordered_backoff", "do_not_route", "route_to_all", "fail"]

_NAME = re.compile(r"[a-z][a-z0-9_]{0,31}")
_NOTHING_FOUND = "nothing was found with it, though the question states it"


class RoutingFailed(Unavailable):
    """What was chosen for a question cannot be asked, and the fallback strategy is to fail."""

    def __init__(self, reason: str) -> None:
        super().__init__("the router", reason)


@dataclass(frozen=True, slots=True)
class Constraints:
    """What narrows a search.

    Attributes:
        wanted: the caller's filter; part of every step.
        firm: read from the question, the weakest first; dropped in this order by the ladder.
        soft: likely, and no part of the filter: documents that satisfy them are raised.
    """

    wanted: Filter | None = None
    firm: tuple[Filter, ...] = ()
    soft: tuple[Filter, ...] = ()

    def filter(self, *, firm: int = 0) -> Filter | None:
        """What every hit must satisfy, without so many of the weakest firm ones."""
        return joined((self.wanted, *self.firm[firm:]))


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """What one request may take.

    Attributes:
        searches: most search texts asked of a source.
        metered_searches: the same for a source outside, which is paid by the search.
        outside: whether the ladder may end outside, which shows the question to others.
    """

    source_timeout_s: float
    timeout_s: float
    searches: int = 8
    metered_searches: int = 1
    outside: bool = False


@dataclass(frozen=True, slots=True)
class Rung:
    """Steps that run at once.

    Attributes:
        filter: what all of them apply.
        dropped: the inferred constraints that `filter` lacks.
        when: `first`: at once; `failed`: when no source before has answered; `nothing`: when none gave a hit.
    """

    number: int
    steps: tuple[Step, ...]
    filter: Filter | None
    dropped: tuple[Relaxed, ...] = ()
    when: Literal["first", "failed", "nothing"] = "first"


@dataclass(frozen=True, slots=True)
class Plan:
    """The ladder.

    Attributes:
        likely: the searches of the first rung among the documents that satisfy the soft constraints as well.
        degraded: what the intent chose and is not there.
        is_held: whether nothing may stand in for what was chosen, in later searches neither.
    """

    rungs: tuple[Rung, ...] = ()
    degraded: tuple[str, ...] = ()
    likely: Rung | None = None
    is_held: bool = False

    @property
    def steps(self) -> tuple[Step, ...]:
        """Every step, those among the likely documents first, then in the order of the ladder."""
        rungs = (self.likely, *self.rungs) if self.likely is not None else self.rungs
        return tuple(step for rung in rungs for step in rung.steps)


def plan(
    intent: Intent,
    cards: Mapping[str, Card],
    resting: Collection[str] = (),
    *,
    constraints: Constraints,
    limits: SearchLimits,
    fallback: Fallback = "ordered_backoff",
    caller_sources: bool = False,
    number: int = 1,
    vector_only: Collection[str] = (),
    partial: Collection[str] = (),
) -> Plan:
    """The steps for an intent.

    Args:
        cards: the sources that exist, by name, in the order of preference.
        resting: those whose breaker is open: the ladder does not turn to them. One that was chosen keeps
            its step, so that its outcome says why it was not asked.
        constraints: those of the intent, see `constraints_of`.
        fallback: what to do when routing failed, see `_chosen`.
        caller_sources: the caller named the sources: no other is asked, whatever happens.
        number: of the first rung.
        vector_only: searches that no other source is to be asked: their words are made up.
        partial: sources of which the request may search a part only.
    Returns:
        The ladder; empty when nothing is to be retrieved.
    Raises:
        RoutingFailed: so it did, and `fallback` is `fail`.
    """
    if intent.kind == "none":
        return Plan()
    chosen, degraded, is_held = _chosen(intent, cards, fallback, caller_sources, resting, partial)
    no_others = caller_sources or is_held
    others = [name for name in usual(cards) if name not in chosen and name not in resting and not no_others]
    asked = [name for name in chosen if cards[name].kind == "documents"]
    outside = [name for name in cards if cards[name].kind == "outside" and name not in chosen and name not in resting]
    builder = _Ladder(intent, cards, constraints, limits, number, vector_only)

    builder.add(chosen, when="first")
    builder.add(others)
    for count in range(1, len(constraints.firm) + 1):
        builder.add([*asked, *others], firm=count)
    # What is outside knows none of the documents' metadata: to it, the question's own words must say as much.
    builder.add([name for name in chosen if cards[name].kind == "outside"], firm=len(constraints.firm))
    if limits.outside and not no_others:
        builder.add(outside, firm=len(constraints.firm))
    return Plan(tuple(builder.rungs), degraded, _likely(builder.rungs, asked, constraints), is_held)


def _likely(rungs: Sequence[Rung], asked: Collection[str], constraints: Constraints) -> Rung | None:
    """The first rung's searches of the documents, within the soft constraints too; None where there are none."""
    wanted = joined((constraints.filter(), *constraints.soft))
    if not rungs or wanted is None or conjuncts(wanted) == conjuncts(rungs[0].filter):
        return None
    shown = to_json(wanted)
    steps = [step.model_copy(update={"filter": shown}) for step in rungs[0].steps if step.source in asked]
    return replace(rungs[0], steps=tuple(steps), filter=wanted) if steps else None


def _chosen(
    intent: Intent,
    cards: Mapping[str, Card],
    fallback: Fallback,
    caller_sources: bool,
    resting: Collection[str],
    partial: Collection[str],
) -> tuple[list[str], tuple[str, ...], bool]:
    """The sources of the first rung, what is to be said of those that are not there, and whether none may stand in.

    A model's or caller's choice failed when any of it is unknown, rests or can be searched in part only; that of rules
    when all of it does; where a model alone is to choose, so did routing when it gave no reading. Then the strategy
    says what is asked:

    - `ordered_backoff`: what is there of the choice; others when that gives nothing. Where nothing of it is there, the
      usual sources.
    - `do_not_route`: what is there of the choice as a whole, and no other source.
    - `route_to_all`: every source at once.
    - `fail`: nothing.

    What the caller named is never exchanged for others.
    """
    # A source over metadata answers calculations alone.
    usable = [name for name in cards if cards[name].kind != "metadata" or intent.aggregate]
    named = list(dict.fromkeys(choice.name for choice in intent.sources))
    unknown = [name for name in named if name not in cards]
    known = [name for name in named if name in (cards if caller_sources else usable)]
    if not (named or caller_sources or any(one.kind != "collection" for one in intent.missing)):
        known = [name for name in usable if cards[name].kind == "metadata"] if intent.aggregate else usual(cards)
    broken = [name for name in known if name in resting or name in partial]
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
        raise RoutingFailed(f"{few} of the chosen sources can be asked: {listing(map(_shown, gone))}")
    if fallback == "do_not_route":
        lost = not intent.scope and any(one.kind == "collection" for one in intent.missing)
        kept = [] if lost else [name for name in known if name not in partial]
        is_nothing = not caller_sources and all(name in resting for name in kept)
        return kept, (*degraded, "routing_failed") if is_nothing else degraded, True
    if caller_sources:
        return known, degraded, False
    if fallback == "route_to_all":
        return list(dict.fromkeys((*known, *(name for name in usable if not cards[name].part)))), degraded, False
    # Where no source of documents may be asked, the others are what there is.
    return known or usual(cards) or usable, degraded, False


class _Ladder:
    """Collects rungs; a step that an earlier rung holds is not added again."""

    def __init__(
        self,
        intent: Intent,
        cards: Mapping[str, Card],
        constraints: Constraints,
        limits: SearchLimits,
        number: int,
        vector_only: Collection[str],
    ) -> None:
        self.rungs: list[Rung] = []
        self._intent, self._cards, self._constraints, self._limits = intent, cards, constraints, limits
        self._number, self._vector_only = number, vector_only
        self._known: set[tuple[str, str, frozenset[Filter]]] = set()
        self._dropped: tuple[Relaxed, ...] = ()

    def add(
        self,
        sources: Sequence[str],
        *,
        firm: int = 0,
        when: Literal["first", "failed", "nothing"] = "nothing",
    ) -> None:
        if when != "first" and not self.rungs:
            return  # nothing was asked at all: no ladder leads on from there
        constraints, limits = self._constraints, self._limits
        wanted = constraints.filter(firm=firm)
        shown = to_json(wanted) if wanted else None
        steps = []
        for search, source in self._asked(sources):
            key = (source, search, conjuncts(wanted))
            # When nobody answered, asking the others is no repetition of a later rung: that one is left out.
            if key in self._known:
                continue
            self._known.add(key)
            steps.append(
                Step(
                    source=source,
                    search=search,
                    filter=shown,
                    timeout_s=min(self._cards[source].timeout_s or limits.source_timeout_s, limits.timeout_s),
                    step=self._number + len(self.rungs),
                )
            )
        if not steps:
            return
        dropped = tuple(Relaxed(dropped=to_json(one), reason=_NOTHING_FOUND) for one in constraints.firm[:firm])
        self.rungs.append(Rung(self._number + len(self.rungs), tuple(steps), wanted, dropped, when))

    def _asked(self, sources: Sequence[str]) -> list[tuple[str, str]]:
        """Every search of every source; one that is paid by the search is asked less, one that calculates once."""
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


def constraints_of(
    intent: Intent,
    wanted: Filter | None,
    fields: Mapping[str, Field],
    *,
    firm: Sequence[Filter] = (),
    soft: Sequence[Filter] = (),
) -> Constraints:
    """The constraints of an intent, told apart from the caller's.

    Args:
        fields: those that exist.
        firm, soft: the inferred ones from weakest to strongest, where the reader has said so; what the
            intent's filters hold beyond them counts as stronger.
    Raises:
        BadFilter: the intent's filters name what does not exist.
    """
    callers = _parts(to_json(wanted)) if wanted else []

    def inferred(stated: Mapping[str, Any] | None, known: Sequence[Filter]) -> tuple[Filter, ...]:
        said = [*callers, *(part for one in known for part in _parts(to_json(one)))]
        # Part by part: with the caller's around them they may be nested deeper than one filter may be.
        return (*known, *(parse(part, fields) for part in _parts(stated) if part not in said))

    return Constraints(wanted, inferred(intent.filter, firm), inferred(intent.soft_filter, soft))


def joined(filters: Sequence[Filter | None]) -> Filter | None:
    """One filter that holds where all of them do; None when there is none."""
    parts = tuple(dict.fromkeys(part for one in filters if one is not None for part in _flat(one)))
    if len(parts) > 1:
        return And(parts)
    return parts[0] if parts else None


def conjuncts(wanted: Filter | None) -> frozenset[Filter]:
    """The conditions that must all hold: two filters of the same ones mean the same."""
    return frozenset(_flat(wanted)) if wanted else frozenset()


def _flat(wanted: Filter) -> list[Filter]:
    return [part for one in wanted.filters for part in _flat(one)] if isinstance(wanted, And) else [wanted]


def _parts(stated: Any) -> list[Any]:
    """The conditions of a filter in JSON that must all hold; nothing is checked yet."""
    if stated is None:
        return []
    inner = stated.get("filters") if isinstance(stated, Mapping) and stated.get("type") == "and" else None
    if isinstance(inner, list | tuple):
        return [part for one in inner for part in _parts(one)]
    return [stated]


def _shown(name: str) -> str:
    # A model may have made the name up: only what looks like one is repeated.
    return name if _NAME.fullmatch(name) else "source"


def _unavailable(name: str) -> str:
    return f"{_shown(name)}_unavailable"
