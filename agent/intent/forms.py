"""Words in another form: what an abbreviated name stands for, and the forms of a word that stems do not join."""

from functools import lru_cache

from rapidfuzz import fuzz

from agent.intent.text import stem
from agent.intent.words import ordinary

CUT = 0.9
LOOSE = 0.8
_SHORTEST = 3
"""Letters of a name's word that a word of a question may go on from: `obs`, obsolete."""
_ROOT = 5
"""Letters that two forms of one word have in common: renew, renewal."""
_MISSPELT = 85
_MOST_LEFT = 0.75
"""Share of a word's consonants that a name without its vowels has at least."""


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
    if len(word) >= _ROOT:
        return LOOSE if fuzz.ratio(said, word) >= _MISSPELT else 0.0
    return LOOSE if not is_word and leaves_out(said, word) else 0.0


def leaves_out(said: str, word: str) -> bool:
    """Whether a name is a word without its vowels and little else: `grdn` of garden, `prkg` of parking."""
    consonants = [letter for letter in said if letter not in "aeiouy"]
    left = iter(said)
    return len(word) >= _MOST_LEFT * len(consonants) and all(letter in left for letter in word)


def is_code_of(code: str, word: str) -> bool:
    """Whether a code is a word cut short or with letters left out: `trv` of travel, `apt` of apartments."""
    word = word.removesuffix("s")
    left = iter(word)
    return (
        word.startswith(code)
        or leaves_out(word, code)
        or (word[-1] == code[-1] and all(letter in left for letter in code))
    )
