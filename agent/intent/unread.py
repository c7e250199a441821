"""What of a question would be passed over in silence: words that may state a condition, and of which none was made."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from agent.intent import wording, words
from agent.intent.bounds import find_comparisons
from agent.intent.filters import Json
from agent.intent.found import Found, Piece
from agent.intent.sentence import Sentence
from agent.types import Rejected

Span = tuple[int, int]

SEARCHED = "no condition was made of it, so it is only searched for as words"
NOT_EXCLUDED = "it was not read as a condition, so nothing is excluded by it"

_QUOTED = re.compile(r"\"[^\"]{2,80}\"|“[^”]{2,80}”|「[^」]{2,80}」|《[^》]{2,80}》|(?<!\w)'[^']{2,80}'(?!\w)")
_EXACT = re.compile(r"[\d_@/.:-]|(?<=[a-z])[A-Z]|\s")
_NUMBER = re.compile(r"(?<![A-Za-z\d_.:/#-])[$€£¥]?\d+(?:[.,:]\d+)*(?![A-Za-z\d_/-])")
"""A number that is no part of a code."""
_CLAUSE = re.compile(r"[,;:.?!，；：。？！]")
_REACH, _REACH_BACK = 40, 12
_MOST = 5


def unread(found: Found) -> tuple[Rejected, ...]:
    """The numbers, dates, quoted and exact values and negations of a question that no piece covers."""
    sentence = found.sentence
    pieces = (*found.pieces, *found.lengths)
    meant = {(one.field, value) for one in found.constraints for value in one.values}
    stated = {piece.field for piece in pieces}
    read = [(one.start, one.end) for one in pieces]
    read += [(one.start, one.end) for one in sentence.mentions if {(k.field, k.value) for k in one.known} & meant]
    if stated & set(sentence.vocabulary.of_role("date")):
        read += [(one.start, one.end) for one in found.dates]  # of ranges far apart a piece covers the first
    named = [(one.start, one.end) for one in sentence.mentions]
    exact = [
        (one.start, one.end)
        for one in found.left
        if any(one_of.value == sentence.text[one.start : one.end] for one_of in one.known)
        and _EXACT.search(sentence.text[one.start : one.end])
    ]
    dates = [(one.start, one.end) for one in found.dates]
    denied = [(one.start, one.end) for one in pieces if _denies(one)]
    stays = [*_compared(found, read), *_positive(sentence.text, [*exact, *dates], read)]
    stays += _negative(sentence, [*named, *dates], read, denied)
    return tuple(_rejected(sentence.text, stays))


def _positive(text: str, more: Sequence[Span], read: Sequence[Span]) -> Iterator[tuple[Span, str]]:
    """What is quoted, exact, a number or a day, and was not read; a number with the comparison before it."""
    quoted = [match.span() for match in _QUOTED.finditer(text)]
    days = [match.span() for match in _words("day").finditer(text)]
    numbers = [match.span() for match in _NUMBER.finditer(text)]
    for start, end in (*quoted, *more, *days, *numbers):
        if any(start < last and first < end for first, last in read):
            continue
        near = max(start - _REACH, 0)
        before = _comparing().search(text[near:start])
        yield (near + before.start() if before else start, end), SEARCHED


def _compared(found: Found, read: Sequence[Span]) -> Iterator[tuple[Span, str]]:
    """Amounts of which no condition was made, with their comparison; in words alone "two" is hardly a condition."""
    compared, unclear = find_comparisons(found.sentence)
    why = {(start, end): reason for start, end, reason in found.unclear}
    said = (one for one in compared if not one.is_bare or not all(amount.is_worded for amount in one.amounts))
    spans = [*unclear, *((one.start, one.end) for one in said)]
    for span in spans:
        if not any(span[0] < last and first < span[1] for first, last in read):
            yield span, why.get(span, SEARCHED)


def _negative(
    sentence: Sentence, named: Sequence[Span], stated: Sequence[Span], denied: Sequence[Span]
) -> Iterator[tuple[Span, str]]:
    """Words that exclude, and negations of something named, that no condition goes with."""
    text = sentence.text
    for negator in sentence.negators.values():
        start, end = sentence.tokens[negator.first].start, sentence.tokens[negator.last - 1].end
        clause = _CLAUSE.search(text, end)
        until = min(end + _REACH, clause.start() if clause else len(text))
        near = any(start - _REACH_BACK <= last and first <= until for first, last in denied)
        if near or any(first <= start < last for first, last in stated):
            continue
        excluded = [last for first, last in named if end <= first < until]
        names = text[start:end].casefold() in words.table("negation")["naming"]
        if excluded or names or negator.kind in ("excluding", "lacking", "prefix"):
            yield (start, min(excluded) if excluded else until), NOT_EXCLUDED


def _rejected(text: str, stays: Iterable[tuple[Span, str]]) -> Iterator[Rejected]:
    """Each place once, in the order of the question; of places that overlap the first and longest."""
    last, count = 0, 0
    for (start, end), reason in sorted(stays, key=lambda one: (one[0][0], -one[0][1])):
        said = text[start:end].strip()
        if start >= last and said and count < _MOST:
            yield Rejected(what=said[:200], reason=reason)
            last, count = end, count + 1


@cache
def _words(name: str) -> re.Pattern[str]:
    """The words of a list, the longest first."""
    listed = sorted(words.table("unread")[name], key=len, reverse=True)
    said = (rf"(?<![A-Za-z]){re.escape(one)}(?![A-Za-z])" if one.isascii() else re.escape(one) for one in listed)
    return re.compile("|".join(said), re.IGNORECASE)


@cache
def _comparing() -> re.Pattern[str]:
    """A comparison right before a number."""
    return re.compile(rf"(?:{_words('comparison').pattern}|[<>≥≤]=?)\s*$", re.IGNORECASE)


def _denies(piece: Piece) -> bool:
    """Whether a condition says what is not to be."""
    one = piece.filter
    return (
        one["type"] in ("ne", "nin", "not", "lt", "lte")
        or (one["type"] in ("exists", "eq") and one.get("value") is False)
        or (one["type"] == "and" and any(inner["type"] in ("ne", "nin", "not") for inner in one["filters"]))
        or _is_outside(one)
    )


def leaves_out(found: Found) -> bool:
    """Whether the words deny something, or offer a choice, of which no constraint was made."""
    sentence = found.sentence
    denies = any(one.negated for one in found.constraints) or any(map(_denies, (*found.pieces, *found.lengths)))
    if wording.DENYING.search(sentence.text) and not denies:
        return True
    fields = {one.field for one in found.constraints}
    chooses = any(len(one.values) > 1 or one.also for one in found.constraints) or len(found.dates) > 1
    return len(fields) > 1 and not chooses and wording.CHOOSING.search(sentence.text) is not None


def _is_outside(filter: Json) -> bool:
    """Whether it is what lies outside of a range: "not in 2025"."""
    return filter["type"] == "or" and [one["type"] for one in filter["filters"]] == ["lt", "gte"]
