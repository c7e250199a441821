"""Find conditions on a rank: "came in first place", "ranked second", 第三名 ("third place")."""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from agent.intent.analysis.field_linking import FieldIndex
from agent.intent.analysis.sentence import Sentence
from agent.intent.calculation.named_records import merge_alternatives
from agent.intent.conditions.question_parser import ParsedQuestion
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.lexicon import name_words
from agent.intent.language.units import NUMBER as NUMBER_OF
from agent.intent.words import LANGUAGES, word_table

_CONFIDENCE = 0.8
_LAST, _BEST = -1, 0
"""In place of a number: the last or the best place that occurs."""
_LEAST_RANKS = 0.6
"""Minimum share of a field's texts that must be ranks: others are "DNF" or a dash."""
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
        # The best place of all records may not be that of the records with the other conditions.
        if not others or (number not in (_LAST, _BEST) and not _is_unique(columns, name)):
            conditions.append(StatedCondition(name, filter, match.start(), match.end(), _CONFIDENCE))
    return tuple(merge_alternatives(conditions))


def mentions_rank(text: str, columns: FieldIndex) -> bool:
    """Return whether the text names a rank and a field of ranks has the rank 1, so that "first" may mean no date."""
    names = [name for name in columns.vocabulary.roles if _is_final_rank(columns, name)]
    return any(_rank_value(columns, name, 1) is not None for name in names) and any(
        True for _ in _mentioned_ranks(text)
    )


def is_rank_verb(text: str) -> bool:
    """Return whether a word is a verb for a place in an order: "finished"."""
    return any(re.fullmatch(word_table("places", one)["verb"], text, re.IGNORECASE) for one in LANGUAGES)


def order_fields(columns: FieldIndex, *, ranks_only: bool) -> list[str]:
    """Return expressions of the fields that give the records' order: final ranks, and numbers such as 1, 2, 3.

    Args:
        ranks_only: leave out fields that only number the records.
    """
    found = []
    for name, held in columns.vocabulary.catalogue.fields.items():
        is_text = held.field.type == "string" and held.distinct <= len(held.values)
        if not (is_text or name in columns.measures) or not _STARTING_RANKS.isdisjoint(name_words(name)):
            continue
        ranks = list(_text_ranks(columns, name).values()) if is_text else []
        is_numbered = sorted(ranks) == list(range(1, held.documents + 1)) and held.documents > 2
        is_numbered = is_numbered or (name in columns.measures and columns.is_serial_number(name))
        is_ranked = columns.is_rank(name) and (not is_text or len(ranks) >= _LEAST_RANKS * len(held.values) > 0)
        if is_ranked or (is_numbered and not ranks_only):
            found.append(NUMBER_OF.format(name) if is_text else name)
    return found


def _mentioned_ranks(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """Yield (match, rank) for each rank that the text names; `_LAST` for "last place", `_BEST` for "best place"."""
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
    wanted = number
    held = columns.vocabulary.catalogue.fields[name]
    if held.field.item == "number":
        low, high = held.low, held.high
        if held.field.type == "list" or not isinstance(low, int | float) or not isinstance(high, int | float):
            return None
        is_whole = low == 1 or high == columns.vocabulary.catalogue.documents
        number = int(high) if number == _LAST and is_whole else int(low) if number == _BEST else number
        found: list[str | int] = [number] if low <= number <= high else []
    else:
        ranks = _text_ranks(columns, name)
        if number in (_LAST, _BEST) and len(ranks) < max(_LEAST_RANKS * len(held.values), 1):
            return None
        number = max(ranks.values()) if number == _LAST else min(ranks.values()) if number == _BEST else number
        found = [text for text, rank in ranks.items() if rank == number]
    # Tables often leave out the first ranks, so that the least number is not the best place.
    is_missing = wanted == _BEST and number != 1 and not columns.is_in_every_document(name)
    return found[0] if len(found) == 1 and not is_missing else None


def _text_ranks(columns: FieldIndex, name: str) -> dict[str, int]:
    """Return the ranks of a field's texts, see `_ranks_of_texts`; cached."""
    catalogue = columns.vocabulary.catalogue
    return catalogue.memo.get(("ranks", name), lambda: _ranks_of_texts(catalogue.fields[name].values))


def _ranks_of_texts(texts: Iterable[str]) -> dict[str, int]:
    """Return the rank that each text stands for, without the texts that stand for none: {"2nd": 2, "T3": 3}."""
    named = [number for one in LANGUAGES for number in _ranks_by_ordinal(one).values() if number > 0]
    found: dict[str, int] = {}
    for text in texts:
        digits = re.search(r"[0-9]{1,5}", text)
        for number in [int(digits[0])] if digits is not None else sorted(set(named)):
            if _rank_value_pattern(number).fullmatch(text.strip()):
                found[text] = number
    return found


def _ranks_by_ordinal(language: str) -> dict[str, int]:
    """Map each ordinal of a language to its rank: "second" -> 2, "last" -> `_LAST`."""
    words = word_table("places", language)
    extremes = {"last": _LAST, "best": _BEST}
    ordinals = {word: number for number, word in enumerate(words["ordinals"].split(), 1)}
    return ordinals | {word: number for kind, number in extremes.items() for word in words[kind].split()}


@cache
def _rank_pattern(language: str) -> re.Pattern[str]:
    ordinal = "|".join(_ranks_by_ordinal(language))
    words = word_table("places", language)
    pattern = words["pattern"].replace("{ordinal}", f"(?:{ordinal})")
    return re.compile(pattern.replace("{verb}", words["verb"]).replace("{noun}", words["noun"]), re.IGNORECASE)


@cache
def _rank_value_pattern(number: int) -> re.Pattern[str]:
    """Return a pattern of the texts for a rank: for 1, "1", "1.", "1st", "First place", 第一名."""
    texts = []
    for one in LANGUAGES:
        words = [word for word, meant in _ranks_by_ordinal(one).items() if meant == number]
        ordinal = f"(?:{'|'.join(words)})" if words else "(?!)"
        pattern = word_table("places", one)["values"]
        texts.append(pattern.replace("{number}", str(number)).replace("{ordinal}", ordinal))
    return re.compile("|".join(f"(?:{text})" for text in texts), re.IGNORECASE)
