"""Words that a calculation must not leave out: values in common words, states, deeds, other quantities."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent.intent.derived import nouns_of
from agent.intent.rules import Context, RulesReading, read_rules
from agent.intent.time.periods import Calendar
from retrievers.core.fields import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues


def text(name: str, values: dict[str, int]) -> FieldValues:
    return FieldValues(Field(name, "string", "string"), values, len(values), 100)


def read(question: str, fields: tuple[FieldValues, ...], records: tuple[str, ...] = ()) -> RulesReading:
    catalogue = FieldCatalogue(((1, 1),), 100, {one.field.name: one for one in fields}, records)
    cards = {name: Card(name, "", kind) for name, kind in (("fulltext", "documents"), ("sql", "metadata"))}
    now = datetime(2026, 11, 20, tzinfo=UTC)
    return read_rules(
        question, [], Context(catalogue, nouns_of((), catalogue), cards, Calendar(date(2026, 11, 20)), now)
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


@pytest.mark.parametrize(
    ("question", "word", "fields"),
    [
        ("how many tickets are open?", "open", TICKETS),
        ("how many open tickets since July?", "open", TICKETS),
        ("how many tickets are not new?", "not new", TICKETS),
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
