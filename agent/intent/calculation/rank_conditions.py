"""Find conditions on a rank: "came in first place", "ranked second", 第三名 ("third place")."""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from agent.intent.analysis.field_linking import FieldIndex
from agent.intent.analysis.sentence import Sentence
from agent.intent.calculation.named_records import merge_alternatives
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.lexicon import name_words
from agent.intent.words import LANGUAGES, word_table

_CONFIDENCE = 0.8
_LAST = -1
_STARTING_RANKS = frozenset(["grid", "seed"])
"""Words in names of fields whose ranks are given before the event."""
_CRITERION_PREPOSITIONS = frozenset(["by", "in", "for", "on"])


def find_rank_conditions(
    parsed: ParsedQuestion, columns: FieldIndex, others: Sequence[StatedCondition]
) -> tuple[StatedCondition, ...]:
    """Return a condition for each rank in a question ("ranked second") that is a value of exactly one field of ranks.

    Two ranks become alternatives: a record may have either. There is no condition if the question compares two records
    ("who finished first, Ann or Bo"), or names the number that decides the rank ("second in votes").

    Args:
        others: the other conditions of the question. If there are any, a field with a different rank in each record
            gives no condition: "second in the North" may mean second among the northern records.
    """
    if any(condition.field in columns.key_fields and condition.filter["type"] == "in" for condition in others):
        return ()
    conditions = []
    for match, number in _mentioned_ranks(parsed.sentence.text):
        held = [(name, value) for name in columns.vocabulary.roles
                if _is_final_rank(columns, name)
                and (value := _rank_value(columns, name, number)) is not None]  # fmt: skip
        taken = any(condition.start < match.end() and match.start() < condition.end for condition in parsed.conditions)
        if len(held) != 1 or taken or _ranks_by_other_field(parsed.sentence, columns, match, others):
            continue
        name, value = held[0]
        filter = {"type": "eq", "key": name, "value": value}
        if not others or not _is_unique(columns, name):
            conditions.append(StatedCondition(name, filter, match.start(), match.end(), _CONFIDENCE))
    return tuple(merge_alternatives(conditions))


def mentions_rank(text: str, columns: FieldIndex) -> bool:
    """Return whether the text names a rank and a field of ranks has the rank 1, so that "first" may mean no date."""
    names = [name for name in columns.vocabulary.roles if _is_final_rank(columns, name)]
    return any(_rank_value(columns, name, 1) is not None for name in names) and any(
        True for _ in _mentioned_ranks(text)
    )


def _mentioned_ranks(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield (match, rank) for each rank that the text names; `_LAST` for "last place"."""
    for language in LANGUAGES:
        for match in _rank_pattern(language).finditer(text):
            yield match, _ranks_by_ordinal(language)[(match["before"] or match["behind"]).casefold()]


def _is_final_rank(columns: FieldIndex, name: str) -> bool:
    return columns.is_rank(name) and _STARTING_RANKS.isdisjoint(name_words(name))


def _is_unique(columns: FieldIndex, name: str) -> bool:
    held = columns.vocabulary.catalogue.fields[name]
    return held.distinct == held.documents


def _ranks_by_other_field(
    sentence: Sentence, columns: FieldIndex, match: re.Match[str], others: Sequence[StatedCondition]
) -> bool:
    """Return whether the name of a numeric field without ranks is beside the match: "second in [votes]".

    Fields with conditions in `others` do not count.
    """
    first, last = sentence.index_from(match.start()), sentence.index_from(match.end())
    beside = [first - 1] if first else []
    if sentence.folded(last) in _CRITERION_PREPOSITIONS:
        beside += [last + 1, last + 2]
    cued = {name for place in beside for name in sentence.cue_fields(place)} - {condition.field for condition in others}
    return any(name in columns.measures and not columns.is_rank(name) for name in cued)


def _rank_value(columns: FieldIndex, name: str, number: int) -> str | int | None:
    """Return the value that stands for the rank `number` in the field `name`: 2, or a text such as "2nd"; or None."""
    held = columns.vocabulary.catalogue.fields[name]
    if held.field.item == "number":
        if number == _LAST and held.low == 1 and isinstance(held.high, int | float):
            number = int(held.high)
        return number if held.field.type != "list" and _is_between(held.low, number, held.high) else None
    if number == _LAST:
        return None
    found = [value for value in held.values if _rank_value_pattern(number).fullmatch(value.strip())]
    return found[0] if len(found) == 1 else None


def _is_between(low: object, number: int, high: object) -> bool:
    return isinstance(low, int | float) and isinstance(high, int | float) and low <= number <= high


def _ranks_by_ordinal(language: str) -> dict[str, int]:
    """Map each ordinal of a language to its rank: "second" -> 2, "last" -> `_LAST`."""
    words = word_table("places", language)
    return {**{word: number for number, word in enumerate(words["ordinals"].split(), 1)}, words["last"]: _LAST}


@cache
def _rank_pattern(language: str) -> re.Pattern[str]:
    ordinal = "|".join(_ranks_by_ordinal(language))
    words = word_table("places", language)
    pattern = words["pattern"].replace("{ordinal}", f"(?:{ordinal})")
    return re.compile(pattern.replace("{verb}", words["verb"]).replace("{noun}", words["noun"]), re.IGNORECASE)


@cache
def _rank_value_pattern(number: int) -> re.Pattern[str]:
    """Return a pattern of the texts for a rank: for 1, "1", "1.", "1st", "First place", 第一名."""
    texts = (
        word_table("places", one)["values"].replace("{number}", str(number)).replace("{ordinal}", word)
        for one in LANGUAGES
        for word, meant in _ranks_by_ordinal(one).items()
        if meant == number
    )
    return re.compile("|".join(f"(?:{text})" for text in texts), re.IGNORECASE)
