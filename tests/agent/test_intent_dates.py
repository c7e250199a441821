"""Dates that questions state, English and Chinese, as half-open ranges of days."""

from datetime import date, datetime
from zoneinfo import ZoneInfo

import pytest

from agent.intent.cascade import local
from agent.intent.filters import of_date
from agent.intent.time.dates import find_date, find_dates
from agent.intent.time.periods import Calendar
from retrievers.core.fields import Field
from retrievers.core.types import FieldValues

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
NONE = (
    "Python 3.13 and phones",
    "what may I expect",
    "RFC 2616 and error 2002",
    "WS/T 367-2012",
    "帮我找一下周文斌老师的资料",
    "the second half of the message",
    "march through the list",
    "reports of June Carter",
    "documents of Jan",
    "what happens before may is decided",
)


@pytest.mark.parametrize(("text", "days"), ONE.items(), ids=ONE.keys())
def test_a_phrase_names_its_days(text: str, days: tuple[str | None, str | None]):
    period = find_date(text, TODAY)
    assert period is not None
    assert (period.low and period.low.isoformat(), period.high and period.high.isoformat()) == days


@pytest.mark.parametrize("text", NONE)
def test_what_is_no_date_is_left_alone(text: str):
    assert find_dates(text, TODAY) == []


def test_years_that_are_compared_stay_apart():
    found = find_dates("2013 年和 2023 年相比", TODAY)
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
        ("Q1 to Q3 2023", ["2023-01-01"]),
        ("permits that were filed in Q1 and Q2 of 2023", ["2023-01-01", "2023-04-01"]),
        ("2024年3月到5月", ["2024-03-01"]),
    ],
)
def test_a_year_that_is_said_once_holds_for_the_part_beside(text: str, lows: list[str]):
    assert [str(one.period.low) for one in find_dates(text, TODAY)] == lows


def test_the_place_of_a_range_is_that_of_all_its_words():
    text = "proposals from between 2005 and 2007 about enums"
    (one,) = find_dates(text, TODAY)
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
    assert find_dates(text, TODAY) == []


def test_days_are_those_of_the_asker_where_times_are_stored():
    shanghai = ZoneInfo("Asia/Shanghai")
    (one,) = find_dates("yesterday", Calendar(local(datetime(2026, 11, 20, 1), shanghai).date()))
    timed = FieldValues(Field("at", "date", "date"), low="2026-01-01T08:00:00", high="2026-11-19T16:30:00")
    assert of_date(one, timed, shanghai) == {
        "type": "and",
        "filters": [
            {"type": "gte", "key": "at", "value": "2026-11-19T00:00:00+08:00"},
            {"type": "lt", "key": "at", "value": "2026-11-20T00:00:00+08:00"},
        ],
    }
    plain = FieldValues(Field("on", "date", "date"), low="2026-01-01", high="2026-11-19")
    assert of_date(one, plain, shanghai)["filters"][0]["value"] == "2026-11-19"
