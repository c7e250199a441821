"""The stated size of groups: "authors with at least 5 reports"."""

from collections.abc import Callable

from agent.intent.calculation.parameters import denotes_records, names_only_dates
from agent.intent.calculation.segment import CONDITION, FIELD, NUMBER
from agent.intent.calculation.segmented_question import LINKING, SegmentedQuestion
from agent.intent.conditions.filter_json import Json

_BOUNDS: dict[str, Callable[[int], Json]] = {
    "at_least": lambda n: {"at_least": n},
    "more_than": lambda n: {"at_least": n + 1},
    "at_most": lambda n: {"at_most": n},
    "fewer_than": lambda n: {"at_most": n - 1},
    "exactly": lambda n: {"at_least": n, "at_most": n},
    "or_more": lambda n: {"at_least": n},
    "or_fewer": lambda n: {"at_most": n},
}
_CLASSIFIERS = frozenset("个篇份条起件项门位名首道部次")


def read_group_size(question: SegmentedQuestion) -> Json | None:
    """Return the stated bounds on the records in a group: {"at_least": 5} for "at least 5 reports"; None if none."""
    for index in question.indices_of(*_BOUNDS):
        made = _group_size_at(question, index)
        if made is not None:
            return made
    for index in question.indices_of("exactly"):
        question.used.add(index)  # "only" restricts nothing without a number
    return None


def _group_size_at(question: SegmentedQuestion, index: int) -> Json | None:
    """Return the bounds that the segment `index` states: {"at_least": 5}; None if the bounds are not on records."""
    segment = question.segments[index]
    text = question.parsed.sentence.text[segment.start : segment.end].casefold()
    if segment.kind in ("or_more", "or_fewer"):
        number = next((n for n in (index - 1, index - 2) if n >= 0 and question.segments[n].kind == NUMBER), None)
        record = question.neighbour(index, 1, over=(*LINKING, CONDITION)) if number == index - 1 else index - 1
    elif segment.kind == "exactly" and ("single" in text or text.endswith(" one")):
        number, record = None, question.neighbour(index, 1, over=(*LINKING,))
    else:
        number = question.neighbour(index, 1)
        if number is None or question.segments[number].kind != NUMBER:
            return None
        record = question.neighbour(number, 1, over=(*LINKING,))
        while record is not None and _is_modifier(question, record):
            record = question.neighbour(record, 1)
    if not (denotes_records(question, record) or _has_classifier(question, number, index)):
        return None
    question.used.update(one for one in (index, number) if one is not None)
    stated = 1 if number is None else question.segments[number].number
    return None if stated is None else _BOUNDS[segment.kind](stated)


def _is_modifier(question: SegmentedQuestion, index: int) -> bool:
    """Return whether a segment only describes records: a constraint or a date field, as in "40 [submitted] reports"."""
    segment = question.segments[index]
    return (segment.kind == CONDITION and not denotes_records(question, index)) or (
        segment.kind == FIELD and names_only_dates(question, segment)
    )


def _has_classifier(question: SegmentedQuestion, number: int | None, index: int) -> bool:
    """Return whether a Chinese classifier after a number shows that the number counts records.

    The noun for the records may be before the number: 文件[超过 10 份]的作者 ("authors of over 10 files").

    Args:
        number: index of the segment that is the number; None returns False.
        index: index of the segment that states the bound (超过).
    """
    if number is None or number + 1 >= len(question.segments):
        return False
    behind = question.segments[number + 1]
    unit = question.parsed.sentence.text[behind.start : behind.start + 1]
    before = question.neighbour(index, -1)
    after = question.neighbour(number, 1)
    return unit in _CLASSIFIERS and (denotes_records(question, before) or denotes_records(question, after))
