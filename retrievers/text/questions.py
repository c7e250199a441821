"""A question as BM25 sees it: its terms, what each is worth, and the phrases it quotes."""

import re
from collections.abc import Mapping

from retrievers.text import weights
from retrievers.text.analysis import analyse

MOST_TERMS = 64
# Whole identifiers and character pairs repeat what their parts say already.
_EXTRA = 0.5
# A gloss is one of the senses of a word, the right one or not.
_GLOSS = 0.5

_QUOTED = re.compile(r'"([^"]{2,200})"|“([^”]{2,200})”|「([^」]{2,200})」|『([^』]{2,200})』|《([^》]{2,200})》')

Phrase = list[tuple[int, str]]
"""Words that follow each other: (position, term), positions ascending from any."""


def question_terms(text: str, language: str, gloss: str = "") -> dict[str, float]:
    """The question's terms with their shares: 1 each time it is said; derived and glossed ones less, and once."""
    shares: dict[str, float] = {}
    for term in analyse(text, language):
        if not term.extra:
            shares[term.text] = shares.get(term.text, 0.0) + 1.0
        else:
            shares.setdefault(term.text, _EXTRA)
    for term in analyse(gloss, "en"):
        shares.setdefault(term.text, _GLOSS)
    return shares


def weigh(shares: Mapping[str, float], passages: Mapping[str, int], chunks: int) -> dict[str, float]:
    """The question side of BM25: share times idf of the rarest terms that occur at all, the rarest first.

    Args:
        passages: in how many of the `chunks` passages each term occurs.
    """
    present = sorted((term for term in shares if passages.get(term)), key=lambda term: (passages[term], term))
    return {term: shares[term] * weights.idf(passages[term], chunks) for term in present[:MOST_TERMS]}


def quoted_phrases(text: str, language: str) -> list[Phrase]:
    """What stands in quotation marks and must occur as it is; phrases without a word are left out."""
    quoted = (next(group for group in found.groups() if group) for found in _QUOTED.finditer(text))
    phrases = (_phrase(part, language) for part in quoted)
    return [phrase for phrase in phrases if phrase]


def _phrase(text: str, language: str) -> Phrase:
    """Of several terms at one position (Chinese search mode) the longest counts."""
    longest: dict[int, str] = {}
    for term in analyse(text, language):
        if not term.extra and len(term.text) > len(longest.get(term.position, "")):
            longest[term.position] = term.text
    return sorted(longest.items())
