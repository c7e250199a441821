"""Parse one question: find all its conditions, without earlier turns and without choosing sources."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from agent.intent.analysis.comparisons import find_comparisons
from agent.intent.analysis.list_lengths import read_length_conditions
from agent.intent.analysis.negation import negated_mentions
from agent.intent.analysis.negation_words import JOINING, find_negators
from agent.intent.analysis.sentence import Sentence, topic_regions
from agent.intent.conditions.date_conditions import DATES_FILTER_FROM, date_conditions
from agent.intent.conditions.date_fields import is_in_title, is_past_verb, is_state, is_verb_of_date
from agent.intent.conditions.date_scoring import StatedDate, score_dates
from agent.intent.conditions.document_numbers import NumberCondition, is_key_field, year_conditions
from agent.intent.conditions.existence import (
    ExistenceCondition,
    existence_filter,
    read_existence_conditions,
    spans_without_values,
)
from agent.intent.conditions.filter_json import (
    Json,
    all_of,
    constraint_filter,
    number_filter,
)
from agent.intent.conditions.flags import read_flag_conditions
from agent.intent.conditions.number_conditions import UnclearComparison, read_number_conditions
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.conditions.versions import expand_version_ranges
from agent.intent.deciding.constraints import Constraint, read_constraints
from agent.intent.language import calculation_patterns, lexicon
from agent.intent.language.text import chinese_words, stem, tokenize
from agent.intent.reading import BOOSTS_FROM, FILTERS_FROM
from agent.intent.time.dates import read_dates
from agent.intent.time.periods import Calendar
from agent.intent.time.run_reader import DateRange
from agent.intent.values.translated_names import find_pinyin_phrases, translated_cues
from agent.intent.values.value_linking import Mention, find_mentions
from agent.intent.values.vocabulary import Vocabulary
from agent.intent.words import word_table
from retrievers.core.memo import Memo


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """A question, or another text of a conversation, with the conditions and topics that it states.

    Attributes:
        constraints, dates, numbers: the conditions on values, days and numbers from which `conditions` was made.
        conditions: all conditions but those in `length_conditions`, in the order of the question.
        unused_mentions: names of values that make no condition: topics, and names whose meaning is unclear.
        length_conditions: conditions on the number of values in a list; calculations can apply them, searches cannot.
        unread_dates: characters [first, last) of date words that could not be read completely.
        has_doubtful_dates: True if a range of days is less probable than one that filters, see `DATES_FILTER_FROM`.
        unclear_comparisons: comparisons of numbers whose field is unclear, with the reason.
        remaining_text: the question without the words of sure conditions; words of likely ones stay, to be searched.
        memo: what was computed from it, such as its calculation.
    """

    sentence: Sentence
    constraints: tuple[Constraint, ...]
    dates: tuple[StatedDate, ...]
    numbers: tuple[NumberCondition, ...]
    conditions: tuple[StatedCondition, ...]
    unused_mentions: tuple[Mention, ...]
    length_conditions: tuple[StatedCondition, ...] = ()
    unread_dates: tuple[tuple[int, int], ...] = ()
    unclear_comparisons: tuple[UnclearComparison, ...] = ()
    has_doubtful_dates: bool = False
    memo: Memo = field(init=False, default_factory=Memo, repr=False, compare=False)

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
    searches_text: bool = False,
    frequencies: Mapping[str, float] | None = None,
) -> ParsedQuestion:
    """Return a question with all conditions and topics that it states.

    Args:
        calendar: the asker's meaning of "today", a week and a fiscal year.
        counts_documents, searches_text, frequencies: see `Sentence`.
        nouns: nouns for a document of the collections in scope: "pep", "peps".
        now: the present in the time zone of the asker; dates mean days in that zone.
        more: (field, value, number of documents) looked up in fields with too many values to keep in memory.
    """
    sentence = to_sentence(
        text, vocabulary, nouns, more, counts_documents=counts_documents, frequencies=frequencies or {}
    )
    sentence = replace(sentence, searches_text=searches_text)
    crowd: Sequence[Mention] = ()
    if len(sentence.mentions) > _MOST_NAMES:
        sentence, crowd = sentence.without(sentence.mentions), sentence.mentions
    sentence, scored_dates, dates, unread_dates = with_dates(sentence, calendar)
    quantities, unclear_comparisons = read_number_conditions(sentence)
    years = year_conditions(sentence, [one for one in scored_dates if not one.is_possible])
    numbers = [*quantities, *(one for one in years if not any(one.field == known.field for known in quantities))]
    of_years = {(one.start, one.end) for one in numbers}
    sentence = sentence.without([one for one in sentence.mentions if _names_number(sentence, one, numbers)])
    sentence = replace(sentence, used_spans=(*sentence.used_spans, *((one.start, one.end) for one in numbers)))
    existing = read_existence_conditions(sentence)
    lacked = {name for name, *_ in existing}
    freed = _without_used_negators(sentence, existing)
    # "no contract and no supplier" denies both, "no supplier, signed" one.
    is_list = any(_is_joined_behind(sentence, end) for *_, end in existing)
    flags = [one for one in read_flag_conditions(sentence if is_list else freed) if one.field not in lacked]
    sentence = freed
    constraints, unused_mentions = read_constraints(_end_negations(sentence, flags))
    constraints = [*expand_version_ranges(sentence, constraints), *flags]
    dates = [one for one in dates if not any(start <= one.start and one.end <= end for start, end in of_years)]
    stated = [StatedCondition(one.field, number_filter(one), one.start, one.end, one.probability) for one in numbers]
    stated += date_conditions(sentence, dates, now)
    length_conditions = tuple(
        StatedCondition(name, {"type": operator, "key": f"len({name})", "value": number}, start, end)
        for name, operator, number, start, end in read_length_conditions(sentence)
    )
    return ParsedQuestion(
        sentence, tuple(constraints), tuple(dates), tuple(numbers),
        _all_conditions(sentence, constraints, stated, existing), (*crowd, *unused_mentions), length_conditions,
        tuple(unread_dates), tuple(unclear_comparisons),
        any(one.probability < DATES_FILTER_FROM and not one.is_possible for one in scored_dates),
    )  # fmt: skip


def _names_number(sentence: Sentence, mention: Mention, numbers: Sequence[NumberCondition]) -> bool:
    """Return whether the name of a value means the field of the number behind it instead: "[headway] 10 or less"."""
    own = set(map(stem, sentence.text[mention.start : mention.end].casefold().split()))
    return any(
        mention.last == sentence.index_from(one.start) and own <= set(map(stem, lexicon.name_words(one.field)))
        for one in numbers
    )


def _is_joined_behind(sentence: Sentence, end: int) -> bool:
    following = sentence.token(sentence.index_from(end))
    return following is not None and following.folded in JOINING


def _without_used_negators(sentence: Sentence, existing: Sequence[ExistenceCondition]) -> Sentence:
    """Return the sentence without the words of denial that say that a field has no value: they deny nothing else.

    "no destination recorded and urgent" denies only the destination.
    """
    lacking = spans_without_values(sentence, existing)

    def is_used(place: int) -> bool:
        return any(start <= sentence.tokens[place].start < end for start, end in lacking)

    free = {last: no for last, no in sentence.negators.items() if not is_used(no.first)}
    if len(free) == len(sentence.negators) or len(sentence.tokens) > _MOST_TOKENS:
        return sentence
    freed = replace(sentence, negators=free)
    ended = negated_mentions(freed)
    return replace(freed, negations={one: sentence.negations[one] if is_used(one) else ended[one] for one in ended})


def _end_negations(sentence: Sentence, flags: Sequence[Constraint]) -> Sentence:
    """Return the sentence with `negations` in which a word that denies a flag denies no value.

    "not closed on the Heron" denies only "closed".
    """
    denied = [
        (one.start, one.end)
        for one in flags
        if one.confidence >= FILTERS_FROM
        and any(sentence.index_from(one.start) in (no.first, no.last) for no in sentence.negators.values())
    ]
    if not denied or len(sentence.tokens) > _MOST_TOKENS:
        return sentence
    return replace(sentence, negations=negated_mentions(replace(sentence, used_spans=(*sentence.used_spans, *denied))))


def to_sentence(
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


def with_dates(
    sentence: Sentence, calendar: Calendar
) -> tuple[Sentence, list[StatedDate], list[StatedDate], Sequence[tuple[int, int]]]:
    """Return what the date words of a sentence mean.

    Returns:
        The sentence with dates and denials, all ranges of days, those that are probably conditions, and the characters
        [first, last) of unread date words.
    """
    reading = read_dates(sentence.text, calendar)
    compared = [one for one in find_comparisons(sentence)[0] if not one.is_bare] if reading.possible else []
    possible = [
        one for one in reading.possible if not any(each.start < one.end and one.start < each.end for each in compared)
    ]  # "amount above 2024"
    reading = reading._replace(possible=possible)
    scored = score_dates(sentence, reading, calendar.today)
    dates = [
        one
        for one in scored
        if one.probability >= BOOSTS_FROM
        and not (one.is_possible and sentence.counts_documents)
        and not is_in_title(sentence.text, one)
        and not is_state(sentence.text, one)
    ]
    dates = [
        one
        for one in dates
        if not any(_covers_date(mention, one) or _is_agent(sentence, mention, one) for mention in sentence.mentions)
    ]
    sentence = sentence.without([one for one in sentence.mentions if is_verb_of_date(sentence, one, dates)])
    taken = tuple((one.start, one.end) for one in dates)
    negators = find_negators(sentence)
    # "none" of "none of Ann's" is no value.
    denying = [
        one
        for one in sentence.mentions
        if any(no.first <= one.first and one.last <= no.last for no in negators.values())
    ]
    sentence = replace(sentence.without(denying), used_spans=taken, has_dates=bool(dates), negators=negators)
    denials = negated_mentions(sentence)
    if len(sentence.tokens) > _MOST_TOKENS:
        denials = {place: None if denied else denied for place, denied in denials.items()}
    return replace(sentence, negations=denials), scored, dates, reading.unread


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
        stated = [replace(one, confidence=min(one.confidence, _IN_LONG_TEXT)) for one in stated]
    conditions += stated
    known = {one.field for one in conditions if one.confidence >= FILTERS_FROM}
    lacking = ((existence_filter(sentence, *one), one[2], one[3]) for one in existing if one[0] not in known)
    conditions += [StatedCondition(filter["key"], filter, start, end, _EXISTENCE) for filter, start, end in lacking]
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
"""Maximum tokens of an ordinary question. Dates and numbers of a longer text may be incidental."""
_IN_LONG_TEXT = 0.8
"""Maximum probability of a date or number in a longer text."""
_EXISTENCE = 0.9
_LEADING = re.compile(
    r"(?:\b(?:by|in|from|of|on|at|for|with|since|during|within|the|a|an|that|which|who|is|are|was|were|not|and|or)\s+)+$|"
    r"[由在从自于‘“「『\"'（(和与、]+\s*$",
    re.IGNORECASE,
)
_TRAILING = re.compile(r"^\s*(?:['’]s\b|[’”」』\"'）)]+|的(?=[^\u4e00-\u9fff]|$))+", re.IGNORECASE)
