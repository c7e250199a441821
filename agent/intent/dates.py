"""Dates that a question states, English and Chinese, as half-open ranges of days (DESIGN section 2).

A *period* is what a phrase names ("last quarter", "2016", 去年第三季度). Words around it make a range of it:
"since", "before", "between ... and ...", 以来, 之前. "Within the past N months" has no upper end.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta

from agent.intent import periods
from agent.intent.date_patterns import RULES
from agent.intent.date_words import YEAR, YEAR_EN
from agent.intent.periods import Calendar, Period


@dataclass(frozen=True, slots=True)
class DateRange:
    """A range that a question states, and where: characters [start, end)."""

    period: Period
    start: int
    end: int
    phrase: str


# A year alone may be any number: not "$2000", "2000 km/h", "PEP-2000", "2000.5"; and a word must introduce it.
_BARE_YEAR = re.compile(
    r"(?<![\w.$€£#/])(?<!\D-)(?<!\D\d-)(?<!\D\d\d-)(?<!\D\d\d\d-)"
    rf"({YEAR})(?![\w%]|[.,]\d|-\d(?!\d{{3}}\b)|\s*(?:euros?|dollars?|pounds|yuan|eur|usd|gbp|cny|[$€£¥元])(?!\w))(?:['’]s\b)?"
)
_YEAR_CUE = re.compile(
    r"(?:\b(?:in|of|from|since|before|after|until|till|by|during|for|through|thru|throughout|between|and|or|to|year|"
    r"late|early|mid|vs\.?|versus|circa|around|than|the|about|with|against|among|across|within|many|all|any)\s+|[(（]|[-–—,~]\s*|^)$",
    re.IGNORECASE,
)
_TO_YEAR = re.compile(rf"\s*[-–—~]\s*{YEAR}")

# Empty groups tell which of the words stands before or after a period.
_BEFORE = re.compile(
    r"(?:\b(?:not\s+)?(?:since|from|on\s+or\s+after|starting(?:\s+(?:in|from))?|as\s+of|beginning(?:\s+in)?)\s+(?:the\s+)?(?P<since>)|"
    r"\b(?:after|later\s+than|newer\s+than|following|post)\s+(?:the\s+)?(?P<after>)|"
    r"\b(?:before|prior\s+to|earlier\s+than|older\s+than|until|till|pre|predating|up\s+to(?=\s+(?:19|20)\d\d))"
    r"[\s-]+(?:the\s+)?(?P<before>)|"
    r"\b(?:through|thru|up\s+to\s+and\s+including|on\s+or\s+before|by|no\s+later\s+than|as\s+late\s+as)\s+"
    r"(?:the\s+end\s+of\s+)?(?:the\s+)?(?P<upto>)|"
    r"(?:自从?|从)\s*(?P<zh_since>)|(?:截至|截止到?|直到)\s*(?P<zh_upto>)|"
    r"(?:早于)\s*(?P<zh_before>)|(?:晚于)\s*(?P<zh_after>))$",
    re.IGNORECASE,
)
_AFTER = re.compile(
    r"^\s*(?:"
    r"(?P<since>以来|至今|起|开始|以降|or\s+later\b|or\s+newer\b|(?:to|until|till|through|up\s+to)\s+(?:now|date|(?:the\s+)?present(?:\s+day)?)\b|onwards?\b|and\s+(?:later|after|onwards?)\b|\+)|"
    r"(?P<after>之后|以后|后(?!来|端|台|面))|"
    r"(?P<before>之前|以前|前(?!端|台|面|三|两|几|\d)|or\s+(?:earlier|before)\b|and\s+(?:earlier|before)\b)|"
    r"(?P<upto>为止|底前|底之前))",
    re.IGNORECASE,
)
_BETWEEN = re.compile(
    r"^\s*(?:and|(?:up\s+)?to(?:\s+and\s+including)?|through|thru|until|till|[-–—~～]|到|至|和|与)\s*(?:the\s+(?:end|beginning|start)\s+of\s+)?$",
    re.IGNORECASE,
)
_FROM = re.compile(
    r"(?:\bbetween\s+|\bfrom\s+|从|自|介于|在)\s*(?:the\s+(?:end|beginning|start)\s+of\s+)?$", re.IGNORECASE
)
_AND_NOW = re.compile(r"^\s+and\s+(?:now|(?:the\s+)?present)\b", re.IGNORECASE)
_SAYS_BETWEEN = re.compile(r"between|介于", re.IGNORECASE)
_ONLY_AND = re.compile(r"^\s*(?:and\b|和|与)", re.IGNORECASE)
_TO_BEGINNING = re.compile(r"\b(?:beginning|start)\s+of\s+$", re.IGNORECASE)
_CLOSING = re.compile(r"^\s*(?:之间|期间|年间|间)")
# Before a period as it is, and before one with an open end.
_PREPOSITION = re.compile(r"\b(?:in|of|from|during|on|for|at)\s+(?:the\s+)?$", re.IGNORECASE)
_PREPOSITION_OF_OPEN = re.compile(r"\b(?:in|over|during|within|for|from|of)\s+$", re.IGNORECASE)
_SAYS_FROM = re.compile(r"\bfrom\s+(?:the\s+)?$", re.IGNORECASE)
_SAYS_FROM_ZH = re.compile(r"(?:自从?|从)\s*$")
_ONWARDS = re.compile(r"^\s*(?:(?:onwards?|forward)\b|on\s*(?:[,.;:?!]|$))", re.IGNORECASE)


_PART = (
    r"(?:q[1-4]|h[12]|(?:first|second|third|fourth|last|1st|2nd|3rd|4th)(?:\s+(?:half|quarter))?|"
    r"jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)"
)
_BESIDE = r"(?:,|and|or|vs\.?|versus|&|和|与|、|及|以及|或|或者|跟|同|比|对比)"
# "[Q1] and Q2 of 2023"
_BEFORE_ITS_YEAR = re.compile(
    rf"\b(?P<part>{_PART})\s*(?:{_BESIDE}|to|through|[-–—~])\s*(?:the\s+)?"
    rf"(?P<other>{_PART})\s*(?:of\s+)?(?P<year>{YEAR_EN})\b",
    re.IGNORECASE,
)
# 2023 年上半年和[下半年]
_AFTER_ITS_YEAR = re.compile(
    r"(?:in\s+)?(?:[上下]半年|第?\s*[一二三四1-4]\s*季度|(?:\d{1,2}|[一二三四五六七八九十]{1,2})\s*月份?|"
    + _PART
    + ")",
    re.IGNORECASE,
)
_SAID_AGAIN = re.compile(r"这\s*[一二两三四五六七八九十\d]+\s*(?:个)?(?:年|月|季度)(?:间|里|内)?")
_ONLY_BESIDE = re.compile(rf"\s*(?:{_BESIDE}|to|through|until|[-–—~～]|到|至)\s*(?:in\s+)?", re.IGNORECASE)


def find_dates(text: str, calendar: Calendar) -> list[DateRange]:
    """The ranges a question states, in their order, not overlapping.

    Periods side by side ("2013 and 2023") stay apart; "from A to B" is one range.
    """
    named = _of_one_year(text, list(_named(text, calendar)), calendar)
    ranges: list[DateRange] = []
    place = 0
    while place < len(named):
        one = named[place]
        following = named[place + 1] if place + 1 < len(named) else None
        joined = following and _span(text, one, following)
        ranges.append(joined or _modified(text, one))
        place += 2 if joined else 1
    return _said_once(text, ranges)


def _of_one_year(text: str, named: list[DateRange], calendar: Calendar) -> list[DateRange]:
    """The periods, with parts of a year that is said once beside another part of it."""
    whole: list[DateRange] = []
    for one in named:
        before = whole[-1] if whole else None
        is_part = _AFTER_ITS_YEAR.fullmatch(one.phrase.strip()) is not None
        if before and is_part and _ONLY_BESIDE.fullmatch(text[before.end : one.start]):
            one = replace(one, period=_in_year_of(one.period, before.period))
        whole.append(one)
    for match in _BEFORE_ITS_YEAR.finditer(text):
        if any(one.start <= match.start() and match.end() <= one.end for one in whole):
            continue  # "from March to May 2025" has been read as a whole
        unit = re.search(r"\s+(?:half|quarter)$", match["other"], re.IGNORECASE)
        part = match["part"] + (unit[0] if unit and " " not in match["part"] else "")
        period = find_date(f"{part} {match['year']}", calendar) or find_date(f"{part} of {match['year']}", calendar)
        if period is not None:
            # Alone it was read as one of this year.
            whole = [one for one in whole if one.end <= match.start("part") or match.end("part") <= one.start]
            whole.append(DateRange(period, match.start("part"), match.end("part"), match["part"]))
    return sorted(whole, key=lambda one: one.start)


def _in_year_of(period: Period, other: Period) -> Period:
    """A period within one year, moved to the year of another; as it is where that is not of one year."""
    if period.low is None or period.high is None or other.low is None or other.high is None:
        return period
    if other.low.year != (other.high - timedelta(days=1)).year:
        return period
    years = other.low.year - period.low.year
    return Period(period.low.replace(year=other.low.year), period.high.replace(year=period.high.year + years))


def _said_once(text: str, ranges: Sequence[DateRange]) -> list[DateRange]:
    """ "the last decade (the 2010s)" says one thing twice."""
    once: list[DateRange] = []
    for one in ranges:
        if once and _SAID_AGAIN.fullmatch(one.phrase) and not text[once[-1].end : one.start].strip(" ，,"):
            continue  # 2000 到 2009 年这十年
        if once and one.period == once[-1].period:
            bracketed = text[once[-1].end : one.start].lstrip().startswith(("(", "（"))
            once[-1] = replace(once[-1], end=one.end) if bracketed else once[-1]
        else:
            once.append(one)
    return once


def find_date(text: str, calendar: Calendar) -> Period | None:
    """The one range that a phrase states, None when it states none or several."""
    found = find_dates(text, calendar)
    return found[0].period if len(found) == 1 else None


def _named(text: str, calendar: Calendar) -> Iterator[DateRange]:
    """Every period named, the longest reading first at each place."""
    taken: list[DateRange] = []

    def is_free(match: re.Match[str]) -> bool:
        return not any(match.start() < one.end and one.start < match.end() for one in taken)

    for pattern, reader, chinese in RULES:
        if chinese and text.isascii():
            continue  # it can be nowhere, and half of the rules are such
        for match in pattern.finditer(text):
            if not match[0].strip() or not is_free(match):
                continue
            period = None
            with suppress(ValueError, OverflowError, KeyError):
                period = reader(match, calendar)
            if period is not None:
                start = match.start() + len(match[0]) - len(match[0].lstrip())
                taken.append(DateRange(period, start, match.end(), match[0].strip()))
    for match in _BARE_YEAR.finditer(text):
        is_introduced = _YEAR_CUE.search(text[: match.start()]) or _TO_YEAR.match(text, match.end())
        if is_introduced and is_free(match):
            taken.append(DateRange(periods.year(int(match[1])), match.start(), match.end(), match[0]))
    yield from sorted(taken, key=lambda one: one.start)


def _span(text: str, one: DateRange, other: DateRange) -> DateRange | None:
    """ "from A to B" and "A-B" as one range; None when the two periods stand for themselves."""
    between = text[one.end : other.start]
    low, high = one.period.low, other.period.high
    if not _BETWEEN.search(between) or not low or not high or low >= high:
        return None
    opened, closed = _FROM.search(text[: one.start]), _CLOSING.match(text[other.end :])
    # "2013 and 2023" are two, "between 2013 and 2023" is one.
    if _ONLY_AND.search(between) and not (opened and _SAYS_BETWEEN.search(opened[0])) and not closed:
        return None
    if _TO_BEGINNING.search(between):
        high = other.period.low or high
    start = opened.start() if opened else one.start
    end = other.end + (closed.end() if closed else 0)
    return DateRange(Period(low, high), start, end, text[start:end])


def _modified(text: str, one: DateRange) -> DateRange:
    """The range with "since", "before" and the like around it."""
    head = text[: one.start]
    if not one.period.is_bounded:
        preposition = _PREPOSITION_OF_OPEN.search(head)
        return DateRange(one.period, preposition.start() if preposition else one.start, one.end, one.phrase)
    opened, now = _FROM.search(head), _AND_NOW.match(text[one.end :])
    if now and opened and _SAYS_BETWEEN.search(opened[0]):
        end = one.end + now.end()
        return DateRange(Period(one.period.low, None), opened.start(), end, text[opened.start() : end])
    before, after = _BEFORE.search(head), _AFTER.match(text[one.end :])
    kinds = _kinds(before) | _kinds(after)
    if not after and _is_origin(text, one):
        kinds.discard("since")
    period = _opened(one.period, kinds)
    if period is None:
        preposition = _PREPOSITION.search(head)
        start, end = preposition.start() if preposition else one.start, one.end
    else:
        start = before.start() if before else one.start
        end = one.end + (after.end() if after else 0)
    return DateRange(period or one.period, start, end, text[start:end].strip())


def _kinds(match: re.Match[str] | None) -> set[str]:
    """Which of the words stand there: since, after, before, upto."""
    groups = match.groupdict() if match else {}
    return {name.removeprefix("zh_") for name, value in groups.items() if value is not None}


def _opened(period: Period, kinds: set[str]) -> Period | None:
    """The period with an end opened, None when no word says so."""
    if "after" in kinds:
        return Period(period.high, None)
    if "before" in kinds:
        return Period(None, period.low)
    if "since" in kinds:
        return Period(period.low, None)
    return Period(None, period.high) if "upto" in kinds else None


def _is_origin(text: str, one: DateRange) -> bool:
    """ "documents from 2019" are of that year; "from 2019 on" begins there."""
    head = text[: one.start]
    if _SAYS_FROM_ZH.search(head):
        return True
    return _SAYS_FROM.search(head) is not None and _ONWARDS.search(text[one.end :]) is None
