"""How a question's words reach the values of a collection: other forms, parts, other languages, titles, slips."""

from collections.abc import Mapping
from datetime import UTC, date, datetime

import pytest

from agent.intent.conditions.question_parser import parse_question
from agent.intent.language.text import tokenize
from agent.intent.time.periods import Calendar
from agent.intent.values.inferred_words import document_nouns_of
from agent.intent.values.person_names import is_person_field
from agent.intent.values.value_linking import find_mentions
from agent.intent.values.value_match import DISTANT
from agent.intent.values.vocabulary import build_vocabulary, field_role
from retrievers.core.metadata import Field, FieldType, ScalarType
from retrievers.core.types import FieldCatalogue, FieldValues
from retrievers.text.chinese_dictionary import composed_translations, term_translations


def field(name: str, counts: Mapping[str, int], kind: FieldType = "string") -> FieldValues:
    item: ScalarType = "string" if kind == "list" else kind
    return FieldValues(Field(name, kind, item), counts, len(counts), 100)


def catalogue(*fields: FieldValues) -> FieldCatalogue:
    return FieldCatalogue(((1, hash(repr(fields))),), 100, {one.field.name: one for one in fields})


BOATS = catalogue(
    field("language", {"en": 60, "zh": 40}),
    field("yuyan", {"en": 50, "zh": 50}),
    field("skipper", {"Prof. Dr. Nadia Weller": 30, "O'Brien, K.": 20, "Rasmussen, B.": 25, "T. Ng": 25}),
    field("shipwright", {"高建华": 30, "Dr. Olaf Berg": 40, "林小曼": 30}),
    field("yard", {"HarbourWorks": 40, "NorthDock": 30, "RiverForge": 30}),
    field("flag", {"Italy": 30, "Portugal": 40, "Sichuan": 30}),
    field("city", {"Gothenburg": 60, "Cologne": 40}),
    field("paper", {"damage-report": 50, "sea-trial": 50}),
    field("account", {"CC-4100": 40, "CC-7300": 30, "CC-5200": 30}),
    field("grade", {"II": 60, "II*": 40}),
    field("berth", {"N/quay": 50, "S/pond": 50}),
    field("类型", {"交响音乐会": 30, "小厅": 30, "大厅": 20, "印度菜": 20}),
    field("作曲家", {"贝多芬": 20, "艾灵顿": 20, "江城交响乐团": 10}, "list"),
    field("fish", {"turkey": 10, "cod": 10}, "list"),
)


def named(text: str) -> set[tuple[str, str]]:
    """The values that a text may name, with their fields."""
    found = find_mentions(tokenize(text), build_vocabulary(BOATS))
    return {(known.field, known.value) for one in found for known in one.matches}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("boats of Nadia Weller", ("skipper", "Prof. Dr. Nadia Weller")),
        ("what Nadia sailed", ("skipper", "Prof. Dr. Nadia Weller")),
        ("ODowd or OBrien", ("skipper", "O'Brien, K.")),
        ("sailed by Rasmusen", ("skipper", "Rasmussen, B.")),
        ("boats sailed by Ng", ("skipper", "T. Ng")),
        ("repaired by Mr Gao", ("shipwright", "高建华")),
        ("repaired by Xiaoman", ("shipwright", "林小曼")),
        ("boats of Berg", ("shipwright", "Dr. Olaf Berg")),
        ("the harbour people", ("yard", "HarbourWorks")),
        ("Italian boats", ("flag", "Italy")),
        ("四川的船", ("flag", "Sichuan")),
        ("boats from Göteborg", ("city", "Gothenburg")),
        ("boats from Köln", ("city", "Cologne")),
        ("damages of the year", ("paper", "damage-report")),
        ("everything on 4100", ("account", "CC-4100")),
        ("池塘边的船", ("berth", "S/pond")),
        ("symphony nights", ("类型", "交响音乐会")),
        ("in the small hall", ("类型", "小厅")),
        ("an indian evening", ("类型", "印度菜")),
        ("Beethoven nights", ("作曲家", "贝多芬")),
        ("江城交响演了什么", ("作曲家", "江城交响乐团")),
        ("english shows", ("yuyan", "en")),
        ("sailed by rasmusen", ("skipper", "Rasmussen, B.")),
    ],
)
def test_a_value_is_reached_by_another_form_of_its_name(text: str, value: tuple[str, str]):
    assert value in named(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("short trips", ("作曲家", "艾灵顿")),  # a foreign name means nothing
        ("Turkish boats", ("fish", "turkey")),
        ("a hall", ("类型", "小厅")),  # the kind that several share
        ("reports of the year", ("paper", "damage-report")),  # a word for documents
        ("english shows", ("language", "en")),  # the collection has its own
        ("everything on 41", ("account", "CC-4100")),
    ],
)
def test_what_says_another_thing_reaches_no_value(text: str, value: tuple[str, str]):
    assert value not in named(text)


def test_a_mark_at_the_end_tells_values_apart():
    assert {value for name, value in named("grade II boats") if name == "grade"} == {"II"}
    assert {value for name, value in named("grade II* boats") if name == "grade"} == {"II*"}


@pytest.mark.parametrize(
    ("name", "values", "wanted"),
    [
        ("surveyor", ["Greta Solberg", "Tom Adisa"], True),  # who acts
        ("resp", ["Dr. Ilse Brandt", "王芳", "Li Wei"], True),  # titles and surnames
        ("taster", ["Moreau, C.", "Da Silva, R."], True),
        ("quarter", ["Old Town", "Harbour", "Millbank", "Garden Suburb"], False),
        ("hall", ["Great Hall", "Small Hall"], False),  # too few to tell by their looks
        ("taster", ["own-pocket", "corporate-card"], False),
        ("piste", ["Blue Ridge", "Rabbit Run", "Lower Meadow", "Sun Terrace", "Black Ridge", "Glacier Bowl"], False),
        ("byline", ["Mark Ek", "Victor Lund", "Iris Holm", "Lily Dahl", "Anna Berg", "Sven Moe"], True),
        (
            "bidder",
            ["Bright Office", "Granite Partners", "Open Road Services", "Northwind Steel", "Iron Works", "Blue Print"],
            False,
        ),
        ("officer", ["Ken Baker", "Tom Winter", "Luis Park", "Ruth Summer"], True),  # surnames are everyday words
        ("surveyor", ["Mark Young", "Rose Hill", "Grace Field"], True),
        ("poet", ["Rose Hartley", "Sol Grey", "Lucian Snow", "Idris Vale", "Anjali Stone", "Mara Field"], True),
    ],
)
def test_a_field_holds_people_by_titles_its_own_name_or_first_names(name: str, values: list[str], wanted: bool):
    assert is_person_field(name, values) is wanted


def test_a_field_of_codes_of_languages_is_one_of_a_language():
    assert field_role(field("yuyan", {"en": 1, "zh": 2})) == "language"
    assert field_role(field("country", {"de": 1, "fr": 2})) == "label"


def test_a_term_that_the_dictionary_lacks_is_called_by_its_parts():
    assert ("small", "hall") in composed_translations("小厅")
    assert ("sichuan",) in term_translations("四川")
    assert ("beethoven",) in term_translations("贝多芬")


DEEDS = catalogue(
    field("clerk", {"jdoe": 50, "mkim": 50}),
    FieldValues(Field("signed", "date", "date"), {}, 90, 100, "2015-01-02", "2026-10-01"),
)


@pytest.mark.parametrize(
    "text", ["deeds on beer in the eighteenth century", "I want “Deed of Padua 2023-08”", 'the deed "sale 2023-08"']
)
def test_days_of_history_and_of_titles_are_no_condition(text: str):
    now = datetime(2026, 11, 20, tzinfo=UTC)
    known = build_vocabulary(DEEDS)
    assert parse_question(text, known, document_nouns_of(["deeds"]), Calendar(date(2026, 11, 20)), now).dates == ()


def test_a_day_in_quotes_alone_is_one():
    now = datetime(2026, 11, 20, tzinfo=UTC)
    found = parse_question(
        'deeds signed in "2023-08"',
        build_vocabulary(DEEDS),
        document_nouns_of(["deeds"]),
        Calendar(date(2026, 11, 20)),
        now,
    )
    assert found.dates


FLEET = catalogue(
    field("driver", {"s.may": 30, "a.stone": 30, "r.price": 20, "k.olsen": 20}),
    field("supervisor", {"Weiss, M.": 50, "Lamb, P.": 50}),
    field("depot", {"星光站 Star Yard": 40, "河口站 Ferry Point": 60}),
    field("ctry", {"CA": 40, "IE": 30, "NO": 30}),
    field("route", {"1号线": 30, "2号线": 30, "3号线": 40}),
    field("works", {"Norvik East": 20, "Norvik West": 30, "Halden": 20, "Brevik": 20, "Larvik": 10}),
    field("colour", {"lamb": 10, "grey": 90}),
)


def in_fleet(text: str) -> set[tuple[str, str]]:
    return {
        (one.field, one.value)
        for mention in find_mentions(tokenize(text), build_vocabulary(FLEET))
        for one in mention.matches
    }


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("trips that s may drove", ("driver", "s.may")),
        ("driver stone", ("driver", "a.stone")),
        ("Price’s trips", ("driver", "r.price")),
        ("which were lamb’s in May", ("supervisor", "Lamb, P.")),
        ("Show Mr. Lamb", ("supervisor", "Lamb, P.")),
        ("Trips with lamb as supervisor", ("supervisor", "Lamb, P.")),
        ("trips from Star Yard", ("depot", "星光站 Star Yard")),
        ("河口站的车", ("depot", "河口站 Ferry Point")),
        ("Canadian trips", ("ctry", "CA")),
        ("爱尔兰的", ("ctry", "IE")),
        ("三号线", ("route", "3号线")),
        ("the Norvik works", ("works", "Norvik West")),
    ],
)
def test_a_value_is_called_as_people_call_it(text: str, value: tuple[str, str]):
    assert value in in_fleet(text)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("How is a stone removed from a tyre?", "driver"),  # nothing says that it is a name
        ("Is the lamb’s leg for the depot?", "supervisor"),
        ("At the same price", "driver"),
        ("at the same price", "driver"),
        ("stone walls in any case", "driver"),
        ("bylaws by hand", "driver"),
    ],
)
def test_words_without_a_sign_of_a_value_call_none(text: str, name: str):
    assert name not in {found for found, _ in in_fleet(text)}


def test_names_of_tests_are_no_people():
    assert field_role(field("method", {"t_test": 50, "f_test": 30, "z_test": 20})) != "person"


def test_codes_are_countries_only_where_the_field_says_so():
    departments = build_vocabulary(catalogue(field("dept", {"IT": 40, "PR": 30, "QA": 30})))
    assert not find_mentions(tokenize("memos from Italy and Qatar"), departments)


def test_a_value_that_begins_with_a_letter_and_a_dot_ends_a_text():
    grades = build_vocabulary(catalogue(field("grade", {"A.": 40, "B.": 30, "C.": 30})))
    assert [one.matches[0].value for one in find_mentions(tokenize("items of grade a"), grades)] == ["A."]


def test_an_ordinary_word_is_no_family_and_a_family_no_exact_value():
    trips = build_vocabulary(
        catalogue(
            field("city", {"Norvik": 50, "Halden": 50}),
            field("works", {"public roads": 20, "public health": 20, "Norvik East": 20, "Norvik West": 20, "x": 20}),
        )
    )
    assert not find_mentions(tokenize("public reports"), trips)
    named = find_mentions(tokenize("trips in Norvik"), trips)[0]
    assert {one.kind for one in named.matches if one.field == "city"} == {"exact"}
    assert {one.kind for one in named.matches if one.field == "works"} == {"group"} <= {*DISTANT}
