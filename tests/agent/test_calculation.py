"""Calculations over collections with short names of fields, numbers kept as text, and units."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent.intent.analysis.field_linking import field_index_of
from agent.intent.calculation.segmentation import segment_question
from agent.intent.conditions.question_parser import parse_question
from agent.intent.language.units import unit_names
from agent.intent.rules_reader import ReadingContext, RulesReading, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.values.inferred_words import document_nouns_of
from agent.intent.values.measures import check_units
from agent.intent.values.vocabulary import build_vocabulary
from agent.types import Message
from retrievers.core.errors import BadRequest
from retrievers.core.metadata import Field
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
    context = ReadingContext(catalogue, document_nouns_of((), catalogue), cards, Calendar(date(2026, 11, 20)), now)
    return read_by_rules(question, [], context)


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


FERRIES = (
    text("port", {"Harwich": 30, "Esbjerg": 40, "Nynäshamn": 30}),
    text("skipper", {"Ahlgren, T.": 30, "Boyd, M.": 30, "Lund, K.": 20, "Ek, R.": 10, "Moss, J.": 5, "Rask, O.": 5}),
    text("logged_by", {"k.ormond": 60, "a.petri": 20, "w.lindh": 20}),
    text("cls", {"roro": 60, "cat": 20, "frt": 20}),
    text("insured", {"Y": 70, "N": 30}),
    text("crossingState", {"delayed": 30, "done": 70}),
    number("fare_eur", 10, 900),
    number("crossing_min", 20, 900),
    FieldValues(Field("sailed", "date", "date"), {}, 90, 100, "2020-01-02", "2026-10-01"),
)
INSURED = {"type": "eq", "key": "insured", "value": "Y"}


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("average booking fare of the Harwich sailings", {"op": "avg", "of": "fare_eur"}),
        ("mean journey time in minutes from Esbjerg", {"op": "avg", "of": "crossing_min"}),
        ("how many minutes does a trip from Harwich take on average", {"op": "avg", "of": "crossing_min"}),
        ("how long is the longest trip", {"op": "list", "of": "crossing_min", "order": "desc"}),
        ("what is the fare of the most expensive trip to Esbjerg", {"op": "list", "of": "fare_eur", "order": "desc"}),
        ("what share of our trips was insured", {"op": "share", "where": INSURED}),
        ("how many of the trips are insured", {"op": "count"}),
        ("how many insured Harwich trips are there", {"op": "count", "of": None}),
        ("how many crossings per port", {"op": "count", "group_by": "port"}),
        ("who logged how many trips", {"op": "count", "group_by": "logged_by"}),
        ("how many trips did each person log", {"op": "count", "group_by": "logged_by"}),
        ("每个港口各有多少航班", {"op": "count", "group_by": "port"}),
        ("Harwich 的票价平均多少钱", {"op": "avg", "of": "fare_eur"}),
        ("Harwich 的航程平均多少分钟", {"op": "avg", "of": "crossing_min"}),
        ("最贵的航班", {"op": "list", "of": "fare_eur", "order": "desc"}),
        ("how do the trips split across ports?", {"op": "count", "group_by": "port"}),
        ("split of all trips by port, with numbers", {"op": "count", "group_by": "port"}),
        ("which ports are there, and how many trips does each have?", {"op": "count", "group_by": "port"}),
        ("how big is the gap between the number of trips from Harwich and from Esbjerg?", {"op": "difference"}),
        ("are there more records under roro or under cat? give both numbers", {"between": ["roro", "cat"]}),
        ("roro 类的航班有多少", {"op": "count", "group_by": None}),
    ],
)
def test_words_that_name_the_records_the_number_or_its_unit_restrict_nothing(question: str, wanted: dict[str, Any]):
    made = read(question, FERRIES).aggregate

    assert made is not None
    assert {key: made.get(key) for key in wanted} == wanted


@pytest.mark.parametrize(
    "question",
    [
        "average fare of the Harwich sailings in dollars",
        "total journey time in hours",
        "平均票价是多少美元",
        "how many catamarans are there",  # a class may be short for it
        "the cheapest freighter",
        "how many trips were quick",
        "how many popular trips are there",
        "average fare on weekends",
        "who has the most trips",  # the skipper, or who logged them
        "who spent the minutes most often",
        "how much higher are the trips from Harwich than those from Esbjerg",
        "average monthly fare",
    ],
)
def test_nothing_is_calculated_that_leaves_out_a_word_or_takes_a_unit_or_a_field_by_default(question: str):
    assert read(question, FERRIES).aggregate is None


@pytest.mark.parametrize(
    ("question", "part"),
    [
        ("what share of trips from Harwich were insured in 2024", INSURED),
        ("in 2024, what percentage of the trips from Harwich were insured", INSURED),
        ("2024 年 Harwich 的班次里 delayed 占多少", {"type": "eq", "key": "crossingState", "value": "delayed"}),
        ("delayed 在 2024 年 Harwich 的班次里占多少", {"type": "eq", "key": "crossingState", "value": "delayed"}),
        ("2024 年 Harwich 的班次中 delayed 占多少", {"type": "eq", "key": "crossingState", "value": "delayed"}),
    ],
)
def test_the_period_of_a_share_is_of_the_whole(question: str, part: dict[str, Any]):
    made = read(question, FERRIES)

    assert made.aggregate is not None
    assert made.aggregate["where"] == part
    assert {piece.field for piece in made.conditions} == {"port", "sailed"}


CELLAR = (
    text("taster", {"Moreau, C.": 44, "Nguyen, T.": 56}),
    text("country", {"Italy": 40, "France": 60}),
    number("bottles", 0, 24, 12),
    number("price_eur", 5, 300),
    number("dur_min", 5, 90),
    number("total_score", 1, 300),
)


@pytest.mark.usefixtures("sure")
@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("how many wines has each taster tasted?", {"op": "count", "group_by": "taster"}),
        ("how many minutes altogether for Italy?", {"op": "sum", "of": "dur_min"}),
        ("what is the top total score for France?", {"op": "max", "of": "total_score"}),
        ("what does the dearest bottle from Italy cost?", {"of": "price_eur"}),
        ("highest price we ever offered for Italy", {"op": "max", "of": "price_eur"}),
    ],
)
def test_what_every_word_accounts_for_is_calculated(question: str, wanted: dict[str, Any]):
    aggregate = read(question, CELLAR).aggregate
    assert aggregate is not None
    assert {key: aggregate[key] for key in wanted} == wanted


SHORT = (
    text("zhuangtai", {"进行中": 60, "已结束": 40}),
    text("ctry", {"Peru": 40, "Chad": 60}),
    text("typ", {"loan": 40, "grant": 60}),
    text("prod", {"Nordlager": 40, "Hofer": 60}),
    text("moods", {"calm": 40, "tense": 60}),
    text("区", {"北区": 40, "南湾": 60}),
    number("pingfen", 1, 5),
    number("number_of_pages", 1, 300),
    number("ClaimedEUR", 1, 9000),
)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("count of projects by status", {"op": "count", "group_by": "zhuangtai"}),
        ("average claimed amount of each country", {"op": "avg", "of": "ClaimedEUR", "group_by": "ctry"}),
        ("number of projects by type", {"op": "count", "group_by": "typ"}),
        ("what is the average rating?", {"op": "avg", "of": "pingfen"}),
        ("total pages by country", {"op": "sum", "of": "number_of_pages", "group_by": "ctry"}),
        ("how many different producers are there?", {"op": "count", "of": "prod"}),
        ("most frequent mood tag", {"op": "count", "group_by": "moods", "limit": 1}),
        ("各区的平均评分", {"op": "avg", "of": "pingfen", "group_by": "区"}),
        ("the three longest projects by pages, with id", {"op": "list", "of": "number_of_pages", "limit": 3}),
    ],
)
def test_a_short_or_a_chinese_name_of_a_field_is_known_by_the_word_it_stands_for(question: str, wanted: dict[str, Any]):
    aggregate = read(question, SHORT).aggregate
    assert aggregate is not None
    assert {key: aggregate[key] for key in wanted} == wanted


ORDERS = (
    text("cust_nm", {"Aalto": 30, "Cobalt": 70}),
    text("ctry", {"Peru": 40, "Chad": 60}),
    text("dept", {"Sales": 40, "Stock": 60}),
    text("stat", {"shipped": 40, "lost": 60}),
    number("unit_prc", 1, 300),
    number("tot_amt", 1, 9000),
    number("emp_cnt", 1, 900),
    number("avg_wait_min", 1, 90),
    FieldValues(Field("opnd", "date", "date"), {}, 90, 100, date(2015, 1, 1), date(2025, 1, 1)),
)


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("average number of employees per department", {"op": "avg", "of": "emp_cnt", "group_by": "dept"}),
        ("how many employees on average per department?", {"op": "avg", "of": "emp_cnt", "group_by": "dept"}),
        ("number of customers by country", {"op": "count", "of": "cust_nm", "group_by": "ctry"}),
        ("number of countries per customer", {"op": "count", "of": "ctry", "group_by": "cust_nm"}),
        ("number of departments per country", {"op": "count", "of": "dept", "group_by": "ctry"}),
        ("top 3 customers by total amount", {"op": "sum", "of": "tot_amt", "group_by": "cust_nm", "limit": 3}),
        ("total amount per customer", {"op": "sum", "of": "tot_amt", "group_by": "cust_nm"}),
        ("average waiting time by department", {"op": "avg", "of": "avg_wait_min", "group_by": "dept"}),
        ("maximum number of employees per department", {"op": "max", "of": "emp_cnt", "group_by": "dept"}),
        ("how many employees in total?", {"op": "sum", "of": "emp_cnt"}),
        ("number of sites opened per quarter", {"op": "count", "group_by": "year_quarter(opnd)"}),
    ],
)
def test_what_is_counted_is_the_field_that_the_words_name_and_not_the_records(question: str, wanted: dict[str, Any]):
    aggregate = read(question, ORDERS).aggregate
    assert aggregate is not None
    assert {key: aggregate[key] for key in wanted} == wanted


@pytest.mark.parametrize(
    "question",
    [
        "which country earns the most?",
        "which country scored the most?",
        "how many employees and customers are there?",
        "average number of units per order",
    ],
)
def test_no_record_is_counted_for_what_the_words_ask_of(question: str):
    assert read(question, ORDERS).aggregate is None


@pytest.mark.parametrize("question", ["how many units were shipped?", "how many parcels per country?"])
def test_a_plural_taken_for_the_records_is_said_and_is_no_price(question: str):
    made = read(question, ORDERS)

    assert made.aggregate is not None
    assert made.aggregate["op"] == "count"
    assert [one.what for one in made.rejected] == [question.split()[2]]
    assert not made.complete


def test_a_named_value_that_constrains_nothing_is_no_filler():
    fields = (*CELLAR, text("result", {"Won": 40, "Nominated": 60}))
    catalogue = FieldCatalogue(((1, 1),), 100, {one.field.name: one for one in fields})
    now = datetime(2026, 11, 20, tzinfo=UTC)
    found = parse_question(
        "which taster has won the most?",
        build_vocabulary(catalogue),
        document_nouns_of((), catalogue),
        Calendar(now.date()),
        now,
    )

    parts = segment_question(replace(found, conditions=(), constraints=()), field_index_of(found.sentence.vocabulary))

    assert [part.kind for part in parts if part.start == len("which taster has ")] == ["value"]


def test_how_often_those_of_a_group_did_it_counts_records():
    fields = (text("检查员", {"苏国华": 30, "李明": 70}), number("罚款_元", 0, 900))
    aggregate = read("每个检查员各做了多少次检查", fields).aggregate
    assert aggregate is not None
    assert (aggregate["op"], aggregate.get("of"), aggregate["group_by"]) == ("count", None, "检查员")


LINEUP = (
    text("person", {f"Person {n}": 1 for n in range(40)}, 40),
    text("job", {"Student": 2, "Medical Student": 1} | {f"Job {n}": 1 for n in range(37)}, 40),
    text("level", {"Gold": 20, "White Gold": 20}, 40),
    number("total_score", 1, 300),
)


@pytest.mark.parametrize(
    "question",
    [
        "how many of the records are Student?",
        "what is the average total score for the first three people?",
        "what is the number of records from the us?",
        "how many records are there in IT?",
    ],
)
def test_no_number_is_shown_of_some_of_what_is_meant(question: str):
    assert read(question, LINEUP).aggregate is None


def test_of_a_field_of_labels_a_value_within_another_is_counted():
    assert (read("how many records are Gold?", LINEUP).aggregate or {}).get("op") == "count"


def test_from_one_value_to_another_is_more_than_the_two():
    fields = (text("weekday", {"Monday": 20, "Wednesday": 20, "Friday": 60}), number("bottles", 0, 24, 12))
    aggregate = read("how many records were there from Monday to Friday?", fields).aggregate
    assert aggregate is None or not aggregate.get("between")


BRIDGES = (
    text("bridge", {"Ister Cable Bridge": 30, "Hollin Beck Bridge": 30, "Garrow Culvert": 20, "Aldermoor Viaduct": 20}),
    text("inspector", {"Ann Roe": 50, "Bo Lind": 50}),
    text("status", {"open": 40, "closed": 60}),
    number("cost_eur", 100, 90_000),
)


@pytest.mark.parametrize(
    "question", ["how many arches does the Aldermoor Viaduct have?", "how many piers has the Garrow Culvert?"]
)
def test_what_something_has_is_not_counted_by_its_documents(question: str):
    assert read(question, BRIDGES).aggregate is None


def test_the_plural_of_a_field_names_no_values_that_end_in_its_word():
    made = read("how many bridges are there?", BRIDGES)
    assert (made.conditions, made.aggregate) == ((), {"op": "count", "of": "bridge"})


@pytest.mark.parametrize(
    "question",
    ["which bridges have never been inspected by Ann Roe?", "which inspectors have not inspected the Garrow Culvert?"],
)
def test_what_no_document_says_is_not_found_by_those_that_say_something_else(question: str):
    made = read(question, BRIDGES)
    assert (made.aggregate, made.conditions) == (None, ())
    assert made.rejected


def follow_up(before: str, question: str) -> RulesReading:
    catalogue = FieldCatalogue(((1, 1),), 100, {one.field.name: one for one in BRIDGES})
    cards = {name: Card(name, "", kind) for name, kind in (("fulltext", "documents"), ("sql", "metadata"))}
    now = datetime(2026, 11, 20, tzinfo=UTC)
    context = ReadingContext(catalogue, document_nouns_of((), catalogue), cards, Calendar(date(2026, 11, 20)), now)
    history = [Message(role="user", content=before), Message(role="assistant", content="Here they are.")]
    return read_by_rules(question, history, context)


def test_a_sum_of_what_was_asked_before_keeps_every_condition():
    made = follow_up("open reports by Ann Roe", "how much did they cost?")
    assert made.aggregate is None or {piece.field for piece in made.conditions} == {"inspector", "status"}


@pytest.mark.parametrize("before", ["tell me about WO-205", "latest report about the Garrow Culvert"])
def test_the_cost_of_one_document_is_no_sum_of_many(before: str):
    assert follow_up(before, "how much did it cost?").aggregate is None


@pytest.mark.parametrize(
    "question", ["reports far from the Garrow Culvert", "how many reports far from Hollin Beck Bridge?"]
)
def test_a_row_is_not_read_where_its_denial_is_in_doubt(question: str):
    made = read(question, BRIDGES)
    assert (made.conditions, made.aggregate) == ((), None)
    assert made.rejected


@pytest.mark.parametrize("question", ["哪个团队发布的文档最多？", "which team published the most documents?"])
def test_the_verb_of_a_date_field_is_no_tag_that_it_translates_to(question: str):
    fields = (
        text("team", {"search": 60, "billing": 40}),
        FieldValues(Field("tags", "list", "string"), {"release": 30, "cost": 20}, 2, 100),
        FieldValues(Field("published", "date", "date"), {}, 90, 100, "2024-01-01", "2026-01-01"),
    )
    found = read(question, fields)
    assert found.conditions == ()
    assert found.aggregate is not None
    assert (found.aggregate["op"], found.aggregate["group_by"]) == ("count", "team")


def number_in(name: str, unit: str) -> FieldValues:
    return FieldValues(Field(name, "number", "number", unit=unit), {}, 80, 100, 1, 9000)


@pytest.mark.parametrize(
    ("unit", "question", "limit"),
    [
        ("parsecs", "stars over 300 parsecs", 300),
        ("Parsec", "stars over 300 parsecs", 300),
        ("light years", "stars over 300 light years", 300),
        ("req/s", "stars over 300 req/s", 300),
        ("头", "超过300头", 300),
        ("parsecs", "stars over 300 km", None),
        ("parsecs", "stars over 300", None),
    ],
)
def test_a_declared_unit_that_no_list_knows_names_its_field_and_is_not_converted(unit: str, question: str, limit: int):
    # The name says kilometres; the schema knows better.
    found = read(
        question, (text("name", {"Vega": 1, "Sirius": 1}), number_in("depth_km", unit), number("mass", 1, 9000))
    )
    assert found.filter == (limit and {"type": "gt", "key": "depth_km", "value": limit})


@pytest.mark.parametrize("unit", ["km/h", "GB/month", "秒差距", "°F", "#", "-"])
def test_a_unit_that_no_question_can_say_is_refused_with_the_known_ones(unit: str):
    with pytest.raises(BadRequest, match="kb, mb, gb, tb") as refused:
        check_units({"fine": number_in("fine", "kb").field, "bad": number_in("bad", unit).field})
    assert str(refused.value).startswith(f'schema field "bad": an amount in the unit "{unit}" cannot be read')


def test_every_unit_of_the_list_can_be_declared():
    units = [*unit_names(), "sq. ft", "°C", "C$", "公里", "分钟", "kWh", "mpg", "fl oz", "points"]
    check_units({unit: Field(unit, "number", "number", unit=unit) for unit in units})
