"""Print results, notes and tables on the command line."""

import json
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agent.serve.cli.doctor.check import Check
from agent.types import Intent, Prompt, Rejected, Result, SourceChoice, SourceSummary, Table
from retrievers.core.filters import in_words
from retrievers.core.types import Collection
from retrievers.text.visible import visible_text

if TYPE_CHECKING:
    from agent.records.trace_store import TraceStore

_SNIPPET_CHARACTERS = 240
_MOST_ROWS = 20
WEAK = "only weak matches: the documents say little about this"
_COMES_WITH = {"web": "WEB_PROVIDER", "cloud": "CLOUD"}
# A document's text must not control the terminal.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_OF_THE_LADDER = ("not needed", "it has failed before")
"""Beginnings of the reasons why a fallback step was skipped. They are not printed: earlier steps show the cause."""


def plain(text: str) -> str:
    """Return the text without control characters, invisible characters and changes of the writing direction."""
    return visible_text(_CONTROL.sub(" ", text))


def note(message: str) -> None:
    """Print a line for the user to standard error."""
    print(plain(f"signalbox: {message}").encode(errors="replace").decode(), file=sys.stderr)


def note_trace(traces: "TraceStore", trace_id: str, tenant: str | None) -> None:
    """Print the command that shows an answer's decision record; nothing if no record is kept."""
    if traces.days and trace_id:
        whose = f" --tenant {shlex.quote(tenant)}" if tenant is not None else ""
        note(f"explain with: signalbox explain {trace_id}{whose}")


def write_json(value: Any) -> None:
    """Print one JSON document to stdout, in ASCII unless stdout's encoding is Unicode."""
    unicode = (sys.stdout.encoding or "").lower().startswith("utf")
    print(json.dumps(value, ensure_ascii=not unicode, default=str))


def show_result(result: Result, *, explain: bool, given: Mapping[str, Any] | None = None) -> None:
    """Print the hits, any calculated table and, with `explain`, how the hits were found.

    Args:
        given: the caller's own filter. If the intent's filter equals it, it is not reported as read from the question.
    """
    if explain:
        _show_record(result)
    else:
        note_reading(result.intent, given)
    if result.table is not None:
        _show_table(result.table)
    for hit in result.hits:
        title = plain(hit.title or hit.document_id)
        place = f", {plain(hit.place)}" if hit.place else ""
        print(f"{hit.rank:>3}. {title}{place}  [{plain(hit.id)}]")
        judged = {} if hit.relevance is None else {"relevance": hit.relevance}
        scores = ", ".join(f"{name} {score:.3f}" for name, score in {**judged, **hit.scores}.items())
        facts = ", ".join(
            f"{key}: {_short(value)}" for key, value in hit.metadata.items() if value not in (None, "", [])
        )
        print(f"     {scores}")
        if facts:
            print(f"     {plain(facts)[:200]}")
        print(f"     {_snippet(hit.text)}\n")
    note_shortfalls(result)
    if result.refusal is not None:
        print(plain(result.refusal))
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
    note(f"{found} in {result.took_ms:.1f} ms{degraded}")


def no_source_answered(result: Result) -> bool:
    """Return whether every source that was asked failed, so that "nothing found" would be wrong."""
    return bool(result.outcomes) and not any(one.status in ("ok", "empty") for one in result.outcomes)


def note_reading(intent: Intent, given: Mapping[str, Any] | None) -> None:
    """Print how the question was interpreted, so that the user can see and correct a misreading.

    Args:
        given: the caller's own filter. If the intent's filter equals it, it is not reported as read from the question.
    """
    if intent.by != "caller" and (intent.filter not in (None, given) or intent.aggregate):
        asked = {key: value for key, value in (intent.aggregate or {}).items() if value not in (None, [], False)}
        calculated = f"; calculate {', '.join(f'{key} {value}' for key, value in asked.items())}" if asked else ""
        note(f"read as: {_chips(intent.filter)}{calculated} (--intent off searches without it)")
    if intent.soft_filter:
        note(f"probably meant, so ranked higher: {_chips(intent.soft_filter)}")
    for one in intent.rejected:
        note(f"ignored: {_ignored(one)}")


def note_shortfalls(result: Result) -> None:
    """Print the sources that failed and the constraints that were dropped."""
    reasons = (one.reason for one in result.outcomes if one.reason and not one.reason.startswith(_OF_THE_LADDER))
    for reason in dict.fromkeys(reasons):
        note(reason)
    asked = {outcome.source for outcome in result.outcomes}
    for source, setting in _COMES_WITH.items():
        if f"{source}_unavailable" in result.degraded and source not in asked:
            note(f"the {source} was not searched, because it is not configured: set {setting}")
    if "rerank_unavailable" in result.degraded:
        note("not reranked; hits keep the fused order; `signalbox explain` and `signalbox doctor` show the reason")
    if result.status == "weak":
        note(WEAK)
    for relaxed in result.relaxed:
        note(f"left out: {in_words(relaxed.dropped)} ({relaxed.reason})")


def intent_lines(intent: Intent) -> list[tuple[str, str]]:
    """Return the interpretation of a question as (name, value) lines."""
    lines = [
        ("question", intent.question),
        ("language", intent.language),
        ("read by", f"{intent.by}, confidence {intent.confidence:.2f}"),
        ("kind", intent.kind),
        ("collection", ", ".join(map(_chosen, intent.scope)) or ", ".join(intent.collections)),
        ("filter", _chips(intent.filter)),
    ]
    if intent.soft_filter:
        lines.append(("likely", _chips(intent.soft_filter)))
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


def _show_record(result: Result) -> None:
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
    lines += [("left out", f"{in_words(one.dropped)}: {one.reason}") for one in result.relaxed]
    if result.degraded:
        lines.append(("degraded", ", ".join(result.degraded)))
    lines.append(("status", result.status))
    for name, text in lines:
        print(f"{name:<10} {' '.join(plain(text).split())}")
    print()


def _chips(wanted: Mapping[str, Any] | None) -> str:
    """Return a filter as text, with each of its conditions in square brackets; "none" without a filter."""
    if not wanted:
        return "none"
    parts = wanted["filters"] if wanted.get("type") == "and" else [wanted]
    return " ".join(f"[{in_words(part)}]" for part in parts)


def _show_table(table: Table) -> None:
    """Print the calculated table, with at most 20 rows."""
    if not table.rows:
        print("(no rows)\n")
        return
    rows = [[_short("-" if value is None else value) for value in row] for row in table.rows[:_MOST_ROWS]]
    widths = [max(len(cell) for cell in column) for column in zip(table.columns, *rows, strict=True)]
    for row in (table.columns, ["-" * width for width in widths], *rows):
        print(plain("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()))
    if len(table.rows) > len(rows):
        print(f"... and {len(table.rows) - len(rows):,} more rows")
    print()


def _snippet(text: str) -> str:
    flat = " ".join(plain(text).split())
    return flat if len(flat) <= _SNIPPET_CHARACTERS else flat[: _SNIPPET_CHARACTERS - 1] + "…"


def _short(value: Any) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 60 else text[:59] + "…"


def show_prompt(prompt: Prompt, *, given: Mapping[str, Any] | None = None) -> None:
    """Print how the question was read, the prompt (or the refusal), and the citations.

    Args:
        given: the caller's own filter. If the intent's filter equals it, it is not reported as read from the question.
    """
    note_reading(prompt.intent, given)
    print(plain(prompt.refusal or prompt.prompt))
    print()
    for citation in prompt.citations:
        place = f"{plain(citation.place)}, " if citation.place else ""
        where = f"{plain(citation.document_id)}, {place}characters {citation.start} to {citation.end}"
        address = "  " + plain(citation.url) if citation.url else ""
        print(f"[{citation.n}] {plain(citation.title or citation.document_id)} ({where}){address}")
    cited = f"{len(prompt.citations)} citations" if len(prompt.citations) != 1 else "1 citation"
    note_shortfalls(prompt)
    degraded = f", degraded: {', '.join(prompt.degraded)}" if prompt.degraded else ""
    note(f"about {prompt.tokens:,} tokens, {cited}, {prompt.took_ms:.1f} ms{degraded}")


def show_collections(found: Sequence[Collection], *, as_json: bool) -> None:
    """Print one line per collection."""
    if as_json:
        write_json([_collection(one) for one in found])
        return
    for one in found:
        languages = ", ".join(f"{language} {count:,}" for language, count in sorted(one.languages.items()))
        counts = f"{one.documents:>9,} documents {one.chunks:>9,} passages"
        print(f"{plain(one.name):<24} {counts}  {plain(one.embedder or '-')}  {languages}")
    if not found:
        print("no collection yet: add documents with `signalbox ingest PATH --collection NAME`")


def show_sources(found: Sequence[SourceSummary], *, as_json: bool) -> None:
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
        print(f"{one.name:<16} {one.kind:<10} {plain(one.description + within)}  [{', '.join(limits)}]")


def _collection(one: Collection) -> dict[str, Any]:
    return {
        "name": one.name,
        "documents": one.documents,
        "chunks": one.chunks,
        "embedder": one.embedder,
        "dimension": one.dimension,
        "languages": dict(one.languages),
    }


def show_fields(described: Mapping[str, Any], *, as_json: bool) -> None:
    """Print a collection's field catalogue."""
    if as_json:
        write_json(described)
        return
    print(f"{described['name']}: {described['documents']:,} documents, {described['chunks']:,} passages, "
          f"embedder {described['embedder']}")  # fmt: skip
    if job := described.get("job"):
        into = f" with {plain(job['embedder'])}" if job["embedder"] else ""
        print(f"{job['kind']}{into} under way: signalbox jobs show {job['job_id']}")
    if described["description"]:
        print(f"{'draft of a description: ' if described['draft'] else ''}{plain(described['description'])}")
    for said, words in (("is called", described["records"]), ("is probably called", described["derived_records"])):
        if words:
            print(f"a document {said}: {plain(', '.join(words))}")
    for field in described["fields"]:
        kind = f"list of {field['item']}" if field["type"] == "list" else field["type"]
        spread = f", {field['min']} to {field['max']}" if field["min"] is not None else ""
        values, documents = (f"{field[one]:,} {word}{'' if field[one] == 1 else 's'}"
                             for one, word in (("distinct", "value"), ("documents", "document")))  # fmt: skip
        held = f"{values} in {documents}{spread}"
        print(f"\n{plain(field['name'])}  ({kind}, {held})")
        if field["description"]:
            print(f"    {plain(field['description'])}")
        top = ", ".join(f"{_short(value)} ({count:,})" for value, count in field["top"])
        print(f"    {plain(top)}")
        for value, names in field["aliases"].items():
            print(f"    {plain(_short(value))} is also called {plain(_short(names))}")
        if unit := field["unit"] or field["derived_unit"]:
            print(f"    in {plain(unit)}{'' if field['unit'] else ' (from its name)'}")
        if field["names"]:
            print(f"    words for it: {plain(', '.join(field['names']))}")


def show_checks(found: Sequence[Check], *, as_json: bool) -> None:
    """Print the results of the doctor."""
    if as_json:
        write_json([{"name": check.name, "ok": check.ok, "found": check.found, "mend": check.mend} for check in found])
        return
    for check in found:
        print(f"{'ok  ' if check.ok else 'BAD '} {check.name:<12} {plain(check.found)}")
        if check.mend:
            print(f"                  fix: {plain(check.mend)}")
