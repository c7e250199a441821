"""What an answer is to be made of: the passages that fit best, a list of documents, or all documents.

"Which proposals change the parser?" asks for documents, "list all rejected proposals" for all of them, and "what do
proposals say of the parser?" for passages.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Literal

from agent.intent import lexicon
from agent.intent.text import Token, has_chinese, tokenize
from agent.intent.words import table

Wants = Literal["passages", "documents", "all"]

_CLAUSES = re.compile(r"[.!?;:,，。！？；：\n]\s*")
_MOST_MODIFIERS = 7


def wants_of(text: str, nouns: Collection[str]) -> Wants:
    """What a turn asks for.

    Args:
        nouns: the collections' own words for a document ("pep", "peps"), see `derived.nouns_of`.
    """
    read = _of_chinese if has_chinese(text) else _of_english
    found = {read(clause, nouns) for clause in _CLAUSES.split(text) if clause.strip()}
    return "all" if "all" in found else "documents" if "documents" in found else "passages"


def _of_english(clause: str, nouns: Collection[str]) -> Wants:
    words = [token for token in tokenize(clause) if token.kind != "mark"]
    said = table("listing", "en")
    place, openers = _opened(words)
    is_listing = not openers.isdisjoint(said["listing"])
    if is_listing and words[place - 1].folded == "what":
        return "all"  # "list what Roe inspected"
    first, determiners = place, _determiners()
    while place < len(words) and (words[place].folded in determiners or words[place].kind == "number"):
        place += 1
    before = {word.folded for word in words[first:place]}
    if place < len(words) and words[place].folded in (said["whole"], said["anything"]):
        if place + 1 < len(words) and words[place + 1].folded in said["of_one"].split():
            return "passages"  # "everything about the night ferry" is asked of what is written, not of a list
        return "all" if words[place].folded == said["whole"] else "documents"
    is_all = not before.isdisjoint(said["quantifiers"].split())
    is_number = any(
        word.kind == "number" or word.folded in said["numbers"].split() for word in words[first : place + 1]
    )
    is_some = not before.isdisjoint(said["some"].split())
    noun = _noun(words[place:], nouns, singular=is_all or is_some)
    if noun is None:
        # "all the brutalism" is a list, "all the details of the brutalist house" is not.
        is_told = is_all and not openers.isdisjoint(said["imperatives"]) and place < len(words)
        is_of_one = any(word.folded in said["of_one"].split() for word in words[place + 1 :])
        return "all" if is_told and not is_of_one and words[place].folded not in _stops() else "passages"
    if is_all or (is_listing and not is_number):
        return "all"
    # A phrase alone may name its subject: "vacation rules".
    is_head = noun in nouns or noun in said["heads"].split()
    return "documents" if openers or is_some or is_head else "passages"


def _opened(words: Sequence[Token]) -> tuple[int, set[str]]:
    """Behind the words that ask for something, and these."""
    polite = table("listing", "en")["polite"].split()
    place, openers = 0, set[str]()
    while True:
        while place < len(words) and words[place].folded in polite:
            place += 1
        phrase = next((one for one in _openers() if _stands(one, words, place)), None)
        if phrase is None:
            return place, openers
        place += len(phrase)
        openers.add(" ".join(phrase))


@cache
def _determiners() -> frozenset[str]:
    said = table("listing", "en")
    return frozenset(word for kind in ("determiners", "quantifiers", "some") for word in said[kind].split())


@cache
def _stops() -> frozenset[str]:
    return frozenset(table("listing", "en")["stops"].split())


@cache
def _openers() -> tuple[tuple[str, ...], ...]:
    """The phrases, the longest first."""
    said = table("listing", "en")
    phrases = (tuple(phrase.split()) for phrase in (*said["openers"], *said["imperatives"], *said["listing"]))
    return tuple(sorted(phrases, key=len, reverse=True))


def _stands(phrase: Sequence[str], words: Sequence[Token], place: int) -> bool:
    return [word.folded for word in words[place : place + len(phrase)]] == list(phrase)


def _noun(words: Sequence[Token], nouns: Collection[str], *, singular: bool) -> str | None:
    """The word for documents that a phrase begins with, behind what describes them; a plural unless told."""
    for word in words[: _MOST_MODIFIERS + 1]:
        if word.folded in _stops():
            return None
        is_noun = word.folded in nouns or word.folded in lexicon.DOCUMENT_NOUNS
        if is_noun and (singular or word.folded.endswith("s")):
            return word.folded
    return None


def _of_chinese(clause: str, nouns: Collection[str]) -> Wants:
    said = table("listing", "zh")
    if _holds(clause, said["asking"]):
        return "passages"
    if _enumerating().match(clause) or clause.rstrip().endswith(tuple(said["enumerated"])):
        return "all"
    if not _holds(clause.casefold(), {*nouns, *lexicon.CHINESE_DOCUMENT_NOUNS}):
        return "passages"
    if _holds(clause, said["every"]):
        return "all"
    is_head = clause.casefold().rstrip(" 呢啊的").endswith((*nouns, *said["heads"]))
    return "documents" if is_head or _holds(clause, said["some"]) else "passages"


@cache
def _enumerating() -> re.Pattern[str]:
    """A clause that begins with being asked to list: 枚举 alone may be what documents are about."""
    said = table("listing", "zh")
    return re.compile(rf"\s*(?:{'|'.join(said['polite'])})*\s*(?:{'|'.join(said['enumerate'])})")


def _holds(clause: str, words: Iterable[str]) -> bool:
    return any(word in clause for word in words)
