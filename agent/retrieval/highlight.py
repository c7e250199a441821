"""Where a passage holds the question's words."""

import re
import unicodedata
from itertools import islice

from retrievers.text.analysis import analyse, fold, stem

_EAST = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f"
_EAST_ASIAN = re.compile(f"[{_EAST}]")
# A Latin word ends where Chinese goes on without a space.
_WORD = re.compile(rf"[^\W_{_EAST}]+")
_BEYOND_ASCII = re.compile(r"([^\x00-\x7f]+)")
MOST_TERMS = 64
"""Words of a question that are looked for in its hits."""
_STEMMED = frozenset({"de", "fr", "es", "it", "pt", "nl", "sv"})


class Highlighter:
    """Finds the words of one question in texts, by the same stems that full text compares."""

    def __init__(self, question: str, language: str) -> None:
        self._language = language if language in _STEMMED else "en"
        plain = dict.fromkeys(term.text for term in analyse(question, language) if not term.extra)
        terms = set(islice(plain, MOST_TERMS))
        self._east_asian = sorted(term for term in terms if _EAST_ASIAN.search(term))
        self._stems = frozenset(terms) - frozenset(self._east_asian)
        # A stem without its last letter begins its words: few places are worth stemming.
        self._beginnings = sorted({term[:-1] if len(term) > 2 else term for term in self._stems})
        self._known: dict[str, bool] = {}

    def __call__(self, text: str) -> tuple[tuple[int, int], ...]:
        """Half-open character ranges, in order, not overlapping; of overlapping ones the longest."""
        found: list[tuple[int, int]] = []
        reached = 0
        for start, past in sorted(self._places(text)):
            if start >= reached:
                reached = -past
                found.append((start, reached))
        return tuple(found)

    def _places(self, text: str) -> set[tuple[int, int]]:
        """Start and negative end of every term, so that in order the longest of one start comes first."""
        found: set[tuple[int, int]] = set()
        for term in self._east_asian:
            at = text.find(term)
            while at >= 0:
                found.add((at, -at - len(term)))
                at = text.find(term, at + 1)
        plain = _plain(text)
        for beginning in self._beginnings:
            at = plain.find(beginning)
            while at >= 0:
                before = plain[at - 1 : at]
                if not before.isalnum() or (not before.isascii() and _EAST_ASIAN.match(before)):
                    word = _WORD.match(plain, at)
                    if word and self._is_asked(word[0]):
                        found.add((at, -word.end()))
                at = plain.find(beginning, at + 1)
        return found

    def _is_asked(self, word: str) -> bool:
        asked = self._known.get(word)
        if asked is None:
            asked = self._known[word] = stem(fold(word), self._language) in self._stems
        return asked


class _Plain(dict[int, str]):
    """Characters without case, accent and width, where that is one character: places in the text must stay."""

    def __missing__(self, code: int) -> str:
        folded = fold(unicodedata.normalize("NFKC", chr(code)))
        self[code] = folded if len(folded) == 1 else chr(code)
        return self[code]


_PLAIN = _Plain()


def _plain(text: str) -> str:
    """The text as its words are compared, every character in its place."""
    if text.isascii():
        return text.lower()
    # Translating a whole text takes four times as long, and mostly it has a few such characters.
    parts = _BEYOND_ASCII.split(text)
    return "".join([part.lower() if part.isascii() else part.translate(_PLAIN) for part in parts])
