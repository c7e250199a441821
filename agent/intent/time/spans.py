"""What words of dates mean: durations from now and from other days, and ranges. See `yearly`."""

from datetime import date, timedelta

from agent.intent.time import periods
from agent.intent.time.periods import Calendar, Duration, Period, Unit, Yearly
from agent.intent.time.yearly import as_period

_MOST_UNITS = 999
_ONE_DAY = timedelta(days=1)


# Durations, from now and from other days.


def duration(calendar: Calendar, count: float, unit: Unit) -> Duration | None:
    return ((count, unit),) if count <= _MOST_UNITS else None


def half_unit(calendar: Calendar, unit: Unit) -> Duration:
    return ((0.5, unit),)


def and_a_half(calendar: Calendar, count: int, unit: Unit) -> Duration | None:
    return duration(calendar, count + 0.5, unit)


def longer(calendar: Calendar, first: Duration, second: Duration) -> Duration:
    return first + second


def up_to_now(calendar: Calendar, low: date) -> Period:
    """From a day up to now."""
    return Period(low, None, calendar.today + _ONE_DAY)


def rolling(calendar: Calendar, sign: int, duration: Duration) -> Period | None:
    """The past three months, the next two days; quarters are whole."""
    if any(unit == "weekend" for _, unit in duration):
        return None
    if len(duration) == 1 and duration[0][1] == "quarter":
        return periods.whole_units(calendar, "quarter", sign * int(duration[0][0]))
    if sign < 0:
        return up_to_now(calendar, periods.shift_all(calendar.today, duration, -1))
    low = calendar.today + _ONE_DAY
    return Period(low, periods.shift_all(low, duration))


def past(calendar: Calendar, count: int, unit: Unit) -> Period | None:
    return rolling(calendar, -1, ((count, unit),))


def ahead(calendar: Calendar, count: int, unit: Unit) -> Period | None:
    return rolling(calendar, 1, ((count, unit),))


def past_unit(calendar: Calendar, unit: Unit) -> Period | None:
    # "in the last quarter" is that quarter.
    return past(calendar, 1, unit) if unit not in ("quarter", "weekend", "half") else None


def within(calendar: Calendar, duration: Duration) -> Period | None:
    return rolling(calendar, -1, duration)


def ago(calendar: Calendar, duration: Duration) -> Period:
    """ "two weeks ago" is that week."""
    day = periods.shift_all(calendar.today, duration, -1)
    whole = len(duration) == 1 and duration[0][1] != "fortnight"
    return periods.containing(day, duration[0][1], calendar) if whole else periods.one_day(day)


def day_ago(calendar: Calendar, duration: Duration) -> Period:
    """ "on a day two weeks ago"."""
    return periods.one_day(periods.shift_all(calendar.today, duration, -1))


def older(calendar: Calendar, duration: Duration) -> Period:
    return Period(None, periods.shift_all(calendar.today, duration, -1))


def older_and_more(calendar: Calendar, count: int, unit: Unit) -> Period:
    return older(calendar, ((count, unit),))


def newer(calendar: Calendar, duration: Duration) -> Period:
    return up_to_now(calendar, periods.shift_all(calendar.today, duration, -1))


def hence(calendar: Calendar, duration: Duration) -> Period:
    return periods.one_day(periods.shift_all(calendar.today, duration))


def counted(calendar: Calendar, duration: Duration, day: Period) -> Period:
    return periods.one_day(periods.shift_all(day.begin, duration))


def counted_back(calendar: Calendar, duration: Duration, day: Period) -> Period:
    return periods.one_day(periods.shift_all(day.begin, duration, -1))


def day_after(calendar: Calendar, unit: Unit, day: Period) -> Period | None:
    """The day after Christmas."""
    return counted(calendar, ((1, unit),), day) if unit == "day" else None


def day_before(calendar: Calendar, unit: Unit, day: Period) -> Period | None:
    return counted_back(calendar, ((1, unit),), day) if unit == "day" else None


def starting(calendar: Calendar, duration: Duration, day: Period) -> Period:
    return Period(day.low, periods.shift_all(day.begin, duration))


def one_day(calendar: Calendar, value: Period | Yearly) -> Period | None:
    """A day that days are counted from: of every year the nearest."""
    if isinstance(value, Yearly):
        return periods.nearest(value, calendar)
    return value if value.is_bounded and value.days == 1 else None


def latest_day(calendar: Calendar, value: Period | Yearly) -> Period | None:
    return periods.latest(value, calendar) if isinstance(value, Yearly) else one_day(calendar, value)


# Ranges.


def span(calendar: Calendar, first: Period, last: Period) -> Period | None:
    if first.low is None or last.high is None or first.low >= last.high:
        return None
    return Period(first.low, last.high)


def to_part(calendar: Calendar, first: Period | int, last: Yearly) -> Period | None:
    """From March 2024 to May, which is of the same year or of the next."""
    low = as_period(calendar, first)
    for number in (low.begin.year, low.begin.year + 1) if low.is_bounded else ():
        if last.at(number).end > low.end:
            return Period(low.low, last.at(number).high)
    return None


def from_part(calendar: Calendar, first: Yearly, last: Period) -> Period | None:
    """From April to the end of June."""
    for number in (last.end.year, last.end.year - 1) if last.is_bounded else ():
        if first.at(number).begin < last.begin:
            return Period(first.at(number).low, last.high)
    return None


def to_now(calendar: Calendar, first: Period) -> Period | None:
    return up_to_now(calendar, first.low) if first.low is not None else None


def from_now(calendar: Calendar, last: Period) -> Period | None:
    return span(calendar, periods.one_day(calendar.today), last)


def since(calendar: Calendar, one: Period) -> Period | None:
    return Period(one.low, None) if one.low else None


def after(calendar: Calendar, one: Period) -> Period | None:
    return Period(one.high, None) if one.is_bounded else None


def before(calendar: Calendar, one: Period) -> Period | None:
    return Period(None, one.low) if one.low else None


def up_to(calendar: Calendar, one: Period) -> Period | None:
    return Period(None, one.high) if one.is_bounded else None
