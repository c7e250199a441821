"""A question as tokens: words, numbers and single Chinese characters, each with its place."""

import re
from functools import lru_cache
from typing import NamedTuple

import rjieba
import Stemmer

from retrievers.text.folding import fold

_LETTER = r"[^\W\d_\u3400-\u9fff\uf900-\ufaff]"
_TOKEN = re.compile(
    r"(?P<cjk>[\u3400-\u9fff\uf900-\ufaff])|(?P<number>\d+(?:[.,]\d+)*)|"
    rf"(?P<word>{_LETTER}+(?=\d+\.\d)|{_LETTER}+(?:\.(?={_LETTER}))?(?:{_LETTER}|\d)*[+#]*)|(?P<mark>[^\s\w]|_)",
    re.IGNORECASE,
)
_CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")

MOST_CHARACTERS = 1_000
"""Characters of a turn that rules read; the longest questions of known collections have 520."""


class Token(NamedTuple):
    """One token. `folded` is how it is compared, `stem` the English stem of it; marks keep both as they are."""

    text: str
    folded: str
    stem: str
    start: int
    end: int
    kind: str

    @property
    def is_capital(self) -> bool:
        return self.text[:1].isupper()


def readable(text: str) -> str:
    """The part of a turn that rules read: single blanks; of a long turn the beginning and the end."""
    if len(text) > 2 * MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]} {text[-MOST_CHARACTERS:]}"
    text = " ".join(text.split())
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]} {text[1 - half :]}"


def tokenize(text: str) -> list[Token]:
    """The tokens of a text, in order; "'s" is none."""
    tokens = []
    for match in _TOKEN.finditer(_without_possessives(text)):
        kind = match.lastgroup or "mark"
        if match[0] in ("&", "＆"):
            tokens.append(Token(match[0], "and", "and", match.start(), match.end(), "word"))
            continue
        folded = (
            match[0] if kind in ("cjk", "mark") else match[0].replace(",", "") if kind == "number" else fold(match[0])
        )
        tokens.append(Token(text[match.start() : match.end()], folded, stem(folded), match.start(), match.end(), kind))
    return tokens


def _without_possessives(text: str) -> str:
    """The text with "'s" and contractions' apostrophes blanked, so that places stay."""
    return re.sub(r"['’]s\b", "  ", text)


def words_of(text: str) -> tuple[str, ...]:
    """Folded tokens of a name or a value, marks left out: what a question's tokens are compared with."""
    return tuple(token.folded for token in tokenize(text) if token.kind != "mark" and token.folded)


@lru_cache(maxsize=64)
def chinese_words(text: str) -> dict[int, int]:
    """The words of two and more Chinese characters of a text: where each begins, and where it ends."""
    if not has_chinese(text):
        return {}
    found = rjieba.tokenize(text, mode="default", hmm=True)
    return {start: end for word, start, end in found if len(word) > 1 and has_chinese(word[0])}


def has_chinese(text: str) -> bool:
    return _CJK.search(text) is not None


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """The Snowball stem of an English word; anything else as it is."""
    return _stemmer().stemWord(word) if word.isascii() and word.isalpha() else word


@lru_cache(maxsize=1)
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english")
