"""Other words for values: initials of codes, people of a country, yes and no of other languages, misspelt people."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent.intent.language.lexicon import name_words
from agent.intent.reading import FILTERS_FROM
from agent.intent.rules_reader import ReadingContext, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.values.inferred_words import document_nouns_of
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues

FIELDS: Mapping[str, Mapping[str, int]] = {
    "voltage": {"LV": 100, "MV": 120, "HV": 80},
    "fraud_type": {"CNP": 120, "SKM": 90, "ATO": 90},
    "merchant": {"PlayNest": 100, "Ticketwise": 110, "Kiteshop": 90},
    "origin": {"Georgia": 100, "Jordan": 90, "Sudan": 110},
    "urgente": {"oui": 120, "non": 180},
    "in_register": {"true": 200, "false": 100},
    "priority": {"low": 100, "medium": 90, "high": 110},
    "engineer": {"Karl Lindqvist": 100, "Ada Brook": 100, "Ben Carter": 100},
}
KNOWN = FieldCatalogue(
    ((1, 1),),
    300,
    {name: FieldValues(Field(name, "string", "string"), held, len(held), 300) for name, held in FIELDS.items()},
)


def filters(question: str) -> list[dict[str, Any]]:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    cards = {"fulltext": Card("fulltext", "", "documents"), "sql": Card("sql", "", "metadata")}
    context = ReadingContext(KNOWN, document_nouns_of(["outage"], KNOWN), cards, Calendar(date(2026, 11, 20)), now)
    return [one.filter for one in read_by_rules(question, (), context).conditions if one.confidence >= FILTERS_FROM]


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("low-voltage outages", [("eq", "voltage", "LV")]),
        ("outages of high voltage", [("eq", "voltage", "HV")]),
        (
            "PlayNest or Ticketwise, card not present",
            [("in", "merchant", ["PlayNest", "Ticketwise"])],
        ),
        ("outages of Georgians", [("eq", "origin", "Georgia")]),
        ("all Sudanese outages", [("eq", "origin", "Sudan")]),
        ("medium voltage, high priority", [("eq", "voltage", "MV"), ("eq", "priority", "high")]),
        ("low voltage can stay out", [("ne", "voltage", "LV")]),
        ("urgent outages, low voltage", [("eq", "voltage", "LV"), ("eq", "urgente", "oui")]),
        ("outages that aren't in the register", [("eq", "in_register", "false")]),
        ("outages in the register", [("eq", "in_register", "true")]),
        ("outages by linqvist", [("eq", "engineer", "Karl Lindqvist")]),
    ],
)  # fmt: skip
def test_other_words_mean_the_value(question: str, expected: list[tuple[str, str, object]]):
    found = sorted((one["type"], one["key"], str(one["value"])) for one in filters(question))
    assert found == sorted((kind, key, str(value)) for kind, key, value in expected)


@pytest.mark.parametrize(
    "question",
    [
        "outages where the lift vanished",
        "which outages has the mayor visited?",
        "home of the valley",
        "last vehicle on site",
        "the main valve",
        "lost vouchers",
        "a hot line drill",
        "latest version of the manual",
    ],
)
def test_words_that_only_begin_like_a_code_mean_nothing(question: str):
    assert filters(question) == []


def test_names_of_fields_are_split_into_words_without_accents():
    names = ("año", "Größe", "état_civil", "quantitéStock", "имя_файла", "工作量_人天")
    assert [name_words(name) for name in names] == [
        ("ano",), ("grosse",), ("etat", "civil"), ("quantite", "stock"), ("имя", "фаила"), ("工作量", "人天"),
    ]  # fmt: skip
