"""Replay: run a stored request again with changed settings, and compare the two results.

No model is called: the replies in the trace are used again, whatever the settings say.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agent.errors import BadSetting, to_bad_request
from agent.llm.call_log import ModelCall
from agent.llm.recording import ReplayModel
from agent.options.rerankers import reranker_label
from agent.records.encoding import Json
from agent.records.trace import REPLAYABLE, replayable_settings
from agent.retrieval.rerank.llm import ListwiseReranker
from agent.retrieval.rerank.replay import ReplayReranker
from agent.retrieval.rerank.reranker import Reranker
from agent.settings import Settings
from agent.types import AskRequest, AugmentRequest, Request
from retrievers.core.errors import join_names

_SHAPES: Mapping[object, type[Request]] = {"augment": AugmentRequest, "ask": AskRequest}


def replay_settings(trace: Json, current: Settings, changes: Mapping[str, Any]) -> Settings:
    """Return the settings of a replay: the given changes, else the trace's settings, else the current ones.

    Args:
        trace: as returned by `TraceStore.load`.
        changes: values by setting name in any case; texts as in environment variables are accepted.
    Raises:
        BadSetting: a setting does not exist, cannot be changed in a replay, or has an invalid value.
    """
    given = {name.lower(): value for name, value in changes.items()}
    for name in given:
        if name == "reranker":
            _check_reranker(str(given[name]), current, trace)
        if name not in REPLAYABLE:
            what = "a replay cannot change" if name in Settings.model_fields else "there is no setting"
            known = join_names((one.upper() for one in REPLAYABLE), 40)
            raise BadSetting(
                f'{what} "{name.upper()[:80]}"; a replay can change: {known}', where=name, valid=REPLAYABLE
            )
    now, then = replayable_settings(current), trace.get("settings") or {}
    if given.get("llm"):
        del given["llm"]  # any model is replaced by the trace's own replies, see `replay_model`
    # A trace has no credentials. Where the current value without its credentials is equal, keep it with them.
    kept = {name: then[name] for name in REPLAYABLE if name in then and then[name] != now[name]}
    if "llm" in given:
        given["llm"] = None
    try:
        return Settings.model_validate({**current.model_dump(), **kept, **given})
    except ValidationError as error:
        problem = to_bad_request(error)
        name = problem.where.partition(".")[0]
        origin = "the command line" if name in given else "the trace"
        reason = str(problem).removeprefix(f"{problem.where}: ")
        raise BadSetting(f"setting {name.upper()} ({origin}): {reason}", where=name) from None


def replay_request(trace: Json, settings: Settings, changes: Mapping[str, Any] | None = None) -> Request:
    """Return the request of a trace, without its options that would override a changed setting.

    Args:
        settings: settings of the replay. If the first run read its time from the clock, `now` is that time in their
            time zone.
        changes: the changed settings by name.
    Raises:
        BadRequest: the trace was written by another version in a form that is no longer valid.
    """
    changed = {name.lower(): value for name, value in (changes or {}).items()}
    given = set(changed)
    if changed.get("fusion", "convex") != "convex":
        given.add("lexical_weight")  # only the method "convex" has this weight
    stored = {name: value for name, value in trace["request"].items() if name not in given and name != "kind"}
    shape = _SHAPES.get(trace["request"].get("kind"), Request)
    try:
        request = shape.model_validate(stored)
    except ValidationError as error:
        raise to_bad_request(error, stored) from None
    if not trace["clocked"] or request.now is None:
        return request
    return request.model_copy(update={"now": request.now.astimezone(settings.zone)})


def replay_model(trace: Json, changes: Mapping[str, Any] | None = None) -> ReplayModel | None:
    """Return a model that replays the recorded replies; None if the first run had no model, or if `changes` empty LLM.

    No value of LLM makes a replay call a real model.
    """
    given = {name.lower(): value for name, value in (changes or {}).items()}
    if not (trace.get("settings") or {}).get("llm") or not given.get("llm", True):
        return None
    return ReplayModel((ModelCall.from_json(call) for call in trace.get("calls") or ()), "the trace")


def replay_reranker(
    trace: Json, settings: Settings, configured: Reranker | None, model: ReplayModel | None
) -> Reranker | None:
    """Return the reranker of a replay; None for "none" and "hybrid", which need no object of their own.

    The service's own reranker is used if it has the same name and runs in this process. Otherwise the trace's recorded
    scores are used, or for "llm" the recorded replies.

    Args:
        settings: settings of the replay.
        configured: the service's reranker.
        model: see `replay_model`.
    """
    name = reranker_label(settings.reranker)
    if name in ("none", "hybrid"):
        return None
    if configured is not None and configured.name == name and not configured.is_remote:
        return configured
    if name == "llm":
        return ListwiseReranker(model or ReplayModel((), "the trace"))
    return ReplayReranker(name, trace.get("reranking") or {})


def compare_traces(before: Json, after: Json) -> Json:
    """Compare two runs of a request, both as returned by `TraceStore.load`.

    Returns:
        `same`: whether both pages have the same hits in the same order.
        `settings`, `intent` and `outcome`: changed values by name, each with `before` and `after`.
        `data`: names of collections that were changed, added or deleted between the runs.
        `sources`: number of hits by source, `before` and `after`.
        `hits`: every hit of either page, in the order of the second page. `before` and `after` are its ranks on the
        pages; None if it is not on the page. `before_fused` and `after_fused` are its ranks in the stored part of the
        fused ranking.
    """
    hits = _compare_hits(before, after)
    return {
        "same": all(one["before"] == one["after"] for one in hits),
        "settings": _changed(before["settings"], after["settings"]),
        "intent": _changed(
            before["intent"], after["intent"], ("by", "kind", "question", "language", "searches", "filter",
            "soft_filter", "aggregate", "sources", "rejected"),
        ),
        "outcome": _changed(_outcome_of(before), _outcome_of(after), tuple(_outcome_of(before))),
        "data": [one["name"] for one in after["scope"] if one not in before["scope"]]
        + [one["name"] for one in before["scope"] if _place(one) not in {_place(other) for other in after["scope"]}],
        "sources": _count_hits(before, after),
        "hits": hits,
    }  # fmt: skip


def _check_reranker(name: str, current: Settings, trace: Json) -> None:
    """Raise BadSetting unless the reranker is "none", "hybrid", the current one or the trace's.

    Otherwise the caller of a replay could make the service open any address or folder.
    """
    then = str((trace.get("settings") or {}).get("reranker") or "none")
    valid = tuple(dict.fromkeys(("none", "hybrid", reranker_label(current.reranker), then)))
    if reranker_label(name) not in valid:
        raise BadSetting(
            f'setting RERANKER: a replay cannot use "{reranker_label(name)[:80]}"; it can use: {join_names(valid)}',
            where="reranker",
            valid=valid,
        )


def _place(collection: Json) -> tuple[str, str]:
    return collection["tenant"], collection["name"]


def _changed(before: Json, after: Json, names: Sequence[str] | None = None) -> dict[str, Json]:
    names = names if names is not None else sorted({*before, *after})
    pairs = {name: (before.get(name), after.get(name)) for name in names}
    return {name: {"before": old, "after": new} for name, (old, new) in pairs.items() if old != new}


def _outcome_of(trace: Json) -> Json:
    """Return {name: value} of what a trace says besides its hits, for comparison; None where it says nothing."""
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


def _count_hits(before: Json, after: Json) -> dict[str, dict[str, int | None]]:
    """Return the number of hits of each source over all its searches, before and after; None if it was not searched."""
    counts: list[dict[str, int]] = []
    for trace in (before, after):
        held: dict[str, int] = {}
        for outcome in trace["outcomes"]:
            if outcome["status"] != "skipped":
                held[outcome["source"]] = held.get(outcome["source"], 0) + outcome["hits"]
        counts.append(held)
    names = dict.fromkeys([*counts[0], *counts[1]])
    return {name: {"before": counts[0].get(name), "after": counts[1].get(name)} for name in names}


def _compare_hits(before: Json, after: Json) -> list[Json]:
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
