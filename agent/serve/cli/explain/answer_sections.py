"""Sections of a decision record: the calculated table, the model calls, the prompt, the answer and the times."""

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from agent.serve.cli.explain.sections import Json, cell, count_text, new_table, shorten

_MOST_ROWS = 10
_STAGES = ("scope", "intent", "search", "fusion", "loop", "rerank", "page", "assemble", "answer")


def calculated_table(table: Json | None) -> tuple[Table | Text, ...]:
    """Return the calculated table, at most 10 rows, and its SQL; empty if nothing was calculated."""
    if table is None:
        return ()
    drawn = new_table(*table["columns"])
    for row in table["rows"][:_MOST_ROWS]:
        drawn.add_row(*(cell("-" if value is None else shorten(value)) for value in row))
    return drawn, cell(f"{count_text(table['count'], 'row')}: {table['sql']}", "dim")


def calls(calls: Sequence[Json]) -> Table | None:
    """Return a table of the model calls; None if no model was called."""
    if not calls:
        return None
    table = new_table(
        "stage",
        "model",
        "tokens in",
        "out",
        "cost",
        "tries",
        "ms",
        "reply",
        right=["tokens in", "out", "cost", "tries", "ms"],
    )
    for call in calls:
        usage, failed = call["usage"], call["text"] is None
        cost = "-" if usage["cost"] is None else f"${usage['cost']:.5f}"
        reply = cell(call.get("error") or "", "red") if failed else cell(shorten(call["text"], 100))
        figures = (
            call["stage"],
            call["model"],
            usage["prompt_tokens"],
            usage["completion_tokens"],
            cost,
            call["attempts"],
            f"{call['elapsed_ms']:.0f}",
        )
        table.add_row(*map(cell, figures), reply)
    return table


def prompt(trace: Json) -> tuple[Table | Text, ...]:
    """Return the citations of the prompt and a line about it; empty if no prompt was made."""
    prompt = trace["prompt"]
    if prompt is None:
        return ()
    table = new_table("", "cites", "document", "characters", right=["characters"])
    for one in prompt["citations"]:
        place = f"{one['start']} to {one['end']}{'; ' * bool(one.get('place'))}{one.get('place', '')}"
        table.add_row(*map(cell, (f"[{one['n']}]", shorten(one["title"]), one["document_id"], place)))
    templates = ", ".join(f"{name} {digest}" for name, digest in trace["prompts"].items())
    about = f"about {prompt['tokens']:,} tokens, digest {prompt['digest'][:12]}, templates {templates}"
    return table, cell(about, "dim")


def answer(answer: Json | None) -> Iterable[tuple[str, str]]:
    """Yield the answer and the result of its check as (name, value) pairs; nothing if no answer was requested."""
    if answer is None:
        return
    if answer["text"] is not None:
        yield "text", answer["text"]
        yield "answered", f"{'yes' if answer['answered'] else 'no, not in the documents'}, by {answer['model']}"
    if answer["faithfulness"] is not None:
        by = "a model" if answer["checked_by"] == "llm" else "its wording"
        yield "supported", f"{answer['faithfulness']:.0%} of its claims, checked by {by}"
    for one in answer["sentences"]:
        if one["supported"] is False:
            cites = "".join(f"[{n}]" for n in one["citations"]) or "no passage"
            yield "doubtful", f"{shorten(answer['text'][one['start'] : one['end']], 200)} (cites {cites})"


def stage_times(trace: Json) -> str:
    """Return the total time and the time of each stage, in milliseconds."""
    stages = [f"{name} {trace['elapsed_ms'][name]:.1f}" for name in _STAGES if name in trace["elapsed_ms"]]
    return f"{trace['took_ms']:.1f} ms: {', '.join(stages)}"
