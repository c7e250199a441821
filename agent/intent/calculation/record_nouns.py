"""Find the nouns that stand for the records (documents) because of their position: "how many [sightings]"."""

from collections.abc import Sequence
from dataclasses import replace

from agent.intent.analysis.field_linking import FieldIndex
from agent.intent.analysis.sentence import Sentence
from agent.intent.calculation.segment import (
    CONDITION,
    FIELD,
    FILLER,
    MARK,
    NUMBER,
    RECORD,
    UNKNOWN,
    VALUE,
    Segment,
    segment_text,
)
from agent.intent.language.lexicon import AUXILIARIES, CONCEPTS, STOP_WORDS, name_words
from agent.intent.language.text import stem
from agent.intent.language.units import unit_of
from agent.intent.values.field_words import agent_verb
from agent.intent.words import word_table

# Kinds after which a plural noun names the records: "how many [sightings]", "at least 5 [parcels]".
_BEFORE_PLURAL = frozenset(["count", "most", "fewest", "number", "distinct", "share", "top", "difference"])
# Kinds directly after which a noun names the records: "which [parcel]", "the most expensive [part]".
_BEFORE_NOUN = frozenset(["which", "highest", "lowest", "exactly", "newest", "oldest"])
_NAMING = frozenset([UNKNOWN, CONDITION, FIELD, RECORD, VALUE])
_CALCULATING = frozenset(
    """
    count how_much how_big distinct avg median sum share rate ratio difference most fewest highest lowest newest oldest
    breakdown
    """.split()
)
_COUNTING = frozenset(["count", "most", "fewest", "share", "more", "fewer"])
_SUPERLATIVE = frozenset(["highest", "lowest", "newest", "oldest"])
_ENDS = frozenset(["highest", "lowest", "most", "fewest"])
_DETERMINERS = frozenset("the our all these those".split())
_OWN_NAME, _GENERAL = 5, 2
"""Strength of a field's full name and of a word that only implies it, see `FieldMatch`."""
_ONE = frozenset("one 1 a an".split())
_GENERIC_NOUNS = frozenset("one ones record records entry entries item items row rows".split())
"""Nouns that may stand for records of any kind."""


def correct_kinds(sentence: Sentence, segments: list[Segment], columns: FieldIndex) -> tuple[Segment, ...]:
    """Return the segments with corrected kinds, for words whose kind depends on their neighbours.

    Nouns where a record is expected become RECORD. A plural after the name of a numeric field becomes FILLER, because
    the plural only names the unit. `segments` is changed in place.
    """
    before = ""
    for index, segment in enumerate(segments):
        numbered = any(one.kind == NUMBER for one in segments[max(0, index - 2) : index])
        if segment.kind in ("or_more", "or_fewer") and not numbered:
            segments[index] = replace(segment, kind="more" if segment.kind == "or_more" else "fewer")
        segments[index] = _corrected(sentence, segments, index, before, columns)
        if segment.kind not in (FILLER, MARK, CONDITION):
            before = segments[index].kind
    return tuple(segments)


def _corrected(
    sentence: Sentence, segments: Sequence[Segment], index: int, before: str, columns: FieldIndex
) -> Segment:
    """Return the segment `index`, corrected by its neighbours.

    Args:
        before: kind of the last segment before it that is no filler, mark or condition.
    """
    segment, previous = segments[index], segments[index - 1] if index else None
    if previous is not None and _is_counted_total(sentence, segment, previous, columns):
        return replace(segment, kind=FIELD, fields=previous.fields, strength=_GENERAL)
    if previous is not None and _is_counted_noun(sentence, segments, index, columns):
        return replace(segment, kind=FILLER, fields=(), strength=0.0)
    if _names_conditioned_field(segment, segments, before, columns):
        return replace(segment, kind=FIELD)  # "[first]-authored by Kim", "the highest [total]", "[total] over 680"
    if segment.kind == "count" and _repeats_amount(sentence, segment, previous, columns):
        return replace(segment, kind=FILLER)
    if previous is not None and segment.kind == FIELD and _is_key_as_record(sentence, segments, index, columns):
        return replace(segment, kind=RECORD, fields=())
    if previous is not None and segment.kind in (FIELD, UNKNOWN) and _completes_field_name(sentence, segment, previous):
        return replace(segment, kind=FILLER, fields=())
    if segment.kind == FIELD and _is_plural_of_records(sentence, segment, before, columns):
        return replace(segment, kind=RECORD, fields=(), guessed=True)
    if segment.kind != UNKNOWN:
        return segment
    if before == "who" and (agent_fields := _agent_fields(sentence, segment, columns)):
        return replace(segment, kind=FIELD, fields=agent_fields)
    is_record = _is_expected_record(sentence, segments, index, before, columns) or _is_only_record(
        sentence, segments, index
    )
    is_times = sentence.folded(segment.first) == "times"
    if is_record and (is_times or not columns.resembles_label(segment_text(sentence, segment))):
        return replace(segment, kind=RECORD, guessed=True)
    return segment


def _names_conditioned_field(segment: Segment, segments: Sequence[Segment], before: str, columns: FieldIndex) -> bool:
    """Return whether a superlative or "total" names its field: a condition is on it, or a superlative stands before."""
    is_conditioned = any(one.condition and one.condition.field in segment.fields for one in segments)
    if segment.kind == "sum" and segment.strength >= _OWN_NAME and segment.fields[0] in columns.measures:
        return is_conditioned or before in _ENDS
    return segment.kind in _SUPERLATIVE and is_conditioned


def _is_plural_of_records(sentence: Sentence, segment: Segment, before: str, columns: FieldIndex) -> bool:
    """Return whether a field's name stands for records where these are expected: "how many [releases]"."""
    is_distinct = before == "distinct" and all(len(columns.name_stems[name]) == 1 for name in segment.fields)
    return before in _BEFORE_PLURAL and _names_records(sentence, segment, columns) and not is_distinct


def _is_key_as_record(sentence: Sentence, segments: Sequence[Segment], index: int, columns: FieldIndex) -> bool:
    """Return whether the name of a field with a different value in each record stands for the records themselves.

    It does in "average age of the [players]" and "the most [races]". Elsewhere the question may ask for the values of
    the field.
    """
    segment, last = segments[index], segments[index - 1]
    is_key_field = len(segment.fields) == 1 and segment.fields[0] in columns.key_fields and segment.strength >= 5
    if is_key_field and last.kind in ("more", "fewer", "most", "fewest"):
        return _is_plural(sentence, segment)
    led = last.kind == FILLER and sentence.folded(last.last - 1) in _DETERMINERS
    before = segments[:index]
    calculates = any(one.kind in ("avg", "sum", "median") for one in segments)
    numbered = any(not columns.measures.keys().isdisjoint(one.fields) for one in before)
    return is_key_field and led and calculates and numbered and _is_plural(sentence, segment)


def _agent_fields(sentence: Sentence, segment: Segment, columns: FieldIndex) -> tuple[str, ...]:
    """Return the fields of people named after the verb that follows "who": `owner` for "who [owns] most"; or ()."""
    verb = sentence.tokens[segment.first].stem
    return tuple(
        name
        for name in columns.vocabulary.of_role("person")
        if any(stem(deed) == verb for word in name_words(name) if (deed := agent_verb(word)))
    )


def _repeats_amount(sentence: Sentence, segment: Segment, before: Segment | None, columns: FieldIndex) -> bool:
    """Return whether "amount of" or "number of" only follows a numeric field's name: "claimed [amount of] files"."""
    named = before is not None and before.kind == FIELD and not columns.measures.keys().isdisjoint(before.fields)
    return named and segment_text(sentence, segment).casefold().endswith(" of")


def _completes_field_name(sentence: Sentence, segment: Segment, before: Segment) -> bool:
    """Return whether a general noun only completes a field's name before it: "mood [tag]" for `moods`."""
    general = {*CONCEPTS["kind"][0], *CONCEPTS["topic"][0]}
    named = before.kind == FIELD and before.strength >= 4 and segment.strength <= 2
    return named and segment_text(sentence, segment).casefold() in general


def _names_records(sentence: Sentence, segment: Segment, columns: FieldIndex) -> bool:
    """Return whether a counted plural stands for records, although it resembles the names of fields.

    "vacancies" does not mean the values of `vacancyState`. A plural like a date field, or like a numeric field with
    units, stands for records too, because such values are not counted.
    """
    is_noun = _is_plural(sentence, segment) or sentence.tokens[segment.first].kind == "cjk"
    if is_noun and set(segment.fields) <= set(columns.date_fields()):
        return True
    if not _is_plural(sentence, segment) or segment.strength == 2:
        return False
    word = sentence.tokens[segment.first].folded
    measures = [columns.measures[name] for name in segment.fields if name in columns.measures]
    if measures:
        return any(one.units for one in measures) and unit_of(word) is None
    return segment.strength < 3 or not any(columns.has_head_noun(name, word) for name in segment.fields)


def _is_counted_noun(sentence: Sentence, segments: Sequence[Segment], index: int, columns: FieldIndex) -> bool:
    """Return whether a plural after the name of a numeric field says what the field counts: "gold [medals]".

    It may be a singular after "one": "more than one gold [medal]". It may stand for a field of totals elsewhere.
    """
    segment, before = segments[index], segments[index - 1]
    if before.strength <= _GENERAL or columns.measures.keys().isdisjoint(before.fields):
        return False
    if segment.kind == FIELD and segment.strength <= _GENERAL and _are_totals(segment.fields, columns):
        return not _are_totals(before.fields, columns)
    one = sentence.folded(before.first - 1) in _ONE and sentence.tokens[segment.first].kind == "word"
    return segment.kind in (UNKNOWN, RECORD) and (one or _is_plural(sentence, segment))


def _is_counted_total(sentence: Sentence, segment: Segment, before: Segment, columns: FieldIndex) -> bool:
    """Return whether a noun says what a field of totals adds up: "total [time]" for a field `total`."""
    is_total = before.strength >= _OWN_NAME and _are_totals(before.fields, columns)
    unknown = segment.kind in (UNKNOWN, RECORD) and sentence.tokens[segment.first].kind == "word"
    return is_total and unknown and segment.first == before.last


def _are_totals(names: Sequence[str], columns: FieldIndex) -> bool:
    totals = word_table("calculation")["summing_up"]
    return any(" ".join(columns.name_words[name]) in totals for name in names)


def _is_expected_record(
    sentence: Sentence, segments: Sequence[Segment], index: int, before: str, columns: FieldIndex
) -> bool:
    """Return whether an unknown noun stands where a noun for the records is expected: "which [parcel]".

    Args:
        before: the kind of the nearest earlier segment that is no filler, punctuation or constraint.
    """
    segment = segments[index]
    last = segments[index - 1] if index else None
    behind = segments[index + 1] if index + 1 < len(segments) else None
    if last is not None and _is_classified(sentence, segments, index):
        return True
    if sentence.tokens[segment.first].kind != "word" or (behind is not None and behind.kind == UNKNOWN):
        return False
    if _is_plural(sentence, segment):
        grouped = behind is not None and behind.kind in ("per", "by") and (last is None or last.kind == "listed")
        # "which [towns] have over 1,000 people"
        bounded = last is not None and last.kind == "which" and any(
            one.kind == "versus" or (one.condition is not None and one.condition.field in columns.measures)
            for one in segments
        )  # fmt: skip
        return before in _BEFORE_PLURAL or grouped or bounded
    counted = behind is not None and behind.kind == "count" and behind.first == segment.last
    is_head = behind is None or behind.kind not in _NAMING
    led = (
        segments[index - 2] if last is not None and last.kind == FIELD and index > 1 else last
    )  # "the highest rated [X]"
    named = is_head and led is not None and led.kind in _BEFORE_NOUN and len(segment_text(sentence, segment)) > 2
    return (counted or named) and segment_text(sentence, segment).isalpha()


def _is_only_record(sentence: Sentence, segments: Sequence[Segment], index: int) -> bool:
    """Return whether an unknown noun after an article or a value is the only noun that can stand for the records.

    True for "our [hotels]", "all [mail]", "public safety [ordinances]"; False for "tickets about our [printers]".
    """
    token = sentence.tokens[segments[index].first]
    if not index or token.is_capital or not _is_led_as_record(sentence, segments, index):
        return False
    others = (
        one for one in segments if one.kind == RECORD and segment_text(sentence, one).casefold() not in _GENERIC_NOUNS
    )
    alone = all(sentence.tokens[one.first].stem == token.stem for one in others)
    return alone and any(one.kind in _CALCULATING for one in segments)  # in a list it may be the topic


def _is_led_as_record(sentence: Sentence, segments: Sequence[Segment], index: int) -> bool:
    """Return whether an unknown noun may stand for the records because of the article or value before it."""
    segment, last = segments[index], segments[index - 1]
    token = sentence.tokens[segment.first]
    article = sentence.tokens[last.last - 1].folded
    if token.kind == "cjk":
        behind = segments[index + 1].kind if index + 1 < len(segments) else MARK
        if behind == UNKNOWN or not (last.kind == CONDITION or article == "的"):
            return False
        counts = behind == "among" or (index > 1 and article == "的" and segments[index - 2].kind in _BEFORE_NOUN)
        return counts or any(one.kind in _COUNTING for one in segments)
    if last.kind == CONDITION and (before := sentence.folded(last.first - 1)) in ("a", "an", "the", "any", "each"):
        # "was the North" or "did the North" is followed by a predicate, not by a noun as in "had a northern [office]".
        verb = sentence.folded(last.first - 2)
        asks = verb in AUXILIARIES and (before == "the" or not verb.startswith("ha"))
        return not asks or _is_plural(sentence, segment)
    if last.kind == FILLER and article in ("a", "an"):
        return (
            index + 1 == len(segments) or segments[index + 1].kind != UNKNOWN
        )  # the head of "a new lantern" is "lantern"
    if last.kind == CONDITION and index > 1 and segments[index - 2].kind in _SUPERLATIVE:
        return True
    return ((last.kind == CONDITION or article in _DETERMINERS) and _is_plural(sentence, segment)) or article == "all"


_CLASSIFIERS = frozenset("个篇份条起件项门首道部次款套张家间本则封例宗台辆只座期集批笔单场届")


def _is_classified(sentence: Sentence, segments: Sequence[Segment], index: int) -> bool:
    """Return whether a Chinese noun stands beside a classifier: 多少门[课] ("how many courses"), [课]门数, 一门[课]."""
    if sentence.tokens[segments[index].first].kind != "cjk":
        return False
    around = (segments[index - 1], segments[index + 1] if index + 1 < len(segments) else segments[index])
    if any(one.kind == UNKNOWN for one in (around[0], *([around[1]] if around[1] is not segments[index] else []))):
        return False
    before = sentence.text[around[0].start : around[0].end]
    behind = sentence.text[around[1].start : around[1].end]
    counted = (
        around[0].kind in ("count", FILLER)
        and before[-1:] in _CLASSIFIERS
        and len(before) > (around[0].kind == "count")
    ) or (around[0].kind == "count" and segments[index].last - segments[index].first > 1)
    return counted or (around[1].kind == "count" and behind.endswith("数") and behind[:1] in _CLASSIFIERS)


def _is_plural(sentence: Sentence, segment: Segment) -> bool:
    token, word = sentence.tokens[segment.first], sentence.tokens[segment.first].folded
    if token.kind != "word" or len(word) < 3 or word in STOP_WORDS or word in word_table("calculation")["not_records"]:
        return False
    return word.endswith("s") and not word.endswith(("ss", "us", "is"))
