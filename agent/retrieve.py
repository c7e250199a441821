"""Execution of a plan: all steps at once, each within its time, and what became of each."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from agent.types import Outcome, Step
from retrievers.core.errors import BadFilter, RetrievalError, Unavailable
from retrievers.core.types import Hit, Query, Retriever


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Hits per (search, source), and an outcome per step in the plan's order."""

    hits: Mapping[tuple[str, str], Sequence[Hit]]
    outcomes: tuple[Outcome, ...]
    errors: tuple[RetrievalError, ...] = ()


async def retrieve(
    steps: Sequence[Step], queries: Mapping[str, Query], sources: Mapping[str, Retriever], *, timeout_s: float
) -> Retrieved:
    """Run the steps in parallel.

    Args:
        queries: the query of each search text.
        timeout_s: for all steps together; a step's own time is never longer.
    Returns:
        What arrived in time; a late source is cancelled, one that cannot apply the filter is left out, and
        the outcome says so.
    Raises:
        BadRequest: a source refused the request itself.
    """
    tasks = [
        asyncio.ensure_future(_run(step, queries[step.search], sources[step.source], min(step.timeout_s, timeout_s)))
        for step in steps
    ]
    try:
        done = await asyncio.gather(*tasks)
    except BaseException:
        # One step failed for good: the others must not go on behind the caller's back.
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
    hits = {(step.search, step.source): found for step, (found, _, _) in zip(steps, done, strict=True)}
    return Retrieved(hits, tuple(outcome for _, outcome, _ in done), tuple(error for _, _, error in done if error))


async def _run(
    step: Step, query: Query, retriever: Retriever, timeout_s: float
) -> tuple[Sequence[Hit], Outcome, RetrievalError | None]:
    started = time.perf_counter()
    found: Sequence[Hit] = ()
    error: RetrievalError | None = None
    status = "ok"
    try:
        async with asyncio.timeout(timeout_s):
            found = await retriever.search(query)
        status = "ok" if found else "empty"
    except TimeoutError:
        status = "timeout"
        error = Unavailable(step.source, f"no answer after {timeout_s:g} s")
    except Unavailable as unavailable:
        status, error = "error", unavailable
    except BadFilter as refused:
        # The filter is checked before: a source that cannot apply it is left out, rather than the filter.
        status, error = "skipped", refused
    outcome = Outcome.model_construct(
        source=step.source,
        step=step.step,
        status=status,
        hits=len(found),
        elapsed_ms=round((time.perf_counter() - started) * 1000, 3),
        reason=str(error) if error else None,
    )
    return found, outcome, error
