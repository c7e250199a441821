"""Where a passage holds the question's words."""

import re
from collections.abc import Iterator

from retrievers.text.analysis import analyse, fold, stem

_HAN = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"[^\W_]+")
_STEMMED = frozenset({"de", "fr", "es", "it", "pt", "nl", "sv"})


class Highlighter:
    """Finds the words of one question in texts, by the same stems that full text compares."""

    def __init__(self, question: str, language: str) -> None:
        self._language = language if language in _STEMMED else "en"
        terms = {term.text for term in analyse(question, language) if not term.extra}
        self._han = sorted(term for term in terms if _HAN.search(term))
        self._stems = frozenset(terms) - frozenset(self._han)
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
        for term in self._han:
            yield from ((at, at + len(term)) for at in _places(text, term))
        lower = text.lower()
        if len(lower) != len(text):  # a few letters have no lower case of the same length
            lower = text
        for beginning in self._beginnings:
            for at in _places(lower, beginning):
                if at and lower[at - 1].isalnum():
                    continue
                word = _WORD.match(text, at)
                if word and stem(fold(word[0]), self._language) in self._stems:
                    yield word.span()


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
