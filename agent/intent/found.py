"""Find all conditions in one question by itself, before earlier turns and routing are considered."""

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from agent.intent import lexicon, wording
from agent.intent.comparing import Unclear, find_quantities
from agent.intent.date_fields import (
    is_main_unclear,
    is_of_asker,
    is_past_verb,
    is_stated,
    is_verb_of_date,
    main_date,
    occurrence,
    of_beginning,
    rank_of_date,
    shortened,
    unsaid,
)
from agent.intent.deciding import Constraint, read_constraints
from agent.intent.existence import Existence, read_existence, without_values
from agent.intent.filter_json import Json, both, either, of_constraint, of_date, of_number, outside
from agent.intent.flags import read_flags
from agent.intent.foreign import spelt_phrases, translated_cues
from agent.intent.lengths import find_lengths
from agent.intent.linking import Mention, find_mentions
from agent.intent.negation import denials_of, is_negated
from agent.intent.negators import find_negators
from agent.intent.numbered import NumberRange, is_key, year_ranges
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.sentence import Sentence, about_regions
from agent.intent.text import chinese_words, stem, tokenize
from agent.intent.time.dates import DateRange, read_dates
from agent.intent.time.periods import Calendar
from agent.intent.versions import version_ranges
from agent.intent.vocabulary import Vocabulary
from agent.intent.words import table
from retrievers.text.glosses import senses_of


@dataclass(frozen=True, slots=True)
class Piece:
    """A condition that a question states at characters [start, end). `why` is the evidence for it in words, or ""."""

    field: str
    filter: Json
    start: int
    end: int
    confidence: float = 1.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Found:
    """The conditions and topics stated in a text.

    Attributes:
        constraints, dates, numbers: the conditions on values, ranges of days and conditions on numbers behind `pieces`.
        pieces: all conditions but those in `lengths`, in the order of the question.
        left: names of values that make no condition: topics, and names whose meaning is unclear.
        lengths: conditions on the number of values in a list; calculations can apply them, searches cannot.
        unread_dates: characters [first, last) of date words that could not be read completely.
        unclear: comparisons of numbers whose field is unclear, with the reason.
        rest: the question without the words of sure conditions; words of likely ones stay, so that they are searched.
    """

    sentence: Sentence
    constraints: tuple[Constraint, ...]
    dates: tuple[DateRange, ...]
    numbers: tuple[NumberRange, ...]
    pieces: tuple[Piece, ...]
    left: tuple[Mention, ...]
    lengths: tuple[Piece, ...] = ()
    unread_dates: tuple[tuple[int, int], ...] = ()
    unclear: tuple[Unclear, ...] = ()

    @property
    def filter(self) -> Json | None:
        return both([piece.filter for piece in self.pieces]) if self.pieces else None

    @property
    def rest(self) -> str:
        text = self.sentence.text
        sure = [piece for piece in self.pieces if piece.confidence >= FILTERS_FROM]
        for piece in sorted(sure, key=lambda piece: -piece.start):
            # Remove the words that only lead to the constraint as well: "by", "in", quotes, 由.
            text = f"{_LEADING.sub('', text[: piece.start])} {_TRAILING.sub('', text[piece.end :])}"
        return " ".join(text.split()).strip(" ,;:，；：、")


def find(
    text: str,
    vocabulary: Vocabulary,
    nouns: frozenset[str],
    calendar: Calendar,
    now: datetime,
    more: Sequence[tuple[str, str, int]] = (),
    *,
    counted: bool = False,
    frequencies: Mapping[str, float] | None = None,
) -> Found:
    """Return all conditions and topics that a question states.

    Args:
        calendar: the asker's meaning of "today", a week and a fiscal year.
        counted, frequencies: see `Sentence`.
        nouns: nouns for a document of the collections in scope: "pep", "peps".
        now: the present in the time zone of the asker; dates mean days in that zone.
        more: (field, value, number of documents) looked up in fields with too many values to keep in memory.
    """
    sentence = _sentence_of(text, vocabulary, nouns, more, counted=counted, frequencies=frequencies or {})
    crowd: Sequence[Mention] = ()
    if len(sentence.mentions) > _MOST_NAMES:
        sentence, crowd = sentence.without(sentence.mentions), sentence.mentions
    sentence, dates, unread_dates = _dated(sentence, calendar)
    quantities, unclear = find_quantities(sentence)
    numbers = [*quantities, *year_ranges(sentence, dates)]
    of_years = {(one.start, one.end) for one in numbers}
    sentence = sentence.without([one for one in sentence.mentions if _names_number(sentence, one, numbers)])
    sentence = replace(sentence, taken=(*sentence.taken, *((one.start, one.end) for one in numbers)))
    existing = read_existence(sentence)
    lacked = {name for name, *_ in existing}
    flags = [one for one in read_flags(sentence) if one.field not in lacked]
    constraints, left = read_constraints(_with_ended_denials(sentence, flags, existing))
    constraints = [*version_ranges(sentence, constraints), *flags]
    dates = [one for one in dates if not any(start <= one.start and one.end <= end for start, end in of_years)]
    stated = [Piece(one.field, of_number(one), one.start, one.end) for one in numbers]
    stated += _date_pieces(sentence, dates, now)
    lengths = tuple(
        Piece(name, {"type": operator, "key": f"len({name})", "value": number}, start, end)
        for name, operator, number, start, end in find_lengths(sentence)
    )
    return Found(
        sentence,
        tuple(constraints),
        tuple(dates),
        tuple(numbers),
        _pieces(sentence, constraints, stated, existing),
        (*crowd, *left),
        lengths,
        tuple(unread_dates),
        tuple(unclear),
    )


def _names_number(sentence: Sentence, mention: Mention, numbers: Sequence[NumberRange]) -> bool:
    """Return whether the name of a value means the field of the number behind it instead: "[headway] 10 or less"."""
    own = set(map(stem, sentence.text[mention.start : mention.end].casefold().split()))
    return any(
        mention.last == sentence.index_from(one.start) and own <= set(map(stem, lexicon.name_words(one.field)))
        for one in numbers
    )


def _with_ended_denials(sentence: Sentence, flags: Sequence[Constraint], existing: Sequence[Existence]) -> Sentence:
    """Return the sentence with `denials` in which a word that denies a flag or a missing field denies no further value.

    "not closed on the Heron" denies only "closed"; "no destination recorded and urgent" denies only the destination.
    """
    denied = [
        (one.start, one.end)
        for one in flags
        if one.confidence >= FILTERS_FROM
        and any(sentence.index_from(one.start) in (no.first, no.last) for no in sentence.negators.values())
    ]
    lacking = without_values(sentence, existing)

    def is_used(place: int) -> bool:
        return any(start <= sentence.tokens[place].start < end for start, end in lacking)

    free = {last: no for last, no in sentence.negators.items() if not is_used(no.first)}
    if (not denied and len(free) == len(sentence.negators)) or len(sentence.tokens) > _STORY:
        return sentence
    ended = denials_of(replace(sentence, negators=free, taken=(*sentence.taken, *denied)))
    return replace(sentence, denials={one: sentence.denials[one] if is_used(one) else ended[one] for one in ended})


def _sentence_of(
    text: str,
    vocabulary: Vocabulary,
    nouns: frozenset[str],
    more: Sequence[tuple[str, str, int]],
    *,
    counted: bool,
    frequencies: Mapping[str, float],
) -> Sentence:
    """Return the text as a sentence with tokens and names of values; the arguments are those of `find`."""
    tokens = tokenize(text)
    spelt = spelt_phrases(tokens, vocabulary)
    more_cues = translated_cues(tokens, vocabulary, spelt)
    if more_cues:
        vocabulary = replace(vocabulary, cues={**vocabulary.cues, **more_cues})
    nouns = nouns | _numbered(vocabulary)
    about = about_regions(text, tokens, (*nouns, *vocabulary.kinds))
    mentions = [one for one in find_mentions(tokens, vocabulary, more) if not _is_in_counting_word(text, one)]
    return Sentence(
        text, tokens, mentions, vocabulary, nouns, about=about, counted=counted,
        frequencies=frequencies, calculates=wording.is_calculating(text), spelt=spelt,
    )  # fmt: skip


def _dated(sentence: Sentence, calendar: Calendar) -> tuple[Sentence, list[DateRange], Sequence[tuple[int, int]]]:
    """Return (sentence with dates and denials, ranges of days, characters [first, last) of unread date words)."""
    ranges, unread = read_dates(sentence.text, calendar)
    dates = [one for one in ranges if is_stated(one, sentence, calendar)]
    dates = [
        one
        for one in dates
        if not any(_holds(mention, one) or _is_agent(sentence, mention, one) for mention in sentence.mentions)
    ]
    sentence = sentence.without([one for one in sentence.mentions if is_verb_of_date(sentence, one, dates)])
    taken = tuple((one.start, one.end) for one in dates)
    sentence = replace(sentence, taken=taken, dated=bool(dates), negators=find_negators(sentence))
    denials = denials_of(sentence)
    if len(sentence.tokens) > _STORY:
        denials = {place: None if denied else denied for place, denied in denials.items()}
    return replace(sentence, denials=denials), dates, unread


def _pieces(
    sentence: Sentence,
    constraints: Sequence[Constraint],
    stated: Sequence[Piece],
    existing: Sequence[Existence],
) -> tuple[Piece, ...]:
    """Return all conditions in the order of the text.

    Args:
        stated: conditions on numbers and dates.
        existing: conditions that a field has a value or none.
    """
    fields = sentence.vocabulary.catalogue.fields
    pieces = [Piece(one.field, of_constraint(one, fields), one.start, one.end, one.confidence) for one in constraints]
    if len(sentence.tokens) > _STORY:
        stated = [replace(one, confidence=_TOLD) for one in stated]
    pieces += stated
    known = {one.field for one in pieces if one.confidence >= FILTERS_FROM}
    pieces += [
        Piece(name, {"type": "exists", "key": name, "value": there}, start, end, _SAID)
        for name, there, start, end in existing
        if name not in known
    ]
    return tuple(sorted(pieces, key=lambda piece: piece.start))


def _is_in_counting_word(text: str, mention: Mention) -> bool:
    """Return whether a name is one character of a Chinese word of counting: 少 ("rare") in 多少 ("how many")."""
    words = chinese_words(text) if mention.end - mention.start == 1 else {}
    counting = {text[start:end] for start, end in words.items() if start <= mention.start < end}
    return not counting.isdisjoint(table("calculation")["count"])


def _holds(mention: Mention, one: DateRange) -> bool:
    """Return whether a date ends inside a name of several words: "Business [Today]", "[on Sun] Terrace"."""
    is_whole = mention.known[0].how == "exact" and mention.last - mention.first > 1
    is_inside = mention.start < one.end <= mention.end
    return is_whole and is_inside and (mention.start <= one.start or one.end < mention.end)


def _is_agent(sentence: Sentence, mention: Mention, one: DateRange) -> bool:
    """Return whether a word read as a date names a person who did something: "seen by [June]"."""
    people = sentence.vocabulary.of_role("person")
    is_led = mention.end == one.end and sentence.folded(mention.first - 1) == "by"
    return is_led and bool(mention.of(*people)) and is_past_verb(sentence.folded(mention.first - 2))


def _numbered(vocabulary: Vocabulary) -> frozenset[str]:
    """Return nouns for documents from the names of fields that number them: "case" and "cases" for case_number."""
    keys = (name for name in vocabulary.of_role("number") if is_key(vocabulary, name))
    words = {word for name in keys for word in lexicon.name_words(name) if word not in lexicon.CONCEPTS["number"][0]}
    return frozenset(words | {f"{word}s" for word in words})


_MOST_NAMES = 48
"""Maximum number of values that a question may name. With more, none is a constraint: judging them takes seconds."""
_STORY = 36
"""Maximum tokens of an ordinary question. Dates and numbers of a longer text only boost, as they may be incidental."""
_TOLD = 0.8
_GUESSED = BOOSTS_FROM
"""Probability of a date condition if several fields may be meant: it only boosts, also after a follow-up."""
_SAID = 0.9
_NEAR = 40
"""Maximum characters between a date and the word for its field."""
_DONE_THEN = re.compile(r"([\u4e00-\u9fff]{2})的")
_LONGEST_PHRASE = 60
_LEADING = re.compile(
    r"(?:\b(?:by|in|from|of|on|at|for|with|since|during|within|the|a|an|that|which|who|is|are|was|were|not|and|or)\s+)+$|"
    r"[由在从自于‘“「『\"'（(和与、]+\s*$",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"^\s*(?:['’]s\b|[’”」』\"'）)]+|的(?=[^\u4e00-\u9fff]|$))+", re.IGNORECASE)


def _date_pieces(sentence: Sentence, dates: Sequence[DateRange], now: datetime) -> list[Piece]:
    """Return the conditions that the ranges of days in `dates` make: one for each date field that they are about.

    Several ranges of a field are alternatives, but overlapping open ones ("after 2001", "before 2024") apply together.
    """
    zone = now.tzinfo
    assert zone is not None
    by_field: dict[str, list[DateRange]] = {}
    for one in dates:
        name = date_field(sentence, one)
        if name is not None:
            by_field.setdefault(name, []).append(one)
    pieces = []
    for name, ranges in by_field.items():
        denied = {is_negated(sentence, one.start, one.end, sentence.vocabulary.of_role("date")) for one in ranges}
        if len(denied) > 1 or None in denied:
            continue  # the meaning is unclear
        values = sentence.vocabulary.catalogue.fields[name]
        meant = [occurrence(of_beginning(one, name), values, now.date()) for one in ranges]
        units = sentence.vocabulary.units.get(name)
        filters = [of_date(one, values, zone, units) for one, _ in meant]
        made = [one for one in filters if one is not None]
        if len(made) < len(filters):
            continue  # a range of days in a field of months
        if denied == {True}:
            made = [outside(either(made))] if len(made) == 1 else [{"type": "not", "filter": either(made)}]
        lows = [one.period.low for one in ranges if one.period.low is not None]
        highs = [one.period.high for one in ranges if one.period.high is not None]
        # No day satisfies both "before 2001" and "after 2024".
        is_open = len(lows) < len(ranges) and len(highs) < len(ranges)
        meet = is_open and bool(lows) and bool(highs) and max(lows) < min(highs)
        start, end = min(one.start for one in ranges), max(one.end for one in ranges)
        if end - start >= _LONGEST_PHRASE:
            # The ranges are too far apart for one phrase; the words between them are not about dates.
            start, end = ranges[0].start, ranges[0].end
        fields = sentence.vocabulary.of_role("date")
        other = [one for one in ranges if _is_of_another_date(sentence, one)]
        named = [_named_date(sentence, one, fields, by_noun=False) for one in other]
        is_guess = is_main_unclear(sentence.vocabulary) and not any(
            _named_date(sentence, one, fields) for one in ranges
        )
        is_sure = all(named) and all(sure for _, sure in meant)
        is_sure = is_sure and not any(is_of_asker(sentence, one) for one in ranges)
        confidence = _GUESSED if is_guess else 1.0 if is_sure else _TOLD
        pieces.append(Piece(name, both(made) if meet else either(made), start, end, confidence))
    return pieces


def date_field(sentence: Sentence, one: DateRange) -> str | None:
    """Return the date field of a range: one named nearby, else one with such texts, else the main one; None if none."""
    fields = sentence.vocabulary.of_role("date")
    return _named_date(sentence, one, fields) or _written_in(sentence, one) or main_date(sentence.vocabulary)


def _written_in(sentence: Sentence, one: DateRange) -> str | None:
    """Return the only field of months or quarters that writes a range like the question, "Q3" as "2025-Q3"; or None."""
    named = [name for name, units in sentence.vocabulary.units.items() if units.is_written(one.period, one.phrase)]
    return named[0] if len(named) == 1 else None


def _named_date(sentence: Sentence, one: DateRange, fields: Sequence[str], *, by_noun: bool = True) -> str | None:
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
            named = [name for name in fields if name in cued] or shortened(token, fields)
            if named and before[1] and before[0] == index - 1 and not is_past_verb(token.folded):
                named = [name for name in named if name in before[1]] or before[1]  # "next inspection": `nxt_dt`
            near += [(gap, rank_of_date(name), unsaid(sentence, name), name) for name in named]
            before = (index, named) if named else before
    return min(near)[-1] if near else None


def _is_of_another_date(sentence: Sentence, one: DateRange) -> bool:
    """Return whether a verb beside a range is about something else than making documents: "[dispatched] in May"."""
    after = _DONE_THEN.match(sentence.text, one.end)
    if after:
        meant = {after[1], *(word for sense in senses_of(after[1]) for word in sense)}
        return len(meant) > 1 and meant.isdisjoint(_said("makes"))
    before = [token.folded for token in sentence.tokens if token.end <= one.start]
    while before and before[-1] in _said("particle"):
        before.pop()
    return bool(before) and is_past_verb(before[-1]) and before[-1] not in _said("makes")


@cache
def _said(kind: str) -> frozenset[str]:
    """Return a list of words about dates, in all languages: "makes" -> verbs for making documents ("written", ...)."""
    return frozenset(table("dated").get(kind, ()))
