"""Read the date ranges of one run of date words: which phrases of it are dates, and which words are left unread."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from agent.intent.time import periods
from agent.intent.time.lexer import ChartItem, load_date_words
from agent.intent.time.periods import Calendar, Period, YearlyPeriod
from agent.intent.time.uncovered_words import LINKING_CATEGORIES, DateRun

_DATED = frozenset(["P", "Y", "R", "WDAY", "YEAR"])
_LIST_CATEGORIES = frozenset(["and", "or", "beside", "comma", "skipped", "cue"])
_BEFORE_PLURAL = re.compile(r"\s(?!(?:is|was|has|does|this|us|yes)\b)[a-z][a-z-]+[^s\W]s\b")
"""A plural noun; a month directly before it is a date: "April failures"."""
_BEFORE_ITEM = re.compile(
    r"\s*,\s*(?!(?:can|could|would|will|what|which|who|when|where|how|why|is|are|do|does|did|please|i|we|you|it|the)\b)\w",
    re.IGNORECASE,
)
"""A comma and the next item of a list, but no question or request to a person called June: "June, can you ..."."""
_CHANGING = ("before", "after", "since", "until", "by", "to", "between", "over", "under", "REL", "PART", "EDGE")
"""Categories of words before a phrase that change what it means."""
_CLOSES_ITEM = re.compile(r"\s*(?:[,;:.?!]|\s[-–—]|$)")
_CHINESE_RELATIVE_CLAUSE = re.compile(r"[\u4e00-\u9fff]{1,4}的[\u4e00-\u9fff]")
"""A Chinese verb and noun after a date: 周五[提交的报告] ("reports submitted on Friday"), but not 周五还开门吗."""


@dataclass(frozen=True, slots=True)
class DateRange:
    """A range of days stated by the characters [start, end) of a question, which are the `phrase`."""

    period: Period
    start: int
    end: int
    phrase: str


class DateReading(NamedTuple):
    """What the date words of a text state, in order.

    Attributes:
        ranges: ranges of days, without overlap.
        unread: characters [start, end) of date words left unread.
        possible: ranges of words that are a date in some texts and a name or topic in others: "[Q1] loans", "[spring]
            arrivals", "the [1984] report".
    """

    ranges: list[DateRange]
    unread: list[tuple[int, int]]
    possible: list[DateRange]


class _DatePhrase(NamedTuple):
    """A date phrase in a run; a weak phrase is a date only if another date is listed beside it: [2019] or 2021."""

    item: ChartItem
    is_weak: bool = False


@dataclass(frozen=True, slots=True)
class RunReader(DateRun):
    """A run of date words, and the methods that read its date ranges."""

    calendar: Calendar

    def read(self) -> DateReading:
        """Return what the run states."""
        unknown = any(one.category == "UNKNOWN" for token in self.tokens[self.first : self.last] for one in token.items)
        named = {category for here in self.chart for category in here}
        if unknown or "NONE" in named or ("TIMES" in named and named & _DATED):
            return DateReading([], [(self.tokens[self.first].start, self.tokens[self.last - 1].end)], [])
        every = list(self._date_phrases())
        phrases = [one for place, one in enumerate(every) if not one.is_weak or self._is_listed(every, place)]
        possible = [] if phrases else self._possible_ranges(every)
        ranges: list[DateRange] = []
        unread: list[tuple[int, int]] = []
        unread += self._uncovered_years(phrases)
        conflicting = {
            place for place in range(1, len(phrases)) if self._conflict(phrases[place - 1].item, phrases[place].item)
        }
        conflicting |= {place for place in range(1, len(phrases)) if self._is_anaphoric(phrases[place].item)}
        conflicting |= {
            place for place in range(1, len(phrases)) if self._shares_year(phrases[place - 1].item, phrases[place].item)
        }
        ends = {one.item.start: one.item.end for one in phrases}
        readings = [self._periods(phrases, place) for place in range(len(phrases))]
        partial = {
            place
            for place, one in enumerate(phrases)
            if place in conflicting
            or place + 1 in conflicting
            or readings[place] is None
            or self.has_uncovered_words(one.item, ends)
        }
        for place in range(1, len(phrases)):  # do not use a part of a list: "2019 or [an unread date]"
            if partial & {place - 1, place} and self._is_beside(phrases[place - 1].item, phrases[place].item):
                partial |= {place - 1, place}
        for place, one in enumerate(phrases):
            if place in partial:
                unread.append(self._with_neighbours(one.item))
                continue
            start, end = self._characters(one.item)
            ranges += [DateRange(period, start, end, self.text[start:end]) for period in readings[place] or ()]
        return DateReading(self._without_repeats(ranges), unread, possible)

    def _possible_ranges(self, phrases: Sequence[_DatePhrase]) -> list[DateRange]:
        """Return the ranges of the weak phrases of a run that has no others; [] if date words are left over."""
        ends = {one.item.start: one.item.end for one in phrases}
        ranges: list[DateRange] = []
        for place, one in enumerate(phrases):
            read = self._periods(phrases, place)
            is_changed = self.has_category(one.item.start - 1, *_CHANGING)
            if read is None or is_changed or self.has_uncovered_words(one.item, ends):
                return []
            start, end = self._characters(one.item)
            ranges += [DateRange(period, start, end, self.text[start:end]) for period in read]
        return ranges

    def _is_anaphoric(self, item: ChartItem) -> bool:
        """Return whether a date is counted from an earlier date: "May 2020 and [the following month]"."""
        first = item.start + self.has_category(item.start, "link", "between")
        return self.has_category(first + self.has_category(first, "skipped"), "anaphoric")

    def _shares_year(self, left: ChartItem, right: ChartItem) -> bool:
        """Return whether the left of two listed dates may share the right one's year: "late May or early June 2022"."""
        first = left.start + self.has_category(left.start, "link", "in")
        dated, undated = (any(self.has_category(n, "YEAR") for n in range(one.start, one.end)) for one in (right, left))
        return self._is_beside(left, right) and self.has_category(first, "PART", "EDGE") and dated and not undated

    def _uncovered_years(self, phrases: Sequence[_DatePhrase]) -> Iterator[tuple[int, int]]:
        """Yield the characters [start, end) of a year after "between", "to", "before" or "after" that no phrase covers.

        For example "between 2005" in "between 2005 and the release".
        """
        for place in range(self.first + 1, self.last):
            covered = any(one.item.start <= place < one.item.end for one in phrases)
            if (
                not covered
                and self.has_category(place, "YEAR")
                and self.has_category(place - 1, "between", "to", "before", "after")
            ):
                yield self.tokens[place - 1].start, self.tokens[place].end

    def _date_phrases(self) -> Iterator[_DatePhrase]:
        """Yield the date phrases from left to right: at each place the longest reading, of these the cheapest."""
        place = self.first
        while place < self.last:
            found = [_DatePhrase(item) for item in self.items_at(place, "T") if self._is_plausible(item)]
            longest = max((item.end for item in self.items_at(place + 1, "T")), default=0)
            cued = [item for item in self.items_at(place, "TC") if item.end > longest]
            found += [_DatePhrase(item._replace(start=place + 1)) for item in cued]
            ends = [item for item in self.items_at(place, "TE") if not self._following(item)[:1].isalnum()]
            found += [_DatePhrase(item) for item in ends]
            if place == 0 or self._follows_participle(place):
                alone = self.items_at(place + self.has_category(place, "skipped"), "YEAR", "R", "WDAY", "THIS", "LOOSE")
                found += [_DatePhrase(item) for item in alone if self._is_date_alone(item)]
            if self.tokens[place].is_chinese:
                alone = self.items_at(place, "WDAY", "RH")
                found += [_DatePhrase(item) for item in alone if _CHINESE_RELATIVE_CLAUSE.match(self._following(item))]
            if not found:
                found = [
                    _DatePhrase(item, is_weak=not self._is_date_modifier(item))
                    for item in self.items_at(place, "R", "YEAR")
                ]
            if not found:
                place += 1
                continue
            best = max(found, key=lambda one: (one.item.end, -one.item.cost))
            if self.has_category(place, "link", "cue", "on", "between") and best.item.end < longest:
                place += 1  # skip the preposition 在 ("in") of 在[2019年之前]
                continue
            # "in" belongs to the verb: "came in [between ...]"
            is_led = self.has_category(place, "link") and self.has_category(place + 1, "between")
            yield best._replace(item=best.item._replace(start=place + 1)) if is_led else best
            place = best.item.end

    def _is_date_alone(self, item: ChartItem) -> bool:
        """Return whether an item without a preposition is a date at the start of the text or after a participle."""
        is_led = self.has_category(item.start - 1, "skipped")
        if item.category == "THIS" or (is_led and item.category == "R"):
            opens = self._follows_participle(item.start - is_led) and not self._following(item)[:1].isalnum()
            return opens and (is_led or item.value.days == 2)
        digits = self.tokens[item.start].items[0].category in ("MDN", "COMPACT") and any(
            one.is_chinese for one in self.tokens
        )
        return item.category == "YEAR" or digits or self._follows_participle(item.start)

    def _follows_participle(self, place: int) -> bool:
        """Return whether the word before is a participle: "papers published 2019"."""
        return place > 0 and self.tokens[place - 1].text.endswith("ed") and len(self.tokens[place - 1].text) > 4

    def _following(self, item: ChartItem) -> str:
        """Return the text from the token after an item."""
        return self.text[self.tokens[item.end].start :] if item.end < len(self.tokens) else ""

    def _is_plausible(self, item: ChartItem) -> bool:
        """Return whether an item that is only a month or a day of a month is really a date; other items always are.

        No dates: "[before may] is decided", "[of June] Carter".
        """
        last, size = item.end - 1, item.end - item.start
        following = self._following(item)
        days = [
            one for one in self.items_at(item.start + size - 2, "O") + self.items_at(last, "O") if one.end == item.end
        ]
        if any(self.has_category(one.start - 1, "the", "on") and one.start - item.start < 3 for one in days):
            return not following[:1].isalpha()
        if (
            size <= 2
            and self.has_category(last, "MONTHNAME")
            and not self.has_category(item.start, "NUM", "N", "O", "REL")
        ):
            return self._is_month_after_preposition(last, self.tokens[item.start].text, following)
        # "what may 3 people do"
        is_verb = size == 2 and self.has_category(item.start, "MONTHNAME") and self._is_ambiguous_month(item.start)
        return not (is_verb and following[:1].isalpha() and not self.has_category(last, "O"))

    def _is_date_modifier(self, item: ChartItem) -> bool:
        """Return whether a month without a preposition is a date: "[April] failures", "[june], cats", "a, [Feb]"."""
        token = self.tokens[item.start]
        before = self.text[: token.start].rstrip()[-1:]
        opens = not before
        if (
            item.end - item.start > 1
            or not self.has_category(item.start, "MONTHNAME")
            or self._is_ambiguous_month(item.start)
        ):
            return False
        if _BEFORE_PLURAL.match(self.text, token.end):
            return not (opens and token.text in load_date_words().ambiguous_months)
        if opens and _BEFORE_ITEM.match(self.text, token.end):
            return True
        if token.text in load_date_words().person_months:
            return False  # "where is it, June?"
        return before in ("", *",;:") and _CLOSES_ITEM.match(self.text, token.end) is not None

    def _is_ambiguous_month(self, place: int) -> bool:
        """Return whether a month's name is written like a verb, in lower case: "may", "march"."""
        token = self.tokens[place]
        return token.text in load_date_words().ambiguous_months and self.text[token.start : token.end].islower()

    def _is_month_after_preposition(self, place: int, head: str, following: str) -> bool:
        """Return whether a month's name after a preposition is a date; a short name only after "in" or "since".

        Args:
            head: the preposition.
            following: the text after the month.
        """
        name = self.tokens[place].text
        if self._is_ambiguous_month(place) or following[:1].isupper():
            return False
        return head in ("in", "since") or name == "may" or len(name) > 3

    def _periods(self, phrases: Sequence[_DatePhrase], place: int) -> list[Period] | None:
        """Return the periods of the date phrase at an index; None if the calendar has no such days."""
        value = phrases[place].item.value
        if isinstance(value, tuple):
            return list(value)
        if isinstance(value, int):
            weekday = phrases[place].item.category == "WDAY"
            return [periods.latest_weekday(value, self.calendar) if weekday else periods.year_period(value)]
        if isinstance(value, Period):
            return [value]
        year = self._shared_year(phrases, place)
        try:
            return [value.at(year) if year else periods.latest_with_next(value, self.calendar)]
        except (ValueError, IndexError, OverflowError):
            return None

    def _is_listed(self, phrases: Sequence[_DatePhrase], place: int) -> bool:
        """Return whether the date listed beside a weak phrase makes it a date: [Q1] and Q2 of 2023, [2019] or 2021."""
        if isinstance(phrases[place].item.value, YearlyPeriod):
            return self._shared_year(phrases, place) is not None or self._is_beside_yearly(phrases, place)
        for other in (place + 1, place - 1):
            if 0 <= other < len(phrases):
                left, right = sorted((phrases[place].item, phrases[other].item), key=lambda item: item.start)
                year = phrases[other].item.value
                is_year = isinstance(year, Period) and year.is_bounded and year.days in (365, 366)
                if self._is_beside(left, right) and is_year:
                    return True
        return False

    def _is_beside_yearly(self, phrases: Sequence[_DatePhrase], place: int) -> bool:
        """Return whether a sure part of the year is listed beside a phrase: "in January or [March]"."""
        if self._is_ambiguous_month(phrases[place].item.start):
            return False
        for other in (place - 1, place + 1):
            if 0 <= other < len(phrases) and isinstance(phrases[other].item.value, YearlyPeriod):
                left, right = sorted((phrases[place].item, phrases[other].item), key=lambda item: item.start)
                if self._is_beside(left, right) and (
                    not phrases[other].is_weak or (other < place and self._is_beside_yearly(phrases, other))
                ):
                    return True
        return False

    def _shared_year(self, phrases: Sequence[_DatePhrase], place: int) -> int | None:
        """Return the year that a listed phrase takes from another phrase: 2023 for [Q1] and Q2 of 2023; or None."""
        for step in (1, -1):
            other = place
            while 0 <= other + step < len(phrases):
                other += step
                left, right = sorted((phrases[other - step].item, phrases[other].item), key=lambda item: item.start)
                period = phrases[other].item.value
                if not self._is_beside(left, right):
                    break
                if isinstance(period, YearlyPeriod):
                    continue  # "January, February and March 2019"
                if not isinstance(period, Period) or not period.is_bounded:
                    break
                return None if self._is_relative(phrases[other].item) else period.begin.year
        return None

    def _is_relative(self, item: ChartItem) -> bool:
        """Return whether an item contains a day counted from today: "yesterday"."""
        return any(
            one.category == "DAYREL" for place in range(item.start, item.end) for one in self.tokens[place].items
        )

    def _gap(self, left: ChartItem, right: ChartItem) -> list[set[str]]:
        """Return the categories of each token between two items."""
        return [{one.category for one in self.tokens[place].items} for place in range(left.end, right.start)]

    def _is_beside(self, left: ChartItem, right: ChartItem) -> bool:
        """Return whether only conjunctions, commas and the like stand between two items, at least one."""
        gap = self._gap(left, right)
        return bool(gap) and all(_LIST_CATEGORIES & categories for categories in gap)

    def _conflict(self, left: ChartItem, right: ChartItem) -> bool:
        """Return whether two items without a conjunction between them name different days, so that both are unclear."""
        gap = self._gap(left, right)
        if "open" in set().union(*gap):
            return True
        if any(not categories <= LINKING_CATEGORIES | {"link", "in", "on", "dash"} for categories in gap):
            return not self._is_beside(left, right) and any("to" in categories for categories in gap)
        one, other = left.value, right.value
        if isinstance(one, Period) and isinstance(other, Period):
            # "since 2020 before 2023" is no clash: the two open ranges limit each other.
            return one != other and not (
                not one.is_bounded and not other.is_bounded and (one.low is None) != (other.low is None)
            )
        return True

    def _characters(self, item: ChartItem) -> tuple[int, int]:
        return self.tokens[item.start].start, self.tokens[item.end - 1].end

    def _with_neighbours(self, item: ChartItem) -> tuple[int, int]:
        """Return the characters [start, end) of an item and of the tokens beside it in the run."""
        return self.tokens[max(item.start - 1, self.first)].start, self.tokens[min(item.end, self.last - 1)].end

    @staticmethod
    def _without_repeats(ranges: Sequence[DateRange]) -> list[DateRange]:
        """Return the ranges without those that repeat the range before: "today, [20 November]"."""
        return [one for place, one in enumerate(ranges) if not place or one.period != ranges[place - 1].period]
