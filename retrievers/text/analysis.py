"""Turn text into the terms that full-text search stores and looks up.

Documents and questions use the same analyser. Latin script: words, folded (case, width, accents) and stemmed. Chinese:
words in search mode, and character pairs for words that the dictionary does not know. Identifiers keep their whole form
beside their parts, spelled uniformly: `PEP 703`, `PEP-703` and `pep703` all yield the term "pep-703", `CVE-2024-5565`
yields "cve-2024-5565".
"""

import itertools
import re
import unicodedata
from collections.abc import Iterator
from functools import cache, lru_cache
from typing import NamedTuple

import Stemmer

from retrievers.text import chinese_segmentation
from retrievers.text.languages import STOP_WORDS
from retrievers.text.unicode_normalisation import separate_voicing_marks

VERSION = 2
"""Increased when a change makes a text yield other terms. A collection stores the version that analysed it."""

_SNOWBALL = {
    "en": "english", "de": "german", "fr": "french", "es": "spanish",
    "it": "italian", "pt": "portuguese", "nl": "dutch", "sv": "swedish",
}  # fmt: skip
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002fa1f"
_KANA_HANGUL = "\u3040-\u30ff\uac00-\ud7af"
# A run of Han, a run of kana or hangul, or a word including the characters that join identifiers.
_TOKEN = re.compile(
    rf"(?P<han>[{_HAN}]+)|(?P<other>[{_KANA_HANGUL}]+)"
    rf"|(?P<word>[^\W{_HAN}{_KANA_HANGUL}]+(?:[-./:+#'’@&][^\W{_HAN}{_KANA_HANGUL}]+)*)"
)
_EAST_ASIAN = re.compile(rf"[{_HAN}{_KANA_HANGUL}]")
_LETTERS = re.compile(r"[^\W\d_]+")
_PART = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"['’][sS]$")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_NAME_AND_NUMBER = re.compile(r"([a-z]{2,})(\d+)")
CHINESE_STOP_WORDS = frozenset(
    "的 了 是 在 和 与 及 或 也 都 就 而 被 把 吗 呢 吧 啊 哪 哪些 什么 怎么 如何 请 请问 一个 这 那 这个 那个".split()
)
_MOST_CHARACTERS = 64
_LONGEST_CHINESE_WORD = 16
_CACHED_WORDS, _CACHED_PARTS = 1 << 13, 1 << 11
"""Size of the cache of analysed words, and of each cache of folded and stemmed parts. With twice as many words, SciFact
is analysed 5 % faster, for 7 MB more.
"""
_SHOUTED_WORDS = 3
# Normalising a long run of combining marks takes quadratic time, so it is cut. No word contains these characters.
_MANY_MARKS = re.compile(r"([^\w\s\x00-\x7f]{30})[^\w\s\x00-\x7f]+")
# NFKC can expand one character to eighteen (U+FDFA). A text that grows beyond this factor and addition is cut.
_MOST_GROWTH, _MOST_MORE = 2, 256


class Term(NamedTuple):
    """A term of a text, with the number of the word where it occurs.

    Attributes:
        derived: True for a derived term (a whole identifier, a character pair). It can be searched for, but does not
            count towards the length of the text.
    """

    text: str
    position: int
    derived: bool


def analyse(text: str, language: str, *, derived: bool = True) -> list[Term]:
    """Return the terms of a text, in order.

    Args:
        language: ISO 639-1 code; selects the stemmer and the stop words. Latin words in a text of another script are
            analysed as English.
        derived: False leaves out derived terms. For Chinese text this saves two thirds of the time.
    Returns:
        Terms with word positions from 0. A stop word keeps its position, so phrases stay exact.
    """
    return list(_terms(text, language if language in _SNOWBALL else "en", derived))


def _terms(text: str, language: str, derived: bool) -> Iterator[Term]:
    normal = text
    if not text.isascii():
        most = _MOST_GROWTH * len(text) + _MOST_MORE
        normal = unicodedata.normalize("NFKC", _MANY_MARKS.sub(r"\1", separate_voicing_marks(text)))[:most]
    shouting = _is_shouting(normal)
    position = 0
    name: tuple[str, int, int] | None = None  # the previous word, its position and its end
    for found in _TOKEN.finditer(normal):
        if found["han"]:
            yield from (_chinese if derived else _chinese_words)(found["han"], position)
            position += len(found["han"])
            name = None
            continue
        if found["other"]:
            yield from _pairs(found["other"], position, derived=False)
            position += len(found["other"])
            name = None
            continue
        word = found["word"]
        # A few distinct words make up most of a text, so their analysis is cached.
        analysed = (_word if len(word) <= _MOST_CHARACTERS else _word.__wrapped__)(word, language, shouting)
        if derived and analysed.number and name and normal[name[2] : found.start()] in (" ", "\n"):
            # Adds "PEP 703" as one identifier at the position of its name.
            yield Term(f"{name[0]}-{analysed.number}"[:_MOST_CHARACTERS], name[1], True)
        for term in analysed.terms:
            if derived or not term.derived:
                yield Term(term.text, position + term.position, term.derived)
        if analysed.positions:
            name = (analysed.name, position, found.end()) if analysed.name else None
            position += analysed.positions


class _Word(NamedTuple):
    """The analysis of one word of Latin script.

    Attributes:
        terms: its terms, with positions from 0 within the word.
        positions: number of positions that the word takes; 0 for punctuation.
        name: the word's folded form ("pep" for "PEP") if the word can form an identifier with a number after it, as in
            "PEP 703", because it has only letters and is no stop word. Else "".
        number: the word itself if it is a number, else "".
    """

    terms: tuple[Term, ...]
    positions: int
    name: str
    number: str


@lru_cache(maxsize=_CACHED_WORDS)
def _word(word: str, language: str, shouting: bool) -> _Word:
    word = _POSSESSIVE.sub("", word)
    parts = [part[:_MOST_CHARACTERS] for part in _PART.findall(word)]
    stop = _STOP_WORDS[language]
    terms = []
    for position, part in enumerate(parts):
        # Stop words in capitals are kept: "IT" and "US" are names.
        named = len(parts) > 1 or (part.isupper() and len(part) > 1 and not shouting)
        folded = fold_term(part)
        if named or folded not in stop:
            terms.append(Term(stem(folded, language)[:_MOST_CHARACTERS], position, False))
    terms += [Term(whole[:_MOST_CHARACTERS], 0, True) for whole in _wholes(parts)]
    alone = fold_term(parts[0]) if len(parts) == 1 else ""
    name = alone if alone and parts[0].isalpha() and alone not in stop else ""
    return _Word(tuple(terms), len(parts), name, parts[0] if alone.isdigit() else "")


def _is_shouting(text: str) -> bool:
    """Return whether a text is all in capitals. In such a text, capitals do not show that a word is a name.

    False for fewer than three words, and for text with Chinese, Japanese or Korean characters.
    """
    if not text.isupper() or _EAST_ASIAN.search(text):
        return False
    words = _LETTERS.finditer(text)
    return sum(1 for _ in itertools.islice(words, _SHOUTED_WORDS)) == _SHOUTED_WORDS


def _wholes(parts: list[str]) -> Iterator[str]:
    """Yield the derived terms of a word.

    These are its parts joined by hyphens ("rtm-prod" for rtm/prod), a name and its number ("utf-8" for utf8), and the
    words in camel case ("get", "user", "name" for getUserName).

    Args:
        parts: runs of letters and digits in the word.
    """
    if not parts:
        return
    if len(parts) > 1:
        yield "-".join(fold_term(part) for part in parts)
        return
    found = _NAME_AND_NUMBER.fullmatch(fold_term(parts[0]))
    if found:
        yield f"{found[1]}-{found[2]}"
    pieces = _CAMEL.findall(parts[0])
    if 1 < len(pieces) <= 8 and not parts[0].isupper() and any(piece[0].isupper() for piece in pieces[1:]):
        for piece in pieces:
            if len(piece) > 2:
                yield stem(piece.lower(), "en")


def _chinese(run: str, position: int) -> Iterator[Term]:
    """Yield the words of a run of Chinese, then, as derived terms, all pairs of adjacent characters that are no words.

    Args:
        run: Chinese characters without a break.
        position: word position of the first character; each character takes one position.
    """
    seen = set()
    for term in _chinese_words(run, position):
        seen.add((term.text, term.position - position))
        yield term
    for term in _pairs(run, position, derived=True):
        if (term.text, term.position - position) not in seen and term.text not in CHINESE_STOP_WORDS:
            yield term


def _chinese_words(run: str, position: int) -> Iterator[Term]:
    """Yield the words of a run of Chinese, and the shorter words inside them, each at the position where it begins.

    The segmenter does not know rare characters and takes a run of them for one word. Its pairs are yielded instead.
    """
    for word, start, _ in chinese_segmentation.words_with_offsets(run, "search"):
        if len(word) > _LONGEST_CHINESE_WORD:
            yield from _pairs(word, position + start, derived=False)
        elif word not in CHINESE_STOP_WORDS:
            yield Term(word, position + start, False)


def _pairs(run: str, position: int, *, derived: bool) -> Iterator[Term]:
    if len(run) == 1:
        yield Term(run, position, derived)
    for offset in range(len(run) - 1):
        yield Term(run[offset : offset + 2], position + offset, derived)


_LIGATURES = {"ß": "ss", "æ": "ae", "œ": "oe", "ø": "o", "đ": "d", "ł": "l"}


@lru_cache(maxsize=_CACHED_PARTS)
def fold_term(word: str) -> str:
    """Return the word without case and accents. The word must be in NFKC, which unifies full and half width."""
    if word.isascii():
        return word.lower()
    decomposed = unicodedata.normalize("NFD", word.casefold())
    plain = "".join(c for c in decomposed if not unicodedata.combining(c))
    return "".join(_LIGATURES.get(c, c) for c in plain)


# Stop words are compared with folded words: "für" and "été" become "fur" and "ete".
_STOP_WORDS = {language: frozenset(map(fold_term, words)) for language, words in STOP_WORDS.items()}


@lru_cache(maxsize=_CACHED_PARTS)
def stem(word: str, language: str) -> str:
    """Return the Snowball stem of a folded word. Words with digits are unchanged."""
    if not word.isalpha():
        return word
    return str(_stemmer(language).stemWord(word))


@cache
def _stemmer(language: str) -> "Stemmer.Stemmer":
    # 0 switches off the stemmer's own cache: that of `stem` is shared by all languages and bounded.
    return Stemmer.Stemmer(_SNOWBALL[language], 0)
