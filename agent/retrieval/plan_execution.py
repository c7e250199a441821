"""Execution of a plan: run the steps of each level in parallel, each with its timeout, and record each outcome.

A step sends one search to one source. A level holds the steps that run in parallel, see
`agent.retrieval.router`.
"""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.retrieval.router import FallbackLevel
from agent.types import Outcome, Step
from retrievers.core.circuit_breakers import CircuitBreakers
from retrievers.core.errors import BadRequest, RetrievalError, TooCostly, Unavailable
from retrievers.core.filters import Filter
from retrievers.core.protocol_checks import has_backends
from retrievers.core.ranking import sort_by_score
from retrievers.core.timeouts import wait_within
from retrievers.core.types import Hit, Query, Retriever, Scope
from retrievers.text.question_terms import question_term_weights

MakeQuery = Callable[[Step, Filter | None], Query]

_LONG = 1_000
"""Number of characters above which a search is analysed in a thread; 8,000 Chinese characters take 70 ms."""


@dataclass(frozen=True, slots=True)
class StepResult:
    """The result of one step.

    Attributes:
        query: the query that was sent; None if none was.
        hits: the source's hits, best first, without hits outside the scope.
        is_partial: whether some backends of the source failed while others answered.
    """

    step: Step
    query: Query | None
    hits: Sequence[Hit]
    outcome: Outcome
    error: RetrievalError | None = None
    is_partial: bool = False

    @property
    def has_hits(self) -> bool:
        """Whether the step has a hit that counts. A hit whose table has no rows does not count."""
        return any(hit.table is None or hit.table.rows for hit in self.hits)

    @property
    def is_failed(self) -> bool:
        """Whether the source gave no answer, because it failed or was not asked; an empty result is an answer."""
        return self.outcome.status not in ("ok", "empty")

    @property
    def is_unavailable(self) -> bool:
        """Whether the source could not answer: it failed, was late, or its breaker is open. Not if it refused."""
        return isinstance(self.error, Unavailable)


@dataclass(frozen=True, slots=True)
class GuardedSources:
    """The sources that steps run against, with their circuit breakers.

    Args:
        guarded: sources whose failures count for their breakers. A source is left out if it fails for this scope only,
            because its breaker would then also stop requests for other scopes.
        patience_s: a timeout counts as a failure only if the source had this many seconds, or its own shorter timeout.
            The number comes from the operator's settings, not the request: breakers are shared by all callers, and a
            caller with a short timeout must not open them.
    """

    retrievers: Mapping[str, Retriever]
    breakers: CircuitBreakers
    guarded: frozenset[str]
    patience_s: float


async def run_levels(
    levels: Iterable[FallbackLevel],
    make: MakeQuery,
    sources: GuardedSources,
    *,
    deadline: float,
    before: Sequence[StepResult] = (),
) -> tuple[list[StepResult], FallbackLevel | None]:
    """Run the levels in order until a level has a hit.

    Args:
        make: makes the query of a step.
        before: results of steps that already ran; if one of them has a hit, no level runs.
        deadline: shared by all levels, on the clock of `time.monotonic`.
    Returns:
        A result for every step, also for skipped ones; and the last level that ran, None if none did.
    """
    answers: list[StepResult] = []
    last: FallbackLevel | None = None
    for level in levels:
        known = [*before, *answers]
        if any(answer.has_hits for answer in known):
            answers += [_skipped(step, "not needed") for step in level.steps]
        else:
            broken = {answer.step.source for answer in known if answer.is_unavailable}
            fresh = [step for step in level.steps if step.source not in broken]
            ran = iter(await run_steps(fresh, level.filter, make, sources, deadline=deadline))
            answers += [
                _skipped(step, "it has failed before") if step.source in broken else next(ran) for step in level.steps
            ]
            last = level if fresh else last
    return answers, last


async def run_steps(
    steps: Sequence[Step], wanted: Filter | None, make: MakeQuery, sources: GuardedSources, *, deadline: float
) -> list[StepResult]:
    """Run steps in parallel.

    Args:
        wanted: the filter of all steps.
        make: makes the query of a step.
        deadline: shared by all steps, on the clock of `time.monotonic`; a step's own timeout may end sooner.
    Returns:
        One result per step, in order. A late source is cancelled without waiting for it; a source whose breaker is open
        is not asked.
    """
    queries = [await _query(step, wanted, make) for step in steps]
    tasks = [
        asyncio.ensure_future(_run(step, query, sources, deadline)) for step, query in zip(steps, queries, strict=True)
    ]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        # A bug, or the caller went away: the other searches must not go on in the background.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def resting_sources(retrievers: Mapping[str, Retriever], breakers: CircuitBreakers, scope: Scope) -> frozenset[str]:
    """Return the names of the sources that cannot be asked now: the circuit breakers of all their backends are open."""
    return frozenset(
        name
        for name, one in retrievers.items()
        if all(breakers.of(part).is_rejecting() for part in _parts(name, one, scope))
    )


def _parts(name: str, retriever: Retriever, scope: Scope) -> Mapping[str, Scope]:
    """Return {name of a circuit breaker: the collections searched through it}, one item per backend of the source.

    A source with a single backend has one breaker, with the name of the source.
    """
    return (retriever.backend_scopes(scope) if has_backends(retriever) else {}) or {name: scope}


async def _query(step: Step, wanted: Filter | None, make: MakeQuery) -> Query:
    """Return the query of a step. For a long search, analyse its words in a thread; the result is cached.

    Analysing them later on the event loop would block all other requests.
    """
    if len(step.search) <= _LONG:
        return make(step, wanted)
    query = await asyncio.to_thread(make, step, wanted)
    await asyncio.to_thread(question_term_weights, query.text, query.language, query.translation)
    return query


async def _run(step: Step, query: Query, sources: GuardedSources, deadline: float) -> StepResult:
    """Run a step. If the source has several backends, merge the hits of those that answer."""
    parts = _parts(step.source, sources.retrievers[step.source], query.scope)
    if len(parts) == 1:
        return await _ask(step, query, sources, deadline, *parts)
    asked = [_ask(step, replace(query, scope=scope), sources, deadline, part) for part, scope in parts.items()]
    answers = await asyncio.gather(*asked)
    failed = [one for one in answers if one.is_unavailable]
    if len(failed) == len(answers):
        return replace(answers[0], query=query)
    hits = sort_by_score([hit for one in answers for hit in one.hits])[: query.limit]
    first = next(one.outcome for one in answers if not one.is_unavailable)
    outcome = first.model_copy(
        update={
            "status": "ok" if hits else first.status,
            "hits": len(hits),
            "elapsed_ms": max(one.outcome.elapsed_ms for one in answers),
            "reason": "; ".join(one.outcome.reason for one in answers if one.outcome.reason) or None,
        }
    )
    return StepResult(step, query, hits, outcome, is_partial=bool(failed))


async def _ask(step: Step, query: Query, sources: GuardedSources, deadline: float, part: str) -> StepResult:
    """Search the source, or one of its backends, through the circuit breaker named `part`."""
    started = time.monotonic()
    timeout_s = min(step.timeout_s, deadline - started)
    if timeout_s <= 0:
        return _skipped(step, "no time was left for this search", Unavailable(step.source, "no time was left"))
    breaker = sources.breakers.of(part)
    if not breaker.admit():
        rests = f"{part} failed too often lately; it is tried again soon"
        return _skipped(step, rests, Unavailable(step.source, rests))
    found: Sequence[Hit] = ()
    error: RetrievalError | None = None
    status = "ok"
    works: bool | None = None
    try:
        found = await wait_within(sources.retrievers[step.source].search(query), timeout_s)
        works = True
    except Unavailable as unavailable:
        status, error = "error", unavailable
        works = None if isinstance(unavailable, TooCostly) else False
    except TimeoutError:
        status, error = "timeout", Unavailable(part, f"no answer after {timeout_s:.3g} s")
        # A calculation may simply be slow.
        calculates = query.aggregate is not None or query.statement is not None
        patience_s = min(sources.patience_s, sources.retrievers[step.source].card.timeout_s or math.inf)
        works = None if calculates or timeout_s < patience_s else False
    except OSError as lost:
        # A connection broke where the source did not expect it. The error's text may contain addresses.
        status, error, works = (
            "error",
            Unavailable(step.source, f"the connection failed ({type(lost).__name__})"),
            False,
        )
    except BadRequest as refused:
        # The source works but cannot apply this filter: skip the source rather than the filter.
        status, error, works = "skipped", refused, True
    finally:
        # For a source that is not guarded, only successes are reported to the breaker.
        breaker.record_outcome(works if works or step.source in sources.guarded else None)
    collections = {(one.tenant, one.name) for one in query.scope.collections}
    # A hit that comes with its text must belong to the tenant or the platform; any other hit must be in one of the
    # collections.
    allows = query.scope.allows
    kept = [
        hit
        for hit in found
        if (hit.id[:2] in collections if hit.chunk is None else allows(hit.id) and allows(hit.chunk.id))
    ]
    reason = str(error) if error else None
    if len(kept) < len(found):
        reason = f"{len(found) - len(kept)} hits outside the scope were dropped"
    if error is None and not kept:
        status = "empty"
    return StepResult(step, query, kept, _outcome(step, status, len(kept), started, reason), error)


def _skipped(step: Step, reason: str, error: RetrievalError | None = None) -> StepResult:
    return StepResult(step, None, (), _outcome(step, "skipped", 0, None, reason), error)


def _outcome(step: Step, status: str, hits: int, started: float | None, reason: str | None) -> Outcome:
    return Outcome.model_construct(
        source=step.source,
        step=step.step,
        status=status,
        hits=hits,
        elapsed_ms=0.0 if started is None else round((time.monotonic() - started) * 1000, 3),
        reason=reason,
    )
