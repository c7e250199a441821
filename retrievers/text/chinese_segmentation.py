"""Split Chinese text into words, one short piece of text at a time: the segmenter blocks all threads while it runs."""

import re
from collections.abc import Callable, Iterator
from typing import Any, Literal, TypeVar

import rjieba

_PIECE_CHARACTERS = 4_096
"""Maximum length of a piece. It is split in at most 3 ms."""
_BETWEEN = re.compile(r"[^\w+#&.%-]")
"""A character that is part of no word. A cut after one does not change the words that the segmenter finds."""

_Word = TypeVar("_Word")


def words(text: str) -> list[str]:
    """Return the words of a text in order, together with the spaces and punctuation between them."""
    return _split(text, rjieba.cut)


def tagged_words(text: str) -> list[tuple[str, str]]:
    """Return the words of a text as `words` does, each with its part of speech as jieba names it: "n" for a noun."""
    return _split(text, rjieba.tag)


def words_with_offsets(text: str, mode: Literal["default", "search"]) -> list[tuple[str, int, int]]:
    """Return the words of a text as `words` does, each with its start and end (exclusive) in characters.

    Args:
        mode: "search" also returns the shorter words inside a word.
    """
    found: list[tuple[str, int, int]] = []
    for start, piece in _pieces(text):
        placed = rjieba.tokenize(piece, mode=mode, hmm=True)
        found += [(word, start + begin, start + end) for word, begin, end in placed] if start else placed
    return found


def _split(text: str, split: Callable[[str], Any]) -> list[_Word]:
    return [word for _, piece in _pieces(text) for word in split(piece)]


def _pieces(text: str) -> Iterator[tuple[int, str]]:
    """Yield (start, piece) of the short pieces of a text. A piece ends between two words if that is possible."""
    start = 0
    while len(text) - start > _PIECE_CHARACTERS:
        piece = text[start : start + _PIECE_CHARACTERS]
        last = max((found.end() for found in _BETWEEN.finditer(piece)), default=len(piece))
        yield start, piece[:last]
        start += last
    yield start, text[start:]
