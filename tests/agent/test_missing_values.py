"""Conditions that a field has no value, in the words in which people state them."""

from datetime import UTC, date, datetime

import pytest

from agent.intent.reading import FILTERS_FROM
from agent.intent.rules_reader import ReadingContext, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.values.inferred_words import document_nouns_of
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues


def _lacked(name: str, kind: str, *values: str) -> FieldValues:
    return FieldValues(Field(name, kind, "string"), dict.fromkeys(values, 20), len(values), 60)  # type: ignore[arg-type]


KNOWN = FieldCatalogue(
    ((1, 1),),
    100,
    {
        "assignee": _lacked("assignee", "string", "Ada Brook", "Ben Carter", "Cleo Dunn"),
        "labels": _lacked("labels", "list", "printing", "network", "mail"),
        "crew": _lacked("crew", "string", "North", "South", "Night"),
        "verified_by": _lacked("verified_by", "string", "Ina Falk", "Jo Marsh"),
        "decision": _lacked("decision", "string", "granted", "refused"),
        "cve": FieldValues(
            Field("cve", "string", "string"), {f"CVE-2024-{n}": 1 for n in range(1000, 1060)}, 60, 60
        ),
    },
)  # fmt: skip


@pytest.mark.parametrize(
    ("question", "field"),
    [
        ("unassigned jobs", "assignee"),
        ("unlabelled jobs", "labels"),
        ("jobs not assigned to a crew yet", "crew"),
        ("jobs that were never given to any crew", "crew"),
        ("unverified jobs", "verified_by"),
        ("no decision taken yet", "decision"),
        ("jobs with no CVE number", "cve"),
    ],
)
def test_a_missing_value_is_a_condition(question: str, field: str):
    assert _sure(question) == [{"type": "exists", "key": field, "value": False}]


@pytest.mark.parametrize(
    "question", ["what is an undecided voter?", "unless the crew is late", "jobs not assigned to the crew leader"]
)
def test_other_words_with_un_and_not_are_none(question: str):
    assert all(one["type"] != "exists" for one in _sure(question))


def _sure(question: str) -> list[dict[str, object]]:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    cards = {"fulltext": Card("fulltext", "", "documents"), "sql": Card("sql", "", "metadata")}
    context = ReadingContext(KNOWN, document_nouns_of(["job"], KNOWN), cards, Calendar(date(2026, 11, 20)), now)
    return [one.filter for one in read_by_rules(question, (), context).conditions if one.confidence >= FILTERS_FROM]
