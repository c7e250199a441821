import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from evals.cli import app
from evals.compare import compare
from evals.metrics import ranking_scores
from evals.report import page
from evals.run_files import load_run
from retrievers.core.errors import BadRequest

Write = Callable[..., Path]
TEAM = {"type": "eq", "key": "team", "value": "red"}


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["compare", *map(str, arguments)], standalone_mode=False)


def ranked(id: str, place: int, **given: Any) -> dict[str, Any]:
    """A question whose one right document stands at a place of ten, judged as `eval run` does."""
    documents = [f"d{rank}" for rank in range(1, 11)]
    relevant = {documents[place - 1]: 1}
    scores = ranking_scores({id: documents}, {id: relevant})[id]
    return {"id": id, "documents": documents, "relevant": relevant, "measures": scores, **given}


def reversed_row(row: dict[str, Any]) -> dict[str, Any]:
    documents = row["documents"][::-1]
    scores = ranking_scores({row["id"]: documents}, {row["id"]: row["relevant"]})[row["id"]]
    return {**row, "documents": documents, "measures": scores}


def test_a_run_with_itself_differs_in_nothing(run_file: Write):
    path = run_file("a.json", *(ranked(f"q{n}", n) for n in range(1, 10)))

    done = invoke(path, path, "--fail-on-regression")

    assert done.return_value == 0
    assert "no headline measure differs for any question" in done.stdout
    found = compare(load_run(path), load_run(path))
    assert {one["difference"] for one in found["measures"].values()} == {0.0}
    assert (found["moved"], found["regressions"], found["relabelled"]) == ([], [], [])


def test_worse_answers_are_a_regression_and_their_tokens_are_compared(run_file: Write):
    def row(n: int, match: float, **given: Any) -> dict[str, Any]:
        measures = {"answer_match": match, "citation_recall": match}
        return {"id": f"q{n}", "measures": measures, "text_answer": f"It is {match:g}.", **given}

    usage = {"prompt_tokens": 100, "completion_tokens": 7}
    before = run_file("a.json", *(row(n, 1.0, **usage) for n in range(12)), answers=True)
    after = run_file("b.json", *(row(n, 0.0, prompt_tokens=50) for n in range(12)), answers=True, at_once=4)

    done = invoke(before, after, "--fail-on-regression")

    assert done.return_value == 1
    assert "regression: answer_match 1.000 to 0.000" in done.stderr
    assert "citation_recall" not in done.stderr
    for line in (
        "prompt tokens: 1,200 in A, 600 in B", "completion tokens: 84 in A, 0 in B", "run: at_once 1 in A, 4",
        "trace trace-q0\n      It is 1.\n   B: ", "trace trace-q0\n      It is 0.\n",
    ):  # fmt: skip
        assert line in done.stdout
    assert "<p>It is 1.</p>" in page(load_run(after), compare(load_run(before), load_run(after)))


def test_a_reranker_that_turns_rankings_over_is_a_regression(run_file: Write):
    rows = [ranked(f"q{n}", 1 + n % 2, **{"class": "prose"}) for n in range(20)]
    before, after = run_file("a.json", *rows), run_file("b.json", *map(reversed_row, rows))

    done = invoke(before, after, "--fail-on-regression")

    assert done.return_value == 1
    assert "regression: nDCG@10" in done.stderr
    assert "20 of 20 questions lost; 100% of it in class prose" in done.stderr
    figures = compare(load_run(before), load_run(after))["measures"]["nDCG@10"]
    assert figures["p_holm"] < 0.01
    assert (figures["won"], figures["lost"], figures["same"]) == (0, 20, 0)
    assert figures["low"] <= figures["difference"] <= figures["high"] < 0
    # Ten at rank 1 and ten at rank 2 (1 / log2 3) go to ranks 10 and 9: 1 / log2 11 and 1 / log2 10.
    assert figures["before"] == pytest.approx((1 + 0.63093) / 2, abs=1e-5)
    assert figures["after"] == pytest.approx((0.28906 + 0.30103) / 2, abs=1e-5)
    assert invoke(before, after).return_value == 0  # only who asks for it fails


def filtered(id: str, verdict: str, klass: str) -> dict[str, Any]:
    exact = float(verdict in ("right", "none"))
    read = None if verdict in ("missing", "none") else TEAM
    return {
        "id": id, "class": klass, "filter_verdict": verdict, "intent_filter": read, "gold_filter": TEAM,
        "measures": {"filter_exact": exact, "route_accuracy": 1.0},
    }  # fmt: skip


def test_a_broken_filter_rule_is_named_by_its_class_and_wrong_is_told_from_missing(run_file: Write):
    before = [filtered(f"date{n}", "right", "dates") for n in range(9)]
    before += [filtered(f"team{n}", "right", "teams") for n in range(30)]
    after = [filtered(f"date{n}", "missing" if n else "wrong", "dates") for n in range(9)] + before[9:]
    first, second = run_file("a.json", *before), run_file("b.json", *after)

    done = invoke(first, second, "--fail-on-regression", "--questions", 1)

    assert done.return_value == 1
    # Two of the 512 ways to flip nine signs: 1 / 256. It is the only test that can come out.
    assert "regression: filter_exact 1.000 to 0.769, p 0.0039, 9 of 39 questions lost; 100% of it in class dates" in (
        done.stderr
    )
    assert "8 filters: right in A, missing in B" in done.stdout
    assert "1 filters: right in A, wrong in B" in done.stdout
    assert "B: found; no right document; filter: team = red (wrong); sources: none; trace trace-date0" in done.stdout
    assert "8 more questions differ" in done.stdout
    found = compare(load_run(first), load_run(second))
    assert found["verdicts"] == {"right": [39, 30], "missing": [0, 8], "wrong": [0, 1]}
    assert found["groups"]["class"]["teams"]["filter_exact"]["difference"] == 0
    assert found["measures"]["route_accuracy"]["p_holm"] is None


def test_a_class_that_loses_is_found_though_the_whole_gains(run_file: Write):
    before = [filtered(f"a{n}", "right", "dates") for n in range(16)]
    before += [filtered(f"b{n}", "missing", "teams") for n in range(16)]
    after = [filtered(f"a{n}", "missing", "dates") for n in range(16)]
    after += [filtered(f"b{n}", "right", "teams") for n in range(16)]

    found = compare(load_run(run_file("a.json", *before)), load_run(run_file("b.json", *after)))

    assert found["measures"]["filter_exact"]["difference"] == 0
    assert [(one["kind"], one["group"], one["measure"]) for one in found["regressions"]] == [
        ("class", "dates", "filter_exact")
    ]


def test_other_questions_are_left_out_and_other_labels_are_said(run_file: Write):
    first = run_file("a.json", ranked("both", 1), ranked("first", 1), ranked("reworded", 1))
    other = ranked("both", 1) | {"relevant": {"d1": 2}}
    reworded = ranked("reworded", 1, text="Something else?")
    second = run_file("b.json", other, ranked("second", 1), reworded, settings={"fusion": "rrf"})

    done = invoke(first, second)

    assert "2 questions are only in A and are left out" in done.stdout
    assert "2 questions are only in B and are left out" in done.stdout
    assert "1 questions have different labels in B: both" in done.stdout
    assert "settings: fusion convex in A, rrf in B" in done.stdout
    printed = json.loads(invoke(first, second, "--json").stdout)
    assert (printed["questions"], printed["only_before"], printed["only_after"]) == (
        1, ["first", "reworded"], ["second", "reworded"]
    )  # fmt: skip


def test_questions_that_moved_most_come_first_with_both_traces(run_file: Write):
    first = run_file("a.json", ranked("little", 1), ranked("much", 1), ranked("not", 1))
    second = run_file(
        "b.json", ranked("little", 2, relevant={"d1": 1}), ranked("much", 9, trace_id="later"), ranked("not", 1)
    )

    moved = compare(load_run(first), load_run(second))["moved"]

    assert [one["id"] for one in moved] == ["much", "little"]
    assert (moved[0]["before"]["trace_id"], moved[0]["after"]["trace_id"]) == ("trace-much", "later")
    assert (moved[0]["before"]["first_relevant"], moved[0]["after"]["first_relevant"]) == (1, 9)
    assert moved[0]["moves"]["nDCG@10"] == pytest.approx([1.0, 0.30103], abs=1e-5)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"dataset": "other"}, "the runs are of different datasets: tiny (routed) and other (routed)"),
        ({"form": "beir"}, "the runs are of different datasets: tiny (routed) and tiny (beir)"),
        ({"format": 1}, "the run has format 1, this version reads 2: run it again"),
        ({"format": 9}, "the run has format 9"),
        ({"questions": []}, "the run is damaged: questions"),
        ({"latency_ms": "fast"}, "the run is damaged: latency_ms"),
        ({"metrics": {"nDCG@10": float("nan")}}, "the run is damaged: metrics.nDCG@10"),
    ],
)
def test_runs_that_cannot_be_compared_are_refused_in_a_line(run_file: Write, given: dict[str, Any], message: str):
    first, second = run_file("a.json", ranked("q", 1)), run_file("b.json", ranked("q", 1), **given)

    done = invoke(first, second)

    assert isinstance(done.exception, BadRequest)
    assert message in str(done.exception)
    assert "\n" not in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is not JSON"),
        ("[1]", "this is not a run of"),
        ("{}", "this is not a run of"),
        ("[" * 100_000, "this is not a run of"),
    ],
)
def test_a_file_that_is_no_run_is_refused_in_a_line(run_file: Write, tmp_path: Path, text: str, message: str):
    first, second = run_file("a.json", ranked("q", 1)), tmp_path / "b.json"
    second.write_text(text)

    for arguments in ((first, second), (second, first), (first, tmp_path / "none.json"), (first, tmp_path)):
        done = invoke(*arguments)
        assert isinstance(done.exception, BadRequest)
        assert message in str(done.exception) or "cannot be read" in str(done.exception)


def test_runs_without_a_question_in_common_are_refused(run_file: Write):
    with pytest.raises(BadRequest, match="no questions in common"):
        compare(load_run(run_file("a.json", ranked("p", 1))), load_run(run_file("b.json", ranked("q", 1))))
