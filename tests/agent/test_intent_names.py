"""Everyday words for what a collection holds: flags, codes, levels, places, groups, and fields in Latin letters."""

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Any

import pytest

from agent.intent.language.text import closeness, code_closeness
from agent.intent.reading import FILTERS_FROM
from agent.intent.rules_reader import ReadingContext, RulesReading, read_by_rules
from agent.intent.time.periods import Calendar
from agent.intent.values.field_words import chinese_field_words
from agent.intent.values.inferred_words import document_nouns_of
from agent.types import Message
from retrievers.core.metadata import Field, FieldType
from retrievers.core.types import Card, FieldCatalogue, FieldValues
from retrievers.text.chinese_dictionary import term_translations, words_with_pinyin


def catalogue(fields: Mapping[str, Mapping[str, int]], **kinds: FieldType) -> FieldCatalogue:
    made = {
        name: FieldValues(Field(name, kinds.get(name, "string"), "string"), values, len(values), 300)
        for name, values in fields.items()
    }
    return FieldCatalogue(((1, hash(repr(made))),), 300, made)


CAMPS = catalogue(
    {
        "hasShower": {"Y": 140, "N": 160},
        "lndry": {"yes": 90, "no": 210},
        "campfire_allowed": {"1": 120, "0": 180},
        "inspected": {"true": 200, "false": 100},
        "是否通电": {"是": 150, "否": 150},
        "shore": {"Lake": 120, "River": 100, "Sea": 80},
        "grade": {"G1": 50, "G2": 150, "G3": 100},
        "terrain": {"SND": 100, "GRS": 150, "RCK": 50},
        "owner_land": {"Polish": 100, "German": 150, "Swedish": 50},
        "warden": {
            "a.lisowska@pinewood.example": 90, "m.krall@pinewood.example": 60,
            "t.berg@northlake.example": 80, "s.dahl@northlake.example": 70,
        },
        "menu": {"goat cheese": 60, "beef": 90, "apple juice": 150},
        "zhuangtai": {"筹备中": 60, "已关闭": 90, "开放": 150},
    },
    menu="list",
)  # fmt: skip


def read(text: str, known: FieldCatalogue = CAMPS, history: Sequence[Message] = ()) -> RulesReading:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    cards = {name: Card(name, "", kind) for name, kind in (("fulltext", "documents"), ("sql", "metadata"))}
    context = ReadingContext(known, document_nouns_of(["camp"], known), cards, Calendar(date(2026, 11, 20)), now)
    return read_by_rules(text, history, context)


def stated(text: str, known: FieldCatalogue = CAMPS) -> dict[str, Any]:
    """Values by field of what a question surely or likely states; a denied value as ("not", value)."""
    found: dict[str, Any] = {}
    for piece in read(text, known).conditions:
        value, operator = piece.filter.get("value"), piece.filter["type"]
        found[piece.field] = ("not", value) if operator in ("ne", "nin") else value
    return found


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("camps with a shower", {"hasShower": "Y"}),
        ("camps without showers", {"hasShower": "N"}),
        ("camps with laundry and a shower", {"lndry": "yes", "hasShower": "Y"}),
        ("camps that allow campfires", {"campfire_allowed": "1"}),
        ("camps where campfires are forbidden", {"campfire_allowed": "0"}),
        ("camps that do not permit campfires", {"campfire_allowed": "0"}),
        ("uninspected camps", {"inspected": "false"}),
        ("camps nobody has inspected", {"inspected": "false"}),
        ("camps, hasShower=N", {"hasShower": "N"}),
        ("camps, inspected: no", {"inspected": "false"}),
        ("camps, not inspected = n", {"inspected": "false"}),
        ("inspected camps: no idea which", {"inspected": "true"}),
        ("inspected: yes, camps", {"inspected": "true"}),
        ("camps yet to be inspected", {"inspected": "false"}),
        ("inspected camps", {"inspected": "true"}),
        ("通电的营地", {"是否通电": "是"}),
        ("没有通电的营地", {"是否通电": "否"}),
        ("带淋浴的营地", {"hasShower": "Y"}),
        ("不带淋浴的营地", {"hasShower": "N"}),
    ],
)
def test_a_flag_is_read_by_any_form_of_its_words_and_as_it_is_meant(text: str, wanted: dict[str, str]):
    assert stated(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        "how do I repair a shower?",
        "was it inspected?",
        "why is the laundry so loud",
        "淋浴怎么修",
        "通电以后跳闸怎么办",
    ],
)
def test_a_flag_s_word_as_a_topic_is_no_sure_condition(text: str):
    assert read(text).filter is None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("sand camps", {"terrain": "SND"}),
        ("camps on grass", {"terrain": "GRS"}),
        ("波兰的营地", {"owner_land": "Polish"}),
        ("有山羊奶酪的营地", {"menu": "goat cheese"}),
        ("有牛肉的营地", {"menu": "beef"}),
        ("closed camps", {"zhuangtai": "已关闭"}),
        ("camps in preparation", {"zhuangtai": "筹备中"}),
    ],
)
def test_a_value_is_known_by_everyday_words_in_either_language(text: str, wanted: dict[str, str]):
    assert stated(text) == wanted


@pytest.mark.parametrize("text", ["camps of pinewood", "camps that the Pinewood people run"])
def test_a_domain_means_all_its_addresses(text: str):
    assert stated(text) == {"warden": ["a.lisowska@pinewood.example", "m.krall@pinewood.example"]}


def test_a_person_at_a_domain_is_that_person():
    assert stated("camps of A. Lisowska at Pinewood") == {"warden": "a.lisowska@pinewood.example"}


@pytest.mark.parametrize(
    ("said", "word", "wanted"),
    [
        ("gardens", "garden", 1.0),
        ("obsolete", "obs", 0.9),
        ("renewal", "renew", 1.0),
        ("garden", "grdn", 0.8),
        ("wheelchair", "whlchr", 0.8),
        ("guardian", "garden", 0.0),
        ("carpet", "car", 0.0),
        ("", "garden", 0.0),
    ],
)
def test_a_word_is_told_from_another_by_its_letters(said: str, word: str, wanted: float):
    assert closeness(said, word) == wanted


@pytest.mark.parametrize(
    ("said", "code", "wanted"),
    [("home", "hom", 0.9), ("travel", "trv", 0.9), ("apartment", "apt", 0.8), ("precedent", "pet", 0.0)],
)
def test_a_code_stands_for_a_word_that_it_cuts_short(said: str, code: str, wanted: float):
    assert code_closeness(said, code) == wanted


def test_a_field_s_name_in_latin_letters_is_known_as_the_chinese_word():
    assert "状态" in chinese_field_words("zhuangtai")
    assert "金额" in words_with_pinyin("jine")
    assert chinese_field_words("garden_size") == ()


def test_a_place_is_called_like_its_people_too():
    assert ("polish",) in term_translations("波兰")


EDITORS = catalogue(
    {
        "author": {"Ida Holm": 40, "Per Lund": 50, "Ann Moe": 60, "Ulf Ek": 50},
        "sponsor": {"Ida Holm": 20, "Per Lund": 30, "Ann Moe": 10, "Siv Dahl": 40},
        "stage": {"open": 100, "closed": 200},
    }
)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("camps that Ida Holm wrote or sponsored", {"author", "sponsor"}),
        ("camps about lakes, with Ida Holm as either author or sponsor", {"author", "sponsor"}),
        ("Ida Holm 撰写或赞助的 open camps", {"author", "sponsor"}),
        ("camps that Ida Holm sponsored", {"sponsor"}),
    ],
)
def test_deeds_of_two_fields_offered_as_a_choice_are_a_condition_on_either(text: str, fields: set[str]):
    sure = [one for one in read(text, EDITORS).conditions if one.confidence >= FILTERS_FROM]
    keys = [{each["key"] for each in one.filter.get("filters", [one.filter])} for one in sure]

    assert fields in keys


def test_two_names_with_a_deed_each_and_a_choice_between_them_exclude_nothing():
    pieces = read("camps written by Ida Holm or sponsored by Per Lund", EDITORS).conditions

    assert not [one for one in pieces if one.confidence >= FILTERS_FROM]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("same for the version right after that", "3.11"),
        ("and the previous version?", "3.9"),
        ("下一个版本呢？", "3.11"),
        ("was it fixed in the next release?", None),
    ],
)
def test_the_version_beside_that_of_the_turn_before_takes_its_place(text: str, wanted: str | None):
    known = catalogue({"version": {"3.9": 50, "3.10": 90, "3.11": 80, "3.12": 80}, "stage": {"open": 100, "done": 200}})
    history = [Message(role="user", content="open camps for version 3.10"), Message(role="assistant", content="Three.")]
    filters = [one.filter for one in read(text, known, history).conditions if one.field == "version"]

    assert ([one["value"] for one in filters if one["type"] == "eq"] or [None])[-1] == wanted


SHELVES = catalogue(
    {
        "case_no": {f"CS-{number:03d}": 10 for number in range(1, 31)},
        "shelf": {"003": 100, "011": 100, "027": 100},
    }
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("camps on shelf 011", {"shelf": "011"}),
        ("camps on shelf 11", {"shelf": "011"}),
        ("shelf 003, 011 and 027", {"shelf": ["003", "011", "027"]}),
        ("camps not on shelf 003", {"shelf": ("not", "003")}),
        ("case 011 on shelf 003", {"case_no": "CS-011", "shelf": "003"}),
        ("camps with case no. 011", {"case_no": "CS-011"}),
        ("case_no 011", {"case_no": "CS-011"}),
        ("camps on shelf 012", {}),
        ("shelves 003 and 012", {}),
        ("camps in room 011", {}),
        ("shelf 003 to 027", {}),
        ("shelf 003 to shelf 027", {}),
        ("at least shelf 011", {}),
        ("shelf 011 and up", {}),
        ("011 camps", {"case_no": "CS-011"}),
    ],
)
def test_a_number_is_a_value_of_the_field_named_before_it_and_of_no_other(text: str, wanted: dict[str, Any]):
    assert stated(text, SHELVES) == wanted


def test_a_number_with_zeros_left_out_that_two_codes_have_is_neither():
    berths = catalogue({"berth": {"0042": 100, "042": 100, "0007": 100}})

    assert (stated("camps at berth 42", berths), stated("camps at berth 7", berths)) == ({}, {"berth": "0007"})


BOOKS = catalogue(
    {
        "破损等级": {"一级": 75, "二级": 75, "三级": 75, "四级": 75},
        "朝代": {"明代": 100, "清代": 100, "元代": 100},
        "优先级": {"高": 100, "中": 100, "低": 100},
        "科": {"兰科": 150, "菊科": 100, "莎草科": 50},
    }
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("一共有多少部书？", {}),
        ("最便宜的一部", {}),
        ("一级的有多少部？", {"破损等级": "一级"}),
        ("一、二级破损的书", {"破损等级": ["一级", "二级"]}),
        ("明清两代的书", {"朝代": ["明代", "清代"]}),
        ("请说明一下", {}),
        ("这本书多少元？", {}),
        ("其中有几部？", {}),
        ("高优先级的书", {"优先级": "高"}),
        ("关于兰花的书有几部？", {"科": "兰科"}),
    ],
)
def test_a_chinese_name_is_no_numeral_and_no_part_of_another_word(text: str, wanted: dict[str, Any]):
    assert stated(text, BOOKS) == wanted


FLAGS = catalogue({"fragile": {"true": 100, "false": 200}, "glazed": {"true": 150, "false": 150}})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("fragile and non-fragile camps", {}),
        ("are there more fragile camps than non-fragile ones?", {}),
        ("how many camps are fragile and how many are not?", {}),
        ("camps, fragile or not", {}),
        ("camps that are not fragile", {"fragile": "false"}),
        ("camps that are fragile but not glazed", {"fragile": "true", "glazed": "false"}),
    ],
)
def test_a_flag_named_together_with_its_opposite_is_no_condition(text: str, wanted: dict[str, Any]):
    assert stated(text, FLAGS) == wanted


RARE = catalogue({"善本": {"true": 100, "false": 200}, "版本": {"刻本": 150, "抄本": 150}})


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("所有古籍", []),
        ("古籍有多少部？", []),
        ("抄本的古籍", []),
        ("how many books are there?", []),
        ("how many rare books are there?", []),
        ("善本有多少部？", ["善本"]),
        ("不是善本的有多少？", ["善本"]),
        ("善本和非善本各有多少？", []),
    ],
)
def test_a_word_that_names_the_documents_is_no_flag_that_it_only_translates(text: str, wanted: list[str]):
    pieces = read(text, RARE).conditions

    assert [one.field for one in pieces if one.confidence >= FILTERS_FROM and one.field == "善本"] == wanted


WORDS = catalogue(
    {
        "state": {"old": 100, "other": 100, "closed": 100},
        "grade": {"first": 100, "second": 100, "third": 100},
        "country": {"Germany": 100, "Spain": 100, "France": 100},
    }
)


def sure(text: str, known: FieldCatalogue) -> list[Any]:
    """Values of what a question filters by."""
    return [one.filter["value"] for one in read(text, known).conditions if one.confidence >= FILTERS_FROM]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("any other camps?", []),
        ("at first, how many camps were there?", []),
        ("what was the first camp?", []),
        ("third quarter camps", []),
        ("other closed camps", []),
        ("camps with state other", ["other"]),
        ("camps of the third grade", ["third"]),
        ("closed or other camps", [["closed", "other"]]),
        ("old camps", ["old"]),
    ],
)
def test_a_determiner_is_a_value_only_beside_its_field_or_another_value(text: str, wanted: list[Any]):
    assert sure(text, WORDS) == wanted


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("answer in German: which camps are there?", []),
        ("which camps are there? please reply in Spanish", []),
        ("translate the camp rules into French", []),
        ("write a German summary of the camp rules", []),
        ("list the camps in Germany and give the answer in Spanish", ["Germany"]),
        ("German camps", ["Germany"]),
    ],
)
def test_the_language_asked_of_the_answer_is_no_condition(text: str, wanted: list[Any]):
    assert sure(text, WORDS) == wanted


def test_the_language_of_documents_is_a_condition_and_that_of_the_answer_is_none_in_chinese():
    known = catalogue({"language": {"de": 100, "en": 200}, "stage": {"open": 100, "done": 200}})

    assert (sure("英文资料有几份？", known), sure("请用英文回答：有几份资料？", known)) == (["en"], [])


@pytest.mark.parametrize("text", ["每期", "按期交付的文档", "多少层"])
def test_a_field_named_only_by_the_unit_of_its_values_is_no_calculation_by_name(text: str):
    storeys = catalogue({"期数": {"1期": 100, "2期": 200}, "楼层": {"1层": 100, "2层": 100, "3层": 100}})
    assert not read(text, storeys).conditions
