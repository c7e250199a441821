"""Comparisons of numbers: read whole, in the field's unit, and of the field that is meant, or not at all."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from agent.intent.language.amounts import find_amounts
from agent.intent.reading import FILTERS_FROM
from agent.intent.rules_reader import ReadingContext, RulesReading, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.values.measures import measure_of
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues

CARDS = {"fulltext": Card("fulltext", "words")}


def number(name: str, low: float, high: float, distinct: int = 60) -> FieldValues:
    return FieldValues(Field(name, "number", "number"), {}, distinct, 80, low, high)


def texts(name: str, *values: str) -> FieldValues:
    return FieldValues(Field(name, "string", "string"), dict.fromkeys(values, 8), len(values), 80)


BOATS = {
    "harbour": texts("harbour", "Kiel", "Piran", "Visby"),
    "price_eur": number("price_eur", 9_000, 480_000),
    "length_m": number("length_m", 6.5, 24, 50),
    "berths": number("berths", 2, 12, 9),
    "cabins": texts("cabins", "1", "2", "3", "4"),
    "score": number("score", 2.5, 5, 24),
    "built": number("built", 1968, 2024, 40),
    "refit_h": number("refit_h", 2, 600),
    "paint_h": number("paint_h", 1, 90),
    "listed": FieldValues(Field("listed", "date", "date"), {}, 50, 80, "2020-01-01", "2026-11-01"),
}


def read(question: str, fields: Mapping[str, FieldValues] = BOATS) -> RulesReading:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    catalogue = FieldCatalogue(((1, 1),), 80, dict(fields))
    return read_by_rules(
        question, (), ReadingContext(catalogue, frozenset({"boat", "boats"}), CARDS, Calendar(now.date()), now)
    )


def sure(reading: RulesReading) -> str:
    """Show the conditions that filter; the others only boost."""
    return ", ".join(shown(one.filter) for one in reading.conditions if one.confidence >= FILTERS_FROM)


def shown(filter: Mapping[str, Any] | None) -> str:
    if filter is None:
        return ""
    if "filters" in filter:
        return ", ".join(shown(one) for one in filter["filters"])
    return f"{filter['key']} {filter['type']} {filter['value']}"


@pytest.mark.parametrize(
    ("question", "filter"),
    [
        # words of comparison, before and behind, and their denials
        ("boats for more than 90,000 euros", "price_eur gt 90000"),
        ("no more than 90 thousand euros", "price_eur lte 90000"),
        # an amount in the only field's unit, said of the documents or of the field
        ("boats of 12 m", "length_m eq 12"),
        ("boats of 90,000 euros in Kiel", "price_eur eq 90000, harbour eq Kiel"),
        ("boats with a length of 12 m", "length_m eq 12"),
        ("nothing over €90k", "price_eur lte 90000"),
        ("I don't want to pay more than 90,000 euros", "price_eur lte 90000"),
        ("skip anything above 90,000 euros", "price_eur lte 90000"),
        ("price from 90k up", "price_eur gte 90000"),
        ("8 berths at the very most", "berths lte 8"),
        ("min. 4 berths, max. 0.2 million euros", "berths gte 4, price_eur lte 200000"),
        ("score of 4.2 or better", "score gte 4.2"),
        ("maximum price 70000", "price_eur lte 70000"),
        ("price >= 50000", "price_eur gte 50000"),
        ("价格不超过九万欧元的", "price_eur lte 90000"),
        ("价格别超过9万", "price_eur lte 90000"),
        ("不想花超过9万欧元", "price_eur lte 90000"),
        ("评分4.2以上（含4.2）", "score gte 4.2"),
        ("评分4以上（不含4）", "score gt 4"),
        ("评分大于等于4", "score gte 4"),
        # ranges, with the unit and the magnitude said once
        ("between 80 and 120 thousand euros", "price_eur gte 80000, price_eur lte 120000"),
        ("€80k–€120k", "price_eur gte 80000, price_eur lte 120000"),
        ("over 80,000 but under 120,000 euros", "price_eur gt 80000, price_eur lt 120000"),
        ("more than 2 but fewer than 4 cabins", "cabins in ['3']"),
        ("8万到12万欧元之间", "price_eur gte 80000, price_eur lte 120000"),
        ("长度不小于8米也不超过12米", "length_m gte 8, length_m lte 12"),
        # units
        ("longer than 40 feet", "length_m gt 12.192"),
        ("refit in half a day or less", "refit_h lte 12"),
        ("paint takes one and a half hours at most", "paint_h lte 1.5"),
        ("refit under 150 minutes", "refit_h lt 2.5"),
        ("长度超过1200厘米", "length_m gt 12"),
        # levels
        ("3 cabin boats in Kiel", "cabins in ['3'], harbour eq Kiel"),
        ("boats with 2 or 3 cabins", "cabins in ['2', '3']"),
        ("boats with three or more cabins", "cabins in ['3', '4']"),
        ("boats in Kiel but not with 3 cabins", "cabins nin ['3'], harbour eq Kiel"),
        ("leave out the two cabin ones", "cabins nin ['2']"),
        # the field: its word, its unit, what is measured, and its range, for all comparisons together
        ("score at least 4, price at most 80000", "score gte 4, price_eur lte 80000"),
        ("paint under 10 hours and refit over 100 hours", "paint_h lt 10, refit_h gt 100"),
        ("more than 200 hours of work", "refit_h gt 200"),
        ("too dear. under 60000?", "price_eur lt 60000"),
        ("under 70k, in Visby if possible", "price_eur lt 70000, harbour eq Visby"),
        # years that are numbers, beside dates
        ("boats built 1990 or older", "built lte 1990"),
        ("boats not built in 1990", "built ne 1990"),
        ("Kiel boats of 2018", "harbour eq Kiel, listed gte 2018-01-01, listed lt 2019-01-01"),
        ("built before 1990, listed since 2024", "built lt 1990, listed gte 2024-01-01"),
    ],
)
def test_a_comparison_is_read_whole_and_of_the_field_that_is_meant(question: str, filter: str):
    found = shown(read(question).filter)
    assert sorted(found.split(", ")) == sorted(filter.split(", "))


QUARRY = {
    "site": texts("site", "Kiel", "Piran", "Visby"),
    "load_t": number("load_t", 1, 60, 12),
    "dust_mg_m3": number("dust_mg_m3", 0, 90),
    "wind_kn": number("wind_kn", 0, 45),
    "kiln_c": number("kiln_c", 4, 900),
    "min_to_gate": number("min_to_gate", 2, 95),
    "cost_keur": number("cost_keur", 18, 985),
    "days_idle": number("days_idle", 0, 40, 30),
    "against": number("against", 0, 8, 9),
    "score": number("score", 0, 10, 11),
}


@pytest.mark.parametrize(
    ("question", "filter"),
    [
        ("anything over 40 tonnes", "load_t gt 40"),
        ("Kiel, 60t", "site eq Kiel, load_t eq 60"),
        ("dust over 40 mg/m3", "dust_mg_m3 gt 40"),
        ("粉尘超过40毫克/立方米", "dust_mg_m3 gt 40"),
        ("between 10 and 15 knots", "wind_kn gte 10, wind_kn lte 15"),
        ("风速超过30节", "wind_kn gt 30"),
        ("under 90 degrees", "kiln_c lt 90"),
        ("90 degrees or warmer", "kiln_c gte 90"),
        ("w/in 10 min", "min_to_gate lte 10"),
        ("reached in under 6 minutes", "min_to_gate lt 6"),
        ("晚点一小时以上的", "min_to_gate gte 60"),
        ("under 10 min that ended up in Kiel", "min_to_gate lt 10, site eq Kiel"),
        ("orders under 100k", "cost_keur lt 100"),
        ("any offer above 200 k", "cost_keur gt 200"),
        ("30万以上的", "cost_keur gte 300"),
        ("三十万以上的", "cost_keur gte 300"),
        ("cost under 500,000", "cost_keur lt 500"),
        ("under 90,000 euros a month", "cost_keur lt 90"),
        ("under 50 euros per hour", ""),
        ("no days idle at all", "days_idle eq 0"),
        ("Kiel without any days idle", "site eq Kiel, days_idle eq 0"),
        ("are there any days idle?", "days_idle gt 0"),
        ("nobody against, in Kiel", "against eq 0, site eq Kiel"),
        ("where somebody voted against", "against gt 0"),
        # the same words for something else
        ("over 40 mg", ""),
        ("over 40 km/h", "wind_kn gt 21.598274"),
        ("over 40 T-shirts", ""),
        ("over 5,000,000 tonnes", ""),
        ("60t", ""),
        ("over 30 minutes a day", ""),
        ("一节课的", ""),
        ("sites with visitors over 100k", ""),
        ("the population over 100k", ""),
        ("over 100k visitors", ""),
        ("no days idle report", ""),
        ("not without days idle", ""),
        ("if there are any days idle, who pays", ""),
        ("nobody against the plan", ""),
        ("no arguments against", ""),
        ("no score", ""),
        ("超过50万人", ""),
        ("turned by over 1000 degrees", ""),
        ("no days idle since March", ""),
        ("no days idle in October", ""),
    ],
)
def test_a_unit_thousands_or_a_count_of_none_tells_the_field(question: str, filter: str):
    assert sure(read(question, QUARRY)) == filter


@pytest.mark.parametrize(
    ("name", "question", "filter"),
    [
        ("speed_km_h", "over 50 km/h", "speed_km_h gt 50"),
        ("flow_lps", "over 50 l/s", "flow_lps gt 50"),
        ("flow_lps", "over 50 litres per second", "flow_lps gt 50"),
        ("flow_lps", "over 50 litres", ""),
        ("au_gpt", "above 50 g/t", "au_gpt gt 50"),
        ("ward_dpt", "over 50 days", ""),
        ("drill_mph", "over 50 mph", "drill_mph gt 50"),
        ("drill_mph", "faster than 50 miles per hour", "drill_mph gt 50"),
        ("wind_kph", "over 50 km/h", "wind_kph gt 50"),
        ("rate_mbps", "over 50 MB/s", ""),
        ("price_eur_m2", "flats over 50 m2", ""),
        ("price_eur_m2", "over 50 euros per m2", "price_eur_m2 gt 50"),
        ("price_per_m2", "flats over 50 m2", ""),
        ("hours_per_week", "more than 30 hours", ""),
        ("hours_per_week", "more than 30 hours a week", "hours_per_week gt 30"),
        ("saved_usd_k", "saved more than 60k dollars", "saved_usd_k gt 60"),
        ("budget_k", "budget under 60k", "budget_k lt 60"),
        ("预算万元", "预算超过50万的", "预算万元 gt 50"),
        ("height_m_min", "over 50 m/min", ""),
        ("heat_kwh_m2", "over 50 kWh per m2", "heat_kwh_m2 gt 50"),
        ("delay_min", "please answer without delay", ""),
        ("min_weight", "over 50 minutes", ""),
        ("课时", "课时不超过20节", "课时 lte 20"),
    ],
)
def test_the_unit_in_a_name_may_be_a_rate_or_a_large_one(name: str, question: str, filter: str):
    assert shown(read(question, {name: number(name, 5, 90)}).filter) == filter


@pytest.mark.parametrize(
    ("question", "filter"),
    [
        ("insured for at least 300 thousand euros", "insured_keur gte 300"),
        ("insured for over half a million euros", "insured_keur gt 500"),
        ("insured under 70k", "insured_keur lt 70"),
        ("insured under 70", "insured_keur lt 70"),
    ],
)
def test_an_amount_of_money_is_compared_in_the_thousands_that_the_field_counts(question: str, filter: str):
    fields = {"harbour": BOATS["harbour"], "insured_keur": number("insured_keur", 20, 900)}
    assert shown(read(question, fields).filter) == filter


@pytest.mark.parametrize(
    ("question", "filter"),
    [
        ("boats of the 1980s", "yr_built gte 1980, yr_built lt 1990"),
        ("boats not of 1950", "yr_built ne 1950"),
        ("boats of 2018", "listed gte 2018-01-01, listed lt 2019-01-01"),
    ],
)
def test_a_year_long_before_all_dates_is_of_the_field_of_years(question: str, filter: str):
    fields = {"yr_built": number("yr_built", 1900, 2024), "listed": BOATS["listed"]}
    assert shown(read(question, fields).filter) == filter


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("ready in under 10 hours", "under 10 hours"),  # paint or refit
        ("boats for over 50,000 dollars", "over 50,000 dollars"),  # the prices are euros
        ("around 90,000 euros", "90,000 euros"),
        ("九万欧元左右", "九万欧元"),
        ("boats with more than 8 sailors", "more than 8"),
        ("louder than 12", "12"),
        ("score below 3 or price above 90000", "below 3"),
        ("don't book any of those dull ones under 90,000 euros", "under 90,000 euros"),
        ("3舱或4舱的", "3"),
        ("预算9千5百欧元以内", "9"),
        ("三百多欧元", ""),
        ("paint at 20 degrees", "20"),
        ("what weighs more than 300 kg", "more than 300 kg"),
        ("what was said about a fine of 9,000 euros", "9,000 euros"),
        ("boats of 20 h", "20 h"),  # two fields hold hours
    ],
)
def test_what_is_not_clear_of_a_number_filters_nothing_and_is_told(question: str, said: str):
    reading = read(question)
    assert sure(reading) == ""
    boosted = "".join(question[one.start : one.end] for one in reading.conditions)
    assert said in boosted or any(said in one.what for one in reading.rejected)


def test_why_a_comparison_is_of_no_field_is_told():
    reasons = {one.what: one.reason for one in read("ready in under 10 hours").rejected}
    assert reasons["under 10 hours"].startswith("it may mean paint_h, refit_h")


def test_nothing_is_told_beside_a_comparison_that_was_read():
    assert read("between 80,000 and 120,000 euros").rejected == ()
    assert read("价格在8万到12万欧元之间的").rejected == ()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1.234,50 EUR", [1234.5]),
        ("4.500 kg", [4500, 4.5]),
        ("4.500 €", [4500]),
        ("2,5 thousand", [2500]),
        ("10 000 euros", [10_000]),
        ("half an hour", [0.5]),
        ("an hour and a half", [1.5]),
        ("2 hours 30 minutes", [2.5]),
        ("two hundred and fifty thousand", [250_000]),
        ("一个半小时", [1.5]),
        ("两公斤半", [2.5]),
        ("一千五", [1500]),
        ("百分之五", [5]),
        ("5:30", [330, 19_800]),
        ("100 m", [100_000_000, 100]),
        ("half a million", [500_000]),
        ("a quarter of a million dollars", [250_000]),
        ("three quarters of a million", [750_000]),
        ("half a dozen", [6]),
        ("one and a half million", [1_500_000]),
        ("two and a quarter million", [2_250_000]),
        ("a million and a half", [1_500_000]),
        ("半个亿", [50_000_000]),
        ("两个亿", [200_000_000]),
        ("一亿半", [150_000_000]),
    ],
)
def test_an_amount_has_every_reading_that_its_text_may_have(text: str, values: list[float]):
    assert [[one.value for one in amount.readings] for amount in find_amounts(text)] == [values]


@pytest.mark.parametrize("text", ["INC-2042", "3.11.2", "4th", "A4", "两三个", "十几个", "第三个", "千万"])
def test_a_code_an_ordinal_and_a_vague_number_are_no_amount(text: str):
    assert find_amounts(text) == []


@pytest.mark.parametrize(
    "text", ["two fifths of a million", "an eighth of a million", "half of 2 million", "2 1/2 million", "2½ million"]
)
def test_a_part_of_a_number_that_is_not_read_leaves_no_whole_number(text: str):
    assert find_amounts(text) == []


@pytest.mark.parametrize(
    ("values", "numbers"),
    [
        (("1.234,50 €", "99,00 €", "1.500 €"), [1234.5, 99, 1500]),
        (("45:10", "1:02:33"), [2710, 3753]),
        (("1 h 20 min", "45 min"), [4 / 3, 0.75]),
        (("120 pages", "1 page"), [120, 1]),
        (("14:30", "09:00"), None),
        (("001", "002"), None),
        (("3.9", "3.10"), None),
        (("Deck 3", "Deck 4"), None),
    ],
)
def test_numbers_are_told_from_texts_that_only_hold_some(values: tuple[str, ...], numbers: list[float] | None):
    measure = measure_of(texts("field", *values))
    assert (pytest.approx(measure.numbers) == numbers) if measure is not None and numbers else measure is numbers


def test_of_numbers_in_texts_those_are_allowed_that_satisfy_the_bound_whatever_their_unit():
    fields = {"length": texts("length", "90 min", "2 h", "45 min"), "pages": texts("pages", "80 pages", "120 pages")}
    assert shown(read("length of more than an hour", fields).filter) == "length in ['2 h', '90 min']"
    assert shown(read("more than 100 pages", fields).filter) == "pages in ['120 pages']"
    assert shown(read("length over 60", fields).filter) == ""


@pytest.mark.parametrize("text", ["calls from 0 800 555", "hosts at 0.100.200", "0 100% of it"])
def test_digits_that_are_no_number_are_no_amount(text: str):
    assert find_amounts(text) == []
