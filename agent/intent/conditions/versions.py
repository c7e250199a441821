"""Ranges of versions: "3.9 to 3.11", "3.10 or later", 3.8 及以上 ("3.8 and above")."""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from agent.intent.analysis.sentence import Sentence
from agent.intent.deciding.constraints import Constraint

Compare = Callable[[tuple[int, ...], tuple[int, ...]], bool]

_RISING, _FALLING = "later|newer|higher|greater", "earlier|older|lower|less"
_BEHIND: tuple[tuple[str, Compare], ...] = (
    (
        rf"\+(?!\d)|(?:or|and)\s+(?:{_RISING}|above|up(?:wards?)?|beyond)\b|onwards?\b|"
        "(?:及|或|和)?(?:以上|更高|更新|以后|之后)|起",
        operator.ge,
    ),
    (rf"(?:or|and)\s+(?:{_FALLING}|below|before)\b|(?:及|或|和)(?:以下|更低|更早|以前|之前)", operator.le),
    ("以下|以前|之前", operator.lt),
)
"""Comparing words after a version."""
_BEFORE: tuple[tuple[str, Compare], ...] = (
    (rf"\b(?:after|(?:{_RISING})\s+than|above|beyond)|高于|晚于|新于", operator.gt),
    (rf"\b(?:before|(?:{_FALLING})\s+than|below|prior\s+to)|低于|早于", operator.lt),
)
"""Comparing words before a version, with at most one word between: "before Python 3.9"."""
_REACH = 40
"""Maximum characters before a version in which comparing words stand."""


def expand_version_ranges(sentence: Sentence, constraints: Sequence[Constraint]) -> list[Constraint]:
    """Return the constraints. One on a range of versions ("3.9 to 3.11") gets all known versions in it as values."""
    ranged = []
    for one in constraints:
        is_version = sentence.vocabulary.roles[one.field] == "version" and not one.negated
        if is_version and len(one.values) == 2:
            one = _closed_range(sentence, one)
        elif is_version and len(one.values) == 1:
            one = _open_range(sentence, one)
        ranged.append(one)
    return ranged


def version_sort_key(value: str) -> tuple[int, ...]:
    """Return the sort key of a version, its numbers: "3.10" -> (3, 10), which comes after (3, 9)."""
    return tuple(int(number) for number in re.findall(r"\d+", value))


def _closed_range(sentence: Sentence, one: Constraint) -> Constraint:
    first, last = map(re.escape, one.values)
    pattern = rf"{first}\s*(?:到|至|[-–—~]|(?:up\s+)?to|through|thru)\s*(?:[^\W\d]{{1,20}}\s*)?{last}"
    between = re.search(pattern, sentence.text, re.IGNORECASE)
    if between is None:
        return one
    low, high = sorted(map(version_sort_key, one.values))
    values = [value for value in _known(sentence, one) if low <= version_sort_key(value) <= high]
    start, end = min(one.start, between.start()), max(one.end, between.end())
    return replace(one, values=tuple(values), start=start, end=end)


def _open_range(sentence: Sentence, one: Constraint) -> Constraint:
    text, named = sentence.text, one.values[0]
    place = text.find(named, one.start, one.end)
    at = version_sort_key(named)
    if place < 0 or not at:
        return one
    near = max(0, place - _REACH)
    last, leading = place + len(named), text[near:place]
    behind = [(compare, re.match(rf"\s*(?:{words})", text[last:], re.I)) for words, compare in _BEHIND]
    before = [
        (compare, re.search(rf"(?:{words})\s*(?:[^\W\d]{{1,20}}\s*)?$", leading, re.I)) for words, compare in _BEFORE
    ]
    said = next(((compare, match) for compare, match in (*behind, *before) if match is not None), None)
    if said is None:
        return one
    compare, match = said
    values = [value for value in _known(sentence, one) if compare(version_sort_key(value), at)]
    if not values:
        return one
    start = min(one.start, near + match.start()) if any(match is found for _, found in before) else one.start
    end = max(one.end, last + match.end()) if any(match is found for _, found in behind) else one.end
    return replace(one, values=tuple(values), start=start, end=end)


def _known(sentence: Sentence, one: Constraint) -> list[str]:
    return sorted(sentence.vocabulary.catalogue.fields[one.field].values, key=version_sort_key)
