"""Running a stored request again: what it is run with, and what came out differently.

No model is called: the replies that the trace holds are given again, whatever the settings say.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agent.errors import BadSetting, readable
from agent.llm.model import ModelCall, Recorded
from agent.options.rerankers import shown
from agent.records.trace import REPLAYABLE, Json, shown_settings
from agent.retrieval.rerank.base import Reranker
from agent.retrieval.rerank.llm import ListwiseReranker
from agent.retrieval.rerank.recorded import RecordedReranker
from agent.settings import Settings
from agent.types import AskRequest, AugmentRequest, Request
from retrievers.core.errors import listing

_SHAPES: Mapping[object, type[Request]] = {"augment": AugmentRequest, "ask": AskRequest}


def settings_for(trace: Json, current: Settings, changes: Mapping[str, Any]) -> Settings:
    """The settings of a replay: those the trace was made with, those that are changed, and else the current ones.

    Args:
        trace: as `TraceStore.load` gives it.
        changes: by name in any case, values as in the environment.
    Raises:
        BadSetting: no such setting, one that a replay cannot change, or a value that does not fit.
    """
    given = {name.lower(): value for name, value in changes.items()}
    for name in given:
        if name == "reranker":
            _check_reranker(str(given[name]), current, trace)
        if name not in REPLAYABLE:
            what = "a replay cannot change" if name in Settings.model_fields else "there is no setting"
            known = listing((one.upper() for one in REPLAYABLE), 40)
            raise BadSetting(f'{what} "{name.upper()[:80]}"; it can change: {known}', where=name, valid=REPLAYABLE)
    now, then = shown_settings(current), trace.get("settings") or {}
    if given.get("llm"):
        del given["llm"]  # no other model can answer: the trace's own replies do, see `model_of`
    # What looks the same without its credentials is the same, with them.
    kept = {name: then[name] for name in REPLAYABLE if name in then and then[name] != now[name]}
    if "llm" in given:
        given["llm"] = None
    try:
        return Settings.model_validate({**current.model_dump(), **kept, **given})
    except ValidationError as error:
        problem = readable(error)
        name = problem.where.partition(".")[0]
        origin = "the command line" if name in given else "the trace"
        reason = str(problem).removeprefix(f"{problem.where}: ")
        raise BadSetting(f"setting {name.upper()} ({origin}): {reason}", where=name) from None


def request_of(trace: Json, settings: Settings, changes: Mapping[str, Any] | None = None) -> Request:
    """The request of a trace. What it fixed for itself gives way to a setting that is changed.

    Args:
        settings: those of the replay: its day is that of the first run in their time zone.
    Raises:
        BadRequest: another version of this program wrote it in a form that is none any more.
    """
    changed = {name.lower(): value for name, value in (changes or {}).items()}
    given = set(changed)
    if changed.get("fusion", "convex") != "convex":
        given.add("lexical_weight")  # it has an effect in convex alone
    stored = {name: value for name, value in trace["request"].items() if name not in given and name != "kind"}
    shape = _SHAPES.get(trace["request"].get("kind"), Request)
    try:
        request = shape.model_validate(stored)
    except ValidationError as error:
        raise readable(error) from None
    if not trace["clocked"] or request.now is None:
        return request
    return request.model_copy(update={"now": request.now.astimezone(settings.zone)})


def model_of(trace: Json, changes: Mapping[str, Any] | None = None) -> Recorded | None:
    """What stands in for the model in a replay: its recorded replies; None when the first run had none.

    No setting leads to a real one; an empty LLM among the changes takes the recorded replies away too.
    """
    given = {name.lower(): value for name, value in (changes or {}).items()}
    if not (trace.get("settings") or {}).get("llm") or not given.get("llm", True):
        return None
    return Recorded((ModelCall.from_json(call) for call in trace.get("calls") or ()), "the trace")


def reranker_of(
    trace: Json, settings: Settings, configured: Reranker | None, model: Recorded | None
) -> Reranker | None:
    """The reranker of a replay; None for those that every pipeline has at hand.

    The service's own serves where it runs in this process. Where a server or a model was asked, or another one
    was configured then, what the trace holds is given again.

    Args:
        settings: those of the replay.
        configured: the service's own.
        model: see `model_of`.
    """
    name = shown(settings.reranker)
    if name in ("none", "hybrid"):
        return None
    if configured is not None and configured.name == name and not configured.remote:
        return configured
    if name == "llm":
        return ListwiseReranker(model or Recorded((), "the trace"))
    return RecordedReranker(name, trace.get("reranking") or {})


def compare(before: Json, after: Json) -> Json:
    """What is different in a second run of a request, both as `TraceStore.load` gives them.

    Returns:
        `settings`, `intent` and `outcome`: by name what was `before` and is `after`, the changed ones alone;
        `data`: collections that were written to in between; `sources`: by source the hits of both runs;
        `hits`: every hit of either page with its ranks, in the order of the second; None where it is not on
        the page, and beside it its rank in the fused ranking as far as that was kept. `same`: whether the
        pages are the same.
    """
    hits = _moved(before, after)
    return {
        "same": all(one["before"] == one["after"] for one in hits),
        "settings": _changed(before["settings"], after["settings"]),
        "intent": _changed(
            before["intent"], after["intent"], ("by", "kind", "question", "language", "searches", "filter",
            "soft_filter", "aggregate", "sources", "rejected"),
        ),
        "outcome": _changed(_came_out(before), _came_out(after), tuple(_came_out(before))),
        "data": [one["name"] for one in after["scope"] if one not in before["scope"]]
        + [one["name"] for one in before["scope"] if _place(one) not in {_place(other) for other in after["scope"]}],
        "sources": _by_source(before, after),
        "hits": hits,
    }  # fmt: skip


def _check_reranker(name: str, current: Settings, trace: Json) -> None:
    """A replay is asked for by callers too, who must not make the service open an address or a folder."""
    then = str((trace.get("settings") or {}).get("reranker") or "none")
    valid = tuple(dict.fromkeys(("none", "hybrid", shown(current.reranker), then)))
    if shown(name) not in valid:
        raise BadSetting(
            f'setting RERANKER: a replay cannot use "{shown(name)[:80]}"; it can use: {listing(valid)}',
            where="reranker",
            valid=valid,
        )


def _place(collection: Json) -> tuple[str, str]:
    return collection["tenant"], collection["name"]


def _changed(before: Json, after: Json, names: Sequence[str] | None = None) -> dict[str, Json]:
    names = names if names is not None else sorted({*before, *after})
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: {"before": old, "after": new} for name, (old, new) in pairs.items() if old != new}


def _came_out(trace: Json) -> Json:
    """What is compared of an outcome beside its hits; what a trace of an older version does not hold is None."""
    prompt, answer = trace.get("prompt"), trace.get("answer")
    return {
        **{
            name: trace.get(name)
            for name in ("status", "total", "complete", "relaxed", "degraded", "table", "lexical_weights")
        },
        "searched_further": [search for one in (trace.get("rounds") or ())[1:] for search in one["searches"]],
        "prompt": {"tokens": prompt["tokens"], "digest": prompt["digest"][:12]} if prompt else None,
        "answer": answer["text"] if answer else None,
    }


def _by_source(before: Json, after: Json) -> dict[str, dict[str, int | None]]:
    """Hits of all steps of a source; None where it was not asked."""
    counts: list[dict[str, int]] = []
    for trace in (before, after):
        held: dict[str, int] = {}
        for outcome in trace["outcomes"]:
            if outcome["status"] != "skipped":
                held[outcome["source"]] = held.get(outcome["source"], 0) + outcome["hits"]
        counts.append(held)
    names = dict.fromkeys([*counts[0], *counts[1]])
    return {name: {"before": counts[0].get(name), "after": counts[1].get(name)} for name in names}


def _moved(before: Json, after: Json) -> list[Json]:
    pages = [{hit["id"]: hit for hit in trace["hits"]} for trace in (before, after)]
    fused = [{id: rank for rank, (id, _) in enumerate(trace["ranking"], 1)} for trace in (before, after)]
    moved = []
    for id in dict.fromkeys([*pages[1], *pages[0]]):
        old, new = pages[0].get(id), pages[1].get(id)
        moved.append(
            {
                "id": id,
                "title": (new or old or {}).get("title", ""),
                "before": old["rank"] if old else None,
                "after": new["rank"] if new else None,
                "before_fused": fused[0].get(id),
                "after_fused": fused[1].get(id),
                "before_score": old["score"] if old else None,
                "after_score": new["score"] if new else None,
            }
        )
    return moved
