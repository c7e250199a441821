"""Dates that questions state, English and Chinese, as half-open ranges of days."""

from collections.abc import Sequence
from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from agent.intent.conditions.date_fields import choose_occurrence
from agent.intent.conditions.filter_json import date_filter
from agent.intent.reader import local
from agent.intent.reading import FILTERS_FROM
from agent.intent.rules_reader import ReadingContext, read_by_rules
from agent.intent.time.dates import find_date, read_dates
from agent.intent.time.grammar import RULES
from agent.intent.time.lexer import load_date_words
from agent.intent.time.periods import Calendar
from agent.types import Message
from retrievers.core.metadata import Field
from retrievers.core.types import FieldCatalogue, FieldValues

TODAY = Calendar(date(2026, 11, 20))  # a Friday

ONE = {
    # periods
    "what changed in 2016": ("2016-01-01", "2017-01-01"),
    # the year said once, or not at all
    "incidents between July and September last year": ("2025-07-01", "2025-10-01"),
    "documents from July through September of last year": ("2025-07-01", "2025-10-01"),
    "between July and September": ("2026-07-01", "2026-10-01"),
    "from November to February": ("2026-11-01", "2027-03-01"),
    "from December to February": ("2025-12-01", "2026-03-01"),
    "between November and February 2025": ("2024-11-01", "2025-03-01"),
    "between 1 July and 30 September 2025": ("2025-07-01", "2025-10-01"),
    "from July 1 to September 30, 2025": ("2025-07-01", "2025-10-01"),
    "between December 20 and January 5, 2026": ("2025-12-20", "2026-01-06"),
    "from 3 March to 5 April": ("2026-03-03", "2026-04-06"),
    "between Q1 and Q3 last year": ("2025-01-01", "2025-10-01"),
    "in the last six months of 2025": ("2025-07-01", "2026-01-01"),
    "the first two weeks of 2024": ("2024-01-01", "2024-01-15"),
    "meeting notes of October": ("2026-10-01", "2026-11-01"),
    "incidents between last June and now": ("2026-06-01", None),
    "from July until today": ("2026-07-01", None),
    "from July 2024 to now": ("2024-07-01", None),
    "from 2023 to the present": ("2023-01-01", None),
    "created from June 2019 up to and including May 2021": ("2019-06-01", "2021-06-01"),
    "2000 到 2009 年这十年里": ("2000-01-01", "2010-01-01"),
    "documents between 1 and 15 November 2026": ("2026-11-01", "2026-11-16"),
    "from November 1st to 15th, 2025": ("2025-11-01", "2025-11-16"),
    "11月1日到15日的文档": ("2026-11-01", "2026-11-16"),
    "the 2024 proposals": ("2024-01-01", "2025-01-01"),
    "last year's incidents": ("2025-01-01", "2026-01-01"),
    "this years ideas": ("2026-01-01", "2027-01-01"),
    "the year before last: changes": ("2024-01-01", "2025-01-01"),
    "last quarter there was": ("2026-07-01", "2026-10-01"),
    "in the third quarter of the year before last": ("2024-07-01", "2024-10-01"),
    "last year's Q3": ("2025-07-01", "2025-10-01"),
    "H1 2025": ("2025-01-01", "2025-07-01"),
    "in the first half of last year": ("2025-01-01", "2025-07-01"),
    "filed last December": ("2025-12-01", "2026-01-01"),
    "April failures": ("2026-04-01", "2026-05-01"),
    "Ann's May corrections": ("2026-05-01", "2026-06-01"),
    "june, kids, dinosaurs": ("2026-06-01", "2026-07-01"),
    "tickets, storage, Feb": ("2026-02-01", "2026-03-01"),
    "July: what was signed?": ("2026-07-01", "2026-08-01"),
    "last month": ("2026-10-01", "2026-11-01"),
    "in March 2024": ("2024-03-01", "2024-04-01"),
    "last week": ("2026-11-09", "2026-11-16"),
    "yesterday": ("2026-11-19", "2026-11-20"),
    "July 4, 2025": ("2025-07-04", "2025-07-05"),
    "4 July": ("2026-07-04", "2026-07-05"),
    "25 December": ("2025-12-25", "2025-12-26"),
    "on 2025-07-04": ("2025-07-04", "2025-07-05"),
    "in 2025-07": ("2025-07-01", "2025-08-01"),
    "2025-W12": ("2025-03-17", "2025-03-24"),
    "the 2010s": ("2010-01-01", "2020-01-01"),
    "the nineties": ("1990-01-01", "2000-01-01"),
    "this decade only": ("2020-01-01", "2030-01-01"),
    "summer of 2024": ("2024-06-01", "2024-09-01"),
    "last winter": ("2025-12-01", "2026-03-01"),
    "early 2024": ("2024-01-01", "2024-05-01"),
    "FY2025": ("2025-01-01", "2026-01-01"),
    "last fiscal year": ("2025-01-01", "2026-01-01"),
    "two weeks ago": ("2026-11-02", "2026-11-09"),
    # open ends
    "since January": ("2026-01-01", None),
    "on or after 2020-01-01": ("2020-01-01", None),
    "on or before 2001-12-31": (None, "2002-01-01"),
    "rejected ones among 2022 proposals": ("2022-01-01", "2023-01-01"),
    "since June 2025": ("2025-06-01", None),
    "after 2015": ("2016-01-01", None),
    "before 2005": (None, "2005-01-01"),
    "through 2019": (None, "2020-01-01"),
    "within the last five years": ("2021-11-20", None),
    "in the past six months": ("2026-05-20", None),
    "of the past 18 months": ("2025-05-20", None),
    "more than twenty years ago": (None, "2006-11-20"),
    "older than ten years": (None, "2016-11-20"),
    # spans
    "between 2005 and the end of 2007": ("2005-01-01", "2008-01-01"),
    "from 2000-2001 about": ("2000-01-01", "2002-01-01"),
    "2020 thru 2025": ("2020-01-01", "2026-01-01"),
    "from 3 July 2025 to 5 August 2025": ("2025-07-03", "2025-08-06"),
    # Chinese
    "去年第三季度提了什么": ("2025-07-01", "2025-10-01"),
    "今年上半年": ("2026-01-01", "2026-07-01"),
    "今年七月提出的": ("2026-07-01", "2026-08-01"),
    "前年提出的": ("2024-01-01", "2025-01-01"),
    "五年前那一年": ("2021-01-01", "2022-01-01"),
    "上个季度": ("2026-07-01", "2026-10-01"),
    "上个月": ("2026-10-01", "2026-11-01"),
    "上周": ("2026-11-09", "2026-11-16"),
    "本月初": ("2026-11-01", "2026-11-11"),
    "近半年": ("2026-05-20", None),
    "最近一年半": ("2025-05-20", None),
    "最近三个月的会议纪要": ("2026-08-20", None),
    "过去十年里": ("2016-11-20", None),
    "2023年以来": ("2023-01-01", None),
    "2003 年之前": (None, "2003-01-01"),
    "截至2023年底": (None, "2024-01-01"),
    "两年多以前": (None, "2024-11-20"),
    "上一个十年（2010 年代）": ("2010-01-01", "2020-01-01"),
    "2022年到2024年之间": ("2022-01-01", "2025-01-01"),
    "2019到2021年间": ("2019-01-01", "2022-01-01"),
    "2024年3月5日之前": (None, "2024-03-05"),
    "二〇一六年": ("2016-01-01", "2017-01-01"),
}
# How days are written, and what of a period is meant; today is Friday, 20 November 2026.
SPELLED = {
    "on 4th jan 2019": ("2019-01-04", "2019-01-05"),
    "on jan/2": ("2026-01-02", "2026-01-03"),
    "on 22/04": ("2026-04-22", "2026-04-23"),
    "on 22/04/2019": ("2019-04-22", "2019-04-23"),
    "on 2019.1.4": ("2019-01-04", "2019-01-05"),
    "on dec. 31, 1994": ("1994-12-31", "1995-01-01"),
    "filed may twenty nine": ("2026-05-29", "2026-05-30"),
    "on 6 april nineteen ninety three": ("1993-04-06", "1993-04-07"),
    "the 2nd of last month": ("2026-10-02", "2026-10-03"),
    "mon 16th": ("2026-11-16", "2026-11-17"),
    "April 9th through 17th 2018": ("2018-04-09", "2018-04-18"),
    "9th through 17th April 2018": ("2018-04-09", "2018-04-18"),
    "from may to oct 2020": ("2020-05-01", "2020-11-01"),
    "between 3 and 12 of September": ("2026-09-03", "2026-09-13"),
    "3 May 2019 to 5 June": ("2019-05-03", "2019-06-06"),
    "Tuesday of next week": ("2026-11-24", "2026-11-25"),
    "the last week of 2016": ("2016-12-26", "2017-01-02"),
    "first friday of july 2019": ("2019-07-05", "2019-07-06"),
    "2 days from today": ("2026-11-22", "2026-11-23"),
    "the day after christmas": ("2026-12-26", "2026-12-27"),
    "week commencing 4 May 2020": ("2020-05-04", "2020-05-11"),
    "on easter 2018": ("2018-04-01", "2018-04-02"),
    "on black friday 2010": ("2010-11-26", "2010-11-27"),
    "late september": ("2026-09-16", "2026-10-01"),
    "the 21st century": ("2000-01-01", "2100-01-01"),
    "previous three quarters": ("2026-01-01", "2026-10-01"),
    "next 3 days": ("2026-11-21", "2026-11-24"),
    "papers published 2019": ("2019-01-01", "2020-01-01"),
    "pre-2010 papers": (None, "2010-01-01"),
    "more than 2 years old": (None, "2024-11-20"),
    "since the end of last quarter": ("2026-10-01", None),
    "十月一日到十五日": ("2026-10-01", "2026-10-16"),
    "2010年十月底": ("2010-10-21", "2010-11-01"),
    "9月下旬到10月上旬": ("2026-09-21", "2026-10-11"),
    "上上周三": ("2026-11-04", "2026-11-05"),
    "大前天": ("2026-11-17", "2026-11-18"),
    "上个月15号": ("2026-10-15", "2026-10-16"),
    "四月的最后一个星期一": ("2026-04-27", "2026-04-28"),
    "20世纪90年代": ("1990-01-01", "2000-01-01"),
    "零八年": ("2008-01-01", "2009-01-01"),
    "两千零八年": ("2008-01-01", "2009-01-01"),
    "康熙三年五月": ("1664-05-01", "1664-06-01"),
    "国庆节期间": ("2026-10-01", "2026-10-02"),
    "後天": ("2026-11-22", "2026-11-23"),
    "在2019年之前": (None, "2019-01-01"),
    "三月以前": (None, "2026-03-01"),
    "三个月以前": (None, "2026-08-20"),
    "自去年五月起": ("2025-05-01", None),
    "2017 年 6 月之前提交的": (None, "2017-06-01"),
    "which month of 2024": ("2024-01-01", "2025-01-01"),
    "minutes of this week's meeting": ("2026-11-16", "2026-11-23"),
    "gallery 4 today": ("2026-11-20", "2026-11-21"),
    "上个季度一共几起": ("2026-07-01", "2026-10-01"),
    "周五提交的报告": ("2026-11-20", "2026-11-21"),
    "2023年中标的公司": ("2023-01-01", "2024-01-01"),
    # weekdays with what they are of
    "from Tuesday to Thursday last week": ("2026-11-10", "2026-11-13"),
    "from last Tuesday to Friday": ("2026-11-10", "2026-11-14"),
    "last week on Thursday": ("2026-11-12", "2026-11-13"),
    "this Friday (Nov 20)": ("2026-11-20", "2026-11-21"),
    "Thursday three weeks from now": ("2026-12-10", "2026-12-11"),
    "a month from today on Monday": ("2026-12-21", "2026-12-22"),
    "the Friday before Christmas 2024": ("2024-12-20", "2024-12-21"),
    "in the week of the 18th": ("2026-11-16", "2026-11-23"),
    "the penultimate Monday of May 2020": ("2020-05-18", "2020-05-19"),
    "11月20号，星期五": ("2026-11-20", "2026-11-21"),
    # parts of weeks, and working days
    "late this week": ("2026-11-19", "2026-11-23"),
    "earlier last week": ("2026-11-09", "2026-11-12"),
    "上半周": ("2026-11-16", "2026-11-19"),
    "previous 4 business days": ("2026-11-16", None),
    "next 2 working days": ("2026-11-21", "2026-11-25"),
    "3 working days after 2026-11-20": ("2026-11-25", "2026-11-26"),
    "last working week": ("2026-11-09", "2026-11-14"),
    "最近4个工作日": ("2026-11-16", None),
    # spans beside a day
    "in the two weeks before Christmas 2024": ("2024-12-11", "2024-12-25"),
    "within 3 days of 2019-05-05": ("2019-05-02", "2019-05-09"),
    "no more than 3 weeks ago": ("2026-10-30", None),
    "no older than two years": ("2024-11-20", None),
    "for 3 days from 2 May 2020": ("2020-05-02", "2020-05-05"),
    "between now and 5 December": ("2026-11-20", "2026-12-06"),
    "the weekend of Halloween 2020": ("2020-10-31", "2020-11-02"),
    "Halloween weekend 2020": ("2020-10-31", "2020-11-02"),
    "不晚于2024年5月": (None, "2024-06-01"),
    "不早于2024年5月": ("2024-05-01", None),
    "不超过三个月前": ("2026-08-20", None),
    "超过三年前": (None, "2023-11-20"),
    "2015年和2018年之间": ("2015-01-01", "2019-01-01"),
    # digits and other forms
    "from 10/2018 to 02/2019": ("2018-10-01", "2019-03-01"),
    "in 2018-7": ("2018-07-01", "2018-08-01"),
    "since 20180702": ("2018-07-02", None),
    "2019-05-01/2019-06-01": ("2019-05-01", "2019-06-02"),
    "16. Nov. 2016": ("2016-11-16", "2016-11-17"),
    "26th of June to 28th June of 2020": ("2020-06-26", "2020-06-29"),
    "winter 2018-2019": ("2018-12-01", "2019-03-01"),
    "the twenty-tens": ("2010-01-01", "2020-01-01"),
    "month to date": ("2026-11-01", None),
    "12-11-10的报告": ("2012-11-10", "2012-11-11"),
    "神龙元年十一月": ("0705-11-01", "0705-12-01"),
}
# A part of these would be another date.
UNREAD = (
    "33 May 2019",
    "30 February 2024",
    "9 through June 2020",
    "between 2005 and the release",
    "from 2005 to the release",
    "last 3 weekdays of 2016",
    "for two months since 2019",
    "on Monday or the weekend",
    "on 2 May 2019 to 5",
    "on Friday after next",
    "last week (Tue-Sat)",
    "this Friday 7.6",
    "超过2019年",
    "最近几周末",
    "this friday 5/12",
    "the first of 2019",
    "chinese new year 2019",
    "去年的今天",
    "2020年正月初一",
    "本季度末",
)
NONE = (
    "where is the log, June?",
    "June: what did he do",
    "March on the capital",
    "February from hell",
    "what happened, December is cold",
    "top 5 of 24/7 teams",
    "what may 3 people do",
    "ordinance 2019-77",
    "ordinance 2019-7",
    "form 11-2016",
    "build 20180702 of the parser",
    "square root of 1764",
    "故宫周一开门吗",
    "三体第二季",
    "当年普通整数",
    "试用期要提前几天说",
    "on the 10th anniversary",
    "version 2019.1.4.7",
    "1/2 of the tickets",
    "三个月的会议纪要",
    "最后一天",
    "Python 3.13 and phones",
    "what may I expect",
    "RFC 2616 and error 2002",
    "WS/T 367-2012",
    "帮我找一下周文斌老师的资料",
    "the second half of the message",
    "march through the list",
    "reports of June Carter",
    "May users see drafts?",
    "June, can you find the drafts?",
    "is June too wet for reports?",
    "documents of Jan",
    "what happens before may is decided",
)


@pytest.mark.parametrize(("text", "days"), [*ONE.items(), *SPELLED.items()], ids=[*ONE, *SPELLED])
def test_a_phrase_names_its_days(text: str, days: tuple[str | None, str | None]):
    period = find_date(text, TODAY)
    assert period is not None
    assert (period.low and period.low.isoformat(), period.high and period.high.isoformat()) == days


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_date_is_left_alone(text: str):
    assert read_dates(text, TODAY).ranges == []


@pytest.mark.parametrize("text", UNREAD)
def test_words_of_a_date_that_cannot_be_read_whole_are_handed_back(text: str):
    dates = read_dates(text, TODAY)
    assert (dates.ranges, len(dates.unread)) == ([], 1)


@pytest.mark.parametrize("text", ["on 5 May and the 7th", "on the 6th, 7th, 8th July 2020", "on May 3 and 4"])
def test_days_that_are_listed_are_all_read_or_none(text: str):
    dates = read_dates(text, TODAY)
    assert dates.ranges == []
    assert dates.unread


@pytest.mark.parametrize(
    ("text", "lows"),
    [
        ("either 2019 or 2021", ["2019", "2021"]),
        ("from 2019, 2020 or 2021", ["2019", "2020", "2021"]),
        ("the 1990s and 2000s", ["1990", "2000"]),
        ("2020、2021年", ["2020", "2021"]),
        ("after 2015 before 2020", ["2016", "None"]),
    ],
)
def test_periods_that_are_listed_are_all_read(text: str, lows: list[str]):
    assert [str(one.period.low).removesuffix("-01-01") for one in read_dates(text, TODAY).ranges] == lows


def test_another_date_of_the_question_tells_which_number_is_the_day():
    american, british = (
        read_dates("on 01/02/2018", TODAY).ranges,
        read_dates("on 01/02/2018 or on 22/04/2019", TODAY).ranges,
    )
    assert [str(one.period.low) for one in american] == ["2018-01-02"]
    assert [str(one.period.low) for one in british] == ["2018-02-01", "2019-04-22"]


def test_a_period_up_to_now_ends_today_where_documents_lie_ahead():
    (one,) = read_dates("in the past six months", TODAY).ranges
    gte = {"type": "gte", "key": "on", "value": "2026-05-20"}
    ahead = FieldValues(Field("on", "date", "date"), low="2020-01-01", high="2033-01-01")
    past = FieldValues(Field("on", "date", "date"), low="2020-01-01", high="2026-11-19")
    assert date_filter(one, ahead, ZoneInfo("UTC"))["filters"] == [
        gte,
        {"type": "lt", "key": "on", "value": "2026-11-21"},
    ]
    assert date_filter(one, past, ZoneInfo("UTC")) == gte


@pytest.mark.parametrize(
    ("text", "first", "last", "low"),
    [
        ("in June", "2024-06-02", "2025-05-01", "2024-06-01"),  # some of the latest June
        ("in June", "2025-02-01", "2025-11-30", "2025-06-01"),  # all documents lie behind it, and there are some ahead
        ("in June", "2025-02-01", "2025-05-30", "2024-06-01"),  # none in either
        ("last June", "2025-02-01", "2025-11-30", "2024-06-01"),
        ("6月", "2025-02-01", "2025-11-30", "2025-06-01"),
    ],
)
def test_a_month_without_a_year_is_the_one_of_which_there_are_documents(text: str, first: str, last: str, low: str):
    (one,) = read_dates(text, Calendar(date(2025, 3, 10))).ranges
    values = FieldValues(Field("posted", "date", "date"), {}, 9, 9, first, last)
    read = date_filter(choose_occurrence(one, values, date(2025, 3, 10))[0], values, ZoneInfo("UTC"))
    assert read["filters"][0] == {"type": "gte", "key": "posted", "value": low}


def test_the_words_of_every_language_are_used_by_the_grammar():
    known = {part for rules in RULES.values() for rule in rules for part in rule.parts}
    named = {category for phrases in load_date_words().phrases.values() for _, category, _ in phrases}
    named = {one for one in named if not one.endswith(("unit", "units"))}
    assert named - known <= {
        "skipped",
        "amount",
        "ordinary",
        "ordinary_alone",
        "closed",
        "beside",
        "asked",
        "cue",
        "ask",
        "anaphoric",
        "OTHERUNIT",
        "UNKNOWN",
    }


def test_years_that_are_compared_stay_apart():
    found = read_dates("2013 年和 2023 年相比", TODAY).ranges
    assert [one.period.low for one in found] == [date(2013, 1, 1), date(2023, 1, 1)]


@pytest.mark.parametrize(
    ("text", "lows"),
    [
        ("2023 年上半年和下半年", ["2023-01-01", "2023-07-01"]),
        ("2023 年第一季度与第二季度", ["2023-01-01", "2023-04-01"]),
        ("2024年3月和4月", ["2024-03-01", "2024-04-01"]),
        ("去年上半年比下半年", ["2025-01-01", "2025-07-01"]),
        ("Q1 and Q2 of 2023", ["2023-01-01", "2023-04-01"]),
        ("the first and second half of 2023", ["2023-01-01", "2023-07-01"]),
        ("March and April 2024", ["2024-03-01", "2024-04-01"]),
        ("in March 2024 or in May", ["2024-03-01", "2024-05-01"]),
        ("January, February and March 2019", ["2019-01-01", "2019-02-01", "2019-03-01"]),
        ("Feb/March 2019", ["2019-02-01", "2019-03-01"]),
        ("filed on Monday and Tuesday", ["2026-11-16", "2026-11-17"]),
        ("Q1 to Q3 2023", ["2023-01-01"]),
        ("permits that were filed in Q1 and Q2 of 2023", ["2023-01-01", "2023-04-01"]),
        ("2024年3月到5月", ["2024-03-01"]),
    ],
)
def test_a_year_that_is_said_once_holds_for_the_part_beside(text: str, lows: list[str]):
    assert [str(one.period.low) for one in read_dates(text, TODAY).ranges] == lows


def test_the_place_of_a_range_is_that_of_all_its_words():
    text = "proposals from between 2005 and 2007 about enums"
    (one,) = read_dates(text, TODAY).ranges
    assert text[one.start : one.end] == "between 2005 and 2007"


def test_a_fiscal_year_is_named_after_the_year_it_ends_in():
    april = Calendar(date(2026, 11, 20), fiscal_start=4)
    period = find_date("FY2026", april)
    assert period is not None
    assert (period.low, period.high) == (date(2025, 4, 1), date(2026, 4, 1))
    quarter = find_date("上财年第二季度", april)
    assert quarter is not None
    assert (quarter.low, quarter.high) == (date(2025, 7, 1), date(2025, 10, 1))


def test_a_week_begins_where_the_asker_says():
    sunday = Calendar(date(2026, 11, 20), week_start=6)
    period = find_date("this week", sunday)
    assert period is not None
    assert period.low == date(2026, 11, 15)


@pytest.mark.parametrize("text", ["99999 years ago", "year 0000", "in the past 999 decades"])
def test_a_date_beyond_the_calendar_is_no_date_and_no_error(text: str):
    assert read_dates(text, TODAY).ranges == []


def test_days_are_those_of_the_asker_where_times_are_stored():
    shanghai = ZoneInfo("Asia/Shanghai")
    (one,) = read_dates("yesterday", Calendar(local(datetime(2026, 11, 20, 1), shanghai).date())).ranges
    timed = FieldValues(Field("at", "date", "date"), low="2026-01-01T08:00:00", high="2026-11-19T16:30:00")
    assert date_filter(one, timed, shanghai) == {
        "type": "and",
        "filters": [
            {"type": "gte", "key": "at", "value": "2026-11-19T00:00:00+08:00"},
            {"type": "lt", "key": "at", "value": "2026-11-20T00:00:00+08:00"},
        ],
    }
    plain = FieldValues(Field("on", "date", "date"), low="2026-01-01", high="2026-11-19")
    assert date_filter(one, plain, shanghai)["filters"][0]["value"] == "2026-11-19"


def read_date_piece(question: str, *fields: str) -> tuple[str, bool]:
    """The date field of the one condition of a question, and whether it is sure."""
    held = {name: FieldValues(Field(name, "date", "date"), {}, 40, 40, "2015-01-01", "2027-01-01") for name in fields}
    now = datetime(2026, 11, 20, tzinfo=ZoneInfo("UTC"))
    context = ReadingContext(FieldCatalogue(((1, 1),), 40, held), frozenset({"order"}), {}, TODAY, now)
    (piece,) = read_by_rules(question, (), context).conditions
    return piece.field, piece.confidence >= FILTERS_FROM


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ("orders shipped in May 2024", "shipped_at"),
        ("orders introduced in May 2024", "dt_intro"),
        ("orders that took effect in May 2024", "dt_eff"),
        ("orders that came into force since May 2024", "dt_eff"),
        ("orders running out in May 2024", "dt_exp"),
        ("orders that lapse in May 2024", "dt_exp"),
        ("2024年5月生效的order", "dt_eff"),
        ("2024年5月失效的order", "dt_exp"),
    ],
)
def test_a_period_is_of_the_date_field_that_the_words_beside_it_name(question: str, field: str):
    others = {"shipped_at": "ordered_at", "dt_intro": "dt_eff", "dt_eff": "dt_intro", "dt_exp": "dt_start"}
    assert read_date_piece(question, field, others[field]) == (field, True)


@pytest.mark.parametrize("question", ["orders of 2024", "orders begun in 2024", "2024年提交的order"])
def test_a_period_without_a_word_for_its_field_is_of_when_documents_came_to_be(question: str):
    assert read_date_piece(question, "end_date", "start_date") == ("start_date", True)


@pytest.mark.parametrize(
    "question",
    ["orders dispatched in 2024", "orders that arrived in 2024", "2024年取消的order"],
)
def test_a_period_beside_a_verb_of_none_of_the_fields_is_not_sure(question: str):
    assert not read_date_piece(question, "ordered_at", "paid_at")[1]
    assert read_date_piece(question, "ordered_at")[1]


@pytest.mark.parametrize(
    ("question", "is_sure"),
    [
        ("for my trip of last week: all orders", False),
        ("I was away last week, show all orders", False),
        ("show all orders of last week, I was away", True),
        ("which orders did I place last week?", True),
    ],
)
def test_a_date_said_of_the_asker_excludes_nothing(question: str, is_sure: bool):
    assert read_date_piece(question, "ordered_at") == ("ordered_at", is_sure)


def dated(
    fields: dict[str, tuple[str, str, int]], question: str, history: Sequence[Message] = ()
) -> list[tuple[dict[str, object], bool]]:
    """What is read of a question over date fields (first value, last value, documents), and whether it filters."""
    known = {
        name: FieldValues(Field(name, "date", "date"), {}, documents, documents, low, high)
        for name, (low, high, documents) in fields.items()
    }
    context = ReadingContext(
        FieldCatalogue((), 100, known), frozenset(), {}, TODAY, datetime(2026, 11, 20, tzinfo=ZoneInfo("UTC"))
    )
    return [
        (one.filter, one.confidence >= FILTERS_FROM) for one in read_by_rules(question, history, context).conditions
    ]


def test_a_date_without_a_year_is_the_coming_one_in_a_field_of_ends():
    due = {"next_due": ("2025-02-01", "2027-05-01", 100)}
    assert dated(due, "which buoys are due before Christmas?") == [
        ({"type": "lt", "key": "next_due", "value": "2026-12-25"}, True)
    ]
    ((read, is_sure),) = dated({"visit": ("2025-02-01", "2027-05-01", 100)}, "which visits are in December?")
    assert (read["filters"][0]["value"], is_sure) == ("2025-12-01", False)  # there are visits ahead, too
    ((read, is_sure),) = dated({"visit": ("2025-02-01", "2026-11-01", 100)}, "which visits were before Christmas?")
    assert (read["value"], is_sure) == ("2025-12-25", True)


LOANS = {"back": ("2024-03-01", "2026-10-01", 100), "out": ("2024-01-01", "2026-09-01", 100)}


@pytest.mark.parametrize(
    ("question", "field"), [("loans to Bremen in 2025", "out"), ("loans that came back in 2025", "back")]
)
def test_a_date_without_a_word_for_its_field_is_of_the_event_that_comes_first(question: str, field: str):
    ((read, is_sure),) = dated(LOANS, question)
    assert (read["filters"][0]["key"], is_sure) == (field, True)


def test_a_follow_up_does_not_settle_which_of_several_dates_is_meant():
    before = [Message(role="user", content="loans inspected in 2025")]
    ((_, is_sure),) = dated(LOANS, "loans inspected in 2025")
    assert not is_sure
    ((_, is_sure),) = dated(LOANS, "only the ones with a frame", before)
    assert not is_sure
