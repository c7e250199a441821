"""Find the records that a question names by a text in one of their fields: "what is the time of Ann Lee"."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from agent.intent.analysis.field_linking import FieldIndex
from agent.intent.analysis.negation import is_negated
from agent.intent.calculation.modifiers import restricting_mention
from agent.intent.calculation.segment import FILLER, RECORD, UNKNOWN, VALUE, Segment
from agent.intent.calculation.segmented_question import SegmentedQuestion
from agent.intent.conditions.filter_json import Json, filter_values
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.text import has_chinese, words_of
from agent.intent.values.value_names import boolean_texts
from retrievers.core.types import FieldCatalogue

_LONGEST = 8
_MOST_WORDS = 12
"""Maximum words of a value that some of its words can name."""
_LEAST_CHARACTERS = 4
_MOST_VALUES = 1000
NAME_CONFIDENCE = 0.8
"""The confidence of a constraint on a value that was found by its words."""
_LIKELY = 0.5
"""Minimum confidence of a constraint that `raise_name_confidence` may raise."""
_LEADING_WORDS = frozenset("in from at by on did does than as after before above below 在 由 从 比".split())
"""Words after which one word of a value is enough to name it: "from [Lee]"."""

_NamedValue = tuple[str, str, bool]
"""A field, a value, and whether the words are the whole value."""


@dataclass(frozen=True, slots=True)
class _NamingTokens:
    """Tokens [first, last), and the values that they may name."""

    first: int
    last: int
    named: tuple[_NamedValue, ...]


def find_named_records(
    parsed: ParsedQuestion, columns: FieldIndex, segments: Sequence[Segment], known: Sequence[StatedCondition] = ()
) -> tuple[StatedCondition, ...]:
    """Return `known`, and a constraint for each text value that words of the question name, if they mean nothing else.

    Args:
        known: constraints that name records already; another value of the same field becomes an alternative to theirs.
    """
    others = frozenset(columns.measures) | {name for name, one in columns.vocabulary.date_units.items() if one.months}
    catalogue = columns.vocabulary.catalogue
    index = catalogue.memo.get(("value index", others), lambda: _value_index(catalogue, others))
    runs: list[_NamingTokens] = []
    place = 0
    tokens = _token_roles(segments)
    while place < len(parsed.sentence.tokens):
        run = _longest_run(parsed, tokens, index, place)
        place = place + 1 if run is None else run.last
        runs += [run] if run is not None else []
    conditions = [condition for run in runs if (condition := _condition_of(parsed, run, segments)) is not None]
    return tuple(merge_alternatives([*known, *conditions]))


class _TokenRoles(NamedTuple):
    """Indices of the tokens of unknown words and values, of record nouns and fillers (`weak`), and of constraints."""

    unknown: frozenset[int]
    weak: frozenset[int]
    used_spans: frozenset[int]


def _token_roles(segments: Sequence[Segment]) -> _TokenRoles:
    def places(meant: Callable[[Segment], bool]) -> frozenset[int]:
        return frozenset(n for segment in segments if meant(segment) for n in range(segment.first, segment.last))

    return _TokenRoles(
        places(lambda segment: segment.kind in (UNKNOWN, VALUE)),
        places(lambda segment: segment.kind in (RECORD, FILLER)),
        places(lambda segment: segment.condition is not None),
    )


def _longest_run(
    parsed: ParsedQuestion, known: _TokenRoles, index: Mapping[tuple[str, ...], list[_NamedValue]], place: int
) -> _NamingTokens | None:
    """Return the longest run of tokens from `place` on that names a value, or None.

    The run is a whole value of several words; or it contains a word without another meaning, and is a value or a part
    of a value.
    """
    tokens = parsed.sentence.tokens
    unknown, weak, taken = known
    words: list[str] = []
    best: _NamingTokens | None = None
    for last in range(place, min(place + _LONGEST, len(tokens))):
        if last in taken:
            break
        if tokens[last].kind == "mark":
            if not words or tokens[last].text in ',;:?!，；：？！。“”"':
                break
            continue
        words.append(tokens[last].folded)
        named = index.get(tuple(words), [])
        whole = tuple(one for one in named if one[2])
        covers = named and not unknown.isdisjoint(range(place, last + 1))
        if not (covers or (whole and len(words) > 1)):
            continue
        said = "".join(words)
        if not whole and (len(said) < _LEAST_CHARACTERS or said.isdigit() or place in weak or last in weak):
            continue
        best = _NamingTokens(place, last + 1, whole or tuple(named))
    return best


def _condition_of(parsed: ParsedQuestion, run: _NamingTokens, segments: Sequence[Segment]) -> StatedCondition | None:
    """Return the constraint that a run states; None if the run may mean several fields, is too vague or is negated."""
    beside = [
        segment
        for segment in segments
        if run.first - 2 <= segment.first < run.first or run.last <= segment.first <= run.last
    ]
    cued = {name for segment in beside for name in segment.fields}
    fields = list(dict.fromkeys(field for field, _, _ in run.named))
    if len(fields) > 1:
        fields = [name for name in fields if name in cued]
    if len(fields) != 1:
        return None
    if restricting_mention(parsed.sentence, run.first) and any(one.field == fields[0] for one in parsed.conditions):
        return None  # no record has both states of "new or assigned"
    values = sorted({value for field, value, _ in run.named if field == fields[0]})
    tokens = parsed.sentence.tokens
    whole = any(one[2] for one in run.named)
    led = run.first > 0 and tokens[run.first - 1].folded in _LEADING_WORDS
    if not whole and not led and fields[0] not in cued and (len(values) > 1 or run.last - run.first < 2):
        return None
    start, end = tokens[run.first].start, tokens[run.last - 1].end
    if is_negated(parsed.sentence, start, end, fields) is not False:
        return None  # "far from the valley line" means neither the value nor its opposite
    filter: Json = {"type": "eq", "key": fields[0], "value": values[0]}
    if len(values) > 1:
        filter = {"type": "in", "key": fields[0], "value": values}
    return StatedCondition(fields[0], filter, start, end, NAME_CONFIDENCE)


def raise_name_confidence(condition: StatedCondition, question: SegmentedQuestion) -> StatedCondition:
    """Return the constraint, with a higher confidence if it was likely and is probably meant as a name.

    That is so if its value has several words, or its field identifies records.
    """
    if condition.filter["type"] not in ("eq", "in") or not _LIKELY <= condition.confidence < NAME_CONFIDENCE:
        return condition
    values = filter_values(condition.filter)
    # Every Chinese character is a word here: 处理了 ("handled") does not mean the value 处理中 ("in progress").
    is_name = all(isinstance(value, str) and not has_chinese(value) and len(words_of(value)) > 1 for value in values)
    is_name = is_name or condition.field in question.columns.key_fields
    return replace(condition, confidence=NAME_CONFIDENCE) if is_name else condition


def merge_alternatives(conditions: Sequence[StatedCondition]) -> list[StatedCondition]:
    """Return the constraints; those on the same field get one filter with all their values as alternatives.

    No record has two values of a field. Each constraint keeps its own characters.
    """
    joined: list[StatedCondition] = []
    for condition in conditions:
        other = next((one for one in joined if one.field == condition.field), None)
        if other is None:
            joined.append(condition)
            continue
        values = list(dict.fromkeys([*filter_values(other.filter), *filter_values(condition.filter)]))
        filter: Json = {"type": "in", "key": condition.field, "value": values}
        confidence = min(other.confidence, condition.confidence)
        joined[joined.index(other)] = StatedCondition(condition.field, filter, other.start, other.end, confidence)
        joined.append(StatedCondition(condition.field, filter, condition.start, condition.end, confidence))
    return joined


def _value_index(catalogue: FieldCatalogue, others: frozenset[str]) -> Mapping[tuple[str, ...], list[_NamedValue]]:
    """Map each run of words of a text value, and the whole value, to the values that contain it.

    Args:
        others: text fields to leave out, which hold numbers or dates.
    """
    found: dict[tuple[str, ...], list[_NamedValue]] = {}
    for name, one in catalogue.fields.items():
        if one.field.item != "string" or one.field.type == "list" or name in others or name == "language":
            continue
        if boolean_texts(one) is not None:
            continue  # "false" does not tell which true/false field is meant
        if one.distinct > min(len(one.values), _MOST_VALUES):
            continue
        for value in one.values:
            words = words_of(value)
            runs = {words}
            if len(words) <= _MOST_WORDS:
                runs |= {words[n:m] for n in range(len(words)) for m in range(n + 1, len(words) + 1)}
            for run in runs:
                if run and len(run) <= _LONGEST:
                    found.setdefault(run, []).append((name, value, run == words))
    return found
