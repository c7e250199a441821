"""Split a question into tokens with their positions, and measure how closely a word is a form of another."""

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import Stemmer
from rapidfuzz import fuzz

from agent.intent.words import word_frequencies
from retrievers.text import chinese_segmentation
from retrievers.text.folding import fold, plain_digits

_LETTER = r"[^\W\d_\u3400-\u9fff\uf900-\ufaff]"
_TOKEN = re.compile(
    r"(?P<cjk>[\u3400-\u9fff\uf900-\ufaff])|(?P<number>\d+(?:[.,]\d+)*)|"
    rf"(?P<word>{_LETTER}+(?=\d+\.\d)|{_LETTER}+(?:\.(?={_LETTER}))?(?:{_LETTER}|\d)*[+#]*)|(?P<mark>[^\s\w]|_)",
    re.IGNORECASE,
)
_CJK = re.compile(r"[\u3400-\u9fff\uf900-\ufaff]")

MOST_CHARACTERS = 1_000
"""Maximum characters of a turn that rules read; the longest questions of known data sets have 520."""

CUT = 0.9
LOOSE = 0.8
"""Degrees of `closeness` below 1."""
_SHORTEST = 3
"""Minimum letters of a short form in a name with which a question's word begins: `obs` for "obsolete"."""
_ROOT = 5
"""Number of first letters that two forms of a word share: renew, renewal."""
_MISSPELT = 85
_LONGEST_NAME = 80
"""Maximum characters of a text whose words are cached: those of the longest value that a question can name."""
_GREETINGS = frozenset(
    "hi hello hey dear thanks morning hallo goodmorning goodafternoon goodevening goodday 你好 您好".split()
)
_GREETING_MARKS, _LONGEST_GREETING = ",!，！:：", 9
_MOST_LEFT = 0.75
"""Minimum share of a word's consonants that an abbreviation keeps."""


class Token(NamedTuple):
    """A token at characters [start, end) of a text: "Loans" has the folded form "loans" and the stem "loan".

    Attributes:
        folded: the normalised text, for comparisons; the text itself for a mark or a Chinese character.
        stem: the English stem of `folded`; `folded` itself unless that has only the letters a to z.
        kind: "word", "number", "mark" for a punctuation mark or symbol, or "cjk" for one Chinese character.
    """

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
    """Return a turn with single blanks and the digits 0 to 9; of one over 1,000 characters, the beginning and end."""
    if len(text) > 2 * MOST_CHARACTERS:
        text = f"{text[:MOST_CHARACTERS]} {text[-MOST_CHARACTERS:]}"
    text = plain_digits(" ".join(text.split()))
    if len(text) <= MOST_CHARACTERS:
        return text
    half = MOST_CHARACTERS // 2
    return f"{text[:half]} {text[1 - half :]}"


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a text in order. "'s" is left out, "&" is the word "and"."""
    tokens = []
    for match in _TOKEN.finditer(plain_digits(_without_possessives(text))):
        kind = match.lastgroup or "mark"
        if match[0] in ("&", "＆"):
            tokens.append(Token(match[0], "and", "and", match.start(), match.end(), "word"))
            continue
        folded = (
            match[0] if kind in ("cjk", "mark") else match[0].replace(",", "") if kind == "number" else fold(match[0])
        )
        tokens.append(Token(text[match.start() : match.end()], folded, stem(folded), match.start(), match.end(), kind))
    return tokens


def chinese_pairs(tokens: Sequence[Token]) -> list[str]:
    """Return the pairs of neighbouring Chinese characters, by which full-text search finds Chinese words."""
    return [
        one.text + two.text for one, two in pairwise(tokens) if one.kind == two.kind == "cjk" and one.end == two.start
    ]


def _without_possessives(text: str) -> str:
    """Replace each "'s" by two blanks, so that all other characters keep their positions."""
    return re.sub(r"['’]s\b", "  ", text)


def words_of(name: str) -> tuple[str, ...]:
    """Return the folded tokens of a name or value without marks, for comparison with a question's tokens. Cached."""
    return _words_of_name(name) if len(name) <= _LONGEST_NAME else words_of_question(name)


def words_of_question(text: str) -> tuple[str, ...]:
    """Return the same as `words_of` without a cache: questions seldom repeat and would fill the memory."""
    return tuple(token.folded for token in tokenize(text) if token.kind != "mark" and token.folded)


_words_of_name = lru_cache(maxsize=32_768)(words_of_question)


def greeting_end(tokens: Sequence[Token]) -> int:
    """Return the index after a greeting with names, 0 without one: "Hi Sam and Jo, ...", "Good morning Ann!"."""
    said = "".join(token.folded for token in tokens[:2])
    if not tokens or (tokens[0].folded not in _GREETINGS and said not in _GREETINGS):
        return 0
    return next((place for place, token in enumerate(tokens[:_LONGEST_GREETING]) if token.text in _GREETING_MARKS), 0)


@lru_cache(maxsize=64)
def chinese_words(text: str) -> dict[int, int]:
    """Map the index of the first character of each Chinese word of two or more characters to the index after it."""
    if not has_chinese(text):
        return {}
    found = chinese_segmentation.words_with_offsets(text, "default")
    return {start: end for word, start, end in found if len(word) > 1 and has_chinese(word[0])}


def has_chinese(text: str) -> bool:
    return _CJK.search(text) is not None


@lru_cache(maxsize=16_384)
def stem(word: str) -> str:
    """Return the Snowball stem of an English word; any other word unchanged."""
    return _stemmer().stemWord(word) if word.isascii() and word.isalpha() else word


@lru_cache(maxsize=1)
def _stemmer() -> Stemmer.Stemmer:
    return Stemmer.Stemmer("english")


@lru_cache(maxsize=65_536)
def closeness(said: str, word: str) -> float:
    """Return how closely a question's word is a form of a word in a name, 0 to 1; 0 if it is another word.

    1 for the same word in any inflection; `CUT` if the name has only its beginning (`obs` for "obsolete"); `LOOSE` for
    another form (`renew` for "renewal"), for letters left out (`grdn` for "garden"), and for a misspelling.

    Args:
        said: the question's word.
        word: the word in the name.
    """
    if said == word or stem(said) == stem(word):
        return 1.0
    if not (said.isascii() and word.isascii()) or said[:1] != word[:1] or min(len(said), len(word)) < _SHORTEST:
        return 0.0
    is_word = word in word_frequencies() or stem(word) in word_frequencies()
    if said.startswith(word) and (len(word) > _SHORTEST or not is_word):
        return CUT
    if len(said) >= _ROOT <= len(word) and said[:_ROOT] == word[:_ROOT]:
        return LOOSE
    is_slip = len(word) >= _ROOT and fuzz.ratio(said, word) >= _MISSPELT
    return LOOSE if is_slip or (not is_word and leaves_out(said, word)) else 0.0


def leaves_out(said: str, word: str) -> bool:
    """Return whether a name's word is the question's word with letters left out, mostly vowels: `grdn` for "garden"."""
    left = iter(said)
    return len(word) >= _MOST_LEFT * len(consonants_of(said)) and all(letter in left for letter in word)


def consonants_of(word: str) -> str:
    """Return the first letter and the consonants after it."""
    return word[:1] + "".join(letter for letter in word[1:] if letter not in "aeiouy")


def code_closeness(said: str, code: str) -> float:
    """Return how well a code stands for a question's word; 0 if it does not, or if it is the word itself.

    `CUT` for a beginning of the word or of its consonants: `hom` for "home", `trv` for "travel". `LOOSE` if the last
    letter is the word's last consonant instead: `apt` for "apartment".
    """
    skeleton = consonants_of(said)
    if said == code or said[:1] != code[:1]:
        return 0.0
    if said.startswith(code) or skeleton.startswith(code):
        return CUT
    return LOOSE if code[-1] == skeleton[-1] and skeleton.startswith(code[:-1]) else 0.0
