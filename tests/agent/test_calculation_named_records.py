"""Calculations over tables: places, days written as text, names of records, comparisons of two of them."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.intent.calculation.named_records import raise_name_confidence
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.reading import FILTERS_FROM
from agent.intent.values.date_units import date_units_of
from agent.intent.values.measures import measure_of
from retrievers.core.types import FieldValues
from tests.agent.test_calculation import number, read, text

DRIVERS = ("Ann Lee", "Bo Rye", "Cal Finn", "Dee Oak", "Eve Hill", "Fay Moss")
DAYS = ("3 May 1921", "14 June 1921", "1 July 1921", "2 August 1922", "30 August 1922", "4 September 1923")


def column(name: str, values: tuple[str, ...]) -> FieldValues:
    return text(name, dict.fromkeys(values, 1), len(values))


def amount(name: str, low: float, high: float, distinct: int = 6) -> FieldValues:
    return replace(number(name, low, high, distinct), documents=6)


RACES = (
    column("driver", DRIVERS),
    text("team", {"Red Star": 3, "Blue Bay": 3}, 6),
    column("raced", DAYS),
    amount("pos", 1, 6),
    amount("age", 19, 40),
    amount("points", 0, 25, 5),
    amount("founded_year", 1950, 1990, 5),
    column("distance", ("100 km (62 mi)", "120 km (75 mi)", "150 km (93 mi)", "80 km (50 mi)", "90 km (56 mi)", "-")),
)
FIRST, LAST = ({"type": "eq", "key": "raced", "value": DAYS[place]} for place in (0, -1))


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(
    ("question", "aggregate", "filter"),
    [
        ("which driver came in first place?", {"op": "list"}, {"type": "eq", "key": "pos", "value": 1}),
        ("who finished third?", {"op": "list"}, {"type": "eq", "key": "pos", "value": 3}),
        ("哪个driver得了第三名", {"op": "list"}, {"type": "eq", "key": "pos", "value": 3}),
        ("which driver came first?", {"op": "list"}, {"type": "eq", "key": "pos", "value": 1}),
        ("第一名和第二名是谁", {"op": "list"}, {"type": "in", "key": "pos", "value": [1, 2]}),
        ("who was the last driver?", {"op": "list"}, LAST),
        ("when was the first race?", {"op": "list"}, FIRST),
        ("how many drivers raced in 1922?", {"op": "count"}, {"type": "in", "key": "raced", "value": list(DAYS[3:5])}),
        ("which team has the most drivers?", {"op": "count", "group_by": "team", "order": "desc"}, None),
        ("what is the average age of the drivers?", {"op": "avg", "of": "age"}, None),
        ("who is the oldest driver?", {"op": "list", "of": "age", "order": "desc"}, None),
        ("which driver has the least amount of points?", {"op": "list", "of": "points", "order": "asc"}, None),
        ("which driver had the longest distance?", {"of": "number(distance)", "order": "desc"}, None),
        ("which towns have more than 10 points?", {"op": "list", "show": ["driver", "points"]}, Any),
    ],
)
def test_a_table_is_read_by_its_places_days_and_records(question: str, aggregate: dict[str, Any], filter: Any):
    made = read(question, RACES)

    assert made.aggregate is not None
    assert {key: made.aggregate[key] for key in aggregate} == aggregate
    assert filter is Any or made.filter == filter


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("which driver is older, Ann Lee or Bo Rye?", {"of": "age", "order": "desc", "limit": 1}),
        ("which driver is younger, Ann Lee or Bo Rye?", {"of": "age", "order": "asc", "limit": 1}),
        ("how much older is Ann Lee than Bo Rye?", {"op": "difference", "of": "age"}),
        ('what is the total age of "Ann Lee" and "Bo Rye"?', {"op": "sum", "of": "age"}),
        ("did Ann Lee or Bo Rye have more points?", {"of": "points", "order": "desc", "limit": 1}),
        ("is Ann Lee older than Bo Rye?", {"of": "age", "order": None, "limit": None}),
    ],
)
def test_two_named_records_are_compared_by_the_number_that_the_words_imply(question: str, wanted: dict[str, Any]):
    made = read(question, RACES)

    assert made.aggregate is not None
    assert {key: made.aggregate.get(key) for key in wanted} == wanted
    assert made.filter == {"type": "in", "key": "driver", "value": ["Ann Lee", "Bo Rye"]}


MEDALS = (
    column("nation", ("Norland", "Estmark", "Vesper", "Quill", "Tarn", "Total")),
    column("place", ("1st", "2nd", "T3", "T3rd", "20th", "-")),
    amount("gold", 0, 20),
    amount("total", 1, 40),
    amount("population", 5_000, 90_000),
    text("host", {"yes": 2, "no": 4}, 6),
)


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(
    ("question", "wanted", "filter"),
    [
        ("how many total medals did Quill and Tarn collect?", {"op": "sum", "of": "total"}, ["Quill", "Tarn"]),
        ("how many medals did Quill win?", {"op": "sum", "of": "total"}, "Quill"),
        ("which nation won the most gold medals?", {"op": "list", "of": "gold", "order": "desc"}, None),
        ("how many nations won more than one gold medal?", {"op": "count"}, 1),
        ("which nation has the most people?", {"op": "list", "of": "population", "order": "desc"}, None),
        ("how many people live in Quill?", {"op": "sum", "of": "population"}, "Quill"),
        ("which nation finished in last place?", {"op": "list"}, "20th"),
        ("哪个nation的名次最高，Quill还是Tarn？", None, None),
        ("how many athletes participated for Quill?", None, None),  # the table has no athletes
        ("which nation has the best place of those with 3 medals?", None, None),
    ],
)
def test_a_table_of_totals_is_read_by_what_it_adds_up(question: str, wanted: dict[str, Any] | None, filter: Any):
    made = read(question, MEDALS)

    if wanted is None:
        assert made.aggregate is None
    else:
        assert made.aggregate is not None
        assert {key: made.aggregate.get(key) for key in wanted} == wanted
        assert (made.filter or {}).get("value") == filter


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(
    ("question", "relation", "of", "wanted"),
    [
        ("how many drivers have more points than Ann Lee?", "gt", "points", {"op": "count"}),
        ("which drivers are younger than Ann Lee?", "lt", "age", {"op": "list", "limit": 100}),
        ("which driver finished right after Ann Lee?", "gt", "pos", {"order": "asc", "limit": 1, "ties": True}),
        ("who placed before Ann Lee?", "lt", "pos", {"order": "desc", "limit": 1}),
        ("how many drivers are listed below Ann Lee?", "gt", "pos", {"op": "count"}),
        ("which driver has the same points as Ann Lee?", "eq", "points", {"op": "list"}),
        ("after Ann Lee, who has the most points?", "lt", "points", {"order": "desc", "limit": 1}),
        ("which drivers finished after Ann Lee?", "gt", "pos", {"order": "asc", "limit": 100}),
        ("哪些driver的points比Ann Lee高？", "gt", "points", {"op": "list"}),
    ],
)
def test_records_are_compared_with_a_named_one(question: str, relation: str, of: str, wanted: dict[str, Any]):
    made = read(question, RACES)

    assert made.aggregate is not None
    assert made.aggregate["than"] == {
        "type": relation,
        "of": of,
        "record": {"type": "eq", "key": "driver", "value": "Ann Lee"},
    }
    assert {key: made.aggregate.get(key) for key in wanted} == wanted
    assert made.filter is None


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(
    "question",
    [
        "which driver has the same age as Ann Lee?",  # no two drivers have one age
        "how many drivers have more luck than Ann Lee?",
        "who finished after Ann Lee for Red Star?",  # of all, or of this team
        "which team has more points than Red Star?",  # Red Star is no single record
        "who finished long after Ann Lee?",
        "what happened after Ann Lee?",
        "how many drivers have fewer points than Ann Lee and are older than Ann Lee?",
        "how many drivers are older and have more points than Ann Lee?",
        "which driver after Ann Lee has the fewest points?",  # the next in the table, or the next fewest
        "which driver who finished after Ann Lee is the oldest?",
        "how many teams have more points than Ann Lee?",  # she is no team
        "how many drivers have more points than Ann Lee and Bo Rye?",
        "how many more points than Ann Lee did Bo Rye get?",
    ],
)
def test_a_comparison_with_a_named_record_that_may_mean_something_else_is_left_unread(question: str):
    assert read(question, RACES).aggregate is None


@pytest.mark.usefixtures("sure")
def test_nothing_is_compared_if_a_record_lacks_the_value_or_shares_its_name():
    lacking = tuple(replace(one, documents=5) if one.field.name == "points" else one for one in RACES)
    shared = (text("driver", dict.fromkeys(DRIVERS[:5], 1) | {DRIVERS[5]: 2}, 7), *RACES[1:])
    question = "how many drivers have more points than Ann Lee?"

    assert read(question, lacking).aggregate is None
    assert read(question, shared).aggregate is None


@pytest.mark.usefixtures("sure")
def test_a_condition_on_the_record_that_others_are_compared_with_only_boosts():
    for question in ("drivers slower than Ann Lee", "races after Ann Lee", "比Ann Lee慢的"):
        made = read(question, RACES)
        assert made.aggregate is None
        assert all(one.confidence < FILTERS_FROM for one in made.conditions)
    assert read("races of Ann Lee", RACES).conditions[0].confidence >= FILTERS_FROM


@pytest.mark.usefixtures("sure")
def test_the_higher_of_two_ranks_is_the_smaller_number_unless_a_record_has_none():
    some = tuple(replace(one, documents=5) if one.field.name == "pos" else one for one in RACES)

    assert (read("which driver has the higher pos, Ann Lee or Bo Rye?", RACES).aggregate or {})["order"] == "asc"
    assert read("which driver has the higher pos, Ann Lee or Bo Rye?", some).aggregate is None


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(
    "question",
    [
        "which driver came in ninth place?",  # there are six
        "who is the slowest driver by points?",  # points are neither a time nor a speed
        "which driver is heavier, Ann Lee or Bo Rye?",
        "which driver is listed after 1 July 1921?",
        "how many years did Ann Lee drive?",
        "what breed is Ann Lee?",
        "how many drivers did Ann Lee and Bo Rye beat?",
        "total pos of the drivers",
        "how many older drivers are there?",
        "how much taller is Ann Lee than Bo Rye?",  # their numbers of records do not tell
        "what is the difference between Ann Lee and Bo Rye?",
        "which team has the largest amount of sales?",
        "who is the oldest team?",  # the age is that of the driver
        "who finished second for Red Star?",  # of all, or of this team
        "who finished first, Ann Lee or Bo Rye?",
        "which driver finished second in points?",
        "how much longer does Ann Lee take than Bo Rye?",  # the distance is no time
    ],
)
def test_words_of_a_table_that_no_field_answers_are_left_unread(question: str):
    assert read(question, RACES).aggregate is None


@pytest.mark.usefixtures("sure")
def test_two_names_of_which_one_is_far_are_compared_without_leaving_one_out():
    made = read("has Ann Lee a much bigger number of points than Bo Rye?", RACES)

    assert made.aggregate is None or made.filter == {"type": "in", "key": "driver", "value": ["Ann Lee", "Bo Rye"]}


@pytest.mark.usefixtures("sure")
def test_the_order_of_a_list_is_not_that_of_its_days():
    unnumbered = tuple(one for one in RACES if one.field.name != "pos")

    assert read("last driver listed", unnumbered).aggregate is None


@pytest.mark.usefixtures("sure")
def test_the_oldest_of_people_is_so_by_age_and_that_of_things_may_be_so_by_date():
    dogs = (column("dog", ("Rex", "Max", "Pip", "Bo", "Zoe", "Tim")), column("judged", DAYS), amount("age", 1, 9))

    assert (read("which driver is the oldest?", RACES).aggregate or {})["of"] == "age"
    assert read("which dog is the oldest?", dogs).aggregate is None


@pytest.mark.usefixtures("sure")
def test_a_noun_that_may_not_mean_the_listed_records_is_reported():
    assert "towns" in [one.what for one in read("which towns have more than 10 points?", RACES).rejected]


@pytest.mark.usefixtures("sure")
def test_an_age_is_no_rating_by_age():
    games = (column("game", DRIVERS), amount("age_rating", 3, 18), amount("released", 2001, 2020))

    made = read("which is the oldest game?", games).aggregate

    assert made is not None
    assert (made["of"], made["order"]) == ("released", "asc")


@pytest.mark.parametrize(("value", "is_sure"), [("Red Star", True), ("open", False), ("处理中", False)])
def test_a_likely_name_of_several_words_is_sure_but_not_each_chinese_character_is_a_word(value: str, is_sure: bool):
    question = SimpleNamespace(columns=SimpleNamespace(key_fields=frozenset()))
    piece = StatedCondition("state", {"type": "eq", "key": "state", "value": value}, 0, 2, 0.6)

    assert (raise_name_confidence(piece, cast("Any", question)).confidence > 0.6) is is_sure


def test_texts_are_days_only_if_day_and_month_have_one_order():
    assert date_units_of(column("day", ("10/9/2009", "10/25/2009", "11/3/2009"))) is not None
    assert date_units_of(column("day", ("10/9/2009", "25/10/2009", "11/3/2009"))) is None
    assert date_units_of(column("day", ("10/9/2009", "10/12/2009", "11/3/2009"))) is None


def test_an_amount_in_two_units_is_a_number_and_two_amounts_are_none():
    lengths = measure_of(RACES[-1])

    assert lengths is not None
    assert lengths.is_plain
    assert sorted(lengths.numbers) == [80, 90, 100, 120, 150]
    assert measure_of(column("matches", ("34 (5)", "20 (11)", "12 (0)", "40 (1)", "8 (6)"))) is None
