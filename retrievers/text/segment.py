"""Split Chinese text into words, a piece at a time: the segmenter lets no other thread run until it has finished."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import rjieba

_PIECE_CHARACTERS = 4_096
"""Characters that are split in at most 3 ms."""
_BETWEEN = re.compile(r"[^\w+#&.%-]")
"""What is part of no word: the segmenter looks at what lies between two of these alone."""

_Word = TypeVar("_Word")


def words(text: str) -> list[str]:
    """Return the words of a text with everything between them, in order."""
    return _split(text, rjieba.cut)


def tagged_words(text: str) -> list[tuple[str, str]]:
    """Return the words of a text with everything between them, each with its part of speech as jieba names it."""
    return _split(text, rjieba.tag)


def placed_words(text: str, mode: Literal["default", "search"]) -> list[tuple[str, int, int]]:
    """Return the words of a text with everything between them, each with its start and end in characters.

    Args:
        mode: "search" also returns the shorter words within a word.
    """
    found: list[tuple[str, int, int]] = []
    for start, piece in _pieces(text):
        placed = rjieba.tokenize(piece, mode=mode, hmm=True)
        found += [(word, start + begin, start + end) for word, begin, end in placed] if start else placed
    return found


def _split(text: str, split: Callable[[str], Any]) -> list[_Word]:
    return [word for _, piece in _pieces(text) for word in split(piece)]


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield the text in pieces with their starts. Each ends between two words if it has such a place."""
    start = 0
    while len(text) - start > _PIECE_CHARACTERS:
        piece = text[start : start + _PIECE_CHARACTERS]
        last = max((found.end() for found in _BETWEEN.finditer(piece)), default=len(piece))
        yield start, piece[:last]
        start += last
    yield start, text[start:]
