"""Split a question into constraints, fields, records, calculating words, fillers and unknown words."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache

from agent.intent.analysis.field_linking import FieldIndex, FieldMatch
from agent.intent.analysis.sentence import Sentence
from agent.intent.calculation.modifiers import is_particle_predicate, restricting_mention
from agent.intent.calculation.record_nouns import correct_kinds
from agent.intent.calculation.segment import (
    CONDITION,
    FIELD,
    FILLER,
    MARK,
    NUMBER,
    RECORD,
    UNIT,
    UNKNOWN,
    VALUE,
    Segment,
)
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.calculation_patterns import is_written_as_name
from agent.intent.language.lexicon import CHINESE_DOCUMENT_NOUNS, STOP_WORDS, name_words
from agent.intent.language.numerals import parse_exact
from agent.intent.language.text import chinese_words
from agent.intent.language.units import DIGITS_ONLY, unit_of
from agent.intent.words import word_table

_OTHER_TABLES = frozenset([FILLER, "phrases", "not_records", "summing_up", "beside", "doing"])
# The cost of each kind of segment; a question is split so that the total cost is least.
_COST: Mapping[str, float] = {UNKNOWN: 100, VALUE: 60, FILLER: 2, RECORD: 1, CONDITION: 0, NUMBER: 3, MARK: 0, UNIT: 3}
_WORD_COST = 1.0


@cache
def _phrases() -> dict[tuple[str, ...], str]:
    """Map the tokens of each phrase to its class, not "filler" if it has two: ("how", "many") -> "count"."""
    found: dict[tuple[str, ...], str] = {}
    words = word_table("calculation")
    for kind in (FILLER, "phrases", *(name for name in words if name not in _OTHER_TABLES)):
        for phrase in words[kind]:
            found[_tokens(phrase)] = FILLER if kind == "phrases" else kind
            if kind in ("most", "fewest", "highest", "lowest") and phrase.isascii():
                found["the", *_tokens(phrase)] = kind
    return found


def has_word(sentence: Sentence, kind: str) -> bool:
    """Return whether a single-token word of a class occurs, even inside a constraint: "Old Town [versus] Lakeview"."""
    return any(_phrases().get((token.folded,)) == kind for token in sentence.tokens)


def _tokens(phrase: str) -> tuple[str, ...]:
    return tuple(phrase.split()) if phrase.isascii() else tuple(phrase)


@cache
def _longest_phrase() -> int:
    return max(map(len, _phrases()))


def segment_question(
    parsed: ParsedQuestion, columns: FieldIndex, more: Sequence[StatedCondition] = ()
) -> tuple[Segment, ...]:
    """Return the segments of a question in order, without overlap, with as few unknown words as possible.

    Args:
        more: constraints besides those in `parsed`.
    """
    sentence = parsed.sentence
    conditions = sorted(
        (*parsed.conditions, *parsed.length_conditions, *more), key=lambda condition: (condition.start, -condition.end)
    )
    count = len(sentence.tokens)
    best: list[tuple[float, Segment | None]] = [(0.0, None)] * (count + 1)
    for index in range(count - 1, -1, -1):
        choices = [
            (cost + best[segment.last][0], segment)
            for cost, segment in _segments_at(sentence, index, parsed, columns, conditions)
        ]
        best[index] = min(choices, key=lambda choice: (choice[0], -choice[1].last))
    segments: list[Segment] = []
    place = 0
    while place < count:
        segment = best[place][1]
        assert segment is not None
        segments.append(segment)
        place = segment.last
    return correct_kinds(sentence, _join_chinese_words(sentence, segments), columns)


def _join_chinese_words(sentence: Sentence, segments: Sequence[Segment]) -> list[Segment]:
    """Join the characters of an unknown Chinese word into one segment."""
    ends = chinese_words(sentence.text)
    joined: list[Segment] = []
    for segment in segments:
        before = joined[-1] if joined else None
        if (
            segment.kind == UNKNOWN == (before.kind if before else "")
            and before
            and ends.get(before.start, 0) >= segment.end
        ):
            joined[-1] = replace(before, last=segment.last, end=segment.end)
        else:
            joined.append(segment)
    return joined


def _segments_at(
    sentence: Sentence, index: int, parsed: ParsedQuestion, columns: FieldIndex, conditions: Sequence[StatedCondition]
) -> Iterator[tuple[float, Segment]]:
    """Yield (cost, segment) for each segment that can begin at the token `index`; the lowest total cost wins."""
    token = sentence.tokens[index]
    condition = next((one for one in conditions if one.start <= token.start < one.end), None)
    if condition is not None and (last := _condition_end(sentence, index, condition, parsed)) > index:
        yield _COST[CONDITION], _segment(sentence, CONDITION, index, last, condition=condition)
        if last == index + 1 or token.kind == "cjk":
            yield from _known_phrases(sentence, index, None, least=last)
        return
    described = restricting_mention(sentence, index)
    if described is not None:
        yield _COST[VALUE], _segment(sentence, VALUE, index, described.last)
        return
    column = columns.match_at(sentence, index)
    if column is None and is_particle_predicate(sentence, index):
        yield _COST[UNKNOWN], _segment(sentence, UNKNOWN, index, index + 1)
        return
    yield from _known_phrases(sentence, index, column)
    if column is not None:
        yield (
            1.0 if column.strength >= 4 or column.strength == 2 else 2.5,
            _segment(sentence, FIELD, index, column.last, fields=column.fields, strength=column.strength),
        )
    if sentence.is_noun(index) and not sentence.mention_at(index):
        is_field = column is not None and column.strength >= 5 and _is_own_word(sentence, index, column)
        yield _COST[RECORD] if is_field else 0.8, _segment(sentence, RECORD, index, _noun_end(sentence, index))
    if any(one.start <= token.start < one.end for one in parsed.dates):
        yield _COST[UNKNOWN], _segment(sentence, UNKNOWN, index, index + 1)
    elif token.kind == "number" or (token.kind == "word" and parse_exact(token.folded) is not None):
        number = parse_exact(token.folded) if "." not in token.folded else None
        yield (
            _COST[NUMBER] if number is not None else _COST[UNKNOWN],
            _segment(sentence, NUMBER if number is not None else UNKNOWN, index, index + 1, number=number),
        )
    elif token.kind == "mark" and not (token.text == "%" and sentence.folded(index + 1) == "of"):
        yield _COST[MARK], _segment(sentence, MARK, index, index + 1)
    elif token.kind == "cjk" and (size := _chinese_number_length(sentence, index)):
        number = parse_exact(sentence.text[token.start : sentence.tokens[index + size - 1].end])
        yield _COST[NUMBER], _segment(sentence, NUMBER, index, index + size, number=number)
    for last in range(index + 1, min(index + 4, len(sentence.tokens) + 1)):
        text = sentence.text[token.start : sentence.tokens[last - 1].end]
        if unit_of(text) is not None and text not in DIGITS_ONLY:
            yield _COST[UNIT], _segment(sentence, UNIT, index, last)
    mention = sentence.mention_at(index)
    if mention is not None and mention.first == index:
        yield _COST[VALUE], _segment(sentence, VALUE, index, mention.last)
    yield _COST[UNKNOWN], _segment(sentence, UNKNOWN, index, index + 1)


def _is_own_word(sentence: Sentence, index: int, column: FieldMatch) -> bool:
    """Return whether a noun for documents may name a field: "claims" is a word of `claim_count`, but not of `claimed`.

    It always may after a word such as "average", or if the name has several words.
    """
    if _phrases().get((sentence.folded(index - 1),)) in ("avg", "sum", "median", "highest", "lowest"):
        return True
    word = sentence.folded(index)
    words = {one.removesuffix("s") for name in column.fields for one in name_words(name)}
    return column.last > index + 1 or word.removesuffix("s") in words


_CONNECTING = frozenset("and or & / , the a of in by either neither nor both vs versus 、 ， 和 与 或 及 跟".split())


def _condition_end(sentence: Sentence, index: int, condition: StatedCondition, parsed: ParsedQuestion) -> int:
    """Return the index of the token after the constraint `condition`, which covers the token `index`.

    If the constraint has several values or dates, return the end of the value, date or joining word ("or") at `index`
    instead. For any other word between the values, return `index` itself.
    """
    tokens = sentence.tokens
    named = [
        one
        for one in sentence.mentions
        if condition.start <= one.start < condition.end and one.matches_in(condition.field)
    ]
    values = [
        one for one in parsed.constraints if one.start == condition.start and len(one.values) > 1 and len(named) > 1
    ]
    dates = [one for one in parsed.dates if condition.start <= one.start and one.end <= condition.end]
    if not values and len(dates) < 2:
        last = index + 1
        while last < len(tokens) and tokens[last].start < condition.end:
            last += 1
        return last
    mention = sentence.mention_at(index)
    if values and mention is not None and mention.matches_in(condition.field, *values[0].alternative_fields):
        return mention.last
    dated = next((one for one in dates if one.start <= tokens[index].start < one.end), None)
    if dated is not None:
        return max(sentence.index_from(dated.end), index + 1)
    return index + 1 if tokens[index].folded in _CONNECTING else index


_STILL = ["还", "是"]
"""In 还是草案, where no alternative stands before, "is still a draft"; between two names "or"."""


def _known_phrases(
    sentence: Sentence, index: int, column: FieldMatch | None, *, least: int = 0
) -> Iterator[tuple[float, Segment]]:
    """Yield (cost, segment) for the known phrases that begin at a token.

    Args:
        column: the fields that the tokens name as well; a phrase of exactly these tokens keeps the fields.
        least: leave out phrases that end before this token index.
    """
    words: list[str] = []
    for last in range(index, min(index + _longest_phrase(), len(sentence.tokens))):
        words.append(sentence.tokens[last].folded)
        kind = _phrases().get(tuple(words))
        if kind is None or last + 1 <= least:
            continue
        if words == _STILL and not any(mention.first < index for mention in sentence.mentions):
            kind = FILLER
        same = column is not None and column.last == last + 1
        if kind == FILLER and (
            (same and column and column.strength >= 5)
            or is_written_as_name(sentence.text, sentence.tokens[index : last + 1])
            or _is_value(sentence, index, last + 1)
        ):
            continue
        fields = column.fields if same and column is not None else ()
        cost = _COST[FILLER] if kind == FILLER else _WORD_COST
        if same and column is not None and column.strength > 3:
            cost = min(cost, 0.7)
        yield (
            cost,
            _segment(
                sentence, kind, index, last + 1, fields=fields, strength=column.strength if same and column else 0.0
            ),
        )


def _is_value(sentence: Sentence, first: int, last: int) -> bool:
    """Return whether the tokens [first, last) name a field's value, and so are no filler: 历史 ("history")."""
    mention = sentence.mention_at(first)
    exact = mention is not None and (mention.first, mention.last) == (first, last)
    return exact and any(token.folded not in STOP_WORDS for token in sentence.tokens[first:last])


def _segment(sentence: Sentence, kind: str, first: int, last: int, **more: object) -> Segment:
    return Segment(kind, first, last, sentence.tokens[first].start, sentence.tokens[last - 1].end, **more)  # type: ignore[arg-type]


_NUMBER_ZH = re.compile(r"[一二两三四五六七八九十百千]{1,6}")


def _chinese_number_length(sentence: Sentence, index: int) -> int:
    """Return the length in characters of a Chinese number at this token, 0 if there is none."""
    match = _NUMBER_ZH.match(sentence.text, sentence.tokens[index].start)
    return len(match[0]) if match is not None else 0


def _noun_end(sentence: Sentence, index: int) -> int:
    """Return the index after the noun for documents that begins at a token; in Chinese, the longest such noun."""
    if sentence.tokens[index].kind != "cjk":
        return index + 1
    start = sentence.tokens[index].start
    nouns = (one for one in (*CHINESE_DOCUMENT_NOUNS, *sentence.nouns) if sentence.text.startswith(one, start))
    size = max(map(len, nouns), default=1)
    return sentence.index_from(start + size)
