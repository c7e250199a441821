"""Names of people: which texts look like them, which fields hold them, and what a name is without its titles."""

import re
from collections.abc import Sequence

from agent.intent import lexicon
from agent.intent.catalogue import is_surname_first, without_titles
from agent.intent.text import words_of
from agent.intent.words import table

_NAME = re.compile(r"(?:[^\W\d_][\w.'’-]*\s+){1,4}[^\W\d_][\w.'’-]*")
_CHINESE_NAME = re.compile(r"[\u4e00-\u9fff]{2,4}(?:·[\u4e00-\u9fff]+)*")
_INITIAL = re.compile(r"(?:[^\W\d_]\.\s*)+[^\W\d_][\w'’-]+")
"""An initial before a surname: "K. Ho"."""
_LONGEST_CHINESE, _FEW = 3, 2
_NAMES, _SIGNED = 0.7, 0.3
"""Shares of a field's values that look like names of people, and that are written as nothing else is."""
_MANY = 6
"""Values from which on their looks alone tell people, whatever the field is called."""


def looks_like_name(text: str) -> bool:
    """Whether a text may be the name of a person, by how it is written."""
    if _CHINESE_NAME.fullmatch(text):
        return "·" in text or text[0] in table("link", "zh")["surnames"]
    if is_surname_first(text):
        return True
    parts = text.split()
    capital = sum(part[:1].isupper() for part in parts)
    return _NAME.fullmatch(text) is not None and capital >= 2 and not any(c.isdigit() for c in text)


def are_people(name: str, texts: Sequence[str]) -> bool:
    """Whether a field whose name tells nothing holds people: by many names, by titles and initials, by who acts."""
    if len(texts) < _FEW or sum(map(looks_like_name, texts)) < _NAMES * len(texts):
        return False
    signed = sum(map(_is_signed, texts))
    return len(texts) >= _MANY or signed >= _SIGNED * len(texts) or _says_who_acts(name)


def _is_signed(text: str) -> bool:
    """Whether a name is written as those of people alone are: with a title, an initial, or a Chinese surname."""
    words = words_of(text)
    is_chinese = _CHINESE_NAME.fullmatch(text) is not None and len(text) <= _LONGEST_CHINESE
    return (
        is_chinese or is_surname_first(text) or without_titles(words) != words or _INITIAL.fullmatch(text) is not None
    )


def _says_who_acts(name: str) -> bool:
    """ "surveyor", "leadAttorney", 独奏家."""
    words = lexicon.name_words(name)
    agents = (*table("link", "en")["agents"].split(), *table("link", "zh")["agents"].split())
    return bool(words) and words[-1].endswith(agents)
