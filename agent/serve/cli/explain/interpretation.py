"""Sections of a decision record: the request and how the question was interpreted."""

from collections.abc import Iterable, Sequence

from rich.table import Table

from agent.records.trace import REPLAYABLE
from agent.serve.cli.explain.sections import Json, cell, count_text, list_text, new_table
from retrievers.core.filters import describe_filter

_MOST_VALID = 8
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
_CERTAINTY = ((0.97, "certain"), (0.9, "sure"), (0.7, "rather sure"), (0.5, "likely"), (0.0, "unlikely"))


def request_rows(trace: Json) -> Iterable[tuple[str, str]]:
    """Yield (name, value) pairs about the request: time, question, caller, options, collections, versions, settings."""
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
    fixed = [f"{name} {list_text(request[name])}" for name in _FIXED if request.get(name)]
    yield "request", ", ".join([request["kind"], *fixed, *([f"page {request['page']}"] if request["page"] > 1 else [])])
    versions = (f"{one['name']} ({one['chunks']:,} passages, version {one['version']})" for one in trace["scope"])
    yield "collections", ", ".join(versions)
    yield "made by", ", ".join(f"{name} {one}" for name, one in trace["versions"].items())
    said = [name for name in REPLAYABLE if settings.get(name) not in (None, "", [])]
    yield "settings", ", ".join(f"{name.upper()}={list_text(settings[name])}" for name in said)
    judged = [hit["relevance"] for hit in trace["hits"] if hit.get("relevance") is not None]
    yield "status", trace["status"] + (f", highest relevance {max(judged):.2f}" if judged else "")


def _last_turn(messages: Sequence[Json]) -> str:
    return next((turn["content"] for turn in reversed(messages) if turn["role"] == "user"), "")


def interpretation_rows(trace: Json) -> Iterable[tuple[str, str]]:
    """Yield (name, value) pairs about the interpretation: kind, question, searches, calculation and sources."""
    intent = trace["intent"]
    for reading in trace["readings"]:
        if len(trace["readings"]) > 1:
            yield f"by {reader_label(reading)}", _in_words(reading)
    yield "kind", f"{intent['kind']}, read by {reader_label(intent)}, confidence {intent['confidence']:.2f}"
    if intent["question"] != trace["request"].get("query"):
        yield "question", intent["question"]
    yield "language", intent["language"]
    for search in intent["searches"]:
        yield "search", search
    if intent["aggregate"]:
        asked = [key for key, value in sorted(intent["aggregate"].items()) if value not in (None, [], False)]
        asked.sort(key=lambda key: key != "op")
        yield "calculate", ", ".join(f"{key} {list_text(intent['aggregate'][key])}" for key in asked)
    for chosen in intent.get("scope", ()):  # older records have none
        yield "collection", f"{chosen['name']} {chosen['confidence']:.2f}  {chosen['reason']}"
    for source in intent["sources"]:
        yield "source", f"{source['name']} {source['confidence']:.2f}  {source['reason']}"


def reader_label(reading: Json) -> str:
    """Return what interpreted the question: "the model", "rules" or "the request only"."""
    return {"llm": "the model", "rules": "rules", "caller": "the request only"}[reading["by"]]


def _in_words(reading: Json) -> str:
    filter = f", filter {describe_filter(reading['filter'])}" if reading["filter"] else ""
    searches = count_text(reading["searches"], "search", "es")
    return f"{reading['kind']}, confidence {reading['confidence']:.2f}, {searches}{filter}"


def condition_table(trace: Json) -> Table | None:
    """Return a table of the filter conditions: origin, strictness, probability, evidence and outcome; None if empty."""
    table = new_table("constraint", "from", "how", "probability", "evidence", "became", right=["probability"])
    callers = _parts(trace["request"].get("filter"))
    dropped = [one["dropped"] for one in trace["relaxed"]]
    intent = trace["intent"]
    for part in callers:
        table.add_row(
            cell(describe_filter(part)), cell("the caller"), cell("hard"), cell("1.00"), cell("given"), cell("kept")
        )
    models = [part for part in _parts(intent["filter"]) if part not in callers] if intent["by"] == "llm" else []
    for one in trace["stated"]:
        how = "stated" if one["firm"] else "likely"
        became = (
            "left out"
            if one["filter"] in dropped
            else "kept"
            if one["firm"]
            else "kept: raises the rank of documents that satisfy it"
        )
        if intent["by"] == "llm":
            became = "kept by the model" if one["filter"] in models else "replaced by the model's reading"
        row = (describe_filter(one["filter"]), "rules", how, f"{one['confidence']:.2f}", _evidence(one), became)
        table.add_row(*map(cell, row), style="" if became.startswith("kept") else "dim")
    for part in models:
        became = "left out" if part in dropped else "kept"
        row = (describe_filter(part), "the model", "stated", f"{intent['confidence']:.2f}", "", became)
        table.add_row(*map(cell, row))
    return table if table.row_count else None


def _parts(filter: Json | None) -> list[Json]:
    if not filter:
        return []
    return list(filter["filters"]) if filter.get("type") == "and" else [filter]


def _evidence(stated: Json) -> str:
    """Return as text why a condition was read from the question, and how certain the condition is."""
    probability = stated["confidence"]
    sure = next(words for least, words in _CERTAINTY if probability >= least)
    return f"{stated['why']}: {sure}" if stated.get("why") else sure


def rejected_rows(rejected: Sequence[Json]) -> Iterable[tuple[str, str]]:
    """Yield the names and values that could not be used, each with the reason and the valid ones."""
    for one in rejected:
        more = f" and {len(one['valid']) - _MOST_VALID} more" if len(one["valid"]) > _MOST_VALID else ""
        valid = f"; there are: {', '.join(one['valid'][:_MOST_VALID])}{more}" if one["valid"] else ""
        yield one["what"], one["reason"] + valid
