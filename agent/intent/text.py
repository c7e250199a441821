"""A question as tokens, each with its place, and how well a word is a form of another."""

import re
from functools import lru_cache
from typing import NamedTuple

import rjieba
import Stemmer
from rapidfuzz import fuzz

from agent.intent.words import ordinary
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

CUT = 0.9
LOOSE = 0.8
_SHORTEST = 3
"""Letters of a name's word that a word of a question may go on from: `obs`, obsolete."""
_ROOT = 5
"""Letters that two forms of one word have in common: renew, renewal."""
_MISSPELT = 85
_MOST_LEFT = 0.75
"""Share of a word's consonants that a name without its vowels has at least."""


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


@lru_cache(maxsize=65_536)
def closeness(said: str, word: str) -> float:
    """How well a word of a question is a form of a word of a name, in [0, 1]; 0 where it is another word.

    1 for the word in any number or tense; `CUT` for what the name cuts short ("obsolete", `obs`); `LOOSE` for another
    form of it ("renewal", `renew`), for what it leaves letters out of ("garden", `grdn`), and for a slip.
    """
    if said == word or stem(said) == stem(word):
        return 1.0
    if not (said.isascii() and word.isascii()) or said[:1] != word[:1] or min(len(said), len(word)) < _SHORTEST:
        return 0.0
    is_word = word in ordinary() or stem(word) in ordinary()
    if said.startswith(word) and (len(word) > _SHORTEST or not is_word):
        return CUT
    if len(said) >= _ROOT <= len(word) and said[:_ROOT] == word[:_ROOT]:
        return LOOSE
    is_slip = len(word) >= _ROOT and fuzz.ratio(said, word) >= _MISSPELT
    return LOOSE if is_slip or (not is_word and leaves_out(said, word)) else 0.0


def leaves_out(said: str, word: str) -> bool:
    """Whether a name is a word without its vowels and little else: `grdn` of garden, `prkg` of parking."""
    left = iter(said)
    return len(word) >= _MOST_LEFT * len(_skeleton(said)) and all(letter in left for letter in word)


def _skeleton(word: str) -> str:
    """The first letter and the consonants behind it."""
    return word[:1] + "".join(letter for letter in word[1:] if letter not in "aeiouy")


def code_closeness(said: str, code: str) -> float:
    """How well a code stands for a word, see `closeness`: `hom` of home, `trv` of travel; `apt` of apartment less."""
    skeleton = _skeleton(said)
    if said == code or said[:1] != code[:1]:
        return 0.0
    if said.startswith(code) or skeleton.startswith(code):
        return CUT
    return LOOSE if code[-1] == skeleton[-1] and skeleton.startswith(code[:-1]) else 0.0
