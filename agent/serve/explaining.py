"""`signalbox explain` and `signalbox replay`: print a decision record as readable tables."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from agent.options import rank_features
from agent.records.trace import REPLAYABLE
from agent.serve import output
from agent.serve.output import plain
from retrievers.core.errors import BadRequest
from retrievers.core.filters import in_words

if TYPE_CHECKING:
    from agent.service.service import Service
    from retrievers.core.types import Viewer

Json = dict[str, Any]

_WIDTH = 150
"""Output width in columns without a terminal; wide, because a wrapped figure is worse than a long line."""
_APPROXIMATE = "from an index: rebuilt, it may give other hits"
_MOST_VALID = 8
_MOST_ROWS = 10
_MOST_CELL = 60
_FIXED = (
    "collection",
    "sources",
    "top_k",
    "per_document",
    "complete",
    "intent",
    "reranker",
    "fusion",
    "lexical_weight",
    "depth",
    "rank_features",
    "fallback",
    "min_relevance",
    "timeout_s",
    "template",
    "context",
    "judge",
    "mode",
)
_STAGES = ("scope", "intent", "search", "fusion", "loop", "rerank", "page", "assemble", "answer")
_STOPPED = {
    "enough": "every part is answered",
    "no_progress": "there was nothing new to search for, or nothing new came",
    "budget": "calls, tokens or time were used up",
    "rounds": "as many rounds as MAX_ROUNDS allows",
    "failed": "it could not be judged",
}
_COLOURS = {"ok": "green", "empty": "yellow", "timeout": "red", "error": "red", "skipped": "dim"}


async def explain(service: "Service", trace_id: str, *, viewer: "Viewer", as_json: bool) -> int:
    """Show how an answer was produced and return the exit code.

    Raises:
        BadRequest: there is no such trace.
    """
    trace = await service.explain(trace_id, tenant=viewer)
    output.write_json(trace) if as_json else show_trace(trace)
    return 0


async def replay(service: "Service", trace_id: str, changes: Sequence[str], *, viewer: "Viewer", as_json: bool) -> int:
    """Repeat a request with other settings, show the differences and return the exit code.

    Raises:
        BadRequest: there is no such trace, or a setting cannot be changed.
    """
    given = _changes(changes)
    result, difference = await service.replay_compared(trace_id, tenant=viewer, changes=given)
    if as_json:
        shown = {**result.model_dump(mode="json"), "replay_of": trace_id, "changes": given, "difference": difference}
        output.write_json(shown)
        return 0
    show_difference(difference, title=_title(trace_id, result.query, given))
    found = f"{len(result.hits)} hits" if len(result.hits) != 1 else "1 hit"
    output.note(f"{found} in {result.took_ms:.1f} ms, no model was called")
    output.note_trace(
        service.traces, result.trace_id, viewer.tenant if viewer.tenant != service.settings.tenant else None
    )
    return 0


def _changes(given: Sequence[str]) -> dict[str, str]:
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


def show_trace(trace: Json, console: Console | None = None) -> None:
    """Print the whole record by section; empty sections are omitted."""
    page = _Sections(console)
    page.facts(_head(trace))
    page.section("Understood", page.grid(_understood(trace)))
    page.section("Filters", _chips(trace))
    page.section("Rejected", page.grid(_rejected(trace["intent"]["rejected"])))
    page.section("Sources asked", _ladder(trace), _spared(trace))
    page.section(
        "Given up to find something", page.grid((in_words(o["dropped"]), o["reason"]) for o in trace["relaxed"])
    )
    page.section("Done without", page.grid([("", ", ".join(trace["degraded"]))] if trace["degraded"] else []))
    page.section("Rounds", _rounds(trace.get("rounds") or ()))
    page.section("Searched by the model", _lookups(trace.get("lookups") or ()))
    page.section(
        f"Ranking: {len(trace['hits'])} shown of {trace['ranked']}", _ranking(trace), _weights(trace), _reranked(trace)
    )
    page.section("Calculated", *_calculated(trace["table"]))
    page.section("Model calls", _calls(trace["calls"]))
    page.section("Prompt", *_prompt(trace))
    page.section("Answer", page.grid(_answer(trace.get("answer"))))
    page.section("Time", page.grid([("", _times(trace))]))


def show_difference(found: Json, console: Console | None = None, *, title: str = "") -> None:
    """Print the differences of a second run."""
    page = _Sections(console)
    page.facts([("replay of", title)] if title else [])
    page.section("Settings", page.grid(_pairs(found["settings"])))
    page.section("Understood differently", page.grid(_pairs(found["intent"])))
    page.section("Came out differently", page.grid(_pairs(found["outcome"])))
    written = ", ".join(found["data"])
    page.section("Written to in between", page.grid([("", written)] if written else []))
    asked = {name: one for name, one in found["sources"].items() if one["before"] != one["after"]}
    page.section("Hits of the sources", page.grid(_pairs(asked)))
    page.section("Same hits in the same order" if found["same"] else "Hits", _moves(found["hits"]))


class _Sections:
    """Prints sections one below the other; text is never interpreted as markup."""

    def __init__(self, console: Console | None) -> None:
        drawn_on = console or Console(highlight=False, markup=False, emoji=False)
        if console is None and not drawn_on.is_terminal:
            drawn_on = Console(highlight=False, markup=False, emoji=False, width=_WIDTH)
        self._console = drawn_on

    def facts(self, rows: Iterable[tuple[str, str]]) -> None:
        grid = self.grid(rows)
        if grid is not None:
            self._draw(grid)

    def section(self, title: str, *parts: Table | Text | None) -> None:
        shown = [Padding(part, (0, 0, 0, 2)) for part in parts if part is not None]
        if shown:
            self._draw(Text(""), _text(title, "bold"), *shown)

    def _draw(self, *parts: Table | Text | Padding) -> None:
        with self._console.capture() as drawn:
            for part in parts:
                self._console.print(part)
        # Rich pads every line with blanks, which disturb copying and grep.
        for line in drawn.get().splitlines():
            print(line.rstrip(), file=self._console.file)

    def grid(self, rows: Iterable[tuple[str, str]]) -> Table | None:
        """Return a table of names and values; None if there are no rows."""
        grid = Table.grid(padding=(0, 2))
        grid.add_column(style="cyan", no_wrap=False, max_width=_MOST_CELL)
        grid.add_column(overflow="fold")
        for name, said in rows:
            grid.add_row(_text(name, "cyan"), _text(said))
        return grid if grid.row_count else None


def _text(said: object, style: str = "") -> Text:
    """Return any text, possibly a document's, as one line without terminal control characters."""
    return Text(" ".join(plain(str(said)).split()), style=style)


def _short(said: object, most: int = _MOST_CELL) -> str:
    text = " ".join(plain(str(said)).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _table(*columns: str, right: Sequence[str] = ()) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1), header_style="cyan")
    for column in columns:
        table.add_column(_text(column), justify="right" if column in right else "left", overflow="fold")
    return table


def _head(trace: Json) -> Iterable[tuple[str, str]]:
    request, settings = trace["request"], trace["settings"]
    yield "trace", trace["trace_id"]
    yield "asked", f"{trace['created_at']}, kept until {trace['expires_at']}"
    if trace["replay_of"]:
        yield (
            "replay of",
            " ".join([trace["replay_of"], *(f"{key.upper()}={one}" for key, one in trace["changes"].items())]),
        )
    yield "question", request.get("query") or _last_turn(request.get("messages") or [])
    if asked_by := {**({"user": request["user"]} if request.get("user") else {}), **(request.get("metadata") or {})}:
        yield "asked by", ", ".join(f"{name} {value}" for name, value in asked_by.items())
    if not trace["clocked"]:
        yield "as of", str(request["now"])
    fixed = [f"{name} {_listed(request[name])}" for name in _FIXED if request.get(name)]
    yield "request", ", ".join([request["kind"], *fixed, *([f"page {request['page']}"] if request["page"] > 1 else [])])
    versions = (f"{one['name']} ({one['chunks']:,} passages, version {one['version']})" for one in trace["scope"])
    yield "collections", ", ".join(versions)
    yield "made by", ", ".join(f"{name} {one}" for name, one in trace["versions"].items())
    said = [name for name in REPLAYABLE if settings.get(name) not in (None, "", [])]
    yield "settings", ", ".join(f"{name.upper()}={_listed(settings[name])}" for name in said)
    judged = [hit["relevance"] for hit in trace["hits"] if hit.get("relevance") is not None]
    yield "status", trace["status"] + (f", relevance {max(judged):.2f} at most" if judged else "")


def _last_turn(messages: Sequence[Json]) -> str:
    return next((turn["content"] for turn in reversed(messages) if turn["role"] == "user"), "")


def _understood(trace: Json) -> Iterable[tuple[str, str]]:
    intent = trace["intent"]
    for reading in trace["readings"]:
        if len(trace["readings"]) > 1:
            yield f"by {_reader(reading)}", _in_words(reading)
    yield "kind", f"{intent['kind']}, read by {_reader(intent)}, confidence {intent['confidence']:.2f}"
    if intent["question"] != trace["request"].get("query"):
        yield "question", intent["question"]
    yield "language", intent["language"]
    for search in intent["searches"]:
        yield "search", search
    if intent["aggregate"]:
        asked = [key for key, value in sorted(intent["aggregate"].items()) if value not in (None, [], False)]
        asked.sort(key=lambda key: key != "op")
        yield "calculate", ", ".join(f"{key} {_listed(intent['aggregate'][key])}" for key in asked)
    for chosen in intent.get("scope", ()):  # older records have none
        yield "collection", f"{chosen['name']} {chosen['confidence']:.2f}  {chosen['reason']}"
    for source in intent["sources"]:
        yield "source", f"{source['name']} {source['confidence']:.2f}  {source['reason']}"


def _reader(reading: Json) -> str:
    return {"llm": "the model", "rules": "rules", "caller": "the request alone"}[reading["by"]]


def _in_words(reading: Json) -> str:
    filter = f", filter {in_words(reading['filter'])}" if reading["filter"] else ""
    searches = _counted(reading["searches"], "search", "es")
    return f"{reading['kind']}, confidence {reading['confidence']:.2f}, {searches}{filter}"


def _counted(many: Sequence[Any] | int, name: str, plural: str = "s") -> str:
    count = many if isinstance(many, int) else len(many)
    return f"{count} {name}{'' if count == 1 else plural}"


def _parts(filter: Json | None) -> list[Json]:
    if not filter:
        return []
    return list(filter["filters"]) if filter.get("type") == "and" else [filter]


def _chips(trace: Json) -> Table | None:
    """Return a table of the constraints: origin, strictness, probability, evidence and outcome."""
    table = _table("constraint", "from", "how", "probability", "evidence", "became", right=["probability"])
    callers = _parts(trace["request"].get("filter"))
    dropped = [one["dropped"] for one in trace["relaxed"]]
    intent = trace["intent"]
    for part in callers:
        table.add_row(
            _text(in_words(part)), _text("the caller"), _text("hard"), _text("1.00"), _text("given"), _text("kept")
        )
    models = [part for part in _parts(intent["filter"]) if part not in callers] if intent["by"] == "llm" else []
    for one in trace["stated"]:
        how = "stated" if one["firm"] else "likely"
        became = "left out" if one["filter"] in dropped else "kept" if one["firm"] else "kept: raises what satisfies it"
        if intent["by"] == "llm":
            became = "kept by the model" if one["filter"] in models else "replaced by the model's reading"
        row = (in_words(one["filter"]), "rules", how, f"{one['confidence']:.2f}", evidence(one), became)
        table.add_row(*map(_text, row), style="" if became.startswith("kept") else "dim")
    for part in models:
        became = "left out" if part in dropped else "kept"
        row = (in_words(part), "the model", "stated", f"{intent['confidence']:.2f}", "", became)
        table.add_row(*map(_text, row))
    return table if table.row_count else None


def evidence(stated: Json) -> str:
    """Return in words why a constraint was read, and how certain it is."""
    probability = stated["confidence"]
    sure = next(words for least, words in _CERTAINTY if probability >= least)
    return f"{stated['why']}: {sure}" if stated.get("why") else sure


_CERTAINTY = ((0.97, "certain"), (0.9, "sure"), (0.7, "rather sure"), (0.5, "likely"), (0.0, "unlikely"))


def _rejected(rejected: Sequence[Json]) -> Iterable[tuple[str, str]]:
    for one in rejected:
        more = f" and {len(one['valid']) - _MOST_VALID} more" if len(one["valid"]) > _MOST_VALID else ""
        valid = f"; there are: {', '.join(one['valid'][:_MOST_VALID])}{more}" if one["valid"] else ""
        yield one["what"], one["reason"] + valid


def _rounds(rounds: Sequence[Json]) -> Table | None:
    """Return a table of the parts requested and found in each round, and why the rounds ended."""
    table = _table("round", "asked for", "found in", "missing", "searched next", "judged by", right=["round"])
    for one in rounds:
        for place, part in enumerate(one["judged"]["parts"]):
            found = ", ".join(f"[{number}]" for number in part["by"]) or ("yes" if part["answered"] else "no")
            cells = [one["number"] if not place else "", _short(part["part"]), found, part["missing"]]
            cells += ["" if one["stopped"] else _short(part["search"]), _reader(one) if not place else ""]
            table.add_row(*map(_text, cells))
        if one["stopped"]:
            table.add_row("", _text(f"stopped: {_STOPPED[one['stopped']]}", "dim"))
    return table if table.row_count else None


def _lookups(lookups: Sequence[Json]) -> Table | None:
    """Return a table of the model's own searches by the tool, and the citation numbers of their passages."""
    table = _table("round", "query", "found", "passages", "ms", right=["round", "ms"])
    for one in lookups:
        found = one["status"] if one["outcome"] == "searched" else f"{one['outcome']}: {one['reason']}"
        numbers = ", ".join(f"[{number}]" for number in one["citations"])
        cells = (
            one["round"],
            _short(one["query"] or one["arguments"]),
            _short(found),
            numbers,
            f"{one['elapsed_ms']:.0f}",
        )
        table.add_row(*map(_text, cells))
    return table if table.row_count else None


def _is_spared(outcome: Json) -> bool:
    return outcome["status"] == "skipped" and (outcome["reason"] or "").startswith("not needed")


def _ladder(trace: Json) -> Table | None:
    """Return a table of the steps that ran. A filter is printed only if it differs from the previous step's."""
    several = len({step["search"] for step in trace["plan"]}) > 1
    table = _table(
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
        if _is_spared(outcome):
            continue
        why = outcome["reason"] or (_APPROXIMATE if answer.get("approximate") else "")
        same, last = step["filter"] == last, step["filter"]
        wanted = "as above" if same else in_words(last) if last else "none"
        cells = [_text(step["step"]), _text(step["source"])] + ([_text(_short(step["search"]))] if several else [])
        cells += [_text(wanted, "dim" if same else ""), _text(outcome["status"], _COLOURS.get(outcome["status"], ""))]
        cells += [_text(outcome["hits"]), _text(f"{outcome['elapsed_ms']:.1f}"), _text(why)]
        table.add_row(*cells)
    return table if table.row_count else None


def _spared(trace: Json) -> Text | None:
    count = sum(map(_is_spared, trace["outcomes"]))
    return _text(f"{_counted(count, 'fallback step')} more, not needed", "dim") if count else None


def _ranking(trace: Json) -> Table | Text | None:
    """Return a table of the hits with each source's score and rank; a dash means the source did not find the hit."""
    if not trace["hits"]:
        return _text("no hit") if trace["plan"] else None
    sources = list(dict.fromkeys(source for hit in trace["hits"] for source in hit["ranks"]))
    fused = {id: rank for rank, (id, _) in enumerate(trace["ranking"], 1)}
    reranked = any("rerank" in hit["scores"] for hit in trace["hits"])
    features = [kind for kind in rank_features.KINDS if any(kind in hit["scores"] for hit in trace["hits"])]
    # Extra columns for the score that decides the order, if it is neither the fused score nor a source's.
    judged = any(hit.get("relevance") is not None for hit in trace["hits"])
    headed = [*(["score"] if features else []), *(["reranked"] if reranked else []), "fused", *features, *sources]
    headed = ["relevance", *headed] if judged else headed
    table = _table("rank", *headed, "passage", right=["rank", *headed])
    for hit in trace["hits"]:
        cells = [str(hit["rank"])]
        if judged:
            cells.append(_figure(hit.get("relevance"), None))
        if features:
            cells.append(_figure(hit["score"], None))
        if reranked:
            cells.append(_figure(hit["scores"].get("rerank"), None))
        cells.append(_figure(hit["scores"].get("fused"), fused.get(hit["id"]) if reranked or features else None))
        cells += [_figure(hit["scores"].get(kind), None) for kind in features]
        cells += [_figure(hit["scores"].get(source), hit["ranks"].get(source)) for source in sources]
        table.add_row(*map(_text, cells), _text(f"{_short(hit['title'])}  [{hit['id']}]"))
    return table


def _reranked(trace: Json) -> Text | None:
    done = trace.get("reranking")
    if not done:
        return None
    if done["error"]:
        return _text(f"not reranked by {done['by']}: {done['error']}", "yellow")
    left_out = f"; {_counted(done['left_out'], 'hit')} below {done['minimum']:g} left out" if done["left_out"] else ""
    return _text(f"reranked by {done['by']}: the first {_counted(done['scores'], 'hit')}{left_out}", "dim")


def _figure(score: float | None, rank: int | None) -> str:
    return "-" if score is None else f"{score:.3f}" + (f" #{rank}" if rank else "")


def _weights(trace: Json) -> Text | None:
    shares = ", ".join(
        f"{weight:.2f}" + (f' in "{_short(search, 40)}"' if len(trace["lexical_weights"]) > 1 else "")
        for search, weight in trace["lexical_weights"].items()
    )
    return (
        _text(f"share of full text in the fused score: {shares}; # is the rank in that source", "dim")
        if shares
        else None
    )


def _calculated(table: Json | None) -> tuple[Table | Text, ...]:
    if table is None:
        return ()
    drawn = _table(*table["columns"])
    for row in table["rows"][:_MOST_ROWS]:
        drawn.add_row(*(_text("-" if value is None else _short(value)) for value in row))
    return drawn, _text(f"{_counted(table['count'], 'row')}: {table['sql']}", "dim")


def _calls(calls: Sequence[Json]) -> Table | None:
    if not calls:
        return None
    table = _table(
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
        reply = _text(call.get("error") or "", "red") if failed else _text(_short(call["text"], 100))
        figures = (
            call["stage"],
            call["model"],
            usage["prompt_tokens"],
            usage["completion_tokens"],
            cost,
            call["attempts"],
            f"{call['elapsed_ms']:.0f}",
        )
        table.add_row(*map(_text, figures), reply)
    return table


def _prompt(trace: Json) -> tuple[Table | Text, ...]:
    prompt = trace["prompt"]
    if prompt is None:
        return ()
    table = _table("", "cites", "document", "characters", right=["characters"])
    for one in prompt["citations"]:
        place = f"{one['start']} to {one['end']}{'; ' * bool(one.get('place'))}{one.get('place', '')}"
        table.add_row(*map(_text, (f"[{one['n']}]", _short(one["title"]), one["document_id"], place)))
    templates = ", ".join(f"{name} {digest}" for name, digest in trace["prompts"].items())
    about = f"about {prompt['tokens']:,} tokens, digest {prompt['digest'][:12]}, templates {templates}"
    return table, _text(about, "dim")


def _answer(answer: Json | None) -> Iterable[tuple[str, str]]:
    """Yield the answer and the result of its check; nothing if no answer was requested."""
    if answer is None:
        return
    if answer["text"] is not None:
        yield "text", answer["text"]
        yield "answered", f"{'yes' if answer['answered'] else 'no, not in the documents'}, by {answer['model']}"
    if answer["faithfulness"] is not None:
        by = "a model" if answer["checked_by"] == "llm" else "its wording"
        yield "borne out", f"{answer['faithfulness']:.0%} of its claims, checked by {by}"
    for one in answer["sentences"]:
        if one["supported"] is False:
            cites = "".join(f"[{n}]" for n in one["citations"]) or "no passage"
            yield "doubtful", f"{_short(answer['text'][one['start'] : one['end']], 200)} (cites {cites})"


def _times(trace: Json) -> str:
    stages = [f"{name} {trace['elapsed_ms'][name]:.1f}" for name in _STAGES if name in trace["elapsed_ms"]]
    return f"{trace['took_ms']:.1f} ms: {', '.join(stages)}"


def _pairs(changed: Mapping[str, Json]) -> Iterable[tuple[str, str]]:
    for name, one in changed.items():
        yield name, f"{_said(name, one['before'])}  ->  {_said(name, one['after'])}"


def _said(name: str, value: Any) -> str:
    if value in (None, [], {}, ""):
        return "none"
    if name.endswith("filter"):
        return in_words(value)
    if name == "relaxed":
        return ", ".join(in_words(one["dropped"]) for one in value)
    if name == "sources":
        return ", ".join(one["name"] for one in value)
    if name == "rejected":
        return ", ".join(one["what"] for one in value)
    if name == "table":
        return f"{value['count']} rows {_short(value['rows'], 200)}"
    if isinstance(value, Mapping):
        return ", ".join(f"{_short(key, 40)} {_listed(one)}" for key, one in value.items())
    return _listed(value)


def _listed(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _moves(hits: Sequence[Json]) -> Table | None:
    """Return both pages in one table: the rank of every hit now and before."""
    if not hits:
        return None
    table = _table(
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
        cells = (_place(now, hit["after_fused"]), _place(before, hit["before_fused"]), mark)
        scores = (_figure(hit["after_score"], None), _figure(hit["before_score"], None))
        table.add_row(*map(_text, (*cells, *scores)), _text(f"{_short(hit['title'])}  [{hit['id']}]"), style=style)
    return table


def _place(rank: int | None, fused: int | None) -> str:
    """Return a rank on the page, or the rank in the whole fused ranking in brackets, or a dash if neither was kept."""
    return str(rank) if rank else f"({fused})" if fused else "-"
