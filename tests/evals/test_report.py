import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import sync_playwright
from typer.testing import CliRunner

from evals.cli import app
from evals.compare import compare
from evals.report import page, plots
from evals.report.failures import group_failures, ranked_low
from evals.report.markup import Markup, element, escaped, joined, table
from evals.run_files import load_run
from retrievers.core.errors import BadRequest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
Write = Callable[..., Path]
HOSTILE = "<script>alert(1)</script>\"'><img src=https://evil.example/x onerror=alert(1)>\x1b[31m\u202e"
RED = {"type": "eq", "key": "team", "value": "red"}
BOTH = {"type": "and", "filters": [RED, {"type": "gte", "key": "published", "value": "2025-01-01"}]}
VOID = {"meta", "br"}


class Elements(HTMLParser):
    """Every element with its attributes, the text, and whether every element is closed in its turn."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def full_row(id: str = "q1", **given: Any) -> dict[str, Any]:
    """A row with everything that a run can hold."""
    return {
        "id": id, "text": "Which red documents?", "class": "teams", "gold_filter": BOTH, "intent_filter": RED,
        "filter_verdict": "partial", "gold_sources": ["sql"], "sources": ["vector"], "relevant": {"d2": 1, "d9": 1},
        "documents": ["d1", "d2"], "answer": 42, "table": [[41]], "soft_filter": RED, "rejected": ["17"],
        "hits": [{"document": "d1", "title": "One", "relevance": 0.5}, {"document": "d2", "title": "Two"}],
        "history": [{"role": "user", "content": "Hello"}], "relaxed": [RED], "degraded": ["web_unavailable"],
        "stages": {
            "vector": {"ranks": [4], "nDCG@10": 0.25}, "fused": {"ranks": [2], "nDCG@10": 0.5},
            "final": {"ranks": [1], "nDCG@10": 0.75},
        },
        "elapsed_ms": {"intent": 2.0, "search": 5.0}, "stated": [{"filter": RED, "probability": 0.9, "right": True}],
        "measures": {"nDCG@10": 0.4, "R@100": 0.5, "filter_exact": 0.0, "filter_f1": 0.5, "route_accuracy": 0.0,
                     "answer_accuracy": 0.0},
        **given,
    }  # fmt: skip


def test_text_is_escaped_and_elements_are_not():
    assert escaped('<b a="1">\'&') == "&lt;b a=&quot;1&quot;&gt;&#x27;&amp;"
    assert joined("a<", None, 1, [element("b", "c<")], Markup("<i>")) == "a&lt;1<b>c&lt;</b><i>"
    assert element("p", class_='"x', stroke_width=2, id=None) == '<p class="&quot;x" stroke-width="2"></p>'
    assert escaped("a\x00\x1b[31m\u202eb\ud800") == "a  [31m b\ufffd"


def test_nothing_of_a_run_becomes_an_element_or_is_loaded(run_file: Write):
    hostile = full_row(
        id=HOSTILE, text=HOSTILE, trace_id=HOSTILE, answer=HOSTILE, table=[[HOSTILE]], error=HOSTILE, status=HOSTILE,
        sources=[HOSTILE], rejected=[HOSTILE], relevant={HOSTILE: 1}, intent_filter={"type": HOSTILE, "key": HOSTILE},
        hits=[{"document": HOSTILE, "title": HOSTILE}], history=[{"role": HOSTILE, "content": HOSTILE}],
        stages={HOSTILE: {"ranks": [1], "nDCG@10": 0.5}, "fused": {"ranks": [1], "nDCG@10": 0.5}},
        text_answer=HOSTILE, cited=[HOSTILE], unsupported=[HOSTILE], grade={"score": 0.5, "why": HOSTILE},
        other_filters=[{"type": HOSTILE}], elapsed_ms={HOSTILE: 1.0}, degraded=[HOSTILE],
        relaxed=[{"filters": HOSTILE}], intent_by=HOSTILE,
        **{"class": HOSTILE, "language": HOSTILE},
    )  # fmt: skip
    given = {"settings": {HOSTILE: HOSTILE}, "prompts": {HOSTILE: HOSTILE}, "versions": {"python": HOSTILE},
             "started_at": HOSTILE, "tenant": HOSTILE, "split": HOSTILE}  # fmt: skip
    first = load_run(run_file("a.json", full_row(id=HOSTILE, text=HOSTILE)))
    second = load_run(run_file("b.json", hostile, **given))

    text = page(second, compare(first, second))

    found = Elements(text)
    assert found.open == []
    assert {tag for tag, _ in found.elements}.isdisjoint({"script", "img", "link", "iframe", "object", "base", "form"})
    names = {name for _, attributes in found.elements for name in attributes}
    assert not any(name.startswith("on") for name in names)
    assert names.isdisjoint({"src", "srcset", "xlink:href", "action", "background"})
    assert all(one["href"].startswith("#") for _, one in found.elements if one.get("href"))
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style
    assert "alert(1)" in found.text
    assert "\x1b" not in text
    assert "\u202e" not in text
    policy = next(one for tag, one in found.elements if one.get("http-equiv") == "Content-Security-Policy")
    assert policy["content"].startswith("default-src 'none'")


def test_a_page_shows_answers_with_what_is_wrong_with_them(run_file: Write):
    judged = {"answer_match": 0.0, "judged": 0.5, "supported": 0.5, "citation_precision": 1.0, "citation_recall": 0.25}
    half = {"text_answer": "It is lit. It has 31 lamps.", "cited": ["d1"], "unsupported": ["It has 31 lamps."],
            "grade": {"score": 0.5, "why": "The number is missing."}}  # fmt: skip
    path = run_file(
        "a.json",
        {"id": "q1", "measures": judged, **half},
        {"id": "q2", "measures": {"answer_match": 1.0, "supported": 0.5}, "text_answer": "Yes.", "unsupported": ["Y."]},
        {"id": "q3", "measures": {"refused_right": 0.0}, "answerable": False, "text_answer": "Zebras are free."},
        {"id": "q4", "measures": {"judged": 1.0, "answer_match": 0.0, "refused_right": 1.0}},
        at_once=4,
        usage={"prompt_tokens": 1234, "completion_tokens": 56, "cost": None},
    )
    run = load_run(path)

    text = Elements(page(run, compare(run, run))).text

    assert [(kind.title, [row.id for row in some]) for kind, some in group_failures(run.questions)] == [
        ("Wrong answers", ["q1"]), ("Answered without documents", ["q3"]), ("Unsupported sentences", ["q2"])
    ]  # fmt: skip
    for shown in (
        "4 questions were asked at a time. Tokens: 1,234 in prompts, 56 in replies.", "Rightly not answered",
        "AnswerIt is lit. It has 31 lamps.", "Citesd1", "Not supportedIt has 31 lamps.", "Judge0.5: The number is miss",
        "Citations complete",
    ):  # fmt: skip
        assert shown in text, shown


def test_a_page_shows_what_a_run_holds(run_file: Write, tmp_path: Path):
    out = tmp_path / "page.html"

    path = run_file("a.json", full_row(), full_row("q2", intent_filter=None, filter_verdict="missing"))
    done = CliRunner().invoke(app, ["report", str(path), "--html", str(out)], standalone_mode=False)

    assert (done.return_value, done.exception) == (0, None)
    text = Elements(out.read_text(encoding="utf-8")).text
    for shown in (
        "tiny", "2 questions (split test) over 6 documents", "20 November 2026, 09:00 UTC", "0.400", "Wrong numbers",
        "team = red", "published >= 2025-01-01", "partial: it admits too many documents", "Right value42",
        "Calculated41", "d9 not found", "d2 at 2", "trace-q1", "vector (labelled: sql)", "Not understood17",
        "2 conditions were read from questions, with a mean probability of 0.90; 100% of them are in the labels",
        "answer/v1", "fusion", "convex", "signalbox explain TRACE --tenant eval", "user: Hello", "web_unavailable",
        "Degraded answers: 2",
    ):  # fmt: skip
        assert shown in text, shown
    assert "Compared with the earlier run" not in text
    # Each stage gains 0.25 on the one before it.
    assert text.count("+0.250") == 2


def test_a_page_of_a_plain_run_leaves_out_what_it_does_not_hold(run_file: Write):
    text = Elements(page(load_run(run_file("a.json", {"id": "q1", "measures": {"route_accuracy": 1.0}})))).text

    assert "All filters, values and sources are right." in text
    for left_out in ("Ranking of the right documents", "Reliability of the readings", "Questions ranked low"):
        assert left_out not in text


def test_a_run_without_decision_records_still_shows_recall_by_depth(run_file: Write):
    row = {"id": "q1", "relevant": {"d2": 1}, "documents": ["d1", "d2"], "measures": {"nDCG@10": 0.63}}

    text = page(load_run(run_file("a.json", row)))

    assert "as answered" in Elements(text).text
    assert "What each stage adds" not in text
    # Nothing at rank 1, the one right document from rank 2 on: from the bottom of the plot to its top.
    points = re.search(r'<polyline points="([^"]+)"', text)[1].split()
    assert [point.split(",")[1] for point in points[:3]] == ["204.0", "12.0", "12.0"]


def test_a_comparison_names_what_fell_and_what_was_changed(run_file: Write, tmp_path: Path):
    good = {"measures": {"filter_exact": 1.0}, "filter_verdict": "right", "class": "teams"}
    bad = {"measures": {"filter_exact": 0.0}, "filter_verdict": "wrong", "class": "teams", "trace_id": "later"}
    first = run_file("a.json", *({"id": f"q{n}", **good} for n in range(10)))
    second = run_file("b.json", *({"id": f"q{n}", **bad} for n in range(10)), settings={"fusion": "rrf"})
    out = tmp_path / "page.html"

    done = CliRunner().invoke(app, ["report", str(first), str(second), "--html", str(out)], standalone_mode=False)

    assert done.exception is None
    text = Elements(out.read_text(encoding="utf-8")).text
    assert "Significantly lower than before:filter_exact 1.000 to 0.000, p 0.0020" in text
    assert "setting fusionconvexrrf" in text
    assert "10 from right to wrong" in text
    assert "trace later" in text
    assert "10 questions are in both runs; the earlier run started 20 November 2026, 09:00 UTC." in text


def test_failures_are_sorted_by_what_they_do_to_an_answer(run_file: Write):
    rows = [
        full_row("low", table=None, measures={"nDCG@10": 0.2}, filter_verdict="right"),
        full_row("lower", table=None, measures={"nDCG@10": 0.1}, filter_verdict="right"),
        full_row("fine", table=None, measures={"nDCG@10": 1.0}, filter_verdict="right"),
        full_row("source", table=None, measures={"route_accuracy": 0.0}, filter_verdict="right"),
        full_row("partial", table=None, measures={}, filter_verdict="partial"),
        full_row("unfound", table=None, measures={"answer_in_hits": 0.0}, filter_verdict="right"),
        full_row("number", measures={"answer_accuracy": 0.0}, filter_verdict="right"),
        full_row("wrong", measures={"answer_accuracy": 0.0, "route_accuracy": 0.0}, filter_verdict="wrong"),
        full_row("error", status="error", measures={"nDCG@10": 0.0}, filter_verdict=None),
    ]
    run = load_run(run_file("a.json", *rows))

    kinds = [(kind.title, [row.id for row in some]) for kind, some in group_failures(run.questions)]

    assert kinds == [
        ("Not answered", ["error"]), ("Wrong filters", ["wrong"]), ("Wrong numbers", ["number"]),
        ("Values not found", ["unfound"]), ("Missing and partial filters", ["partial"]), ("Wrong sources", ["source"]),
    ]  # fmt: skip
    assert [row.id for row in ranked_low(run.questions)] == ["lower", "low"]


def test_a_histogram_counts_every_value_once_and_the_slowest_in_the_last_bin():
    drawn = plots.histogram("latency", [10.0] * 99 + [5000.0], {"p50": 10.0})

    # The 99th percentile of 100 values lies a hundredth of the way from 10 to 5000.
    assert [int(one) for one in re.findall(r"ms: (\d+)</title>", drawn)] == [99, 1]
    assert drawn.count("<rect") == 2


def test_a_calibration_plot_has_a_dot_per_tenth():
    drawn = plots.calibration("c", [(0.95, True), (0.91, False), (0.5, True), (1.0, True)])

    assert re.findall(r"<title>(\d+ read with .*?)</title>", drawn) == [
        "1 read with 0.50: 100% right",
        "3 read with 0.95: 67% right",
    ]


def test_a_table_has_headings_for_its_rows_and_columns():
    drawn = table(["stage", "n"], [["a<b", 1]])

    assert '<th scope="col">stage</th><th scope="col">n</th>' in drawn
    assert '<tr><th scope="row">a&lt;b</th><td>1</td></tr>' in drawn


def test_a_page_that_cannot_be_written_is_an_error_in_a_line(run_file: Write, tmp_path: Path):
    path = run_file("a.json", full_row())

    done = CliRunner().invoke(app, ["report", str(path), "--html", str(tmp_path)], standalone_mode=False)

    assert isinstance(done.exception, BadRequest)
    assert "cannot be written" in str(done.exception)


@pytest.mark.browser
@pytest.mark.skipif(CHROMIUM is None, reason="needs a Chromium")
def test_a_browser_loads_nothing_and_needs_no_sideways_scrolling(run_file: Write, tmp_path: Path):
    first = load_run(run_file("a.json", full_row(text=HOSTILE), full_row("q2", measures={"nDCG@10": 1.0})))
    path = tmp_path / "page.html"
    path.write_text(page(first, compare(first, first)), encoding="utf-8")
    paper = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for width, scheme in ((1280, "light"), (390, "dark")):
            context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
            tab, loaded, said = context.new_page(), [], []
            tab.on("request", lambda request, loaded=loaded: loaded.append(request.url))
            tab.on("console", lambda message, said=said: said.append(message.text))
            tab.goto(path.as_uri())
            assert tab.evaluate("document.documentElement.scrollWidth") == width
            assert (loaded, said) == ([path.as_uri()], [])
            paper[scheme] = tab.evaluate("getComputedStyle(document.body).backgroundColor")
            context.close()
        browser.close()
    assert paper == {"light": "rgb(251, 250, 248)", "dark": "rgb(18, 22, 29)"}
