"""Split a document into passages along its headings, paragraphs and sentences.

Adjacent sections (Markdown and reStructuredText headings) are packed into one passage while they fit. A section that is
too long is cut by semantic-text-splitter at the best boundary: paragraph, sentence (also at Chinese punctuation), word.
Every passage has its position in the text, so that a citation can point to it.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from semantic_text_splitter import TextSplitter

from retrievers.text.pieces import text_pieces

VERSION = 1
PASSAGE_CAPACITY = 1800
"""Maximum length of a passage, in characters of Latin script; about 400 tokens. A Chinese character counts as 2.5."""

_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f]")
_CJK_WIDTH = 2.5
_FENCE = re.compile(r"\s{0,3}(`{3,}|~{3,})(.*)", re.DOTALL)
_MARKDOWN_HEADING = re.compile(r"\s{0,3}(#{1,6})\s")
_UNDERLINE = re.compile(r"([=\-~^\"'`#*+:.])\1{2,}\s*$")
# A passage may exceed the capacity by this factor: splitting off a short remainder would be worse.
_SLACK = 1.15
# The splitter takes quadratic time on a text without sentences. Longer texts are cut into blocks of about this many
# passages first.
_MOST_AT_ONCE = 10
_LONGEST_HEADING = 512
"""Maximum length of a heading in a passage, in characters. The rest is cut."""
_LONGEST_UNDERLINE = 1 << 16
_LINES_CHARACTERS = 1 << 16
_BOUNDARIES = ("\n\n", "\n", "。", ". ", " ")


@dataclass(frozen=True, slots=True)
class PassageSpan:
    """A passage: characters [start, end) of the document, in the section with the heading `heading`."""

    start: int
    end: int
    heading: str


@dataclass(frozen=True, slots=True)
class _Section:
    start: int
    end: int
    path: tuple[str, ...]


def split_passages(text: str, capacity: int = PASSAGE_CAPACITY) -> list[PassageSpan]:
    """Cut a text into passages.

    Args:
        text: cleaned text; not empty.
        capacity: maximum length of a passage, in Latin characters; exceeded by at most 15 %.
    Returns:
        Passages in order, without overlap. Together they contain all characters except white space.
    """
    if _size(text) <= capacity * _SLACK:
        return [span for span in (_trimmed(text, 0, len(text), ""),) if span]
    spans: list[PassageSpan] = []
    group: list[_Section] = []
    grouped = 0.0
    for section in _sections(text):
        size = _size(text[section.start : section.end])
        if group and grouped + size > capacity:
            spans += _cut(text, group, capacity)
            group, grouped = [], 0.0
        group.append(section)
        grouped += size
    spans += _cut(text, group, capacity)
    return spans


def _size(text: str) -> float:
    """Return the length of a text in Latin characters: a Chinese, Japanese or Korean character counts as 2.5."""
    return len(text) + (_CJK_WIDTH - 1) * sum(len(_CJK.findall(piece)) for piece in text_pieces(text))


def _cut(text: str, group: list[_Section], capacity: int) -> list[PassageSpan]:
    """Make passages of adjacent sections: one if the sections fit into it together, else several of about equal length.

    Each passage gets the headings that all these sections share, such as "Guide > Setup".
    """
    start, end = group[0].start, group[-1].end
    heading = " > ".join(_common([section.path for section in group]))
    spans = (_trimmed(text, *piece, heading) for piece in _pieces(text, start, end, capacity))
    return [span for span in spans if span]


def _pieces(text: str, start: int, end: int, capacity: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of pieces of [start, end), of about equal length and at most 15 % over `capacity`."""
    size, length = _size(text[start:end]), end - start
    if size <= capacity * _SLACK or length == 1:
        yield start, end
        return
    most = max(1, int(capacity * length / size))
    if length > most * _MOST_AT_ONCE * 2:
        while start < end:
            blocks = -(-(end - start) // (most * _MOST_AT_ONCE))
            stop = _boundary(text, start, start + -(-(end - start) // blocks), end)
            yield from _pieces(text, start, stop, capacity)
            start = stop
        return
    pieces = -(-length // most)
    for offset, piece in TextSplitter((int(length / pieces), most), trim=False).chunk_indices(text[start:end]):
        # In a text of mixed scripts, a piece with more wide characters than the others may be too long still.
        yield from _pieces(text, start + offset, start + offset + len(piece), capacity)


def _boundary(text: str, start: int, stop: int, end: int) -> int:
    """Return the best place to cut in the second half of [start, stop).

    Returns `stop` if there is no boundary there, or if `stop` is the end of what is to be cut.

    Args:
        end: end of what is to be cut.
    """
    if stop < end:
        for boundary in _BOUNDARIES:
            found = text.rfind(boundary, (start + stop) // 2, stop)
            if found >= 0:
                return found + len(boundary)
    return stop


def _trimmed(text: str, start: int, end: int, heading: str) -> PassageSpan | None:
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return PassageSpan(start, end, heading) if end > start else None


def _common(paths: list[tuple[str, ...]]) -> tuple[str, ...]:
    first, last = min(paths), max(paths)
    same = 0
    while same < min(len(first), len(last)) and first[same] == last[same]:
        same += 1
    return first[:same]


def _sections(text: str) -> Iterator[_Section]:
    """Cut the text at its headings. Each section starts with the line of its heading."""
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
    """Yield (offset, level from 1, title) of each Markdown or reStructuredText heading outside code fences."""
    at = 0
    before, before_at = "", 0
    fence = ""
    underlines: list[str] = []
    for line in _lines(text):
        marks = _FENCE.match(line)
        if fence:
            if marks and marks[1].startswith(fence) and not marks[2].strip():
                fence = ""
        elif marks and "`" not in marks[2]:
            fence = marks[1]
        else:
            markdown = _MARKDOWN_HEADING.match(line)
            title = markdown_title(line[markdown.end() :])[:_LONGEST_HEADING] if markdown else ""
            underline = _UNDERLINE.match(line) if len(line) <= _LONGEST_UNDERLINE else None
            if markdown and title:
                yield at, len(markdown[1]), title
            elif underline and _may_be_title(before, line):
                if underline[1] not in underlines:
                    underlines.append(underline[1])
                yield before_at, underlines.index(underline[1]) + 1, before.strip()[:_LONGEST_HEADING]
        before, before_at = line, at
        at += len(line)


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a text with their ends. They are split a part at a time, so that other threads can run."""
    start = 0
    while start < len(text):
        end = text.find("\n", start + _LINES_CHARACTERS) + 1 or len(text)
        yield from text[start:end].splitlines(keepends=True)
        start = end


def markdown_title(rest: str) -> str:
    """Return the text of a Markdown heading without closing number signs: "Lists ##" -> "Lists", but "C#" -> "C#".

    Args:
        rest: the line after its opening number signs.
    """
    title = rest.strip()
    bare = title.rstrip("#")
    return bare.rstrip() if not bare or bare[-1].isspace() else title


def _may_be_title(line: str, underline: str) -> bool:
    title = line.strip()
    return bool(title) and not line[0].isspace() and len(title) <= len(underline.strip()) + 2 and title[0].isalnum()
