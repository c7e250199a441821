"""Compare a word of a field's name with a word of a question: does it abbreviate the word or share its root?"""

import re
from functools import lru_cache

from agent.intent.language.text import stem

VOWELS = re.compile("[aeiou]")
_LEAST_ROOT = 5


@lru_cache(maxsize=1 << 15)
def is_abbreviation(short: str, word: str) -> bool:
    """Return whether `short`, a word of a field's name, abbreviates `word`: "prio" for priority, "wt" for weight."""
    if f"{short}e" == word and len(short) > 2:
        return True  # "typ" of type
    if not short.isascii() or not short.isalpha() or len(short) >= len(word) - 1 or short[:1] != word[:1]:
        return False
    if len(short) >= 3 and word.startswith(short.rstrip("e") if len(short) > 3 else short):
        return True
    if not short.strip("e"):
        return False  # only the letter "e": no consonant to compare
    if len(short) == 2:
        return not VOWELS.search(short) and short[1] == word[-1]
    rest = iter(word)
    alike = len(short) > 3 and short[:2] == word[:2] and len(word) >= 2 * len(short)
    # An abbreviation keeps the last consonant: "prc" can be "price", but not "parcel".
    said = singular_of(word)
    last = {one.rstrip("aeiou")[-1:] for one in (said, re.sub(r"(?:er|or|ing|ed)$", "", said))}
    ends = short.rstrip("e")[-1] in last
    return (alike or (ends and not VOWELS.search(short[1:].rstrip("e")))) and all(letter in rest for letter in short)


def singular_of(word: str) -> str:
    """Return the singular of an English plural; any other word unchanged."""
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    return word[:-1] if word.endswith("s") and not word.endswith(("ss", "us", "is")) else word


def is_short_form(one: str, word: str) -> bool:
    """Return whether a field's word `one` or its stem abbreviates `word`: "ctry" for country, "cites" for citations."""
    return is_abbreviation(one, word) or is_abbreviation(stem(one), word)


def has_same_root(one: str, word: str) -> bool:
    """Return whether `one`, a stem, and `word` begin alike: with at least five letters and 60 % of the longer stem."""
    shared = 0
    for left, right in zip(one, word, strict=False):
        if left != right:
            break
        shared += 1
    return shared >= max(_LEAST_ROOT, 0.6 * max(len(one), len(stem(word))))
