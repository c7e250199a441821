"""Fields named in Pinyin, by abbreviations or with a value written behind them, in a collection of buildings."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent.intent.reading import FILTERS_FROM
from agent.intent.rules_reader import ReadingContext, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.values.inferred_words import document_nouns_of
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues


def catalogue(fields: Mapping[str, Mapping[str, int]]) -> FieldCatalogue:
    made = {
        name: FieldValues(Field(name, "string", "string"), values, len(values), sum(values.values()))
        for name, values in fields.items()
    }
    return FieldCatalogue(((1, hash(repr(made))),), 300, made)


HOUSES = catalogue(
    {
        "listed": {"true": 100, "false": 200},
        "nut_fr": {"Y": 100, "N": 200},
        "rd_close": {"y": 60, "n": 240},
        "keys_retd": {"yes": 150, "no": 150},
        "tr_restr": {"Y": 100, "N": 200},
        "tow_bar": {"Y": 100, "N": 200},
        "new": {"Y": 100, "N": 200},
        "to_do": {"Y": 100, "N": 200},
        "closed_yard": {"Y": 100, "N": 200},
        "asbestos": {"y": 100, "n": 200},
        "kunren": {"是": 100, "否": 200},
        "qk": {"是": 150, "否": 150},
        "有效": {"是": 200, "否": 100},
        "keeper": {"Ann Reed": 100, "Tom Hale": 150},
        "shouhuo_ren": {"张三": 100, "李四": 100},
        "kind": {"barn": 100, "church": 100, "cottage": 100},
    }
)


def sure(text: str) -> dict[str, Any]:
    """Return the values by field that a question surely states; of a field that must exist or not, a boolean."""
    known = HOUSES
    cards = {name: Card(name, "", kind) for name, kind in (("fulltext", "documents"), ("sql", "metadata"))}
    now = datetime(2026, 11, 20, tzinfo=UTC)
    context = ReadingContext(known, document_nouns_of(["house"], known), cards, Calendar(date(2026, 11, 20)), now)
    pieces = read_by_rules(text, (), context).conditions
    return {one.field: one.filter["value"] for one in pieces if one.confidence >= FILTERS_FROM}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("困人的房子", {"kunren": "是"}),
        ("困过人的房子", {"kunren": "是"}),
        ("没困人的房子", {"kunren": "否"}),
        ("困人那栏是否的房子", {"kunren": "否"}),
        ("围困人员怎么疏散", {}),
        ("困难的房子", {}),
        ("没有收货人的房子", {"shouhuo_ren": False}),
    ],
)
def test_a_chinese_phrase_names_the_field_that_spells_it(text: str, wanted: dict[str, Any]):
    assert sure(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("barns with a road closure", {"kind": "barn", "rd_close": "y"}),
        ("barns with no road closures", {"kind": "barn", "rd_close": "n"}),
        ("keys returned, barns", {"keys_retd": "yes", "kind": "barn"}),
        ("who read a note about the closure?", {}),
        ("express returns", {}),
        ("tree restrictions", {}),
        ("travel restrictions", {}),
        ("train restored", {}),
        ("towel bar", {}),
    ],
)
def test_a_name_may_abbreviate_a_word_if_its_other_words_stand_beside(text: str, wanted: dict[str, Any]):
    assert sure(text) == wanted


def test_words_apart_do_not_name_a_flag_together():
    assert "rd_close" not in sure("closed barns near the old road")


@pytest.mark.parametrize("text", ["public yard barns", "which yard is the widest?", "barns in the yard"])
def test_a_flag_is_not_named_by_its_last_word_without_the_one_that_tells_it_apart(text: str):
    assert "closed_yard" not in sure(text)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("asbestos = n", {"asbestos": "n"}),
        ("barns, asbestos n", {"asbestos": "n", "kind": "barn"}),
        ("barns, asbestos is false", {"asbestos": "n", "kind": "barn"}),
        ("barns, rd_close is false", {"rd_close": "n", "kind": "barn"}),
        ("asbestos y/n for barns", {"kind": "barn"}),
        ("asbestos: yes or no?", {}),
        ("the asbestos rate of barns", {"kind": "barn"}),
        ("asbestos-less barns", {"asbestos": "n", "kind": "barn"}),
        ("asbestos-free barns", {"asbestos": "n", "kind": "barn"}),
        ("nut-free", {}),  # not N
        ("barns asbestos-free", {"asbestos": "n", "kind": "barn"}),
        ("houses, asbestos-free, from Ann Reed", {"asbestos": "n", "keeper": "Ann Reed"}),
        ("barns clean of asbestos", {"asbestos": "n", "kind": "barn"}),
        ("barns with no lead or asbestos", {"asbestos": "n", "kind": "barn"}),
        ("清客那栏是否", {"qk": "否"}),
        ("清客的时候怎么办", {}),
        ("已失效的房子", {}),
    ],
)
def test_a_value_behind_a_flag_and_any_form_of_denial_set_it(text: str, wanted: dict[str, Any]):
    assert sure(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("listed churches", {"listed": "true", "kind": "church"}),
        ("churches that are not listed", {"listed": "false", "kind": "church"}),
        ("churches listed by Ann Reed", {"kind": "church", "keeper": "Ann Reed"}),
        ("list the churches", {"kind": "church"}),
        ("what is listed under stained glass?", {}),
        ("who listed the prices?", {}),
        ("as listed below", {}),
        ("the listed price", {}),
        ("new houses", {"new": "Y"}),
        ("houses that are not new", {"new": "N"}),
        ("new or old", {}),
        ("what's new?", {}),
        ("New York", {}),
        ("the new office", {}),
        ("what to do", {}),
    ],
)
def test_a_participle_that_is_common_in_questions_is_a_flag_only_where_it_describes(text: str, wanted: dict[str, Any]):
    assert sure(text) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("which barns have a keeper assigned at all", {"kind": "barn", "keeper": True}),
        ("barns without any keeper given", {"kind": "barn", "keeper": False}),
        ("barns, I mean those with no keeper entered", {"kind": "barn", "keeper": False}),
        ("do we have a keeper at all?", {}),
    ],
)
def test_a_field_may_be_required_or_lacking_at_all(text: str, wanted: dict[str, Any]):
    assert sure(text) == wanted
