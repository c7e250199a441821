"""Highlighting: find the character ranges of a passage that hold words of the question."""

import re
import unicodedata
from itertools import islice

from retrievers.text.analysis import fold_term, stem
from retrievers.text.question_terms import analyse_question

_EAST = r"\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0002fa1f"
_EAST_ASIAN = re.compile(f"[{_EAST}]")
# Chinese text may follow a Latin word without a space, so these characters end the word.
_WORD = re.compile(rf"[^\W_{_EAST}]+")
_BEYOND_ASCII = re.compile(r"([^\x00-\x7f]+)")
MOST_TERMS = 64
"""Maximum number of question words that are highlighted."""
_STEMMED = frozenset({"de", "fr", "es", "it", "pt", "nl", "sv"})


class Highlighter:
    """Finds the words of one question in texts; two words match if the analyser of full text gives them one stem."""

    def __init__(self, question: str, language: str) -> None:
        self._language = language if language in _STEMMED else "en"
        plain = dict.fromkeys(term.text for term in analyse_question(question, language) if not term.derived)
        terms = set(islice(plain, MOST_TERMS))
        self._east_asian = sorted(term for term in terms if _EAST_ASIAN.search(term))
        self._stems = frozenset(terms) - frozenset(self._east_asian)
        # A word begins with its stem, except perhaps for the stem's last letter ("library" -> "librari"). Searching for
        # these beginnings first leaves few words to stem.
        self._beginnings = sorted({term[:-1] if len(term) > 2 else term for term in self._stems})
        self._known: dict[str, bool] = {}

    def __call__(self, text: str) -> tuple[tuple[int, int], ...]:
        """Return half-open character ranges in order; of overlapping matches the first and longest is kept."""
        found: list[tuple[int, int]] = []
        reached = 0
        for start, past in sorted(self._places(text)):
            if start >= reached:
                reached = -past
                found.append((start, reached))
        return tuple(found)

    def _places(self, text: str) -> set[tuple[int, int]]:
        """Return (start, -end) of every match, so that of matches with one start the longest sorts first."""
        found: set[tuple[int, int]] = set()
        for term in self._east_asian:
            at = text.find(term)
            while at >= 0:
                found.add((at, -at - len(term)))
                at = text.find(term, at + 1)
        plain = _plain(text)
        for beginning in self._beginnings:
            at = plain.find(beginning)
            # Go on behind the word, since no word begins inside it: in "aaaa" every character would match "a".
            while at >= 0 and (word := _WORD.match(plain, at)):
                before = plain[at - 1 : at]
                is_first = not before.isalnum() or (not before.isascii() and _EAST_ASIAN.match(before))
                if is_first and self._is_asked(word[0]):
                    found.add((at, -word.end()))
                at = plain.find(beginning, word.end())
        return found

    def _is_asked(self, word: str) -> bool:
        asked = self._known.get(word)
        if asked is None:
            asked = self._known[word] = stem(fold_term(word), self._language) in self._stems
        return asked


class _Plain(dict[int, str]):
    """Table for `str.translate` that maps characters to lower case without accents or width variants.

    A character that would become several characters is kept, so that offsets in the text stay valid.
    """

    def __missing__(self, code: int) -> str:
        folded = fold_term(unicodedata.normalize("NFKC", chr(code)))
        self[code] = folded if len(folded) == 1 else chr(code)
        return self[code]


_PLAIN = _Plain()


def _plain(text: str) -> str:
    """Return the text in lower case without accents and width variants; every character keeps its offset."""
    if text.isascii():
        return text.lower()
    # Translating the whole text takes four times as long, and most texts have few such characters.
    parts = _BEYOND_ASCII.split(text)
    return "".join([part.lower() if part.isascii() else part.translate(_PLAIN) for part in parts])
