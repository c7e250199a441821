"""Measure what each stage and each default contributes: change one setting at a time and ask the same questions.

Every alternative runs in a service of its own over the same stored corpus. Its answers are compared with those of the
settings in force, question by question.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from agent.intent.reader import CascadeReader
from agent.options import rerankers, transforms
from agent.options.fusion import FusionMethod
from agent.service.factory import database_addresses, open_service
from agent.service.service import Service
from agent.settings import Settings
from evals import metrics, provenance
from evals.corpus import Note
from evals.datasets import Dataset
from evals.filter_judge import FilterJudge
from evals.question_runner import QuestionTarget, ask_questions
from evals.run import addressed, filter_judge, ingested, warm_up
from evals.significance import holm_correction, paired_difference
from evals.timing import summary
from retrievers.core.errors import BadRequest, RetrievalError, join_names
from retrievers.core.metadata import Field
from retrievers.postgres.catalogue.catalogue import filterable_fields

Judgement = Literal["earns its place", "costs", "earns and costs", "no difference", "failed"]
"""Judgement of the setting in force: it "earns its place" if the alternative is worse, and "costs" if it is better."""

DECIDING = ("nDCG@10", "R@100", "filter_exact", "route_accuracy", "answer_accuracy")
"""Measures that decide the judgement; the remaining ones would mostly repeat nDCG@10."""

_SIGNIFICANT = 0.05
# A long timeout, so that other load on the machine is not taken for the effect of a setting.
_TIMEOUT_S = 60.0
_VALUES: Mapping[str, Sequence[Any]] = {
    "fusion": get_args(FusionMethod),
    "lexical_weight": (None, 0.2, 0.4, 0.6, 0.8),
    "depth": (50, 100, 200),
    "reranker": ("none", "hybrid"),
    "max_rounds": (1, 3),
    "per_document": (1, 2, 100),
    "min_relevance": (None, 0.1, 0.3, 0.5),
}
_OF_A_MODEL: Mapping[str, Sequence[Any]] = {
    "intent": ("off", "rules", "auto", "llm"),
    "loop_calls": (0, 2),
    "transforms": ((), *((name,) for name in get_args(transforms.TransformName))),
}
_BLENDS = (0.0, 0.3)
STAGES = tuple(sorted({*_VALUES, *_OF_A_MODEL, "rerank_blend", "source", "rank_features"}))
"""Stages that can be varied: settings, and the sources."""
_LONGEST_REASON = 80
_FIELDS_TRIED = 3
"""Maximum number of date fields, and of list fields, that are tried as rank features."""


@dataclass(frozen=True, slots=True)
class Alternative:
    """One change of the settings in force.

    Attributes:
        stage: the setting that changes, or "source".
        settings: the changed settings.
        without: the source that is removed; None for no removal.
    """

    stage: str
    settings: Mapping[str, Any]
    without: str | None = None

    def __str__(self) -> str:
        if self.without is not None:
            return f"without {self.without}"
        return ", ".join(f"{key.upper()}={_shown(value)}" for key, value in self.settings.items())


@dataclass(frozen=True, slots=True)
class _Baseline:
    """A stored dataset and its results under the settings in force."""

    dataset: Dataset
    settings: Settings
    target: QuestionTarget
    filters: FilterJudge
    rows: Sequence[Mapping[str, Any]]


def alternatives(settings: Settings, sources: Sequence[str], fields: Mapping[str, Field]) -> list[Alternative]:
    """Return all changes to try, each of one setting or source: stages switched off, and other values of settings.

    Changes without effect under these settings are left out: model stages without a model, weights of a fusion that is
    not in force.

    Args:
        sources: names of the sources that questions can be routed to.
        fields: fields of the collection; its date and list fields give the rank features.
    """
    # Without a model, "rules" and "auto" are the same.
    reading = ("off", "auto") if settings.intent == "off" else ("off",)
    values = {"intent": reading, **_VALUES, **(_OF_A_MODEL if settings.llm else {})}
    if settings.fusion != "convex":
        del values["lexical_weight"]
    if rerankers.parse_reranker(settings.reranker)[0] not in ("none", "hybrid"):
        values["rerank_blend"] = _BLENDS
    made = [
        Alternative(key, {key: value})
        for key, tried in values.items()
        for value in tried
        if value != getattr(settings, key)
    ]
    if len(sources) > 1:
        made += [Alternative("source", {}, without=name) for name in sources]
    features = [""] if settings.rank_features else _rank_features(fields)
    return made + [Alternative("rank_features", {"rank_features": one}) for one in features]


def _rank_features(fields: Mapping[str, Field]) -> list[str]:
    """Return a rank feature for each of the first date and list fields, whatever the fields mean."""
    dates = [name for name, field in fields.items() if field.type == "date"]
    lists = [name for name, field in fields.items() if field.type == "list" and field.item == "string"]
    named = [f"recency:{name}/365=0.1" for name in dates[:_FIELDS_TRIED]]
    return named + [f"tags:{name}=0.1" for name in lists[:_FIELDS_TRIED]]


async def ablate(
    datasets: Sequence[Dataset],
    settings: Settings,
    note: Note,
    *,
    limit: int | None = None,
    only: Sequence[str] = (),
    keep: Callable[[Mapping[str, Any]], None] | None = None,
) -> dict[str, Any]:
    """Answer the questions of each dataset with the settings in force, and once more with each alternative.

    A failed alternative or dataset becomes an entry with its error; the others continue.

    Args:
        note: receives progress messages.
        limit: maximum number of questions of each dataset, from its start.
        only: stages to try, out of `STAGES`; all if empty.
        keep: receives the results so far after each alternative.
    Returns:
        JSON values: per dataset the `baseline` (averages, latency), and per alternative its averages, its `differences`
            by measure (alternative minus baseline) and its `judgement`.
    Raises:
        BadRequest: `only` names an unknown stage; or no dataset could be used (the first error).
        Unavailable: no dataset could be used (the first error).
    """
    metrics.require_ir_measures()
    if unknown := set(only) - set(STAGES):
        raise BadRequest(
            f"there is no stage {join_names(unknown)}; there are: {join_names(STAGES, len(STAGES))}", where="only"
        )
    found: dict[str, Any] = {
        "datasets": [],
        "settings": provenance.public_settings(settings),
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    errors: list[RetrievalError] = []
    waiting = {name: max(getattr(settings, name), _TIMEOUT_S) for name in ("timeout_s", "source_timeout_s")}
    with database_addresses(settings) as (owner, service):
        patient = settings.model_copy(
            update={**waiting, "database_url": owner, "service_url": service, "chat_days": 0, "trace_days": 0}
        )
        for dataset in datasets:
            entry: dict[str, Any] = {"dataset": dataset.name, "split": dataset.split}
            found["datasets"].append(entry)
            try:
                await _one_dataset(entry, dataset, patient, note, limit, only, lambda: keep(found) if keep else None)
            except RetrievalError as error:
                note(f"{dataset.name}: {error}")
                entry["error"] = str(error)
                errors.append(error)
    if len(errors) == len(datasets):
        raise errors[0]
    return found


async def _one_dataset(
    entry: dict[str, Any],
    dataset: Dataset,
    settings: Settings,
    note: Note,
    limit: int | None,
    only: Sequence[str],
    keep: Callable[[], None],
) -> None:
    """Fill the entry of a dataset: the baseline, then a row per alternative."""
    dataset = replace(dataset, questions=tuple(addressed(dataset.questions[:limit], dataset.name)))
    async with open_service(settings) as service:
        target = await ingested(service, dataset, note)
        (collection,) = target.scopes[dataset.name].collections
        filters = await filter_judge(service, target, dataset.questions)
        note(f"{dataset.name}: measuring the current settings")
        await warm_up(service, dataset, dataset.questions)
        rows = await ask_questions(service, target, dataset, dataset.questions, filters, note)
        entry["versions"] = await provenance.versions(service.database)
        fields = filterable_fields(target.scopes[dataset.name])
        tried = alternatives(settings, list(service.pipeline.sources), fields)
    entry |= {"questions": len(rows), "documents": collection.documents, "chunks": collection.chunks}
    entry["baseline"] = _figures(rows)
    entry["alternatives"] = []
    baseline = _Baseline(dataset, settings, target, filters, rows)
    tried = [one for one in tried if not only or one.stage in only]
    started = time.monotonic()
    for number, one in enumerate(tried, 1):
        row = await _try(baseline, one, note)
        entry["alternatives"].append(row)
        judge(entry["alternatives"])
        took_s = time.monotonic() - started
        left_s = took_s / number * (len(tried) - number)
        note(f"{dataset.name}: {number} of {len(tried)}, {one}: {_in_short(row)} (about {left_s / 60:.0f} min left)")
        keep()


async def _try(baseline: _Baseline, alternative: Alternative, note: Note) -> dict[str, Any]:
    """Return the results of an alternative with its differences from the baseline, or its error."""
    dataset = baseline.dataset
    row: dict[str, Any] = {"stage": alternative.stage, "change": str(alternative)}
    for key in alternative.settings:
        row["in_force"] = _shown(getattr(baseline.settings, key))
    try:
        changed = Settings.model_validate({**dict(baseline.settings), **alternative.settings})
        async with open_service(changed) as opened:
            service = _without(opened, alternative.without)
            await warm_up(service, dataset, dataset.questions)
            rows = await ask_questions(service, baseline.target, dataset, dataset.questions, baseline.filters, note)
    except RetrievalError as error:
        return {**row, "error": str(error)}
    except Exception as error:  # one faulty alternative must not lose hours of measurements
        return {**row, "error": f"{type(error).__name__}: {error}"}
    return {**row, **_figures(rows), "differences": _differences(baseline.rows, rows)}


def _without(service: Service, name: str | None) -> Service:
    """Return the service without one source; the question reader never chooses that source."""
    if name is None:
        return service
    pipeline = service.pipeline
    kept = {one: source for one, source in pipeline.sources.items() if one != name}
    reader = pipeline.reader
    if isinstance(reader, CascadeReader):
        reader = reader.with_sources({one: source.card for one, source in kept.items()}, withheld=frozenset({name}))
        reader = replace(reader, columns=None if name == "sql" else reader.columns)
    return replace(service, pipeline=replace(pipeline, sources=kept, reader=reader))


def _figures(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {
        "metrics": metrics.averages(row["metrics"] for row in rows),
        "latency_ms": summary([row["latency_ms"] for row in rows]),
        "not_answered": sum(row["status"] == "error" for row in rows),
    }


def _differences(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return by measure the mean difference `after` - `before`, and the number of questions with more and with less.

    Measures that apply to no question are left out.
    """
    found: dict[str, Any] = {}
    for name in metrics.NAMES:
        both = [(one["metrics"][name], two["metrics"][name]) for one, two in zip(before, after, strict=True)]
        pairs = [(one, two) for one, two in both if one is not None and two is not None]
        if not pairs:
            continue
        more, less = sum(two > one for one, two in pairs), sum(two < one for one, two in pairs)
        found[name] = {
            **paired_difference(*map(list, zip(*pairs, strict=True))),
            "questions": len(pairs),
            "more": more,
            "less": less,
        }
    return found


def judge(rows: Sequence[dict[str, Any]]) -> None:
    """Add a judgement to every alternative of a dataset, by its deciding measures, all tested together.

    Of a hundred tests, five are below 0.05 by chance. Holm's correction bounds the probability of any such false
    judgement on the dataset by 0.05. A measure that is equal for every question is not tested.
    """
    tests = [
        made
        for row in rows
        for name, made in row.get("differences", {}).items()
        if name in DECIDING and made["more"] + made["less"]
    ]
    for made, adjusted in zip(tests, holm_correction([one["p"] for one in tests]), strict=True):
        made["p_adjusted"] = adjusted
    for row in rows:
        row["judgement"] = _judgement(row)


def _judgement(row: Mapping[str, Any]) -> Judgement:
    if "error" in row:
        return "failed"
    significant = [one["mean"] for one in row["differences"].values() if one.get("p_adjusted", 1.0) < _SIGNIFICANT]
    earns, costs = any(mean < 0 for mean in significant), any(mean > 0 for mean in significant)
    if earns and costs:
        return "earns and costs"
    return "earns its place" if earns else "costs" if costs else "no difference"


def _in_short(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return f"failed: {row['error']}"
    changed = (f"{name} {row['differences'][name]['mean']:+.3f}" for name in DECIDING if name in row["differences"])
    return ", ".join(changed) or "no measure applies"


def _shown(value: Any) -> str:
    return "unset" if value in (None, "", ()) else ",".join(value) if isinstance(value, tuple) else str(value)


def has_failed(found: Mapping[str, Any]) -> bool:
    """Return whether a dataset or an alternative could not be measured."""
    return any("error" in one for entry in found["datasets"] for one in (entry, *entry.get("alternatives", ())))


def described(found: Mapping[str, Any]) -> Iterator[tuple[str, Sequence[str], Sequence[Sequence[str]]]]:
    """Yield a table per dataset: title, columns, and rows for the settings in force and for each alternative."""
    for entry in found["datasets"]:
        title = f"{entry['dataset']} ({entry['split']})"
        if "baseline" not in entry:
            yield title, ("not measured",), [(entry["error"],)]
            continue
        base = entry["baseline"]
        names = [name for name in DECIDING if base["metrics"][name] is not None]
        title += f": {entry['questions']} questions; each change against the current settings, * significant"
        columns = ("change", *names, f"95 % of {names[0]}" if names else "", "p", "p50 ms", "the setting in force")
        figures = [f"{base['metrics'][name]:.3f}" for name in names]
        rows = [("(in force)", *figures, "", "", f"{base['latency_ms']['p50']:.0f}", "")]
        yield title, columns, rows + [_described(row, names) for row in entry["alternatives"]]


def _described(row: Mapping[str, Any], names: Sequence[str]) -> tuple[str, ...]:
    if "error" in row:
        return (row["change"], *("-" for _ in names), "", "", "", f"failed: {row['error']}"[:_LONGEST_REASON])
    made = [row["differences"][name] for name in names]
    cells = [f"{one['mean']:+.3f}{'*' if one.get('p_adjusted', 1.0) < _SIGNIFICANT else ' '}" for one in made]
    first = made[0] if made else None
    spread = f"{first['low']:+.3f} to {first['high']:+.3f}" if first else ""
    p = f"{first['p']:.4f}" if first else ""
    return (row["change"], *cells, spread, p, f"{row['latency_ms']['p50']:.0f}", row["judgement"])
