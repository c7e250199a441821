"""A bottom-up chart parser: every reading of every run of words, by rules over categories."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

from agent.intent.time.lexer import Item, Token
from agent.intent.time.periods import Calendar

Make = Callable[..., Any]
_MOST_VALUES = 3
"""Readings of the same words as the same category that are kept."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How a category is made of others.

    Attributes:
        parts: categories in their order; those of small letters join and hand no value over.
        make: the value of those of the parts, with the calendar first; None, or a `ValueError`, is no reading.
    """

    category: str
    parts: tuple[str, ...]
    make: Make
    cost: int = 0


Chart = list[dict[str, list[Item]]]


def rules_of(table: Sequence[tuple[str, str, Make] | tuple[str, str, Make, int]]) -> dict[str, list[Rule]]:
    """Rules by the category they begin with.

    In a pattern "a|b" is either of two categories, "a?" one that may be missing, and " / " stands between patterns.
    """
    rules: dict[str, list[Rule]] = {}
    for category, patterns, make, *cost in table:
        for pattern in patterns.split(" / "):
            choices = [part.rstrip("?").split("|") + ([""] if part.endswith("?") else []) for part in pattern.split()]
            for chosen in product(*choices):
                parts = tuple(filter(None, chosen))
                rules.setdefault(parts[0], []).append(Rule(category, parts, make, cost[0] if cost else 0))
    return rules


def parse(
    tokens: Sequence[Token], first: int, last: int, rules: dict[str, list[Rule]], calendar: Calendar, most: int
) -> tuple[Chart, int]:
    """All items of the tokens [first, last), by the token they begin with (from `first`).

    Args:
        most: how many items may be looked at.
    Returns:
        The items, and how many were looked at; with `most` of them the items are not complete.
    """
    chart: Chart = [{} for _ in range(last - first + 1)]
    looked_at = 0
    for start in range(last - 1, first - 1, -1):
        agenda = [item for item in tokens[start].items if item.end <= last]
        while agenda and looked_at < most:
            looked_at += 1
            item = agenda.pop()
            if not _is_new(item, chart[start - first]):
                continue
            for rule in rules.get(item.category, ()):
                for values, cost, end in _tails(rule.parts, 1, item.end, chart, first):
                    given = (item.value, *values) if rule.parts[0].isupper() else values
                    with suppress(ValueError, OverflowError, KeyError, IndexError):
                        value = rule.make(calendar, *given)
                        if value is not None:
                            agenda.append(Item(rule.category, value, start, end, item.cost + cost + rule.cost))
    return chart, looked_at


def _is_new(item: Item, known: dict[str, list[Item]]) -> bool:
    """Whether an item says something new; then it is known from here on."""
    items = known.setdefault(item.category, [])
    same = [one for one in items if one.end == item.end]
    if any(one.value == item.value and one.cost <= item.cost for one in same):
        return False
    if len(same) >= _MOST_VALUES and item.cost >= min(one.cost for one in same):
        return False
    items.append(item)
    return True


def _tails(
    parts: tuple[str, ...], index: int, place: int, chart: Chart, first: int
) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """The values of the parts from an index on, as they may be read from a place on: values, cost, end."""
    if index == len(parts):
        yield (), 0, place
        return
    if place - first >= len(chart) - 1:
        return
    part, here = parts[index], chart[place - first]
    # What is skipped may stand anywhere: "the last week of [the] month".
    places = [item.end for item in here.get("skipped", ())] if part != "the" else []
    for item in here.get(part, ()):
        for values, cost, end in _tails(parts, index + 1, item.end, chart, first):
            yield ((item.value, *values) if part.isupper() else values), item.cost + cost, end
    for skipped in places:
        yield from _tails(parts, index, skipped, chart, first)
