"""General words by which questions speak of documents, English and Chinese; nothing of any one collection.

Chinese words stand beside English ones so that a Chinese question reaches values written in English
where the collection gives no aliases of its own. What a collection declares always comes first.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from agent.intent.words import LANGUAGES as WRITTEN
from agent.intent.words import table


def _listed(name: str) -> Mapping[str, tuple[str, ...]]:
    """The phrases of a table, of all languages."""
    found: dict[str, tuple[str, ...]] = {}
    for language in WRITTEN:
        for key, phrases in table(name, language).items():
            found[key] = (*found.get(key, ()), *re.split(r",\s*", phrases))
    return found


def _words(name: str, language: str = "en") -> frozenset[str]:
    return frozenset(table("general", language)[name].split())


LANGUAGES = _listed("languages")
"""What languages are called, by their codes."""
CONCEPTS = {concept: (names, _listed("cues")[concept]) for concept, names in _listed("fields").items()}
"""What fields are about, by words of their names; each concept with the words of a question that point at it."""

DOCUMENT_NOUNS = _words("document_nouns")
CHINESE_DOCUMENT_NOUNS = table("general", "zh")["document_nouns"].split()
COMPANIES = _words("companies")
TITLES = _words("titles")
AUXILIARIES = _words("auxiliaries")
STOP_WORDS = _words("stop_words")


@cache
def bilingual() -> dict[str, tuple[str, ...]]:
    """Other names by English phrase, in lower case: Chinese ones, and English ones of the same meaning."""
    return _named_alike("bilingual.txt")


@cache
def places() -> dict[str, tuple[str, ...]]:
    """Other names of places and what is of them by English name, in lower case: Italian, of Italy."""
    return _named_alike("places.txt")


def _named_alike(file: str) -> dict[str, tuple[str, ...]]:
    """The names of a file whose lines are "English|other English: Chinese other Chinese"."""
    words: dict[str, tuple[str, ...]] = {}
    for line in (files("agent.intent.words") / file).read_text(encoding="utf-8").splitlines():
        english, _, chinese = line.partition(":")
        phrases = [phrase.strip() for phrase in english.split("|")]
        for phrase in phrases:
            others = [other for other in phrases if other != phrase]
            words[phrase] = (*words.get(phrase, ()), *others, *chinese.split())
    return words


@cache
def name_words(name: str) -> tuple[str, ...]:
    """The words of a field's name: budget_usd and budgetUsd are budget and usd."""
    return tuple(word.casefold() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[\u4e00-\u9fff]+", name))
