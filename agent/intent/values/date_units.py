"""Recognise fields whose texts are days, months, quarters or years ("3 May 2024", 2025年11月), and filter them."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, timedelta
from functools import lru_cache
from typing import Any

from agent.intent.language import lexicon
from agent.intent.time.dates import read_dates
from agent.intent.time.periods import Calendar, Period, add_months
from retrievers.core.types import FieldCatalogue, FieldValues

Json = dict[str, Any]

_MOST = 600
"""Maximum distinct texts of such a field, fifty years of months, because each of them has to be parsed."""
_LONGEST = 20
_YEAR = re.compile(r"(?<!\d)(?:19|20)\d\d(?!\d)")
_NUMBERED = re.compile(r"(\d{4})(\D+)(\d{1,2})(\D*)|(\d{4})(\D*)")
_NUMERIC = re.compile(r"(\d{1,2})[/.-](\d{1,2})[/.-]\d{4}")
_MONTHS = (1, 3, 12)
_CALENDARS = (Calendar(date(2001, 2, 3)), Calendar(date(2031, 8, 7), week_start=6, fiscal_start=7))
"""A text must mean the same in both: its meaning must not depend on the day of asking or on the fiscal year."""
_YEAR_WORDS = frozenset(["year", "yr", "年", "年份", "年度"])


@dataclass(frozen=True, slots=True)
class DateUnits:
    """The days, months, quarters or years, here called units, that the texts of a field stand for.

    Attributes:
        months: length of a unit in months: 1, 3 or 12; 0 for days.
        texts: the text of each unit in the catalogue, by its first day.
        form: a format string with `year` and `number` for the text of any unit, such as "{year}-Q{number}"; None if the
            texts have no common form, or if their order as texts is not that of time.
    """

    months: int
    texts: Mapping[date, str]
    form: str | None

    @property
    def functions(self) -> frozenset[str]:
        """The functions of aggregates that make such units from days: "year_quarter", or "quarter" within a year."""
        return frozenset({0: [], 1: ["year_month"], 3: ["year_quarter", "quarter"], 12: ["year"]}[self.months])

    @property
    def low(self) -> date:
        """The first day of the earliest unit."""
        return min(self.texts)

    @property
    def high(self) -> date:
        """The last day of the latest unit."""
        return max(self.texts) if not self.months else add_months(max(self.texts), self.months) - timedelta(days=1)

    def filter(self, name: str, period: Period) -> Json | None:
        """Return the filter of a period on the field `name`.

        The result is None if the period begins or ends inside a unit, or if the field has no `form` and the period
        contains no known unit.
        """
        low, high = period.low, period.high
        if not all(day is None or self._begins(day) for day in (low, high)):
            return None
        if self.form is None:
            held = [
                text
                for day, text in sorted(self.texts.items())
                if (low is None or low <= day) and (high is None or day < high)
            ]
            return _among(name, held) if held else None
        if low is not None and high is not None and add_months(low, self.months) == high:
            return _among(name, [self.text_of(low)])
        bounds: list[Json] = [
            {"type": kind, "key": name, "value": self.text_of(day)}
            for kind, day in (("gte", low), ("lt", high))
            if day is not None
        ]
        return bounds[0] if len(bounds) == 1 else {"type": "and", "filters": bounds}

    def first(self) -> str:
        """Return the text of the earliest unit."""
        return self.texts[min(self.texts)]

    def last(self) -> str:
        """Return the text of the latest unit."""
        return self.texts[max(self.texts)]

    def is_written(self, period: Period, phrase: str) -> bool:
        """Return whether `phrase`, which means `period`, is part of the field's text: "Q3" of "2025-Q3"; not a year."""
        text = self.texts.get(period.low, "") if period.low is not None else ""
        words = [word.casefold() for word in phrase.split() if not word.isalpha() and not word.isdecimal()]
        return any(word in text.casefold() for word in words)

    def up_to(self, day: date) -> date:
        """Return the day if a unit begins on it, else the first day of the next unit."""
        if self._begins(day):
            return day
        begin = date(day.year, (day.month - 1) // self.months * self.months + 1, 1)
        return add_months(begin, self.months)

    def _begins(self, day: date) -> bool:
        return not self.months or (day.day == 1 and (day.month - 1) % self.months == 0)

    def text_of(self, day: date) -> str:
        """Return the text of the unit that begins on a day; "" if it is unknown."""
        if self.form is None:
            return self.texts.get(day, "")
        return self.form.format(year=day.year, number=(day.month - 1) // self.months + 1)


def date_units_of(values: FieldValues) -> DateUnits | None:
    """Return the units of a field of texts; None if a text is no day, month, quarter or year, or if these are mixed."""
    field, texts = values.field, values.values
    is_known = field.type == "string" and 0 < values.distinct == len(texts) <= _MOST
    if not is_known or not all(len(text) <= _LONGEST and _YEAR.search(text) for text in texts):
        return None
    found: dict[date, str] = {}
    months = set[int]()
    for text in texts:
        period = _period_of(text)
        if period is None or period.begin in found:
            return None
        found[period.begin] = text
        if period.end - period.begin == timedelta(days=1):
            months.add(0)
            continue
        months.add((period.end.year - period.begin.year) * 12 + period.end.month - period.begin.month)
        if months.isdisjoint(_MONTHS) or add_months(period.begin, max(months)) != period.end:
            return None
    if len(months) > 1:
        return None
    (length,) = months
    if not length:
        return DateUnits(0, found, None) if _is_order_sure(found) else None
    if any((begin.month - 1) % length for begin in found):
        return None  # seasons and terms are no quarters
    if length == max(_MONTHS) and _YEAR_WORDS.isdisjoint(lexicon.name_words(field.name)):
        return None  # four digits alone may be anything
    return DateUnits(length, found, _form(found.values(), length))


def _is_order_sure(days: Mapping[date, str]) -> bool:
    """Return whether the order of day and month in texts such as 10/9/2009 is sure.

    The order is sure if a number above 12 shows it and all texts agree, or if no text can be read in both ways.
    """
    numbers = {day: match for day, text in days.items() if (match := _NUMERIC.fullmatch(text)) is not None}
    orders = [
        {int(match[1]) == day.day, int(match[2]) != day.day} for day, match in numbers.items() if match[1] != match[2]
    ]
    shown = any(max(int(match[1]), int(match[2])) > _MONTHS[-1] for match in numbers.values())
    return not orders or (shown and len(set.union(*orders)) == 1)


def with_day_ranges(catalogue: FieldCatalogue, units: Mapping[str, DateUnits]) -> FieldCatalogue:
    """Return the catalogue with the first and last day of each field in `units`, such as "2024-05-03", as its range."""
    if not units:
        return catalogue
    ends = {name: (one.low.isoformat(), one.high.isoformat()) for name, one in units.items()}
    fields = {
        name: replace(values, low=ends[name][0], high=ends[name][1]) if name in ends else values
        for name, values in catalogue.fields.items()
    }
    return replace(catalogue, fields=fields)


def _among(name: str, texts: list[str]) -> Json:
    if len(texts) == 1:
        return {"type": "eq", "key": name, "value": texts[0]}
    return {"type": "in", "key": name, "value": texts}


@lru_cache(maxsize=4096)
def _period_of(text: str) -> Period | None:
    """Return the period that a whole text means, if it is the same under both `_CALENDARS`; None for any other text."""
    one, other = (read_dates(text, calendar).ranges for calendar in _CALENDARS)
    if len(one) != 1 or one != other or one[0].phrase != text:
        return None
    return one[0].period if one[0].period.is_bounded and one[0].period.next_occurrence is None else None


def _form(texts: Iterable[str], months: int) -> str | None:
    """Return the format string of texts for units of `months` months, see `DateUnits.form`; None without one."""
    found = set[tuple[str, ...]]()
    for text in texts:
        read = _NUMBERED.fullmatch(text)
        if read is None:
            return None
        parts = ("{year}", read[2], read[4], str(len(read[3]))) if read[1] else ("{year}", read[6], "", "0")
        found.add(tuple(parts))
    if len(found) > 1:
        return None
    ((year, mark, tail, digits),) = found
    number = f"{{number:0{digits}d}}" if digits != "0" else ""
    is_ordered = (months, digits) in ((1, "2"), (3, "1"), (12, "0"))
    return f"{year}{mark}{number}{tail}" if is_ordered and not {"{", "}"} & {*mark, *tail} else None
