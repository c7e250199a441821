"""Find the words of a true/false field's name in a question, and judge the place where they stand."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

from agent.intent import lexicon
from agent.intent.foreign import chinese_runs
from agent.intent.linking import Mention
from agent.intent.sentence import Sentence
from agent.intent.text import CUT, chinese_words, closeness
from agent.intent.words import LANGUAGES, table
from retrievers.text.glosses import glossed_words, senses_of

DENYING_BEGINNINGS = ("non", "un", "in", "dis", "ir", "im", "il")
MOST_SENSES = 4
_GAP = 2
"""Maximum words between two words of a field's name."""
_ARTICLES = frozenset("the a an any some".split())
_STATING = frozenset(
    "is are was were be been being has have had having with without for and or but not no non - get got".split()
)
"""Words before a word that state it of the documents: "camps [with] parking", "which camps [are] quiet"."""


@dataclass(frozen=True, slots=True)
class NameHit:
    """A word of a flag's name at tokens [first, last); `word` is its index in the name."""

    first: int
    last: int
    word: int
    closeness: float
    denied: bool = False

    def is_glossed(self, sentence: Sentence) -> bool:
        """Return whether the word is only the English meaning of a Chinese word of the question."""
        return sentence.tokens[self.first].kind == "cjk"


def find_hits(sentence: Sentence, words: Sequence[str]) -> Iterator[NameHit]:
    """Yield the places of a name's words. A hit is denied if its word begins or ends with a denial: "[un]answered"."""
    for first, last, said in _said(sentence):
        for place, word in enumerate(words):
            near = closeness(said, word)
            if near:
                free = sentence.folded(last + (sentence.folded(last) == "-")) == "free" and "free" not in words
                yield NameHit(first, last, place, near, free)
                break
            beginning = next((one for one in DENYING_BEGINNINGS if said.startswith(one) and said != word), "")
            if beginning and closeness(said[len(beginning) :], word) >= CUT:
                yield NameHit(first, last, place, 1.0, True)
                break


def _said(sentence: Sentence) -> Iterator[tuple[int, int, str]]:
    """Yield (first, last, word) for the English words of a question, and of its Chinese words' glosses."""
    tokens = sentence.tokens
    for index, token in enumerate(tokens):
        is_end = token.folded == "free" and sentence.folded(index - 1) == "-"  # "ad-free" does not mean free of charge
        if token.kind == "word" and token.folded not in lexicon.STOP_WORDS and not is_end:
            yield index, index + 1, token.folded
            if sentence.folded(index + 1) == "-" and token.end == tokens[index + 1].start:
                yield index, index + 3, token.folded + sentence.folded(index + 2)  # "wi-fi"
    for run in chinese_runs(tokens, set()):
        for start, word, _ in glossed_words("".join(tokens[index].text for index in run)):
            glosses = dict.fromkeys(gloss for sense in senses_of(word)[:MOST_SENSES] for gloss in sense)
            yield from ((run[start], run[start] + len(word), gloss) for gloss in glosses)


def grouped(hits: Sequence[NameHit]) -> Iterator[list[NameHit]]:
    """Yield groups of hits: different words of a name that stand together."""
    group: list[NameHit] = []
    for hit in hits:
        if group and (hit.first > group[-1].last + _GAP or any(hit.word == one.word for one in group)):
            yield group
            group = []
        group.append(hit)
    if group:
        yield group


def is_only_head(
    sentence: Sentence, mention: Mention, hits: Sequence[NameHit], words: Sequence[str], *, is_own: bool
) -> bool:
    """Return whether only the last word of a longer name is said, and the flag hardly meant: "books" for "rare book".

    A field's own name may be cut short ("with a pool" for `swimming_pool`), except where the documents are named.
    """
    has_more = any(word not in lexicon.STOP_WORDS for word in words[:-1])  # not `at_risk`
    is_head = has_more and all(hit.word == len(words) - 1 for hit in hits)
    return is_head and (not is_own or in_place_of_records(sentence, mention))


def in_place_of_records(sentence: Sentence, mention: Mention) -> bool:
    """Return whether a word stands where a question names the documents: "which [rare books] did Ann finish?",
    2025年入库的[古籍]有多少.
    """
    following = sentence.token(mention.last)
    if sentence.tokens[mention.first].kind == "cjk":
        behind = tuple(table("link", "zh")["truth"]["behind_records"].split())
        if following is not None and following.kind != "mark" and not sentence.text.startswith(behind, mention.end):
            return False
        return not _is_stated_zh(sentence.text[: mention.start])
    place = mention.first - 1
    while sentence.folded(place) in _ARTICLES:
        place -= 1
    offering = table("link", "en")["truth"]["offering"].split()
    if sentence.folded(place) in _STATING or sentence.folded(place) in offering:
        return False
    return following is None or following.kind != "word" or following.folded in lexicon.STOP_WORDS


def _is_stated_zh(before: str) -> bool:
    """Return whether a Chinese text ends in a word that states the next of the documents: 有, 是, but not 所有."""
    words = table("link", "zh")["truth"]
    stating = re.search(rf"(?:{'|'.join(words['between'].split())}|{'|'.join(words['denying'].split())})$", before)
    if stating is None:
        return False
    return not any(first < stating.start() < last for first, last in chinese_words(before).items())


def is_left_open(sentence: Sentence, mention: Mention) -> bool:
    """Return whether the opposite of a flag is asked for too, without its word: "fragile or not", 善本与否."""
    before, behind = sentence.text[: mention.start], sentence.text[mention.end :]
    return any(
        _choice(name, language).search(text) is not None
        for language in LANGUAGES
        for name, text in (("before", before), ("behind", behind))
    )


@cache
def _choice(name: str, language: str) -> re.Pattern[str]:
    return re.compile(table("link", language)["choice"][name], re.IGNORECASE | re.VERBOSE)
