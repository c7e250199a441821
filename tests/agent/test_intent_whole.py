"""A condition is read whole, with what denies, bounds and names it, or not at all."""

from datetime import UTC, datetime
from typing import Any

import pytest

from agent.intent.reading import FILTERS_FROM
from agent.intent.rules_reader import ReadingContext, read_by_rules
from agent.intent.time.periods import Calendar
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues

Json = dict[str, Any]
NOW = datetime(2026, 3, 12, tzinfo=UTC)
CARDS = {"fulltext": Card("fulltext", "words"), "sql": Card("sql", "metadata", "metadata")}


def strings(name: str, *values: str) -> FieldValues:
    return FieldValues(Field(name, "string", "string"), dict.fromkeys(values, 20), len(values), 20 * len(values))


def number(name: str, low: float, high: float, distinct: int = 30) -> FieldValues:
    return FieldValues(Field(name, "number", "number"), {}, distinct, 60, low, high)


def dates(name: str, low: str, high: str) -> FieldValues:
    return FieldValues(Field(name, "date", "date"), {}, 50, 60, low, high)


def stated(question: str, *fields: FieldValues) -> Json:
    """Return the sure conditions by field, as type and value."""
    catalogue = FieldCatalogue(((1, 1),), 60, {one.field.name: one for one in fields})
    made = read_by_rules(
        question, (), ReadingContext(catalogue, frozenset({"note", "notes"}), CARDS, Calendar(NOW.date()), NOW)
    )
    sure = (one.filter for one in made.conditions if one.confidence >= FILTERS_FROM)
    leaves = [leaf for one in sure for leaf in one.get("filters", [one])]
    return {f"{leaf['key']} {leaf['type']}": leaf["value"] for leaf in leaves}


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("notes beyond page 150", {"page gt": 150}),
        ("notes outside grade 7", {"grade ne": 7}),
        ("notes on grade 7", {"grade eq": 7}),
        ("notes of severity 3 or worse", {}),
        ("notes of more than 20k words", {"words_k gt": 20}),
        ("notes of more than 20 thousand words", {"words_k gt": 20}),
        ("notes of more than 100 words", {}),
    ],
)
def test_a_number_is_read_with_the_words_before_its_name_and_behind_it(question: str, wanted: Json):
    fields = (number("page", 1, 400), number("grade", 1, 9, 9), number("severity", 1, 5, 5), number("words_k", 1, 60))
    assert stated(question, *fields) == wanted


def test_the_word_of_a_numbers_field_is_no_value_as_well():
    fields = (strings("change_kind", "headway", "route", "stop"), number("min_headway", 3, 60))
    assert stated("notes with a headway 10 or shorter", *fields) == {"min_headway lte": 10}


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("notes not closed on the Grey Heron", {"closed eq": "n", "vessel eq": "Grey Heron"}),
        ("notes not closed, not on the Grey Heron", {"closed eq": "n", "vessel ne": "Grey Heron"}),
    ],
)
def test_a_denial_of_a_yes_no_field_ends_there(question: str, wanted: Json):
    assert stated(question, strings("vessel", "Grey Heron", "Sea Otter"), strings("closed", "y", "n")) == wanted


def test_half_a_span_is_no_period():
    assert stated("notes from the winter, 1 Dec to end Feb", dates("logged", "2025-01-01", "2026-12-01")) == {}


def test_documents_are_dated_by_their_month_before_when_something_ends():
    month = strings("release_month", "2025-09", "2025-10", "2025-11")
    until = dates("embargo_until", "2025-09-01", "2026-04-01")
    assert stated("notes of October 2025", month, until) == {"release_month eq": "2025-10"}


@pytest.mark.parametrize(("verb", "field"), [("办结", "办结日期"), ("提交", "提交日期")])
def test_a_chinese_verb_names_the_date_field_of_it(verb: str, field: str):
    fields = (dates("提交日期", "2025-01-01", "2026-03-01"), dates("办结日期", "2025-01-01", "2026-03-01"))
    assert {key.split()[0] for key in stated(f"2025年12月{verb}的工单", *fields)} == {field}


def test_the_letter_behind_a_decade_is_no_value():
    assert stated("notes about the 1920s", strings("size", "S", "M", "L")) == {}


def test_a_part_of_a_chinese_value_excludes_nothing():
    kinds = strings("单位性质", "个体", "外企", "民企")
    assert stated("个体或外企的工单", kinds) == {"单位性质 in": ["个体", "外企"]}


def test_free_of_something_is_without_it():
    fields = (strings("allergens", "egg", "milk", "nuts"), strings("branch", "Harbour", "Old Mill"))
    assert stated("egg-free notes from the Harbour branch", *fields) == {"allergens ne": "egg", "branch eq": "Harbour"}


LINE = FieldValues(Field("lines", "list", "string"), dict.fromkeys(map(str, range(1, 10)), 20), 9, 180)
PEOPLE = (
    strings("reported_by", "j.frost", "s.winter", "m.reed"),
    strings("approved_by", "j.frost", "s.winter", "m.reed"),
    strings("site", "Hale Bank", "Low Moor"),
)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        (
            "notes that Frost reported and Winter approved",
            {"reported_by eq": "j.frost", "approved_by eq": "s.winter"},
        ),
        ("notes approved by Winter or Reed", {"approved_by in": ["s.winter", "m.reed"]}),
        ("notes at Hale Bank and Low Moor", {"site in": ["Hale Bank", "Low Moor"]}),
    ],
)
def test_two_names_have_two_fields_unless_they_are_listed(question: str, wanted: Json):
    assert stated(question, *PEOPLE) == wanted


@pytest.mark.parametrize(
    "question", ["notes of Frost's site and notes of Winter's site", "Frost's notes, Winter's notes"]
)
def test_names_of_which_the_same_is_said_get_no_different_fields(question: str):
    found = stated(question, *PEOPLE)
    assert not ({"reported_by eq", "approved_by eq"} <= found.keys())


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("notes of severity 1", {"severity eq": "S1"}),
        ("notes of severity 1 or 3", {"severity in": ["S1", "S3"]}),
        ("notes of severity at least 2", {}),
        ("notes of severity 2 and above", {}),
        ("notes between severity 1 and severity 3", {}),
        ("notes on line 3", {"lines eq": "3"}),
        ("top 3 notes", {}),
    ],
)
def test_a_level_or_a_number_in_a_list_is_a_value_behind_the_word_for_its_field(question: str, wanted: Json):
    assert stated(question, strings("severity", "S1", "S2", "S3", "S4"), LINE) == wanted


@pytest.mark.parametrize(
    ("question", "low", "high"),
    [
        ("去年12月报修的记录", "2025-12-01", "2026-01-01"),
        ("去年下半年七到九月的记录", "2025-07-01", "2025-10-01"),
        ("notes of autumn (Sept to Nov 2025)", "2025-09-01", "2025-12-01"),
        ("notes, week of 2 March to 8 March", "2026-03-02", "2026-03-09"),
        ("notes of last year (mid-June)", "2025-06-10", "2025-06-21"),
        ("everything on Hale Bank in November", "2025-11-01", "2025-12-01"),
    ],
)
def test_a_period_is_read_with_the_words_that_narrow_it(question: str, low: str, high: str):
    found = stated(question, dates("logged", "2024-01-01", "2026-03-01"), PEOPLE[2])
    assert (found["logged gte"], found["logged lt"]) == (low, high)


def test_a_period_that_begins_today_is_read_where_there_are_dates_ahead():
    found = stated("notes between now and the end of July", dates("logged", "2024-01-01", "2026-12-01"), PEOPLE[2])
    assert (found["logged gte"], found["logged lt"]) == ("2026-03-12", "2026-08-01")


def test_a_month_in_a_question_about_the_world_is_no_condition():
    assert (
        stated("does ice form on Hale Bank in January?", dates("logged", "2024-01-01", "2026-12-01"), PEOPLE[2]) == {}
    )


def test_a_value_that_is_spelt_like_a_negation_still_denies_the_value_after_it():
    fields = (strings("grape", "Moscato", "Barbera"), strings("invoiced", "yes", "no"))
    assert stated("notes, no moscato please", *fields) == {"grape ne": "Moscato"}
    assert stated("notes, invoiced no", *fields) == {"invoiced eq": "no"}


def test_a_listing_of_a_persons_documents_has_all_their_fields_unless_a_word_says_which():
    catalogue = FieldCatalogue(((1, 1),), 60, {one.field.name: one for one in PEOPLE})
    context = ReadingContext(catalogue, frozenset({"note", "notes"}), CARDS, Calendar(NOW.date()), NOW)
    (either,) = read_by_rules("Frost's notes", (), context).conditions
    assert either.filter == {
        "type": "or",
        "filters": [
            {"type": "eq", "key": either.field, "value": "j.frost"},
            {
                "type": "eq",
                "key": "approved_by" if either.field == "reported_by" else "reported_by",
                "value": "j.frost",
            },
        ],
    }
    (one,) = read_by_rules("notes approved by Frost", (), context).conditions
    assert one.filter == {"type": "eq", "key": "approved_by", "value": "j.frost"}
