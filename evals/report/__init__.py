"""Render one run, or a comparison of two, as a self-contained HTML page without requests and scripts."""

from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from evals.report import comparison, failures, sections
from evals.report.markup import Markup, element, joined
from evals.run_files import RunFile

# Defence in depth: even if a run's text became an element by mistake, the browser would load and run nothing.
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def page(run: RunFile, found: Mapping[str, Any] | None = None) -> str:
    """Return the HTML page of a run.

    Args:
        found: the comparison with an earlier run from `evals.compare.compare`; None for none.
    """
    title = f"{run.dataset}: {len(run.questions)} questions"
    parts: list[tuple[str, str, object]] = [
        ("compared", "Compared with the earlier run", comparison.section(found) if found is not None else None),
        ("failures", "What went wrong", joined(sections.verdicts(run), failures.section(run.questions))),
        ("groups", "By class and language", sections.groups(run)),
        ("ranking", "Ranking of the right documents", sections.ranking(run)),
        ("worst", "Questions ranked low", failures.worst(run.questions)),
        ("latency", "Latency", sections.latency(run)),
        ("trust", "Reliability of the readings", sections.trust(run)),
        ("settings", "Settings and versions", sections.settings(run)),
    ]
    shown = [part for part in parts if part[2] is not None]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup(files(__package__).joinpath("style.css").read_text(encoding="utf-8"))),
    )
    links = (element("a", name, href=f"#{id}") for id, name, _ in shown)
    body = element(
        "body",
        element(
            "main",
            element("header", element("h1", run.dataset), element("p", _about(run), class_="about")),
            sections.cards(run, found),
            element("nav", links),
            (element("section", element("h2", name), content, id=id) for id, name, content in shown),
            element("footer", _how_to(run)),
        ),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _about(run: RunFile) -> str:
    text = f"{len(run.questions):,} questions"
    if run.form != "file":
        text += f" (split {run.split})"
    text += (
        f" over {run.documents:,} documents, {run.chunks:,} passages. Started {sections.shown_moment(run.started_at)}."
    )
    if run.filters == "gold":
        text += " The gold filters were given, so the reading of the questions was not judged."
    failed = sum(row.status == "error" for row in run.questions)
    if failed:
        text += f" Questions that failed and count as missed: {failed}."
    degraded = sum(bool(row.degraded) for row in run.questions)
    if degraded:
        text += f" Degraded answers: {degraded}."
    if run.at_once > 1:
        text += f" {run.at_once} questions were asked at a time."
    prompt, completion = (run.usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    if prompt is not None:
        text += f" Tokens: {prompt:,.0f} in prompts, {completion or 0:,.0f} in replies."
    return text


def _how_to(run: RunFile) -> Markup:
    command = element("code", f"signalbox explain TRACE --tenant {run.tenant}")
    return element("p", "To see how an answer was made, while its trace is kept: ", command, class_="why")
