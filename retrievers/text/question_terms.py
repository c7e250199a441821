"""The question side of BM25: the question's terms, their weights, and the phrases it quotes."""

import re
from collections.abc import Mapping
from functools import lru_cache

from retrievers.text import bm25
from retrievers.text.analysis import Term, analyse

MOST_TERMS = 64
# Weight of whole identifiers and character pairs, which repeat terms that are already counted.
_EXTRA = 0.5
# Weight of the English translation of a Chinese word, which may be the wrong sense of it.
_TRANSLATION = 0.5

_QUOTED = re.compile(r'"([^"]{2,200})"|“([^”]{2,200})”|「([^」]{2,200})」|『([^』]{2,200})』|《([^》]{2,200})》')

Phrase = list[tuple[int, str]]
"""Words of a phrase as (position, term). Positions ascend from any start."""


@lru_cache(maxsize=32)
def analyse_question(text: str, language: str) -> tuple[Term, ...]:
    """Return the terms of a question, see `analyse`. Cached, because several stages of a request need them."""
    return tuple(analyse(text, language))


@lru_cache(maxsize=256)
def question_term_weights(text: str, language: str, translation: str = "") -> Mapping[str, float]:
    """Return the question's terms with their weights: 1 per occurrence, 0.5 for a derived or translated term.

    Cached, because several stages of a request need them.

    Args:
        translation: English words for a Chinese question, see `retrievers.text.chinese_dictionary.translate_if_needed`.
    """
    terms = analyse_question(text, language)
    shares: dict[str, float] = {}
    for term in terms:
        if not term.derived:
            shares[term.text] = shares.get(term.text, 0.0) + 1.0
    for term in terms:
        if term.derived:
            shares.setdefault(term.text, _EXTRA)
    for term in analyse(translation, "en"):
        shares.setdefault(term.text, _TRANSLATION)
    return shares


def weigh_by_rarity(shares: Mapping[str, float], passages: Mapping[str, int], chunks: int) -> dict[str, float]:
    """Weigh the question's terms that occur in passages by their rarity.

    Args:
        shares: the weight of each term in the question, see `question_term_weights`.
        passages: the number of passages that contain each term.
        chunks: the number of all passages.
    Returns:
        Term to its weight in the question times its idf, the rarest term first; at most the `MOST_TERMS` rarest terms.
    """
    present = sorted((term for term in shares if passages.get(term)), key=lambda term: (passages[term], term))
    return {term: shares[term] * bm25.idf(passages[term], chunks) for term in present[:MOST_TERMS]}


def quoted_phrases(text: str, language: str) -> list[Phrase]:
    """Return each text in quotation marks as a phrase, (position, term) pairs. Texts without a word are left out."""
    quoted = (next(group for group in found.groups() if group) for found in _QUOTED.finditer(text))
    phrases = (_phrase(part, language) for part in quoted)
    return [phrase for phrase in phrases if phrase]


def _phrase(text: str, language: str) -> Phrase:
    """Return the words of a text as a phrase. Of several Chinese terms at one position, the longest is kept."""
    longest: dict[int, str] = {}
    for term in analyse(text, language):
        if not term.derived and len(term.text) > len(longest.get(term.position, "")):
            longest[term.position] = term.text
    return sorted(longest.items())
