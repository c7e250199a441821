"""Measure which share of a question's names and content words occurs in the documents."""

import calendar
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from agent.intent.language import lexicon
from agent.intent.language.text import has_chinese, stem
from agent.intent.topic.topic_words import non_topic_words
from agent.intent.words import word_frequencies
from retrievers.core.types import ChunkId, Scope
from retrievers.text import chinese_dictionary, chinese_segmentation
from retrievers.text.analysis import analyse
from retrievers.text.languages import STOP_WORDS

_COMMONEST = 9
_MOST_NAMES = 12
_MONTHS = "|".join((*calendar.day_name, *calendar.month_name[1:]))
LATIN_WORDS = re.compile(r"[A-Za-z][A-Za-z'-]+")
# The code in its plural without the "s": SEV1 in "SEV1s".
CODE_NAMES = re.compile(r"([A-Za-z]+(?:[-_.][A-Za-z0-9]+)+|[A-Za-z]+\d(?:\w*\w(?<!s))?)s?")
_CAPITALS = re.compile(rf"\b(?!(?:{_MONTHS})\b)[A-Z][\w'&]+(?: [A-Z][\w'&]+)*")
CODE = re.compile(r"[A-Za-z]+-?\d")
_CALENDAR = frozenset(one.casefold() for one in (*calendar.day_name, *calendar.month_name))
_EMPTY = _CALENDAR | STOP_WORDS["en"] | lexicon.STOP_WORDS | non_topic_words("en", "words")
_EMPTY_ZH = non_topic_words("zh", "words")
# rjieba tags of pronouns, adverbs, conjunctions, numerals, times and other grammatical words.
_EMPTY_KINDS_ZH = frozenset("rdcmtupyfq")
_NAMES_ZH = frozenset({"nr", "ns", "nt", "nz"})


class TermCounts(Protocol):
    """Interface of a catalogue of documents that counts, for each collection, the passages that contain a term."""

    async def term_counts(self, scope: Scope, terms: Sequence[str], /) -> Mapping[int, Mapping[str, int]]:
        """Return {collection number: {term: number of passages that contain the term}}, without terms in no passage."""
        ...


class DocumentIndex(TermCounts, Protocol):
    """The part of a catalogue of documents that counts passages with a term, and finds passages by their ids."""

    async def load(self, scope: Scope, ids: Sequence[ChunkId], /) -> Mapping[ChunkId, object]:
        """Return the passages with these ids that the viewer may see."""
        ...


class TermCoverage(NamedTuple):
    """How many of a question's words occur in the documents. A word has a weight up to 1, the higher the rarer it is.

    Attributes:
        known_weight, unknown_weight: total weight of the words that occur in the documents, and of the others.
        is_cross_language: True if the question is Chinese and few documents are: words are found by their glosses.
        has_unknown_name: True if a name in the question occurs in no document.
        has_only_codes: True if the question's only content words are names with digits, such as "INC-22".
    """

    known_weight: float
    unknown_weight: float
    is_cross_language: bool
    has_unknown_name: bool
    has_only_codes: bool

    @property
    def known_share(self) -> float:
        """Share of the weight of words that occur in the documents, 0 to 1; 0 if none occurs."""
        return self.known_weight / (self.known_weight + self.unknown_weight) if self.known_weight else 0.0


async def measure_term_coverage(text: str, scope: Scope, catalogue: TermCounts) -> TermCoverage:
    """Return how many of a question's words the documents contain, Chinese words also by their English glosses."""
    await chinese_dictionary.load_word_lists()
    names, others = names_and_content_words(text)
    english = (
        {word: each for _, word, each in chinese_dictionary.find_dictionary_words(text)} if has_chinese(text) else {}
    )
    meant = {
        word: [word, *(one for part, each in english.items() if part in word or word in part for one in each)]
        for word in (*names, *others)
    }
    terms = {
        word: [term.text for term in analyse(word, "zh" if has_chinese(word) else "en") if not term.derived]
        for word in dict.fromkeys(one for each in meant.values() for one in each)
    }
    counts = await catalogue.term_counts(scope, list(dict.fromkeys(term for one in terms.values() for term in one)))
    held = {term for known in counts.values() for term in known}
    known = {word for word, each in meant.items() if any(terms[one] and held.issuperset(terms[one]) for one in each)}
    weights = {word: _rarity(word, each[1:]) for word, each in meant.items()}
    documents = sum(sum(one.languages.values()) for one in scope.all_collections)
    chinese = sum(one.languages.get("zh", 0) for one in scope.all_collections)
    return TermCoverage(
        sum(weights[word] for word in known),
        sum(weights[word] for word in meant if word not in known),
        has_chinese(text) and chinese < chinese_dictionary.LEAST_LANGUAGE_SHARE * documents,
        any(name not in known for name in names),
        bool(names) and not others and all(map(CODE.search, names)),
    )


def _rarity(word: str, english: Sequence[str]) -> float:
    """Return the weight of a word: 1 if it is not in everyday use, the less the commoner it is, above 0.

    Args:
        english: the glosses of a Chinese word; the commonest counts.
    """
    common = word_frequencies()
    words = english if has_chinese(word) else word.casefold().split()[:1]
    return 1 - max((common.get(stem(one), 0) for one in words), default=0) / _COMMONEST


def names_and_content_words(text: str) -> tuple[list[str], list[str]]:
    """Return the names in a question, and its other content words, at most 12 of each.

    A name has a capital inside a sentence, a digit or a hyphen, is in Latin letters among Chinese, or is a name in the
    Chinese dictionary. Adjacent capitalised words are one name: "Stack Overflow".
    """
    names: dict[str, None] = dict.fromkeys(match[1] for match in CODE_NAMES.finditer(text))
    others: dict[str, None] = {}
    chinese = has_chinese(text)
    rest = CODE_NAMES.sub(lambda match: "," * len(match[0]), text)
    for match in _CAPITALS.finditer(rest):
        if chinese or rest[: match.start()].rstrip()[-1:] not in ("", ".", "?", "!"):
            names[match[0]] = None
            rest = rest.replace(match[0], "," * len(match[0]))
    for word in LATIN_WORDS.findall(rest):
        if word.casefold() not in _EMPTY:
            (names if chinese else others)[word] = None
    if chinese:
        for word, kind in chinese_segmentation.tagged_words(text):
            if len(word) > 1 and has_chinese(word) and kind[0] not in _EMPTY_KINDS_ZH and word not in _EMPTY_ZH:
                (names if kind in _NAMES_ZH else others)[word] = None
    return list(names)[:_MOST_NAMES], list(others)[:_MOST_NAMES]
