"""Calendar periods: half-open ranges of days, steps from one to the next, and parts of them."""

from calendar import monthrange
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Literal

Unit = Literal[
    "day",
    "workday",
    "weekend",
    "workweek",
    "week",
    "fortnight",
    "month",
    "quarter",
    "half",
    "year",
    "decade",
    "century",
]
Duration = tuple[tuple[float, Unit], ...]
"""(amount, unit) pairs whose sum is the duration: 3 months and 2 weeks."""

_DAYS = {"day": 1, "workday": 1, "weekend": 7, "workweek": 7, "week": 7, "fortnight": 14}
_OF_WEEK = {"weekend": (5, 2), "workweek": (0, 5)}
"""(first weekday, number of days) of the units that are parts of a week; 0 is Monday."""
_MONTHS = {"month": 1, "quarter": 3, "half": 6, "year": 12, "decade": 120, "century": 1200}
_DAYS_OF_MONTH = 30
_SATURDAY, _THURSDAY = 5, 3
_YEARS_AROUND = 9
"""How many years away an occurrence of a part of the year is looked for: 29 February may be 8 years away."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """What "today", "week" and "fiscal year" mean to the person who asks.

    Attributes:
        today: the current day in the asker's time zone.
        week_start: first day of the week, 0 for Monday to 6 for Sunday.
        fiscal_start: first month of the fiscal year, 1 to 12; a fiscal year that does not begin in January
            is named after the calendar year in which it ends.
    """

    today: date
    week_start: int = 0
    fiscal_start: int = 1


@dataclass(frozen=True, slots=True)
class Period:
    """Days from `low` (inclusive) to `high` (exclusive); None is an open end.

    If both ends are the same day, the period is a point of time, the start of that day: "the end of 2019".

    Attributes:
        until: for a period up to now (`high` is None), the day after today: documents dated later are outside.
        next_occurrence: for a part of the year named without a year ("June"), the next one; the period is the latest.
        start_within: for "starting in June", June. A field of start dates must lie in it; other dates follow `low`.
    """

    low: date | None
    high: date | None
    until: date | None = field(default=None, compare=False)
    next_occurrence: "Period | None" = field(default=None, compare=False)
    start_within: "Period | None" = field(default=None, compare=False)

    @property
    def is_bounded(self) -> bool:
        return self.low is not None and self.high is not None

    @property
    def begin(self) -> date:
        """The first day; the period must not be open at its start."""
        assert self.low is not None
        return self.low

    @property
    def end(self) -> date:
        """The day after the last day; the period must not be open at its end."""
        assert self.high is not None
        return self.high

    @property
    def days(self) -> int:
        """Number of days of a bounded period."""
        return (self.end - self.begin).days

    def holds(self, other: "Period") -> bool:
        """Return whether every day of another period is in this one; False if one of the two has an open end."""
        return self.is_bounded and other.is_bounded and self.begin <= other.begin and other.end <= self.end


@dataclass(frozen=True, slots=True)
class YearlyPeriod:
    """A part of every year: a month, a quarter, a day, a holiday, or a run of them.

    Attributes:
        at: returns the period in a given year; raises `ValueError` for a year without it (29 February).
        is_day: whether it is a single day.
    """

    at: Callable[[int], Period]
    is_day: bool = False


def add_months(day: date, months: int) -> date:
    """Return the same day of the month some months later; in a shorter month, its last day.

    Raises:
        ValueError: the result is before year 1 or after year 9999.
    """
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    if not 1 <= year <= 9999:
        raise ValueError("the year is out of range")
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def shift_day(day: date, unit: Unit, amount: float) -> date:
    """Return the day some units later, or earlier for a negative amount. Half a month is 15 days.

    Raises:
        ValueError, OverflowError: the result is before year 1 or after year 9999.
    """
    if unit == "workday":
        return _shift_workdays(day, int(amount))
    if unit in _DAYS:
        return day + timedelta(days=int(amount * _DAYS[unit]))
    months = amount * _MONTHS[unit]
    return add_months(day, int(months)) + timedelta(days=int((months - int(months)) * _DAYS_OF_MONTH))


def _shift_workdays(day: date, amount: int) -> date:
    """Return the nearest day with `amount` workdays in [day, result); if negative, with -amount in [result, day)."""
    while amount:
        step = 1 if amount > 0 else -1
        passed = day if step > 0 else day - timedelta(days=1)
        amount -= step if passed.weekday() < _SATURDAY else 0
        day += timedelta(days=step)
    return day


def shift_by_duration(day: date, duration: Duration, sign: int = 1) -> date:
    """Return the day that is a duration later, or earlier for a `sign` of -1."""
    for amount, unit in duration:
        day = shift_day(day, unit, sign * amount)
    return day


def day_period(day: date) -> Period:
    return Period(day, day + timedelta(days=1))


def period_containing(day: date, unit: Unit, calendar: Calendar) -> Period:
    """Return the calendar period (week, month ...) that contains a day; for parts of a week, the part of its week."""
    if unit in ("day", "workday"):
        return day_period(day)
    if unit in _DAYS:
        low = day - timedelta(days=(day.weekday() - calendar.week_start) % 7)
        if unit not in _OF_WEEK:
            return Period(low, low + timedelta(days=_DAYS[unit]))
        first, count = _OF_WEEK[unit]
        low += timedelta(days=(first - low.weekday()) % 7)
        return Period(low, low + timedelta(days=count))
    if unit in ("decade", "century"):
        years = _MONTHS[unit] // 12
        low = date(max(day.year // years * years, 1), 1, 1)
    else:
        low = date(day.year, (day.month - 1) // _MONTHS[unit] * _MONTHS[unit] + 1, 1)
    return Period(low, add_months(low, _MONTHS[unit]))


def relative_period(calendar: Calendar, unit: Unit, steps: int) -> Period:
    """Return the calendar period `steps` units from the present one: -1 for the last, 0 for this, 1 for the next."""
    return period_containing(
        shift_day(period_containing(calendar.today, unit, calendar).begin, unit, steps), unit, calendar
    )


def complete_units(calendar: Calendar, unit: Unit, steps: int) -> Period:
    """Return a period of complete calendar units: for -2 steps the two before the present unit, for 2 the next two."""
    present = period_containing(calendar.today, unit, calendar)
    if steps < 0:
        return Period(shift_day(present.begin, unit, steps), present.low)
    return Period(present.high, shift_day(present.end, unit, steps))


def is_month(period: Period) -> bool:
    """Return whether a bounded period is a calendar month."""
    return period.begin.day == 1 and add_months(period.begin, 1) == period.end


def year_period(number: int) -> Period:
    return Period(date(number, 1, 1), date(number + 1, 1, 1))


def full_year(number: int, calendar: Calendar) -> int:
    """Return the year for two digits: this century up to 29 and up to five years ahead, else the last century."""
    return number + (2000 if number < 30 or 2000 + number <= calendar.today.year + 5 else 1900)


def iso_week(year: int, number: int) -> Period:
    low = date.fromisocalendar(year, number, 1)
    return Period(low, low + timedelta(days=7))


def fiscal_year(number: int, calendar: Calendar) -> Period:
    """Return the fiscal year that is named after the year `number`, see `Calendar.fiscal_start`."""
    first = calendar.fiscal_start
    low = date(number if first == 1 else number - 1, first, 1)
    return Period(low, add_months(low, 12))


def current_fiscal_year(calendar: Calendar) -> int:
    """Return the number by which the current fiscal year is named."""
    later = calendar.fiscal_start > 1 and calendar.today.month >= calendar.fiscal_start
    return calendar.today.year + int(later)


def months_of_year(whole: Period, first: int, count: int) -> Period:
    """Return `count` months of a (fiscal) year, starting at its month `first`, counted from 0."""
    low = add_months(whole.begin, first)
    return Period(low, add_months(low, count))


def nth_units(whole: Period, unit: Unit, number: int, count: int, calendar: Calendar) -> Period:
    """Return the nth run of `count` units in a period: "the second two weeks of May" for number 2, count 2.

    A week belongs to the period with most of its days.

    Args:
        number: from 1; -1 is the last.
    Raises:
        ValueError: the run lies outside the period.
    """
    back = number < 0
    if unit in ("week", "weekend", "workweek", "fortnight"):
        inside = _SATURDAY if unit == "weekend" else _THURSDAY
        edge = whole.end - timedelta(days=1) if back else whole.begin
        first = edge - timedelta(days=(edge.weekday() - inside) % 7 if back else -((inside - edge.weekday()) % 7))
        low = period_containing(first, unit, calendar).begin
    else:
        low = shift_day(whole.end, unit, -1) if back else whole.begin
    steps = number + 2 - count if back else (number - 1) * count
    low = shift_day(low, unit, steps)
    last = period_containing(shift_day(low, unit, count - 1), unit, calendar) if unit in _OF_WEEK else None
    if not whole.begin <= low + timedelta(days=_THURSDAY if unit == "week" else 0) < whole.end:
        raise ValueError("outside of the period")
    high = last.end if last else shift_day(low, unit, count)
    if unit not in _DAYS and high > whole.end:
        raise ValueError("the run is longer than the period")  # 5月前三个月 ("the first three months of May")
    return Period(low, high)


def nth_weekday(whole: Period, weekday: int, number: int) -> Period:
    """Return the nth Monday (weekday 0) to Sunday (6) of a period, counted from 1; -1 is the last.

    Raises:
        ValueError: the period has fewer such days.
    """
    if number < 0:
        last = whole.end - timedelta(days=1)
        day = last - timedelta(days=(last.weekday() - weekday) % 7) + timedelta(weeks=number + 1)
    else:
        day = whole.begin + timedelta(days=(weekday - whole.begin.weekday()) % 7, weeks=number - 1)
    if not whole.begin <= day < whole.end:
        raise ValueError("outside of the period")
    return day_period(day)


def part_of_period(whole: Period, part: str) -> Period:
    """Return the "early", "mid" or "late" part of a period. The parts are wide and overlap; "late" is the second half.

    Of a month, "first", "second" and "third" are days 1 to 10, 11 to 20 and the others (上旬, 中旬, 下旬).
    """
    low, days = whole.begin, whole.days
    place = ("first", "second", "third").index(part) if part in ("first", "second", "third") else None
    if place is not None and days <= 31:
        bounds = [low, low.replace(day=11), low.replace(day=21), whole.end]
        return Period(bounds[place], bounds[place + 1])
    if place is not None and days <= 366:
        return months_of_year(whole, *((0, 3), (4, 4), (9, 3))[place])
    part = ("early", "mid", "late")[place] if place is not None else part
    if days > 366:
        years = round(days / 365.25)
        parts = {"early": (0, years // 2), "mid": (3 * years // 10, 7 * years // 10), "late": (years // 2, years)}
        return Period(low.replace(year=low.year + parts[part][0]), low.replace(year=low.year + parts[part][1]))
    if days > 300:
        first, count = {"early": (0, 4), "mid": (4, 4), "late": (6, 6)}[part]
        return months_of_year(whole, first, count)
    if days > 31:
        starts = {"early": (0, days // 2), "mid": (days // 3, days - days // 3), "late": (days // 2, days)}
    elif days > 7:
        starts = {"early": (0, 15), "mid": (9, 20), "late": (15, days)}
    else:
        starts = {"early": (0, 3), "mid": (1, 5), "late": (3, 7)}
    return Period(low + timedelta(days=starts[part][0]), low + timedelta(days=starts[part][1]))


def _occurrences(part: YearlyPeriod, calendar: Calendar, first: int, last: int, step: int) -> Iterator[Period]:
    """Yield the occurrences of a part of the year from `first` to `last` years from now, both inclusive."""
    for away in range(first, last + step, step):
        with suppress(ValueError, OverflowError):
            yield part.at(calendar.today.year + away)


def latest_occurrence(part: YearlyPeriod, calendar: Calendar, *, over: bool = False) -> Period:
    """Return the latest occurrence of a part of the year that has begun; with `over`, the latest that has ended.

    Raises:
        ValueError: there is none within `_YEARS_AROUND` years.
    """
    for one in _occurrences(part, calendar, 1, -_YEARS_AROUND, -1):
        if (one.end if over else one.begin) <= calendar.today:
            return one
    raise ValueError("there is no such part of a year")


def latest_with_next(part: YearlyPeriod, calendar: Calendar) -> Period:
    """Return the latest occurrence of a part of the year, with the next one in `next_occurrence`.

    Raises:
        ValueError: there is none, see `latest_occurrence`.
    """
    ahead = (one for one in _occurrences(part, calendar, 0, _YEARS_AROUND, 1) if one.begin > calendar.today)
    return replace(latest_occurrence(part, calendar), next_occurrence=next(ahead, None))


def nearest_occurrence(part: YearlyPeriod, calendar: Calendar) -> Period:
    """Return the occurrence of a part of the year whose first day is the fewest days from today."""
    near = _occurrences(part, calendar, -_YEARS_AROUND, _YEARS_AROUND, 1)
    return min(near, key=lambda one: abs((one.begin - calendar.today).days))


def latest_weekday(weekday: int, calendar: Calendar) -> Period:
    """Return the latest Monday (weekday 0) to Sunday (6), which may be today."""
    return day_period(calendar.today - timedelta(days=(calendar.today.weekday() - weekday) % 7))


def day_of_month(number: int, calendar: Calendar, weekday: int | None = None) -> Period:
    """Return the latest day with that number in its month; with a weekday, the nearest day that has both."""
    first = calendar.today.replace(day=1)
    found = []
    for months in range(-24, 25):
        with suppress(ValueError):
            found.append(add_months(first, months).replace(day=number))
    if weekday is None:
        return day_period([day for day in found if day <= calendar.today][-1])
    both = [day for day in found if day.weekday() == weekday]
    return day_period(min(both, key=lambda day: abs((day - calendar.today).days)))


def easter(number: int) -> date:
    """Return Easter Sunday of a year.

    Source:
        The anonymous Gregorian computus, Nature 13 (1876), p. 487.
    """
    a, (b, c) = number % 19, divmod(number, 100)
    (d, e), g = divmod(b, 4), (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    m = (32 + 2 * e + 2 * i - h - k) % 7
    n = (a + 11 * h + 22 * m) // 451
    month, day = divmod(h + m - 7 * n + 114, 31)
    return date(number, month, day + 1)
