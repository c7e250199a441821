"""Rounds: after each round of searches, check whether every part of the question is answered, else search further.

Rules check first: the parts count as answered if some passage covers the words of each. If not, a model judges. Without
a model, a part whose words were not found gets a search of its own.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent.intent.asking import parts_perhaps
from agent.intent.text import readable
from agent.llm.calls import Calls
from agent.llm.model import Model, ModelFailed
from agent.retrieval import model_judge
from agent.retrieval.coverage import coverage, stands_out
from agent.retrieval.execute import StepResult
from agent.retrieval.fusion import Fused, take_turns
from agent.retrieval.model_judge import QuestionPart
from agent.retrieval.next_round import FurtherSearches
from agent.retrieval.planning import Asked
from agent.retrieval.router import Rung
from agent.retrieval.search import SEARCH_BY, Search, SearchResults
from agent.settings import Settings
from agent.types import Intent, Relaxed
from prompts import Library, packaged
from retrievers.core.breakers import Breaker
from retrievers.core.errors import Unavailable
from retrievers.core.filters import Filter
from retrievers.core.tasks import within
from retrievers.core.types import ChunkId, Scope
from retrievers.text import glosses

JUDGED = 10
"""Number of top hits that are judged, whatever page is asked for, so that every page is cut from one ranking."""
COVERED = 0.6
"""Minimum coverage at which a search, or a part of the question, counts as found.

With a model's searches, 94 % of the complete answers reach it and need no judgement (PEPs). Without a model, 76 %
instead of 66 % of double questions are answered on the first page (PEPs), and 100 % instead of 95 % (CMRC). A higher
threshold only adds useless searches.
"""

HALF_COVERED = 0.45
"""The same if the cosine of a passage stands out, see `stands_out`: the passage may answer in other words."""

# Share of a round's time for the model's judgement; the rest is for the searches that follow it.
_JUDGE_BY = 0.8
_DEGRADED = "sufficiency_unavailable"

Stop = Literal["enough", "no_progress", "budget", "rounds", "failed"]

_log = logging.getLogger(__name__)
# Without a handler configured by the program, the lines would go straight to stderr.
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class Round:
    """The record of one round of searches.

    Attributes:
        searches: the queries of the round.
        parts: parts of the question, as judged after the round.
        by: whether rules or the model judged.
        hits: number of hits of the searches, over all sources.
        added: number of passages that the round brought into the first `JUDGED`.
        stopped: why it was the last round; None if another followed. `failed`: no judgement was possible.
    """

    number: int
    searches: tuple[str, ...]
    parts: tuple[QuestionPart, ...]
    by: Literal["rules", "llm"]
    hits: int
    added: int
    stopped: Stop | None

    def to_json(self) -> dict[str, Any]:
        """Return the round as JSON values."""
        judged = [
            {"part": one.part, "answered": one.answered, "by": one.by, "missing": one.missing, "search": one.search}
            for one in self.parts
        ]
        return {
            "number": self.number,
            "searches": self.searches,
            "judged": {"parts": judged},
            "by": self.by,
            "hits": self.hits,
            "added": self.added,
            "stopped": self.stopped,
        }


@dataclass(frozen=True, slots=True)
class Looped:
    """The result of all rounds.

    Attributes:
        found: the searches' results, with the steps of all rounds.
        ranking: the ranking after the last round.
        rounds: empty if there was nothing to judge.
        relaxed: constraints that a search of a later round dropped.
    """

    found: SearchResults
    ranking: list[Fused]
    rounds: tuple[Round, ...] = ()
    relaxed: tuple[Relaxed, ...] = ()
    degraded: tuple[str, ...] = ()


def searches_by_part(intent: Intent) -> list[list[str]]:
    """Group the searches of an intent: one inner list per part of the question.

    Rules make one search per part. For a Chinese first part they add its English translation, in the same group. A
    model may word one part in several ways, so all its searches form one group.
    """
    searches = list(dict.fromkeys(intent.searches))
    if intent.by != "rules" or not searches:
        return [searches]
    is_chinese = glosses.is_chinese(searches[0])
    first = [one for one in searches[1:] if is_chinese and not glosses.is_chinese(one)]
    return [[searches[0], *first], *([one] for one in searches[1:] if one not in first)]


def next_searches(parts: Sequence[QuestionPart], made: Sequence[str]) -> list[str]:
    """Return the searches for the unanswered parts, without the searches in `made`; case and spaces are ignored."""
    known = {_folded(search) for search in made}
    wanted = {_folded(one.search): one.search for one in parts if not one.answered and one.search}
    return [search for folded, search in wanted.items() if folded and folded not in known]


def answers_first(ranking: Sequence[Fused], parts: Sequence[QuestionPart]) -> list[Fused]:
    """Return the ranking with the passages that answer a part of the question first.

    The parts take turns. Each part puts at most `JUDGED` / (number of parts) passages at the beginning.

    Args:
        parts: the judged parts; their `by` has the numbers of the passages in `ranking`, from 1.
    """
    share = JUDGED // max(len(parts), 1)
    first = take_turns([[ranking[number - 1] for number in one.by[:share]] for one in parts if one.answered])
    held = {one.id for one in first}
    behind = max((one.part for one in first), default=-1) + 1
    return [*first, *(one._replace(part=behind + one.part) for one in ranking if one.id not in held)]


@dataclass(slots=True)
class _Budget:
    """What the later rounds may still use: time, model calls and tokens."""

    deadline: float
    calls: int
    tokens: int

    def is_late(self) -> bool:
        return time.monotonic() >= self.deadline


@dataclass(frozen=True, slots=True)
class Loop:
    """Runs the rounds of one question: judges the hits, and searches again for the parts that lack an answer.

    Args:
        model: judges whether the parts are answered; if None, only rules judge.
        breaker: the model's circuit breaker.
        fuse: merges the results of a search into one ranking.
        load: loads the passages of hits that satisfy a filter.
        templates: the tenant's prompt templates.
    """

    settings: Settings
    search: Search
    model: Model | None
    breaker: Breaker
    fuse: Callable[[SearchResults, Sequence[StepResult]], list[Fused]]
    load: Callable[[Scope, Filter | None, Sequence[Fused]], Awaitable[list[Fused]]]
    templates: Library = field(default_factory=packaged)

    async def run(self, asked: Asked, found: SearchResults, ranking: list[Fused], calls: Calls) -> Looped:
        """Search on until every part is answered, no new hits come, or rounds, calls, tokens or time are used up.

        Args:
            ranking: ranking of the first round.
            calls: collects the model's calls.
        Raises:
            Unavailable: the database cannot return the passages to be judged.
        """
        things = self._things(asked, found)
        if not things:
            return Looped(found, ranking)
        run = _RoundsRunner(
            self, asked, found, ranking, calls.watch(self.model) if self.model is not None else None, things
        )
        return await run.to_the_end()

    def _things(self, asked: Asked, found: SearchResults) -> list[str]:
        """Return the texts whose words the hits must contain: parts of the question, or whole searches.

        [] if no further round could help, for example if no source may be asked.
        """
        intent = found.planned.intent
        if self.settings.max_rounds == 1 or intent.kind != "retrieve" or all(one.failed for one in found.answers):
            return []
        if not found.planned.plan.rungs:
            return []  # no source may be asked
        if intent.sources and not any(self.search.planner.is_of_documents(one.name) for one in intent.sources):
            return []  # a question for sources outside cannot be answered by rewording a search of the documents
        if self.model is None:
            # If the rules read several parts, each has been searched for already.
            whole = readable(intent.searches[0]) if len(searches_by_part(intent)) == 1 and intent.searches else ""
            return [] if _carries_over(asked, whole) else parts_perhaps(whole)
        # Transformers add rewordings of the first search, so the hits need not contain the words of these too.
        searches = intent.searches[:1] if self.settings.transforms else intent.searches
        things = [part for search in map(readable, searches) for part in parts_perhaps(search) or [search]]
        return list(dict.fromkeys(things))


@dataclass(slots=True)
class _RoundsRunner:
    """Runs the rounds of one question: judges the hits, searches for what is missing, and keeps what was found.

    Attributes:
        things: texts whose words the hits must contain, see `Loop._things`.
        made: queries made so far.
    """

    loop: Loop
    asked: Asked
    found: SearchResults
    ranking: list[Fused]
    model: Model | None
    things: list[str]
    made: list[str] = field(default_factory=list)
    relaxed: list[Relaxed] = field(default_factory=list)
    degraded: tuple[str, ...] = ()

    async def to_the_end(self) -> Looped:
        """Run all rounds, see `Loop.run`."""
        settings, asked = self.loop.settings, self.asked
        share_s = settings.loop_share * asked.timeout_s
        budget = _Budget(
            min(time.monotonic() + share_s, asked.at(SEARCH_BY)), settings.loop_calls, settings.loop_tokens
        )
        rounds: list[Round] = []
        searches = list(dict.fromkeys(self.found.planned.intent.searches))
        hits, before = sum(len(one.hits) for one in self.found.used), set[ChunkId]()
        while True:
            self.made += searches
            await self._load_first()
            first = {one.id for one in self.ranking[:JUDGED]}
            added, before = len(first - before), first
            parts, by, stopped = await self._judged(len(rounds) + 1, added, budget)
            wanted = next_searches(parts, self.made)
            if stopped is None:
                stopped = "no_progress" if not wanted else "budget" if budget.is_late() else None
            rounds.append(Round(len(rounds) + 1, tuple(searches), tuple(parts), by, hits, added, stopped))
            if stopped is not None:
                return Looped(self.found, self.ranking, tuple(rounds), tuple(self.relaxed), self.degraded)
            hits = await self._search(wanted, parts, by, budget)
            searches = wanted

    async def _judged(
        self, number: int, added: int, budget: _Budget
    ) -> tuple[list[QuestionPart], Literal["rules", "llm"], Stop | None]:
        """Judge the hits of a round: return the parts, who judged, and why no further round follows.

        The reason is None if a further round may follow.

        Args:
            number: number of the round, from 1.
            added: number of passages that the round brought into the first `JUDGED`.
        """
        # A hit has no text if it moved up after the load because a hit before it was deleted.
        top = [hit for hit in self.ranking[:JUDGED] if hit.chunk is not None]
        covered = await self._covered(top)
        if covered is None:
            self.degraded = (_DEGRADED,)
            return [], "rules", "failed"
        ids = {hit.id for hit in top}
        ruled = []
        for thing, share in zip(self.things, covered, strict=True):
            is_found = share >= COVERED or (share >= HALF_COVERED and stands_out(thing, self.found.used, ids))
            ruled.append(QuestionPart(thing, is_found, search="" if is_found else thing))
        # Words cannot show whether a hit satisfies a constraint that was dropped, so a model must judge.
        is_relaxed = self.found.rung is not None and bool(self.found.rung.dropped)
        if all(one.answered for one in ruled) and not (is_relaxed and self.model is not None):
            return ruled, "rules", "enough"
        if number == self.loop.settings.max_rounds:
            return ruled, "rules", "rounds"
        if not added and number > 1:
            return ruled, "rules", "no_progress"
        if self.model is None:
            return ruled, "rules", None
        intent = self.found.planned.intent
        question = model_judge.SufficiencyQuestion(
            intent.question, self.asked.request.collection, tuple(self.made), top, self._filter, self.loop.templates
        )
        tokens = model_judge.tokens_of(question.messages())
        if not budget.calls or tokens > budget.tokens or budget.is_late():
            return ruled, "rules", "budget"
        parts = await self._asked_model(self.model, question, budget)
        if parts is None:
            self.degraded = (_DEGRADED,)
            return ruled, "rules", "failed"
        return parts, "llm", "enough" if all(one.answered for one in parts) else None

    async def _covered(self, top: Sequence[Fused]) -> list[float] | None:
        """Return for each text in `things` the share, 0 to 1, of its words that one of the hits contains.

        None if the database does not return the document frequencies.
        """
        counting = coverage(self.things, top, self.asked.scope, self.loop.search.catalogue)
        try:
            return await within(counting, self.asked.at(SEARCH_BY) - time.monotonic())
        except (Unavailable, TimeoutError, OSError):
            return None

    async def _asked_model(
        self, model: Model, question: model_judge.SufficiencyQuestion, budget: _Budget
    ) -> list[QuestionPart] | None:
        """Return the parts as the model judges them; None if its circuit breaker is open or its reply is unusable."""
        breaker = self.loop.breaker
        if not breaker.admit():
            return None
        now = time.monotonic()
        works: bool | None = None
        budget.calls -= 1
        try:
            parts, usage = await model_judge.judge(question, model, now + _JUDGE_BY * (budget.deadline - now))
            works = True
        except ModelFailed as error:
            works = False if error.fault == "down" else None
            reason = "".join(c if c.isprintable() else " " for c in error.reason)
            _log.warning("the model's judgement was not used: %s", reason)
            return None
        finally:
            breaker.ended(works)
        budget.tokens -= usage.prompt_tokens + usage.completion_tokens
        return parts

    async def _search(
        self, wanted: Sequence[str], parts: Sequence[QuestionPart], by: Literal["rules", "llm"], budget: _Budget
    ) -> int:
        """Run further searches, give each its share of the ranking, and return the number of hits they gave.

        Args:
            wanted: the searches.
            parts: the judged parts; the passages that answer them come first.
            by: who judged; external sources are asked only if the model did.
        """
        further = FurtherSearches(self.loop.search.planner, self.asked, self.found, budget.deadline)
        ran = await further.run(wanted, outside=by == "llm")
        rankings = [answers_first(self.ranking, parts)]
        for answers, rung in ran:
            rankings.append(await self._fused(answers, rung))
        self.ranking = take_turns(rankings)
        if len(parts) == 1:
            # These are rewordings of one thing, so later stages may mix their hits.
            self.ranking = [hit._replace(part=0) for hit in self.ranking]
        more = [answer for answers, _ in ran for answer in answers]
        self.found = replace(self.found, answers=(*self.found.answers, *more))
        return sum(len(one.hits) for one in more)

    async def _fused(self, answers: Sequence[StepResult], rung: Rung | None) -> list[Fused]:
        """Return the ranking of one search. If the search dropped constraints, keep only the first `JUDGED` hits."""
        ranking = self.loop.fuse(self.found, answers)
        if rung is None or not rung.dropped or not ranking:
            return ranking
        reason = f'nothing was found with it for "{rung.steps[0].search}"'
        inside = self.loop.search.planner.is_of_documents(rung.steps[0].source)
        self.relaxed += [Relaxed(dropped=one.dropped, reason=reason if inside else one.reason) for one in rung.dropped]
        return await self.loop.load(self.asked.scope, rung.filter, ranking[:JUDGED])

    async def _load_first(self) -> None:
        """Load the passages of the first hits; hits deleted meanwhile are replaced by the next ones."""
        first = await self.loop.load(self.asked.scope, self._filter, self.ranking[:JUDGED])
        self.ranking = [*first, *self.ranking[JUDGED:]]

    @property
    def _filter(self) -> Filter | None:
        """The filter of the first round's hits. Later hits satisfy it too, except the conditions in `relaxed`."""
        return self.found.rung.filter if self.found.rung else self.asked.wanted


def _carries_over(asked: Asked, search: str) -> bool:
    """Return whether the search of a follow-up question contains words of earlier turns.

    These words are not in the question itself, so the hits need not contain them.
    """
    is_later = any(turn.role == "assistant" for turn in asked.request.messages or ())
    return is_later and search != readable(asked.request.question)


def _folded(search: str) -> str:
    return " ".join(search.casefold().split())
