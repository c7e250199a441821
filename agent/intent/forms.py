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
