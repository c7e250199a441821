"""General English and Chinese words by which questions refer to documents, independent of any collection.

Chinese words are listed beside English ones, so that a Chinese question reaches English values if the collection
declares no aliases. A collection's own declarations take precedence.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

from agent.intent.words import LANGUAGES, word_table
from retrievers.text.folding import without_accents


def _listed(name: str) -> Mapping[str, tuple[str, ...]]:
    """Return the phrases of the word list `name` by key, those of all languages together."""
    found: dict[str, tuple[str, ...]] = {}
    for language in LANGUAGES:
        for key, phrases in word_table(name, language).items():
            found[key] = (*found.get(key, ()), *re.split(r",\s*", phrases))
    return found


def _words(name: str, language: str = "en") -> frozenset[str]:
    return frozenset(word_table("general", language)[name].split())


LANGUAGE_NAMES = _listed("languages")
"""Names of languages by code."""
CONCEPTS = {concept: (names, _listed("cues")[concept]) for concept, names in _listed("fields").items()}
"""For each concept of a field ("money"): words in the names of such fields, and words of questions that mean them."""

DOCUMENT_NOUNS = _words("document_nouns")
CHINESE_DOCUMENT_NOUNS = word_table("general", "zh")["document_nouns"].split()
COMPANY_WORDS = _words("companies")
TITLES = _words("titles")
PARTICIPLES = _words("participles")
"""Past participles without -ed."""
AUXILIARIES = _words("auxiliaries")
STOP_WORDS = _words("stop_words")


@cache
def bilingual_synonyms() -> dict[str, tuple[str, ...]]:
    """Return Chinese translations and English synonyms by lower-case English phrase."""
    return _named_alike("bilingual.txt")


@cache
def place_names() -> dict[str, tuple[str, ...]]:
    """Return other names of places and their adjectives (Italian for Italy), by lower-case English name."""
    return _named_alike("places.txt")


def _named_alike(file: str) -> dict[str, tuple[str, ...]]:
    """Return the other names of each English phrase in a file of lines "English|other English: Chinese Chinese"."""
    words: dict[str, tuple[str, ...]] = {}
    for line in (files("agent.intent.words") / file).read_text(encoding="utf-8").splitlines():
        english, _, chinese = line.partition(":")
        phrases = [phrase.strip() for phrase in english.split("|")]
        for phrase in phrases:
            others = [other for other in phrases if other != phrase]
            words[phrase] = (*words.get(phrase, ()), *others, *chinese.split())
    return words


_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[\u4e00-\u9fff]+|[^\W\d_A-Za-z\u4e00-\u9fff]+")


@cache
def name_words(name: str) -> tuple[str, ...]:
    """Return the words of a field's name in small letters without accents: budget, usd for `budgetUsd`."""
    return tuple(word.casefold() for word in _NAME_WORD.findall(without_accents(name)))
