"""Find conditions that a field has a value, or has none: "without a sponsor", "nobody has inspected"."""

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from agent.intent.analysis.field_linking import field_matches
from agent.intent.analysis.negation import is_negated
from agent.intent.analysis.sentence import Sentence
from agent.intent.deciding.features import question_words
from agent.intent.language import calculation_patterns, lexicon
from agent.intent.language.text import LOOSE, closeness, has_chinese, stem
from agent.intent.values.value_match import ValueMatch
from agent.intent.words import word_table

_MAY_LACK = ("person", "label", "tag", "version", "number", "date", "boolean", "text")
_LACKED_BY = re.compile(r"\b(?:i|we|you|he|she|it|there|my|our)\b(?!\s+(?:want|mean)\b)", re.IGNORECASE)
"""Matches a person as the one that lacks something, which is no condition on documents: "I have no sponsor"."""
_GENERIC = ("date", "time", "day", "日期", "期", "时间", "日")
_MEASURED = ("distance", "length", "amount", "size", "level", "rate", "number", "figure", "figures", "person", "code")
"""Nouns after the word for a field that may belong to it: "no metro [distance]" for `metro_m`."""
_SHORTEST_ROOT = 3
_LONGEST = 60
"""Maximum characters before or after a field's word in which it may be said that the field has a value or none."""

_NO_AMOUNT = re.compile(r"(?:no|zero|without(?:\s+any)?)\b", re.IGNORECASE)
_OF_ENTRY = re.compile(
    r"\s+(?:(?:was|were|is|are|has|have|been|ever|yet)\s+)*"
    r"(?:figures?|numbers?|values?|data|entry|entered|given|recorded|filled|known|stated|noted|listed|set)\b",
    re.IGNORECASE,
)
Json = dict[str, Any]
ExistenceCondition = tuple[str, bool, int, int]
"""(field, whether it must have a value, start, end): a condition stated at characters [start, end)."""


def read_existence_conditions(sentence: Sentence) -> list[ExistenceCondition]:
    """Return the conditions that a field has a value or has none; fields that all documents have are left out."""
    catalogue, found = sentence.vocabulary.catalogue, dict[str, ExistenceCondition]()
    lacked = [name for name, values in catalogue.fields.items() if values.documents < catalogue.documents]
    if not lacked:
        return []
    if calculation_patterns.NO_CALCULATION.search(sentence.text):
        return []
    is_of_document = _LACKED_BY.search(sentence.text) is None
    for place, token in enumerate(sentence.tokens if is_of_document else ()):
        name, behind = _field_at(sentence, place, lacked)
        over = sentence.mention_at(place)
        if name is None or name in found or (over is not None and over.first != place):
            continue
        end = sentence.tokens[behind - 1].end
        stated = _read_condition(sentence, name, token.start, end)
        if stated is not None and not _is_of_person_before(sentence, name, stated[1]):
            found[name] = (name, *stated)
    return [*(found | _undone_conditions(sentence, lacked) | _unmade_conditions(sentence, lacked)).values()]


def spans_without_values(sentence: Sentence, existing: Sequence[ExistenceCondition]) -> list[tuple[int, int]]:
    """Return the characters [start, end) of the conditions that name no value, unlike "without Ann as sponsor"."""
    return [
        (start, end)
        for name, _, start, end in existing
        if not any(start <= one.start < end and one.matches_in(name) for one in sentence.mentions)
    ]


def _is_of_person_before(sentence: Sentence, field: str, start: int) -> bool:
    """Return whether a person before a Chinese condition did not act: 赵敏没审批的 ("not approved by Zhao Min")."""
    before = sentence.mention_at(sentence.index_from(start) - 1)
    return has_chinese(sentence.text[start : start + 1]) and before is not None and bool(before.matches_in(field))


def existence_filter(sentence: Sentence, field: str, there: bool, start: int, end: int) -> Json:
    """Return the filter of a condition: the state 待审批 for 没审批 ("not approved"), 0 for "no delay", or no value.

    "No delay" is 0 in a field with zeros, but "no delay entered" is no value.

    Args:
        start, end: the characters [start, end) that state the condition.
    """
    pending = _pending_state(sentence, start, end) if not there else None
    if pending is not None:
        return {"type": "eq", "key": pending.field, "value": pending.value}
    values = sentence.vocabulary.catalogue.fields[field]
    of_amount = sentence.vocabulary.roles[field] == "number" and values.low == 0 and not there
    text = sentence.text
    if of_amount and _NO_AMOUNT.match(text, start, end) and not _OF_ENTRY.match(text, end):
        return {"type": "eq", "key": field, "value": 0}
    return {"type": "exists", "key": field, "value": there}


def _pending_state(sentence: Sentence, start: int, end: int) -> ValueMatch | None:
    """Return the value 待V ("V is pending") that only one field has, if [start, end) says 没V ("not V"); else None."""
    words = tuple(token.text for token in sentence.tokens if start <= token.start and token.end <= end)
    runs = (("待", *words[first:]) for first in range(1, len(words) - 1) if words[first - 1] in "没未有")
    known = [one for run in runs for one in sentence.vocabulary.names.get(run, ()) if one.value == "".join(run)]
    return known[0] if len(known) == 1 else None


def _undone_conditions(sentence: Sentence, lacked: Sequence[str]) -> dict[str, ExistenceCondition]:
    """Return conditions that nobody did something, by field: "nobody has acknowledged", "not unloaded by anyone"."""
    found = {}
    language = "zh" if has_chinese(sentence.text) else "en"
    is_explanation = sentence.folded(0) in question_words()
    for place, column in field_matches(sentence).items() if not is_explanation else ():
        if len(column.fields) != 1 or column.fields[0] not in lacked:
            continue
        start, end = sentence.tokens[place].start, sentence.tokens[column.last - 1].end
        before = _pattern("nobody_before", language).search(sentence.text[max(start - _LONGEST, 0) : start])
        behind = _pattern("nobody_after", language).match(sentence.text[end:])
        if before is not None:
            found[column.fields[0]] = (column.fields[0], False, start - len(before.group()), end)
        elif behind is not None and (behind["nobody"] or is_negated(sentence, start, end, column.fields)):
            found[column.fields[0]] = (column.fields[0], False, start, end + behind.end())
    return found


def _unmade_conditions(sentence: Sentence, lacked: Sequence[str]) -> dict[str, ExistenceCondition]:
    """Return conditions stated by "un-", by field: "untagged" for `tags`, "unassigned" for `assignee`."""
    found = {}
    for place, token in enumerate(sentence.tokens):
        made = token.folded.removeprefix("un")
        if token.kind != "word" or made == token.folded or sentence.mention_at(place) is not None:
            continue
        if not made.endswith("ed"):
            continue
        named = [name for name in lacked if any(_is_made(made, word) for word in lexicon.name_words(name))]
        if len(named) == 1 and sentence.vocabulary.roles[named[0]] in _MAY_LACK:
            found[named[0]] = (named[0], False, token.start, token.end)
    return found


def _is_made(participle: str, word: str) -> bool:
    """Return whether a word of a field's name has the verb of a participle: "assignee" that of "assigned"."""
    root = stem(participle)
    return len(root) >= _SHORTEST_ROOT and (stem(word).startswith(root) or (root.startswith(word) and len(word) > 3))


def _field_at(sentence: Sentence, place: int, lacked: Sequence[str]) -> tuple[str | None, int]:
    """Return (field whose words begin at a token, index of the token after the words).

    The field is None if there are no such words, if they may mean several fields, or if all documents have the field.
    """
    roles = sentence.vocabulary.roles
    cued, behind = sentence.cue(place)
    own = [name for name in cued or lacked if _is_own_name(sentence, name, place, behind)]
    named = [name for name in own or cued if roles[name] in _MAY_LACK]
    if len(named) != 1 or named[0] not in lacked:
        return None, behind
    behind = max(behind, place + 1)
    while sentence.text.startswith(_GENERIC, sentence.tokens[behind].start) if behind < len(sentence.tokens) else False:
        behind += 1  # "date" in "expiry date"
    return named[0], behind


def _is_own_name(sentence: Sentence, field: str, place: int, behind: int) -> bool:
    """Return whether the token at `place` is a form of a word of the field's name.

    A Chinese phrase at tokens [place, behind) must be a translation of the name.
    """
    token = sentence.tokens[place]
    words = [word for word in lexicon.name_words(field) if word not in ("dt", "date", "time", "day") and len(word) > 1]
    if token.kind != "cjk":
        # A capitalised word must match exactly: "no Lindquist" does not mean that a field `line` has no value.
        least = 1.0 if token.is_capital and place else LOOSE
        return token.kind == "word" and any(closeness(token.folded, word) >= least for word in words)
    said = sentence.text[token.start : sentence.tokens[behind - 1].end] if behind > place else ""
    name = " ".join(words)
    return any(said in lexicon.bilingual_synonyms().get(one, ()) for one in (name, name.removesuffix("s")))


def _read_condition(sentence: Sentence, field: str, start: int, end: int) -> tuple[bool, int, int] | None:
    """Return (whether the field must have a value, start, end) of the condition; None if nothing states one.

    Args:
        start, end: the characters of the field's words.
    """
    text = sentence.text
    language = "zh" if has_chinese(text) else "en"
    before, after = text[max(start - _LONGEST, 0) : start], text[end : end + _LONGEST]

    def said(name: str) -> re.Match[str] | None:
        pattern = _pattern(name, language)
        return pattern.match(after) if name.endswith("after") else pattern.search(before)

    counts = (
        calculation_patterns.COUNTING.search(text) or calculation_patterns.SHARE.search(text) or said("entered_after")
    )
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
            denied = is_negated(sentence, start, end, (field,))  # "nothing whose brand is missing" has a brand
            return None if denied is None else (there != denied, start, end + match.end())
    return None


def _is_whole(sentence: Sentence, end: int) -> bool:
    """Return whether a field's word, which ends at `end`, is no part of a longer noun: False for "no [author] page"."""
    following = sentence.token(sentence.index_from(end))
    if following is not None and following.kind == "cjk":
        return following.text in "的也和、" or sentence.is_noun(sentence.index_from(end))
    return (
        following is None
        or following.kind != "word"
        or following.folded in lexicon.STOP_WORDS
        or following.folded.endswith("ed")
        or following.folded in lexicon.PARTICIPLES
        or following.folded in ("value", "name", "yet", "given", "set", "info", "on", "at", *_MEASURED)
    )


@cache
def _pattern(name: str, language: str) -> re.Pattern[str]:
    """Return the regular expression called `name` in the word lists, such as "lacking_before"."""
    return re.compile(word_table("existence", language)[name], re.IGNORECASE | re.VERBOSE)
