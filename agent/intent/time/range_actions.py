"""Values of date phrases: durations from now and from other days, and ranges.

Each function makes the value of a `grammar` rule, as described in `yearly`. A `sign` is 1 for later, -1 for earlier.
"""

from dataclasses import replace
from datetime import date, timedelta

from agent.intent.time import periods
from agent.intent.time.periods import Calendar, Duration, Period, Unit, YearlyPeriod
from agent.intent.time.yearly_actions import as_period

_MOST_UNITS = 999
_ONE_DAY = timedelta(days=1)


# Durations from now and from other days.


def duration(calendar: Calendar, count: float, unit: Unit, more: float = 0) -> Duration | None:
    return ((count + more, unit),) if count <= _MOST_UNITS else None


def add_durations(calendar: Calendar, first: Duration, second: Duration) -> Duration:
    return first + second


def up_to_now(calendar: Calendar, low: date) -> Period:
    """Return the open period from a day on, with `until` set to the day after today."""
    return Period(low, None, calendar.today + _ONE_DAY)


def rolling(calendar: Calendar, sign: int, duration: Duration) -> Period | None:
    """Return "the past three months" (sign -1) or "the next two days" (1), counted from today; None for weekends.

    Quarters, and decades and centuries to come, are complete calendar periods.
    """
    if any(unit == "weekend" for _, unit in duration):
        return None
    if len(duration) == 1 and duration[0][1] in ("quarter", *(("decade", "century") if sign > 0 else ())):
        return periods.complete_units(calendar, duration[0][1], sign * int(duration[0][0]))
    if sign < 0:
        return up_to_now(calendar, periods.shift_by_duration(calendar.today, duration, -1))
    low = calendar.today + _ONE_DAY
    return Period(low, periods.shift_by_duration(low, duration))


def rolling_units(calendar: Calendar, sign: int, unit: Unit, count: int) -> Period | None:
    """Return the period for "5 past years"; see `rolling`."""
    return rolling(calendar, sign, ((count, unit),))


def rolling_and_half(calendar: Calendar, sign: int, unit: Unit) -> Period | None:
    """Return the period for "the last year and a half"; see `rolling`."""
    return rolling(calendar, sign, ((1.5, unit),))


def range_ago(calendar: Calendar, first: int, second: int, unit: Unit) -> Period | None:
    """Return the days of "3 to 6 months ago", ends inclusive; None if the numbers run backwards."""
    if not first < second <= _MOST_UNITS:
        return None
    low, high = (periods.shift_day(calendar.today, unit, -count) for count in (second, first))
    return Period(low, high + _ONE_DAY)


def past_unit(calendar: Calendar, unit: Unit) -> Period | None:
    # "in the last quarter" means the last calendar quarter, which another rule reads.
    return rolling_units(calendar, -1, unit, 1) if unit not in ("quarter", "weekend", "half") else None


def ago(calendar: Calendar, duration: Duration) -> Period | None:
    """Return the calendar period a duration ago: a week for "two weeks ago"; None for fractions: "half a year ago".

    Fortnights and durations of several units lead to a day.
    """
    if any(amount != int(amount) for amount, _ in duration):
        return None
    day = periods.shift_by_duration(calendar.today, duration, -1)
    whole = len(duration) == 1 and duration[0][1] != "fortnight"
    return periods.period_containing(day, duration[0][1], calendar) if whole else periods.day_period(day)


def before_duration_ago(calendar: Calendar, duration: Duration) -> Period:
    return Period(None, periods.shift_by_duration(calendar.today, duration, -1))


def since_duration_ago(calendar: Calendar, duration: Duration) -> Period:
    return up_to_now(calendar, periods.shift_by_duration(calendar.today, duration, -1))


def from_now(calendar: Calendar, duration: Duration, sign: int) -> Period:
    return periods.day_period(periods.shift_by_duration(calendar.today, duration, sign))


def day_at_distance(calendar: Calendar, duration: Duration, day: Period, sign: int) -> tuple[Period, Duration]:
    return periods.day_period(periods.shift_by_duration(day.begin, duration, sign)), duration


def weekday_at_distance(calendar: Calendar, away: tuple[Period, Duration], weekday: int) -> Period:
    """Return a weekday at a distance: "Monday two weeks from now" is the Monday of the week two weeks from now.

    With other units, "Tuesday two months from today" is the first Tuesday from that day on.

    Args:
        away: (day at the distance, distance).
    """
    day, duration = away
    in_week = all(unit in ("week", "fortnight") for _, unit in duration)
    low = periods.period_containing(day.begin, "week", calendar).begin if in_week else day.begin
    return periods.nth_weekday(Period(low, low + timedelta(weeks=1)), weekday, 1)


def weekday_next_to_day(calendar: Calendar, weekday: int, day: Period, sign: int) -> Period:
    """Return the last such weekday before a day ("the Friday before Christmas"), or the first after it."""
    week = (
        Period(day.high, day.end + timedelta(weeks=1)) if sign > 0 else Period(day.begin - timedelta(weeks=1), day.low)
    )
    return periods.nth_weekday(week, weekday, 1)


def adjacent_day(calendar: Calendar, day: Period, steps: int) -> Period:
    """Return the day `steps` days after `day`: "the day after Christmas" for 1."""
    return periods.day_period(day.begin + timedelta(days=steps))


def duration_ending(calendar: Calendar, duration: Duration, last: Period) -> Period | None:
    """Return the period of "three months ending May 2020"; None if `last` has an open end."""
    return Period(periods.shift_by_duration(last.end, duration, -1), last.high) if last.is_bounded else None


def duration_next_to_day(calendar: Calendar, duration: Duration, day: Period, sign: int) -> Period:
    """Return the period directly before or after a day: "the two weeks before Christmas"."""
    if sign < 0:
        return Period(periods.shift_by_duration(day.begin, duration, -1), day.low)
    return Period(day.high, periods.shift_by_duration(day.end, duration))


def duration_next_to_period(calendar: Calendar, duration: Duration, whole: Period | int, sign: int) -> Period | None:
    """Return the period of "the three months following May 2020"; None if `whole` is open or a single day."""
    period = as_period(calendar, whole)
    return duration_next_to_day(calendar, duration, period, sign) if period.is_bounded and period.days > 1 else None


def unit_next_to_period(calendar: Calendar, unit: Unit, whole: Period | int, sign: int) -> Period | None:
    """Return the period of "the year after 2016"; None beside a single day.

    "the week after Easter" may begin on the next day or on Monday.
    """
    return duration_next_to_period(calendar, ((1, unit),), whole, sign) if unit != "day" else None


def range_around(calendar: Calendar, duration: Duration, day: Period) -> Period:
    """Return the period of "within two weeks of" a day, before and after it."""
    return Period(periods.shift_by_duration(day.begin, duration, -1), periods.shift_by_duration(day.end, duration))


def duration_starting(calendar: Calendar, duration: Duration, day: Period) -> Period:
    return Period(day.low, periods.shift_by_duration(day.begin, duration))


def nearest_day(calendar: Calendar, value: Period | YearlyPeriod) -> Period | None:
    """Return a single day to count from; of a part of the year, the nearest occurrence. None for a longer period."""
    if isinstance(value, YearlyPeriod):
        return periods.nearest_occurrence(value, calendar)
    return value if value.is_bounded and value.days == 1 else None


def latest_day(calendar: Calendar, value: Period | YearlyPeriod) -> Period | None:
    """Return a single day to count from; of a part of the year, the latest occurrence. None for a longer period."""
    return (
        periods.latest_occurrence(value, calendar) if isinstance(value, YearlyPeriod) else nearest_day(calendar, value)
    )


# Ranges.


def range_between(calendar: Calendar, first: Period, last: Period) -> Period | None:
    if first.low is None or last.high is None or first.low >= last.high:
        return None
    return Period(first.low, last.high)


def range_to_yearly(calendar: Calendar, first: Period | int, last: YearlyPeriod) -> Period | None:
    """Return the period of "from March 2024 to May", to the first May that ends later; None if there is none.

    "the week of 2 March to 8 March" ends with that week.
    """
    low = as_period(calendar, first)
    for number in (low.begin.year, low.begin.year + 1) if low.is_bounded else ():
        end = last.at(number)
        if end.end > low.end or (end.end == low.end and end.begin > low.begin):
            return Period(low.low, end.high)
    return None


def range_from_yearly(calendar: Calendar, first: YearlyPeriod, last: Period) -> Period | None:
    """Return the period of "from April to the end of June", with the last April before it; None if there is none."""
    for number in (last.end.year, last.end.year - 1) if last.is_bounded else ():
        if first.at(number).begin < last.begin:
            return Period(first.at(number).low, last.high)
    return None


def range_to_weekday(calendar: Calendar, first: Period, weekday: int) -> Period | None:
    """Return the period of "from next Monday to Friday", the first Friday after it; None unless `first` is a day."""
    if not first.is_bounded or first.days != 1:
        return None
    return Period(first.low, periods.nth_weekday(Period(first.high, first.end + timedelta(weeks=1)), weekday, 1).high)


def by_weekday(calendar: Calendar, weekday: int) -> Period:
    """Return the open period of "by Friday": up to the coming Friday, inclusive."""
    week = Period(calendar.today, calendar.today + timedelta(weeks=1))
    return Period(None, periods.nth_weekday(week, weekday, 1).high)


def repeated_range(calendar: Calendar, one: Period, other: Period) -> Period | None:
    """Return the range that a text states twice, in words and in digits; None if the two differ."""
    return other if one == other else None


def no_single_period(calendar: Calendar, *values: object) -> bool:
    """Return True for a phrase that names no single period; see `NONE` in `grammar`."""
    return True


def range_to_now(calendar: Calendar, first: Period) -> Period | None:
    return up_to_now(calendar, first.low) if first.low is not None else None


def since(calendar: Calendar, one: Period, edge: str) -> Period:
    """Return the open period that begins at the start (edge "low") or at the end ("high") of another period."""
    next_occurrence = since(calendar, one.next_occurrence, edge) if one.next_occurrence is not None else None
    return Period(getattr(one, edge), None, next_occurrence=next_occurrence)


def range_starting_in(calendar: Calendar, one: Period) -> Period:
    """Return the open period of "starting in June"; `start_within` is June, for fields of start dates."""
    return replace(since(calendar, one, "low"), start_within=one)


def before(calendar: Calendar, one: Period, edge: str) -> Period:
    """Return the open period that ends at the start (edge "low") or at the end ("high") of another period."""
    next_occurrence = before(calendar, one.next_occurrence, edge) if one.next_occurrence is not None else None
    return Period(None, getattr(one, edge), next_occurrence=next_occurrence)
