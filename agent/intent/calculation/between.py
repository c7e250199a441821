"""Values of one field, or periods, that a question names side by side to tell them apart."""

import re
from dataclasses import dataclass
from datetime import date

from agent.intent.calculation.question import Question
from agent.intent.found import date_field

_PERIODS_OF_MONTHS = {12: "year", 6: "half", 3: "quarter", 1: "month"}
_SPAN = re.compile(r"(?:\bfrom\b|从|自).{1,60}?(?:\b(?:to|through|until|till)\b|到|至)", re.IGNORECASE)
"""Of two values so joined more than the two is meant."""


@dataclass(frozen=True, slots=True)
class Several:
    """What differs, as an expression of the aggregates, and its values; `is_row` where each is of one record."""

    expression: str
    values: tuple[object, ...]
    is_row: bool = False


def read_several(question: Question) -> Several | None:
    """The values that are told apart; None where fewer than two are named."""
    roles = question.columns.vocabulary.roles
    text = question.found.sentence.text
    for one in question.found.constraints:
        # Of "3.10 or later" no version is told apart.
        ranged = roles[one.field] == "version" and any(value not in text for value in one.values)
        said = (mention.of(one.field) for mention in question.found.sentence.mentions)
        named = [known for known in said if not {each.value for each in known}.isdisjoint(one.values)]
        if _is_span(text, one.start, one.end):
            continue  # "from Monday to Friday" is more than the two
        if len(named) > 1 and len(one.values) > 1 and not one.together and not one.negated and not ranged:
            return Several(one.field, one.values, one.field in question.columns.keys)
    for part in question.parts:
        alike = [one for one in question.parts if one.piece is not None and part.piece is not None
                 and one.piece.filter == part.piece.filter]  # fmt: skip
        if (
            part.piece is not None
            and len(alike) > 1
            and part.piece.filter["type"] == "in"
            and part.piece not in question.found.pieces
            and not _is_span(text, alike[0].start, alike[-1].end)
        ):
            field, values = part.piece.field, tuple(part.piece.filter["value"])
            return Several(field, values, field in question.columns.keys)
    return _periods(question)


def _is_span(text: str, start: int, end: int) -> bool:
    """Whether values at some characters are the ends of a span: "from Monday to Friday"."""
    return _SPAN.search(text[max(start - len("from "), 0) : end]) is not None


def _periods(question: Question) -> Several | None:
    """Two or more periods, by what differs: years, or halves, quarters or months of one year."""
    found, name = question.found, question.date()
    bounds = [(dated.period.low, dated.period.high) for dated in found.dates]
    if name is None or len(bounds) < 2 or len({date_field(found.sentence, dated) for dated in found.dates}) > 1:
        return None
    starts: list[date] = []
    lengths: set[int] = set()
    for low, high in bounds:
        if low is None or high is None or (low.day, high.day) != (1, 1):
            return None
        starts.append(low)
        lengths.add((high.year - low.year) * 12 + high.month - low.month)
    months = lengths.pop()
    if lengths or months not in _PERIODS_OF_MONTHS or any((low.month - 1) % months for low in starts):
        return None
    function = _PERIODS_OF_MONTHS[months]
    if function != "year" and len({low.year for low in starts}) > 1:
        return None
    values = (low.year if function == "year" else (low.month - 1) // months + 1 for low in starts)
    return Several(f"{function}({name})", tuple(values))
