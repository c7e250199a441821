"""What of a question had no effect is told with its words."""

from datetime import UTC, datetime

import pytest

from agent.intent.rejections import NOT_EXCLUDED, SEARCHED
from agent.intent.rules_reader import ReadingContext, RulesReading, read_by_rules
from agent.intent.time.periods import Calendar
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues

FIELDS = {
    "team": FieldValues(Field("team", "string", "string"), {"payments": 30, "core-search": 10}, 2, 40),
    "author": FieldValues(Field("author", "string", "string"), {"Bo Chen": 20, "Ann Lee": 20}, 2, 40),
    "system": FieldValues(Field("system", "string", "string"), {"linux": 20, "windows": 20}, 2, 40),
    "cost_usd": FieldValues(Field("cost_usd", "number", "number"), {}, 40, 40, 1, 9000),
    "created": FieldValues(Field("created", "date", "date"), {}, 40, 40, "2015-01-01", "2026-01-01"),
}
CARDS = {"fulltext": Card("fulltext", "words"), "sql": Card("sql", "metadata", "metadata")}


def read(question: str) -> RulesReading:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    catalogue = FieldCatalogue(((1, 1),), 40, FIELDS)
    return read_by_rules(
        question, (), ReadingContext(catalogue, frozenset({"ticket"}), CARDS, Calendar(now.date()), now)
    )


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("what is larger than 10 MB", "larger than 10 MB"),
        ("How do I fix error 42?", "42"),
        ("what was said with more than two reviewers about caching", "more than two"),
        ('which "hot fix" was rolled back', '"hot fix"'),
        ("超过 10MB 的上传怎么处理", "超过 10MB"),
        ("什么是“热修复”", "“热修复”"),
    ],
)
def test_a_number_or_a_quotation_without_effect_is_told_with_the_comparison_before_it(question: str, words: str):
    assert [(one.what, one.reason) for one in read(question).rejected] == [(words, SEARCHED)]


def test_every_number_is_told_in_the_order_of_the_question():
    rejected = read("what is the difference between Python 3.11 and 3.12").rejected
    assert [one.what for one in rejected] == ["difference between Python 3.11 3.12"]


def test_a_negation_of_a_value_and_an_exclusion_without_effect_are_told():
    assert [(one.what, one.reason) for one in read("why does it not start on linux").rejected] == [
        ("not start on linux", NOT_EXCLUDED)
    ]
    assert [one.what for one in read("how do I log in without a password?").rejected] == ["without a password"]


@pytest.mark.parametrize(
    ("question", "told"),
    [
        ("tickets with system solaris", ["system = solaris"]),
        ("system: solaris", ["system = solaris"]),
        ("team=payments, system=solaris", ["system = solaris"]),
        ("tickets with system either linux or windows", []),
        ("tickets with system updates", []),
        ("tickets with system errors in the parser", []),
        ("tickets with system linux", []),
        ("what does the system do", []),
    ],
)
def test_a_value_written_small_that_its_field_does_not_have_is_told(question: str, told: list[str]):
    assert [one.what for one in read(question).rejected] == told


@pytest.mark.parametrize(
    "question",
    [
        "tickets of the payments team since 2020",
        "tickets by Ann Lee excluding linux",
        "tickets from 2019, not by Bo Chen",
        "tickets with a cost over 500 usd",
        "how many tickets with a cost over 500 usd are there?",
        "除了 linux 以外的 ticket",
        "what did core-search say about caching",
        "how does the release script work",
        "why does it not work",
    ],
)
def test_what_was_read_and_what_is_no_condition_is_not_told(question: str):
    assert read(question).rejected == ()


@pytest.mark.parametrize("question", ["tickets of 03/04/2024", "tickets created on 5/6", "3/4/2024创建的工单"])
def test_a_date_whose_day_and_month_may_be_exchanged_is_told(question: str):
    (told,) = read(question).rejected
    assert "may be swapped" in told.reason


@pytest.mark.parametrize(
    "question", ["tickets of 13/04/2024", "tickets from 3/4/2024 to 25/4/2024", "tickets of 4/4/2024"]
)
def test_a_date_that_only_has_one_order_is_not_told(question: str):
    assert read(question).rejected == ()


def test_a_long_question_tells_no_more_than_a_few():
    assert len(read(" ".join(f"error {n}" for n in range(100, 130))).rejected) <= 5


def test_what_is_unread_makes_no_question_incomplete_that_was_complete():
    assert read("ERR42 net.tcp_mem").complete


def test_a_word_beside_an_identifier_may_say_more_to_a_model():
    assert not read("is db.example.com having an outage right now").complete
