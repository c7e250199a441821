"""Where a passage holds the question's words."""

import re
import unicodedata
from collections.abc import Iterator

from retrievers.text.analysis import analyse, fold, stem

_EAST = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f"
_EAST_ASIAN = re.compile(f"[{_EAST}]")
# A Latin word ends where Chinese goes on without a space.
_WORD = re.compile(rf"[^\W_{_EAST}]+")
_STEMMED = frozenset({"de", "fr", "es", "it", "pt", "nl", "sv"})


class Highlighter:
    """Finds the words of one question in texts, by the same stems that full text compares."""

    def __init__(self, question: str, language: str) -> None:
        self._language = language if language in _STEMMED else "en"
        terms = {term.text for term in analyse(question, language) if not term.extra}
        self._east_asian = sorted(term for term in terms if _EAST_ASIAN.search(term))
        self._stems = frozenset(terms) - frozenset(self._east_asian)
        # A stem without its last letter begins its words: few places are worth stemming.
        self._beginnings = sorted({term[:-1] if len(term) > 2 else term for term in self._stems})

    def __call__(self, text: str) -> tuple[tuple[int, int], ...]:
        """Half-open character ranges, in order, not overlapping; of overlapping ones the longest."""
        found: list[tuple[int, int]] = []
        for start, end in sorted(set(self._ranges(text)), key=lambda one: (one[0], -one[1])):
            if not found or start >= found[-1][1]:
                found.append((start, end))
        return tuple(found)

    def _ranges(self, text: str) -> Iterator[tuple[int, int]]:
        for term in self._east_asian:
            yield from ((at, at + len(term)) for at in _places(text, term))
        plain = text.lower() if text.isascii() else text.translate(_PLAIN)
        for beginning in self._beginnings:
            for at in _places(plain, beginning):
                before = plain[at - 1 : at]
                if before.isalnum() and (before.isascii() or not _EAST_ASIAN.match(before)):
                    continue
                word = _WORD.match(plain, at)
                if word and stem(fold(word[0]), self._language) in self._stems:
                    yield word.span()


class _Plain(dict[int, str]):
    """Characters without case, accent and width, where that is one character: places in the text must stay."""

    def __missing__(self, code: int) -> str:
        folded = fold(unicodedata.normalize("NFKC", chr(code)))
        self[code] = folded if len(folded) == 1 else chr(code)
        return self[code]


_PLAIN = _Plain()


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
