"""Print results, notes and tables on the command line."""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.serve.cli.doctor.check_result import CheckResult
from agent.types import Intent, Prompt, Rejected, Result, SourceChoice, SourceSummary, Table
from retrievers.core.filters import describe_filter
from retrievers.core.types import Collection
from retrievers.text.prompt_sanitising import remove_invisible

if TYPE_CHECKING:
    from agent.records.trace_store import TraceStore

_SNIPPET_CHARACTERS = 240
_MOST_ROWS = 20
WEAK_NOTE = "only weak matches: the documents say little about this"
_SOURCE_SETTINGS = {"web": "WEB_PROVIDER", "cloud": "CLOUD"}
# A document's text must not control the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_UNSHOWN_SKIP_REASONS = ("not needed", "it has failed before")
"""Beginnings of the reasons why a fallback step was skipped. They are not printed: earlier steps show the cause."""


def terminal_text(text: str) -> str:
    """Return the text without control characters, invisible characters and changes of the writing direction."""
    return remove_invisible(_CONTROL.sub(" ", text))


def print_note(message: str) -> None:
    """Print a line for the user to standard error."""
    print(terminal_text(f"signalbox: {message}").encode(errors="replace").decode(), file=sys.stderr)


def print_trace_hint(traces: "TraceStore", trace_id: str, tenant: str | None) -> None:
    """Print the command that shows an answer's decision record; nothing if no record is kept."""
    if traces.days and trace_id:
        whose = f" --tenant {shlex.quote(tenant)}" if tenant is not None else ""
        print_note(f"explain with: signalbox explain {trace_id}{whose}")


def write_json(value: Any) -> None:
    """Print one JSON document to stdout, in ASCII unless stdout's encoding is Unicode."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(value, ensure_ascii=not unicode, default=str))


def print_result(result: Result, *, explain: bool, caller_filter: Mapping[str, Any] | None = None) -> None:
    """Print the hits, any calculated table and, with `explain`, how the hits were found.

    Args:
        caller_filter: the caller's own filter. If the intent's filter equals it, it is not reported as read from the
            question.
    """
    if explain:
        _show_decisions(result)
    else:
        print_interpretation(result.intent, caller_filter)
    if result.table is not None:
        _show_table(result.table)
    for hit in result.hits:
        title = terminal_text(hit.title or hit.document_id)
        place = f", {terminal_text(hit.place)}" if hit.place else ""
        print(f"{hit.rank:>3}. {title}{place}  [{terminal_text(hit.id)}]")
        judged = {} if hit.relevance is None else {"relevance": hit.relevance}
        scores = ", ".join(f"{name} {score:.3f}" for name, score in {**judged, **hit.scores}.items())
        facts = ", ".join(
            f"{key}: {_short(value)}" for key, value in hit.metadata.items() if value not in (None, "", [])
        )
        print(f"     {scores}")
        if facts:
            print(f"     {terminal_text(facts)[:200]}")
        print(f"     {_snippet(hit.text)}\n")
    print_shortfalls(result)
    if result.refusal is not None:
        print(terminal_text(result.refusal))
    elif result.status == "no_retrieval_needed":
        print("the question needs no search")
    elif no_source_answered(result):
        print("no source answered; the reasons are above; TIMEOUT_S and SOURCE_TIMEOUT_S give sources more time")
    elif not result.hits:
        print("nothing found")
    found = f"{len(result.hits)} hits" if len(result.hits) != 1 else "1 hit"
    if result.total is not None:
        found += f", {'all' if result.complete else 'some'} of {result.total:,} documents that satisfy the filter"
    degraded = f", degraded: {', '.join(result.degraded)}" if result.degraded else ""
    print_note(f"{found} in {result.took_ms:.1f} ms{degraded}")


def no_source_answered(result: Result) -> bool:
    """Return whether every source that was asked failed, so that "nothing found" would be wrong."""
    return bool(result.outcomes) and not any(one.status in ("ok", "empty") for one in result.outcomes)


def print_interpretation(intent: Intent, caller_filter: Mapping[str, Any] | None) -> None:
    """Print how the question was interpreted, so that the user can see and correct a misreading.

    Args:
        caller_filter: the caller's own filter. If the intent's filter equals it, it is not reported as read from the
            question.
    """
    if intent.by != "caller" and (intent.filter not in (None, caller_filter) or intent.aggregate):
        asked = {key: value for key, value in (intent.aggregate or {}).items() if value not in (None, [], False)}
        calculated = f"; calculate {', '.join(f'{key} {value}' for key, value in asked.items())}" if asked else ""
        print_note(f"read as: {_filter_text(intent.filter)}{calculated} (--intent off searches without it)")
    if intent.soft_filter:
        print_note(f"probably meant, so ranked higher: {_filter_text(intent.soft_filter)}")
    for one in intent.rejected:
        print_note(f"ignored: {_ignored(one)}")


def print_shortfalls(result: Result) -> None:
    """Print the sources that failed and the constraints that were dropped."""
    reasons = (one.reason for one in result.outcomes if one.reason and not one.reason.startswith(_UNSHOWN_SKIP_REASONS))
    for reason in dict.fromkeys(reasons):
        print_note(reason)
    asked = {outcome.source for outcome in result.outcomes}
    for source, setting in _SOURCE_SETTINGS.items():
        if f"{source}_unavailable" in result.degraded and source not in asked:
            print_note(f"the {source} was not searched, because it is not configured: set {setting}")
    if "rerank_unavailable" in result.degraded:
        print_note(
            "not reranked; hits keep the fused order; `signalbox explain` and `signalbox doctor` show the reason"
        )
    if result.status == "weak":
        print_note(WEAK_NOTE)
    for relaxed in result.relaxed:
        print_note(f"left out: {describe_filter(relaxed.dropped)} ({relaxed.reason})")


def intent_lines(intent: Intent) -> list[tuple[str, str]]:
    """Return the interpretation of a question as (name, value) lines."""
    lines = [
        ("question", intent.question),
        ("language", intent.language),
        ("read by", f"{intent.by}, confidence {intent.confidence:.2f}"),
        ("kind", intent.kind),
        ("collection", ", ".join(map(_chosen, intent.scope)) or ", ".join(intent.collections)),
        ("filter", _filter_text(intent.filter)),
    ]
    if intent.soft_filter:
        lines.append(("likely", _filter_text(intent.soft_filter)))
    if intent.aggregate:
        asked = {key: value for key, value in intent.aggregate.items() if value not in (None, [], False)}
        lines.append(("calculate", ", ".join(f"{key} {value}" for key, value in asked.items())))
    if intent.wants != "passages":
        lines.append(("wants", "all documents" if intent.wants == "all" else "documents"))
    lines += [("search", search) for search in intent.searches]
    lines += [("source", f"{one.name} ({one.reason})") for one in intent.sources]
    lines += [("ignored", _ignored(one)) for one in intent.rejected]
    return lines


def _chosen(one: SourceChoice) -> str:
    return f"{one.name} ({one.reason}, confidence {one.confidence:.2f})"


def _ignored(one: Rejected) -> str:
    """Return a line with the words of the question that were ignored, the reason, and at most 8 valid values."""
    return f"{one.what}: {one.reason}" + (f"; there are: {', '.join(one.valid[:8])}" if one.valid else "")


def _show_decisions(result: Result) -> None:
    """Print the interpretation, the search steps and their results."""
    lines = intent_lines(result.intent)
    spared = 0
    for step, outcome in zip(result.plan, result.outcomes, strict=True):
        if outcome.status == "skipped" and (outcome.reason or "").startswith("not needed"):
            spared += 1
            continue
        hits = "1 hit" if outcome.hits == 1 else f"{outcome.hits} hits"
        became = f"{outcome.status}, {hits} in {outcome.elapsed_ms:.1f} ms"
        reason = f"  {outcome.reason}" if outcome.reason else ""
        lines.append((f"step {step.step}", f'{step.source} "{_short(step.search)}": {became}{reason}'))
    if spared:
        lines.append(("fallbacks", f"{spared} more steps were not needed"))
    lines += [("left out", f"{describe_filter(one.dropped)}: {one.reason}") for one in result.relaxed]
    if result.degraded:
        lines.append(("degraded", ", ".join(result.degraded)))
    lines.append(("status", result.status))
    for name, text in lines:
        print(f"{name:<10} {' '.join(terminal_text(text).split())}")
    print()


def _filter_text(wanted: Mapping[str, Any] | None) -> str:
    """Return a filter as text, with each of its conditions in square brackets; "none" without a filter."""
    if not wanted:
        return "none"
    parts = wanted["filters"] if wanted.get("type") == "and" else [wanted]
    return " ".join(f"[{describe_filter(part)}]" for part in parts)


def _show_table(table: Table) -> None:
    """Print the calculated table, with at most 20 rows."""
    if not table.rows:
        print("(no rows)\n")
        return
    rows = [[_short("-" if value is None else value) for value in row] for row in table.rows[:_MOST_ROWS]]
    widths = [max(len(cell) for cell in column) for column in zip(table.columns, *rows, strict=True)]
    for row in (table.columns, ["-" * width for width in widths], *rows):
        print(terminal_text("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()))
    if len(table.rows) > len(rows):
        print(f"... and {len(table.rows) - len(rows):,} more rows")
    print()


def _snippet(text: str) -> str:
    flat = " ".join(terminal_text(text).split())
    return flat if len(flat) <= _SNIPPET_CHARACTERS else flat[: _SNIPPET_CHARACTERS - 1] + "…"


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def print_prompt(prompt: Prompt, *, caller_filter: Mapping[str, Any] | None = None) -> None:
    """Print how the question was read, the prompt (or the refusal), and the citations.

    Args:
        caller_filter: the caller's own filter. If the intent's filter equals it, it is not reported as read from the
            question.
    """
    print_interpretation(prompt.intent, caller_filter)
    print(terminal_text(prompt.refusal or prompt.prompt))
    print()
    for citation in prompt.citations:
        place = f"{terminal_text(citation.place)}, " if citation.place else ""
        where = f"{terminal_text(citation.document_id)}, {place}characters {citation.start} to {citation.end}"
        address = "  " + terminal_text(citation.url) if citation.url else ""
        print(f"[{citation.n}] {terminal_text(citation.title or citation.document_id)} ({where}){address}")
    cited = f"{len(prompt.citations)} citations" if len(prompt.citations) != 1 else "1 citation"
    print_shortfalls(prompt)
    degraded = f", degraded: {', '.join(prompt.degraded)}" if prompt.degraded else ""
    print_note(f"about {prompt.tokens:,} tokens, {cited}, {prompt.took_ms:.1f} ms{degraded}")


def print_collections(found: Sequence[Collection], *, as_json: bool) -> None:
    """Print one line per collection."""
    if as_json:
        write_json([_collection(one) for one in found])
        return
    for one in found:
        languages = ", ".join(f"{language} {count:,}" for language, count in sorted(one.languages.items()))
        counts = f"{one.documents:>9,} documents {one.chunks:>9,} passages"
        print(f"{terminal_text(one.name):<24} {counts}  {terminal_text(one.embedder or '-')}  {languages}")
    if not found:
        print("no collection yet: add documents with `signalbox ingest PATH --collection NAME`")


def print_sources(found: Sequence[SourceSummary], *, as_json: bool) -> None:
    """Print one line per source, with its description and limits."""
    if as_json:
        write_json([one.model_dump(mode="json") for one in found])
        return
    for one in found:
        limits = [f"{one.timeout_s:g} s", *([f"at most {one.top_k} hits"] if one.top_k else [])]
        limits += [f"relevance from {one.min_relevance:g}"] if one.min_relevance is not None else []
        limits += [f"${one.cost:g} a search"] if one.cost else []
        limits += ["paused after failures"] if one.resting else []
        within = f" ({', '.join(one.collections)})" if one.collections else ""
        print(f"{one.name:<16} {one.kind:<10} {terminal_text(one.description + within)}  [{', '.join(limits)}]")


def _collection(one: Collection) -> dict[str, Any]:
    return {
        "name": one.name,
        "documents": one.documents,
        "chunks": one.chunks,
        "embedder": one.embedder,
        "dimension": one.dimension,
        "languages": dict(one.languages),
    }


def print_fields(described: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a collection's field catalogue."""
    if as_json:
        write_json(described)
        return
    print(f"{described['name']}: {described['documents']:,} documents, {described['chunks']:,} passages, "
          f"embedder {described['embedder']}")  # fmt: skip
    if job := described.get("job"):
        into = f" with {terminal_text(job['embedder'])}" if job["embedder"] else ""
        print(f"{job['kind']}{into} under way: signalbox jobs show {job['job_id']}")
    if described["description"]:
        print(f"{'draft of a description: ' if described['draft'] else ''}{terminal_text(described['description'])}")
    for said, words in (("is called", described["records"]), ("is probably called", described["derived_records"])):
        if words:
            print(f"a document {said}: {terminal_text(', '.join(words))}")
    for field in described["fields"]:
        kind = f"list of {field['item']}" if field["type"] == "list" else field["type"]
        spread = f", {field['min']} to {field['max']}" if field["min"] is not None else ""
        values, documents = (f"{field[one]:,} {word}{'' if field[one] == 1 else 's'}"
                             for one, word in (("distinct", "value"), ("documents", "document")))  # fmt: skip
        held = f"{values} in {documents}{spread}"
        print(f"\n{terminal_text(field['name'])}  ({kind}, {held})")
        if field["description"]:
            print(f"    {terminal_text(field['description'])}")
        top = ", ".join(f"{_short(value)} ({count:,})" for value, count in field["top"])
        print(f"    {terminal_text(top)}")
        for value, names in field["aliases"].items():
            print(f"    {terminal_text(_short(value))} is also called {terminal_text(_short(names))}")
        if unit := field["unit"] or field["derived_unit"]:
            print(f"    in {terminal_text(unit)}{'' if field['unit'] else ' (from its name)'}")
        if field["names"]:
            print(f"    words for it: {terminal_text(', '.join(field['names']))}")


def print_checks(found: Sequence[CheckResult], *, as_json: bool) -> None:
    """Print the results of the doctor."""
    if as_json:
        write_json([{"name": check.name, "ok": check.ok, "found": check.found, "mend": check.mend} for check in found])
        return
    for check in found:
        print(f"{'ok  ' if check.ok else 'BAD '} {check.name:<12} {terminal_text(check.found)}")
        if check.mend:
            print(f"                  fix: {terminal_text(check.mend)}")
