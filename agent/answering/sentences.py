"""Split an answer or a passage, English or Chinese, into sentences, and read their citations.

A citation is a number in brackets: `[1]`, `[1][2]`, `[1, 2]`, `[1-3]`, `【1】`, `［1］`. A citation after the full stop
belongs to the sentence before it.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

_NUMBERS = r"\^?\d{1,3}(?:\s?[-–,，、;；]\s?\d{1,3})*"
CITATION = re.compile(rf"[\[［【]\s?(?P<numbers>{_NUMBERS})(?:†[^\]］】\n]{{0,80}})?\s?[\]］】]")
_RANGE = re.compile(r"(\d+)(?:\s?[-–]\s?(\d+))?")
_MOST_IN_RANGE = 20

_BEFORE_TEXT = re.compile(
    r"[ \t>]*(?:(?:[-*+•·]|\d{1,3}[.)]|#{1,6})[ \t]+|\d{1,3}[、．]|[（(]?[一二三四五六七八九十]{1,3}[）)、])?"
)
_HEADING = re.compile(r"[ \t>]*#{1,6}[ \t]")
_FENCE = re.compile(r"[ \t>]*(?:```|~~~)")
_RULE = re.compile(r"[\s|:=*_-]*")
_CLOSING = r"[\"'”’»)\]）」』*_`]"
_STOP = re.compile(rf"(?P<full>[。！？；]++{_CLOSING}*+)|[.!?…]++{_CLOSING}*+")
_AFTER_STOP = re.compile(r"\s|$|[\[［【]\s?\^?\d")
_CITED_BEHIND = re.compile(rf"(?:\s?{CITATION.pattern.replace('?P<numbers>', '?:')})+[.。]?")
_ABBREVIATION = re.compile(
    r"(?:\b(?:e\.g|i\.e|cf|vs|al|approx|ca|Dr|Mr|Mrs|Ms|Prof|St|Jr|Sr|Inc|Ltd|Co|Fig|Figs|Eq|Sec|Vol|No|pp"
    r"|Jan|Feb|Mar|Apr|Jun|Jul|Aug|Sept?|Oct|Nov|Dec)|\b[A-Z](?:\.[A-Z])*)\Z"
)
_LONGEST_ABBREVIATION = 12
_NOT_BLANK = re.compile(r"\S")


class SentenceSpan(NamedTuple):
    """Characters [start, end) of a text; `heading` is True for a line that is a heading."""

    start: int
    end: int
    heading: bool = False


def sentence_spans(text: str, *, code: bool = False) -> Iterator[SentenceSpan]:
    """Yield the sentences in order, without list markers and horizontal rules. A line break always ends a sentence.

    Args:
        code: whether to include code blocks.
    """
    at, fenced = 0, False
    for line in text.splitlines(keepends=True):
        if _FENCE.match(line):
            fenced = not fenced
        elif (code or not fenced) and not _RULE.fullmatch(line):
            heading = _HEADING.match(line) is not None
            for start, end in _in_line(line):
                yield SentenceSpan(at + start, at + end, heading)
        at += len(line)


def cited_numbers(text: str) -> list[int]:
    """Return the numbers that a text cites, in order, without repetition: "so [2], but [1-3]" -> [2, 1, 3]."""
    numbers: dict[int, None] = {}
    for marker in CITATION.finditer(text):
        for first, last in _RANGE.findall(marker["numbers"]):
            end = min(int(last or first), int(first) + _MOST_IN_RANGE)
            numbers |= dict.fromkeys(range(int(first), end + 1))
    return list(numbers)


def without_citations(text: str) -> str:
    """Return the text without its citations."""
    return CITATION.sub("", text)


def _in_line(line: str) -> Iterator[tuple[int, int]]:
    start = found.end() if (found := _BEFORE_TEXT.match(line)) else 0
    for end in _ends(line, start):
        piece = line[start:end]
        if piece.strip():
            yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
        start = end


def _ends(line: str, start: int) -> Iterator[int]:
    """Yield the end of each sentence of a line."""
    at = start
    while found := _STOP.search(line, at):
        at = found.end()
        # As a part of `_STOP`, this test would be repeated at each mark of a long row of marks ("......").
        if not found["full"] and not _AFTER_STOP.match(line, at):
            continue
        behind = _CITED_BEHIND.match(line, at)
        if found[0].startswith((".", "…")) and not behind and not _is_full_stop(line, found):
            continue
        at = behind.end() if behind else at
        yield at
    yield len(line)


def _is_full_stop(line: str, stop: re.Match[str]) -> bool:
    follows = _NOT_BLANK.search(line, stop.end())
    return (
        not (follows and follows[0].islower())
        and _ABBREVIATION.search(line, max(0, stop.start() - _LONGEST_ABBREVIATION), stop.start()) is None
    )
