"""Units of measure and their words, and `Measure`: in which units a field holds its numbers."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType

from agent.intent.language.text import has_chinese
from agent.intent.words import word_table

CURRENCIES = frozenset("usd eur gbp cny chf jpy inr cad aud hkd sgd krw sek nok dkk pln brl".split())
DIGITS_ONLY = frozenset("节度")
"""Units that are parts of other words as well, so that they need digits: 度 ("degree") is part of 浓度 ("density")."""
MONEY = CURRENCIES | {"money"}
"""Kinds of units that are money: the currencies, and "money" if the currency is unknown."""
_SIZES = {"k": 1e3, "t": 1e3, "m": 1e6}
"""Magnitudes before a currency in names of fields: `amount_keur`, `umsatz_teur`."""
MORE_SIZES = {"k": 1e3, "m": 1e6, "mn": 1e6, "mio": 1e6, "bn": 1e9}
"""Magnitudes after a currency in names of fields: `saved_usd_k`."""
NUMBER = "number({})"
"""The expression by which aggregates read the number in a text field, whose name replaces {}."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of measure. `of` is its size in the base unit of its kind: km is `Unit("length", 1000)`."""

    kind: str
    of: float


@dataclass(frozen=True, slots=True)
class Measure:
    """What numbers a field holds: their units, and how they are written.

    Attributes:
        units: the units of its values, the most frequent first; empty if unknown.
        words: the words of the field's name that state the unit.
        noun: the stems of the noun that the texts count, "page" for "120 pages", or of a declared unit that no other
            unit converts to: "parsec".
        is_plain: whether `NUMBER` reads the texts correctly; False for "1:02:30" or "1.200,50".
        texts: for numbers kept as text, each text with its number and unit; else empty.
    """

    units: tuple[Unit, ...] = ()
    words: frozenset[str] = frozenset()
    noun: str = ""
    is_plain: bool = True
    texts: Mapping[str, tuple[float, Unit | None]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def numbers(self) -> list[float]:
        """The numbers of the texts, in the field's first unit if they are of its kind."""
        own = self.units[0] if self.units else None
        return [
            number * unit.of / own.of if own is not None and unit is not None and unit.kind == own.kind else number
            for number, unit in self.texts.values()
        ]

    def scale(self, said: Unit | None, *, money: bool) -> float | None:
        """Return the factor from a unit to the field's unit; None if that is unknown or of another kind.

        Args:
            said: the unit in the question; None if it states none, which gives 1.
            money: whether the field's name says money, whose currency may be left out.
        """
        if said is None:
            return 1.0
        if not self.units:
            return 1.0 if money and said.kind in CURRENCIES else None
        kinds = {said.kind, "money"} if said.kind in CURRENCIES else {said.kind}
        own = next((unit for unit in self.units if unit.kind in kinds), None)
        return None if own is None else said.of / own.of

    @property
    def money_size(self) -> float:
        """How much money 1 stands for, 1000 in `amount_keur` and `amount_k`; 1 if the field holds no money."""
        return self.units[0].of if self.units and self.units[0].kind in MONEY else 1.0


@cache
def _units() -> tuple[Mapping[str, tuple[Unit, ...]], Mapping[str, Unit]]:
    """Return ({word in a question: units that it may mean}, {word in a field's name: unit})."""
    said: dict[str, tuple[Unit, ...]] = {}
    named: dict[str, Unit] = {}
    for one in word_table("numbers")["units"]:
        unit = Unit(one["kind"], one["of"])
        for word in one["words"].split():
            said[word.replace("_", " ")] = (*said.get(word.replace("_", " "), ()), unit)
        for word in (*one["words"].split(), *one.get("fields", "").split()):
            named.setdefault(word, unit)
    for currency in CURRENCIES:
        for mark, size in _SIZES.items():
            named.setdefault(mark + currency, Unit(currency, size))
        for mark, size in MORE_SIZES.items():
            named.setdefault(currency + mark, Unit(currency, size))
    return said, named


def units_of(word: str) -> tuple[Unit, ...]:
    """Return the units that a word may mean, as "pounds" means a weight or money; () if it is no unit."""
    return _units()[0].get(" ".join(word.casefold().split()), ())


def rate_unit(unit: Unit, per: Unit) -> Unit:
    """Return the unit of a rate, such as km per hour."""
    return Unit(f"{unit.kind}/{per.kind}", unit.of / per.of)


def field_name_units() -> Mapping[str, Unit]:
    """Return units by their words in field names."""
    return _units()[1]


def unit_of(word: str) -> Unit | None:
    """Return the first unit that a word may mean, or None."""
    return next(iter(units_of(word.strip(" ."))), None)


def unit_names() -> list[str]:
    """Return the first word of each unit in the English list of units, in the order of the list."""
    return [one["words"].split()[0].replace("_", " ") for one in word_table("numbers", "en")["units"]]


@cache
def unit_pattern() -> str:
    """Return a regular expression that matches any word for a unit; longer words are tried first."""
    words = sorted(_units()[0], key=len, reverse=True)
    return "|".join(
        re.escape(word).replace(r"\ ", r"\s")
        # A unit of one letter does not begin a word: "3 t-shirts".
        + ("" if has_chinese(word) else r"(?!-?[A-Za-z0-9²³])" if len(word) == 1 else r"(?![A-Za-z0-9²³])")
        for word in words
    )
