"""Execution of a plan: the steps of a rung at once, each within its time, and what became of each."""

import asyncio
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from agent.llm.breaker import Breakers
from agent.retrieval.router import Rung
from agent.types import Outcome, Step
from retrievers.core.errors import BadRequest, RetrievalError, TooCostly, Unavailable
from retrievers.core.filters import Filter
from retrievers.core.ranking import best_first
from retrievers.core.tasks import within
from retrievers.core.types import Divided, Hit, Query, Retriever, Scope

MakeQuery = Callable[[Step, Filter | None], Query]


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of a step.

    Attributes:
        query: what was asked; None when it was not.
        hits: as the source gave them, best first, without those outside the scope.
        is_partial: whether a part of the source failed, while others answered.
    """

    step: Step
    query: Query | None
    hits: Sequence[Hit]
    outcome: Outcome
    error: RetrievalError | None = None
    is_partial: bool = False

    @property
    def gave(self) -> bool:
        """Whether it found something. A table without rows is an answer, but nothing was found with it."""
        return any(hit.table is None or hit.table.rows for hit in self.hits)

    @property
    def failed(self) -> bool:
        """Whether the source said nothing, not even that there is nothing."""
        return self.outcome.status not in ("ok", "empty")

    @property
    def unavailable(self) -> bool:
        """Whether the source could not answer, as opposed to: it was not asked, or it refused this query."""
        return isinstance(self.error, Unavailable)


@dataclass(frozen=True, slots=True)
class GuardedSources:
    """What steps are run against.

    Args:
        guarded: sources whose failures count for their breakers. One that cannot serve this scope alone, and
            says so by failing, is not among them: others would be refused for it.
        patience_s: how long a source must have been silent to count as failed, less where its own time is shorter. It
            is the operator's: breakers are everybody's, and a caller in a hurry must not open them.
    """

    retrievers: Mapping[str, Retriever]
    breakers: Breakers
    guarded: frozenset[str]
    patience_s: float


async def climb(
    rungs: Iterable[Rung],
    make: MakeQuery,
    sources: GuardedSources,
    *,
    deadline: float,
    before: Sequence[StepResult] = (),
) -> tuple[list[StepResult], Rung | None]:
    """Run the rungs one after the other until there is a hit.

    Args:
        before: what became of steps that ran already; with a hit among them no rung is needed.
        deadline: of all of them, on the clock of `time.monotonic`.
    Returns:
        An answer for every step, and the last rung that was run; None when none was.
    """
    answers: list[StepResult] = []
    last: Rung | None = None
    for rung in rungs:
        known = [*before, *answers]
        if any(answer.gave for answer in known):
            answers += [_skipped(step, "not needed") for step in rung.steps]
        elif rung.when == "failed" and not all(answer.failed for answer in known):
            answers += [_skipped(step, "not needed: a source has answered") for step in rung.steps]
        else:
            broken = {answer.step.source for answer in known if answer.unavailable}
            fresh = [step for step in rung.steps if step.source not in broken]
            ran = iter(await retrieve(fresh, rung.filter, make, sources, deadline=deadline))
            answers += [
                _skipped(step, "it has failed before") if step.source in broken else next(ran) for step in rung.steps
            ]
            last = rung if fresh else last
    return answers, last


async def retrieve(
    steps: Sequence[Step], wanted: Filter | None, make: MakeQuery, sources: GuardedSources, *, deadline: float
) -> list[StepResult]:
    """Run steps in parallel.

    Args:
        wanted: the filter of all of them.
        make: the query of a step.
        deadline: of all of them, on the clock of `time.monotonic`; a step's own time may end before.
    Returns:
        An answer per step, in their order. A late source is cancelled and not waited for; one whose breaker
        is open is not asked.
    """
    tasks = [asyncio.ensure_future(_run(step, make(step, wanted), sources, deadline)) for step in steps]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        # A programming mistake, or the caller left: the others must not go on behind the caller's back.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def resting(retrievers: Mapping[str, Retriever], breakers: Breakers, scope: Scope) -> frozenset[str]:
    """The sources that would turn a search of the scope away now, with all of their parts."""
    return frozenset(
        name for name, one in retrievers.items() if all(breakers.of(part).rests() for part in _parts(name, one, scope))
    )


def _parts(name: str, retriever: Retriever, scope: Scope) -> Mapping[str, Scope]:
    """What of the scope is searched behind which breaker."""
    return (retriever.parts(scope) if isinstance(retriever, Divided) else {}) or {name: scope}


async def _run(step: Step, query: Query, sources: GuardedSources, deadline: float) -> StepResult:
    """The step's answer; of a source in parts, from those that answer."""
    parts = _parts(step.source, sources.retrievers[step.source], query.scope)
    if len(parts) == 1:
        return await _ask(step, query, sources, deadline, *parts)
    asked = [_ask(step, replace(query, scope=scope), sources, deadline, part) for part, scope in parts.items()]
    answers = await asyncio.gather(*asked)
    failed = [one for one in answers if one.unavailable]
    if len(failed) == len(answers):
        return replace(answers[0], query=query)
    hits = best_first([hit for one in answers for hit in one.hits])[: query.limit]
    first = next(one.outcome for one in answers if not one.unavailable)
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
    """The answer of the source, or of a part of it, behind the breaker of that name."""
    started = time.monotonic()
    timeout_s = min(step.timeout_s, deadline - started)
    if timeout_s <= 0:
        return _skipped(step, "no time was left for it", Unavailable(step.source, "no time was left"))
    breaker = sources.breakers.of(part)
    if not breaker.admit():
        rests = f"{part} failed too often lately; it is tried again soon"
        return _skipped(step, rests, Unavailable(step.source, rests))
    found: Sequence[Hit] = ()
    error: RetrievalError | None = None
    status = "ok"
    works: bool | None = None
    try:
        found = await within(sources.retrievers[step.source].search(query), timeout_s)
        works = True
    except Unavailable as unavailable:
        status, error = "error", unavailable
        works = None if isinstance(unavailable, TooCostly) else False
    except TimeoutError:
        status, error = "timeout", Unavailable(part, f"no answer after {timeout_s:.3g} s")
        # A calculation may be slow by itself.
        calculates = query.aggregate is not None or query.statement is not None
        patience_s = min(sources.patience_s, sources.retrievers[step.source].card.timeout_s or math.inf)
        works = None if calculates or timeout_s < patience_s else False
    except OSError as lost:
        # A connection that broke where the source did not expect it; its text may name addresses.
        status, error, works = (
            "error",
            Unavailable(step.source, f"the connection failed ({type(lost).__name__})"),
            False,
        )
    except BadRequest as refused:
        # The source works, but not for this query: it is left out, rather than the filter.
        status, error, works = "skipped", refused, True
    finally:
        # Of a source that is not guarded only what works is news.
        breaker.ended(works if works or step.source in sources.guarded else None)
    collections = {(one.tenant, one.name) for one in query.scope.collections}
    # A hit that brings its text is the tenant's or the platform's; any other lies in one of the collections.
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
