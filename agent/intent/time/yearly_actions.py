"""Values of date phrases: numbers, years, and the parts of every year.

Each function makes the value of a `grammar` rule: its arguments are the calendar and the values of the rule's parts. If
it returns None or raises a `ValueError`, the rule does not apply. A year that may also be a number is an `int`.
"""

import re
from collections.abc import Callable
from datetime import date, timedelta

from agent.intent.time import periods
from agent.intent.time.periods import Calendar, Period, YearlyPeriod

_HOLIDAY = re.compile(r"(?:(?P<easter>easter)|(?P<m>\d+)-(?P<d>\d+)(?:-(?P<nth>\d))?)(?P<days>[+-]\d+)?")
_ONE_DAY = timedelta(days=1)
_MONTHS = 12


def pass_value(calendar: Calendar, value: object) -> object:
    return value


def add_up(calendar: Calendar, *numbers: int) -> int:
    return sum(numbers)


def number_list(calendar: Calendar, *numbers: int) -> tuple[int, ...]:
    return numbers


def append_number(calendar: Calendar, numbers: tuple[int, ...], number: int) -> tuple[int, ...]:
    return (*numbers, number)


def day_number(calendar: Calendar, number: int) -> int | None:
    return number if 1 <= number <= 31 else None


# Years and the parts of every year.


def year(calendar: Calendar, number: int) -> Period:
    return periods.year_period(number)


def short_year(calendar: Calendar, number: int) -> Period:
    return periods.year_period(periods.full_year(number, calendar))


def long_year(calendar: Calendar, number: int) -> Period | None:
    """Return the year written as a number, 两千零八年 ("2008"); None unless 1000 to 2199."""
    return periods.year_period(number) if 1000 <= number < 2200 else None


def spoken_year(calendar: Calendar, hundreds: int, rest: int) -> int | None:
    """Return the year of "nineteen ninety three" or "twenty ten"; None if the numbers do not form one."""
    number = hundreds * 100 + rest
    return number if 10 <= hundreds <= 20 and rest >= 10 and rest < 100 else None


def hundreds(calendar: Calendar, hundreds: int, rest: int = 0) -> int:
    return hundreds * 100 + rest


def thousands(calendar: Calendar, thousands: int, rest: int = 0) -> int:
    return thousands * 1000 + rest


def relative_year(calendar: Calendar, steps: int) -> Period:
    return periods.relative_period(calendar, "year", steps)


def months(first: int, count: int) -> YearlyPeriod:
    return YearlyPeriod(lambda number: periods.months_of_year(periods.year_period(number), first, count))


def season(calendar: Calendar, month: int) -> YearlyPeriod:
    return months(month - 1, 3)


def month_day(calendar: Calendar, month: YearlyPeriod, day: int) -> YearlyPeriod:
    return YearlyPeriod(lambda number: periods.day_period(month.at(number).begin.replace(day=day)), is_day=True)


def digits_day(calendar: Calendar, pair: tuple[int, int]) -> YearlyPeriod:
    return YearlyPeriod(lambda number: periods.day_period(date(number, *pair)), is_day=True)


def holiday(calendar: Calendar, spelled: str) -> YearlyPeriod:
    """Return a holiday from its key in words/*.toml, the same day of every year.

    "12-25" is a date, "11-3-4" the fourth (0: the last) Thursday of November, "easter+1" the day after Easter.
    """
    read = _HOLIDAY.fullmatch(spelled)
    assert read is not None
    away = timedelta(days=int(read["days"] or 0))

    def at(number: int) -> Period:
        if read["easter"]:
            return periods.day_period(periods.easter(number) + away)
        if read["nth"] is None:
            return periods.day_period(date(number, int(read["m"]), int(read["d"])))
        month = periods.months_of_year(periods.year_period(number), int(read["m"]) - 1, 1)
        return periods.day_period(periods.nth_weekday(month, int(read["d"]), int(read["nth"]) or -1).begin + away)

    return YearlyPeriod(at, is_day=True)


def yearly_run(calendar: Calendar, first: YearlyPeriod, last: YearlyPeriod) -> YearlyPeriod:
    """Return the run from one part of the year to another; `at(2024)` of a winter run ends in 2024."""

    def at(number: int) -> Period:
        low, high = first.at(number).begin, last.at(number).end
        return Period(low if low < high else first.at(number - 1).begin, high)

    return YearlyPeriod(at)


def adjacent_run(calendar: Calendar, first: YearlyPeriod, last: YearlyPeriod) -> YearlyPeriod | None:
    """Return the run of two parts of the year, of which the second begins where the first ends: "January or February".

    None if other days lie between them.
    """
    year = calendar.today.year
    begins = {last.at(year).low, last.at(year + 1).low}
    return yearly_run(calendar, first, last) if first.at(year).high in begins else None


def narrowed_part(calendar: Calendar, whole: YearlyPeriod, part: YearlyPeriod) -> YearlyPeriod | None:
    """Return the part of the year that repeats or narrows another: "Easter (5 April)", "spring (April and May)".

    None if it does not lie within the other in last, this or next year.
    """
    years = range(calendar.today.year - 1, calendar.today.year + 2)
    is_part = any(whole.at(year) == part.at(year) or whole.at(year).holds(part.at(year)) for year in years)
    return part if is_part else None


def run_to_day(calendar: Calendar, first: YearlyPeriod, day: int) -> YearlyPeriod:
    """Return the days of "April 9th through 17th" of every year, ends inclusive."""

    def at(number: int) -> Period:
        low = first.at(number)
        if not first.is_day or low.begin.day >= day:
            raise ValueError("the days run backwards")
        return Period(low.low, low.begin.replace(day=day) + _ONE_DAY)

    return YearlyPeriod(at)


def run_from_day(calendar: Calendar, day: int, last: YearlyPeriod) -> YearlyPeriod:
    """Return the days of "9th through 17th of April" of every year, ends inclusive."""

    def at(number: int) -> Period:
        high = last.at(number)
        if not last.is_day or high.begin.day <= day:
            raise ValueError("the days run backwards")
        return Period(high.begin.replace(day=day), high.high)

    return YearlyPeriod(at)


def in_year(calendar: Calendar, part: YearlyPeriod, whole: Period | int) -> Period:
    return part.at(whole if isinstance(whole, int) else whole.begin.year)


def from_year(calendar: Calendar, part: YearlyPeriod, whole: Period | int) -> Period:
    """Return 2020年12月到2月 ("December 2020 to February"): the run begins in the year named before it."""
    named, number = in_year(calendar, part, whole), whole if isinstance(whole, int) else whole.begin.year
    return named if named.begin.year >= number else part.at(number + 1)


def year_month(calendar: Calendar, named: tuple[int, int]) -> Period | None:
    number, month = named
    return months(month - 1, 1).at(number) if 1 <= month <= 12 else None


def season_over_years(
    calendar: Calendar, season: YearlyPeriod, first: Period | int, last: Period | int
) -> Period | None:
    """Return "winter 2018-2019": the season that begins in the first year and ends in the last; None if it does not."""
    if isinstance(first, int) and isinstance(last, int) and last < 100:
        last += first // 100 * 100
    named = in_year(calendar, season, first)
    return named if named.end.year == as_period(calendar, last).begin.year > named.begin.year else None


def over_new_year(calendar: Calendar, part: YearlyPeriod, first: int) -> Period | None:
    """Return "winter 2018/19", the occurrence that begins in the year `first` and ends in the year after; else None."""
    found = (part.at(year) for year in (first, first + 1))
    return next((one for one in found if (one.begin.year, one.end.year) == (first, first + 1)), None)


def in_short_year(calendar: Calendar, part: YearlyPeriod, number: int) -> Period | None:
    # Two digits up to 31 after a month are a day.
    return part.at(periods.full_year(number, calendar)) if number > 31 else None


def in_marked_year(calendar: Calendar, part: YearlyPeriod, number: int) -> Period:
    return part.at(periods.full_year(number, calendar))


def part_of_year(calendar: Calendar, number: int, count: int) -> YearlyPeriod | None:
    """Return the nth month, quarter or half (`count` 1, 3 or 6 months) of every year, counted from 1.

    None if a year has no such part.
    """
    return months(count * (number - 1), count) if 1 <= number <= _MONTHS // count else None


def numbered_parts(
    calendar: Calendar, numbers: tuple[int, ...], whole: Period | int, count: int
) -> tuple[Period, ...] | None:
    """Return the months, quarters or halves (`count` 1, 3 or 6 months) with these numbers of the year `whole`.

    None if a year has no such part.
    """
    named = [part_of_year(calendar, number, count) for number in numbers]
    return tuple(in_year(calendar, one, whole) for one in named if one) if all(named) else None


def run_by_number(count: int) -> Callable[[Calendar, tuple[int, int]], YearlyPeriod | None]:
    """Return a function for a run of months (`count` 1) or quarters (3): 3到5月 ("months 3 to 5"); None if invalid."""

    def make(calendar: Calendar, numbers: tuple[int, int]) -> YearlyPeriod | None:
        first, last = numbers
        is_run = 1 <= first < last <= _MONTHS // count
        return months(count * (first - 1), count * (last - first + 1)) if is_run else None

    return make


def run_of_years(calendar: Calendar, first: int, last: int) -> Period | None:
    """Return the years of "2014–16", both inclusive; None for "2010–12", which may be a month."""
    high = first // 100 * 100 + last
    return Period(date(first, 1, 1), date(high + 1, 1, 1)) if last > _MONTHS and first < high else None


def as_period(calendar: Calendar, value: Period | int | YearlyPeriod) -> Period:
    """Return a value as a period: a number as that year, a part of every year as its latest occurrence."""
    if isinstance(value, YearlyPeriod):
        return periods.latest_with_next(value, calendar)
    return periods.year_period(value) if isinstance(value, int) else value
