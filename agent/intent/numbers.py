"""Amounts and their units: what numbers a field holds, those that are written as text included, and in what unit."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any

from agent.intent import lexicon
from agent.intent.text import has_chinese
from agent.intent.words import table
from retrievers.core.types import FieldValues

CURRENCIES = frozenset(["usd", "eur", "gbp", "cny"])
_EMPTY = frozenset(["", "-", "–", "—", "n/a", "na", "none", "?", "null", "unknown", "无", "未知"])
"""Texts that stand for no number."""
_LEAST_NUMBERS = 0.6
"""Share of the texts of a field that must be numbers, the others being empty."""
_WRITTEN = re.compile(
    r"(?P<before>[^\W\d]{1,4}|[$€£¥])?\s*(?P<number>[+-]?(?:[1-9]\d{0,2}(?:,\d{3})+|0|[1-9]\d*)(?:\.\d+)?)\s*"
    r"(?P<behind>[^\d\s][^\d]{0,15})?"
)
_YEARS = range(1800, 2101)
NUMBER = "number({})"
"""The expression of the aggregates for the number that a text holds."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit: one of it is `of` of the first of its kind, "km" 1000 metres."""

    kind: str
    of: float


@dataclass(frozen=True, slots=True)
class Measure:
    """What numbers a field holds.

    Attributes:
        units: the units of its values, the commonest first; empty where nothing says one.
        words: the words of the field's name that say the unit.
        texts: for numbers that are kept as text each text with its number and unit; empty for others.
    """

    units: tuple[Unit, ...] = ()
    words: frozenset[str] = frozenset()
    texts: Mapping[str, tuple[float, Unit | None]] = field(default_factory=lambda: MappingProxyType({}))

    def scale(self, said: Unit | None, *, money: bool) -> float | None:
        """What a number said in a unit is multiplied by to be in the field's; None where that is not known.

        Args:
            money: whether the field's name speaks of money, whose currency may be left out.
        """
        if said is None:
            return 1.0
        if not self.units:
            return 1.0 if money and said.kind in CURRENCIES else None
        own = next((unit for unit in self.units if unit.kind == said.kind), None)
        return None if own is None else said.of / own.of


@cache
def _units() -> tuple[Mapping[str, tuple[Unit, ...]], Mapping[str, Unit]]:
    """Units by their words in a question, and by those in the names of fields."""
    said: dict[str, tuple[Unit, ...]] = {}
    named: dict[str, Unit] = {}
    for one in table("numbers")["units"]:
        unit = Unit(one["kind"], one["of"])
        for word in one["words"].split():
            said[word.replace("_", " ")] = (*said.get(word.replace("_", " "), ()), unit)
        for word in (*one["words"].split(), *one.get("fields", "").split()):
            named.setdefault(word, unit)
    return said, named


def units_of(word: str) -> tuple[Unit, ...]:
    """The units that a word of a question, or beside a number, may say: pounds are a weight or money."""
    return _units()[0].get(" ".join(word.casefold().split()), ())


def unit_of(word: str) -> Unit | None:
    """The unit that a word of a question, or beside a number, says first of all."""
    return next(iter(units_of(word.strip(" ."))), None)


@cache
def unit_pattern() -> str:
    """The words of units as alternatives of a regular expression, the longest first."""
    words = sorted(_units()[0], key=len, reverse=True)
    return "|".join(
        re.escape(word).replace(r"\ ", r"\s") + ("" if has_chinese(word) else r"(?![A-Za-z0-9²³])") for word in words
    )


def measure_of(values: FieldValues) -> Measure | None:
    """The numbers of a field; None where it holds something else."""
    words = lexicon.name_words(values.field.name)
    if values.field.item == "number" and values.field.type != "list":
        unit = unit_of(values.field.unit or "") or _of_name(words) or _of_description(values.field.description)
        return Measure((unit,) if unit else (), frozenset(words[-1:]) if _of_name(words) else frozenset())
    if values.field.type != "string" or values.distinct > len(values.values) or not values.values:
        return None
    texts = _texts(values)
    if texts is None:
        return None
    units: dict[Unit, int] = {}
    for text, (_, unit) in texts.items():
        if unit is not None:
            units[unit] = units.get(unit, 0) + values.values[text]
    given = unit_of(values.field.unit or "") or _of_name(words)
    ordered = tuple(sorted(units, key=lambda unit: -units[unit])) or ((given,) if given else ())
    return Measure(ordered, frozenset(words[-1:]) if given else frozenset(), MappingProxyType(texts))


def _texts(values: FieldValues) -> dict[str, tuple[float, Unit | None]] | None:
    """The number and the unit of each text; None where one is no number, or all of them may be years or ids."""
    found: dict[str, tuple[float, Unit | None]] = {}
    empty = 0
    for text in values.values:
        if text.casefold() in _EMPTY:
            empty += 1
            continue
        number = _written(text)
        if number is None:
            return None
        found[text] = number
    if len(found) < _LEAST_NUMBERS * (len(found) + empty):
        return None
    if all(unit is None and number in _YEARS for number, unit in found.values()):
        return None
    if "." in "".join(found) and all(unit is None for _, unit in found.values()) and _are_versions(found):
        return None
    return found


def _are_versions(texts: Mapping[str, Any]) -> bool:
    """Whether they may be versions, of which 3.10 comes after 3.9: all with one dot, and digits of different length."""
    behind = {len(text.partition(".")[2]) for text in texts}
    return all(text.count(".") == 1 for text in texts) and len(behind) > 1


def _written(text: str) -> tuple[float, Unit | None] | None:
    match = _WRITTEN.fullmatch(text.strip())
    if match is None:
        return None
    beside = [word for word in (match["before"], match["behind"]) if word]
    units = [unit_of(word) for word in beside]
    if any(unit is None for unit in units) or len(units) > 1:
        return None
    return float(match["number"].replace(",", "")), units[0] if units else None


def _of_name(words: tuple[str, ...]) -> Unit | None:
    """The unit that the name of a field says: its end ("size_kb", "area_m2"), or any word that is no single letter.

    At the beginning "min" is the least, not a minute.
    """
    named = _units()[1]
    for end in (words[-1:], words[-2:]):
        if len(words) > len(end) and (unit := named.get("".join(end))) is not None:
            return unit
    return next((named[word] for word in words[words[:1] == ("min",) :] if len(word) > 1 and word in named), None)


def _of_description(text: str) -> Unit | None:
    """The only unit that a description names: "length of the outage in minutes"."""
    found = re.findall(rf"(?<![^\W_])(?:{unit_pattern()})", text.casefold())
    named = {unit for word in found if len(word) > 1 or not word.isalpha() for unit in units_of(word)[:1]}
    return next(iter(named)) if len(named) == 1 else None
