"""Dates that a question states, English and Chinese, as half-open ranges of days (DESIGN section 2).

A *period* is what a phrase names ("last quarter", "2016", 去年第三季度). Words around it make a range of it:
"since", "before", "between ... and ...", 以来, 之前. "Within the past N months" has no upper end.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date

from agent.intent import periods
from agent.intent.numerals import CHINESE_COUNT, COUNT, parse_count
from agent.intent.periods import Calendar, Period, Unit

Reader = Callable[[re.Match[str], Calendar], Period | None]


@dataclass(frozen=True, slots=True)
class DateRange:
    """A range that a question states, and where: characters [start, end)."""

    period: Period
    start: int
    end: int
    phrase: str


_MONTH_NAMES = """
    january february march april may june july august september october november december
    """.split()
_MONTHS = {name[:3]: number for number, name in enumerate(_MONTH_NAMES, 1)}
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_YEAR = r"(?:19|20)\d\d"
_ORDINALS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "last": 4}
_ORDINAL = r"(?:first|1st|second|2nd|third|3rd|fourth|4th)"
# Months of the northern seasons; winter runs into the next year.
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "春": 3, "夏": 6, "秋": 9, "冬": 12}
_UNITS: dict[str, Unit] = {
    "day": "day", "week": "week", "month": "month", "quarter": "quarter", "year": "year", "decade": "decade",
    "天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "季": "quarter",
    "季度": "quarter", "年": "year", "十年": "decade", "半年": "half",
}  # fmt: skip
_UNIT = r"(?:day|week|month|quarter|year|decade)s?"
_TENS_YEARS = {
    word: 10 * number
    for number, word in enumerate(
        ["twenties", "thirties", "forties", "fifties", "sixties", "seventies", "eighties", "nineties"], 2
    )
}

# A year, and a part of one: the two are read apart and put together.
_YEAR_EN = (
    rf"(?:the\ year\ before\ last(?:\ year)?|(?:the\ )?(?:last|past|previous|prior)\ year|(?:this|(?:the\ )?current)\ year|(?:the\ )?next\ year|"
    rf"(?:{COUNT}\ years?\ ago)|{_YEAR})"
)
_PART_EN = (
    rf"(?:the\ )?(?:{_ORDINAL}\ (?:quarter|half)|q[1-4]|h[12]|(?:the\ )?last\ quarter|last\ half|"
    rf"(?:early|mid|late|the\ beginning|beginning|the\ start|start|the\ middle|middle|the\ end|end)|"
    rf"(?:spring|summer|autumn|fall|winter)|{_MONTH})"
)
_YEAR_ZH = (
    r"(?:今年|本年度?|这一?年|去年|上一?年度?|前年|大前年|明年|"
    rf"(?:{_YEAR}|[一二][零〇一二三四五六七八九]{{3}}|(?<!\d)\d\d)\s*年度?|{CHINESE_COUNT}\s*年前(?:的?那一?年)?)"
)
_PART_ZH = (
    r"(?:第?\s*[一二三四1-4]\s*(?:个)?季度?|[Qq][1-4]|上半年|下半年|前半年|后半年|"
    r"(?:1[0-2]|0?[1-9]|十[一二]|[一二三四五六七八九十])\s*月份?(?:初|底|末|上旬|中旬|下旬)?|[春夏秋冬][季天]?|年?初|年?底|年?末|年中)"
)


def _count(text: str) -> int:
    number = parse_count(text)
    if number is None:
        raise ValueError(text)
    return number


def _year_en(text: str, calendar: Calendar) -> Period:
    text = " ".join(text.casefold().split()).removeprefix("the ")
    if text.startswith("year before last"):
        return periods.relative(calendar, "year", -2)
    if text.startswith(("this", "current")):
        return periods.relative(calendar, "year", 0)
    if text.startswith(("last", "past", "previous", "prior")):
        return periods.relative(calendar, "year", -1)
    if text.startswith("next"):
        return periods.relative(calendar, "year", 1)
    if text.endswith("ago"):
        return periods.relative(calendar, "year", -_count(re.sub(r"\s*years? ago", "", text)))
    return periods.year(int(text))


def _year_zh(text: str, calendar: Calendar) -> Period:
    text = re.sub(r"\s", "", text)
    named = {"今": 0, "本": 0, "这": 0, "去": -1, "上": -1, "前": -2, "大": -3, "明": 1}
    if text[0] in named and not text[0].isdigit():
        return periods.relative(calendar, "year", named[text[0]])
    ago = re.match(rf"({CHINESE_COUNT})年前", text)
    if ago:
        return periods.relative(calendar, "year", -_count(ago[1]))
    digits = re.match(rf"\d+|{CHINESE_COUNT}", text)
    assert digits is not None
    number = _count(digits[0])
    if number < 100:
        number += 2000 if 2000 + number <= calendar.today.year + 5 else 1900
    return periods.year(number)


def _part_en(text: str) -> tuple[int, int] | None:
    """(first month from 0, how many months) within a year."""
    text = " ".join(text.casefold().split()).removeprefix("the ").rstrip(".")
    if re.fullmatch(r"q[1-4]", text):
        return (int(text[1]) - 1) * 3, 3
    if re.fullmatch(r"h[12]", text):
        return (int(text[1]) - 1) * 6, 6
    first, _, unit = text.partition(" ")
    if unit == "quarter":
        return (_ORDINALS[first] - 1) * 3, 3
    if unit == "half":
        return (min(_ORDINALS[first], 2) - 1) * 6, 6
    if text in _SEASONS:
        return _SEASONS[text] - 1, 3
    if text in ("early", "beginning", "start"):
        return 0, 4
    if text in ("mid", "middle"):
        return 4, 4
    if text in ("late", "end"):
        return 8, 4
    return _MONTHS[text[:3]] - 1, 1


def _part_zh(text: str) -> tuple[int, int] | None:
    text = re.sub(r"\s", "", text)
    if text[0] in _SEASONS:
        return _SEASONS[text[0]] - 1, 3
    if text in ("初", "年初"):
        return 0, 3
    if text in ("年中", "中"):
        return 4, 4
    if text in ("底", "年底", "末", "年末"):
        return 9, 3
    if text.endswith("半年"):
        return (0, 6) if text[0] in "上前" else (6, 6)
    if "季" in text or text[0] in "Qq":
        number = re.search(r"[1-4一二三四]", text)
        assert number is not None
        return (_count(number[0]) - 1) * 3, 3
    month = re.match(rf"(\d+|{CHINESE_COUNT})月", text)
    return (_count(month[1]) - 1, 1) if month and 1 <= _count(month[1]) <= 12 else None


def _month_third(text: str, month: Period) -> Period:
    """The first, middle or last ten days of a month, where the phrase says so."""
    assert month.low is not None
    low = month.low
    for marks, first, last in ((("初", "上旬"), 1, 11), (("中旬",), 11, 21), (("底", "末", "下旬"), 21, 0)):
        if text.endswith(marks):
            return Period(low.replace(day=first), low.replace(day=last) if last else month.high)
    return month


def _of_year(part: tuple[int, int] | None, whole: Period) -> Period | None:
    return None if part is None else periods.within(whole, part)


def _alone(part: tuple[int, int] | None, calendar: Calendar, *, over: bool = False) -> Period | None:
    """A part of a year without the year: the latest that has begun."""
    return None if part is None else periods.latest(part[0] + 1, part[1], calendar, before_now=over)


def _day(year: int, month: int, day: int) -> Period:
    low = date(year, month, day)
    return Period(low, periods.shift(low, "day", 1))


def _day_of_latest(month: int, day: int, calendar: Calendar) -> Period:
    year = calendar.today.year
    with suppress(ValueError):
        if date(year, month, day) > calendar.today:
            year -= 1
    return _day(year, month, day)


def _fiscal(match: re.Match[str], calendar: Calendar) -> Period:
    named = match["fy"] or ""
    if named.isdigit():
        number = int(named) + (2000 if len(named) == 2 else 0)
    else:
        step = {"last": -1, "previous": -1, "past": -1, "上": -1, "去": -1, "next": 1, "下": 1, "明": 1}.get(
            named.casefold() if named.isascii() else named[0], 0
        )
        number = periods.present_fiscal_year(calendar) + step
    whole = periods.fiscal_year(number, calendar)
    quarter = match["fq"] or match["fq2"]
    return periods.within(whole, ((_count(quarter) - 1) * 3, 3)) if quarter else whole


def _step(word: str) -> int:
    word = word.casefold().removeprefix("the ").strip()
    return {"this": 0, "current": 0, "next": 1}.get(word, -1)


def _step_zh(word: str) -> int:
    if word.startswith(("上上", "前")):
        return -2
    return {"上": -1, "下": 1}.get(word[0], 0)


def _ten_years(match: re.Match[str], calendar: Calendar) -> Period:
    text = match["tens"].casefold()
    if text in _TENS_YEARS:
        return _decade(1900 + _TENS_YEARS[text]) if _TENS_YEARS[text] >= 30 else _decade(2000 + _TENS_YEARS[text])
    number = int(text)
    if number < 100:
        number += 1900 if number >= 30 else 2000
    return _decade(number)


def _decade(number: int) -> Period:
    return Period(date(number, 1, 1), date(number + 10, 1, 1))


def _decade_zh(match: re.Match[str], calendar: Calendar) -> Period:
    number = _count(match["tens"])
    if number < 100:
        number += 1900 if number >= 30 else 2000
    return _decade(number // 10 * 10)


def _moving(match: re.Match[str], calendar: Calendar) -> Period:
    """The past N units up to now."""
    return Period(periods.shift(calendar.today, _unit(match["unit"]), -_count(match["n"] or "1")), None)


def _moving_zh(match: re.Match[str], calendar: Calendar) -> Period:
    number, unit = match["n"] or "1", _unit(match["unit"])
    months = {"half": 6, "year": 12, "quarter": 3, "month": 1, "decade": 120}.get(unit)
    if match["half"] and months:
        return Period(periods.add_months(calendar.today, -(_count(number) * months + months // 2)), None)
    return Period(periods.shift(calendar.today, unit, -_count(number)), None)


def _unit(text: str) -> Unit:
    word = re.sub(r"^个", "", text.casefold())
    return _UNITS[word if word in _UNITS else word.removesuffix("s")]


def _ago(match: re.Match[str], calendar: Calendar) -> Period:
    unit, number = _unit(match["unit"]), _count(match["n"])
    point = periods.shift(calendar.today, unit, -number)
    compared = (match["cmp"] or "").casefold()
    if compared.startswith(("more", "over", "longer", "at least")):
        return Period(None, point)
    if compared:
        return Period(point, None)
    return periods.containing(point, unit, calendar)


def _month_day_year(match: re.Match[str], calendar: Calendar) -> Period:
    month, day = _MONTHS[match["m"].casefold()[:3]], int(match["d"])
    return _day(int(match["y"]), month, day) if match["y"] else _day_of_latest(month, day, calendar)


def _chinese_day(match: re.Match[str], calendar: Calendar) -> Period:
    month, day = _count(match["m"]), _count(match["d"])
    if not match["y"]:
        return _day_of_latest(month, day, calendar)
    low = _year_zh(match["y"], calendar).low
    assert low is not None
    return _day(low.year, month, day)


def _iso_week(match: re.Match[str], calendar: Calendar) -> Period:
    low = date.fromisocalendar(int(match["y"] or match["y2"] or calendar.today.year), int(match["w"]), 1)
    return Period(low, periods.shift(low, "week", 1))


def _last_month_name(match: re.Match[str], calendar: Calendar) -> Period | None:
    word, part = match["which"].casefold(), _part_en(match["m"])
    assert part is not None
    if word == "this":
        return periods.within(periods.relative(calendar, "year", 0), part)
    if word == "next":
        following = periods.latest(part[0] + 1, part[1], calendar)
        assert following.low is not None
        return periods.months(following.low.year + 1, part[0] + 1, part[1])
    return _alone(part, calendar, over=True)


def _chinese_month(match: re.Match[str], calendar: Calendar) -> Period | None:
    part = _of_year(_part_zh(match["part"]), _year_zh(match["y"], calendar))
    return part and _month_third(match["part"], part) if "月" in match["part"] else part


def _pattern(text: str) -> re.Pattern[str]:
    return re.compile(text, re.IGNORECASE | re.VERBOSE)


_THE = r"(?:the\ )?"
# The first pattern that matches at a place wins, so the longer phrases come first.
_READERS: tuple[tuple[re.Pattern[str], Reader], ...] = tuple(
    (_pattern(pattern), reader)
    for pattern, reader in (
        (r"(?<![\d-])(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?![\d-])",
         lambda m, c: _day(int(m["y"]), int(m["m"]), int(m["d"]))),
        (rf"(?:从|自)?(?P<a>{_YEAR})\s*(?:到|至|[-–—~])\s*(?P<b>{_YEAR})\s*年(?:之?间|期间)?",
         lambda m, c: Period(periods.year(int(m["a"])).low, periods.year(int(m["b"])).high)),
        (r"(?<![\w-])(?:(?P<y>\d{4})-?W(?P<w>\d{1,2}))(?P<y2>)\b", _iso_week),
        (r"\b(?:week|W)\ ?(?P<w>\d{1,2})(?:\ (?:of\ )?(?P<y>\d{4}))?(?P<y2>)\b", _iso_week),
        (r"(?<![\d-])(?P<y>(?:19|20)\d\d)[-/](?P<m>0[1-9]|1[0-2])(?![\d-])",
         lambda m, c: periods.months(int(m["y"]), int(m["m"]), 1)),
        (r"\b(?:fy\ ?'?(?P<fy>\d{4}|\d\d)|(?:fiscal|financial)\ year\ (?P<fy1>\d{4}))(?:[\s,-]*q(?P<fq>[1-4]))?(?P<fq2>)\b",
         lambda m, c: _fiscal_named(m, c)),
        (rf"\b(?:q(?P<fq>[1-4])\ (?:of\ )?)?{_THE}(?P<fy>this|last|previous|past|current|next)\ (?:fiscal|financial)\ year(?:'s\ q(?P<fq2>[1-4]))?",
         _fiscal),
        (r"(?P<fy>上一?个?|本|去年?|今年?|这一?个?|下一?个?|明年?|\d{4})\s*(?:财年|财政年度|会计年度)(?:第?(?P<fq>[一二三四1-4])季度)?(?P<fq2>)",
         _fiscal),
        (rf"\b{_THE}week\ (?:of|starting)\ (?P<m>{_MONTH})\ (?P<d>\d{{1,2}})(?:st|nd|rd|th)?(?:,?\ (?P<y>{_YEAR}))?\b",
         lambda m, c: periods.containing(_month_day_year(m, c).low or c.today, "week", c)),
        (rf"\b(?P<m>{_MONTH})\ (?P<d>\d{{1,2}})(?:st|nd|rd|th)?\b(?!\d|:)(?:,?\ (?P<y>{_YEAR})\b)?", _month_day_year),
        (rf"\b(?P<d>\d{{1,2}})(?:st|nd|rd|th)?\ (?:of\ )?(?P<m>{_MONTH})(?:,?\ (?P<y>{_YEAR})\b)?", _month_day_year),
        (rf"\b(?P<part>{_PART_EN})(?:\ |,\ |-|\ of\ |\ in\ )(?P<y>{_YEAR_EN})\b",
         lambda m, c: _of_year(_part_en(m["part"]), _year_en(m["y"], c))),
        (rf"\b(?P<y>{_YEAR_EN})(?:['’]s\ |\ |-|,\ )(?P<part>(?:{_ORDINAL}\ (?:quarter|half)|q[1-4]|h[12]|(?:spring|summer|autumn|fall|winter)\b))",
         lambda m, c: _of_year(_part_en(m["part"]), _year_en(m["y"], c))),
        (rf"\b(?P<which>last|this|next|past|previous)\ (?P<m>{_MONTH}|spring|summer|autumn|fall|winter)\b", _last_month_name),
        (rf"\b(?P<cmp>more\ than|over|longer\ than|at\ least|less\ than|under|within)\ (?P<n>{COUNT})\ (?P<unit>{_UNIT})\ (?:ago|back)\b", _ago),
        (rf"\b(?P<cmp>older|newer|younger|more\ recent)\ than\ (?P<n>{COUNT})\ (?P<unit>{_UNIT})\b(?!\ ago)",
         lambda m, c: Period(None, periods.shift(c.today, _unit(m["unit"]), -_count(m["n"]))) if m["cmp"].casefold() == "older"
         else Period(periods.shift(c.today, _unit(m["unit"]), -_count(m["n"])), None)),
        (rf"\b(?:{_THE}(?:past|last|previous|recent|most\ recent)|{_THE}trailing)\ (?P<n>{COUNT})[\ -](?P<unit>{_UNIT})\b", _moving),
        (rf"\bwithin\ (?:{_THE}(?:last|past)\ )?(?P<n>{COUNT})?\ ?(?P<unit>{_UNIT})\b", _moving),
        (rf"\b(?:in|over|during)\ the\ (?:past|last)\ (?P<n>{COUNT}\ )?(?P<unit>day|week|month|quarter|year|decade)\b", _moving),
        (rf"\b{_THE}past\ (?P<n>)(?P<unit>day|week|month|quarter|year|decade)\b", _moving),
        (r"\b(?:the\ )?last\ half\ year\b|\bpast\ half\ year\b", lambda m, c: Period(periods.add_months(c.today, -6), None)),
        (rf"\b(?P<cmp>)(?P<n>{COUNT})\ (?P<unit>day|week|month|quarter|decade)s?\ (?:ago|back)\b", _ago),
        (rf"\b{_YEAR_EN.replace('|' + _YEAR, '')}", lambda m, c: _year_en(m[0], c)),
        (r"\b(?:the\ )?(?P<unit>week|month|quarter|decade)\ before\ last\b", lambda m, c: periods.relative(c, _unit(m["unit"]), -2)),
        (r"\b(?P<which>this|last|next|previous|(?:the\ )?current)\ (?P<unit>week|month|quarter|decade)\b",
         lambda m, c: periods.relative(c, _unit(m["unit"]), _step(m["which"]))),
        (r"\btoday\b", lambda m, c: periods.relative(c, "day", 0)),
        (r"\byesterday\b", lambda m, c: periods.relative(c, "day", -1)),
        (r"\b(?:the\ |early\ |mid-?|late\ )?(?P<tens>(?:19|20)\d0|[3-9]0)['’]?s\b", _ten_years),
        (rf"\bthe\ (?P<tens>{'|'.join(_TENS_YEARS)})\b", _ten_years),
        (r"\b(?:in|of|during|since|before|after|until|from)\ (?:the\ )?(?P<part>q[1-4]|h[12]|(?:first|second|third|fourth)\ (?:quarter|half))\b(?!\ of)",
         lambda m, c: _alone(_part_en(m["part"]), c)),
        # Chinese
        (rf"(?P<y>{_YEAR_ZH})?\s*(?P<m>1[0-2]|0?[1-9]|十[一二]|[一二三四五六七八九十])\s*月\s*(?P<d>[12]\d|3[01]|0?[1-9]|[一二三]?十[一二三四五六七八九]?|[一二三四五六七八九])\s*[日号]",
         _chinese_day),
        (r"(?:上一?个|上)十年|过去的十年代", lambda m, c: periods.relative(c, "decade", -1)),
        (r"(?:这一?个|本)(?:十年|年代)", lambda m, c: periods.relative(c, "decade", 0)),
        (r"(?P<tens>(?:19|20)\d0|[二三四五六七八九1-9][十0])\s*年代", _decade_zh),
        (rf"(?P<y>{_YEAR_ZH})\s*的?\s*(?P<part>{_PART_ZH})", _chinese_month),
        (rf"(?:最近|近|过去|前|这|过往)(?:的|这)?\s*(?P<n>{CHINESE_COUNT})?\s*(?:个)?\s*(?P<unit>半年|年|月|周|星期|礼拜|天|日|季度|十年)(?P<half>半)?(?:里|内|以来|之内|以内|来|间|期间|中)?(?!前)",
         lambda m, c: _moving_zh(m, c) if m["n"] or m["unit"] == "半年" or m[0][0] in "最近过" else None),
        (rf"(?P<n>{CHINESE_COUNT})\s*多?\s*(?:个)?(?P<unit>年|月|周|星期|天)\s*(?P<half>半)?(?:以内|之内|内|以来|来)", _moving_zh),
        (r"半年(?:内|来|以来|之内)", lambda m, c: Period(periods.add_months(c.today, -6), None)),
        (rf"(?P<n>{CHINESE_COUNT})\s*(?:多\s*个?(?P<unit>年|月|周|星期|天)|个?(?P<unit2>年|月|周|星期|天)多)\s*[之以]?前", lambda m, c: Period(None, periods.shift(c.today, _unit(m["unit"] or m["unit2"]), -_count(m["n"])))),
        (rf"(?P<n>{CHINESE_COUNT})\s*(?:个)?(?P<unit>年|月|周|星期|天)\s*[之以]前", lambda m, c: Period(None, periods.shift(c.today, _unit(m["unit"]), -_count(m["n"])))),
        (rf"(?P<cmp>)(?P<n>{CHINESE_COUNT})\s*(?:个)?(?P<unit>月|周|星期|天)\s*前", _ago),
        (r"(?<!一)(?P<which>上上|上|本|这|下)\s*一?个?\s*(?P<unit>季度|季|周|星期|礼拜|月)(?P<third>初|底|末|上旬|中旬|下旬)?",
         lambda m, c: _month_third(m["third"] or "", periods.relative(c, _unit(m["unit"]), _step_zh(m["which"])))),
        (r"月(?P<third>初|底|末)", lambda m, c: _month_third(m["third"], periods.relative(c, "month", 0))),
        (r"今天|今日|当天", lambda m, c: periods.relative(c, "day", 0)),
        (r"昨天|昨日", lambda m, c: periods.relative(c, "day", -1)),
        (r"前天", lambda m, c: periods.relative(c, "day", -2)),
        (r"(?P<part>上半年|下半年|第?\s*[一二三四1-4]\s*季度|(?:1[0-2]|[1-9]|十[一二]?|[一二三四五六七八九])\s*月份?(?:初|底|末|上旬|中旬|下旬)?)(?!之?间)",
         lambda m, c: _chinese_part(m, c)),
        (rf"{_YEAR_ZH}", lambda m, c: _year_zh(m[0], c)),
        # Bare years and months need a word that says so.
        (rf"\b(?P<m>{_MONTH})(?:\ |,\ )(?P<y>{_YEAR})\b", lambda m, c: periods.months(int(m["y"]), _MONTHS[m["m"].casefold()[:3]], 1)),
        (rf"\b(?<=since\ )(?P<m>{_MONTH})\b", lambda m, c: periods.latest(_MONTHS[m["m"].casefold()[:3]], 1, c)),
        (rf"\b(?<=in\ )(?P<m>{_MONTH})(?!\w)", lambda m, c: None if m["m"].casefold() == "may" and m["m"][0] == "m" else periods.latest(_MONTHS[m["m"].casefold()[:3]], 1, c)),
    )
)  # fmt: skip


def _fiscal_named(match: re.Match[str], calendar: Calendar) -> Period:
    named = match["fy"] or match["fy1"]
    number = int(named) + (2000 if len(named) == 2 else 0)
    whole = periods.fiscal_year(number, calendar)
    return periods.within(whole, ((int(match["fq"]) - 1) * 3, 3)) if match["fq"] else whole


def _chinese_part(match: re.Match[str], calendar: Calendar) -> Period | None:
    part = _alone(_part_zh(match["part"]), calendar)
    return part and _month_third(match["part"], part) if "月" in match["part"] else part


_BARE_YEAR = re.compile(
    rf"(?<![\w.$€£#/])(?<!\D-)(?<!\D\d-)(?<!\D\d\d-)(?<!\D\d\d\d-)({_YEAR})(?![\w%]|[.,]\d|-\d(?!\d{{3}}\b))(?:['’]s\b)?"
)
_YEAR_CUE = re.compile(
    r"(?:\b(?:in|of|from|since|before|after|until|till|by|during|for|through|thru|throughout|between|and|or|to|year|late|early|mid|vs\.?|versus|circa|around|than|the|about|with|against|to)\s+|[(（]|[-–—,~]\s*|^)$",
    re.IGNORECASE,
)
_YEAR_FOLLOWED = re.compile(
    r"\s*(?:[-–—~]|to\b|and\b|or\b|vs\b|[)）,:;?!.]?\s*$|[a-z]{3,}|edition|[?？])", re.IGNORECASE
)

_BEFORE = re.compile(
    r"(?:\b(?:not\s+)?(?:since|from|starting(?:\s+(?:in|from))?|as\s+of|beginning(?:\s+in)?)\s+(?:the\s+)?(?P<since>)|"
    r"\b(?:after|later\s+than|newer\s+than|following|post)\s+(?:the\s+)?(?P<after>)|"
    r"\b(?:before|prior\s+to|earlier\s+than|older\s+than|until|till|pre|predating|up\s+to(?=\s+(?:19|20)\d\d))[\s-]+(?:the\s+)?(?P<before>)|"
    r"\b(?:through|thru|up\s+to\s+and\s+including|by|no\s+later\s+than|as\s+late\s+as)\s+(?:the\s+end\s+of\s+)?(?:the\s+)?(?P<upto>)|"
    r"(?:自从?|从)\s*(?P<zh_since>)|(?:截至|截止到?|直到)\s*(?P<zh_upto>)|(?:早于)\s*(?P<zh_before>)|(?:晚于)\s*(?P<zh_after>))$",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"^\s*(?:(?P<since>以来|至今|起|开始|以降|or\s+later\b|or\s+newer\b|onwards?\b|and\s+(?:later|after|onwards?)\b|\+)|"
    r"(?P<after>之后|以后|后(?!来|端|台|面))|(?P<before>之前|以前|前(?!端|台|面|三|两|几|\d)|or\s+(?:earlier|before)\b|and\s+(?:earlier|before)\b)|(?P<upto>为止|底前|底之前))",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    r"\s*(?:and|to|through|thru|until|till|[-–—~～]|到|至|和|与)\s*(?:the\s+(?:end|beginning|start)\s+of\s+)?$",
    re.IGNORECASE,
)
_FROM = re.compile(
    r"(?:\bbetween\s+|\bfrom\s+|从|自|介于|在)\s*(?:the\s+(?:end|beginning|start)\s+of\s+)?$", re.IGNORECASE
)
_TRAILING = re.compile(r"^\s*(?:之间|期间|年间|间)")


def find_dates(text: str, calendar: Calendar) -> list[DateRange]:
    """The ranges a question states, in their order, not overlapping.

    Periods side by side ("2013 and 2023") stay apart; "from A to B" is one range.
    """
    named = list(_named(text, calendar))
    ranges: list[DateRange] = []
    place = 0
    while place < len(named):
        one = named[place]
        following = named[place + 1] if place + 1 < len(named) else None
        joined = following and _span(text, one, following)
        if joined:
            ranges.append(joined)
            place += 2
        else:
            ranges.append(_modified(text, one))
            place += 1
    # "the last decade (the 2010s)" says one thing twice.
    return [one for place, one in enumerate(ranges) if not place or one.period != ranges[place - 1].period]


def _named(text: str, calendar: Calendar) -> Iterator[DateRange]:
    """Every period named, the longest reading first at each place."""
    taken: list[DateRange] = []
    for pattern, reader in _READERS:
        for match in pattern.finditer(text):
            if any(match.start() < one.end and one.start < match.end() for one in taken) or not match[0].strip():
                continue
            period = None
            with suppress(ValueError, OverflowError, KeyError):
                period = reader(match, calendar)
            if period is not None:
                start = match.start() + len(match[0]) - len(match[0].lstrip())
                taken.append(DateRange(period, start, match.end(), match[0].strip()))
    for match in _BARE_YEAR.finditer(text):
        if any(match.start() < one.end and one.start < match.end() for one in taken):
            continue
        if _YEAR_CUE.search(text[: match.start()]) or re.match(r"\s*[-–—~]\s*(?:19|20)\d\d", text[match.end() :]):
            taken.append(DateRange(periods.year(int(match[1])), match.start(), match.end(), match[0]))
    yield from sorted(taken, key=lambda one: one.start)


def _span(text: str, one: DateRange, other: DateRange) -> DateRange | None:
    """ "from A to B" and "A-B" as one range; None when the two periods stand for themselves."""
    between = text[one.end : other.start]
    if not _BETWEEN.fullmatch(between) or not (one.period.low and other.period.high):
        return None
    opened = _FROM.search(text[: one.start])
    only_and = re.search(r"\band\b|和|与", between, re.IGNORECASE)
    closed = _TRAILING.match(text[other.end :])
    if (only_and and not (opened and re.search("between|介于", opened[0], re.IGNORECASE)) and not closed) or (
        one.period.low >= other.period.high
    ):
        return None
    start = opened.start() if opened else one.start
    end = other.end + (closed.end() if closed else 0)
    high = other.period.high
    if re.search(r"\b(?:beginning|start)\s+of\s+$", between, re.IGNORECASE):
        high = other.period.low or high
    return DateRange(Period(one.period.low, high), start, end, text[start:end])


def _modified(text: str, one: DateRange) -> DateRange:
    """The range with "since", "before" and the like around it."""
    low, high = one.period.low, one.period.high
    if low is None or high is None:
        before = re.search(r"\b(?:in|over|during|within|for|from|of)\s+$", text[: one.start], re.IGNORECASE)
        return DateRange(one.period, before.start() if before else one.start, one.end, one.phrase)
    before, after = _BEFORE.search(text[: one.start]), _AFTER.match(text[one.end :])
    start = before.start() if before else one.start
    end = one.end + (after.end() if after else 0)
    kinds = {
        name.removeprefix("zh_")
        for found in (before, after)
        if found
        for name, value in found.groupdict().items()
        if value is not None
    }
    period = one.period
    if after and "after" in kinds:
        period = Period(high, None)
    elif after and "before" in kinds:
        period = Period(None, low)
    elif "since" in kinds and (after or not _is_origin(text, one)):
        period = Period(low, None)
    elif "after" in kinds:
        period = Period(high, None)
    elif "before" in kinds:
        period = Period(None, low)
    elif "upto" in kinds:
        period = Period(None, high)
    else:
        preposition = re.search(r"\b(?:in|of|from|during|on|for|at)\s+(?:the\s+)?$", text[: one.start], re.IGNORECASE)
        start = preposition.start() if preposition else one.start
        end = one.end
    return DateRange(period, start, end, text[start:end].strip())


def _is_origin(text: str, one: DateRange) -> bool:
    """ "documents from 2019" are of that year; "from 2019 on" begins there."""
    from_word = re.search(r"\bfrom\s+(?:the\s+)?$", text[: one.start], re.IGNORECASE)
    onwards = re.match(r"\s*(?:onwards?|forward)\b|\s*on\s*(?:[,.;:?!]|$)", text[one.end :], re.IGNORECASE)
    chinese = re.search(r"(?:自从?|从)\s*$", text[: one.start]) is not None
    return (from_word is not None and onwards is None) or chinese


def find_date(text: str, calendar: Calendar) -> Period | None:
    """The one range that a phrase states, None when it states none or several."""
    found = find_dates(text, calendar)
    return found[0].period if len(found) == 1 else None
