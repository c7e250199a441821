"""The commands over written runs: `signalbox eval compare` and `signalbox eval report`."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from evals.tables import show_table
from retrievers.core.errors import BadRequest

Json = Mapping[str, Any]
_LONGEST_TEXT = 100
_LONGEST_VALUE = 60


def compare(
    before: Annotated[Path, typer.Argument(metavar="A.json", help="a run of `signalbox eval run --out`")],
    after: Annotated[Path, typer.Argument(metavar="B.json", help="a later run of the same dataset")],
    fail_on_regression: Annotated[
        bool,
        typer.Option(
            "--fail-on-regression",
            help="exit 1 if a headline measure is significantly lower in B (p < 0.01, two-sided, Holm correction)",
        ),
    ] = False,
    questions: Annotated[int, typer.Option(min=0, help="number of questions to list, largest changes first")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="print one JSON document on stdout and nothing else")] = False,
) -> int:
    """Compare two runs over the same questions: differences, intervals and significance.

    Intervals are 95 %, by bootstrap over questions; p comes from a paired randomisation test. The headline measures are
    nDCG@10, R@100, filter_exact, route_accuracy, answer_accuracy, answer_in_hits, answer_match, judged, supported and
    refused_right; they are tested over all questions and by class and language; a loss in fewer than 8 questions never
    reaches p < 0.01. Runs over different questions are compared where they overlap.
    """
    from agent.serve.cli.output import print_note, write_json
    from evals.compare import compare as compared
    from evals.run_files import load_run

    found = compared(load_run(before), load_run(after))
    if as_json:
        write_json(found)
    else:
        _show(found, questions)
    for line in regressions(found):
        print_note(line)
    return 1 if fail_on_regression and found["regressions"] else 0


def report(
    run: Annotated[Path, typer.Argument(metavar="RUN.json", help="a run of `signalbox eval run --out`")],
    other: Annotated[
        Path | None,
        typer.Argument(
            metavar="[OTHER.json]", help="a later run of the same dataset, to show with its differences from RUN"
        ),
    ] = None,
    html: Annotated[Path, typer.Option("--html", metavar="FILE", help="file to write the page to")] = Path(
        "report.html"
    ),
) -> int:
    """Write a run as one self-contained HTML page: measures, failures, plots, settings.

    With OTHER the page shows OTHER, and its differences from RUN as `signalbox eval compare RUN OTHER` reports them.
    """
    from agent.serve.cli.output import print_note
    from evals.compare import compare as compared
    from evals.report import page
    from evals.run_files import load_run

    first = load_run(run)
    shown = first if other is None else load_run(other)
    text = page(shown, None if other is None else compared(first, shown))
    try:
        html.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadRequest(f"--html {html}: the file cannot be written: {error.strerror}", where="--html") from error
    print_note(f"written to {html}")
    return 0


def regressions(found: Json) -> Iterator[str]:
    """Yield a line for every significant loss of a comparison."""
    for one in found["regressions"]:
        where = "" if one["kind"] == "all" else f"{one['kind']} {one['group']}: "
        mostly = f"; {one['share']:.0%} of it in class {one['mostly_in']}" if one.get("mostly_in") else ""
        figures = f"{one['measure']} {one['before']:.3f} to {one['after']:.3f}, p {shown_p(one['p_holm'])}"
        yield f"regression: {where}{figures}, {one['lost']} of {one['questions']} questions lost{mostly}"


def shown_p(value: float | None) -> str:
    """Return a p-value for display; a dash for None."""
    if value is None:
        return "-"
    return f"{value:.4f}" if value < 0.01 else f"{value:.2f}"


def _show(found: Json, questions: int) -> None:
    """Print a comparison."""
    print(f"A: {_described(found['before'])}\nB: {_described(found['after'])}")
    for line in _coverage(found):
        print(line)
    rows = [_row(name, one) for name, one in found["measures"].items()]
    columns = ("measure", "questions", "A", "B", "B - A", "95 % interval", "p", "p (Holm)", "won", "lost", "same")
    show_table(f"{found['questions']} questions in both runs", columns, rows)
    rows = [
        _row(f"{kind} {group}: {name}", one)
        for kind, groups in found["groups"].items()
        for group, measures in groups.items()
        for name, one in measures.items()
        if "p_holm" in one and (one["won"] or one["lost"])
    ]
    if rows:
        show_table("differences of the headline measures", columns, rows)
    if found["verdicts"]:
        rows = [(name, str(old), str(new)) for name, (old, new) in found["verdicts"].items()]
        show_table("filters read", ("verdict", "A", "B"), rows)
        for move in found["verdict_moves"]:
            print(f"{move['questions']} filters: {move['before']} in A, {move['after']} in B")
    for name, (old, new) in found["degraded"].items():
        print(f"answers with {name}: {old} in A, {new} in B")
    for name, (old, new) in found["tokens"].items():
        print(f"{name.replace('_', ' ')}: {old:,} in A, {new:,} in B")
    time = found["latency_ms"]
    print(f"latency: p50 {time['before']['p50']:.1f} to {time['after']['p50']:.1f} ms,", end=" ")
    print(f"p95 {time['before']['p95']:.1f} to {time['after']['p95']:.1f} ms")
    _show_changed(found["changed"])
    _show_moved(found, questions)
    if not found["moved"]:
        print("no headline measure differs for any question")
    elif not found["regressions"]:
        print("no headline measure is significantly lower (p < 0.01 after Holm)")


def _coverage(found: Json) -> Iterator[str]:
    for which, name in (("only_before", "A"), ("only_after", "B")):
        if found[which]:
            yield f"{len(found[which])} questions are only in {name} and are left out"
    if found["relabelled"]:
        yield f"{len(found['relabelled'])} questions have different labels in B: {', '.join(found['relabelled'][:5])}"


def _described(run: Json) -> str:
    filters = "" if run["filters"] == "none" else f", {run['filters']} filters"
    counts = f"{run['questions']:,} questions, {run['documents']:,} documents"
    return f"{run['dataset']} ({run['split']}{filters}), {counts}, {run['started_at']}"


def _row(name: str, one: Json) -> tuple[str, ...]:
    return (
        name,
        str(one["questions"]),
        f"{one['before']:.3f}",
        f"{one['after']:.3f}",
        f"{one['difference']:+.3f}",
        f"{one['low']:+.3f} to {one['high']:+.3f}",
        shown_p(one["p"]),
        shown_p(one.get("p_holm")),
        str(one["won"]),
        str(one["lost"]),
        str(one["same"]),
    )


def _show_changed(changed: Json) -> None:
    for what, values in changed.items():
        for key, (old, new) in values.items():
            print(f"{what}: {key} {_short(old)} in A, {_short(new)} in B")


def _show_moved(found: Json, questions: int) -> None:
    from agent.serve.cli.output import terminal_text

    for one in found["moved"][:questions]:
        moves = ", ".join(f"{name} {old:.2f} to {new:.2f}" for name, (old, new) in one["moves"].items())
        klass = f", {one['class']}" if one["class"] else ""
        print(terminal_text(f"\n{one['id']}{klass}: {_short(one['text'], _LONGEST_TEXT)}\n   {moves}"))
        for name, run in (("A", "before"), ("B", "after")):
            print(terminal_text(f"   {name}: {_side(one[run])}"))
            if one[run]["text_answer"] is not None:
                print(terminal_text(f"      {_short(one[run]['text_answer'], _LONGEST_TEXT)}"))
    left = len(found["moved"]) - questions
    if left > 0:
        print(f"\n{left} more questions differ (--questions, or --json for all)")
    tenant = found["after"]["tenant"]
    if found["moved"] and questions:
        print(f"\nto see how an answer was made: signalbox explain TRACE --tenant {tenant}")


def _side(side: Json) -> str:
    from evals.run_files import in_words

    verdict = f" ({side['filter_verdict']})" if side["filter_verdict"] else ""
    wanted = in_words(side["filter"])
    found = f"first right document at {side['first_relevant']}" if side["first_relevant"] else "no right document"
    if side["table"] is not None:
        found = f"calculated {_short(side['table'])}"
    sources = ", ".join(side["sources"]) or "none"
    return f"{side['status']}; {found}; filter: {wanted}{verdict}; sources: {sources}; trace {side['trace_id']}"


def _short(value: Any, longest: int = _LONGEST_VALUE) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= longest else text[: longest - 1] + "…"
