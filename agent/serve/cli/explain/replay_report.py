"""`signalbox replay`: repeat a request and print the differences."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from agent.serve.cli import output
from agent.serve.cli.explain.sections import Json, Sections, cell, list_text, new_table, score_text, shorten
from retrievers.core.errors import BadRequest
from retrievers.core.filters import describe_filter

if TYPE_CHECKING:
    from agent.service.service import Service
    from retrievers.core.types import Viewer


async def replay(service: "Service", trace_id: str, changes: Sequence[str], *, viewer: "Viewer", as_json: bool) -> int:
    """Repeat a request with other settings, show the differences and return the exit code.

    Raises:
        BadRequest: there is no such trace, or a setting cannot be changed.
    """
    given = _parse_changes(changes)
    result, difference = await service.replay_compared(trace_id, tenant=viewer, changes=given)
    if as_json:
        shown = {**result.model_dump(mode="json"), "replay_of": trace_id, "changes": given, "difference": difference}
        output.write_json(shown)
        return 0
    print_difference(difference, title=_title(trace_id, result.query, given))
    found = f"{len(result.hits)} hits" if len(result.hits) != 1 else "1 hit"
    output.print_note(f"{found} in {result.took_ms:.1f} ms, no model was called")
    output.print_trace_hint(
        service.traces, result.trace_id, viewer.tenant if viewer.tenant != service.settings.tenant else None
    )
    return 0


def _parse_changes(given: Sequence[str]) -> dict[str, str]:
    changes = {}
    for change in given:
        key, equals, value = change.partition("=")
        if not equals or not key.strip():
            raise BadRequest(f'--set takes KEY=VALUE, for instance FUSION=rrf, not "{change[:80]}"', where="--set")
        changes[key.strip()] = value
    return changes


def _title(trace_id: str, question: str, changes: Mapping[str, str]) -> str:
    with_them = f" with {', '.join(f'{name.upper()}={value}' for name, value in changes.items())}" if changes else ""
    return f"{trace_id}{with_them}: {question}"


def print_difference(found: Json, console: Console | None = None, *, title: str = "") -> None:
    """Print the differences of a second run, as `Service.replay_compared` returns them."""
    page = Sections(console)
    page.facts([("replay of", title)] if title else [])
    page.section("Settings", page.grid(_change_rows(found["settings"])))
    page.section("Interpretation changed", page.grid(_change_rows(found["intent"])))
    page.section("Result changed", page.grid(_change_rows(found["outcome"])))
    written = ", ".join(found["data"])
    page.section("Collections changed in between", page.grid([("", written)] if written else []))
    asked = {name: one for name, one in found["sources"].items() if one["before"] != one["after"]}
    page.section("Hits of the sources", page.grid(_change_rows(asked)))
    page.section("Same hits in the same order" if found["same"] else "Hits", _hit_table(found["hits"]))


def _change_rows(changed: Mapping[str, Json]) -> Iterable[tuple[str, str]]:
    for name, one in changed.items():
        yield name, f"{_value_text(name, one['before'])}  ->  {_value_text(name, one['after'])}"


def _value_text(name: str, value: Any) -> str:
    if value in (None, [], {}, ""):
        return "none"
    if name.endswith("filter"):
        return describe_filter(value)
    if name == "relaxed":
        return ", ".join(describe_filter(one["dropped"]) for one in value)
    if name == "sources":
        return ", ".join(one["name"] for one in value)
    if name == "rejected":
        return ", ".join(one["what"] for one in value)
    if name == "table":
        return f"{value['count']} rows {shorten(value['rows'], 200)}"
    if isinstance(value, Mapping):
        return ", ".join(f"{shorten(key, 40)} {list_text(one)}" for key, one in value.items())
    return list_text(value)


def _hit_table(hits: Sequence[Json]) -> Table | None:
    """Return the hits of both runs in one table, with each hit's rank now and before; None if there are no hits."""
    if not hits:
        return None
    table = new_table(
        "now",
        "before",
        "",
        "score now",
        "score before",
        "passage",
        right=["now", "before", "score now", "score before"],
    )
    for hit in hits:
        now, before = hit["after"], hit["before"]
        if before is None:
            mark, style = "in", "green"
        elif now is None:
            mark, style = "out", "red"
        else:
            mark, style = (
                ("=", "dim") if now == before else (f"{before - now:+d}", "green" if now < before else "yellow")
            )
        cells = (_rank_text(now, hit["after_fused"]), _rank_text(before, hit["before_fused"]), mark)
        scores = (score_text(hit["after_score"], None), score_text(hit["before_score"], None))
        table.add_row(*map(cell, (*cells, *scores)), cell(f"{shorten(hit['title'])}  [{hit['id']}]"), style=style)
    return table


def _rank_text(rank: int | None, fused: int | None) -> str:
    """Return the text for a hit's rank: "3" on the result page, else "(17)" in the fused ranking, else "-"."""
    return str(rank) if rank else f"({fused})" if fused else "-"
