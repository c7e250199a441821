"""Splitting a document into passages along its headings, paragraphs and sentences.

Sections (Markdown and reStructuredText headings) are packed together while they fit; a section that is
too long is cut by semantic-text-splitter at the best boundary below it: paragraph, sentence (also at
Chinese punctuation), word. Every passage knows its place in the text, so a citation can point to it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from semantic_text_splitter import TextSplitter

VERSION = 1
CAPACITY = 1800
"""Longest passage, in characters of Latin script; about 400 tokens. A Chinese character counts as 2.5."""

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_CJK_WIDTH = 2.5
_FENCE = re.compile(r"\s{0,3}(```|~~~)")
_MARKDOWN_HEADING = re.compile(r"\s{0,3}(#{1,6})\s+(.+?)\s*#*\s*$")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+:.])\1{2,}\s*$")
# Splitting off less than this much of a passage is worse than letting it run over.
_SLACK = 1.15


@dataclass(frozen=True, slots=True)
class Span:
    """A passage: characters [start, end) of the document, under the section `heading`."""

    start: int
    end: int
    heading: str


@dataclass(frozen=True, slots=True)
class _Section:
    start: int
    end: int
    path: tuple[str, ...]


def split(text: str, capacity: int = CAPACITY) -> list[Span]:
    """Cut a text into passages.

    Args:
        text: cleaned text; not empty.
        capacity: longest passage, in Latin characters; exceeded by at most 15 %.
    Returns:
        Passages in order, not overlapping; together they hold every character but white space.
    """
    width = 1 + (_CJK_WIDTH - 1) * len(_CJK.findall(text)) / max(len(text), 1)
    most = max(1, int(capacity / width))
    if len(text) <= most * _SLACK:
        return [span for span in (_trimmed(text, 0, len(text), ""),) if span]
    spans: list[Span | None] = []
    group: list[_Section] = []
    for section in _sections(text):
        if group and section.end - group[0].start > most:
            spans += _cut(text, group, most)
            group = []
        group.append(section)
    spans += _cut(text, group, most)
    return [span for span in spans if span]


def _cut(text: str, group: list[_Section], most: int) -> list[Span | None]:
    """The passages of some adjacent sections: one if they fit, else even pieces of the only one."""
    start, end = group[0].start, group[-1].end
    heading = " > ".join(_common([section.path for section in group]))
    length = end - start
    if length <= most * _SLACK:
        return [_trimmed(text, start, end, heading)]
    pieces = -(-length // most)
    splitter = TextSplitter((int(length / pieces), most), trim=False)
    return [
        _trimmed(text, start + offset, start + offset + len(piece), heading)
        for offset, piece in splitter.chunk_indices(text[start:end])
    ]


def _trimmed(text: str, start: int, end: int, heading: str) -> Span | None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Span(start, end, heading) if end > start else None


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    first, last = min(paths), max(paths)
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return first[:same]


def _sections(text: str) -> Iterator[_Section]:
    """The text cut at its headings; each section starts with its heading's line."""
    start = 0
    path: list[tuple[int, str]] = []
    for at, level, title in _headings(text):
        if at > start:
            yield _Section(start, at, tuple(name for _, name in path))
            start = at
        path = [(depth, name) for depth, name in path if depth < level] + [(level, title)]
    if start < len(text):
        yield _Section(start, len(text), tuple(name for _, name in path))


def _headings(text: str) -> Iterator[tuple[int, int, str]]:
    """(offset, level from 1, title) of each heading; lines inside code fences are none."""
    at = 0
    before, before_at = "", 0
    fence: str | None = None
    underlines: list[str] = []
    for line in text.splitlines(keepends=True):
        opened = _FENCE.match(line)
        if opened and (fence is None or fence == opened[1]):
            fence = None if fence else opened[1]
        elif fence is None:
            markdown = _MARKDOWN_HEADING.match(line)
            underline = _UNDERLINE.match(line)
            if markdown:
                yield at, len(markdown[1]), markdown[2]
            elif underline and _may_be_title(before, line):
                if underline[1] not in underlines:
                    underlines.append(underline[1])
                yield before_at, underlines.index(underline[1]) + 1, before.strip()
        before, before_at = line, at
        at += len(line)


def _may_be_title(line: str, underline: str) -> bool:
    title = line.strip()
    return bool(title) and not line[0].isspace() and len(title) <= len(underline.strip()) + 2 and title[0].isalnum()
