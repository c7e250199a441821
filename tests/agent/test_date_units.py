"""Fields of months, quarters and years as text, and which occurrence of a month without a year is meant."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent.intent.conditions.date_fields import choose_occurrence, main_date_field
from agent.intent.rules_reader import ReadingContext, read_by_rules
from agent.intent.time.dates import read_dates
from agent.intent.time.periods import Calendar
from agent.intent.values import vocabulary
from agent.intent.values.date_units import date_units_of
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues

NOW = datetime(2026, 3, 10, tzinfo=UTC)
CARDS = {"sql": Card("sql", "", "metadata"), "fulltext": Card("fulltext", "", "documents")}
MONTHS = ("2025-09", "2025-10", "2025-11", "2026-01")


def texts(name: str, *values: str) -> FieldValues:
    return FieldValues(Field(name, "string", "string"), dict.fromkeys(values, 3), len(values), 3 * len(values))


def days(name: str, low: str, high: str) -> FieldValues:
    return FieldValues(Field(name, "date", "date"), {}, 12, 12, low, high)


def read(text: str, *fields: FieldValues) -> Any:
    catalogue = FieldCatalogue((), 12, {one.field.name: one for one in fields})
    nouns = frozenset(["slip", "slips"])
    return read_by_rules(text, (), ReadingContext(catalogue, nouns, CARDS, Calendar(NOW.date()), NOW))


def filter_of(text: str, *fields: FieldValues) -> Mapping[str, Any] | None:
    pieces = read(text, *fields).conditions
    return pieces[0].filter if pieces else None


def between(name: str, low: str, high: str) -> Mapping[str, Any]:
    return {
        "type": "and",
        "filters": [{"type": "gte", "key": name, "value": low}, {"type": "lt", "key": name, "value": high}],
    }


@pytest.mark.parametrize(
    ("values", "months", "form"),
    [
        (("2025-11", "2026-01"), 1, "{year}-{number:02d}"),
        (("2025/11", "2026/01"), 1, "{year}/{number:02d}"),
        (("2025年09月", "2025年10月"), 1, "{year}年{number:02d}月"),
        (("2025年9月", "2025年10月"), 1, None),
        (("Nov 2025", "Dec 2025"), 1, None),
        (("2025-Q3", "2025-Q4"), 3, "{year}-Q{number:01d}"),
        (("Q3 2025", "Q4 2025"), 3, None),
    ],
)
def test_texts_of_months_and_quarters_are_units(values: tuple[str, ...], months: int, form: str | None):
    units = date_units_of(texts("due", *values))
    assert units is not None
    assert (units.months, units.form) == (months, form)


@pytest.mark.parametrize(
    "values",
    [
        ("2025-11", "n/a"),
        ("2025-11", "2025-Q3"),
        ("2025-11", "2025-12-01"),
        ("2025-11", "2025/11"),  # the same month twice
        ("March", "April"),
        ("FY2025", "FY2026"),  # depends on the fiscal year
        ("Spring 2025", "Autumn 2025"),  # terms and seasons begin in no quarter
        ("release 2025-11", "release 2025-12"),
        ("2019", "2020"),  # the name does not say that these are years
        ("1910s", "1920s"),
    ],
)
def test_other_texts_are_none(values: tuple[str, ...]):
    assert date_units_of(texts("model", *values)) is None


def test_four_digits_are_years_in_a_field_of_years():
    assert date_units_of(texts("year", "2019", "2020")) is not None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("slips for October 2025", {"type": "eq", "key": "month", "value": "2025-10"}),
        ("slips in December", {"type": "eq", "key": "month", "value": "2025-12"}),
        ("slips since November", {"type": "gte", "key": "month", "value": "2025-11"}),
        ("slips before 2026", {"type": "lt", "key": "month", "value": "2026-01"}),
        ("slips from the third quarter of 2025", between("month", "2025-07", "2025-10")),
        ("slips so far this year", between("month", "2026-01", "2026-04")),
    ],
)
def test_a_period_of_whole_months_filters_a_field_of_months(text: str, expected: Mapping[str, Any]):
    assert filter_of(text, texts("month", *MONTHS)) == expected


def test_texts_that_are_not_in_the_order_of_time_are_named_one_by_one():
    assert filter_of("slips since October 2025", texts("due", "Q3 2025", "Q4 2025", "Q1 2026")) == {
        "type": "in", "key": "due", "value": ["Q4 2025", "Q1 2026"],
    }  # fmt: skip


def test_a_period_that_cuts_a_month_is_rejected():
    reading = read("slips since 12 October", texts("month", *MONTHS))
    assert not reading.conditions
    assert "since 12 October" in [one.what for one in reading.rejected]


def test_a_field_of_days_dates_the_documents_unless_the_field_of_months_is_named():
    fields = (texts("billing_month", *MONTHS), days("paid_on", "2025-09-20", "2026-02-20"))
    known = vocabulary.build_vocabulary(FieldCatalogue((), 12, {one.field.name: one for one in fields}))
    assert main_date_field(known) == "paid_on"
    assert filter_of("slips in October 2025", *fields) == between("paid_on", "2025-10-01", "2025-11-01")
    assert filter_of("slips billing October 2025", *fields) == {
        "type": "eq", "key": "billing_month", "value": "2025-10",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "low", "high", "begins"),
    [
        ("in May", "2026-04-20", "2026-11-01", "2026-05-01"),  # no dates in last May
        ("in May", "2025-04-20", "2026-04-11", "2025-05-01"),  # no dates in next May
        ("after 5 May", "2025-09-01", "2026-06-11", "2026-05-06"),  # all dates are after last May
        ("since May", "2025-09-01", "2026-06-11", "2025-05-01"),  # since leads up to now
        ("in early May", "2026-04-20", "2026-11-01", "2026-05-01"),
        ("五月上旬", "2026-04-20", "2026-11-01", "2026-05-01"),
    ],
)
def test_the_range_of_a_field_tells_which_month_is_meant(text: str, low: str, high: str, begins: str):
    (one,) = read_dates(text, Calendar(NOW.date())).ranges
    meant, sure = choose_occurrence(one, days("open_on", low, high), NOW.date())
    assert (meant.period.low, sure) == (date.fromisoformat(begins), True)


def test_either_month_may_be_meant_if_dates_lie_in_both():
    (one,) = read_dates("in May", Calendar(NOW.date())).ranges
    assert choose_occurrence(one, days("open_on", "2025-01-01", "2026-12-01"), NOW.date()) == (one, False)


def test_beginnings_starting_in_a_month_begin_in_it():
    assert filter_of("slips starting in April 2026", days("start_date", "2025-01-01", "2026-12-01")) == between(
        "start_date", "2026-04-01", "2026-05-01"
    )
    assert filter_of("slips starting in April 2025", days("posted", "2025-01-01", "2026-03-01")) == {
        "type": "gte", "key": "posted", "value": "2025-04-01",
    }  # fmt: skip


def test_the_word_before_the_noun_tells_the_field():
    fields = (days("serviced_on", "2025-01-01", "2026-03-01"), days("nxt_service", "2026-01-01", "2026-12-01"))
    next_of = between("nxt_service", "2026-05-01", "2026-06-01")
    assert filter_of("slips whose next service falls in May 2026", *fields) == next_of
    assert filter_of("slips with a service in May 2025", *fields) == between("serviced_on", "2025-05-01", "2025-06-01")


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("between Christmas Eve and New Year's Day 2025/26", "2025-12-24", "2026-01-02"),
        ("in winter 2025/26", "2025-12-01", "2026-03-01"),
        ("from November to February 2024/25", "2024-11-01", "2025-03-01"),
    ],
)
def test_a_span_over_new_year_may_be_said_with_both_years(text: str, low: str, high: str):
    (one,) = read_dates(text, Calendar(NOW.date())).ranges
    assert (str(one.period.low), str(one.period.high)) == (low, high)


def test_years_joined_by_or_stay_in_one_field_beside_a_field_whose_texts_hold_years():
    fields = (texts("quarter", "Q1 2025", "Q2 2025"), days("published", "2022-01-01", "2026-01-20"))
    filter = filter_of("slips from 2023 or 2025", *fields)
    assert filter is not None
    assert filter["filters"] == [between("published", f"{year}-01-01", f"{year + 1}-01-01") for year in (2023, 2025)]
    # Periods without a gap are one range.
    assert filter_of("slips from 2024 or 2025", *fields) == between("published", "2024-01-01", "2026-01-01")
