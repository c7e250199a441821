"""Words that a calculation must not leave out: values in common words, states, deeds, other quantities."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent.intent.rules_reader import ReadingContext, RulesReading, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.values.inferred_words import document_nouns_of
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues


def text(name: str, values: dict[str, int]) -> FieldValues:
    return FieldValues(Field(name, "string", "string"), values, len(values), 100)


def read(question: str, fields: tuple[FieldValues, ...], records: tuple[str, ...] = ()) -> RulesReading:
    catalogue = FieldCatalogue(((1, 1),), 100, {one.field.name: one for one in fields}, records)
    cards = {name: Card(name, "", kind) for name, kind in (("fulltext", "documents"), ("sql", "metadata"))}
    now = datetime(2026, 11, 20, tzinfo=UTC)
    return read_by_rules(
        question,
        [],
        ReadingContext(catalogue, document_nouns_of((), catalogue), cards, Calendar(date(2026, 11, 20)), now),
    )


TICKETS = (
    text("state", {"new": 30, "assigned": 30, "solved": 40}),
    text("mode", {"up": 60, "down": 40}),
    FieldValues(Field("opened", "date", "date"), {}, 90, 100, "2025-01-05", "2026-09-05"),
)
LOANS = tuple(
    FieldValues(Field(name, "date", "date"), {}, 90, 100, "2025-01-05", "2027-09-05")
    for name in ("out", "back", "next_due", "created")
)
SINCE_JULY = {"type": "gte", "key": "opened", "value": "2026-07-01"}
NEW = {"type": "eq", "key": "state", "value": "new"}


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("how many new tickets are there?", NEW),
        ("how many tickets are still new?", NEW),
        ("how many new faults do we have?", NEW),
        ("how many new tickets since July?", {"type": "and", "filters": [SINCE_JULY, NEW]}),
        ("how many tickets are down now?", {"type": "eq", "key": "mode", "value": "down"}),
        ("how many tickets were opened since July?", SINCE_JULY),
    ],
)
def test_a_value_that_describes_the_records_counts_whatever_word_it_is(question: str, wanted: dict[str, Any]):
    reading = read(question, TICKETS)
    assert reading.aggregate == {"op": "count"}
    assert reading.filter == wanted


CONTRACTS = (
    text("status", {"signed": 40, "expired": 30, "draft": 30}),
    text("owner", {"Marta Lindqvist": 50, "Oskar Pham": 50}),
    FieldValues(Field("signed", "date", "date"), {}, 90, 100, "2024-01-05", "2026-09-05"),
    FieldValues(Field("expires", "date", "date"), {}, 90, 100, "2025-01-05", "2028-09-05"),
)


def in_2025(field: str) -> dict[str, Any]:
    return {
        "type": "and",
        "filters": [
            {"type": "gte", "key": field, "value": "2025-01-01"},
            {"type": "lt", "key": field, "value": "2026-01-01"},
        ],
    }


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("how many contracts were signed in 2025?", in_2025("signed")),
        ("how many contracts expired in 2025?", in_2025("expires")),
        ("contracts signed in 2025", in_2025("signed")),
        ("how many contracts are signed?", {"type": "eq", "key": "status", "value": "signed"}),
        (
            "how many expired contracts were signed in 2025?",
            {
                "type": "and",
                "filters": [{"type": "eq", "key": "status", "value": "expired"}, *in_2025("signed")["filters"]],
            },
        ),
    ],
)
def test_the_verb_of_a_date_is_not_a_status_of_the_same_name_as_well(question: str, wanted: dict[str, Any]):
    assert read(question, CONTRACTS, ("contract",)).filter == wanted


@pytest.mark.parametrize(
    ("question", "values"),
    [
        ("contracts still signed since 2025", ["signed"]),
        ("contracts with status signed since 2025", ["signed"]),
        ("draft or signed since 2025", ["draft", "signed"]),
    ],
)
def test_a_participle_that_states_a_status_stays_one_beside_a_date(question: str, values: list[str]):
    found = read(question, CONTRACTS, ("contract",)).filter
    assert found is not None
    told = [one for one in found["filters"] if one["key"] == "status"]
    assert [one.get("value") for one in told] in ([values], [values[0]])


@pytest.mark.parametrize("question", ["who owns the most contracts?", "who owned the most contracts?"])
def test_a_verb_after_who_names_the_field_of_those_who_do_it(question: str):
    reading = read(question, CONTRACTS, ("contract",))
    assert reading.aggregate is not None
    assert reading.aggregate["group_by"] == "owner"


@pytest.mark.parametrize(
    ("question", "word", "fields"),
    [
        ("how many tickets are open?", "open", TICKETS),
        ("how many open tickets since July?", "open", TICKETS),
        ("how many tickets are not new?", "not new", TICKETS),
        ("how many tickets remain open?", "open", TICKETS),
        ("how many tickets are on hold?", "hold", TICKETS),
        ("how many tickets are new or assigned?", "new", TICKETS),
        ("how many tickets are neither new nor solved?", "new", TICKETS),
        ("how many tickets are out?", "out", TICKETS),
        ("how many documents are out now?", "out", LOANS),
        ("how many documents are back?", "back", LOANS),
        ("how many documents are due?", "due", LOANS),
        ("how many expired documents are there?", "expired", LOANS),
        ("how many documents are new?", "new", LOANS),
    ],
)
def test_a_state_that_no_field_holds_leaves_nothing_counted(question: str, word: str, fields: tuple[FieldValues, ...]):
    reading = read(question, fields)
    assert reading.aggregate is None
    assert [one.what for one in reading.rejected] == [word]


@pytest.mark.parametrize("question", ["how many documents were created?", "how many documents went out in 2026?"])
def test_a_deed_that_every_record_has_a_date_of_restricts_nothing_more(question: str):
    assert read(question, LOANS).aggregate == {"op": "count"}


TRIPS = (
    text("courier", {"Ann Lee": 30, "Bob Ray": 30, "Cy Fox": 40}),
    text("country", {"China": 30, "France": 30, "Spain": 40}),
    FieldValues(Field("went", "date", "date"), {}, 90, 100, "2025-01-05", "2026-09-05"),
)
TRIP = ("trip", "trips")


@pytest.mark.parametrize(
    "question",
    [
        "how many couriers have never been to China?",
        "how many couriers didn't go to France?",
        "which courier never went to China?",
        "couriers who did not go to China",
        "which couriers have not been to France?",
        "who has not made a trip in 2026?",
        "who made no trip in 2026?",
        "who didn't go to China?",
        "how many couriers have no trip to China?",
    ],
)
def test_who_has_not_is_no_number_and_no_filter_that_excludes(question: str):
    reading = read(question, TRIPS, TRIP)
    assert (reading.aggregate, reading.filter) == (None, None)


def test_who_has_only_done_one_thing_is_no_number():
    reading = read("how many couriers only went to Spain?", TRIPS, TRIP)
    assert (reading.aggregate, reading.rejected[0].what) == (None, "only")


def test_records_that_do_not_meet_a_condition_are_counted():
    reading = read("how many trips were not to China?", TRIPS, TRIP)
    assert (reading.aggregate, reading.filter) == ({"op": "count"}, {"type": "ne", "key": "country", "value": "China"})


def number(name: str, low: float, high: float) -> FieldValues:
    return FieldValues(Field(name, "number", "number"), {}, 80, 100, low, high)


LIGHTS = (
    number("lamp_hours", 1000, 9000),
    number("outage_min", 0, 500),
    number("cost_eur", 0, 5000),
    text("district", {"North": 50, "South": 50}),
    text("keeper", {"Ingrid Haugen": 40, "June Park": 60}),
)
VISIT = ("visit", "visits")


@pytest.mark.parametrize(
    ("question", "word"),
    [
        ("how many hours was the North dark?", "dark"),
        ("how many hours did the North lose?", "lose"),
        ("how many hours has the North slept?", "slept"),
        ("how many minutes did the North have?", "minutes"),
        ("what is the average salary of Ingrid Haugen?", "salary"),
        ("what is the total wage of Ingrid Haugen?", "wage"),
        ("what is the total budget of June Park?", "budget"),
        ("how much does a new lantern cost?", "how much new lantern cost"),
        ("how much did old lanterns cost?", "old lanterns"),
        ("how many lanterns are there in the North?", "lanterns"),
    ],
)
def test_a_number_of_something_else_is_not_given(question: str, word: str):
    reading = read(question, LIGHTS, VISIT)
    assert reading.aggregate is None
    assert reading.rejected[0].what == word


@pytest.mark.parametrize("question", ["what is the salary of Ingrid Haugen?", "what is the wage of June Park?"])
def test_the_amounts_of_another_quantity_are_not_listed(question: str):
    assert read(question, LIGHTS, VISIT).aggregate is None


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("how many lamp hours in the North?", {"op": "sum", "of": "lamp_hours"}),
        ("how many hours did the North have?", {"op": "sum", "of": "lamp_hours"}),
        ("how much did the visits cost?", {"op": "sum", "of": "cost_eur"}),
        ("what is the total price of the visits?", {"op": "sum", "of": "cost_eur"}),
    ],
)
def test_a_number_in_its_own_unit_or_by_its_own_name_is_given(question: str, wanted: dict[str, Any]):
    assert read(question, LIGHTS, VISIT).aggregate == wanted


def test_a_salary_is_the_pay():
    fields = (number("salary_eur", 1000, 9000), text("family", {"Finance": 50, "Sales": 50}))
    assert read("what is the average wage in Finance?", fields).aggregate == {
        "op": "avg",
        "of": "salary_eur",
        "decimals": 2,
    }


def test_words_inside_a_longer_name_make_no_second_condition():
    parts = FieldValues(Field("parts", "list", "string"), {"solar panel": 40, "lantern": 60}, 2, 100)
    solar = FieldValues(Field("solar", "boolean", "boolean"), {"true": 50, "false": 50}, 2, 100)
    panels, visits = (
        {"type": "eq", "key": "parts", "value": "solar panel"},
        {"type": "eq", "key": "solar", "value": True},
    )

    assert read("how many visits with a solar panel?", (parts, solar), VISIT).filter == panels
    assert read("how many solar panels did we use?", (parts, solar), VISIT).filter == panels
    assert read("how many solar visits are there?", (parts, solar), VISIT).filter == visits
    both = read("how many solar visits with a solar panel?", (parts, solar), VISIT).filter
    assert both is not None
    assert {one["key"] for one in both["filters"]} == {"parts", "solar"}


@pytest.mark.parametrize(
    "question",
    [
        "how many documents in the North or that cost more than 1000 euros?",
        "how many visits by June Park or in the South?",
    ],
)
def test_a_choice_between_conditions_on_two_fields_is_not_counted_as_both(question: str):
    reading = read(question, LIGHTS, VISIT)
    assert reading.aggregate is None
    assert "or" in reading.rejected[0].what
