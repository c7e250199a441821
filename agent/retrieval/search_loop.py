"""Search loop: after each round of searches, check whether every part is answered, else search further.

Rules check first: the parts count as answered if some passage covers the words of each. If not, a model judges. Without
a model, a part whose words were not found gets a search of its own.
"""

import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from agent.intent.language.text import readable
from agent.intent.topic.question_parts import guess_parts
from agent.llm.call_log import CallLog
from agent.llm.model import Model, ModelFailed
from agent.options import deadline_shares
from agent.retrieval.additional_search import AdditionalSearcher
from agent.retrieval.answer_coverage import has_outstanding_cosine, measure_coverage
from agent.retrieval.fusion import FusedHit, interleave_rankings
from agent.retrieval.plan_execution import StepResult
from agent.retrieval.planning import RequestContext
from agent.retrieval.router import FallbackLevel
from agent.retrieval.search_stage import SearchResults, SearchStage
from agent.retrieval.sufficiency_judge import JudgedPart, SufficiencyInput, estimate_prompt_tokens, judge_sufficiency
from agent.settings import Settings
from agent.types import Intent, Relaxed
from prompts import TemplateLibrary, packaged_templates
from retrievers.core.circuit_breakers import CircuitBreaker
from retrievers.core.errors import Unavailable
from retrievers.core.filters import Filter
from retrievers.core.log_filter import RepetitionFilter
from retrievers.core.timeouts import wait_within
from retrievers.core.types import ChunkId, Scope
from retrievers.text import chinese_dictionary

JUDGED_HITS = 10
"""Number of top hits that are judged, whatever page is asked for, so that every page is cut from one ranking."""
MIN_COVERAGE = 0.6
"""Minimum coverage at which a search, or a part of the question, counts as found.

With a model's searches, 94 % of the complete answers reach it and need no judgement (PEPs). Without a model, 76 %
instead of 66 % of double questions are answered on the first page (PEPs), and 100 % instead of 95 % (CMRC). A higher
threshold only adds useless searches.
"""
MIN_OUTSTANDING_COVERAGE = 0.45
"""The same if `has_outstanding_cosine` is true: the passage may answer in other words."""

_DEGRADED = "sufficiency_unavailable"
Stop = Literal["enough", "no_progress", "budget", "rounds", "failed"]
_log = logging.getLogger(__name__)
_log.addFilter(RepetitionFilter())
# Without a handler configured by the program, the lines would go straight to stderr.
_log.addHandler(logging.NullHandler())


@dataclass(frozen=True, slots=True)
class SearchRound:
    """The record of one round of searches.

    Attributes:
        searches: the queries of the round.
        parts: parts of the question, as judged after the round.
        by: whether rules or the model judged.
        hits: number of hits of the searches, over all sources.
        added: number of passages that the round brought into the first `JUDGED_HITS`.
        stopped: why it was the last round; None if another followed. `failed`: no judgement was possible.
    """

    number: int
    searches: tuple[str, ...]
    parts: tuple[JudgedPart, ...]
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
class LoopResult:
    """The result of all rounds.

    Attributes:
        results: the searches' results, with the steps of all rounds.
        ranking: the ranking after the last round.
        rounds: empty if there was nothing to judge.
        relaxed: constraints that a search of a later round dropped.
    """

    results: SearchResults
    ranking: list[FusedHit]
    rounds: tuple[SearchRound, ...] = ()
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
    is_chinese = chinese_dictionary.contains_chinese(searches[0])
    first = [one for one in searches[1:] if is_chinese and not chinese_dictionary.contains_chinese(one)]
    return [[searches[0], *first], *([one] for one in searches[1:] if one not in first)]


def next_searches(parts: Sequence[JudgedPart], past_searches: Sequence[str]) -> list[str]:
    """Return the searches for the unanswered parts, without the past searches; case and spaces are ignored."""
    known = {_folded(search) for search in past_searches}
    wanted = {_folded(one.search): one.search for one in parts if not one.answered and one.search}
    return [search for folded, search in wanted.items() if folded and folded not in known]


def put_answers_first(ranking: Sequence[FusedHit], parts: Sequence[JudgedPart]) -> list[FusedHit]:
    """Return the ranking with the passages that answer a part of the question first.

    The parts take turns. Each part puts at most `JUDGED_HITS` / (number of parts) passages at the beginning.

    Args:
        parts: the judged parts; their `by` has the numbers of the passages in `ranking`, from 1.
    """
    share = JUDGED_HITS // max(len(parts), 1)
    first = interleave_rankings([[ranking[number - 1] for number in one.by[:share]] for one in parts if one.answered])
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
class SearchLoop:
    """Runs the rounds of one question: judges the hits, and searches again for the parts that lack an answer.

    Args:
        model: judges whether the parts are answered; if None, only rules judge.
        breaker: the model's circuit breaker.
        fuse: merges the results of a search into one ranking.
        load: loads the passages of hits that satisfy a filter.
        templates: the tenant's prompt templates.
    """

    settings: Settings
    search: SearchStage
    model: Model | None
    breaker: CircuitBreaker
    fuse: Callable[[SearchResults, Sequence[StepResult]], list[FusedHit]]
    load: Callable[[Scope, Filter | None, Sequence[FusedHit]], Awaitable[list[FusedHit]]]
    templates: TemplateLibrary = field(default_factory=packaged_templates)

    async def run(
        self, context: RequestContext, results: SearchResults, ranking: list[FusedHit], calls: CallLog
    ) -> LoopResult:
        """Search on until every part is answered, no new hits come, or rounds, calls, tokens or time are used up.

        Args:
            ranking: ranking of the first round.
            calls: collects the model's calls.
        Raises:
            Unavailable: the database cannot return the passages to be judged.
        """
        texts = self._required_texts(context, results)
        if not texts:
            return LoopResult(results, ranking)
        run = _LoopRun(
            self, context, results, ranking, calls.logged_model(self.model) if self.model is not None else None, texts
        )
        return await run.run()

    def _required_texts(self, context: RequestContext, results: SearchResults) -> list[str]:
        """Return the texts whose words the hits must contain: parts of the question, or whole searches.

        [] if no further round could help, for example if no source may be asked.
        """
        intent = results.planned.intent
        if self.settings.max_rounds == 1 or intent.kind != "retrieve" or all(one.is_failed for one in results.answers):
            return []
        if not results.planned.plan.levels:
            return []  # no source may be asked
        if intent.sources and not any(self.search.planner.is_document_source(one.name) for one in intent.sources):
            return []  # a question for sources outside cannot be answered by rewording a search of the documents
        if self.model is None:
            # If the rules read several parts, each has been searched for already.
            whole = readable(intent.searches[0]) if len(searches_by_part(intent)) == 1 and intent.searches else ""
            return [] if _has_earlier_words(context, whole) else guess_parts(whole)
        # Transformers add rewordings of the first search, so the hits need not contain the words of these too.
        searches = intent.searches[:1] if self.settings.transforms else intent.searches
        required_texts = [part for search in map(readable, searches) for part in guess_parts(search) or [search]]
        return list(dict.fromkeys(required_texts))


@dataclass(slots=True)
class _LoopRun:
    """Runs the rounds of one question: judges the hits, searches for what is missing, and keeps what was found.

    Attributes:
        required_texts: texts whose words the hits must contain, see `SearchLoop._required_texts`.
        queries: queries made so far.
    """

    loop: SearchLoop
    context: RequestContext
    results: SearchResults
    ranking: list[FusedHit]
    model: Model | None
    required_texts: list[str]
    queries: list[str] = field(default_factory=list)
    relaxed: list[Relaxed] = field(default_factory=list)
    degraded: tuple[str, ...] = ()

    async def run(self) -> LoopResult:
        """Run all rounds, see `SearchLoop.run`."""
        settings, context = self.loop.settings, self.context
        share_s = settings.loop_share * context.timeout_s
        deadline = min(time.monotonic() + share_s, context.deadline_at(deadline_shares.SEARCH_BY))
        budget = _Budget(deadline, settings.loop_calls, settings.loop_tokens)
        rounds: list[SearchRound] = []
        searches = list(dict.fromkeys(self.results.planned.intent.searches))
        hits, before = sum(len(one.hits) for one in self.results.used_answers), set[ChunkId]()
        while True:
            self.queries += searches
            await self._load_first()
            first = {one.id for one in self.ranking[:JUDGED_HITS]}
            added, before = len(first - before), first
            parts, by, stopped = await self._judge(len(rounds) + 1, added, budget)
            wanted = next_searches(parts, self.queries)
            if stopped is None:
                stopped = "no_progress" if not wanted else "budget" if budget.is_late() else None
            rounds.append(SearchRound(len(rounds) + 1, tuple(searches), tuple(parts), by, hits, added, stopped))
            if stopped is not None:
                return LoopResult(self.results, self.ranking, tuple(rounds), tuple(self.relaxed), self.degraded)
            hits = await self._search(wanted, parts, by, budget)
            searches = wanted

    async def _judge(
        self, number: int, added: int, budget: _Budget
    ) -> tuple[list[JudgedPart], Literal["rules", "llm"], Stop | None]:
        """Judge the hits of a round: return the parts, who judged, and why no further round follows.

        The reason is None if a further round may follow.

        Args:
            number: number of the round, from 1.
            added: number of passages that the round brought into the first `JUDGED_HITS`.
        """
        # A hit has no text if it moved up after the load because a hit before it was deleted.
        top = [hit for hit in self.ranking[:JUDGED_HITS] if hit.chunk is not None]
        covered = await self._measure_coverage(top)
        if covered is None:
            self.degraded = (_DEGRADED,)
            return [], "rules", "failed"
        ids = {hit.id for hit in top}
        ruled = []
        for text, share in zip(self.required_texts, covered, strict=True):
            is_found = share >= MIN_COVERAGE or (
                share >= MIN_OUTSTANDING_COVERAGE and has_outstanding_cosine(text, self.results.used_answers, ids)
            )
            ruled.append(JudgedPart(text, is_found, search="" if is_found else text))
        # Words cannot show whether a hit satisfies a constraint that was dropped, so a model must judge.
        is_relaxed = self.results.level is not None and bool(self.results.level.dropped)
        if all(one.answered for one in ruled) and not (is_relaxed and self.model is not None):
            return ruled, "rules", "enough"
        if number == self.loop.settings.max_rounds:
            return ruled, "rules", "rounds"
        if not added and number > 1:
            return ruled, "rules", "no_progress"
        if self.model is None:
            return ruled, "rules", None
        intent = self.results.planned.intent
        collection, templates = self.context.request.collection, self.loop.templates
        question = SufficiencyInput(intent.question, collection, tuple(self.queries), top, self._filter, templates)
        tokens = estimate_prompt_tokens(question.messages())
        if not budget.calls or tokens > budget.tokens or budget.is_late():
            return ruled, "rules", "budget"
        parts = await self._judge_by_model(self.model, question, budget)
        if parts is None:
            self.degraded = (_DEGRADED,)
            return ruled, "rules", "failed"
        return parts, "llm", "enough" if all(one.answered for one in parts) else None

    async def _measure_coverage(self, top: Sequence[FusedHit]) -> list[float] | None:
        """Return for each text in `required_texts` the share, 0 to 1, of its words that one of the hits contains.

        None if the database does not return the document frequencies.
        """
        counting = measure_coverage(self.required_texts, top, self.context.scope, self.loop.search.catalogue)
        try:
            return await wait_within(counting, self.context.deadline_at(deadline_shares.SEARCH_BY) - time.monotonic())
        except (Unavailable, TimeoutError, OSError):
            return None

    async def _judge_by_model(
        self, model: Model, question: SufficiencyInput, budget: _Budget
    ) -> list[JudgedPart] | None:
        """Return the parts as the model judges them; None if its circuit breaker is open or its reply is unusable."""
        breaker = self.loop.breaker
        if not breaker.admit():
            return None
        now = time.monotonic()
        works: bool | None = None
        budget.calls -= 1
        try:
            judged_by = now + deadline_shares.JUDGEMENT * (budget.deadline - now)
            parts, usage = await judge_sufficiency(question, model, judged_by)
            works = True
        except ModelFailed as error:
            works = False if error.fault == "down" else None
            reason = "".join(c if c.isprintable() else " " for c in error.reason)
            _log.warning("the model's judgement was not used: %s", reason)
            return None
        finally:
            breaker.record_outcome(works)
        budget.tokens -= usage.prompt_tokens + usage.completion_tokens
        return parts

    async def _search(
        self, wanted: Sequence[str], parts: Sequence[JudgedPart], by: Literal["rules", "llm"], budget: _Budget
    ) -> int:
        """Run further searches, give each its share of the ranking, and return the number of hits they gave.

        Args:
            wanted: the searches.
            parts: the judged parts; the passages that answer them come first.
            by: who judged; external sources are asked only if the model did.
        """
        further = AdditionalSearcher(self.loop.search.planner, self.context, self.results, budget.deadline)
        ran = await further.run(wanted, outside=by == "llm")
        rankings = [put_answers_first(self.ranking, parts)]
        for answers, level in ran:
            rankings.append(await self._fuse(answers, level))
        self.ranking = interleave_rankings(rankings)
        if len(parts) == 1:
            # These are rewordings of one thing, so later stages may mix their hits.
            self.ranking = [hit._replace(part=0) for hit in self.ranking]
        more = [answer for answers, _ in ran for answer in answers]
        self.results = replace(self.results, answers=(*self.results.answers, *more))
        return sum(len(one.hits) for one in more)

    async def _fuse(self, answers: Sequence[StepResult], level: FallbackLevel | None) -> list[FusedHit]:
        """Return the ranking of one search; only its first `JUDGED_HITS` hits if the search dropped constraints."""
        ranking = self.loop.fuse(self.results, answers)
        if level is None or not level.dropped or not ranking:
            return ranking
        reason = f'nothing was found with it for "{level.steps[0].search}"'
        inside = self.loop.search.planner.is_document_source(level.steps[0].source)
        self.relaxed += [Relaxed(dropped=one.dropped, reason=reason if inside else one.reason) for one in level.dropped]
        return await self.loop.load(self.context.scope, level.filter, ranking[:JUDGED_HITS])

    async def _load_first(self) -> None:
        """Load the passages of the first hits; hits deleted meanwhile are replaced by the next ones."""
        first = await self.loop.load(self.context.scope, self._filter, self.ranking[:JUDGED_HITS])
        self.ranking = [*first, *self.ranking[JUDGED_HITS:]]

    @property
    def _filter(self) -> Filter | None:
        """The filter of the first round's hits. Later hits satisfy it too, except the conditions in `relaxed`."""
        return self.results.level.filter if self.results.level else self.context.wanted


def _has_earlier_words(context: RequestContext, search: str) -> bool:
    """Return whether the search of a follow-up question contains words of earlier turns.

    These words are not in the question itself, so the hits need not contain them.
    """
    is_later = any(turn.role == "assistant" for turn in context.request.messages or ())
    return is_later and search != readable(context.request.question)


def _folded(search: str) -> str:
    return " ".join(search.casefold().split())
