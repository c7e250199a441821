"""Read the dates in an English or Chinese question as half-open ranges of days.

Consecutive date words (a run) are parsed together. If a phrase can be read only without some date words beside it, all
these words are returned as unread, because half a date would be a wrong condition.
"""

from collections.abc import Iterator, Sequence

from agent.intent.time.chart_parser import parse_chart
from agent.intent.time.grammar import RULES
from agent.intent.time.lexer import DateToken, read_date_tokens
from agent.intent.time.periods import Calendar, Period
from agent.intent.time.run_reader import DateRange, DateReading, RunReader

_MOST_CHARACTERS = 2_000
_MOST_TOKENS = 32
"""Maximum tokens of a run that are parsed together."""
_MOST_ITEMS = 1_500
"""Maximum chart items of a text; ordinary questions have up to 200. Dates after that are not read."""
_ANCHORS = frozenset(
    """
    YEAR TWO UNIT UNITS MONTHNAME WDAY HOLIDAY DAYREL YREL DATE YM MD MDN SEASON DECADE HALFYEAR ZHYEARPART ZHMONTHPART
    HALFMONTH HALFWEEK AFTERTEN O OONES TEENS TENS thousand COMPACT YM1 TODATE fy q h w century_of yue niandai fiscal
    """.split()
)
"""Categories of which a run needs at least one to be a date."""


def find_date(text: str, calendar: Calendar) -> Period | None:
    """Return the only range that a text states; None if the text states none or several, or has unread date words."""
    dates = read_dates(text, calendar)
    return dates.ranges[0].period if len(dates.ranges) == 1 and not dates.unread else None


def read_dates(text: str, calendar: Calendar) -> DateReading:
    """Return the ranges that a text states, and its unread date words.

    Periods side by side ("2013 and 2023") stay separate; "from A to B" is one range.
    """
    tokens = read_date_tokens(text[:_MOST_CHARACTERS])
    ranges: list[DateRange] = []
    unread: list[tuple[int, int]] = []
    possible: list[DateRange] = []
    left = _MOST_ITEMS
    for first, last in _runs(tokens):
        chart, processed = parse_chart(tokens, first, last, RULES, calendar, left)
        left -= processed
        if not left:
            unread.append((tokens[first].start, len(text)))
            break
        found, missed, doubtful = RunReader(text, tokens, first, last, chart, calendar).read()
        ranges += found
        possible += doubtful
        for start, end in missed:
            if unread and start <= unread[-1][1]:
                start = unread.pop()[0]
            unread.append((start, end))
    return DateReading(ranges, unread, possible)


def _runs(tokens: Sequence[DateToken]) -> Iterator[tuple[int, int]]:
    """Yield (first, last) for the tokens [first, last) of each run of date words that can be a date."""
    first = 0
    while first < len(tokens):
        last = first
        while last < len(tokens) and last - first < _MOST_TOKENS and (tokens[last].items or _is_inner(tokens, last)):
            last += 1
        if any(item.category in _ANCHORS for token in tokens[first:last] for item in token.items):
            yield first, last
        first = last + 1 if last < len(tokens) and not tokens[last].items else max(last, first + 1)


def _is_inner(tokens: Sequence[DateToken], place: int) -> bool:
    """Return whether a token lies inside a known phrase that begins up to five tokens before it."""
    return any(item.end > place for near in range(max(place - 5, 0), place) for item in tokens[near].items)
