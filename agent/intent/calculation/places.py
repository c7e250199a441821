"""Find conditions on a place in a ranking: "came in first place", "ranked second", 第三名."""

import re
from functools import cache

from agent.intent.columns import Columns
from agent.intent.found import Found, Piece
from agent.intent.lexicon import name_words
from agent.intent.words import LANGUAGES, table

_CONFIDENCE = 0.8
_BEFOREHAND = frozenset(["grid", "seed"])
"""Words in names of places that are given before the event."""


def places(found: Found, columns: Columns) -> tuple[Piece, ...]:
    """Return a condition for each place that a question names, if exactly one field of ranks holds it."""
    pieces = []
    text = found.sentence.text
    for language in LANGUAGES:
        for match in _pattern(language).finditer(text):
            number = _ordinals(language).index((match["before"] or match["behind"]).casefold()) + 1
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
        return number if held.field.type != "list" and _is_between(held.low, number, held.high) else None
    found = [value for value in held.values if _value(number).fullmatch(value.strip())]
    return found[0] if len(found) == 1 else None


def _is_between(low: object, number: int, high: object) -> bool:
    return isinstance(low, int | float) and isinstance(high, int | float) and low <= number <= high


def _ordinals(language: str) -> list[str]:
    words: list[str] = table("places", language)["ordinals"].split()
    return words


@cache
def _pattern(language: str) -> re.Pattern[str]:
    ordinal = "|".join(_ordinals(language))
    return re.compile(table("places", language)["pattern"].replace("{ordinal}", f"(?:{ordinal})"), re.IGNORECASE)


@cache
def _value(number: int) -> re.Pattern[str]:
    """Return a pattern of the texts for a place: "1", "1.", "1st", "First place", 第一名."""
    texts = (
        table("places", one)["values"].replace("{number}", str(number)).replace("{ordinal}", _ordinals(one)[number - 1])
        for one in LANGUAGES
    )
    return re.compile("|".join(f"(?:{text})" for text in texts), re.IGNORECASE)
