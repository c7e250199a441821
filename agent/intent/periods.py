"""Calendar periods: half-open ranges of days, and steps from one to the next."""

from calendar import monthrange
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal

Unit = Literal["day", "week", "month", "quarter", "half", "year", "decade"]


@dataclass(frozen=True, slots=True)
class Calendar:
    """What "today", a week and a fiscal year mean to the one who asks.

    Attributes:
        today: the day it is in the asker's time zone.
        week_start: first day of the week, 0 for Monday to 6 for Sunday.
        fiscal_start: first month of the fiscal year, 1 to 12; a fiscal year that does not begin in January
            is named after the calendar year in which it ends.
    """

    today: date
    week_start: int = 0
    fiscal_start: int = 1


@dataclass(frozen=True, slots=True)
class Period:
    """Days from `low` to before `high`; None is open."""

    low: date | None
    high: date | None

    @property
    def is_bounded(self) -> bool:
        return self.low is not None and self.high is not None


def add_months(day: date, months: int) -> date:
    """The same day some months later, or the month's last when it is shorter.

    Raises:
        ValueError: before year 1 or after year 9999.
    """
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    if not 1 <= year <= 9999:
        raise ValueError("the year is out of range")
    return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))


def shift(day: date, unit: Unit, amount: int) -> date:
    """The day some units later; earlier for a negative amount.

    Raises:
        ValueError, OverflowError: out of the calendar.
    """
    if unit in ("day", "week"):
        return day + timedelta(days=amount * (7 if unit == "week" else 1))
    return add_months(day, amount * {"month": 1, "quarter": 3, "half": 6, "year": 12, "decade": 120}[unit])


def containing(day: date, unit: Unit, calendar: Calendar) -> Period:
    """The calendar period that a day lies in."""
    if unit == "day":
        low = day
    elif unit == "week":
        low = day - timedelta(days=(day.weekday() - calendar.week_start) % 7)
    elif unit == "decade":
        low = date(max(day.year // 10 * 10, 1), 1, 1)
    else:
        months = {"month": 1, "quarter": 3, "half": 6, "year": 12}[unit]
        low = date(day.year, (day.month - 1) // months * months + 1, 1)
    return Period(low, shift(low, unit, 1))


def relative(calendar: Calendar, unit: Unit, steps: int) -> Period:
    """The calendar period some steps from the present one: -1 is the last, 0 this, 1 the next."""
    low = containing(calendar.today, unit, calendar).low
    assert low is not None
    moved = shift(low, unit, steps)
    return Period(moved, shift(moved, unit, 1))


def year(number: int) -> Period:
    return Period(date(number, 1, 1), date(number + 1, 1, 1))


def months(number: int, first: int, count: int) -> Period:
    """Some months of a year; they may run into the next one."""
    low = date(number, first, 1)
    return Period(low, add_months(low, count))


def fiscal_year(number: int, calendar: Calendar) -> Period:
    """The fiscal year of that name."""
    first = calendar.fiscal_start
    return months(number if first == 1 else number - 1, first, 12)


def present_fiscal_year(calendar: Calendar) -> int:
    """The name of the fiscal year it is."""
    later = calendar.fiscal_start > 1 and calendar.today.month >= calendar.fiscal_start
    return calendar.today.year + int(later)


def within(whole: Period, part: tuple[int, int]) -> Period:
    """Months `first` (from 0) and `count` of a year-like period."""
    assert whole.low is not None
    low = add_months(whole.low, part[0])
    return Period(low, add_months(low, part[1]))


def latest(first_month: int, count: int, calendar: Calendar, *, before_now: bool = False) -> Period:
    """The latest run of those months that has begun.

    Args:
        before_now: the latest that is over ("last December", said in December, is a year ago).
    """
    for number in (calendar.today.year, calendar.today.year - 1, calendar.today.year - 2):
        found = months(number, first_month, count)
        assert found.low is not None
        assert found.high is not None
        if (found.high if before_now else found.low) <= calendar.today:
            return found
    raise AssertionError("one of three years must do")
