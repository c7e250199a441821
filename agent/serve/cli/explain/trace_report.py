"""`signalbox explain`: print the decision record of an answer (its trace) as readable tables."""

from typing import TYPE_CHECKING

from rich.console import Console

from agent.serve.cli import output
from agent.serve.cli.explain import answer_sections, interpretation, ranking, searches
from agent.serve.cli.explain.sections import Json, Sections
from retrievers.core.filters import describe_filter

if TYPE_CHECKING:
    from agent.service.service import Service
    from retrievers.core.types import Viewer


async def explain(service: "Service", trace_id: str, *, viewer: "Viewer", as_json: bool) -> int:
    """Show how an answer was produced and return the exit code.

    Raises:
        BadRequest: there is no such trace.
    """
    trace = await service.explain(trace_id, tenant=viewer)
    output.write_json(trace) if as_json else print_trace(trace)
    return 0


def print_trace(trace: Json, console: Console | None = None) -> None:
    """Print the whole record by section; empty sections are omitted."""
    page = Sections(console)
    page.facts(interpretation.request_rows(trace))
    page.section("Interpretation", page.grid(interpretation.interpretation_rows(trace)))
    page.section("Filters", interpretation.condition_table(trace))
    page.section("Rejected", page.grid(interpretation.rejected_rows(trace["intent"]["rejected"])))
    page.section("Searches", searches.step_table(trace), searches.skipped_steps_line(trace))
    page.section(
        "Conditions dropped to find hits",
        page.grid((describe_filter(o["dropped"]), o["reason"]) for o in trace["relaxed"]),
    )
    page.section("Degraded", page.grid([("", ", ".join(trace["degraded"]))] if trace["degraded"] else []))
    page.section("Rounds", searches.rounds(trace.get("rounds") or ()))
    page.section("Searches by the model", searches.tool_searches(trace.get("lookups") or ()))
    page.section(
        f"Ranking: {len(trace['hits'])} shown of {trace['ranked']}",
        ranking.ranking(trace),
        ranking.lexical_weight_line(trace),
        ranking.rerank_line(trace),
    )
    page.section("Calculated", *answer_sections.calculated_table(trace["table"]))
    page.section("Model calls", answer_sections.calls(trace["calls"]))
    page.section("Prompt", *answer_sections.prompt(trace))
    page.section("Answer", page.grid(answer_sections.answer(trace.get("answer"))))
    page.section("Time", page.grid([("", answer_sections.stage_times(trace))]))
