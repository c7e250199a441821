"""Values of date words: durations from now and from other days, and ranges. See `yearly`."""

from dataclasses import replace
from datetime import date, timedelta

from agent.intent.time import periods
from agent.intent.time.periods import Calendar, Duration, Period, Unit, Yearly
from agent.intent.time.yearly import as_period

_MOST_UNITS = 999
_ONE_DAY = timedelta(days=1)


# Durations from now and from other days.


def duration(calendar: Calendar, count: float, unit: Unit, more: float = 0) -> Duration | None:
    return ((count + more, unit),) if count <= _MOST_UNITS else None


def longer(calendar: Calendar, first: Duration, second: Duration) -> Duration:
    return first + second


def up_to_now(calendar: Calendar, low: date) -> Period:
    """Return the period from a day up to now."""
    return Period(low, None, calendar.today + _ONE_DAY)


def rolling(calendar: Calendar, sign: int, duration: Duration) -> Period | None:
    """Read "the past three months", "the next two days"; quarters are calendar quarters."""
    if any(unit == "weekend" for _, unit in duration):
        return None
    if len(duration) == 1 and duration[0][1] in ("quarter", *(("decade", "century") if sign > 0 else ())):
        return periods.whole_units(calendar, duration[0][1], sign * int(duration[0][0]))
    if sign < 0:
        return up_to_now(calendar, periods.shift_all(calendar.today, duration, -1))
    low = calendar.today + _ONE_DAY
    return Period(low, periods.shift_all(low, duration))


def rolling_units(calendar: Calendar, sign: int, unit: Unit, count: int) -> Period | None:
    """Read "5 past years"."""
    return rolling(calendar, sign, ((count, unit),))


def rolling_and_half(calendar: Calendar, sign: int, unit: Unit) -> Period | None:
    """Read "the last year and a half"."""
    return rolling(calendar, sign, ((1.5, unit),))


def between_ago(calendar: Calendar, first: int, second: int, unit: Unit) -> Period | None:
    """Read "3 to 6 months ago"."""
    if not first < second <= _MOST_UNITS:
        return None
    low, high = (periods.shift(calendar.today, unit, -count) for count in (second, first))
    return Period(low, high + _ONE_DAY)


def past_unit(calendar: Calendar, unit: Unit) -> Period | None:
    # "in the last quarter" means that calendar quarter.
    return rolling_units(calendar, -1, unit, 1) if unit not in ("quarter", "weekend", "half") else None


def ago(calendar: Calendar, duration: Duration) -> Period | None:
    """Read "two weeks ago" as that week; "half a year ago" names no particular days."""
    if any(amount != int(amount) for amount, _ in duration):
        return None
    day = periods.shift_all(calendar.today, duration, -1)
    whole = len(duration) == 1 and duration[0][1] != "fortnight"
    return periods.containing(day, duration[0][1], calendar) if whole else periods.one_day(day)


def older(calendar: Calendar, duration: Duration) -> Period:
    return Period(None, periods.shift_all(calendar.today, duration, -1))


def newer(calendar: Calendar, duration: Duration) -> Period:
    return up_to_now(calendar, periods.shift_all(calendar.today, duration, -1))


def from_now(calendar: Calendar, duration: Duration, sign: int) -> Period:
    return periods.one_day(periods.shift_all(calendar.today, duration, sign))


def counted(calendar: Calendar, duration: Duration, day: Period, sign: int) -> tuple[Period, Duration]:
    return periods.one_day(periods.shift_all(day.begin, duration, sign)), duration


def weekday_away(calendar: Calendar, away: tuple[Period, Duration], weekday: int) -> Period:
    """Read a weekday with a distance.

    "Monday two weeks from now" is in that week; "two months from today on Tuesday" is the first Tuesday from that day
    on.
    """
    day, duration = away
    in_week = all(unit in ("week", "fortnight") for _, unit in duration)
    low = periods.containing(day.begin, "week", calendar).begin if in_week else day.begin
    return periods.nth_weekday(Period(low, low + timedelta(weeks=1)), weekday, 1)


def weekday_beside(calendar: Calendar, weekday: int, day: Period, sign: int) -> Period:
    """Read "the Friday before Christmas"."""
    week = (
        Period(day.high, day.end + timedelta(weeks=1)) if sign > 0 else Period(day.begin - timedelta(weeks=1), day.low)
    )
    return periods.nth_weekday(week, weekday, 1)


def neighbour(calendar: Calendar, day: Period, steps: int) -> Period:
    """Read "the day after Christmas"."""
    return periods.one_day(day.begin + timedelta(days=steps))


def ending(calendar: Calendar, duration: Duration, last: Period) -> Period | None:
    """Read "three months ending May 2020"."""
    return Period(periods.shift_all(last.end, duration, -1), last.high) if last.is_bounded else None


def run_beside(calendar: Calendar, duration: Duration, day: Period, sign: int) -> Period:
    """Read "the two weeks before Christmas"."""
    if sign < 0:
        return Period(periods.shift_all(day.begin, duration, -1), day.low)
    return Period(day.high, periods.shift_all(day.end, duration))


def run_beside_period(calendar: Calendar, duration: Duration, whole: Period | int, sign: int) -> Period | None:
    """Read "the three months following May 2020"; see `run_beside` for days."""
    period = as_period(calendar, whole)
    return run_beside(calendar, duration, period, sign) if period.is_bounded and period.days > 1 else None


def unit_beside(calendar: Calendar, unit: Unit, whole: Period | int, sign: int) -> Period | None:
    """Read "the year after 2016". A week after a single day is unclear: it may begin with the day or on Monday."""
    return run_beside_period(calendar, ((1, unit),), whole, sign) if unit != "day" else None


def around(calendar: Calendar, duration: Duration, day: Period) -> Period:
    """Read "within two weeks of a day", before or after it."""
    return Period(periods.shift_all(day.begin, duration, -1), periods.shift_all(day.end, duration))


def starting(calendar: Calendar, duration: Duration, day: Period) -> Period:
    return Period(day.low, periods.shift_all(day.begin, duration))


def one_day(calendar: Calendar, value: Period | Yearly) -> Period | None:
    """Return a day to count from; of a yearly day the nearest."""
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
    """Read "from March 2024 to May", of the same year or the next."""
    low = as_period(calendar, first)
    for number in (low.begin.year, low.begin.year + 1) if low.is_bounded else ():
        if last.at(number).end > low.end:
            return Period(low.low, last.at(number).high)
    return None


def from_part(calendar: Calendar, first: Yearly, last: Period) -> Period | None:
    """Read "from April to the end of June"."""
    for number in (last.end.year, last.end.year - 1) if last.is_bounded else ():
        if first.at(number).begin < last.begin:
            return Period(first.at(number).low, last.high)
    return None


def to_weekday(calendar: Calendar, first: Period, weekday: int) -> Period | None:
    """Read "from next Monday to Friday": the first Friday after it."""
    if not first.is_bounded or first.days != 1:
        return None
    return Period(first.low, periods.nth_weekday(Period(first.high, first.end + timedelta(weeks=1)), weekday, 1).high)


def by_weekday(calendar: Calendar, weekday: int) -> Period:
    """Read "by Friday": the coming Friday."""
    week = Period(calendar.today, calendar.today + timedelta(weeks=1))
    return Period(None, periods.nth_weekday(week, weekday, 1).high)


def unreadable(calendar: Calendar, *values: object) -> bool:
    """Return True for a phrase that names no single period; see `NONE` in `grammar`."""
    return True


def to_now(calendar: Calendar, first: Period) -> Period | None:
    return up_to_now(calendar, first.low) if first.low is not None else None


def since(calendar: Calendar, one: Period, edge: str) -> Period:
    """Return the period from the beginning ("low") or the end ("high") of another on."""
    coming = since(calendar, one.coming, edge) if one.coming is not None else None
    return Period(getattr(one, edge), None, coming=coming)


def begun_in(calendar: Calendar, one: Period) -> Period:
    """Read "starting in June": from June on or, said of beginnings, in June."""
    return replace(since(calendar, one, "low"), within=one)


def before(calendar: Calendar, one: Period, edge: str) -> Period:
    """Return the period up to the beginning ("low") or the end ("high") of another."""
    coming = before(calendar, one.coming, edge) if one.coming is not None else None
    return Period(None, getattr(one, edge), coming=coming)
