"""Where a passage holds the question's words."""

import re

from retrievers.text.analysis import analyse, fold, stem

_HAN = re.compile(r"[\u3400-\u9fff]")


class Highlighter:
    """Finds the words of one question in texts, by the same stems that full text compares."""

    def __init__(self, question: str, language: str) -> None:
        self._language = language if language in ("de", "fr", "es", "it", "pt", "nl", "sv") else "en"
        terms = {term.text for term in analyse(question, language) if not term.extra}
        self._terms = frozenset(term for term in terms if not _HAN.search(term))
        han = sorted((term for term in terms if _HAN.search(term)), key=len, reverse=True)
        # A stem without its last letter begins its words, so one pass finds the few that are worth stemming.
        beginnings = sorted({term[:-1] if len(term) > 2 else term for term in self._terms})
        pattern = [rf"(?<![^\W_])(?:{'|'.join(map(re.escape, beginnings))})[^\W_]*"] if beginnings else []
        self._pattern = re.compile("|".join([*map(re.escape, han), *pattern]), re.IGNORECASE) if terms else None

    def __call__(self, text: str) -> tuple[tuple[int, int], ...]:
        """Half-open character ranges, in order, not overlapping."""
        if self._pattern is None:
            return ()
        return tuple(found.span() for found in self._pattern.finditer(text) if self._is_term(found[0]))

    def _is_term(self, word: str) -> bool:
        return bool(_HAN.search(word)) or stem(fold(word), self._language) in self._terms
