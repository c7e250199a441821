"""Choose the date field that a date in a question is about, and the occurrence of a date without a year."""

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from datetime import date
from functools import cache

from agent.intent.analysis.sentence import ENDS, Sentence
from agent.intent.deciding.features import cued_fields_beside
from agent.intent.language import lexicon
from agent.intent.language.text import CUT, LOOSE, Token, closeness, leaves_out, stem
from agent.intent.time.periods import Period
from agent.intent.time.run_reader import DateRange
from agent.intent.values.field_words import concepts_of
from agent.intent.values.value_linking import Mention
from agent.intent.values.vocabulary import Vocabulary
from agent.intent.words import word_table
from retrievers.core.types import FieldValues
from retrievers.text.chinese_dictionary import term_translations

# Concepts of a document's main date, the likeliest first. "" is a field whose name says nothing: it ranks before the
# dates when something takes effect or ends, which do not say when the document was made.
_DATES = ("published", "created", "updated", "", "effective", "expires")
_SHORTEST_PAST = 4
_QUOTED = re.compile(r"“[^”]{3,120}”|\"[^\"]{3,120}\"|「[^」]{3,120}」|《[^》]{3,120}》")
_TODAY = re.compile(r"(?:for\s+)?today|今[天日]", re.IGNORECASE)
_STATE_NOW = re.compile(r"as (?:of|at) (?:today|now)|截[至止到](?:今[天日]|目前)", re.IGNORECASE)
""""as of today" describes a state; it is no date of a document."""
_STILL = re.compile(r"\b(?:still|yet|any\s?more)\b|还|仍", re.IGNORECASE)
_VERB_AFTER_ZH = re.compile(r"([\u4e00-\u9fff]{2})的")
_NEAR = 40
"""Maximum characters between a date and the word for its field."""
_ASKERS = frozenset("i my we our".split())
_ASKING = frozenset("what which who when where how please show want need find list give get send mean".split())


def date_rank(field: str) -> int:
    """Return a field's rank by how clearly its name says when documents were made: 0 ("published") is the clearest."""
    concepts = concepts_of(field)
    if "expires" in concepts:
        return _DATES.index("expires")  # "end_date" means the end of something, not an ordinary date
    return next((place for place, one in enumerate(_DATES) if one in concepts), _DATES.index(""))


def main_date_field(vocabulary: Vocabulary) -> str | None:
    """Return the date field that says when documents were made; None without a date field.

    Of fields whose names say it equally clearly, a field of days comes before one of months, quarters or years. Then
    the field that most documents have comes first, then the one whose dates begin first: loans are dated by when they
    begin.
    """
    values = vocabulary.catalogue.fields

    def order(name: str) -> tuple[int, bool, int, str]:
        return date_rank(name), name in vocabulary.date_units, -values[name].documents, str(values[name].low)

    return min(vocabulary.of_role("date"), key=order, default=None)


def named_date_field(sentence: Sentence, one: DateRange, fields: Sequence[str], *, by_noun: bool = True) -> str | None:
    """Return the date field whose word stands nearest to a range, or the only date field; None if no word is near.

    Args:
        by_noun: whether nouns for documents count as words for a field: "orders" for `ordered`.
    """
    if len(fields) == 1:
        return fields[0]
    near: list[tuple[int, int, int, str]] = []
    first = bisect_right(sentence.tokens, one.start - _NEAR, key=lambda token: token.end)
    before: tuple[int, list[str]] = (-1, [])
    for index in range(first, len(sentence.tokens)):
        token = sentence.tokens[index]
        gap = token.start - one.end if token.start >= one.end else one.start - token.end
        if gap >= _NEAR:
            break
        if token.kind not in ("mark", "number") and gap >= 0 and (by_noun or not sentence.is_noun(index)):
            cued = {*sentence.cue_fields(index), *sentence.vocabulary.cues.get((token.stem,), ())}
            named = [name for name in fields if name in cued] or abbreviated_field(token, fields)
            if named and before[1] and before[0] == index - 1 and not is_past_verb(token.folded):
                named = [name for name in named if name in before[1]] or before[1]  # "next inspection": `nxt_dt`
            near += [(gap, date_rank(name), count_unnamed_words(sentence, name), name) for name in named]
            before = (index, named) if named else before
    return min(near)[-1] if near else None


def is_main_date_unclear(vocabulary: Vocabulary) -> bool:
    """Return whether several date fields say equally clearly when documents were made."""
    ranks = sorted((date_rank(name), name in vocabulary.date_units) for name in vocabulary.of_role("date"))
    return len(ranks) > 1 and ranks[0] == ranks[1]


def is_ordered(vocabulary: Vocabulary, name: str) -> bool:
    """Return whether the values of a date field, compared as texts, are in the order of time."""
    return name not in vocabulary.date_units or vocabulary.date_units[name].form is not None


def choose_occurrence(one: DateRange, values: FieldValues, today: date) -> tuple[DateRange, bool]:
    """Return (the range of days that is meant, whether that is sure), for a range that may state no year.

    "before Christmas" may mean the latest or the coming Christmas, "since Christmas" only the latest. Otherwise the
    dates in the field decide. A range that contains some of them is likelier than an open range that contains all, and
    this is likelier than a range that contains none. If both ranges are equally likely, the latest Christmas is meant,
    unless the field has dates after today. Then the coming one is meant if it is a field of ends, such as `next_due`;
    in any other field the latest is only a guess.

    Args:
        values: the date field that the range is about.
    """
    past, ahead = one.period, one.period.next_occurrence
    if ahead is None or any(word in one.phrase.casefold() for word in word_table("dated")["up_to_now"]):
        return one, True
    coming = replace(one, period=ahead)
    in_past, in_coming = (_LIKELY.index(part_in(period, values)) for period in (past, ahead))
    if in_past != in_coming:
        return (one if in_past > in_coming else coming), True
    if str(values.high or "")[:10] <= today.isoformat():
        return one, True
    is_end = "expires" in concepts_of(values.field.name)
    return (coming if is_end else one), is_end


def for_start_field(one: DateRange, field: str) -> DateRange:
    """Return the range; for a field of beginnings (`start_date`), "starting in June" becomes June alone."""
    within = one.period.start_within
    is_begun = within is not None and any(word in word_table("dated")["begins"] for word in lexicon.name_words(field))
    return replace(one, period=within) if within is not None and is_begun else one


_LIKELY = ("none", "all", "some")


def part_in(period: Period, values: FieldValues) -> str:
    """Return how many of a field's dates may lie in a period: "none", "all" (only if the period is open), or "some"."""
    first, last = str(values.low or "")[:10], str(values.high or "")[:10]
    low, high = (day.isoformat() if day is not None else None for day in (period.low, period.high))
    if (low is not None and low > last) or (high is not None and high <= first):
        return "none"
    is_whole = (low is None or low <= first) and (high is None or high > last)
    return "all" if is_whole and not period.is_bounded else "some"


def abbreviated_field(token: Token, fields: Sequence[str]) -> list[str]:
    """Return the field whose name abbreviates a word, as a list: `dt_intro` for "introduced", `nxt_dt` for "next".

    The list is empty if no field or several do, or if the word has a capital.
    """
    word = token.folded if not token.is_capital else ""

    def is_short(part: str) -> bool:
        near = closeness(word, part)
        return CUT <= near < 1 or (LOOSE <= near < CUT and leaves_out(word, part))

    names = [name for name in fields if any(map(is_short, lexicon.name_words(name)))]
    return names if len(names) == 1 else []


def count_unnamed_words(sentence: Sentence, field: str) -> int:
    """Return how many words of a field's name a question lacks: 1 for `next_service` in "service in May"."""
    words = {stem(word) for word in lexicon.name_words(field) if len(word) > 1 and word not in lexicon.STOP_WORDS}
    return len(words - {token.stem for token in sentence.tokens})


def is_in_title(text: str, one: DateRange) -> bool:
    """Return whether a date is only a part of a quoted title: “Routine visit [2023-08]”."""
    quoted = [found for found in _QUOTED.finditer(text) if found.start() < one.start and one.end < found.end()]
    return any(found[0][1:-1].strip() != text[one.start : one.end].strip() for found in quoted)


def is_state(text: str, one: DateRange) -> bool:
    """Return whether a date means the state of things now: "as of today", "is it still open today?"."""
    phrase = one.phrase.strip()
    is_still = _TODAY.fullmatch(phrase) is not None and _STILL.search(text) is not None
    return is_still or _STATE_NOW.fullmatch(phrase) is not None


def is_verb_of_date(sentence: Sentence, mention: Mention, dates: Sequence[DateRange]) -> bool:
    """Return whether the name of a value is only the verb of the date after it: "[signed] in 2025".

    The word cannot name both the date field and a status. In "still signed", "status signed" and "draft or signed"
    the word names the status.
    """
    is_beside = any(mention.end <= one.start and not sentence.text[mention.end : one.start].strip() for one in dates)
    if not is_beside or mention.last - mention.first > 1 or not is_past_verb(sentence.folded(mention.first)):
        return False
    cued = cued_fields_beside(sentence, mention, before=True)
    if sentence.folded(mention.first - 1) in word_table("dated")["stated"] or any(
        one.field in cued for one in mention.matches
    ):
        return False
    named = {stem(word) for name in sentence.vocabulary.of_role("date") for word in lexicon.name_words(name)}
    return sentence.tokens[mention.first].stem in named


def is_past_verb(word: str) -> bool:
    """Return whether an English word is a verb in the past tense: "came", "sold", "reported"."""
    return word in word_table("dated")["past"] or (len(word) > _SHORTEST_PAST and word.endswith("ed"))


def is_about_asker(sentence: Sentence, one: DateRange) -> bool:
    """Return whether a date stands in a clause about the asker only: "for my walk [tomorrow]: findings at the mill"."""
    first, last = sentence.index_from(one.start), sentence.index_from(one.end)
    while first > 0 and sentence.tokens[first - 1].text not in ENDS:
        first -= 1
    while last < len(sentence.tokens) and sentence.tokens[last].text not in ENDS:
        last += 1
    inside = range(first, last)
    said = {sentence.tokens[place].folded for place in inside}
    if said.isdisjoint(_ASKERS) or not said.isdisjoint(_ASKING):
        return False
    stated = [
        place
        for place in range(len(sentence.tokens))
        if sentence.mention_at(place) is not None or sentence.is_noun(place) or sentence.cue_fields(place)
    ]
    return bool(stated) and not any(place in inside for place in stated)


def is_of_another_date(sentence: Sentence, one: DateRange) -> bool:
    """Return whether a verb beside a range is about something else than making documents: "[dispatched] in May"."""
    after = _VERB_AFTER_ZH.match(sentence.text, one.end)
    if after:
        meant = {after[1], *(word for sense in term_translations(after[1]) for word in sense)}
        return len(meant) > 1 and meant.isdisjoint(_date_words("makes"))
    before = [token.folded for token in sentence.tokens if token.end <= one.start]
    while before and before[-1] in _date_words("particle"):
        before.pop()
    return bool(before) and is_past_verb(before[-1]) and before[-1] not in _date_words("makes")


@cache
def _date_words(kind: str) -> frozenset[str]:
    """Return a list of words about dates, in all languages: "makes" -> verbs for making documents ("written", ...)."""
    return frozenset(word_table("dated").get(kind, ()))
