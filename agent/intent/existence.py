"""Fields that documents must have or must lack: "without a sponsor", "whose bpm is unknown", 没有填写到期日的."""

import re
from collections.abc import Sequence
from functools import cache

from agent.intent import lexicon, wording
from agent.intent.catalogue import truth_of
from agent.intent.negation import is_negated
from agent.intent.sentence import Sentence
from agent.intent.text import closeness, has_chinese
from agent.intent.words import table

_MAY_LACK = ("person", "label", "tag", "version", "number", "date", "boolean")
_OF_ONE = re.compile(r"\b(?:i|we|you|he|she|it|there|my|our)\b(?!\s+want)", re.IGNORECASE)
"""Of whom a lack is said that is no document: "I have no sponsor"."""
_SHORTEST = 6
_GENERIC = ("date", "time", "day", "日期", "期", "时间", "日")
_MEASURED = ("distance", "length", "amount", "size", "level", "rate")
"""Words behind that of a number that say what is measured: "no metro [distance]"."""
_LONGEST = 60
"""Characters before or behind a field's word that may say that it is not there."""

Existence = tuple[str, bool, int, int]
"""A field, whether it is there, and the characters that say so."""


def read_existence(sentence: Sentence) -> list[Existence]:
    """The fields that documents must have or lack, each once."""
    catalogue, found = sentence.vocabulary.catalogue, dict[str, Existence]()
    lacked = [name for name, values in catalogue.fields.items() if values.documents < catalogue.documents]
    if not lacked:
        return []
    if wording.NO_CALCULATION.search(sentence.text) or _OF_ONE.search(sentence.text):
        return []
    for place, token in enumerate(sentence.tokens):
        if (undone := _undone(sentence, token.folded, lacked)) is not None:
            found[undone] = (undone, False, token.start, token.end)
            continue
        name, behind = _field_at(sentence, place, lacked)
        over = sentence.mention_at(place)
        if name is None or name in found or (over is not None and over.first != place):
            continue
        end = sentence.tokens[behind - 1].end
        stated = _stated(sentence, name, token.start, end)
        if stated is not None:
            found[name] = (name, *stated)
    return list(found.values())


def _field_at(sentence: Sentence, place: int, lacked: Sequence[str]) -> tuple[str | None, int]:
    """The field whose words begin at a place and that some documents lack, and the place behind the words."""
    roles = sentence.vocabulary.roles
    cued, behind = sentence.cue(place)
    own = [name for name in cued or lacked if _is_own_name(sentence, name, place, behind)]
    named = [name for name in own or cued if roles[name] in _MAY_LACK]
    if len(named) != 1 or named[0] not in lacked:
        return None, behind
    behind = max(behind, place + 1)
    while sentence.text.startswith(_GENERIC, sentence.tokens[behind].start) if behind < len(sentence.tokens) else False:
        behind += 1  # an expiry [date]
    return named[0], behind


def _undone(sentence: Sentence, said: str, lacked: Sequence[str]) -> str | None:
    """The field that "unreviewed" says is missing."""
    roles = sentence.vocabulary.roles
    if not said.startswith("un") or len(said) < _SHORTEST or not said.endswith("ed"):
        return None
    named = [
        name
        for name in lacked
        if roles[name] in ("person", "date", "number")
        if any(closeness(said[2:], word) for word in lexicon.name_words(name))
    ]
    return named[0] if len(named) == 1 else None


def _is_own_name(sentence: Sentence, field: str, place: int, behind: int) -> bool:
    """Whether the words at these places are of the field's own name, in another form, or Chinese for it."""
    token = sentence.tokens[place]
    words = [word for word in lexicon.name_words(field) if word not in ("dt", "date", "time", "day") and len(word) > 1]
    if token.kind != "cjk":
        return token.kind == "word" and any(closeness(token.folded, word) for word in words)
    said = sentence.text[token.start : sentence.tokens[behind - 1].end] if behind > place else ""
    name = " ".join(words)
    return any(said in lexicon.bilingual().get(one, ()) for one in (name, name.removesuffix("s")))


def _stated(sentence: Sentence, field: str, start: int, end: int) -> tuple[bool, int, int] | None:
    """Whether a field named at these characters is there or not, and where that is said; None where neither is."""
    text = sentence.text
    language = "zh" if has_chinese(text) else "en"
    before, after = text[max(start - _LONGEST, 0) : start], text[end : end + _LONGEST]

    def said(name: str) -> re.Match[str] | None:
        pattern = _pattern(name, language)
        return pattern.match(after) if name.endswith("after") else pattern.search(before)

    is_truth = sentence.vocabulary.roles[field] == "boolean" or truth_of(sentence.vocabulary.catalogue.fields[field])
    if is_truth and not _pattern("value", language).match(after):
        return None  # "no parking" is said of the documents that say no
    counts = wording.COUNTING.search(text) or wording.SHARE.search(text)
    names = ["having_after", "lacking_after", *(["lacking_before"] if _is_whole(sentence, end) else [])]
    names += ["having_before", *(["counted_before"] if counts else [])]
    if text[start:end].casefold().endswith("ed") and _is_whole(sentence, end):
        names = ["undone_before"]
    for name in names:
        match = said(name)
        if match is not None:
            there = name.startswith(("having", "counted"))
            if not name.endswith("after"):
                return there, start - len(before) + match.start(), end
            denied = is_negated(sentence, start, end, (field,))  # nothing whose brand is missing
            return None if denied is None else (there != denied, start, end + match.end())
    return None


def _is_whole(sentence: Sentence, end: int) -> bool:
    """Whether a field's word describes no other: "no author page"."""
    following = sentence.token(sentence.index_from(end))
    if following is not None and following.kind == "cjk":
        return following.text in "的也和、" or sentence.is_noun(sentence.index_from(end))
    return (
        following is None
        or following.kind != "word"
        or following.folded in lexicon.STOP_WORDS
        or following.folded.endswith("ed")
        or following.folded in ("value", "name", "yet", "listed", "info", "on", "at", *_MEASURED)
    )


@cache
def _pattern(name: str, language: str) -> re.Pattern[str]:
    """What is said before the field's word, or behind it."""
    return re.compile(table("existence", language)[name], re.IGNORECASE | re.VERBOSE)
