"""Compare two runs over the same questions: differences, intervals and tests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from evals.metrics import NAMES
from evals.run_files import HEADLINE, VERDICTS, QuestionRow, RunFile, changed, groups_of
from evals.significance import holm_correction, paired_difference, smallest_p
from evals.timing import summary
from retrievers.core.errors import BadRequest

Json = dict[str, Any]
Pair = tuple[QuestionRow, QuestionRow]

SIGNIFICANT = 0.01
"""Significance level for a p-value corrected by Holm."""
_LEAST = 1e-9
_SHOWN_DOCUMENTS = 5


def compare(before: RunFile, after: RunFile) -> Json:
    """Compare two runs over the questions of both; a difference is `after` minus `before`.

    Only the headline measures decide whether something is worse; each stands for one kind of failure. Their p-values
    are corrected by Holm: those over all questions as one family, those of all groups as another. Otherwise many tests
    at 0.01 would soon find a loss by chance. The p-values of other measures are not corrected. A loss in fewer than
    eight questions never reaches 0.01.

    Returns:
        JSON values: `questions` in both, `only_before` and `only_after` (ids), `relabelled` (ids with other labels);
            `measures`, and the same by `class` and `language` in `groups`; `regressions`; `verdicts` on filters and
            `verdict_moves`; `degraded` answers by what failed; `latency_ms`; `changed` settings, prompts, versions and
            corpus; `tokens` of all answers; and `moved`, the questions whose headline measures differ, the largest
            change first.
    Raises:
        BadRequest: the runs are of different datasets or have no common question.
    """
    pairs = _pairs(before, after)
    known = {one.id for one, _ in pairs}
    measures = _measured(pairs)
    groups = _groups(pairs)
    _correct([figures for name, figures in measures.items() if name in HEADLINE])
    _correct([one[name] for some in groups.values() for one in some.values() for name in HEADLINE if name in one])
    return {
        "before": _described(before),
        "after": _described(after),
        "questions": len(pairs),
        "only_before": [row.id for row in before.questions if row.id not in known],
        "only_after": [row.id for row in after.questions if row.id not in known],
        "relabelled": [one.id for one, two in pairs if one.labels() != two.labels()],
        "measures": measures,
        "groups": groups,
        "regressions": [*_regressions(pairs, measures, groups)],
        "verdicts": _verdicts(pairs),
        "verdict_moves": _verdict_moves(pairs),
        "degraded": _degraded(pairs),
        "latency_ms": _latency(pairs),
        "tokens": _tokens(pairs),
        "changed": _changed(before, after),
        "moved": _moved(pairs),
    }


def _pairs(before: RunFile, after: RunFile) -> list[Pair]:
    """Return the questions of both runs with equal id and text, in the order of the second run."""
    is_other = before.form != after.form or (before.form != "file" and before.dataset != after.dataset)
    if is_other:
        raise BadRequest(
            f"the runs are of different datasets: {before.dataset} ({before.form}) and {after.dataset} ({after.form})",
            where="run",
        )
    first = {row.id: row for row in before.questions}
    pairs = [(first[row.id], row) for row in after.questions if row.id in first and first[row.id].text == row.text]
    if not pairs:
        raise BadRequest("the runs have no questions in common", where="run")
    return pairs


def _described(run: RunFile) -> Json:
    return {
        "dataset": run.dataset,
        "split": run.split,
        "filters": run.filters,
        "questions": len(run.questions),
        "documents": run.documents,
        "started_at": run.started_at,
        "tenant": run.tenant,
    }


def _measured(pairs: Sequence[Pair]) -> dict[str, Json]:
    """Return the figures of every measure that applies to some question in both runs."""
    found = {}
    for name in NAMES:
        values = _values(pairs, name)
        if not values:
            continue
        before, after = [one for one, _ in values], [two for _, two in values]
        paired = paired_difference(before, after)
        found[name] = {
            "questions": len(values),
            "before": sum(before) / len(before),
            "after": sum(after) / len(after),
            "difference": paired["mean"],
            "low": paired["low"],
            "high": paired["high"],
            "p": paired["p"],
            "won": sum(two - one > _LEAST for one, two in values),
            "lost": sum(one - two > _LEAST for one, two in values),
            "same": sum(abs(one - two) <= _LEAST for one, two in values),
        }
    return found


def _values(pairs: Sequence[Pair], name: str) -> list[tuple[float, float]]:
    """Return (before, after) of a measure for every question to which it applies in both runs."""
    values = ((one.metrics.get(name), two.metrics.get(name)) for one, two in pairs)
    return [(old, new) for old, new in values if old is not None and new is not None]


def _groups(pairs: Sequence[Pair]) -> dict[str, dict[str, dict[str, Json]]]:
    """Return figures by "class" or "language", its value, and measure; the labels are those of the second run."""
    first = {two.id: one for one, two in pairs}
    return {
        kind: {name: _measured([(first[row.id], row) for row in rows]) for name, rows in some.items()}
        for kind, some in groups_of([two for _, two in pairs]).items()
    }


def _correct(family: Sequence[Json]) -> None:
    """Add `p_holm` to the figures of one family of tests.

    A test with too few differing questions to ever reach significance gets None and is not counted in the family,
    because it cannot find a loss by chance.
    Source: Tarone, Biometrics 46, 1990.
    """
    able = [one for one in family if smallest_p(one["won"] + one["lost"]) < SIGNIFICANT]
    for figures in family:
        figures["p_holm"] = None
    for figures, corrected in zip(able, holm_correction([one["p"] for one in able]), strict=True):
        figures["p_holm"] = corrected


def _regressions(
    pairs: Sequence[Pair], measures: dict[str, Json], groups: dict[str, dict[str, dict[str, Json]]]
) -> Iterable[Json]:
    """Yield the headline measures that are significantly lower in the second run than in the first.

    First those over all questions, each with the class of questions that lost most; then those of each class and each
    language.

    Args:
        measures: result of `_measured` for all questions.
        groups: result of `_groups`.
    """
    for name in HEADLINE:
        if name in measures and _is_worse(measures[name]):
            yield {"measure": name, "kind": "all", "group": None, **_figures(measures[name]), **_mostly(pairs, name)}
    for kind, some in groups.items():
        for group, found in some.items():
            for name in HEADLINE:
                if name in found and _is_worse(found[name]):
                    yield {"measure": name, "kind": kind, "group": group, **_figures(found[name])}


def _is_worse(figures: Json) -> bool:
    return is_certain(figures) and bool(figures["difference"] < 0)


def is_certain(figures: Mapping[str, Any]) -> bool:
    """Return whether a difference is significant: by `p_holm` for a headline measure, otherwise by `p`."""
    p = figures["p_holm"] if "p_holm" in figures else figures["p"]
    return p is not None and bool(p < SIGNIFICANT)


def _figures(figures: Json) -> Json:
    return {name: figures[name] for name in ("before", "after", "difference", "p_holm", "lost", "questions")}


def _mostly(pairs: Sequence[Pair], name: str) -> Json:
    """Return `mostly_in`, the class with the largest part of a loss, and its `share` in [0, 1].

    Both are None if no question with a class lost.
    """
    lost: dict[str, float] = {}
    whole = 0.0
    for one, two in pairs:
        fall = (one.metrics.get(name) or 0.0) - (two.metrics.get(name) or 0.0)
        if fall > _LEAST:
            whole += fall
            if two.klass is not None:
                lost[two.klass] = lost.get(two.klass, 0.0) + fall
    if not lost:
        return {"mostly_in": None, "share": None}
    klass, fall = max(lost.items(), key=lambda one: one[1])
    return {"mostly_in": klass, "share": fall / whole}


def _verdicts(pairs: Sequence[Pair]) -> Json:
    """Return by verdict the number of filters in [before, after]."""
    before = Counter(one.filter_verdict for one, _ in pairs)
    after = Counter(two.filter_verdict for _, two in pairs)
    return {name: [before[name], after[name]] for name in VERDICTS if before[name] or after[name]}


def _verdict_moves(pairs: Sequence[Pair]) -> list[Json]:
    moves = Counter(
        (one.filter_verdict, two.filter_verdict)
        for one, two in pairs
        if one.filter_verdict and two.filter_verdict and one.filter_verdict != two.filter_verdict
    )
    return [{"before": old, "after": new, "questions": count} for (old, new), count in moves.most_common()]


def _degraded(pairs: Sequence[Pair]) -> Json:
    """Return by degradation the number of answers in [before, after]; a failed question counts as "error"."""
    before, after = Counter(_shortfalls(one for one, _ in pairs)), Counter(_shortfalls(two for _, two in pairs))
    return {name: [before[name], after[name]] for name in sorted({*before, *after})}


def _shortfalls(rows: Iterable[QuestionRow]) -> Iterator[str]:
    for row in rows:
        yield from row.degraded
        if row.status == "error":
            yield "error"


def _latency(pairs: Sequence[Pair]) -> Json:
    old, new = [one.latency_ms for one, _ in pairs], [two.latency_ms for _, two in pairs]
    return {"before": summary(old), "after": summary(new), "difference": paired_difference(old, new)}


def _tokens(pairs: Sequence[Pair]) -> Json:
    """Return by kind of token the sum over all answers in [before, after]; {} if neither run asked for answers."""
    found = {}
    for name in ("prompt_tokens", "completion_tokens"):
        counts = [[getattr(row, name) for row in rows] for rows in zip(*pairs, strict=True)]
        if any(count is not None for some in counts for count in some):
            found[name] = [sum(count or 0 for count in some) for some in counts]
    return found


def _changed(before: RunFile, after: RunFile) -> Json:
    held = ("split", "filters", "answers", "at_once", "tenant", "collections", "documents", "chunks")
    return {
        "settings": changed(before.settings, after.settings),
        "prompts": changed(before.prompts, after.prompts),
        "versions": changed(before.versions, after.versions),
        "run": changed(*({name: getattr(run, name) for name in held} for run in (before, after))),
    }


def _moved(pairs: Sequence[Pair]) -> list[Json]:
    """Return the questions whose headline measures differ, the largest change first."""
    found = []
    for one, two in pairs:
        moves = {
            name: [old, new] for name in HEADLINE for old, new in _values([(one, two)], name) if abs(new - old) > _LEAST
        }
        if moves:
            found.append(
                {
                    "id": two.id,
                    "text": two.text,
                    "class": two.klass,
                    "language": two.language,
                    "moves": moves,
                    "before": _side(one),
                    "after": _side(two),
                }
            )
    return sorted(found, key=lambda row: (-sum(abs(new - old) for old, new in row["moves"].values()), row["id"]))


def _side(row: QuestionRow) -> Json:
    """Return one run's result for a question."""
    ranks = [rank for rank, document in enumerate(row.documents, 1) if document in row.relevant]
    return {
        "trace_id": row.trace_id,
        "status": row.status,
        "filter": row.intent_filter,
        "filter_verdict": row.filter_verdict,
        "sources": list(row.sources),
        "documents": list(row.documents[:_SHOWN_DOCUMENTS]),
        "first_relevant": ranks[0] if ranks else None,
        "table": [list(line) for line in row.table] if row.table is not None else None,
        "text_answer": row.text_answer,
    }
