"""Values of date phrases: days, weeks and months by name or number, and parts of periods.

Each function makes the value of a `grammar` rule, as described in `yearly`. A `weekday` is 0 (Monday) to 6 (Sunday);
`steps` are units from now: -1 for "last", 0 for "this", 1 for "next".
"""

from collections.abc import Callable
from dataclasses import replace
from datetime import date, timedelta

from agent.intent.time import periods
from agent.intent.time.periods import Calendar, Period, Unit, YearlyPeriod
from agent.intent.time.range_actions import up_to_now
from agent.intent.time.yearly_actions import as_period, digits_day, in_year, months

_MOST_UNITS = 999
_LEAP_YEAR, _DAYS_OF_YEAR, _DAYS_OF_WEEK = 2024, 366, 7
_ONE_DAY = timedelta(days=1)
_MIDDLE_OF_MONTH = 14
"""Days from the first of a month to its middle."""


# Days, weeks and months by their name or number.


def named_date(calendar: Calendar, parts: tuple[int | str, int, int]) -> Period:
    year, month, day = parts
    number = year if isinstance(year, int) else periods.full_year(int(year), calendar)
    return periods.day_period(date(number, month, day))


def repeated_date(calendar: Calendar, one: Period, other: Period | YearlyPeriod) -> Period | None:
    """Return the period that is named twice in "Easter 2024, 31 March"; None if the two differ."""
    return one if one in _in_years_of(one, other) else None


def narrowed_date(calendar: Calendar, one: Period, other: Period | YearlyPeriod) -> Period | None:
    """Return the part of a period that is named after it: "next week (16-20 March)"; None if it is no part of it."""
    parts = _in_years_of(one, other)
    return next((replace(part, next_occurrence=None) for part in parts if part == one or one.holds(part)), None)


def _in_years_of(one: Period, other: Period | YearlyPeriod) -> list[Period]:
    return [other.at(year) for year in (one.begin.year, one.end.year)] if isinstance(other, YearlyPeriod) else [other]


def yearly_made_precise(calendar: Calendar, one: YearlyPeriod, other: Period) -> Period | None:
    """Return the period of "autumn (Sept to Nov 2025)", which is `other`; None if `other` is not a part of `one`."""
    years = (other.begin.year, other.end.year)
    return next((other for year in years if one.at(year) == other or one.at(year).holds(other)), None)


def day_from_now(calendar: Calendar, days: int) -> Period:
    return periods.day_period(calendar.today + timedelta(days=days))


def relative_unit(calendar: Calendar, steps: int, unit: Unit) -> Period | None:
    return periods.relative_period(calendar, unit, steps) if unit not in ("day", "half") else None


def tomorrow_or_yesterday(calendar: Calendar, steps: int) -> Period | None:
    """Return tomorrow for "the next day" and yesterday for "the last day"; None for other `steps`."""
    return day_from_now(calendar, steps) if abs(steps) == 1 else None


def relative_yearly(calendar: Calendar, steps: int, part: YearlyPeriod) -> Period | None:
    """Return "last December" (the latest that is over), "this summer" (this year's) or "next May".

    None for more than one step.
    """
    if steps == 0:
        return part.at(calendar.today.year)
    if steps == 1:
        return part.at(periods.latest_occurrence(part, calendar).begin.year + 1)
    return periods.latest_occurrence(part, calendar, over=True) if steps == -1 else None


def coming_day(calendar: Calendar, steps: int, day: YearlyPeriod) -> Period | None:
    """Return the day for "next 5/12"; None for "the last 3/4", which may be a fraction."""
    return relative_yearly(calendar, steps, day) if steps >= 0 else None


def relative_weekday(calendar: Calendar, steps: int, weekday: int) -> Period:
    return periods.nth_weekday(periods.relative_period(calendar, "week", steps), weekday, 1)


def coming_weekday(calendar: Calendar, steps: int, weekday: int) -> Period:
    return periods.day_period(periods.latest_weekday(weekday, calendar).begin + timedelta(weeks=1))


def weekday_of(calendar: Calendar, weekday: int, week: Period) -> Period | None:
    """Return "Tuesday of next week". If `week` is a single day, return it if it is a Tuesday; else None."""
    if week.is_bounded and week.days == 1:
        return week if week.begin.weekday() == weekday else None
    return periods.nth_weekday(week, weekday, 1) if week.is_bounded and week.days == 7 else None


def yearly_weekday(calendar: Calendar, weekday: int, day: YearlyPeriod) -> Period | None:
    """Return "Friday, 6 July": the day in this year, last year or next year, whichever first is a Friday; else None."""
    if not day.is_day:
        return None
    for number in (calendar.today.year, calendar.today.year - 1, calendar.today.year + 1):
        found = day.at(number)
        if found.begin.weekday() == weekday:
            return found
    return None


def weekday_and_digits(calendar: Calendar, weekday: int, month: int, day: int) -> Period | None:
    return yearly_weekday(calendar, weekday, digits_day(calendar, (month, day)))


def weekday_and_day(calendar: Calendar, weekday: int, day: int) -> Period:
    return periods.day_of_month(day, calendar, weekday)


def latest_weekday(calendar: Calendar, weekday: int) -> Period:
    return periods.latest_weekday(weekday, calendar)


def latest_weekdays(calendar: Calendar, *weekdays: int) -> tuple[Period, ...]:
    return tuple(periods.latest_weekday(one, calendar) for one in weekdays)


def weekdays_of(calendar: Calendar, first: int, last: int, week: Period) -> Period | None:
    """Return the days of "from Monday to Wednesday last week"; None if `week` is no week or the days run backwards."""
    if not week.is_bounded or week.days != 7:
        return None
    low, high = (periods.nth_weekday(week, one, 1) for one in (first, last))
    return Period(low.low, high.high) if low.begin < high.begin else None


def latest_of_month(calendar: Calendar, day: int) -> Period | None:
    return periods.day_of_month(day, calendar) if 1 <= day <= 31 else None


def week_number(calendar: Calendar, number: int, whole: Period | int | None = None) -> Period:
    year = whole.begin.year if isinstance(whole, Period) else whole
    return periods.iso_week(year or calendar.today.year, number)


def no_such_number(calendar: Calendar, number: int, most: int) -> bool | None:
    """Return True if there is no such number, most < number < 3 * most: "Q5" (`most` is 4), month 13; else None."""
    return True if most < number < 3 * most else None


def no_such_unit(calendar: Calendar, whole: Period | int, number: int, unit: Unit) -> bool | None:
    """Return True if a period has no nth unit: 2023年第53周 ("week 53 of 2023"); else None."""
    try:
        return None if nth_unit(calendar, number, unit, as_period(calendar, whole)) else True
    except ValueError:
        return True


def no_such_day(calendar: Calendar, month: YearlyPeriod, number: int) -> bool | None:
    """Return True if a month never has a day: 5月32号 ("32 May"); else None. 29 February counts as a day."""
    return True if number > month.at(_LEAP_YEAR).days else None


def day_of(calendar: Calendar, day: int, month: Period) -> Period | None:
    """Return "the 4th of last month"; None if `month` is no calendar month."""
    return days_of(calendar, day, day, month)


def days_listed(calendar: Calendar, days: tuple[int, ...], month: Period) -> tuple[Period, ...] | None:
    """Return the days of "the 1st and 15th of June 2023"; None if `month` is no calendar month."""
    named = [day_of(calendar, day, month) for day in days]
    return tuple(one for one in named if one) if all(named) else None


def days_of(calendar: Calendar, first: int, last: int, month: Period) -> Period | None:
    """Return the days `first` to `last` (inclusive) of a month; None if `month` is none or the days run backwards."""
    if not month.is_bounded or month != months(month.begin.month - 1, 1).at(month.begin.year) or first > last:
        return None
    return Period(month.begin.replace(day=first), month.begin.replace(day=last) + _ONE_DAY)


# Parts of periods, and runs of years.


def current_unit(calendar: Calendar, unit: Unit) -> Period | None:
    """Return the present period of a unit, as in "the end of the month"; None for units that are not used like that."""
    return periods.relative_period(calendar, unit, 0) if unit not in ("day", "workday", "half", "century") else None


def period_until_now(calendar: Calendar, whole: Period) -> Period | None:
    """Return the period of "this year so far", up to now; None if it does not contain today."""
    return earlier_part(calendar, whole) if whole.is_bounded and whole.begin <= calendar.today < whole.end else None


def rest_of_period(calendar: Calendar, whole: Period) -> Period | None:
    """Return "the rest of the year" from today on; None if the period does not contain today."""
    inside = whole.is_bounded and whole.begin <= calendar.today < whole.end
    return Period(calendar.today, whole.high) if inside else None


def later_part(calendar: Calendar, whole: Period) -> Period | None:
    """Return the rest of a period from today on ("later this year"), or its late part ("later last week")."""
    return rest_of_period(calendar, whole) or narrow_period(calendar, "late", whole)


def earlier_part(calendar: Calendar, whole: Period) -> Period | None:
    """Return a period up to now ("earlier this year"), or its early part if today is outside ("earlier last week")."""
    inside = whole.is_bounded and whole.begin <= calendar.today < whole.end
    now = calendar.today + _ONE_DAY
    return Period(whole.low, now, until=now) if inside else narrow_period(calendar, "early", whole)


def to_date(calendar: Calendar, unit: Unit) -> Period:
    return up_to_now(calendar, periods.relative_period(calendar, unit, 0).begin)


def nth_unit(calendar: Calendar, number: int, unit: Unit, whole: Period) -> Period | None:
    return nth_run(calendar, number, 1, unit, whole)


def nth_of_each(
    calendar: Calendar, number: int, unit: Unit, whole: Period, other: int, other_whole: Period
) -> tuple[Period, ...] | None:
    """Return both periods of "the last quarter of 2023 and the first of 2024"; None if one does not exist."""
    named = (nth_unit(calendar, number, unit, whole), nth_unit(calendar, other, unit, other_whole))
    return tuple(one for one in named if one) if all(named) else None


def nth_run(calendar: Calendar, number: int, count: int, unit: Unit, whole: Period) -> Period | None:
    """Return "the first week" or "the last ten days" of a longer period; None if it has no such units.

    Args:
        number: which run of `count` units, from 1; -1 for the last.
    """
    if not whole.is_bounded or whole.days < 2 or count > _MOST_UNITS:
        return None
    if unit == "half" and count == 1 and (whole.days == _DAYS_OF_WEEK or 27 < whole.days < 32) and number in (1, 2, -1):
        return periods.part_of_period(whole, "early" if number == 1 else "late")
    if unit == "half" and whole.days > _DAYS_OF_YEAR:
        return (
            periods.part_of_period(whole, "early" if number == 1 else "late")
            if (number, count) in ((1, 1), (2, 1))
            else None
        )
    if unit in ("quarter", "half", "year") and whole.days < 360:
        return None
    return periods.nth_units(whole, unit, number, count, calendar)


def nth_weekday(calendar: Calendar, number: int, weekday: int, whole: Period) -> Period:
    return periods.nth_weekday(whole, weekday, number)


def narrow_period(calendar: Calendar, part: str, whole: Period) -> Period | None:
    """Return "early 2019", "late March" or "early next week"; None for a quarter and others without such parts."""
    is_week = whole.is_bounded and whole.days == 7 and part in ("early", "mid", "late")  # 周末 is no third of a week
    is_known = whole.is_bounded and (is_week or 27 < whole.days < 32 or whole.days > 360)
    return _part_with_next(whole, part) if is_known else None


def _part_with_next(whole: Period, part: str) -> Period:
    """Return `periods.part_of_period`; its `next_occurrence` is the same part of the period's next occurrence."""
    return replace(
        periods.part_of_period(whole, part),
        next_occurrence=_part_with_next(whole.next_occurrence, part) if whole.next_occurrence is not None else None,
    )


def narrow_yearly(calendar: Calendar, month: YearlyPeriod, part: str) -> YearlyPeriod:
    """Return "mid March" of every year."""
    return YearlyPeriod(lambda number: periods.part_of_period(month.at(number), part))


def narrow_month(calendar: Calendar, part: str, whole: Period | YearlyPeriod) -> Period | None:
    month = as_period(calendar, whole)
    return _part_with_next(month, part) if month.is_bounded and 27 < month.days < 32 else None


def point_of_period(calendar: Calendar, part: str, whole: Period) -> Period | None:
    """Return the start, middle or end of a period as an empty period at one day: "the end of 2019" is 2020-01-01.

    The middle of a month is its 15th. Return None if the period is empty or has no bounds, or for another part
    ("second").
    """
    if not whole.is_bounded or whole.low == whole.high:
        return None
    middle = _MIDDLE_OF_MONTH if periods.is_month(whole) else whole.days // 2
    days = {"early": 0, "first": 0, "mid": middle, "late": whole.days, "third": whole.days}.get(part)
    day = whole.begin + timedelta(days=days) if days is not None else None
    next_occurrence = (
        point_of_period(calendar, part, whole.next_occurrence) if whole.next_occurrence is not None else None
    )
    return Period(day, day, next_occurrence=next_occurrence) if day else None


def middle_of_period(calendar: Calendar, part: str, whole: Period) -> Period | None:
    """Return the middle of a period as a point of time, for "since mid July"; None for another part."""
    return point_of_period(calendar, part, whole) if part == "mid" else None


def current_part(unit: Unit) -> Callable[[Calendar, str], Period]:
    """Return a function for a part of the present period: 年底 ("the end of the year")."""
    return lambda calendar, part: periods.part_of_period(periods.relative_period(calendar, unit, 0), part)


def current_edge(unit: Unit) -> Callable[[Calendar, str], Period | None]:
    """Return a function for the point in 年底前 ("before year-end"): the end of this year, not its late part."""
    return lambda calendar, part: point_of_period(calendar, part, periods.relative_period(calendar, unit, 0))


def decade_from(calendar: Calendar, number: int) -> Period | None:
    """Return "the 1890s", "the 90s" (of the last century) or "the twenties" (of this one); None if it is no decade."""
    if number % 10:
        return None
    if number < 100:
        number += 1900 if number >= 30 else 2000
    return Period(date(number, 1, 1), date(number + 10, 1, 1))


def decade_of(calendar: Calendar, century: Period, number: int) -> Period | None:
    return decade_from(calendar, century.begin.year + number) if number % 10 == 0 and number < 100 else None


def century(calendar: Calendar, number: int) -> Period | None:
    low = 100 * (number - 1)
    return Period(date(max(low, 1), 1, 1), date(low + 100, 1, 1)) if 1 <= number <= 30 else None


def weekend_at(calendar: Calendar, day: Period) -> Period | None:
    """Return the weekend nearest to a day, with the day and the days between.

    None if that is longer than 4 days, or if `day` is longer than one.
    """
    if day.days != 1:
        return None
    saturday = day.begin + timedelta(days=(5 - day.begin.weekday() + 2) % 7 - 2)
    low, high = min(saturday, day.begin), max(saturday + timedelta(days=2), day.end)
    return Period(low, high) if (high - low).days <= 4 else None


def weekend_at_in(calendar: Calendar, holiday: YearlyPeriod, whole: Period | int) -> Period | None:
    return weekend_at(calendar, in_year(calendar, holiday, whole))


def week_of(calendar: Calendar, day: Period) -> Period | None:
    return periods.period_containing(day.begin, "week", calendar) if day.days == 1 else None


def week_commencing(calendar: Calendar, day: Period) -> Period | None:
    return Period(day.low, day.begin + timedelta(weeks=1)) if day.days == 1 else None


# Fiscal years.


def fiscal_year(calendar: Calendar, number: int) -> Period:
    return periods.fiscal_year(number + 2000 if number < 100 else number, calendar)


def relative_fiscal_year(calendar: Calendar, steps: int) -> Period:
    return periods.fiscal_year(periods.current_fiscal_year(calendar) + steps, calendar)


def part_of_fiscal_year(calendar: Calendar, whole: Period, part: YearlyPeriod) -> Period:
    named = part.at(2001)
    return periods.months_of_year(whole, named.begin.month - 1, round(named.days / 30))
