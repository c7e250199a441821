"""Render the differences between two runs as a section of the page."""

from collections.abc import Mapping, Sequence
from typing import Any

from evals.report import plots
from evals.report.markup import Markup, element, joined, table
from evals.report.sections import NAMES, shown_moment, tone
from evals.result_commands import regressions, shown_p
from evals.run_files import HEADLINE, in_words

Json = Mapping[str, Any]
MOST_MOVED = 20
_LONGEST_ANSWER = 1000
_LONGEST_VALUE = 120


def section(found: Json) -> Markup:
    """Return the section: verdict, differences with intervals, groups, changed settings, and moved questions."""
    return joined(
        _verdict(found),
        element("p", _coverage(found), class_="why"),
        element("div", element("div", _forest(found)), element("div", _changed(found), _filters(found)), class_="grid"),
        element("h3", "All measures"),
        _measures(found),
        _groups(found),
        _moved(found["moved"]),
    )


def _verdict(found: Json) -> Markup:
    lines = list(regressions(found))
    if lines:
        items = (element("li", line.removeprefix("regression: ")) for line in lines)
        return element("div", element("p", "Significantly lower than before:"), element("ul", items), class_="alarm")
    better = [name for name in HEADLINE if name in found["measures"] and tone(found["measures"][name]) == "good"]
    text = "No headline measure is significantly lower than before."
    if better:
        text += f" Significantly higher: {', '.join(NAMES[name][0].lower() for name in better)}."
    if not found["moved"]:
        text = "No headline measure differs for any question."
    return element("p", text, class_="good-news")


def _coverage(found: Json) -> str:
    started = shown_moment(found["before"]["started_at"])
    text = f"{found['questions']} questions are in both runs; the earlier run started {started}."
    for which, name in (("only_before", "earlier"), ("only_after", "later")):
        if found[which]:
            text += f" {len(found[which])} questions are only in the {name} run and are left out."
    if found["relabelled"]:
        text += f" {len(found['relabelled'])} questions have different labels now."
    return (
        f"{text} Intervals are 95 % intervals. p comes from a paired randomisation test, with Holm's correction for "
        "the headline measures; it is left out where fewer than 8 questions differ, too few for a significant loss."
    )


def _forest(found: Json) -> Markup:
    rows = [
        plots.Interval(NAMES[name][0], one["difference"], one["low"], one["high"], tone(one))
        for name, one in found["measures"].items()
    ]
    return joined(element("h3", "Later minus earlier"), plots.forest("differences with 95 % intervals", rows))


def _changed(found: Json) -> Markup:
    rows = [
        [f"{what.removesuffix('s')} {key}", _short(old), _short(new)]
        for what, values in found["changed"].items()
        for key, (old, new) in values.items()
    ]
    rows += [[f"answers with {name}", old, new] for name, (old, new) in found["degraded"].items() if old != new]
    title = element("h3", "What was changed")
    if not rows:
        return joined(title, element("p", "No changes: the same settings, prompts, versions and documents."))
    return joined(title, table(["", "earlier", "later"], rows, class_="plain"))


def _filters(found: Json) -> Markup | None:
    if not found["verdicts"]:
        return None
    rows = [[name, old, new, f"{new - old:+d}"] for name, (old, new) in found["verdicts"].items()]
    moves = (
        element("li", f"{move['questions']} from {move['before']} to {move['after']}")
        for move in found["verdict_moves"]
    )
    return joined(element("h3", "Filters read"), table(["verdict", "earlier", "later", ""], rows), element("ul", moves))


def _measures(found: Json) -> Markup:
    columns = ["measure", "difference", "earlier", "later", "95 % interval", "p", "won", "lost", "same"]
    return table(columns, (_row(f"{NAMES[name][0]} ({name})", one) for name, one in found["measures"].items()))


def _groups(found: Json) -> Markup | None:
    rows = [
        _row(f"{kind} {group}: {NAMES[name][0]}", one)
        for kind, groups in found["groups"].items()
        for group, measures in groups.items()
        for name, one in measures.items()
        if "p_holm" in one and (one["won"] or one["lost"])
    ]
    if not rows:
        return None
    columns = ["class or language", "difference", "earlier", "later", "95 % interval", "p", "won", "lost", "same"]
    return joined(element("h3", "Differences of the headline measures"), table(columns, rows))


def _row(name: str, one: Json) -> list[object]:
    return [
        name,
        element("span", f"{one['difference']:+.3f}", class_=f"delta {tone(one)}"),
        f"{one['before']:.3f}",
        f"{one['after']:.3f}",
        f"{one['low']:+.3f} to {one['high']:+.3f}",
        shown_p(one["p_holm"] if "p_holm" in one else one["p"]),
        one["won"],
        one["lost"],
        one["same"],
    ]


def _moved(moved: Sequence[Json]) -> Markup | None:
    if not moved:
        return None
    cards = []
    for one in moved[:MOST_MOVED]:
        change = sum(new - old for old, new in one["moves"].values())
        badge = element("span", f"{change:+.2f}", class_=f"badge {'good' if change > 0 else 'bad'}")
        summary = element("summary", element("span", one["text"], class_="question"), element("span", badge))
        moves = ", ".join(f"{NAMES[name][0]} {old:.2f} to {new:.2f}" for name, (old, new) in one["moves"].items())
        facts = [("Moved", moves), ("Earlier", _side(one["before"])), ("Later", _side(one["after"]))]
        rows = (joined(element("dt", name), element("dd", content)) for name, content in facts)
        cards.append(element("details", summary, element("dl", rows), class_="card"))
    left = len(moved) - MOST_MOVED
    more = (
        element("p", f"{left} more differ: `signalbox eval compare` lists them.", class_="more") if left > 0 else None
    )
    title = element("h3", "Questions with the largest changes ", element("span", len(moved), class_="count"))
    return joined(title, cards, more)


def _side(side: Json) -> Markup:
    verdict = f" ({side['filter_verdict']})" if side["filter_verdict"] else ""
    place = side["first_relevant"]
    found = f"first right document at {place}" if place else "no right document"
    if side["table"] is not None:
        found = f"calculated {_short(side['table'])}"
    return joined(
        f"{side['status']}, {found}; filter: {in_words(side['filter'])}{verdict}; ",
        f"sources: {', '.join(side['sources']) or 'none'}; trace ",
        element("code", side["trace_id"] or "none"),
        element("p", side["text_answer"][:_LONGEST_ANSWER]) if side["text_answer"] is not None else None,
    )


def _short(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST_VALUE else text[:_LONGEST_VALUE] + "…"
