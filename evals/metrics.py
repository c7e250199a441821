"""Metrics per question, and their averages. A metric that does not apply is None, never 0."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from retrievers.core.errors import BadRequest
from retrievers.core.optional_dependencies import install_command

RANKING: Mapping[str, str] = {
    "nDCG@10": "nDCG@10",
    "R@10": "R@10",
    "R@100": "R@100",
    "RR@10": "RR@10",
    "AP@100": "AP@100",
    "hit@1": "Success@1",
}
"""Ranking metrics and their names in ir_measures."""
ANSWERS = ("answer_match", "judged", "supported", "citation_precision", "citation_recall", "refused_right")
"""Measures of answers, see `evals.answer_scores` and `evals.grading`; `refused_right` also applies to hits."""
NAMES = (*RANKING, "filter_exact", "filter_f1", "route_accuracy", "answer_accuracy", "answer_in_hits", *ANSWERS)

_ALONE = frozenset({"sql", "web", "none"})
"""Sources that must be chosen exactly when they are needed."""

_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3})")

Scores = Mapping[str, float | None]


def documents_of(hits: Iterable[str]) -> list[str]:
    """Turn a ranking of passages into a ranking of documents, each at the rank of its first passage."""
    return list(dict.fromkeys(hits))


def ranking_scores(
    rankings: Mapping[str, Sequence[str]], relevant: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, float]]:
    """Compute the ranking metrics of every question that has relevant documents.

    Args:
        rankings: document ids by question id, best first, each at most once.
        relevant: grades > 0 by document id, by question id. All metrics but nDCG treat every grade as relevant.
    Returns:
        Metrics in [0, 1] by question id; questions without a relevant document are left out.
    Raises:
        BadRequest: the package ir_measures is not installed.
    """
    judged = {id: dict(grades) for id, grades in relevant.items() if grades}
    measures, calculate = _ir_measures()
    if not judged:
        return {}
    # Only the order counts: distinct scores leave no ties for the package to break its own way.
    run = {
        id: {document: float(len(ranking) - rank) for rank, document in enumerate(ranking)}
        for id, ranking in rankings.items()
        if id in judged and ranking
    }
    scores = {id: dict.fromkeys(RANKING, 0.0) for id in judged}
    if run:
        for found in calculate(list(measures), judged, run):
            scores[found.query_id][measures[found.measure]] = float(found.value)
    return scores


def _ir_measures() -> tuple[dict[Any, str], Any]:
    """Return the measures with our names for them, and the function that computes them."""
    try:
        import ir_measures
    except ImportError as error:
        raise BadRequest(f"ranking metrics need the package ir_measures: {install_command('eval')}") from error
    return {ir_measures.parse_measure(theirs): ours for ours, theirs in RANKING.items()}, ir_measures.iter_calc


def require_ir_measures() -> None:
    """Check that ir_measures is installed.

    Raises:
        BadRequest: it is not.
    """
    _ir_measures()


def route_accuracy(gold: Sequence[str], chosen: Iterable[str]) -> float | None:
    """Return 1 if the right sources were chosen, 0 if not, None if the question has no source labels.

    Of several right document sources, one is enough, and an additional document source does no harm. `sql`, `web` and
    `none` must be chosen exactly when they are wanted.
    """
    if not gold:
        return None
    wanted, given = set(gold), set(chosen)
    documents = wanted - _ALONE
    right = wanted & _ALONE == given & _ALONE and (not documents or bool(documents & given))
    return float(right)


def answer_accuracy(gold: Any, rows: Sequence[Sequence[Any]] | None) -> float | None:
    """Return 1 if the answer's table contains the gold value, 0 if not, None if there is no gold value.

    A single value must be in a table of one row. A list must be part of a single row, or equal one column in any order.
    An object must equal two columns: keys (as text) and values.

    Args:
        rows: the table's rows; None for an answer without a table.
    """
    if gold is None:
        return None
    table = [[_plain(cell) for cell in row] for row in rows or []]
    if not table:
        return 0.0
    columns = [list(column) for column in zip(*table, strict=True)]
    if isinstance(gold, Mapping):
        wanted = {str(key): _plain(value) for key, value in gold.items()}
        return float(
            any(
                len(table) == len(wanted) and dict(zip(map(_label, keys), values, strict=True)) == wanted
                for keys in columns
                for values in columns
            )
        )
    if isinstance(gold, Sequence) and not isinstance(gold, str):
        bag = Counter(map(_plain, gold))
        in_row = len(table) == 1 and bag <= Counter(table[0])
        return float(in_row or any(Counter(column) == bag for column in columns))
    return float(len(table) == 1 and _plain(gold) in table[0])


def answer_in_hits(gold: str, texts: Iterable[str], rows: Sequence[Sequence[Any]] | None) -> float | None:
    """Return 1 if a passage or a cell of the table contains the gold text as whole words, else 0.

    Case, punctuation and the commas of thousands do not count. None if the gold text has no letter or digit.

    Args:
        texts: the passages.
        rows: the table's rows; None for an answer without a table.
    """
    wanted = _words(gold)
    if not wanted:
        return None
    cells = (str(cell) for row in rows or () for cell in row)
    # Chinese has no blanks between words.
    # Imported here because it loads a tokenizer, which the help of the commands must not wait for.
    from retrievers.text.chinese_dictionary import contains_chinese

    sought, blank = (wanted.replace(" ", ""), "") if contains_chinese(wanted) else (f" {wanted} ", " ")
    held = (f" {_words(text)} ".replace(" ", blank) for text in (*texts, *cells))
    return float(any(sought in one for one in held))


def _words(text: str) -> str:
    """Return a text's words in lower case, separated by single blanks: `"Cost: 1,200 EUR" -> "cost 1200 eur"`."""
    text = _THOUSANDS.sub("", text).casefold()
    return " ".join("".join(one if one.isalnum() else " " for one in text).split())


def _plain(value: Any) -> Any:
    """Convert a cell to the form of gold values: numbers as floats, dates as ISO text."""
    if isinstance(value, bool):
        return str(value).lower()  # Python treats True as 1, SQL does not
    if isinstance(value, Decimal | float | int):
        return round(float(value), 6)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value if isinstance(value, str) or value is None else str(value)


def _label(value: Any) -> str:
    """Return a plain cell as the key of an object."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def averages(questions: Iterable[Scores]) -> dict[str, float | None]:
    """Return the mean of every metric over the questions it applies to; None if there are none."""
    values: dict[str, list[float]] = {name: [] for name in NAMES}
    for scores in questions:
        for name, collected in values.items():
            value = scores.get(name)
            if value is not None:
                collected.append(value)
    return {name: sum(collected) / len(collected) if collected else None for name, collected in values.items()}


def averages_by(questions: Iterable[tuple[str | None, Scores]]) -> dict[str, dict[str, float | None]]:
    """Return the averages of each group, sorted by group; questions without a group are left out."""
    groups: dict[str, list[Scores]] = {}
    for group, scores in questions:
        if group is not None:
            groups.setdefault(group, []).append(scores)
    return {group: averages(groups[group]) for group in sorted(groups)}
