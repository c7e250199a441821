"""Lists of records, and values of single records: "what is the price of P-1042", "permits denied in 2023"."""

import re
from collections.abc import Sequence
from dataclasses import replace

from agent.intent.calculation.builder import assumed_nouns, is_valid_aggregate, split_question
from agent.intent.calculation.extremes import read_shown_fields
from agent.intent.calculation.groups import people_field
from agent.intent.calculation.parameters import SUPERLATIVES
from agent.intent.calculation.segment import CONDITION, RECORD, Segment
from agent.intent.calculation.segmented_question import (
    MAX_LIST_ROWS,
    Calculation,
    SegmentedQuestion,
    all_conditions,
    blocking_words,
    words_of_kind,
)
from agent.intent.conditions.date_fields import is_ordered
from agent.intent.conditions.document_numbers import is_key_field
from agent.intent.conditions.filter_json import Json, all_of, filter_values, is_exclusion
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language import lexicon
from agent.intent.language.text import has_chinese
from agent.intent.values.field_words import concepts_of

_MOST_SHOWN = 4
_MOST_NAMED = 10
_NAMES = frozenset(["name", "names"])
_NO_LIST = (
    *"more fewer versus between spending count how_much avg median sum share rate difference".split(),
    *SUPERLATIVES,
)


def find_lookup(parsed: ParsedQuestion) -> Calculation | None:
    """Return a list of the few records that the question names, with the fields that it asks for; else None.

    "who sponsored PEP 703" -> the field `sponsor` of one record.
    """
    keys = {one.field for one in parsed.numbers if one.values and is_key_field(parsed.sentence.vocabulary, one.field)}
    question = split_question(parsed)
    if blocking_words(question) or question.has_kind("more", "fewer"):
        return None
    conditions = all_conditions(question)
    few = _select_few_records(question, conditions)
    if not keys and not few:
        return None
    question.used.update(
        index
        for index, segment in question.field_segments()
        if set(segment.fields) <= {one.field for one in conditions}
    )
    shown = [name for name in read_shown_fields(question) if name.removeprefix("number(").rstrip(")") not in keys]
    question.mark_used("value")
    if len(shown) == 1 and any(question.selects_one_record(condition.filter) for condition in conditions):
        question.mark_used("how_big", "how_much")  # "how long was Ann Lee in office"
    if not shown or question.unread_words():
        return None
    return replace(values_calculation(shown, conditions), is_certain=bool(keys))


def _select_few_records(question: SegmentedQuestion, conditions: Sequence[StatedCondition]) -> bool:
    """Return whether the constraints select so few records that the values of all of them can be shown."""
    fields = question.columns.vocabulary.catalogue.fields
    least = None
    for condition in conditions:
        if condition.filter["type"] in ("eq", "in") and isinstance(condition.filter["value"], str | list):
            values = filter_values(condition.filter)
            held = (
                sum(fields[condition.field].values.get(value, 0) for value in values)
                if condition.field in fields
                else 0
            )
            least = held if least is None else min(least, held)
    return least is not None and 0 < least <= _MOST_NAMED


def find_list(parsed: ParsedQuestion) -> Calculation | None:
    """Return a list of records for a question that states only constraints: "permits denied in 2023"; else None.

    None also if the question names only single records by their numbers.
    """
    sentence = parsed.sentence
    keys = {name for name in sentence.vocabulary.of_role("number") if is_key_field(sentence.vocabulary, name)}
    question = split_question(parsed)
    conditions = all_conditions(question)
    if parsed.unused_mentions and not parsed.conditions and sentence.folded(0) in lexicon.AUXILIARIES:
        return None  # in "is trade open" the named value is a topic, no condition
    named = all(condition.field in keys and condition.filter["type"] == "eq" for condition in conditions)
    if (named and not parsed.length_conditions) or question.has_kind(*_NO_LIST) or blocking_words(question):
        return None
    if any(sentence.is_in_topic(segment.start) for _, segment in question.field_segments()):
        return None  # "reports on version numbers" are about them
    shown = read_shown_fields(question)
    keys_of_records = question.columns.title_fields()
    if (
        question.has_kind("who")
        and len(keys_of_records) == 1
        and any(question.columns.is_rank(condition.field) for condition in conditions)
    ):
        shown = shown or keys_of_records  # "who came first" asks for the name, even if it does not look like one
    records = question.has_kind(RECORD) or any("kind" in concepts_of(condition.field) for condition in conditions)
    if question.has_kind("which", "who", "when", "where") and not shown and not records:
        return None  # no field holds what is asked for
    settled = {condition.field for condition in conditions if condition.filter["type"] == "eq"}
    if question.unread_words() or (question.has_kind("which", "who") and settled & set(shown)):
        return None
    if question.has_kind("which"):
        if not shown and any(question.selects_one_record(condition.filter) for condition in conditions):
            return None  # "what breed is Bella" asks for a value that no field shows
        names = question.columns.title_fields() if _asks_for_names(question) else []
        shown = list(dict.fromkeys((*names, *shown)))
    shown = [name for name in shown if name not in settled]
    made = list_calculation(replace(parsed, conditions=conditions), shown, question.extra_conditions)
    # "which towns have over 1,000 riders" may mean towns, although each record is a station.
    return (
        replace(made, assumed_nouns=assumed_nouns(question)) if question.has_kind("which") and parsed.numbers else made
    )


def _asks_for_names(question: SegmentedQuestion) -> bool:
    """Return whether the question asks for names: by that word, or by a noun taken for documents by its position."""
    said = words_of_kind(question, "which")
    named = any(set(words.casefold().split()) & _NAMES for words in said)
    return named or any(question.segments[index].guessed for index in question.indices_of(RECORD))


_HAS_NOT = re.compile(
    r"^\W*(?:which|what)\s(?:\w+\s){1,3}?(?:ha(?:s|ve|d)|d(?:o|oes|id)|was|were)(?:\s(?:not|never|no|none|yet\sto)\b|n['’]t\b)|"
    r"哪(?:些|个|位|几).{1,8}?(?:从未|从没|没有|没被|未曾|没)",
    re.IGNORECASE,
)
_DEEDS = frozenset("has have had hasn haven hadn did do does didn don doesn made make makes took take takes".split())
_BESIDE_DEED = _DEEDS | frozenset("ever yet still also so far t that which".split())


def asks_for_unmatched_values(parsed: ParsedQuestion) -> bool:
    """Return whether a question asks which values have no matching document: "which bridges has Ann never seen?".

    A filter cannot answer this. A bridge with a document by another inspector may have one by Ann as well. For the same
    reason "how many couriers have never been to Rome" cannot be answered with a count of documents.
    """
    question = split_question(parsed)
    said = _HAS_NOT.search(parsed.sentence.text)
    several = said is not None and any(
        _is_group_noun(question, name, said.group()) for name in read_shown_fields(question)
    )
    start = said.start() if said is not None and several else _denied_noun_start(question)
    return start is not None and any(
        condition.start >= start and is_exclusion(condition.filter) for condition in parsed.conditions
    )


def _denied_noun_start(question: SegmentedQuestion) -> int | None:
    """Return the position of the first character of the noun for those who did not do something, or None.

    In "which [pilots] never flew", it is the position of "pilots".
    """
    sentence = question.parsed.sentence
    for negator in sentence.negators.values():
        if negator.kind not in ("not", "lacking"):
            continue
        words = [sentence.folded(index) for index in range(negator.first, negator.last)]
        index, has_deed = negator.first - 1, "never" in words
        while index >= 0 and (sentence.folded(index) in _BESIDE_DEED or sentence.tokens[index].kind == "mark"):
            has_deed |= sentence.folded(index) in _DEEDS
            index -= 1
        if negator.kind == "lacking":
            # In "who made no trip", the word between the subject and "no" is the verb.
            has_deed |= sentence.is_noun(negator.last) and index < negator.first - 1
        asked = next((one for one in question.segments if one.first <= index < one.last), None)
        if asked is not None and has_deed and _is_leading_group(question, asked):
            return asked.start
    return None


def _is_group_noun(question: SegmentedQuestion, name: str, said: str) -> bool:
    """Return whether a word in `said` is the noun of the field `name`, and several records may share a value of it.

    "samples" is not the noun of a field `sampler`: it names the records.
    """
    is_named = has_chinese(said) or any(question.columns.has_head_noun(name, word) for word in re.findall(r"\w+", said))
    return is_named and question.columns.has_repeated_values(name)


def _is_leading_group(question: SegmentedQuestion, asked: Segment) -> bool:
    """Return whether `asked` is the first noun of the question, and a field whose values several records share."""
    before = [one for one in question.segments[: question.segments.index(asked)] if one.kind in (RECORD, CONDITION)]
    if asked.kind in ("who", "people"):
        names = [people] if (people := people_field(question)) is not None else list(question.columns.person_fields())
    else:
        said = question.parsed.sentence.text[asked.start : asked.end]
        groups = [name for name in asked.fields if question.columns.is_groupable(name)]
        names = [name for name in groups if _is_group_noun(question, name, said)]
    return not before and any(map(question.columns.has_repeated_values, names))


def list_calculation(
    parsed: ParsedQuestion, shown: Sequence[str] = (), extra_conditions: Sequence[Json] = ()
) -> Calculation:
    """Return the calculation that lists the records that satisfy the constraints of `parsed`, the newest first.

    Conditions on lengths of lists go into the aggregate's "where", because the search that also runs cannot apply them.

    Args:
        shown: fields to show.
        extra_conditions: more conditions, see `SegmentedQuestion.extra_conditions`.
    """
    vocabulary = parsed.sentence.vocabulary
    dates = [name for name in vocabulary.of_role("date") if is_ordered(vocabulary, name)]
    near = [name for _, named in parsed.sentence.cued_tokens for name in named if name in dates]
    of_range = parsed.dates[0].field if parsed.dates else None
    order = of_range if of_range in dates else next(iter((*near, *dates)), None)
    aggregate: Json = {"op": "list", "of": order, "order": "desc" if order else None, "limit": MAX_LIST_ROWS}
    if shown:
        aggregate["show"] = [name for name in shown if name != order][:_MOST_SHOWN]
    if parsed.length_conditions or extra_conditions:
        aggregate["where"] = all_of([*extra_conditions, *(condition.filter for condition in parsed.length_conditions)])
    assert is_valid_aggregate(aggregate)
    return Calculation(aggregate, parsed.conditions, is_certain=bool(parsed.length_conditions))


def values_calculation(fields: Sequence[str], conditions: tuple[StatedCondition, ...]) -> Calculation:
    """Return the calculation that lists the records that satisfy the constraints `conditions`, with these fields."""
    return Calculation({"op": "list", "limit": _MOST_NAMED, "show": list(fields)[:_MOST_SHOWN]}, conditions)


def requested_fields(parsed: ParsedQuestion, besides: set[str]) -> tuple[str, ...]:
    """Return the fields whose value a question asks for, except `besides`: `sponsor` for "who sponsored PEP 703"."""
    question = split_question(parsed)
    return tuple(name for name in read_shown_fields(question) if name not in besides)


def merge_counts(calculations: Sequence[Calculation | None]) -> Calculation | None:
    """Merge counts that differ in one value into a count by group: "How many are final, and how many were rejected?".

    The constraints of the first count apply to the others too. Return None if the counts cannot be merged.

    Args:
        calculations: the calculation of each clause of the question; None for a clause without one.
    """
    counts = [one for one in calculations if one is not None and one.aggregate == {"op": "count"} and one.conditions]
    if len(counts) < len(calculations) or len(counts) < 2:
        return None
    last = counts[-1].conditions[-1].filter
    if last["type"] != "eq":
        return None
    field: str = last["key"]
    values: list[str] = []
    rest: tuple[StatedCondition, ...] = ()
    for index, one in enumerate(counts):
        named = [condition for condition in one.conditions if condition.field == field]
        others = tuple(condition for condition in one.conditions if condition.field != field)
        # Counts of different kinds of documents must repeat the constraints of the first; other counts may omit them.
        allowed = (rest,) if "kind" in concepts_of(field) else ((), rest)
        if len(named) != 1 or named[0].filter["type"] != "eq" or (index and others not in allowed):
            return None
        values.append(named[0].filter["value"])
        rest = rest if index else others
    if len(set(values)) < len(values):
        return None
    condition = replace(counts[0].conditions[-1], field=field, filter={"type": "in", "key": field, "value": values})
    return Calculation({"op": "count", "group_by": field, "between": values}, (*rest, condition))
