"""Recognise metadata fields whose values are people, by how names are written, and find the parts of such names."""

import re
from collections.abc import Iterator, Sequence
from itertools import dropwhile

from agent.intent.language import lexicon
from agent.intent.language.text import has_chinese, stem, words_of
from agent.intent.values import account_names
from agent.intent.values.account_names import EMAIL, SEPARATORS
from agent.intent.words import word_frequencies, word_table

SURNAME_FIRST = re.compile(r"(?P<name>[^\W\d_][^\d,]*),\s*(?P<initials>(?:[^\W\d_]\.?[\s-]*){1,4})")
"""Matches a surname with initials behind it: "Miller, J. R."."""
_NAME_OF_PERSON = re.compile(r"(?:[^\W\d_][\w.'’-]*\s+){1,4}[^\W\d_][\w.'’-]*")
_CHINESE_NAME_OF_PERSON = re.compile(r"[\u4e00-\u9fff]{2,4}(?:·[\u4e00-\u9fff]+)*")
_INITIAL = re.compile(r"(?:[^\W\d_]\.\s*)+[^\W\d_][\w'’-]+")
"""Initials before a surname: "K. Ho"."""
_LONGEST_CHINESE, _FEW_NAMES = 3, 2
_NAMES, _SIGNED = 0.7, 0.3
"""Minimum share of a field's values that look like names of people, and minimum share that can be nothing else."""
_RARE = 2
"""Maximum frequency class (see `words.word_frequencies`) of a word that may be a first name, such as Martin or Iris."""
_SHORTEST_NAME = 4
_MANY = 6
"""Minimum number of values of a field that is judged by its values alone, because its name says nothing."""


def is_surname_first(text: str) -> bool:
    """Return whether a text has the form "Miller, J. R."."""
    return SURNAME_FIRST.fullmatch(text) is not None


def is_rare_word(word: str) -> bool:
    """Return whether a folded word is so rare that it may name a company or a place by itself: northwind."""
    return word.isalpha() and len(word) >= _SHORTEST_NAME and word_frequencies().get(stem(word), 0) < _RARE


def without_titles(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return a name's words without leading titles: prof dr jonas reuter -> jonas reuter. Titles alone are kept."""
    return tuple(dropwhile(lexicon.TITLES.__contains__, words)) or words


def looks_like_person(text: str) -> bool:
    """Return whether a text may be the name of a person, by how it is written."""
    if _CHINESE_NAME_OF_PERSON.fullmatch(text):
        return "·" in text or text[0] in word_table("link", "zh")["surnames"]
    if is_surname_first(text):
        return True
    parts = text.split()
    capital = sum(part[:1].isupper() for part in parts)
    return _NAME_OF_PERSON.fullmatch(text) is not None and capital >= 2 and not any(c.isdigit() for c in text)


def person_name_parts(value: str) -> Iterator[tuple[str, ...]]:
    """Yield the shorter names by which a person or company can be called, each as folded words.

    "Anna Maria Holm" -> anna; holm; anna maria; maria holm; anna holm. The account name "jdoe" -> doe. "Northwind
    Partners" -> northwind.
    """
    surname = SURNAME_FIRST.fullmatch(value)
    if surname is not None:
        yield words_of(surname["name"])
        yield words_of(surname["name"])[-1:]
        return
    if parts := [(part,) for part in account_names.person_names_in(value)]:
        yield from parts
        return
    mail = EMAIL.fullmatch(value)
    words = words_of(SEPARATORS.sub(" ", mail["local"])) if mail else without_titles(words_of(value))
    if mail and len(words) == 1:
        yield from ((part,) for part in account_names.person_names_in(words[0]))
    if has_chinese(value) and len(words) == _LONGEST_CHINESE and value[0] in word_table("link", "zh")["surnames"]:
        yield words[1:]  # the given name: 若水 (Ruoshui) of 孙若水 (Sun Ruoshui)
    if len(words) < 2 or has_chinese(value):
        return
    if set(words) & lexicon.COMPANY_WORDS:
        # A company is called by its first words only: "Northwind" for Northwind Partners.
        yield from (words[:size] for size in range(1, len(words)) if size > 1 or is_rare_word(words[0]))
        return
    yield from ((word,) for word in dict.fromkeys((words[0], words[-1])) if len(word) > 1)
    if len(words) > 2:
        # Of a long name, people often leave out the words after the second, the first name or the middle names.
        yield from (words[:2], words[1:], (words[0], words[-1]))


def is_person_field(name: str, texts: Sequence[str]) -> bool:
    """Return whether the field `name` holds people, although its name has no known meaning such as "author".

    Most values must look like names of people. In addition, some must have a title or initials, the field's name must
    say who acts ("surveyor"), or the first names must be rare words.

    Args:
        texts: the field's values.
    """
    if len(texts) < _FEW_NAMES or sum(map(looks_like_person, texts)) < _NAMES * len(texts):
        return False
    if sum(map(_has_person_form, texts)) >= _SIGNED * len(texts):
        return True
    names = [words for text in texts if len(words := text.split()) > 1]
    begin, end = (_are_common_words([words[place] for words in names]) for place in (0, -1))
    is_many = len(texts) >= _MANY
    # First names are seldom everyday words, surnames often are: "Ken Baker" is a person, "Bright Office" is none.
    return not (is_many and begin and end) if _names_agent(name) else is_many and not begin


def _are_common_words(words: Sequence[str]) -> bool:
    """Return whether at least half of the words are everyday words; False without words."""
    return 2 * sum(word_frequencies().get(stem(word.casefold()), 0) > _RARE for word in words) >= len(words) > 0


def _has_person_form(text: str) -> bool:
    """Return whether a name is written as only a person's is: with a title, initials, or 2 or 3 Chinese characters."""
    words = words_of(text)
    is_chinese = _CHINESE_NAME_OF_PERSON.fullmatch(text) is not None and len(text) <= _LONGEST_CHINESE
    return (
        is_chinese or is_surname_first(text) or without_titles(words) != words or _INITIAL.fullmatch(text) is not None
    )


def _names_agent(name: str) -> bool:
    """Return whether a field's name ends in a noun for a person who acts: "surveyor", 独奏家 ("soloist")."""
    words = lexicon.name_words(name)
    agents = (*word_table("link", "en")["agents"].split(), *word_table("link", "zh")["agents"].split())
    return bool(words) and words[-1].endswith(agents)
