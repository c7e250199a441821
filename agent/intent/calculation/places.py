"""Find conditions on a place in a ranking: "came in first place", "ranked second", 第三名."""

import re
from functools import cache

from agent.intent.columns import Columns
from agent.intent.found import Found, Piece
from agent.intent.lexicon import name_words
from agent.intent.words import LANGUAGES, table

_CONFIDENCE = 0.8
_LAST = -1
_BEFOREHAND = frozenset(["grid", "seed"])
"""Words in names of places that are given before the event."""


def places(found: Found, columns: Columns) -> tuple[Piece, ...]:
    """Return a condition for each place that a question names, if exactly one field of ranks holds it."""
    pieces = []
    text = found.sentence.text
    for language in LANGUAGES:
        for match in _pattern(language).finditer(text):
            number = _numbers(language)[(match["before"] or match["behind"]).casefold()]
            held = [(name, value) for name in columns.vocabulary.roles
                    if columns.is_rank(name) and _BEFOREHAND.isdisjoint(name_words(name))
                    and (value := _held(columns, name, number)) is not None]  # fmt: skip
            taken = any(piece.start < match.end() and match.start() < piece.end for piece in found.pieces)
            if len(held) == 1 and not taken:
                name, value = held[0]
                filter = {"type": "eq", "key": name, "value": value}
                pieces.append(Piece(name, filter, match.start(), match.end(), _CONFIDENCE))
    return tuple(pieces)


def _held(columns: Columns, name: str, number: int) -> str | int | None:
    """Return the value of a field of ranks that means a place, or None."""
    held = columns.vocabulary.catalogue.fields[name]
    if held.field.item == "number":
        if number == _LAST and held.low == 1 and isinstance(held.high, int | float):
            number = int(held.high)
        return number if held.field.type != "list" and _is_between(held.low, number, held.high) else None
    if number == _LAST:
        return None
    found = [value for value in held.values if _value(number).fullmatch(value.strip())]
    return found[0] if len(found) == 1 else None


def _is_between(low: object, number: int, high: object) -> bool:
    return isinstance(low, int | float) and isinstance(high, int | float) and low <= number <= high


def _numbers(language: str) -> dict[str, int]:
    """Return the place that each ordinal means, `_LAST` for the last."""
    words = table("places", language)
    return {**{word: number for number, word in enumerate(words["ordinals"].split(), 1)}, words["last"]: _LAST}


@cache
def _pattern(language: str) -> re.Pattern[str]:
    ordinal = "|".join(_numbers(language))
    words = table("places", language)
    pattern = words["pattern"].replace("{ordinal}", f"(?:{ordinal})")
    return re.compile(pattern.replace("{verb}", words["verb"]).replace("{noun}", words["noun"]), re.IGNORECASE)


@cache
def _value(number: int) -> re.Pattern[str]:
    """Return a pattern of the texts for a place: "1", "1.", "1st", "First place", 第一名."""
    texts = (
        table("places", one)["values"].replace("{number}", str(number)).replace("{ordinal}", word)
        for one in LANGUAGES
        for word, meant in _numbers(one).items()
        if meant == number
    )
    return re.compile("|".join(f"(?:{text})" for text in texts), re.IGNORECASE)
