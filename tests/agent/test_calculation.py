"""Calculations over collections with short names of fields, numbers kept as text, and units."""

from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent.intent.rules import Context, RulesReading, nouns_of, read_rules
from agent.intent.time.periods import Calendar
from retrievers.core.fields import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues


def text(name: str, values: dict[str, int], documents: int = 100) -> FieldValues:
    return FieldValues(Field(name, "string", "string"), values, len(values), documents)


def number(name: str, low: float, high: float, distinct: int = 80) -> FieldValues:
    return FieldValues(Field(name, "number", "number"), {}, distinct, 100, low, high)


STORE = (
    text("cat", {"Valve": 40, "Hose": 60}),
    text("supp", {"Nordlager": 30, "Hofer": 70}),
    text("alt_supp", {"Nordlager": 20, "Hofer": 20}, 40),
    text("amount", {"EUR 1,200.50": 50, "EUR 450,000.00": 50}),
    number("wt_g", 10, 9000),
    number("mins_down", 1, 500),
    number("size_kb", 1, 9000),
)
MEDALS = (
    text("nation", dict.fromkeys(("China", "Japan", "Jamaica", "Kenya", "Total"), 1), 5),
    number("gold", 0, 9, 4),
    number("rank", 1, 5, 5),
    number("year", 1990, 2014, 20),
)


def read(question: str, fields: tuple[FieldValues, ...] = STORE) -> RulesReading:
    catalogue = FieldCatalogue(((1, 1),), fields[0].documents, {one.field.name: one for one in fields})
    cards = {name: Card(name, "", kind) for name, kind in (("fulltext", "documents"), ("sql", "metadata"))}
    now = datetime(2026, 11, 20, tzinfo=UTC)
    context = Context(catalogue, nouns_of((), catalogue), cards, Calendar(date(2026, 11, 20)), now)
    return read_rules(question, [], context)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("part count by category", {"op": "count", "group_by": "cat"}),
        ("supplier with the most parts", {"op": "count", "group_by": "supp", "limit": 1}),
        ("what is the average weight of the parts in grams?", {"op": "avg", "of": "wt_g"}),
        ("what is the heaviest part?", {"op": "list", "of": "wt_g", "order": "desc", "limit": 1}),
        ("highest amount among the parts", {"op": "max", "of": "number(amount)"}),
        (
            "share of our parts without any alternative supplier",
            {"op": "share", "where": {"type": "exists", "key": "alt_supp", "value": False}},
        ),
    ],
)
def test_a_column_is_found_by_its_short_name_its_unit_or_its_texts(question: str, wanted: dict[str, Any]):
    aggregate = read(question).aggregate
    assert aggregate is not None
    assert {key: aggregate[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("outages longer than two hours", ("gt", "mins_down", 120)),
        ("files over 4 MB", ("gt", "size_kb", 4096)),
        ("parts under 1 kg", ("lt", "wt_g", 1000)),
        ("parts of 2 kg at most", ("lte", "wt_g", 2000)),
        ("停机不到一刻钟的故障", ("lt", "mins_down", 15)),
        ("deals above 100k euro", ("in", "amount", ["EUR 450,000.00"])),
        ("deals above 100k dollars", None),
        ("boats longer than 20 metres", None),
    ],
)
def test_an_amount_is_compared_in_the_unit_of_the_field_or_not_at_all(question: str, wanted: Any):
    filter = read(question).filter
    assert (filter and (filter["type"], filter["key"], filter["value"])) == wanted


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("which nation won the most gold medals?", {"op": "list", "of": "gold", "show": ["nation", "gold"]}),
        ("how many nations won no gold medals?", {"op": "count"}),
        ("how many gold medals did Jamaica win?", {"op": "sum", "of": "gold"}),
        ("how many more gold medals did China win than Japan?", {"op": "difference", "of": "gold"}),
        ("how many nations won in 2013?", {"op": "count"}),
    ],
)
def test_records_with_a_name_of_their_own_are_calculated_with(question: str, wanted: dict[str, Any]):
    aggregate = read(question, MEDALS).aggregate
    assert aggregate is not None
    assert {key: aggregate[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    "question",
    [
        "how many rusty parts do we have?",
        "total rank of the nations",
        "what is the average temperature of the parts?",
        "how many parts per category and supplier",
        "how many parts were delivered twice?",
    ],
)
def test_a_word_that_is_not_accounted_for_leaves_nothing_calculated(question: str):
    reading = read(question, MEDALS if "nations" in question else STORE)
    assert reading.aggregate is None
    assert reading.rejected
