"""Units, and what is known of the numbers that a field holds."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from agent.intent.text import has_chinese
from agent.intent.words import table

CURRENCIES = frozenset("usd eur gbp cny chf jpy inr cad aud hkd sgd krw sek nok dkk pln brl".split())
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
        noun: what the texts say that they count: "pages" of "120 pages".
        is_plain: whether `NUMBER` reads the same of the texts: not of "1:02:30" or "1.200,50".
        texts: for numbers that are kept as text each text with its number and unit; empty for others.
    """

    units: tuple[Unit, ...] = ()
    words: frozenset[str] = frozenset()
    noun: str = ""
    is_plain: bool = True
    texts: Mapping[str, tuple[float, Unit | None]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def numbers(self) -> list[float]:
        """The numbers of the texts, in the first unit where they are of its kind."""
        own = self.units[0] if self.units else None
        return [
            number * unit.of / own.of if own is not None and unit is not None and unit.kind == own.kind else number
            for number, unit in self.texts.values()
        ]

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


def named_units() -> Mapping[str, Unit]:
    """Units by the words for them in names of fields."""
    return _units()[1]


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
