"""The words of a question that deny something: "not", "without", "anything but", 除了, and what only may deny."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from agent.intent.linking import Mention
from agent.intent.sentence import Sentence
from agent.intent.text import tokenize
from agent.intent.words import table

_KINDS = ("harmless", "also", "prefix", "not", "lacking", "excluding", "but", "than", "doubtful")
_LED = {"but": "whole", "than": "another"}
"""Words that leave out where one of others stands shortly before: "anything but", "in another city than"."""
_LED_BY = 4
"""Words before at most."""
_APOSTROPHES = frozenset(["'", "’"])
_ASKED = frozenset("i you we they he she it there".split())


@dataclass(frozen=True, slots=True)
class Negator:
    """A word of negation, tokens [first, last).

    Attributes:
        kind: "prefix" denies the next word, "not" a predicate, "lacking" that something is there, "excluding" takes
            documents away, "also" says that something is not all: "not only", and "doubtful" may deny what stands in
            the clause or speak of something else: "hardly", "far from".
    """

    first: int
    last: int
    kind: str


@cache
def _phrases(kind: str) -> Mapping[str, tuple[tuple[str, ...], ...]]:
    """The phrases of a kind by their first word, the longest first."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for phrase in table("negation")[kind]:
        words = tuple(token.folded for token in tokenize(phrase.replace("’", "'")))
        found.setdefault(words[0], []).append(words)
    return {word: tuple(sorted(ways, key=len, reverse=True)) for word, ways in found.items()}


@cache
def words_of_kind(kind: str) -> frozenset[str]:
    """The words of a list of `words/*.toml`, of all languages."""
    return frozenset(table("negation")[kind])


def phrase_at(sentence: Sentence, place: int, kind: str) -> int:
    """The place behind a phrase of a kind that begins here; the place itself where there is none."""
    for words in _phrases(kind).get(sentence.folded(place), ()):
        said = (sentence.folded(place + n) for n in range(len(words)))
        over = sentence.mention_at(place + len(words) - 1)
        if over is not None and over.first > place:
            continue  # 不[含早餐]
        if all(one == word or (one == "’" and word == "'") for one, word in zip(said, words, strict=True)):
            return place + len(words)
    return place


def find_negators(sentence: Sentence) -> dict[int, Negator]:
    """The words of negation of a question, by the place behind each."""
    found: dict[int, Negator] = {}
    place = 0
    while place < len(sentence.tokens):
        kind, last = max(
            ((kind, phrase_at(sentence, place, kind)) for kind in _KINDS),
            key=lambda pair: (pair[1], -_KINDS.index(pair[0])),
        )
        if last == place and _is_contracted(sentence, place):
            kind, last = "not", place + 1
        covered = sentence.mention_at(place)
        if covered is not None and covered.last >= last and not _is_before_name(sentence, covered, kind):
            last = place  # a part of a name
        elif kind in _LED and not _is_led(sentence, place, kind):
            kind, last = "doubtful", phrase_at(sentence, place, "doubtful")
        if last > place and kind != "harmless":
            found[last] = Negator(place, last, "excluding" if kind in _LED else kind)
        place = max(last, place + 1)
    return found


def _is_before_name(sentence: Sentence, covered: Mention, kind: str) -> bool:
    """Whether a word that leaves out, and may be a value, stands right before another name: 剔除支付组."""
    return kind == "excluding" and sentence.mention_at(covered.last) is not None


def _is_led(sentence: Sentence, place: int, kind: str) -> bool:
    """Whether a word shortly before makes a word one that leaves out."""
    return not words_of_kind(_LED[kind]).isdisjoint({sentence.folded(place - n) for n in range(1, _LED_BY + 1)})


def _is_contracted(sentence: Sentence, place: int) -> bool:
    """The t of "isn't", unless it asks: "don't we have contracts with them?"."""
    if sentence.folded(place) != "t" or sentence.folded(place - 1) not in _APOSTROPHES:
        return False
    auxiliary, following = sentence.folded(place - 2), sentence.folded(place + 1)
    asks = place == 2 and (following in _ASKED or not auxiliary.startswith("do"))
    return auxiliary.endswith(("n", "ca")) and not asks
