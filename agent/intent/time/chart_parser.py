"""A bottom-up chart parser: finds every reading of every run of consecutive tokens, by rules over categories."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import Any

from agent.intent.time.lexer import ChartItem, DateToken
from agent.intent.time.periods import Calendar

Action = Callable[..., Any]
_MOST_VALUES = 3
"""Maximum number of readings that are kept for the same tokens and category."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule of the grammar: consecutive items of the categories `parts` make an item of `category`.

    Attributes:
        parts: categories in order; lower-case categories are joining words without a value.
        action: returns the item's value from the calendar and the values of the parts; None or a `ValueError` means
            that the rule does not apply.
        cost: what the item costs in addition to its parts, see `ChartItem.cost`.
    """

    category: str
    parts: tuple[str, ...]
    action: Action
    cost: int = 0


Chart = list[dict[str, list[ChartItem]]]
"""For each token of a run, the items that begin there, by category."""


def compile_rules(table: Sequence[tuple[str, str, Action] | tuple[str, str, Action, int]]) -> dict[str, list[Rule]]:
    """Return the rules by the category of their first part.

    Args:
        table: (category to make, pattern, `action` of the rule, cost), the cost optional. In a pattern, "a|b" is either
            category, "a?" is optional, and " / " separates alternative patterns.
    """
    rules: dict[str, list[Rule]] = {}
    for category, patterns, action, *cost in table:
        for pattern in patterns.split(" / "):
            choices = [part.rstrip("?").split("|") + ([""] if part.endswith("?") else []) for part in pattern.split()]
            for chosen in product(*choices):
                parts = tuple(filter(None, chosen))
                rules.setdefault(parts[0], []).append(Rule(category, parts, action, cost[0] if cost else 0))
    return rules


def parse_chart(
    tokens: Sequence[DateToken], first: int, last: int, rules: dict[str, list[Rule]], calendar: Calendar, most: int
) -> tuple[Chart, int]:
    """Return (chart of all items of the tokens [first, last), number of items that were processed).

    Index 0 of the chart is the token `first`. The chart may be incomplete if the number reaches the limit `most`.
    """
    chart: Chart = [{} for _ in range(last - first + 1)]
    processed = 0
    for start in range(last - 1, first - 1, -1):
        agenda = [item for item in tokens[start].items if item.end <= last]
        while agenda and processed < most:
            processed += 1
            item = agenda.pop()
            if not _is_new(item, chart[start - first]):
                continue
            for rule in rules.get(item.category, ()):
                for values, cost, end in _match_rest(rule.parts, 1, item.end, chart, first):
                    given = (item.value, *values) if rule.parts[0].isupper() else values
                    with suppress(ValueError, OverflowError, KeyError, IndexError):
                        value = rule.action(calendar, *given)
                        if value is not None:
                            agenda.append(ChartItem(rule.category, value, start, end, item.cost + cost + rule.cost))
    return chart, processed


def _is_new(item: ChartItem, known: dict[str, list[ChartItem]]) -> bool:
    """Add an item to `known`, by its category, if it is a new or cheaper reading; return whether it was added."""
    items = known.setdefault(item.category, [])
    same = [one for one in items if one.end == item.end]
    if any(one.value == item.value and one.cost <= item.cost for one in same):
        return False
    if len(same) >= _MOST_VALUES and item.cost >= min(one.cost for one in same):
        return False
    items.append(item)
    return True


def _match_rest(
    parts: tuple[str, ...], index: int, place: int, chart: Chart, first: int
) -> Iterator[tuple[tuple[Any, ...], int, int]]:
    """Yield (values of the parts, their total cost, index after their last token) for every reading of parts[index:].

    Args:
        parts: the categories of a rule.
        place: index of the token at which the readings begin.
        first: index of the token that the chart begins with.
    """
    if index == len(parts):
        yield (), 0, place
        return
    if place - first >= len(chart) - 1:
        return
    part, here = parts[index], chart[place - first]
    # Skipped words may stand anywhere: "the last week of [the] month".
    places = [item.end for item in here.get("skipped", ())] if part != "the" else []
    for item in here.get(part, ()):
        for values, cost, end in _match_rest(parts, index + 1, item.end, chart, first):
            yield ((item.value, *values) if part.isupper() else values), item.cost + cost, end
    for skipped in places:
        yield from _match_rest(parts, index, skipped, chart, first)
