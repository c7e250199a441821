"""Render the sections of a report, in the order of the page."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from evals import metrics, stage_rankings
from evals.compare import is_certain
from evals.report import plots
from evals.report.markup import Markup, element, joined, table
from evals.run_files import QuestionRow, RunFile, groups_of
from evals.timing import summary

Json = Mapping[str, Any]

NAMES = {
    "nDCG@10": ("Ranking", "nDCG@10: are the right documents first?"),
    "R@10": ("Recall at 10", "share of the right documents among the first 10"),
    "R@100": ("Recall", "share of the right documents among the first 100"),
    "RR@10": ("Reciprocal rank", "one over the rank of the first right document"),
    "AP@100": ("Average precision", "over the first 100"),
    "hit@1": ("First hit right", "the first document is a right one"),
    "filter_exact": ("Filters right", "the question's conditions and no others"),
    "filter_f1": ("Filter overlap", "F1 of the documents that the filter admits"),
    "route_accuracy": ("Right sources", "documents, metadata, web or nothing"),
    "answer_accuracy": ("Right values", "calculated values that are right"),
    "answer_in_hits": ("Answer found", "the first 10 passages contain the expected words"),
    "answer_match": ("Answers right", "the text of the answer has the expected words and numbers"),
    "judged": ("Judged right", "a model's grade of the answers: 1, 0.5 or 0"),
    "supported": ("Supported", "share of the answer's sentences that the passages support"),
    "citation_precision": ("Citations right", "share of the cited documents that are right ones"),
    "citation_recall": ("Citations complete", "share of the right documents that are cited"),
    "refused_right": ("Rightly not answered", "questions that the documents do not answer"),
}
_COLUMNS = (
    "nDCG@10", "hit@1", "R@100", "filter_exact", "route_accuracy", "answer_accuracy", "answer_in_hits", "answer_match",
    "judged", "supported", "citation_precision", "citation_recall", "refused_right",
)  # fmt: skip
_DEPTHS = (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
_TONES = {
    "right": "good", "none": "good2", "partial": "soft", "missing": "warn", "wrong": "bad", "invented": "bad2",
}  # fmt: skip
_VERDICTS = {
    "right": "right", "none": "rightly none", "partial": "partial", "missing": "missing", "wrong": "wrong",
    "invented": "made up",
}  # fmt: skip
_STAGES = {stage_rankings.FUSED: "fused", stage_rankings.FINAL: "as answered"}
_GOOD, _FAIR = 0.9, 0.7


def cards(run: RunFile, found: Json | None) -> Markup:
    """Return the headline measures and the latency as cards, with differences if two runs are compared."""
    parts = []
    for name in _COLUMNS:
        if name not in run.measures:
            continue
        value = run.metrics[name] or 0.0
        count = sum(row.metrics.get(name) is not None for row in run.questions)
        parts.append(_card(NAMES[name][0], f"{value:.3f}", NAMES[name][1], f"{count} questions", _delta(found, name)))
    time = run.latency_ms
    delta = None
    if found is not None:
        moved = time["p50"] - found["latency_ms"]["before"]["p50"]
        delta = element("p", f"{moved:+.0f} ms p50", class_="delta")
    latency = _card("Latency", joined(f"{time['p50']:.0f}", element("small", " ms")), "median response time",
                    f"95 % within {time['p95']:.0f} ms", delta)  # fmt: skip
    return element("div", parts, latency, class_="cards")


def _card(name: str, value: object, what: str, count: str, delta: Markup | None) -> Markup:
    return element(
        "div",
        element("p", name, class_="name"),
        element("p", value, class_="value"),
        delta,
        element("p", what, class_="what"),
        element("p", count, class_="of"),
        class_="tile",
    )


def _delta(found: Json | None, name: str) -> Markup | None:
    if found is None or name not in found["measures"]:
        return None
    one = found["measures"][name]
    if not one["won"] and not one["lost"]:
        return element("p", "no difference", class_="delta same")
    text = f"{one['difference']:+.3f}"
    return element(
        "p", text, element("small", f" ({one['low']:+.3f} to {one['high']:+.3f})"), class_=f"delta {tone(one)}"
    )


def tone(one: Json) -> str:
    """Return "good" or "bad" if a difference is significant, otherwise ""."""
    return ("good" if one["difference"] > 0 else "bad") if is_certain(one) else ""


def verdicts(run: RunFile) -> Markup | None:
    """Return bars of the verdicts on filters and values; None if neither is judged."""
    parts = []
    if run.verdicts:
        held = [(_VERDICTS[name], count, _TONES[name]) for name, count in run.verdicts.items() if count]
        parts.append(joined(element("h3", "Filters"), plots.stacked("filters by how they were read", held)))
    judged = [row for row in run.questions if row.metrics.get("answer_accuracy") is not None]
    if judged:
        right = sum(row.metrics["answer_accuracy"] == 1 for row in judged)
        none = sum(row.metrics["answer_accuracy"] == 0 and row.table is None for row in judged)
        held = [
            ("right", right, "good"),
            ("not calculated", none, "warn"),
            ("wrong", len(judged) - right - none, "bad"),
        ]
        parts.append(joined(element("h3", "Values"), plots.stacked("values by how they were calculated", held)))
    return element("div", (element("div", one) for one in parts), class_="grid") if parts else None


def groups(run: RunFile) -> Markup:
    """Return a table of the measures by class and by language."""
    names = [name for name in _COLUMNS if name in run.measures]
    rows: list[list[object]] = [["all questions", len(run.questions), *_cells(run.questions, names)]]
    for kind, some in groups_of(run.questions).items():
        label = "language " if kind == "language" else ""
        rows += [[f"{label}{name}", len(held), *_cells(held, names)] for name, held in some.items()]
    return table(["", "questions", *(NAMES[name][0] for name in names)], rows, class_="heat")


def _cells(rows: Sequence[QuestionRow], names: Sequence[str]) -> list[object]:
    means = metrics.averages(row.metrics for row in rows)
    return [_cell(means[name]) for name in names]


def _cell(value: float | None) -> Markup:
    if value is None:
        return element("span", "–", class_="none")
    level = "good" if value >= _GOOD else "fair" if value >= _FAIR else "bad"
    return joined(f"{value:.3f}", plots.bar(value, level))


def ranking(run: RunFile) -> Markup | None:
    """Return recall by depth and the gain of each stage; None if no question has relevant documents."""
    rows = [row for row in run.questions if row.relevant]
    if not rows:
        return None
    held = _stages_of(rows)
    lines = {}
    for name, some in held.items():
        count = f" ({len(some)} questions)" if len(some) < len(rows) else ""
        lines[f"{_STAGES.get(name, name)}{count}"] = _recall(some, name)
    if not held:
        lines = {_STAGES[stage_rankings.FINAL]: _recall(rows, None)}
    elif held.get(stage_rankings.FUSED) == held.get(stage_rankings.FINAL) and _is_untouched(rows):
        # The two lines would cover each other.
        *_, (fused, curve), (final, _) = lines.items()
        del lines[fused], lines[final]
        lines[f"{_STAGES[stage_rankings.FUSED]}, {final}"] = curve
    depth = plots.curves("recall by depth", "documents from the top", lines)
    parts = [element("div", element("h3", "Recall by depth"), depth)]
    if held:
        parts.append(element("div", element("h3", "What each stage adds"), _added(held)))
    return element("div", parts, class_="grid")


def _stages_of(rows: Sequence[QuestionRow]) -> dict[str, list[QuestionRow]]:
    """Return the questions that each stage took part in, sources first."""
    names = dict.fromkeys(name for row in rows for name in row.stages)
    ordered = [name for name in sorted(names) if name not in _STAGES] + [name for name in _STAGES if name in names]
    return {name: [row for row in rows if name in row.stages] for name in ordered}


def _is_untouched(rows: Sequence[QuestionRow]) -> bool:
    """Return whether every relevant document has the same rank in the answers as in the fused ranking."""
    return all(
        row.stages[stage_rankings.FUSED].ranks == row.stages[stage_rankings.FINAL].ranks
        for row in rows
        if stage_rankings.FUSED in row.stages
    )


def _recall(rows: Sequence[QuestionRow], stage: str | None) -> list[tuple[float, float]]:
    """Return mean recall at each depth, of a stage, or of the answers if `stage` is None."""

    def share(row: QuestionRow, depth: int) -> float:
        if stage is not None:
            ranks: Sequence[int] = row.stages[stage].ranks
        else:
            ranks = [rank for rank, document in enumerate(row.documents, 1) if document in row.relevant]
        return sum(rank <= depth for rank in ranks) / len(row.relevant)

    return [(depth, sum(share(row, depth) for row in rows) / len(rows)) for depth in _DEPTHS]


def _added(held: Mapping[str, Sequence[QuestionRow]]) -> Markup:
    """Return nDCG@10 of each stage and the gain of the next stage, on the same questions."""
    rows = []
    names = list(held)
    for name in names:
        after = stage_rankings.FUSED if name not in _STAGES else stage_rankings.FINAL
        some = [row for row in held[name] if after in row.stages]
        own = _mean([row.stages[name].ndcg for row in held[name]])
        gain: object = element("span", "–", class_="none")
        if name != stage_rankings.FINAL and some:
            moved = _mean([row.stages[after].ndcg - row.stages[name].ndcg for row in some])
            gain = f"{moved:+.3f}"
        rows.append([_STAGES.get(name, f"{name} alone"), len(held[name]), _cell(own), gain])
    note = (
        "Each line covers the questions in which the stage took part. The last column is the gain of the next stage on "
        "these questions: fusion over a single source, reranking and paging over fusion."
    )
    return joined(
        table(["stage", "questions", "nDCG@10", "gain of the next stage"], rows), element("p", note, class_="why")
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def latency(run: RunFile) -> Markup:
    """Return a histogram of the latencies, and a table of the time by stage."""
    values = [max(row.latency_ms, 0.0) for row in run.questions]
    marks = {f"{name} {run.latency_ms[name]:.0f} ms": run.latency_ms[name] for name in ("p50", "p95")}
    parts = [
        element(
            "div", element("h3", "Answers by response time"), plots.histogram("answers by response time", values, marks)
        )
    ]
    elapsed: dict[str, list[float]] = {}
    for row in run.questions:
        for stage, took in row.elapsed_ms.items():
            elapsed.setdefault(stage, []).append(took)
    if elapsed:
        figures = {stage: (summary(some), len(some)) for stage, some in elapsed.items()}
        most = max(one["mean"] for one, _ in figures.values()) or 1.0
        rows = [
            [stage, joined(f"{one['mean']:.1f}", plots.bar(one["mean"] / most, "s0")), f"{one['p95']:.1f}", count]
            for stage, (one, count) in figures.items()
        ]
        times = table(["stage", "mean ms", "p95 ms", "questions"], rows)
        parts.append(element("div", element("h3", "Time by stage"), times))
    return element("div", parts, class_="grid")


def trust(run: RunFile) -> Markup | None:
    """Return how often conditions are right by their probability; None if that is not judged."""
    stated = [(one.probability, one.right) for row in run.questions for one in row.stated if one.right is not None]
    if not stated:
        return None
    right = sum(held for _, held in stated) / len(stated)
    sure = sum(probability for probability, _ in stated) / len(stated)
    text = (
        f"{len(stated)} conditions were read from questions, with a mean probability of {sure:.2f}; {right:.0%} of "
        "them are in the labels. On the dashed line, the probability equals the share of right conditions."
    )
    plot = plots.calibration("calibration of conditions", stated)
    return element("div", element("div", plot), element("p", text), class_="grid")


def settings(run: RunFile) -> Markup:
    """Return tables of the run's settings, versions and prompt digests."""
    held = [
        ("Settings", run.settings),
        ("Versions", run.versions),
        ("Prompt digests", run.prompts),
    ]
    return joined(
        element(
            "details",
            element("summary", f"{title} ", element("span", len(values), class_="count")),
            table(["name", "value"], [[name, _value(value)] for name, value in values.items()], class_="plain"),
            class_="card",
        )
        for title, values in held
    )


def _value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def shown_moment(moment: str) -> str:
    """Return an ISO 8601 time for display; other text unchanged."""
    with suppress(ValueError):
        return f"{datetime.fromisoformat(moment):%d %B %Y, %H:%M %Z}"
    return moment
