"""Where a passage holds the question's words."""

import re
import unicodedata
from functools import lru_cache

from retrievers.text.analysis import analyse, fold, stem

_EAST = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f"
_EAST_ASIAN = re.compile(f"[{_EAST}]")


class Highlighter:
    """Finds the words of one question in texts, by the same stems that full text compares."""

    def __init__(self, question: str, language: str) -> None:
        self._language = language if language in ("de", "fr", "es", "it", "pt", "nl", "sv") else "en"
        terms = {term.text for term in analyse(question, language) if not term.extra}
        self._terms = frozenset(term for term in terms if not _EAST_ASIAN.search(term))
        east = sorted((term for term in terms if _EAST_ASIAN.search(term)), key=lambda term: (-len(term), term))
        # Stems are mostly beginnings of words ("using" and "use", "dried" and "dry" share two letters), so one
        # pass over the text finds the few words worth stemming.
        beginnings = sorted({term[:2] for term in self._terms})
        letter = rf"[^\W_{_EAST}]"
        pattern = [rf"(?<!{letter})(?:{'|'.join(map(re.escape, beginnings))}){letter}*"] if beginnings else []
        self._pattern = re.compile("|".join([*map(re.escape, east), *pattern]), re.IGNORECASE) if terms else None

    def __call__(self, text: str) -> tuple[tuple[int, int], ...]:
        """Half-open character ranges, in order, not overlapping."""
        if self._pattern is None:
            return ()
        plain = text if text.isascii() else "".join(map(_plain, text))
        return tuple(found.span() for found in self._pattern.finditer(plain) if self._is_term(found[0]))

    def _is_term(self, word: str) -> bool:
        return bool(_EAST_ASIAN.search(word)) or stem(fold(word), self._language) in self._terms


@lru_cache(maxsize=1 << 14)
def _plain(character: str) -> str:
    """The character without accent and width, if that is one character: places in the text must stay."""
    folded = fold(unicodedata.normalize("NFKC", character))
    return folded if len(folded) == 1 else character
