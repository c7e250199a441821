"""Years, parts of a year and units as they are written, English and Chinese, and the periods they stand for.

The patterns are for `re.VERBOSE`: a blank of theirs is escaped.
"""

import re

from agent.intent import periods
from agent.intent.numerals import CHINESE_COUNT, COUNT, parse_count
from agent.intent.periods import Calendar, Period, Unit

Months = tuple[int, int]
"""The first month of a part of a year, from 0, and how many months it has."""

_MONTH_NAMES = """
    january february march april may june july august september october november december
    """.split()
_MONTHS = {name[:3]: number for number, name in enumerate(_MONTH_NAMES, 1)}
_ORDINALS = {"first": 1, "1st": 1, "second": 2, "2nd": 2, "third": 3, "3rd": 3, "fourth": 4, "4th": 4, "last": 4}
# First months of the northern seasons; winter runs into the next year.
_SEASONS = {"spring": 3, "summer": 6, "autumn": 9, "fall": 9, "winter": 12, "春": 3, "夏": 6, "秋": 9, "冬": 12}
_UNITS: dict[str, Unit] = {
    "day": "day", "week": "week", "month": "month", "quarter": "quarter", "year": "year", "decade": "decade",
    "天": "day", "日": "day", "周": "week", "星期": "week", "礼拜": "week", "月": "month", "季": "quarter",
    "季度": "quarter", "年": "year", "十年": "decade", "半年": "half",
}  # fmt: skip

MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)\b\.?"
)
MONTH_WHOLE = rf"(?:{'|'.join(_MONTH_NAMES)})"
SEASON = r"(?:spring|summer|autumn|fall|winter)"
ORDINAL = r"(?:first|1st|second|2nd|third|3rd|fourth|4th)"
UNIT = r"(?:day|week|month|quarter|year|decade)s?"
YEAR = r"(?:19|20)\d\d"
YEAR_NAMED = (
    r"(?:the\ year\ before\ last(?:\ year)?|(?:the\ )?(?:last|past|previous|prior)\ year|"
    r"(?:this|(?:the\ )?current)\ year|(?:the\ )?next\ year|"
    rf"(?:{COUNT}\ years?\ ago))"
)
YEAR_EN = rf"(?:{YEAR_NAMED}|{YEAR})"
YEAR_ZH = (
    r"(?:今年|本年度?|这一?年|去年|上一?年度?|前年|大前年|明年|"
    rf"(?:{YEAR}|[一二][零〇一二三四五六七八九]{{3}}|(?<!\d)\d\d)\s*年度?|{CHINESE_COUNT}\s*年前(?:的?那一?年)?)"
)
PART_EN = (
    rf"(?:the\ )?(?:{ORDINAL}\ (?:quarter|half)|q[1-4]|h[12]|(?:the\ )?last\ quarter|last\ half|"
    r"(?:early|mid|late|the\ beginning|beginning|the\ start|start|the\ middle|middle|the\ end|end)|"
    rf"{SEASON}|{MONTH})"
)
MONTH_ZH = r"(?:1[0-2]|0?[1-9]|十[一二]|[一二三四五六七八九十])"
MONTH_THIRD_ZH = r"(?:初|底|末|上旬|中旬|下旬)"
PART_ZH = (
    r"(?:第?\s*[一二三四1-4]\s*(?:个)?季度?|[Qq][1-4]|上半年|下半年|前半年|后半年|"
    rf"{MONTH_ZH}\s*月份?{MONTH_THIRD_ZH}?|[春夏秋冬][季天]?|年?初|年?底|年?末|年中)"
)


def count(text: str) -> int:
    """A number in digits or words.

    Raises:
        ValueError: it is none.
    """
    number = parse_count(text)
    if number is None:
        raise ValueError(text)
    return number


def unit(text: str) -> Unit:
    """ "months", 个月."""
    word = re.sub(r"^个", "", text.casefold())
    return _UNITS[word if word in _UNITS else word.removesuffix("s")]


def month(text: str) -> int:
    """The number of an English month, from 1."""
    return _MONTHS[text.casefold()[:3]]


def year_en(text: str, calendar: Calendar) -> Period:
    """ "2016", "last year", "three years ago"."""
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
        return periods.relative(calendar, "year", -count(re.sub(r"\s*years? ago", "", text)))
    return periods.year(int(text))


def year_zh(text: str, calendar: Calendar) -> Period:
    """2016年, 去年, 三年前, 16年."""
    text = re.sub(r"\s", "", text)
    named = {"今": 0, "本": 0, "这": 0, "去": -1, "上": -1, "前": -2, "大": -3, "明": 1}
    if text[0] in named:
        return periods.relative(calendar, "year", named[text[0]])
    ago = re.match(rf"({CHINESE_COUNT})年前", text)
    if ago:
        return periods.relative(calendar, "year", -count(ago[1]))
    digits = re.match(rf"\d+|{CHINESE_COUNT}", text)
    assert digits is not None
    number = count(digits[0])
    if number < 100:
        # Of two digits: up to five years ahead, else of the last century.
        number += 2000 if 2000 + number <= calendar.today.year + 5 else 1900
    return periods.year(number)


def part_en(text: str) -> Months:
    """ "Q3", "second half", "summer", "early", "March"."""
    text = " ".join(text.casefold().split()).removeprefix("the ").rstrip(".")
    if re.fullmatch(r"q[1-4]", text):
        return (int(text[1]) - 1) * 3, 3
    if re.fullmatch(r"h[12]", text):
        return (int(text[1]) - 1) * 6, 6
    first, _, whole = text.partition(" ")
    if whole == "quarter":
        return (_ORDINALS[first] - 1) * 3, 3
    if whole == "half":
        return (min(_ORDINALS[first], 2) - 1) * 6, 6
    if text in _SEASONS:
        return _SEASONS[text] - 1, 3
    if text in ("early", "beginning", "start"):
        return 0, 4
    if text in ("mid", "middle"):
        return 4, 4
    if text in ("late", "end"):
        return 8, 4
    return month(text) - 1, 1


def part_zh(text: str) -> Months | None:
    """第三季度, 上半年, 夏天, 年初, 三月; None for a month that there is not."""
    text = re.sub(r"\s", "", text)
    if text[0] in _SEASONS:
        return _SEASONS[text[0]] - 1, 3
    if text in ("初", "年初"):
        return 0, 3
    if text == "年中":
        return 4, 4
    if text in ("底", "年底", "末", "年末"):
        return 9, 3
    if text.endswith("半年"):
        return (0, 6) if text[0] in "上前" else (6, 6)
    if "季" in text or text[0] in "Qq":
        number = re.search(r"[1-4一二三四]", text)
        assert number is not None
        return (count(number[0]) - 1) * 3, 3
    named = re.match(rf"(\d+|{CHINESE_COUNT})月", text)
    return (count(named[1]) - 1, 1) if named and 1 <= count(named[1]) <= 12 else None


def month_third(text: str, whole: Period) -> Period:
    """The first, middle or last ten days of a month, where the phrase says so: 三月初."""
    low = whole.low
    assert low is not None
    for marks, first, last in ((("初", "上旬"), 1, 11), (("中旬",), 11, 21), (("底", "末", "下旬"), 21, 0)):
        if text.endswith(marks):
            return Period(low.replace(day=first), low.replace(day=last) if last else whole.high)
    return whole
