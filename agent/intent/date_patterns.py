"""The phrases that name a period, English and Chinese, each with what it stands for.

A rule is a pattern and a reader that makes a `Period` of a match; the first rule that matches at a place
wins, so the longer phrases come first. A reader raises `ValueError`, `OverflowError` or `KeyError` for a
day that there is not ("30 February").
"""

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import date, timedelta
from typing import NamedTuple

from agent.intent import periods
from agent.intent.date_words import (
    MONTH,
    MONTH_THIRD_ZH,
    MONTH_WHOLE,
    MONTH_ZH,
    ORDINAL,
    PART_EN,
    PART_ZH,
    SEASON,
    UNIT,
    YEAR,
    YEAR_EN,
    YEAR_NAMED,
    YEAR_ZH,
    Months,
    count,
    month,
    month_third,
    part_en,
    part_zh,
    unit,
    year_en,
    year_zh,
)
from agent.intent.numerals import CHINESE_COUNT, COUNT
from agent.intent.periods import Calendar, Period

Match = re.Match[str]
Reader = Callable[[Match, Calendar], Period | None]

_DECADE_WORDS = {
    word: 10 * number
    for number, word in enumerate(
        ["twenties", "thirties", "forties", "fifties", "sixties", "seventies", "eighties", "nineties"], 2
    )
}


def _group(match: Match, *names: str) -> str | None:
    """The first of the named groups that the pattern has and that matched something."""
    groups = match.groupdict()
    return next((groups[name] for name in names if groups.get(name)), None)


# Days and weeks.


def _one_day(year: int, month: int, day: int) -> Period:
    low = date(year, month, day)
    return Period(low, periods.shift(low, "day", 1))


def _latest_day(month: int, day: int, calendar: Calendar) -> Period:
    """The day of this year, or of the last when it is yet to come."""
    year = calendar.today.year
    with suppress(ValueError):
        if date(year, month, day) > calendar.today:
            year -= 1
    return _one_day(year, month, day)


def _iso_day(match: Match, calendar: Calendar) -> Period:
    return _one_day(int(match["y"]), int(match["m"]), int(match["d"]))


def _iso_month(match: Match, calendar: Calendar) -> Period:
    return periods.months(int(match["y"]), int(match["m"]), 1)


def _iso_week(match: Match, calendar: Calendar) -> Period:
    low = date.fromisocalendar(int(match["y"] or calendar.today.year), int(match["w"]), 1)
    return Period(low, periods.shift(low, "week", 1))


def _month_day(match: Match, calendar: Calendar) -> Period:
    number, day = month(match["m"]), int(match["d"])
    return _one_day(int(match["y"]), number, day) if match["y"] else _latest_day(number, day, calendar)


def _american_day(match: Match, calendar: Calendar) -> Period:
    return _one_day(int(match["y"]), int(match["m"]), int(match["d"]))


def _month_span(match: Match, calendar: Calendar) -> Period:
    """From a month to another; of the year that is said once, else the latest that have begun."""
    first, last = month(match["a"]), month(match["b"])
    if match["y"]:
        number = _year_of(match["y"], calendar)
        start = number - 1 if first > last else number
    else:
        start = calendar.today.year - (first > calendar.today.month)
    return Period(date(start, first, 1), periods.months(start + (first > last), last, 1).high)


def _days_span(match: Match, calendar: Calendar) -> Period:
    """From a day to another, with the year said once or not at all."""
    first, from_day = month(_group(match, "am", "am2") or ""), int(_group(match, "ad", "ad2") or "")
    last, to_day = month(_group(match, "bm", "bm2") or ""), int(_group(match, "bd", "bd2") or "")
    backwards = (first, from_day) > (last, to_day)
    if match["y"]:
        start = _year_of(match["y"], calendar) - backwards
    else:
        low = _latest_day(first, from_day, calendar).low
        assert low is not None
        start = low.year
    return Period(_one_day(start, first, from_day).low, _one_day(start + backwards, last, to_day).high)


def _year_of(text: str, calendar: Calendar) -> int:
    low = year_en(text, calendar).low
    assert low is not None
    return low.year


def _ends_of_year(match: Match, calendar: Calendar) -> Period:
    """The first or the last N units of a year."""
    whole, number, named = year_en(match["y"], calendar), count(match["n"]), unit(match["unit"])
    assert whole.low is not None
    assert whole.high is not None
    if match["which"].casefold() == "first":
        return Period(whole.low, periods.shift(whole.low, named, number))
    return Period(periods.shift(whole.high, named, -number), whole.high)


def _up_to_now(match: Match, calendar: Calendar) -> Period:
    """From a month on, of the year that is said, else the latest that has begun."""
    number = month(match["m"])
    if match["y"]:
        return Period(date(_year_of(match["y"], calendar), number, 1), None)
    return Period(periods.latest(number, 1, calendar).low, None)


def _day_span(match: Match, calendar: Calendar) -> Period:
    number = month(match["m"])
    low = (
        _one_day(int(match["y"]), number, int(match["a"]))
        if match["y"]
        else _latest_day(number, int(match["a"]), calendar)
    )
    return _to_day(low, int(match["b"]))


def _day_span_zh(match: Match, calendar: Calendar) -> Period:
    return _to_day(_month_day_zh(match, calendar), count(match["b"]))


def _to_day(low: Period, day: int) -> Period:
    """From the day to another of the same month."""
    assert low.low is not None
    last = low.low.replace(day=day)
    if last < low.low:
        raise ValueError("the days run backwards")
    return Period(low.low, last + timedelta(days=1))


def _month_day_zh(match: Match, calendar: Calendar) -> Period:
    number, day = count(match["m"]), count(match["d"])
    if not match["y"]:
        return _latest_day(number, day, calendar)
    low = year_zh(match["y"], calendar).low
    assert low is not None
    return _one_day(low.year, number, day)


def _week_of(match: Match, calendar: Calendar) -> Period:
    low = _month_day(match, calendar).low
    assert low is not None
    return periods.containing(low, "week", calendar)


# Years and parts of them.


def _year_span(match: Match, calendar: Calendar) -> Period:
    return Period(periods.year(int(match["a"])).low, periods.year(int(match["b"])).high)


def _fiscal_year(match: Match, calendar: Calendar) -> Period:
    named = _group(match, "fy", "fy1") or ""
    if named.isdigit():
        number = int(named) + (2000 if len(named) == 2 else 0)
    else:
        steps = {"last": -1, "previous": -1, "past": -1, "上": -1, "去": -1, "next": 1, "下": 1, "明": 1}
        number = periods.present_fiscal_year(calendar)
        number += steps.get(named.casefold() if named.isascii() else named[0], 0)
    whole = periods.fiscal_year(number, calendar)
    quarter = _group(match, "fq", "fq2")
    return periods.within(whole, ((count(quarter) - 1) * 3, 3)) if quarter else whole


def _latest(part: Months, calendar: Calendar, *, over: bool = False) -> Period:
    """A part of a year without the year: the latest that has begun, or that is over."""
    return periods.latest(part[0] + 1, part[1], calendar, before_now=over)


def _part_of_year(match: Match, calendar: Calendar) -> Period:
    return periods.within(year_en(match["y"], calendar), part_en(match["part"]))


def _part_of_year_zh(match: Match, calendar: Calendar) -> Period | None:
    part, text = part_zh(match["part"]), match["part"]
    whole = part and periods.within(year_zh(match["y"], calendar), part)
    return month_third(text, whole) if whole and "月" in text else whole


def _part_alone(match: Match, calendar: Calendar) -> Period:
    return _latest(part_en(match["part"]), calendar)


def _part_alone_zh(match: Match, calendar: Calendar) -> Period | None:
    part, text = part_zh(match["part"]), match["part"]
    whole = part and _latest(part, calendar)
    return month_third(text, whole) if whole and "月" in text else whole


def _relative_part(match: Match, calendar: Calendar) -> Period:
    """ "last December" is the one that is over, "this summer" of this year, "next May" a year after the latest."""
    word, part = match["which"].casefold(), part_en(match["m"])
    if word == "this":
        return periods.within(periods.relative(calendar, "year", 0), part)
    if word == "next":
        following = _latest(part, calendar).low
        assert following is not None
        return periods.months(following.year + 1, part[0] + 1, part[1])
    return _latest(part, calendar, over=True)


def _month_alone(match: Match, calendar: Calendar) -> Period | None:
    # "in may" in small letters may be a verb that someone left unfinished.
    return None if match["m"] in ("may", "march") else periods.latest(month(match["m"]), 1, calendar)


def _month_named(match: Match, calendar: Calendar) -> Period | None:
    # "of June Carter", "before Jan left"
    followed = match.string[match.end() : match.end() + 2]
    return None if followed.strip().isupper() else _month_alone(match, calendar)


def _decade(match: Match, calendar: Calendar) -> Period:
    """ "the 90s" are of the last century, "the twenties" of this one."""
    text = match["tens"].casefold()
    number = _DECADE_WORDS.get(text) or count(text)
    if number < 100:
        number += 1900 if number >= 30 else 2000
    number = number // 10 * 10
    return Period(date(number, 1, 1), date(number + 10, 1, 1))


# Counted from now.


def _relative(match: Match, calendar: Calendar) -> Period:
    step = {"this": 0, "current": 0, "next": 1}.get(match["which"].casefold().removeprefix("the ").strip(), -1)
    return periods.relative(calendar, unit(match["unit"]), step)


def _relative_zh(match: Match, calendar: Calendar) -> Period:
    which = match["which"]
    step = -2 if which == "上上" else {"上": -1, "下": 1}.get(which, 0)
    return month_third(match["third"] or "", periods.relative(calendar, unit(match["unit"]), step))


def _before_last(match: Match, calendar: Calendar) -> Period:
    return periods.relative(calendar, unit(match["unit"]), -2)


def _units_ago(match: Match, calendar: Calendar) -> date:
    number, named = count(_group(match, "n") or "1"), _group(match, "unit", "unit2")
    return periods.shift(calendar.today, unit(named or ""), -number)


def _moving(match: Match, calendar: Calendar) -> Period:
    """The past N units up to now."""
    return Period(_units_ago(match, calendar), None)


def _moving_zh(match: Match, calendar: Calendar) -> Period:
    """The same, with a half: 最近一年半."""
    named = unit(match["unit"])
    months = {"half": 6, "year": 12, "quarter": 3, "month": 1, "decade": 120}.get(named)
    if match["half"] and months:
        number = count(match["n"] or "1")
        return Period(periods.add_months(calendar.today, -(number * months + months // 2)), None)
    return _moving(match, calendar)


def _recent_zh(match: Match, calendar: Calendar) -> Period | None:
    # 前年, 这月 and the like name no run of units.
    runs = match["n"] or match["unit"] == "半年" or match[0][0] in "最近过"
    return _moving_zh(match, calendar) if runs else None


def _half_year(match: Match, calendar: Calendar) -> Period:
    return Period(periods.add_months(calendar.today, -6), None)


def _ago(match: Match, calendar: Calendar) -> Period:
    """ "two weeks ago" is that week; "more than two weeks ago" ends there."""
    compared = (_group(match, "cmp") or "").casefold()
    point = _units_ago(match, calendar)
    if compared.startswith(("more", "over", "longer", "at least")):
        return Period(None, point)
    return Period(point, None) if compared else periods.containing(point, unit(match["unit"]), calendar)


def _older_or_newer(match: Match, calendar: Calendar) -> Period:
    point = _units_ago(match, calendar)
    return Period(None, point) if match["cmp"].casefold() == "older" else Period(point, None)


def _until_ago(match: Match, calendar: Calendar) -> Period:
    return Period(None, _units_ago(match, calendar))


class Rule(NamedTuple):
    """How a kind of period is written and read; `chinese` says that it takes Chinese characters to write it."""

    pattern: re.Pattern[str]
    reader: Reader
    chinese: bool


def _rule(reader: Reader, *pattern: str, chinese: bool = False) -> Rule:
    return Rule(re.compile("".join(pattern), re.IGNORECASE | re.VERBOSE), reader, chinese)


def _chinese(reader: Reader, *pattern: str) -> Rule:
    return _rule(reader, *pattern, chinese=True)


_THE = r"(?:the\ )?"
_DAY = r"(?P<d>\d{1,2})(?:st|nd|rd|th)?"
# The day and month of a span's begin ("a") or end ("b").
_DAY_OF = (
    rf"(?:(?P<{{0}}d>\d{{{{1,2}}}})(?:st|nd|rd|th)?\ (?:of\ )?(?P<{{0}}m>{MONTH})|"
    rf"(?P<{{0}}m2>{MONTH})\ (?P<{{0}}d2>\d{{{{1,2}}}})(?:st|nd|rd|th)?\b)"
)
_N = rf"(?P<n>{COUNT})"
_N_ZH = rf"(?P<n>{CHINESE_COUNT})"
_FISCAL = r"(?:fiscal|financial)\ year"
_UNIT_ALONE = r"(?P<unit>day|week|month|quarter|year|decade)"

RULES: tuple[Rule, ...] = (
    _rule(_iso_day, r"(?<![\d-])(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?![\d-])"),
    _chinese(_year_span, rf"(?:从|自)?(?P<a>{YEAR})\s*(?:到|至|[-–—~])\s*(?P<b>{YEAR})\s*年(?:之?间|期间)?"),
    _rule(_iso_week, r"(?<![\w-])(?:(?P<y>\d{4})-?W(?P<w>\d{1,2}))\b"),
    _rule(_iso_week, r"\b(?:week|W)\ ?(?P<w>\d{1,2})(?:\ (?:of\ )?(?P<y>\d{4}))?\b"),
    _rule(_iso_month, r"(?<![\d-])(?P<y>(?:19|20)\d\d)[-/](?P<m>0[1-9]|1[0-2])(?![\d-])"),
    _rule(_american_day, r"(?<![\d/])(?P<m>1[0-2]|0?[1-9])/(?P<d>\d{1,2})/(?P<y>\d{4})(?![\d/])"),
    # between March and May 2025, from July through September last year, between 1 July and 30 September 2025: the year
    # is said once, or not at all
    _rule(
        _month_span,
        rf"\b(?:between|from)\ (?P<a>{MONTH})\ ?(?:and|to|through|until|till|[-–])\ ?(?P<b>{MONTH})(?!\ \d\d?\b)",
        rf"(?:(?:,|\ of|\ in)?\ (?P<y>{YEAR_EN})\b)?",
    ),
    _rule(
        _days_span,
        rf"\b(?:(?P<pair>between)\ |from\ )?{_DAY_OF.format('a')}\ ?",
        rf"(?:(?(pair)and|to)|to|through|until|till|[-–])\ ?{_DAY_OF.format('b')}",
        rf"(?:(?:,|\ of)?\ (?P<y>{YEAR_EN})\b)?",
    ),
    _rule(
        _up_to_now,
        rf"\b(?:between|from)\ (?P<m>{MONTH})(?:(?:\ of)?\ (?P<y>{YEAR_EN}))?\ ",
        r"(?:and|to|until|till|through)\ (?:now|today|(?:the\ )?present)\b",
    ),
    # the last six months of 2025
    _rule(
        _ends_of_year,
        rf"\b(?:the\ )?(?P<which>first|last|final)\ (?P<n>{COUNT})\ (?P<unit>{UNIT})\ (?:of|in)\ (?P<y>{YEAR_EN})\b",
    ),
    # FY25 Q3, the last fiscal year's Q1
    _rule(
        _fiscal_year,
        rf"\b(?:fy\ ?'?(?P<fy>\d{{4}}|\d\d)|{_FISCAL}\ (?P<fy1>\d{{4}}))",
        r"(?:[\s,-]*q(?P<fq>[1-4]))?\b",
    ),
    _rule(
        _fiscal_year,
        rf"\b(?:q(?P<fq>[1-4])\ (?:of\ )?)?{_THE}(?P<fy>this|last|previous|past|current|next)\ ",
        rf"{_FISCAL}(?:'s\ q(?P<fq2>[1-4]))?",
    ),
    _chinese(
        _fiscal_year,
        r"(?P<fy>上一?个?|本|去年?|今年?|这一?个?|下一?个?|明年?|\d{4})\s*(?:财年|财政年度|会计年度)",
        r"(?:第?(?P<fq>[一二三四1-4])季度)?",
    ),
    # between 1 and 15 November 2026, November 1-15, 11月1日到15日
    _rule(
        _day_span,
        r"\b(?:(?P<pair>between)\ |from\ )?(?P<a>\d{1,2})(?:st|nd|rd|th)?\ ?"
        r"(?:(?(pair)and|to)|to|until|till|through|[-–])\ ?"
        rf"(?P<b>\d{{1,2}})(?:st|nd|rd|th)?\ (?P<m>{MONTH})(?:,?\ (?P<y>{YEAR})\b)?",
    ),
    _rule(
        _day_span,
        rf"\b(?:(?:between|from)\ )?(?P<m>{MONTH})\ (?P<a>\d{{1,2}})(?:st|nd|rd|th)?\ ?"
        r"(?:and|to|until|till|through|[-–])\ ?"
        rf"(?P<b>\d{{1,2}})(?:st|nd|rd|th)?(?!\d)(?:,?\ (?P<y>{YEAR})\b)?",
    ),
    # the week of March 3rd, March 3, 2024, 3 March
    _rule(_week_of, rf"\b{_THE}week\ (?:of|starting)\ (?P<m>{MONTH})\ {_DAY}(?:,?\ (?P<y>{YEAR}))?\b"),
    _rule(_month_day, rf"\b(?P<m>{MONTH})\ {_DAY}\b(?!\d|:)(?:,?\ (?P<y>{YEAR})\b)?"),
    _rule(_month_day, rf"\b{_DAY}\ (?:of\ )?(?P<m>{MONTH})(?:,?\ (?P<y>{YEAR})\b)?"),
    # the third quarter of last year, 2024 Q3, last December
    _rule(_part_of_year, rf"\b(?P<part>{PART_EN})(?:\ |,\ |-|\ of\ |\ in\ )(?P<y>{YEAR_EN})\b"),
    _rule(
        _part_of_year,
        rf"\b(?P<y>{YEAR_EN})(?:['’]s\ |\ |-|,\ )",
        rf"(?P<part>(?:{ORDINAL}\ (?:quarter|half)|q[1-4]|h[12]|{SEASON}\b))",
    ),
    _rule(
        _relative_part, rf"\b(?P<which>last|this|next|past|previous)\ (?P<m>{MONTH}|spring|summer|autumn|fall|winter)\b"
    ),
    # more than two years ago, older than a year, the past six months, within a week
    _rule(
        _ago,
        r"\b(?P<cmp>more\ than|over|longer\ than|at\ least|less\ than|under|within)\ ",
        rf"{_N}\ (?P<unit>{UNIT})\ (?:ago|back)\b",
    ),
    _rule(
        _older_or_newer,
        rf"\b(?P<cmp>older|newer|younger|more\ recent)\ than\ {_N}\ (?P<unit>{UNIT})\b(?!\ ago)",
    ),
    _rule(
        _moving,
        rf"\b(?:{_THE}(?:past|last|previous|recent|most\ recent)|{_THE}trailing)\ ",
        rf"{_N}[\ -](?P<unit>{UNIT})\b",
    ),
    _rule(_moving, rf"\bwithin\ (?:{_THE}(?:last|past)\ )?{_N}?\ ?(?P<unit>{UNIT})\b"),
    _rule(_moving, rf"\b(?:in|over|during)\ the\ (?:past|last)\ (?P<n>{COUNT}\ )?{_UNIT_ALONE}\b"),
    _rule(_moving, rf"\b{_THE}past\ {_UNIT_ALONE}\b"),
    _rule(_half_year, r"\b(?:the\ )?last\ half\ year\b|\bpast\ half\ year\b"),
    _rule(_ago, rf"\b{_N}\ (?P<unit>day|week|month|quarter|decade)s?\ (?:ago|back)\b"),
    # last year, the week before last, this month, yesterday
    _rule(lambda match, calendar: year_en(match[0], calendar), rf"\b{YEAR_NAMED}"),
    _rule(_before_last, r"\b(?:the\ )?(?P<unit>week|month|quarter|decade)\ before\ last\b"),
    _rule(_relative, r"\b(?P<which>this|last|next|previous|(?:the\ )?current)\ (?P<unit>week|month|quarter|decade)\b"),
    _rule(lambda match, calendar: periods.relative(calendar, "day", 0), r"\btoday\b"),
    _rule(lambda match, calendar: periods.relative(calendar, "day", -1), r"\byesterday\b"),
    # the 2010s, the nineties, since Q3
    _rule(_decade, r"\b(?:the\ |early\ |mid-?|late\ )?(?P<tens>(?:19|20)\d0|[3-9]0)['’]?s\b"),
    _rule(_decade, rf"\bthe\ (?P<tens>{'|'.join(_DECADE_WORDS)})\b"),
    _rule(
        _part_alone,
        r"\b(?:in|of|during|since|before|after|until|from)\ (?:the\ )?",
        r"(?P<part>q[1-4]|h[12]|(?:first|second|third|fourth)\ (?:quarter|half))\b(?!\ of)",
    ),
    # 2024年3月5日到15日
    _chinese(
        _day_span_zh,
        rf"(?P<y>{YEAR_ZH})?\s*(?P<m>{MONTH_ZH})\s*月\s*",
        r"(?P<d>[12]\d|3[01]|0?[1-9])\s*[日号]?\s*(?:到|至|[-–~])\s*(?P<b>[12]\d|3[01]|0?[1-9])\s*[日号]",
    ),
    # 2024年3月5日
    _chinese(
        _month_day_zh,
        rf"(?P<y>{YEAR_ZH})?\s*(?P<m>{MONTH_ZH})\s*月\s*",
        r"(?P<d>[12]\d|3[01]|0?[1-9]|[一二三]?十[一二三四五六七八九]?|[一二三四五六七八九])\s*[日号]",
    ),
    # 上个十年, 九十年代
    _chinese(lambda match, calendar: periods.relative(calendar, "decade", -1), r"(?:上一?个|上)十年|过去的十年代"),
    _chinese(lambda match, calendar: periods.relative(calendar, "decade", 0), r"(?:这一?个|本)(?:十年|年代)"),
    _chinese(_decade, r"(?P<tens>(?:19|20)\d0|[二三四五六七八九1-9][十0])\s*年代"),
    # 去年第三季度, 2024年3月初
    _chinese(_part_of_year_zh, rf"(?P<y>{YEAR_ZH})\s*的?\s*(?P<part>{PART_ZH})"),
    # 最近三个月, 近半年, 两年多以前, 三周前
    _chinese(
        _recent_zh,
        rf"(?:最近|近|过去|前|这|过往)(?:的|这)?\s*{_N_ZH}?\s*(?:个)?\s*",
        r"(?P<unit>半年|年|月|周|星期|礼拜|天|日|季度|十年)(?P<half>半)?",
        r"(?:里|内|以来|之内|以内|来|间|期间|中)?(?!前)",
    ),
    _chinese(
        _moving_zh,
        rf"{_N_ZH}\s*多?\s*(?:个)?(?P<unit>年|月|周|星期|天)\s*(?P<half>半)?(?:以内|之内|内|以来|来)",
    ),
    _chinese(_half_year, r"半年(?:内|来|以来|之内)"),
    _chinese(
        _until_ago,
        rf"{_N_ZH}\s*(?:多\s*个?(?P<unit>年|月|周|星期|天)|个?(?P<unit2>年|月|周|星期|天)多)\s*[之以]?前",
    ),
    _chinese(_until_ago, rf"{_N_ZH}\s*(?:个)?(?P<unit>年|月|周|星期|天)\s*[之以]前"),
    _chinese(_ago, rf"{_N_ZH}\s*(?:个)?(?P<unit>月|周|星期|天)\s*前"),
    # 上个月, 本周, 月底, 今天
    _chinese(
        _relative_zh,
        r"(?<!一)(?P<which>上上|上|本|这|下)\s*一?个?\s*(?P<unit>季度|季|周|星期|礼拜|月)",
        rf"(?P<third>{MONTH_THIRD_ZH})?",
    ),
    _chinese(
        lambda match, calendar: month_third(match["third"], periods.relative(calendar, "month", 0)),
        r"月(?P<third>初|底|末)",
    ),
    _chinese(lambda match, calendar: periods.relative(calendar, "day", 0), r"今天|今日|当天"),
    _chinese(lambda match, calendar: periods.relative(calendar, "day", -1), r"昨天|昨日"),
    _chinese(lambda match, calendar: periods.relative(calendar, "day", -2), r"前天"),
    # 上半年, 第三季度, 三月 without a year; 去年
    _chinese(
        _part_alone_zh,
        r"(?P<part>上半年|下半年|第?\s*[一二三四1-4]\s*季度|",
        rf"(?:1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])\s*月份?{MONTH_THIRD_ZH}?)(?!之?间)",
    ),
    _chinese(lambda match, calendar: year_zh(match[0], calendar), YEAR_ZH),
    # A bare month needs a word that says so.
    _rule(
        lambda match, calendar: periods.latest(month(match["m"]), 1, calendar),
        rf"\b(?<=since\ )(?P<m>{MONTH})\b",
    ),
    _rule(_month_alone, rf"\b(?<=in\ )(?P<m>{MONTH})(?!\w)"),
    _rule(
        _month_named,
        rf"\b(?:(?<=of\ )|(?<=during\ )|(?<=before\ )|(?<=after\ )|(?<=until\ ))(?P<m>{MONTH_WHOLE})\b",
    ),
)
