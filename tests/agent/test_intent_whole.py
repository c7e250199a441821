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
