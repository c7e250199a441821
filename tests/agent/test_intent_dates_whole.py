"""A phrase of a date is read with all of its words, or not at all."""

from datetime import date

import pytest

from agent.intent.time.dates import find_date, read_dates
from agent.intent.time.periods import Calendar

TODAY = Calendar(date(2026, 11, 20))  # a Friday

WHOLE = {
    # quarters, halves and runs of them
    "in 4Q23": ("2023-10-01", "2024-01-01"),
    "in 2H 2023": ("2023-07-01", "2024-01-01"),
    "in the back half of 2021": ("2021-07-01", "2022-01-01"),
    "in quarters one to three of 2023": ("2023-01-01", "2023-10-01"),
    "去年三四季度的报告": ("2025-07-01", "2026-01-01"),
    "2023年第1季": ("2023-01-01", "2023-04-01"),
    # seasons, years, decades
    "in the winter of 2019-2020": ("2019-12-01", "2020-03-01"),
    "2022年秋冬": ("2022-09-01", "2023-03-01"),
    "in 2014\u201316": ("2014-01-01", "2017-01-01"),
    "all through 2019": ("2019-01-01", "2020-01-01"),
    "in the first half of the 1990s": ("1990-01-01", "1995-01-01"),
    # parts of months and weeks, numbered units
    "in the second half of the week": ("2026-11-19", "2026-11-23"),
    "2023年7月下半月": ("2023-07-16", "2023-08-01"),
    "on day 45 of 2024": ("2024-02-14", "2024-02-15"),
    "on the first of the month": ("2026-11-01", "2026-11-02"),
    # ends
    "2023-05-01..2023-05-31": ("2023-05-01", "2023-06-01"),
    "2023-06-15至2023-07-20": ("2023-06-15", "2023-07-21"),
    "in or before 2011": (None, "2012-01-01"),
    "by Friday": (None, "2026-11-21"),
    "so far this year": ("2026-01-01", "2026-11-21"),
    "2018年年底以前": (None, "2019-01-01"),
    "年底前的报告": (None, "2027-01-01"),
    "2021年及以后": ("2021-01-01", None),
    "from mid-March to mid-April 2024": ("2024-03-10", "2024-04-21"),
    "from March 2020 through the following May": ("2020-03-01", "2020-06-01"),
    "2020年12月到2月": ("2020-12-01", "2021-03-01"),
    "2023年5月底到6月初": ("2023-05-21", "2023-06-11"),
    # counted
    "in the last year and a half": ("2025-05-20", None),
    "半个月内的报告": ("2026-11-05", None),
    "3 to 6 months ago": ("2026-05-20", "2026-08-21"),
    "the year after 2016": ("2017-01-01", "2018-01-01"),
    "the three months following May 2020": ("2020-06-01", "2020-09-01"),
    "2025年1月15日起三个月内": ("2025-01-15", "2025-04-15"),
    "截至2022年9月30日的三个月内": ("2022-07-01", "2022-10-01"),
}
LISTED = {
    "on the 1st and 15th of June 2023": ["2023-06-01", "2023-06-15"],
    "on 3, 5 and 9 May 2024": ["2024-05-03", "2024-05-05", "2024-05-09"],
    "the last quarter of 2023 and the first of 2024": ["2023-10-01", "2024-01-01"],
    "2023年1、3季度": ["2023-01-01", "2023-07-01"],
}
UNREAD = (
    # no such day
    "5月32号的报告",
    "in week 54 of 2023",
    "2023年第53周的报告",
    "公元前8年的报告",
    # every one of many
    "every Friday in March 2024",
    "2024年3月每周五的报告",
    "in the first week of every month in 2023",
    "on weekdays in May 2024",
    # a time of the day is an end
    "after 9am on 10 Feb 2024",
    "2024年2月10日上午9点以后",
    # about
    "nearly two years ago",
    "shortly after 3 May 2024",
    "in 2010 plus or minus two years",
    "2015年前后的报告",
    "这几天的报告",
    # years and events of others
    "in school year 2020-2021",
    "in the month of the merger in 2019",
    "搬迁前三个月的报告",
    # a list, a run or a year that would be read in part
    "上周一、三、五的报告",
    "Mon, Wed and Fri last week",
    "2024年5月3日和5日",
    "less than 3 days after 2019-05-05",
    "2023年5月6月的报告",
    "2023年前三年的报告",
    "in late May or early June 2022",
    "2019和2021两年的报告",
    "in March 2024 and the following month",
)


@pytest.mark.parametrize(("text", "days"), WHOLE.items(), ids=list(WHOLE))
def test_every_word_of_a_phrase_counts(text: str, days: tuple[str | None, str | None]):
    period = find_date(text, TODAY)
    assert period is not None
    assert (period.low and period.low.isoformat(), period.high and period.high.isoformat()) == days


@pytest.mark.parametrize(("text", "lows"), LISTED.items(), ids=list(LISTED))
def test_all_of_a_list_is_read(text: str, lows: list[str]):
    dates = read_dates(text, TODAY)
    assert ([str(one.period.low) for one in dates.ranges], dates.unread) == (lows, [])


@pytest.mark.parametrize("text", UNREAD)
def test_what_is_no_one_period_is_unread_and_said(text: str):
    dates = read_dates(text, TODAY)
    assert dates.ranges == []
    assert dates.unread


@pytest.mark.parametrize("text", ["in recent years", "in the coming days", "in the last weeks", "past months"])
def test_units_without_a_number_are_no_period(text: str):
    assert read_dates(text, TODAY).ranges == []


@pytest.mark.parametrize("text", ["runs of A14 in March", "unit B7 of May 2024"])
def test_digits_of_a_code_are_no_day(text: str):
    assert all(one.period.days > 1 for one in read_dates(text, TODAY).ranges)
