"""Render the failures of a run, the worst kind first; each question is listed once, under its worst kind."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from evals.report.markup import Markup, element, joined
from evals.run_files import Json, QuestionRow, in_words

MOST_SHOWN = 25
"""Maximum number of questions of one kind on the page."""
_OPEN = 3
_LOW = 0.999
_LONGEST_CELL = 200
_LONGEST_ANSWER = 2000
_SHOWN_GOLD = 5


class FailureKind(NamedTuple):
    """One kind of failure.

    Attributes:
        why: what is wrong with the answer, in words for the page.
        is_meant: whether a question has this failure.
    """

    title: str
    why: str
    is_meant: Callable[[QuestionRow], bool]


def _misses(measure: str, least: float = _LOW) -> Callable[[QuestionRow], bool]:
    def is_below(row: QuestionRow) -> bool:
        value = row.metrics.get(measure)
        return value is not None and value < least

    return is_below


KINDS = (
    FailureKind(
        "Not answered", "The service rejected the question or did not finish it.", lambda row: row.status == "error"
    ),
    FailureKind(
        "Wrong filters",
        "The filter excludes wanted documents, or has a condition that the question does not state.",
        lambda row: row.filter_verdict in ("wrong", "invented"),
    ),
    FailureKind(
        "Wrong numbers",
        "The calculated value is wrong.",
        lambda row: row.table is not None and _misses("answer_accuracy")(row),
    ),
    FailureKind(
        "Values not found",
        "The right value was not calculated, or none of the first 10 passages contains the expected words.",
        lambda row: _misses("answer_accuracy")(row) or _misses("answer_in_hits")(row),
    ),
    FailureKind(
        "Wrong answers",
        "The text lacks the expected words or numbers, or the judge found it wrong.",
        lambda row: _misses("judged")(row) or (row.metrics.get("judged") is None and _misses("answer_match")(row)),
    ),
    FailureKind(
        "Answered without documents",
        "The documents do not hold the answer, but the question was answered.",
        _misses("refused_right"),
    ),
    FailureKind(
        "Unsupported sentences", "Sentences of the answer that the passages do not support.", _misses("supported")
    ),
    FailureKind(
        "Missing and partial filters",
        "The filter excludes no wanted document, but admits others.",
        lambda row: row.filter_verdict in ("missing", "partial"),
    ),
    FailureKind("Wrong sources", "The searched sources differ from the labels.", _misses("route_accuracy")),
)


RANKED_LOW = FailureKind("Ranked low", "The right documents are not at the top, or are missing.", _misses("nDCG@10"))


def group_failures(rows: Sequence[QuestionRow]) -> list[tuple[FailureKind, list[QuestionRow]]]:
    """Return the failures by kind, the worst questions of each first; kinds without questions are left out."""
    found: dict[str, list[QuestionRow]] = {kind.title: [] for kind in KINDS}
    for row in rows:
        kind = next((kind for kind in KINDS if kind.is_meant(row)), None)
        if kind is not None:
            found[kind.title].append(row)
    return [(kind, sorted(found[kind.title], key=_goodness)) for kind in KINDS if found[kind.title]]


def ranked_low(rows: Sequence[QuestionRow]) -> list[QuestionRow]:
    """Return the questions whose only failure is a low ranking of right documents, the worst first."""
    return sorted(
        (row for row in rows if RANKED_LOW.is_meant(row) and not any(kind.is_meant(row) for kind in KINDS)),
        key=_goodness,
    )


def _goodness(row: QuestionRow) -> tuple[float, float, str]:
    ranked, wanted = row.metrics.get("nDCG@10"), row.metrics.get("filter_f1")
    return (1.0 if ranked is None else ranked, 1.0 if wanted is None else wanted, row.id)


def section(rows: Sequence[QuestionRow]) -> Markup:
    """Return the section of failures other than ranking, as lists of questions to open."""
    kinds = group_failures(rows)
    if not kinds:
        return element("p", "All filters, values and sources are right.", class_="good-news")
    first, *others = kinds
    return joined(_listed(*first, opened=_OPEN), (_listed(*one) for one in others))


def worst(rows: Sequence[QuestionRow]) -> Markup | None:
    """Return the list of questions whose only failure is a low ranking; None if there are none."""
    some = ranked_low(rows)
    return _listed(RANKED_LOW, some, titled=False) if some else None


def _listed(kind: FailureKind, some: Sequence[QuestionRow], *, opened: int = 0, titled: bool = True) -> Markup:
    """Return the questions of one kind as cards, the first `opened` of them unfolded."""
    title = element("h3", kind.title, " ", element("span", len(some), class_="count")) if titled else None
    cards = (card(row, is_open=number < opened) for number, row in enumerate(some[:MOST_SHOWN]))
    left = len(some) - MOST_SHOWN
    more = element("p", f"{left} more are in the run's file.", class_="more") if left > 0 else None
    return joined(title, element("p", kind.why, class_="why"), cards, more)


def card(row: QuestionRow, *, is_open: bool = False) -> Markup:
    """Return one question with its reading, its hits and its labels."""
    ranked = row.metrics.get("nDCG@10")
    badges = [
        element("span", one, class_="badge")
        for one in (row.klass, row.language, None if ranked is None else f"nDCG@10 {ranked:.2f}")
        if one
    ]
    turns = [element("p", _turn(turn)) for turn in row.history]
    facts: list[tuple[str, object]] = [("Earlier turns", turns)] if turns else []
    facts += [*_filters(row), *_values(row), *_text(row), *_sources(row), ("Expected", _expected(row))]
    facts.append(("Top hits", _hits(row)))
    facts += [*_notes(row), ("Trace", _trace(row))]
    rows = (joined(element("dt", name), element("dd", content)) for name, content in facts if content)
    summary = element("summary", element("span", row.text, class_="question"), element("span", badges, class_="badges"))
    return element("details", summary, element("dl", rows), class_="card", open="" if is_open else None)


def _turn(turn: Json) -> str:
    return f"{turn.get('role', '')}: {turn.get('content', '')}"


def _filters(row: QuestionRow) -> list[tuple[str, object]]:
    if row.filter_verdict is None:
        return [("Filter read", _chips(row.intent_filter))] if row.intent_filter else []
    read, gold = _conditions(row.intent_filter), _conditions(row.gold_filter)
    found = [("Filter read", joined(_compared(read, gold, "extra"), " ", element("em", _VERDICTS[row.filter_verdict])))]
    found.append(("Gold filter", _compared(gold, read, "lacking")))
    found += [("Or", _compared(_conditions(one), read, "lacking")) for one in row.other_filters]
    if row.soft_filter:
        found.append(("Likely meant", _chips(row.soft_filter)))
    return [*found]


_VERDICTS = {
    "right": "right",
    "none": "rightly none",
    "wrong": "wrong: it excludes wanted documents",
    "partial": "partial: it admits too many documents",
    "missing": "missing",
    "invented": "invented: the question states no filter",
}


def _conditions(wanted: Json | None) -> list[str]:
    """Return the conditions of a filter in words."""
    if wanted is None:
        return []
    parts = wanted.get("filters") if wanted.get("type") == "and" else None
    return [in_words(one) for one in (parts if isinstance(parts, list) else [wanted])]


def _compared(conditions: Sequence[str], others: Sequence[str], tone: str) -> Markup:
    """Return conditions as chips; conditions that `others` lacks get the CSS class `tone`."""
    if not conditions:
        return element("span", "no filter", class_="chip none")
    return joined([element("span", one, class_="chip" if one in others else f"chip {tone}"), " "] for one in conditions)


def _chips(wanted: Json) -> Markup:
    return joined([element("span", one, class_="chip"), " "] for one in _conditions(wanted))


def _values(row: QuestionRow) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    if row.answer is not None:
        found.append(("Right value", _cell(row.answer)))
    if row.table is not None:
        lines = "; ".join(", ".join(_cell(cell) for cell in line) for line in row.table)
        found.append(("Calculated", lines or "no rows"))
    return found


def _text(row: QuestionRow) -> list[tuple[str, object]]:
    """Return the text of an answer, what it cites, its unsupported sentences and its grade."""
    if row.text_answer is None:
        return []
    found: list[tuple[str, object]] = [("Answer", row.text_answer[:_LONGEST_ANSWER]), ("Cites", ", ".join(row.cited))]
    found.append(("Not supported", [element("p", one) for one in row.unsupported]))
    if row.grade is not None:
        score = "not judged" if row.grade.score is None else f"{row.grade.score:g}"
        found.append(("Judge", f"{score}: {row.grade.why}"))
    return found


def _cell(value: object) -> str:
    text = str(value)
    return text if len(text) <= _LONGEST_CELL else text[:_LONGEST_CELL] + "…"


def _sources(row: QuestionRow) -> list[tuple[str, object]]:
    asked = ", ".join(row.sources) or "none"
    if _misses("route_accuracy")(row):
        asked += f" (labelled: {', '.join(row.gold_sources) or 'none'})"
    return [("Sources", asked)]


def _expected(row: QuestionRow) -> Markup | None:
    """Return the right documents with their ranks; None if there are none."""
    if not row.relevant:
        return None
    ranks = {document: rank for rank, document in enumerate(row.documents, 1)}
    wanted = sorted(row.relevant, key=lambda id: (ranks.get(id, len(ranks) + 1), id))
    items = [
        element("li", element("code", id), f" at {ranks[id]}" if id in ranks else element("b", " not found"))
        for id in wanted[:_SHOWN_GOLD]
    ]
    left = len(wanted) - _SHOWN_GOLD
    return element("ul", items, element("li", f"{left} more") if left > 0 else None)


def _hits(row: QuestionRow) -> Markup | None:
    if not row.hits:
        return None
    return element(
        "ol",
        (
            element(
                "li",
                element("span", one.title or one.document, class_="title"),
                " ",
                element("code", one.document),
                element("small", f" relevance {one.relevance:.2f}") if one.relevance is not None else None,
                class_="relevant" if one.document in row.relevant else None,
            )
            for one in row.hits
        ),
    )


def _notes(row: QuestionRow) -> list[tuple[str, object]]:
    found: list[tuple[str, object]] = []
    if row.error:
        found.append(("Error", row.error))
    if row.status not in ("found", "error"):
        found.append(("Status", row.status.replace("_", " ")))
    if row.rejected:
        found.append(("Not understood", ", ".join(row.rejected)))
    if row.relaxed:
        found.append(("Dropped", ", ".join(map(in_words, row.relaxed))))
    if row.degraded:
        found.append(("Degraded", ", ".join(row.degraded)))
    return found


def _trace(row: QuestionRow) -> Markup:
    what = element("code", row.trace_id) if row.trace_id else "none"
    return joined(what, f", question {row.id}, {row.latency_ms:.0f} ms", f", read by {row.intent_by or 'nobody'}")
