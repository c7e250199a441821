"""Parse one question: find all its conditions, without earlier turns and without choosing sources."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache

from agent.intent.analysis.list_lengths import read_length_conditions
from agent.intent.analysis.negation import is_negated, negated_mentions
from agent.intent.analysis.negation_words import find_negators
from agent.intent.analysis.sentence import Sentence, topic_regions
from agent.intent.conditions.date_fields import (
    choose_occurrence,
    date_field,
    for_start_field,
    is_about_asker,
    is_document_date,
    is_main_date_unclear,
    is_past_verb,
    is_verb_of_date,
    named_date_field,
)
from agent.intent.conditions.document_numbers import NumberCondition, is_key_field, year_conditions
from agent.intent.conditions.existence import ExistenceCondition, read_existence_conditions, spans_without_values
from agent.intent.conditions.filter_json import (
    Json,
    all_of,
    any_of,
    constraint_filter,
    date_filter,
    negate_range,
    number_filter,
)
from agent.intent.conditions.flags import read_flag_conditions
from agent.intent.conditions.number_conditions import UnclearComparison, read_number_conditions
from agent.intent.conditions.versions import expand_version_ranges
from agent.intent.deciding.constraints import Constraint, read_constraints
from agent.intent.language import calculation_patterns, lexicon
from agent.intent.language.text import chinese_words, stem, tokenize
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.time.dates import DateRange, read_dates
from agent.intent.time.periods import Calendar
from agent.intent.values.translated_names import find_pinyin_phrases, translated_cues
from agent.intent.values.value_linking import Mention, find_mentions
from agent.intent.values.vocabulary import Vocabulary
from agent.intent.words import word_table
from retrievers.text.chinese_dictionary import term_translations


@dataclass(frozen=True, slots=True)
class StatedCondition:
    """A condition that a question states at characters [start, end). `why` is the evidence for it in words, or ""."""

    field: str
    filter: Json
    start: int
    end: int
    confidence: float = 1.0
    why: str = ""


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """A question, or another text of a conversation, with the conditions and topics that it states.

    Attributes:
        constraints, dates, numbers: the conditions on values, days and numbers from which `conditions` was made.
        conditions: all conditions but those in `length_conditions`, in the order of the question.
        unused_mentions: names of values that make no condition: topics, and names whose meaning is unclear.
        length_conditions: conditions on the number of values in a list; calculations can apply them, searches cannot.
        unread_dates: characters [first, last) of date words that could not be read completely.
        unclear_comparisons: comparisons of numbers whose field is unclear, with the reason.
        remaining_text: the question without the words of sure conditions; words of likely ones stay, to be searched.
    """

    sentence: Sentence
    constraints: tuple[Constraint, ...]
    dates: tuple[DateRange, ...]
    numbers: tuple[NumberCondition, ...]
    conditions: tuple[StatedCondition, ...]
    unused_mentions: tuple[Mention, ...]
    length_conditions: tuple[StatedCondition, ...] = ()
    unread_dates: tuple[tuple[int, int], ...] = ()
    unclear_comparisons: tuple[UnclearComparison, ...] = ()

    @property
    def filter(self) -> Json | None:
        return all_of([one.filter for one in self.conditions]) if self.conditions else None

    @property
    def remaining_text(self) -> str:
        text = self.sentence.text
        sure = [one for one in self.conditions if one.confidence >= FILTERS_FROM]
        for condition in sorted(sure, key=lambda condition: -condition.start):
            # Remove the words that only lead to the constraint as well: "by", "in", quotes, 由.
            text = f"{_LEADING.sub('', text[: condition.start])} {_TRAILING.sub('', text[condition.end :])}"
        return " ".join(text.split()).strip(" ,;:，；：、")


def parse_question(
    text: str,
    vocabulary: Vocabulary,
    nouns: frozenset[str],
    calendar: Calendar,
    now: datetime,
    more: Sequence[tuple[str, str, int]] = (),
    *,
    counts_documents: bool = False,
    frequencies: Mapping[str, float] | None = None,
) -> ParsedQuestion:
    """Return a question with all conditions and topics that it states.

    Args:
        calendar: the asker's meaning of "today", a week and a fiscal year.
        counts_documents, frequencies: see `Sentence`.
        nouns: nouns for a document of the collections in scope: "pep", "peps".
        now: the present in the time zone of the asker; dates mean days in that zone.
        more: (field, value, number of documents) looked up in fields with too many values to keep in memory.
    """
    sentence = _to_sentence(
        text, vocabulary, nouns, more, counts_documents=counts_documents, frequencies=frequencies or {}
    )
    crowd: Sequence[Mention] = ()
    if len(sentence.mentions) > _MOST_NAMES:
        sentence, crowd = sentence.without(sentence.mentions), sentence.mentions
    sentence, dates, unread_dates = _with_dates(sentence, calendar)
    quantities, unclear_comparisons = read_number_conditions(sentence)
    numbers = [*quantities, *year_conditions(sentence, dates)]
    of_years = {(one.start, one.end) for one in numbers}
    sentence = sentence.without([one for one in sentence.mentions if _names_number(sentence, one, numbers)])
    sentence = replace(sentence, used_spans=(*sentence.used_spans, *((one.start, one.end) for one in numbers)))
    existing = read_existence_conditions(sentence)
    lacked = {name for name, *_ in existing}
    flags = [one for one in read_flag_conditions(sentence) if one.field not in lacked]
    constraints, unused_mentions = read_constraints(_end_negations(sentence, flags, existing))
    constraints = [*expand_version_ranges(sentence, constraints), *flags]
    dates = [one for one in dates if not any(start <= one.start and one.end <= end for start, end in of_years)]
    stated = [StatedCondition(one.field, number_filter(one), one.start, one.end) for one in numbers]
    stated += _date_conditions(sentence, dates, now)
    length_conditions = tuple(
        StatedCondition(name, {"type": operator, "key": f"len({name})", "value": number}, start, end)
        for name, operator, number, start, end in read_length_conditions(sentence)
    )
    return ParsedQuestion(
        sentence, tuple(constraints), tuple(dates), tuple(numbers),
        _all_conditions(sentence, constraints, stated, existing), (*crowd, *unused_mentions), length_conditions,
        tuple(unread_dates), tuple(unclear_comparisons),
    )  # fmt: skip


def _names_number(sentence: Sentence, mention: Mention, numbers: Sequence[NumberCondition]) -> bool:
    """Return whether the name of a value means the field of the number behind it instead: "[headway] 10 or less"."""
    own = set(map(stem, sentence.text[mention.start : mention.end].casefold().split()))
    return any(
        mention.last == sentence.index_from(one.start) and own <= set(map(stem, lexicon.name_words(one.field)))
        for one in numbers
    )


def _end_negations(sentence: Sentence, flags: Sequence[Constraint], existing: Sequence[ExistenceCondition]) -> Sentence:
    """Return the sentence with `negations` in which a word that denies a flag or a missing field denies no other value.

    "not closed on the Heron" denies only "closed"; "no destination recorded and urgent" denies only the destination.
    """
    denied = [
        (one.start, one.end)
        for one in flags
        if one.confidence >= FILTERS_FROM
        and any(sentence.index_from(one.start) in (no.first, no.last) for no in sentence.negators.values())
    ]
    lacking = spans_without_values(sentence, existing)

    def is_used(place: int) -> bool:
        return any(start <= sentence.tokens[place].start < end for start, end in lacking)

    free = {last: no for last, no in sentence.negators.items() if not is_used(no.first)}
    if (not denied and len(free) == len(sentence.negators)) or len(sentence.tokens) > _MOST_TOKENS:
        return sentence
    ended = negated_mentions(replace(sentence, negators=free, used_spans=(*sentence.used_spans, *denied)))
    return replace(sentence, negations={one: sentence.negations[one] if is_used(one) else ended[one] for one in ended})


def _to_sentence(
    text: str,
    vocabulary: Vocabulary,
    nouns: frozenset[str],
    more: Sequence[tuple[str, str, int]],
    *,
    counts_documents: bool,
    frequencies: Mapping[str, float],
) -> Sentence:
    """Return the text as a sentence with tokens and names of values; the arguments are those of `parse_question`."""
    tokens = tokenize(text)
    pinyin_phrases = find_pinyin_phrases(tokens, vocabulary)
    more_cues = translated_cues(tokens, vocabulary, pinyin_phrases)
    if more_cues:
        vocabulary = replace(vocabulary, cues={**vocabulary.cues, **more_cues})
    nouns = nouns | _document_number_nouns(vocabulary)
    about = topic_regions(text, tokens, (*nouns, *vocabulary.document_kinds))
    mentions = [one for one in find_mentions(tokens, vocabulary, more) if not _is_in_counting_word(text, one)]
    return Sentence(
        text, tokens, mentions, vocabulary, nouns, topic_spans=about, counts_documents=counts_documents,
        frequencies=frequencies, has_calculation_word=calculation_patterns.is_calculating(text),
        pinyin_fields=pinyin_phrases,
    )  # fmt: skip


def _with_dates(sentence: Sentence, calendar: Calendar) -> tuple[Sentence, list[DateRange], Sequence[tuple[int, int]]]:
    """Return (sentence with dates and denials, ranges of days, characters [first, last) of unread date words)."""
    ranges, unread = read_dates(sentence.text, calendar)
    dates = [one for one in ranges if is_document_date(one, sentence, calendar)]
    dates = [
        one
        for one in dates
        if not any(_covers_date(mention, one) or _is_agent(sentence, mention, one) for mention in sentence.mentions)
    ]
    sentence = sentence.without([one for one in sentence.mentions if is_verb_of_date(sentence, one, dates)])
    taken = tuple((one.start, one.end) for one in dates)
    sentence = replace(sentence, used_spans=taken, has_dates=bool(dates), negators=find_negators(sentence))
    denials = negated_mentions(sentence)
    if len(sentence.tokens) > _MOST_TOKENS:
        denials = {place: None if denied else denied for place, denied in denials.items()}
    return replace(sentence, negations=denials), dates, unread


def _all_conditions(
    sentence: Sentence,
    constraints: Sequence[Constraint],
    stated: Sequence[StatedCondition],
    existing: Sequence[ExistenceCondition],
) -> tuple[StatedCondition, ...]:
    """Return all conditions in the order of the text.

    Args:
        stated: conditions on numbers and dates.
        existing: conditions that a field has a value or none.
    """
    fields = sentence.vocabulary.catalogue.fields
    made = ((one, constraint_filter(one, fields)) for one in constraints)
    conditions = [StatedCondition(one.field, filter, one.start, one.end, one.confidence) for one, filter in made]
    if len(sentence.tokens) > _MOST_TOKENS:
        stated = [replace(one, confidence=_LIKELY) for one in stated]
    conditions += stated
    known = {one.field for one in conditions if one.confidence >= FILTERS_FROM}
    conditions += [
        StatedCondition(name, {"type": "exists", "key": name, "value": there}, start, end, _EXISTENCE)
        for name, there, start, end in existing
        if name not in known
    ]
    return tuple(sorted(conditions, key=lambda condition: condition.start))


def _is_in_counting_word(text: str, mention: Mention) -> bool:
    """Return whether a name is one character of a Chinese word of counting: 少 ("rare") in 多少 ("how many")."""
    words = chinese_words(text) if mention.end - mention.start == 1 else {}
    counting = {text[start:end] for start, end in words.items() if start <= mention.start < end}
    return not counting.isdisjoint(word_table("calculation")["count"])


def _covers_date(mention: Mention, one: DateRange) -> bool:
    """Return whether a date ends inside a name of several words: "Business [Today]", "[on Sun] Terrace"."""
    is_whole = mention.matches[0].kind == "exact" and mention.last - mention.first > 1
    is_inside = mention.start < one.end <= mention.end
    return is_whole and is_inside and (mention.start <= one.start or one.end < mention.end)


def _is_agent(sentence: Sentence, mention: Mention, one: DateRange) -> bool:
    """Return whether a word read as a date names a person who did something: "seen by [June]"."""
    people = sentence.vocabulary.of_role("person")
    is_led = mention.end == one.end and sentence.folded(mention.first - 1) == "by"
    return is_led and bool(mention.matches_in(*people)) and is_past_verb(sentence.folded(mention.first - 2))


def _document_number_nouns(vocabulary: Vocabulary) -> frozenset[str]:
    """Return nouns for documents from the names of fields that number them: "case" and "cases" for case_number."""
    keys = (name for name in vocabulary.of_role("number") if is_key_field(vocabulary, name))
    words = {word for name in keys for word in lexicon.name_words(name) if word not in lexicon.CONCEPTS["number"][0]}
    return frozenset(words | {f"{word}s" for word in words})


_MOST_NAMES = 48
"""Maximum number of values that a question may name. With more, none is a constraint: judging them takes seconds."""
_MOST_TOKENS = 36
"""Maximum tokens of an ordinary question. Dates and numbers of a longer text only boost, as they may be incidental."""
_LIKELY = 0.8
_GUESSED = BOOSTS_FROM
"""Probability of a date condition if several fields may be meant: it only boosts, also after a follow-up."""
_EXISTENCE = 0.9
_VERB_AFTER_ZH = re.compile(r"([\u4e00-\u9fff]{2})的")
_LONGEST_PHRASE = 60
_LEADING = re.compile(
    r"(?:\b(?:by|in|from|of|on|at|for|with|since|during|within|the|a|an|that|which|who|is|are|was|were|not|and|or)\s+)+$|"
    r"[由在从自于‘“「『\"'（(和与、]+\s*$",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"^\s*(?:['’]s\b|[’”」』\"'）)]+|的(?=[^\u4e00-\u9fff]|$))+", re.IGNORECASE)


def _date_conditions(sentence: Sentence, dates: Sequence[DateRange], now: datetime) -> list[StatedCondition]:
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
    conditions = []
    for name, ranges in by_field.items():
        denied = {is_negated(sentence, one.start, one.end, sentence.vocabulary.of_role("date")) for one in ranges}
        if len(denied) > 1 or None in denied:
            continue  # the meaning is unclear
        values = sentence.vocabulary.catalogue.fields[name]
        meant = [choose_occurrence(for_start_field(one, name), values, now.date()) for one in ranges]
        units = sentence.vocabulary.date_units.get(name)
        filters = [date_filter(one, values, zone, units) for one, _ in meant]
        made = [one for one in filters if one is not None]
        if len(made) < len(filters):
            continue  # a range of days in a field of months
        if denied == {True}:
            made = [negate_range(any_of(made))] if len(made) == 1 else [{"type": "not", "filter": any_of(made)}]
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
        named = [named_date_field(sentence, one, fields, by_noun=False) for one in other]
        is_guess = is_main_date_unclear(sentence.vocabulary) and not any(
            named_date_field(sentence, one, fields) for one in ranges
        )
        is_sure = all(named) and all(sure for _, sure in meant)
        is_sure = is_sure and not any(is_about_asker(sentence, one) for one in ranges)
        confidence = _GUESSED if is_guess else 1.0 if is_sure else _LIKELY
        conditions.append(StatedCondition(name, all_of(made) if meet else any_of(made), start, end, confidence))
    return conditions


def _is_of_another_date(sentence: Sentence, one: DateRange) -> bool:
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
