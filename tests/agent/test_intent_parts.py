"""The parts that rules are made of: names of values, numbers, and words for numbers, at their edges."""

import time
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent.intent.calculation import find_calculation, find_list
from agent.intent.conditions.conflicts import are_contradictory
from agent.intent.conditions.question_parser import ParsedQuestion, parse_question
from agent.intent.conditions.stated_condition import StatedCondition
from agent.intent.language.abbreviations import is_abbreviation
from agent.intent.language.numerals import parse_amount, parse_count
from agent.intent.language.text import tokenize, words_of
from agent.intent.reading import FILTERS_FROM
from agent.intent.rejections import unknown_values
from agent.intent.rules_reader import ReadingContext, RulesReading, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.values import vocabulary
from agent.intent.values.field_words import concepts_of
from agent.intent.values.inferred_words import document_nouns_of
from agent.intent.values.value_linking import find_mentions
from agent.intent.values.vocabulary import build_vocabulary, field_role
from agent.types import Message
from retrievers.core.metadata import Field, FieldType, ScalarType
from retrievers.core.types import Card, FieldCatalogue, FieldValues


def values(
    name: str,
    counts: Mapping[str, int] | None = None,
    *,
    kind: FieldType = "string",
    item: ScalarType | None = None,
    **more: Any,
) -> FieldValues:
    counts = counts or {}
    item = item or ("string" if kind == "list" else kind)
    rest = {"distinct": len(counts), "documents": 100} | more
    return FieldValues(Field(name, kind, item), counts, **rest)


def catalogue(*fields: FieldValues) -> FieldCatalogue:
    return FieldCatalogue(((1, hash(repr(fields))),), 100, {one.field.name: one for one in fields})


PLANTS = catalogue(
    values(
        "division",
        {"Logistics Division": 30, "Quality": 40, "Straßenbau": 20, "Materialprüfung": 10},
        aliases={"people and culture office": "Quality", "P&C": "Quality"},
    ),
    values(
        "author", {"Anna Maria Costa": 10, "Maria Delgado": 12, "Jörg Müller": 40, "Will Grant": 5, "Tom Okafor": 33}
    ),
    values("region", {"华东": 40, "华南大区": 35, "North": 25}),
    values("target", {"3.9": 30, "3.10": 30, "3.11": 30, "3.12": 10}, distinct=4),
    values("topics", {"asbestos": 5, "spot instances": 8, "process": 20}, kind="list", distinct=3),
    values("case_number", kind="number", low=100, high=9999, distinct=100),
    values("budget_usd", kind="number", low=0, high=5_000_000, distinct=80),
    values("floors", kind="number", low=1, high=60, distinct=40),
)


def found(text: str, known: FieldCatalogue = PLANTS, more: Any = ()) -> ParsedQuestion:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    return parse_question(
        text, build_vocabulary(known), document_nouns_of(["cases"]), Calendar(date(2026, 11, 20)), now, more
    )


def named(text: str, known: FieldCatalogue = PLANTS, more: Any = ()) -> list[tuple[str, set[str]]]:
    """The names in a text as they are written, with the values they may mean."""
    mentions = find_mentions(tokenize(text), build_vocabulary(known), more)
    return [(text[one.start : one.end], {value.value for value in one.matches}) for one in mentions]


# --- names of values


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("reports of the logistics division", [("logistics division", {"Logistics Division"})]),
        ("from the People and Culture Office", [("People and Culture Office", {"Quality"})]),
        ("from the people & culture office", [("people & culture office", {"Quality"})]),
        ("P&C reports", [("P&C", {"Quality"})]),
        ("LOGISTICS-DIVISION memos", [("LOGISTICS-DIVISION", {"Logistics Division"})]),
        ("logistics, division", [("logistics", {"Logistics Division"})]),
        ("", []),
    ],
    ids=["two words", "alias of four", "and sign", "short alias", "hyphen", "a mark between", "nothing"],
)
def test_the_longest_name_at_a_place_is_found(text: str, wanted: list[Any]):
    assert named(text) == wanted


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("strassenbau", "Straßenbau"),
        ("STRASSENBAU", "Straßenbau"),
        ("Materialpruefung", "Materialprüfung"),
        ("materialprufung", "Materialprüfung"),
    ],
)
def test_german_letters_are_found_in_every_way_they_are_typed(text: str, value: str):
    assert named(f"reports of {text}") == [(text, {value})]


@pytest.mark.parametrize("text", ["by Jörg Müller", "by Joerg Mueller", "by jorg muller", "by Müller"])
def test_a_name_with_umlauts_is_the_same_person(text: str):
    assert found(text).filter == {"type": "eq", "key": "author", "value": "Jörg Müller"}


def test_chinese_values_stand_in_running_text():
    assert named("华东的报告") == [("华东", {"华东"})]
    assert named("请找华南大区去年的材料") == [("华南大区", {"华南大区"})]
    assert found("华南大区的报告").filter == {"type": "eq", "key": "region", "value": "华南大区"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("reports for 3.10", ["3.10"]),
        ("reports for v3.9", ["3.9"]),
        ("cases of python3.12", ["3.12"]),
        ("cases for 3.9 to 3.11", ["3.10", "3.11", "3.9"]),
        ("cases for 3.9 or 3.12", ["3.12", "3.9"]),
        ("cases for 3.1", []),
        ("see section 3.9 of the manual", []),
    ],
)
def test_versions_are_whole_and_in_the_order_of_their_numbers(text: str, wanted: list[str]):
    filters = [piece.filter for piece in found(text).conditions if piece.field == "target"]
    given = [one["value"] if isinstance(one["value"], list) else [one["value"]] for one in filters]
    assert sorted(value for one in given for value in one) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("the acounting divison", set()),
        ("Strasenbau reports", {"Straßenbau"}),
        ("reports by Tom Okfor", {"Tom Okafor"}),
        ("reports by tom okfor", set()),
        ("reports by Anna Maria Coste", {"Anna Maria Costa"}),
        ("equality reports", set()),
        ("qualify reports", set()),
    ],
    ids=["cue", "label", "person", "small letters", "three words", "another word", "close word"],
)
def test_a_slip_is_forgiven_where_it_can_mean_one_name_alone(text: str, wanted: set[str]):
    assert {value for _, one in named(text) for value in one} == wanted


def test_a_slip_between_two_names_is_neither():
    near = catalogue(values("site", {"Harbour East": 50, "Harbour West": 50}), values("team", {"A": 1, "B": 2}))
    assert build_vocabulary(near).misspelt_values(["harbour", "aest"], person=False) == ()
    assert [one.value for one in build_vocabulary(near).misspelt_values(["harbour", "wesst"], person=False)] == [
        "Harbour West"
    ]


def test_a_middle_name_names_nobody():
    assert named("what did Maria say") == [("Maria", {"Maria Delgado"})]
    assert named("reports by Maria Costa") == [("Maria Costa", {"Anna Maria Costa"})]


def test_a_first_name_that_two_people_bear_equally_often_is_not_guessed():
    people = catalogue(values("author", {"Maria Costa": 10, "Maria Delgado": 12, "Tom Okafor": 9}))
    assert named("what did Maria say", people) == [("Maria", {"Maria Costa", "Maria Delgado"})]
    unclear = found("what did Maria write about drains?", people)
    assert unclear.filter is None
    assert [len(mention.matches) for mention in unclear.unused_mentions] == [2]


def test_a_first_name_is_the_one_who_has_nearly_all_documents():
    people = catalogue(values("author", {"Maria Costa": 3, "Maria Delgado": 40, "Tom Okafor": 9}))
    assert named("reports by Maria", people) == [("Maria", {"Maria Delgado"})]


@pytest.mark.parametrize(
    ("text", "names"),
    [("Grant and loan", 0), ("a grant", 0), ("reports by Grant", 1), ("reports by Will Grant", 1), ("Will it rain", 0)],
)
def test_a_name_that_is_an_everyday_word_needs_a_sign(text: str, names: int):
    assert len(named(text)) == names


# --- fields too large to know


def test_a_value_that_was_looked_up_is_named_like_any_other():
    large = catalogue(values("author", {"Tom Okafor": 3}, distinct=100_000), values("status", {"Open": 1, "Shut": 2}))
    more = [("author", "Ling van Qiu", 3), ("author", "欧阳娜娜", 2)]
    assert named("reports by Ling van Qiu", large, more) == [("Ling van Qiu", {"Ling van Qiu"})]
    assert named("reports by Qiu", large, more) == [("Qiu", {"Ling van Qiu"})]
    assert named("欧阳娜娜的报告", large, more) == [("欧阳娜娜", {"欧阳娜娜"})]
    assert named("reports by Ling van Qiu", large) == []


def test_a_vocabulary_of_many_values_is_built_once_and_asked_quickly():
    many = {f"Person{number} Family{number}": 1 for number in range(1000)}
    large = catalogue(values("author", many, distinct=100_000), values("tag", many, kind="list", distinct=100_000))
    build_vocabulary(large)
    started = time.process_time()
    for _ in range(20):
        assert build_vocabulary(large) is build_vocabulary(large)
        named("reports by Person7 Family7 about the Persom8 Family8", large)
    assert time.process_time() - started < 5


# --- what fields are


@pytest.mark.parametrize(
    ("field", "role"),
    [
        (values("author", {"Ann Lee": 1, "李雷": 2}), "person"),
        (values("handled_by", {"Ann Lee": 1, "Tom Okafor": 2}), "person"),
        (values("release", {"1.2": 1, "2.0.1": 2, "v3.0": 5}), "version"),
        (values("tags", {"a": 1, "b": 2}, kind="list"), "tag"),
        (values("status", {"Open": 50, "Shut": 50}), "label"),
        (values("title", {"A title": 1}), "text"),
        (values("note", {"x" * 90: 1}), "text"),
        (values("serial", {f"n{n}": 1 for n in range(90)}), "text"),
        (values("created", kind="date"), "date"),
        (values("public", {"true": 1}, kind="boolean"), "boolean"),
        (values("language", {"en": 1, "zh": 2}), "language"),
    ],
    ids=lambda one: one if isinstance(one, str) else one.field.name,
)
def test_what_a_field_holds_is_told_by_its_name_and_values(field: FieldValues, role: str):
    assert field_role(field) == role


def test_the_name_of_a_field_says_what_it_is_about():
    assert concepts_of("budgetUsd") == {"money"}
    assert "status" in concepts_of("workflow-state")
    assert concepts_of("xyz") == set()


def test_a_label_that_every_document_carries_names_nothing():
    alike = catalogue(values("status", {"Open": 100}), values("team", {"Open": 30, "Shut": 70}))
    assert [one.field for one in build_vocabulary(alike).names[("open",)]] == ["team"]


# --- numbers


@pytest.mark.parametrize(
    ("text", "filters"),
    [
        ("budget above $1.5 million", [("gt", "budget_usd", 1_500_000)]),
        ("a budget of at most 30万", [("lte", "budget_usd", 300_000)]),
        ("budgets between 200k and 300k", [("gte", "budget_usd", 200_000), ("lte", "budget_usd", 300_000)]),
        ("budget between 1 and 3 million", [("gte", "budget_usd", 1_000_000), ("lte", "budget_usd", 3_000_000)]),
        ("10 or more floors", [("gte", "floors", 10)]),
        ("fewer than 5 floors", [("lt", "floors", 5)]),
        ("层数不超过二十层", [("lte", "floors", 20)]),
        ("cases 200-300", [("gte", "case_number", 200), ("lte", "case_number", 300)]),
        ("cases in the 600s", [("gte", "case_number", 600), ("lt", "case_number", 700)]),
        ("case #4711 and case 4712", [("in", "case_number", [4711, 4712])]),
        ("case 50000", []),
        ("what replaced case 4711?", []),
        ("above 5; whatever the floors", []),
        ("more than 20 people came", []),
    ],
)
def test_a_number_is_of_the_field_that_its_clause_names(text: str, filters: list[Any]):
    numbers = ("budget_usd", "floors", "case_number")
    sure = (piece for piece in found(text).conditions if piece.confidence >= FILTERS_FROM)
    pieces = [piece.filter for piece in sure if piece.field in numbers]
    flat = [inner for one in pieces for inner in one.get("filters", [one])]
    assert [(one["type"], one["key"], one["value"]) for one in flat] == filters


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("7", 7), ("twenty-five", 25), ("a couple of", 2), ("a dozen", 12), ("二十三", 23), ("十", 10), ("两", 2)],
        *[("一百零五", 105), ("二〇二四", 2024), ("", None), ("many", None), ("twenty-ten", None), ("²", None)],
    ],
)
def test_counts_are_read_in_words_and_digits(text: str, number: int | None):
    assert parse_count(text) == number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("1,234.5", 1234.5), ("$2 m", 2_000_000), ("3bn", 3_000_000_000), ("5千万", 50_000_000)],
        *[("一百万", 1_000_000), ("1_000", 1000), ("7 apples", None), ("万", None), ("", None), ("1.2.3", None)],
    ],
)
def test_amounts_are_read_with_their_magnitude(text: str, number: float | None):
    assert parse_amount(text) == number


# --- tokens


def test_tokens_are_compared_folded_and_without_marks():
    assert words_of("Café-Bar’s C++, (5)") == ("cafe", "bar", "c++", "5")
    assert words_of("3.10.2") == ("3.10.2",)
    assert words_of("1,000") == ("1000",)
    assert words_of("华东A区") == ("华", "东", "a", "区")


def test_a_vocabulary_is_built_once_for_a_catalogue():
    one = catalogue(values("team", {"A": 1, "B": 2}))
    assert vocabulary.build_vocabulary(one) is vocabulary.build_vocabulary(one)


def test_two_databases_never_share_what_their_values_are_called():
    """Equal collection numbers and versions in two databases: a program may open a service for each."""
    here = FieldCatalogue(((1, 1),), 3, {"team": values("team", {"red": 2, "blue": 1})})
    there = FieldCatalogue(((1, 1),), 3, {"team": values("team", {"green": 2, "black": 1})})

    assert [piece.filter["value"] for piece in found("cases of the green team", here).conditions] == []
    assert [piece.filter["value"] for piece in found("cases of the green team", there).conditions] == ["green"]


# --- values that do not exist


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("cases of the Geology division", [("division = Geology", True)]),
        ("cases in the division of Rare Earths since 2024", [("division = Rare Earths", True)]),
        ("which division wrote about Kubernetes?", []),
        ("cases of the Quality division", []),
        ("Which Division is it?", []),
        ("cases about the division of labour", []),
        ("cases by the marketing division", [("division = marketing", True)]),
        ("cases of the same division", []),
        ("cases by Zoe Quinnell", [("author = Zoe Quinnell", False)]),
        ("what did Zoe Quinnell find about dust?", [("author = Zoe Quinnell", False)]),
    ],
)
def test_a_value_that_no_document_has_is_said_with_those_that_there_are(text: str, wanted: list[Any]):
    said = [(one.what, "Quality" in one.valid) for one in unknown_values(found(text))]
    assert said == wanted


# --- calculations of a number by group

COSTS = catalogue(
    values("team", {"red": 20, "blue": 10}),
    values("tags", {"budget": 2, "paint": 5}, kind="list", distinct=2),
    values("budget_usd", kind="number", low=0, high=900, distinct=28),
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("average budget per team", ("avg", "budget_usd")),
        ("total budget by team", ("sum", "budget_usd")),
        ("各 team 的平均预算", ("avg", "budget_usd")),
        ("cases per team", ("count", None)),
        ("total number of cases per team", ("count", None)),
        ("average temperature per team", None),
    ],
)
def test_a_number_is_calculated_for_each_group_and_never_replaced_by_a_count(text: str, wanted: Any):
    made = find_calculation(found(text, COSTS))
    assert (made and (made.aggregate["op"], made.aggregate["of"])) == wanted


# --- names by a dictionary, and words for documents


REPORTS = catalogue(
    values("kind", {"Inspection report": 30, "Meeting minutes": 20, "Recall": 50}),
    values("company", {"Amber Honey": 3, "Blue Anchor": 5}),
    values("fine", kind="number", low=0, high=100),
    values("source", {"dispatches": 100}),
    values("status", {"Active": 100}),
    values("products", {"Spices": 10, "Honey": 5}, kind="list", distinct=2),
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("检查报告", {"Inspection report"}),
        ("最长的会议纪要", {"Meeting minutes"}),
        ("每个召回", {"Recall"}),
        ("旧会议室", None),
    ],
)
def test_chinese_words_name_english_values_of_several_words(text: str, wanted: set[str] | None):
    assert next((known for _, known in named(text, REPORTS)), None) == wanted


def test_chinese_words_point_at_fields_with_english_names():
    sentence = found("哪家公司的罚款最高", REPORTS).sentence
    cued = {name for index in range(len(sentence.tokens)) for name in sentence.cue_fields(index)}
    assert {"company", "fine"} <= cued


def test_what_every_document_is_called_is_a_word_for_documents():
    nouns = document_nouns_of(["x1"], REPORTS)
    assert {"dispatches", "dispatche"} <= nouns
    assert nouns.isdisjoint({"recall", "active"})


def test_ranges_that_leave_no_day_for_both_are_alternatives():
    dated = catalogue(values("created", kind="date", low="1995-01-01", high="2026-01-01", distinct=500))
    assert found("reports from before 2001 or after 2024", dated).filter == {
        "type": "or",
        "filters": [
            {"type": "lt", "key": "created", "value": "2001-01-01"},
            {"type": "gte", "key": "created", "value": "2025-01-01"},
        ],
    }


# --- what readers of a collection of hotels tried


HOTELS = catalogue(
    values("kind", {"incident": 6, "policy": 8, "report": 12}),
    values(
        "hotel",
        {"Lakeside Zurich": 9, "Bund Shanghai": 9, "Harbour Lisbon": 8},
        aliases={"Zurich": "Lakeside Zurich", "上海": "Bund Shanghai", "上海外滩酒店": "Bund Shanghai"},
    ),
    values("department", {"engineering": 12, "housekeeping": 14}),
    values("status", {"open": 3, "closed": 23}),
    values("tags", {"wine": 2, "pool": 3}, kind="list", distinct=2),
    values("severity", kind="number", low=1, high=2, distinct=2),
    values("cost_eur", kind="number", low=10, high=90_000, distinct=24),
)


def read(text: str, history: Any = ()) -> RulesReading:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    cards = {name: Card(name, "", kind) for name, kind in (("fulltext", "documents"), ("sql", "metadata"))}
    context = ReadingContext(HOTELS, document_nouns_of(["hotel"], HOTELS), cards, Calendar(date(2026, 11, 20)), now)
    return read_by_rules(text, [Message(role="user", content=one) for one in history], context)


def stated(text: str, history: Any = ()) -> dict[str, Any]:
    """The field of each condition with its operator and value."""
    filter = read(text, history).filter or {"type": "and", "filters": []}
    parts = filter.get("filters", [filter])
    return {one["key"]: (one["type"], one["value"]) for one in parts}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("incidents in Zurich", {"kind": ("eq", "incident"), "hotel": ("eq", "Lakeside Zurich")}),
        ("what incidents did Zurich have?", {"kind": ("eq", "incident"), "hotel": ("eq", "Lakeside Zurich")}),
        ("incidents of engineering", {"kind": ("eq", "incident"), "department": ("eq", "engineering")}),
        ("severity 1 incidents", {"kind": ("eq", "incident"), "severity": ("eq", 1)}),
        ("上海有哪些事故？", {"kind": ("eq", "incident"), "hotel": ("eq", "Bund Shanghai")}),
        ("除了上海以外的事故", {"kind": ("eq", "incident"), "hotel": ("ne", "Bund Shanghai")}),
        ("how many incidents haven't been closed?", {"kind": ("eq", "incident"), "status": ("ne", "closed")}),
        ("还没关闭的事故有几起？", {"kind": ("eq", "incident"), "status": ("ne", "closed")}),
        ("why wasn't it closed?", {}),
        ("每个酒店的事故数量", {"kind": ("eq", "incident")}),
    ],
)
def test_what_the_words_state_of_hotels(text: str, wanted: dict[str, Any]):
    assert stated(text) == wanted


def test_what_happened_to_a_thing_of_the_asker_is_no_sure_condition():
    assert all(one.confidence < FILTERS_FROM for one in read("My payment was closed with PAY-4031").conditions)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("which hotel had the most incidents?", {"op": "count", "group_by": "hotel", "order": "desc"}),
        ("每个酒店的事故数量", {"op": "count", "group_by": "hotel"}),
        ("which hotel has the highest total cost?", {"op": "sum", "of": "cost_eur", "group_by": "hotel"}),
        ("平均费用最高的部门", {"op": "avg", "of": "cost_eur", "group_by": "department", "order": "desc"}),
        ("compare cost of incidents between Zurich and Harbour Lisbon", {"op": "sum", "of": "cost_eur"}),
        (
            "share of severity 1 incidents",
            {"op": "share", "where": {"type": "eq", "key": "severity", "value": 1}},
        ),
        ("How many incidents last longer than 60 minutes?", None),
        ("公司有多少人？", None),
    ],
)
def test_what_is_calculated_of_hotels(text: str, wanted: dict[str, Any] | None):
    aggregate = read(text).aggregate
    assert (aggregate and wanted and {key: aggregate[key] for key in wanted}) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (
            "exclude Zurich and show only engineering",
            {"hotel": ("ne", "Lakeside Zurich"), "department": ("eq", "engineering")},
        ),
        ("skip Zurich", {"hotel": ("ne", "Lakeside Zurich")}),
        ("drop everything but the closed ones", {"status": ("eq", "closed")}),
        ("其中有几起还没关闭？", {"status": ("ne", "closed")}),
    ],
)
def test_an_exclusion_ends_where_something_else_is_asked_for(text: str, wanted: dict[str, Any]):
    assert stated(text, ["list the incidents"]) == {"kind": ("eq", "incident"), **wanted}


SHIPS = catalogue(
    values("harbour", {"Bergen": 30, "Porto": 40, "Gdynia": 30}),
    values("master", {"Ola Nordmann": 40, "Vera Lindt": 35, "Iris Falk": 25}),
    values("inspector", {"Ola Nordmann": 20, "Vera Lindt": 30, "Per Sand": 30}, documents=80),
    values("state", {"moored": 40, "sailing": 30, "scrapped": 30}),
    values("cargo", {"timber": 40, "grain": 40, "ore": 30}, kind="list", distinct=3),
    values("insured", {"yes": 70, "no": 30}),
    values("refit_date", kind="date", low="2019-01-01", high="2026-01-01", distinct=60, documents=60),
    values("length_m", kind="number", low=20, high=320, distinct=80),
)


def of_ships(text: str) -> dict[tuple[str, str], Any]:
    """What is denied or asked for of ships: values by field and operator, those that are only likely as well."""
    now = datetime(2026, 11, 20, tzinfo=UTC)
    known, nouns = build_vocabulary(SHIPS), document_nouns_of(["ships"], SHIPS)
    pieces = parse_question(text, known, nouns, Calendar(date(2026, 11, 20)), now).conditions
    return {(piece.field, piece.filter["type"]): piece.filter.get("value") for piece in pieces}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("ships not moored in Porto", {("state", "ne"): "moored"}),
        ("ships that Iris Falk did not command", {("master", "ne"): "Iris Falk"}),
        ("ships that are neither sailing nor scrapped", {("state", "nin"): ["sailing", "scrapped"]}),
        ("ships in any harbour but Porto", {("harbour", "ne"): "Porto"}),
        ("ships, the scrapped ones excluded", {("state", "ne"): "scrapped"}),
        ("leave Bergen out: ships with grain", {("harbour", "ne"): "Bergen"}),
        ("ships with timber, Bergen aside", {("harbour", "ne"): "Bergen"}),
        ("ships from nowhere but Gdynia", {("harbour", "eq"): "Gdynia"}),
        ("uninsured ships", {("insured", "eq"): "no"}),
        ("ships without an inspector", {("inspector", "exists"): False}),
        ("ships never refitted", {("refit_date", "exists"): False}),
        ("ships whose inspector is unknown", {("inspector", "exists"): False}),
        ("ships nobody has inspected yet", {("inspector", "exists"): False}),
        ("I need the ships with nobody inspecting", {("inspector", "exists"): False}),
        ("ships still not inspected by anyone", {("inspector", "exists"): False}),
        ("ships inspected by anyone in Porto", {("inspector", "exists"): None, ("harbour", "eq"): "Porto"}),
        ("how could nobody inspect the ship", {("inspector", "exists"): None}),
        ("ships with a length not below 80", {("length_m", "gte"): 80}),
        ("除了Porto和Bergen以外的ships", {("harbour", "nin"): ["Porto", "Bergen"]}),
        ("Bergen的就算了，其他的ships", {("harbour", "ne"): "Bergen"}),
        ("不是Iris Falk的ships", {("master", "ne"): "Iris Falk"}),
        ("不要Porto要Bergen的ships", {("harbour", "eq"): "Bergen"}),
        ("把scrapped的过滤掉", {("state", "ne"): "scrapped"}),
    ],
)
def test_a_denial_is_read_with_all_that_it_reaches(text: str, wanted: dict[tuple[str, str], Any]):
    read = of_ships(text)
    assert {key: read.get(key) for key in wanted} == wanted
    assert not {field for field, kind in wanted if kind in ("ne", "nin")} & {
        f for f, kind in read if kind in ("eq", "in")
    }


@pytest.mark.parametrize(
    "text",
    [
        "not only ships in Porto",
        "ships except the timber ones in Porto",
        "why not moored?",
        "不仅是Porto的ships",
    ],
)
def test_what_may_be_denied_in_two_ways_is_not_read(text: str):
    assert not {field for field, _ in of_ships(text)} & {"harbour", "state", "cargo"}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("I'm not sure: is anything moored in Porto?", ("harbour", "eq")),
        ("don't we have ships in Porto?", ("harbour", "eq")),
        ("有没有Porto的ships", ("harbour", "eq")),
        ("do not leave out ships from Porto", ("harbour", "eq")),
    ],
)
def test_a_word_of_negation_that_denies_nothing_is_passed_over(text: str, wanted: tuple[str, str]):
    assert of_ships(text).get(wanted) == "Porto"


def test_a_denial_of_what_was_asked_for_takes_its_place():
    assert stated("and those not closed?", ["closed incidents in Zurich"]) == {
        "kind": ("eq", "incident"),
        "hotel": ("eq", "Lakeside Zurich"),
        "status": ("ne", "closed"),
    }


@pytest.mark.parametrize(
    "text",
    [
        "703",
        "what is 404",
        "2026",
        "30 days?",
        "你能说说台风事故的原因吗",
        "Do you remember the ice storm?",
        "Tell me about the joke policy",
        'Summarise the runbook "how to rotate keys"',
        "客户收到这封邮件：“您的银行账号已变更”，怎么办？",
        "Extract from Lodestar: how do I get the hourly data set?",
        "Summarize prop-0043: what is it about?",
    ],
)
def test_a_question_is_never_taken_for_small_talk(text: str):
    assert read(text).kind != "none"


@pytest.mark.parametrize(
    ("short", "word", "is_short"),
    [("prio", "priority", True), ("wt", "weight", True), ("e", "english", False), ("ee", "employee", False)],
)
def test_the_name_of_a_field_abbreviates_a_word_or_does_not(short: str, word: str, is_short: bool):
    assert is_abbreviation(short, word) is is_short


INCIDENTS = catalogue(
    values("state", {"open": 10, "closed": 30, "wontfix": 8, "triaged": 9}),
    values("reported_by", {"k.banks": 12, "m.reed": 20, "j.moss": 9}),
    values("assignee", {"t.okafor": 12, "l.page": 20, "s.lin": 9}),
    values("sev", {"S1": 4, "S2": 20, "S3": 30}),
)


@pytest.mark.parametrize(
    ("question", "states"),
    [
        ("Which incidents reported by Banks were closed as won't fix?", set()),
        ("Which closed incidents were triaged by Banks?", {"closed"}),
        ("open or triaged incidents", {"open", "triaged"}),
    ],
)
def test_an_unsure_value_joins_a_sure_one_only_in_a_list(question: str, states: set[str]):
    sure = [one.filter for one in found(question, INCIDENTS).conditions if one.confidence >= FILTERS_FROM]
    stated = [one["value"] for one in sure if one["key"] == "state"]
    assert {value for one in stated for value in ([one] if isinstance(one, str) else one)} == states


def test_a_second_verb_is_no_second_person():
    sure = [
        one.filter
        for one in found("reported by Banks and handled by l.page", INCIDENTS).conditions
        if one.confidence >= FILTERS_FROM
    ]
    assert {"type": "eq", "key": "reported_by", "value": "k.banks"} in sure


@pytest.mark.parametrize(
    ("filters", "excludes"),
    [
        ([{"type": "eq", "key": "state", "value": "open"}, {"type": "in", "key": "state", "value": ["closed"]}], True),
        ([{"type": "eq", "key": "state", "value": "open"}, {"type": "in", "key": "state", "value": ["open"]}], False),
        ([{"type": "eq", "key": "state", "value": "open"}, {"type": "eq", "key": "sev", "value": "S1"}], False),
        ([{"type": "eq", "key": "state", "value": "open"}, {"type": "ne", "key": "state", "value": "closed"}], False),
    ],
)
def test_two_conditions_that_no_document_meets_contradict(filters: list[dict[str, Any]], excludes: bool):
    pieces = [StatedCondition(one["key"], one, 0, 0) for one in filters]
    assert are_contradictory(pieces, INCIDENTS.fields) is excludes


PLAYS = catalogue(
    values("state", {"open": 10, "closed": 30}),
    values("hall", {"North Hall": 12, "Old Chapel": 20}),
    values("editor", {"d.hall": 12, "j.frost": 20, "m.reed": 9, "k.banks": 11}),
)


@pytest.mark.parametrize(
    ("question", "editors"),
    [
        ("plays with editor Hall", {"d.hall"}),
        ("plays edited by Mr Hall", {"d.hall"}),
        ("plays edited by Hall", {"d.hall"}),
        ("Hall's plays", {"d.hall"}),
        ("plays by Hall", set()),
        ("plays sorted by Hall", set()),
        ("running speed by Hall", set()),
        ("Number of Plays Edited by Hall", set()),
        ("frost or reed as the editor, still open", {"j.frost", "m.reed"}),
        ("open plays by hall", set()),
        ("How many plays are there by hall?", set()),
        ("Hall of the open plays", set()),
    ],
)
def test_a_surname_that_names_a_field_needs_a_capital_and_another_sign(question: str, editors: set[str]):
    named = {
        known.value
        for one in found(question, PLAYS).sentence.mentions
        for known in one.matches
        if known.field == "editor"
    }
    assert named == editors


BRIEFS = catalogue(
    values("topic", {"inflation": 30, "trade": 25, "housing": 20}),
    values("status", {"draft": 20, "final": 50, "open": 10}),
)


@pytest.mark.parametrize(
    ("question", "lists"), [("open trade", True), ("is trade open?", False), ("is inflation final?", False)]
)
def test_topics_alone_make_no_list(question: str, lists: bool):
    assert (find_list(found(question, BRIEFS)) is not None) is lists
