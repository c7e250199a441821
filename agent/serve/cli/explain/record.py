"""`signalbox explain`: print the decision record of an answer (its trace) as readable tables."""

from typing import TYPE_CHECKING

from rich.console import Console

from agent.serve.cli import output
from agent.serve.cli.explain import outcome, ranking, searches, understanding
from agent.serve.cli.explain.sections import Json, Sections
from retrievers.core.filters import in_words

if TYPE_CHECKING:
    from agent.service.service import Service
    from retrievers.core.types import Viewer


async def explain(service: "Service", trace_id: str, *, viewer: "Viewer", as_json: bool) -> int:
    """Show how an answer was produced and return the exit code.

    Raises:
        BadRequest: there is no such trace.
    """
    trace = await service.explain(trace_id, tenant=viewer)
    output.write_json(trace) if as_json else show_trace(trace)
    return 0


def show_trace(trace: Json, console: Console | None = None) -> None:
    """Print the whole record by section; empty sections are omitted."""
    page = Sections(console)
    page.facts(understanding.head(trace))
    page.section("Interpretation", page.grid(understanding.understood(trace)))
    page.section("Filters", understanding.constraints(trace))
    page.section("Rejected", page.grid(understanding.rejected(trace["intent"]["rejected"])))
    page.section("Searches", searches.steps(trace), searches.spared_steps(trace))
    page.section(
        "Conditions dropped to find hits", page.grid((in_words(o["dropped"]), o["reason"]) for o in trace["relaxed"])
    )
    page.section("Degraded", page.grid([("", ", ".join(trace["degraded"]))] if trace["degraded"] else []))
    page.section("Rounds", searches.rounds(trace.get("rounds") or ()))
    page.section("Searches by the model", searches.lookups(trace.get("lookups") or ()))
    page.section(
        f"Ranking: {len(trace['hits'])} shown of {trace['ranked']}",
        ranking.ranking(trace),
        ranking.weights(trace),
        ranking.reranked(trace),
    )
    page.section("Calculated", *outcome.calculated(trace["table"]))
    page.section("Model calls", outcome.calls(trace["calls"]))
    page.section("Prompt", *outcome.prompt(trace))
    page.section("Answer", page.grid(outcome.answer(trace.get("answer"))))
    page.section("Time", page.grid([("", outcome.times(trace))]))
