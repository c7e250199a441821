"""Sections of a decision record: the searches and the rounds."""

from collections.abc import Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from agent.serve.cli.explain.interpretation import reader_label
from agent.serve.cli.explain.sections import Json, cell, count_text, new_table, shorten
from retrievers.core.filters import describe_filter

_APPROXIMATE = "approximate index: a rebuilt index may return other hits"
_STOPPED = {
    "enough": "every part is answered",
    "no_progress": "no new search was proposed, or it found no new passage",
    "budget": "no calls, tokens or time left",
    "rounds": "MAX_ROUNDS reached",
    "failed": "the passages could not be judged",
}
_COLOURS = {"ok": "green", "empty": "yellow", "timeout": "red", "error": "red", "skipped": "dim"}


def step_table(trace: Json) -> Table | None:
    """Return a table of the search steps that ran; None if none ran. A filter equal to the row before is "as above"."""
    several = len({step["search"] for step in trace["plan"]}) > 1
    table = new_table(
        "step",
        "source",
        *(["search"] if several else []),
        "filter",
        "result",
        "hits",
        "ms",
        "why",
        right=["step", "hits", "ms"],
    )
    last: Any = ()
    for step, outcome, answer in zip(trace["plan"], trace["outcomes"], trace["answers"], strict=True):
        if _is_skipped(outcome):
            continue
        why = outcome["reason"] or (_APPROXIMATE if answer.get("approximate") else "")
        same, last = step["filter"] == last, step["filter"]
        wanted = "as above" if same else describe_filter(last) if last else "none"
        cells = [cell(step["step"]), cell(step["source"])] + ([cell(shorten(step["search"]))] if several else [])
        cells += [cell(wanted, "dim" if same else ""), cell(outcome["status"], _COLOURS.get(outcome["status"], ""))]
        cells += [cell(outcome["hits"]), cell(f"{outcome['elapsed_ms']:.1f}"), cell(why)]
        table.add_row(*cells)
    return table if table.row_count else None


def _is_skipped(outcome: Json) -> bool:
    return outcome["status"] == "skipped" and (outcome["reason"] or "").startswith("not needed")


def skipped_steps_line(trace: Json) -> Text | None:
    """Return a line with the number of fallback steps that were not needed; None if there are none."""
    count = sum(map(_is_skipped, trace["outcomes"]))
    return cell(f"{count_text(count, 'fallback step')} more, not needed", "dim") if count else None


def rounds(rounds: Sequence[Json]) -> Table | None:
    """Return a table of the search rounds: per part of the question, what was found and what was missing.

    None if there were no rounds.
    """
    table = new_table("round", "asked for", "found in", "missing", "searched next", "judged by", right=["round"])
    for one in rounds:
        for place, part in enumerate(one["judged"]["parts"]):
            found = ", ".join(f"[{number}]" for number in part["by"]) or ("yes" if part["answered"] else "no")
            cells = [one["number"] if not place else "", shorten(part["part"]), found, part["missing"]]
            cells += ["" if one["stopped"] else shorten(part["search"]), reader_label(one) if not place else ""]
            table.add_row(*map(cell, cells))
        if one["stopped"]:
            table.add_row("", cell(f"stopped: {_STOPPED[one['stopped']]}", "dim"))
    return table if table.row_count else None


def tool_searches(lookups: Sequence[Json]) -> Table | None:
    """Return a table of the searches that the model made by tool calls; None if it made none."""
    table = new_table("round", "query", "found", "passages", "ms", right=["round", "ms"])
    for one in lookups:
        found = one["status"] if one["outcome"] == "searched" else f"{one['outcome']}: {one['reason']}"
        numbers = ", ".join(f"[{number}]" for number in one["citations"])
        cells = (
            one["round"],
            shorten(one["query"] or one["arguments"]),
            shorten(found),
            numbers,
            f"{one['elapsed_ms']:.0f}",
        )
        table.add_row(*map(cell, cells))
    return table if table.row_count else None
