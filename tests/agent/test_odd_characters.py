"""Letters and digits that patterns take for others, numbers too large to compute with, and random questions: each is
read or left unread, and none ends in an error.
"""

import random
import re
import sys
import unicodedata
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from agent.answering import number_forms
from agent.answering.number_forms import extract_numbers, number_words, spelled_numbers
from agent.intent.language.amounts import find_amounts
from agent.intent.language.numerals import ENGLISH_NUMERALS, GREAT, parse_amount
from agent.intent.language.text import readable, words_of
from agent.intent.language.units import CURRENCIES
from agent.intent.rules_reader import ReadingContext, RulesReading, read_by_rules
from agent.intent.time.lexer import load_date_words, read_date_tokens
from agent.intent.time.periods import Calendar
from agent.intent.values.measures import measure_of
from agent.intent.words import word_table
from retrievers.core.metadata import Field
from retrievers.core.types import Card, FieldCatalogue, FieldValues
from retrievers.text.folding import plain_digits, plain_letters

EVERY_CHARACTER = "".join(map(chr, range(0x80, sys.maxunicode + 1)))
NOW = datetime(2026, 11, 20, tzinfo=UTC)
CARDS = {"fulltext": Card("fulltext", "words"), "sql": Card("sql", "metadata", "metadata")}
FIELDS = {
    "created": FieldValues(Field("created", "date", "date"), {}, 90, 100, "2015-01-01", "2026-11-01"),
    "pages": FieldValues(Field("pages", "number", "number"), {}, 50, 100, 1, 9_000_000),
    "note": FieldValues(Field("note", "string", "string"), {"plan for 5 mıllion users": 3, "5 mıllion": 2}, 2, 5),
}


def read(question: str, fields: dict[str, FieldValues] | None = None) -> RulesReading:
    catalogue = FieldCatalogue(((1, 1),), 100, FIELDS if fields is None else fields)
    nouns = frozenset({"document", "documents", "report", "reports", "paper", "papers"})
    return read_by_rules(question, (), ReadingContext(catalogue, nouns, CARDS, Calendar(NOW.date()), NOW))


def shown(filter: dict[str, Any] | None) -> str:
    if filter is None:
        return ""
    if "filters" in filter:
        return ", ".join(shown(one) for one in filter["filters"])
    return f"{filter['key']} {filter['type']} {filter['value']}"


def lookalikes(word: str) -> Iterator[str]:
    """Yield the word with each i, s or k in another letter that a pattern without case takes for it."""
    for plain, other in (("i", "ı"), ("i", "İ"), ("s", "ſ"), ("k", "\u212a")):
        if plain in word.lower():
            yield re.sub(plain, other, word, flags=re.IGNORECASE)


def test_the_letters_that_a_pattern_takes_for_ascii_letters_are_replaced_and_no_lower_case_is_longer():
    taken = re.compile("[a-z]", re.IGNORECASE).findall(EVERY_CHARACTER)

    assert sorted(taken) == ["\u0130", "\u0131", "\u017f", "\u212a"]
    assert plain_letters("ıİſ\u212a") == "iIsK"
    assert [c for c in EVERY_CHARACTER if len(plain_letters(c).lower()) != 1] == []


def test_every_digit_that_nfkc_takes_for_an_ascii_digit_is_replaced():
    digits = [c for c in EVERY_CHARACTER if c.isdecimal()]
    normal = {c: unicodedata.normalize("NFKC", c) for c in digits}

    assert {c: plain_digits(c) for c in digits} == {c: to if to.isascii() else c for c, to in normal.items()}


AMOUNT_WORDS = [
    *(f"5 {word}" for word in (*GREAT, "k", "mio")),
    *(f"{word} days" for word in ENGLISH_NUMERALS),
    *(
        f"5 {word}"
        for unit in word_table("numbers")["units"]
        if unit["kind"] not in CURRENCIES
        for word in unit["words"].replace("_", " ").split()
    ),
]


def test_an_amount_is_the_same_in_lookalike_letters():
    pairs = [(word, other) for word in AMOUNT_WORDS for other in lookalikes(word)]

    wrong = [other for word, other in pairs if find_amounts(other) != find_amounts(plain_letters(other))]

    assert wrong == []
    assert len(pairs) > 100
    assert [one.value for one in find_amounts("5 mıllion")[0].readings] == [5_000_000]
    assert [one.value for one in find_amounts("5 MİLLİON")[0].readings] == [5_000_000]
    assert [one.value for one in find_amounts("ſix thouſand days")[0].readings] == [6000]


def test_a_date_is_the_same_in_lookalike_letters():
    phrases = {" ".join((first, *rest)) for first, ends in load_date_words().phrases.items() for rest, *_ in ends}
    pairs = [(phrase, other) for phrase in sorted(phrases) for other in lookalikes(phrase)]

    wrong = [
        other
        for phrase, other in pairs
        if [token.items for token in read_date_tokens(other)] != [token.items for token in read_date_tokens(phrase)]
    ]

    assert wrong == []
    assert len(pairs) > 200


def test_a_figure_is_the_same_in_lookalike_letters():
    words = [*number_forms._ORDINALS, *ENGLISH_NUMERALS, *GREAT, *(f"{month} 2020" for month in number_forms._MONTHS)]
    for word in words:
        for other in lookalikes(word):
            assert spelled_numbers(other) == spelled_numbers(word)
            assert [ways for ways, _ in number_words(other)] == [ways for ways, _ in number_words(word)]
            assert extract_numbers(other) == extract_numbers(word)
    assert spelled_numbers("the ſecond hall") == {frozenset({"2"})}
    assert extract_numbers("ſep 2020") == {frozenset({"2020"}), frozenset({"9"}), frozenset({"2020-9"})}


@pytest.mark.parametrize(
    ("question", "filter"),
    [
        ("papers created in Aprıl/2020", "created gte 2020-04-01, created lt 2020-05-01"),
        ("papers created in Aprİl/2020", "created gte 2020-04-01, created lt 2020-05-01"),
        ("documents created in May 2020 about İstanbul", "created gte 2020-05-01, created lt 2020-06-01"),
        ("documents created Last Year in İzmir", "created gte 2025-01-01, created lt 2026-01-01"),
        ("documents created in ２０２０", "created gte 2020-01-01, created lt 2021-01-01"),
        ("documents created after ２０２０", "created gte 2021-01-01"),
        ("2020年３月创建的文件", "created gte 2020-03-01, created lt 2020-04-01"),
        ("documents with over ３００ pages", "pages gt 300"),
        ("documents with over 3 mıllion pages", "pages gt 3000000"),
    ],
)
def test_a_condition_is_read_whatever_its_letters_and_digits_are(question: str, filter: str):
    assert shown(read(question).filter) == filter


def test_a_value_with_a_lookalike_letter_is_no_error_and_is_a_number():
    note = FieldValues(Field("note", "string", "string"), {"plan for 5 mıllion users": 3, "x": 2}, 2, 5)
    size = FieldValues(Field("size", "string", "string"), {"5 mıllion": 3, "1 MİLLİON": 2}, 2, 5)

    assert measure_of(note) is None
    measure = measure_of(size)
    assert measure is not None
    assert sorted(measure.numbers) == [1_000_000, 5_000_000]


def test_a_value_and_a_question_in_full_width_digits_name_the_same():
    assert words_of("Hall １２") == words_of(readable("Hall 12")) == ("hall", "12")
    assert readable("top ５") == "top 5"
    # Full text stores digits of other scripts as written, so the search must keep them.
    assert readable("٢٠٢٠") == "٢٠٢٠"


@pytest.mark.parametrize("groups", [40, 110, 300])
@pytest.mark.parametrize("wording", ["documents with pages over {}", "documents with {} pages", "{} million pages"])
def test_a_number_too_large_to_compute_with_is_no_amount(groups: int, wording: str):
    number = ",".join(["999"] * groups)

    assert find_amounts(number) == []
    assert parse_amount("9" * 400) is None
    assert read(wording.format(number)).filter is None


# Random questions: any text is read, with conditions or without.

NAMES = """
    e s is id 12 x1 _ a-b a_b a.b The not of by last total date time year dept prio wt grp 数量 日期 状态 é ß İ
    ı ﬁ Ａ ① ² Ω א ก 한 々 。 's O'Neil ... # % | ( " price cost size rating is_open open closed no_x author
    created due tags
    """.split()
VALUES = """
    e é s not no none N/A null true 1 -1 0 1.5 1e5 2024 2024-13-01 The of 中文 不 没有 一 ... ? a/b v1.2.3 #12
    x::y x,y (x) % 100% $5 ½ ² ① ﬁ Ａ１ open Open high Q1 May march Sunday and all other İstanbul ſix ٣ ５ ๒๐
    二〇二四 9,999,999 1:02:33
    """.split()
VALUES += ["", " ", " lead", "last year", "more than 5", "Ada Lovelace", "van der Berg", "5 kg", "week 5", "A" * 300]
VALUES += ["plan for 5 mıllion users", "5 MİLLİON", "0" * 400 + "1"]
WORDS = """
    the which what who how many documents records show list find of by from in with without not neither or
    either more less than at least between before after since until last next this year month week quarter ago
    first latest oldest highest average total count per each top 3 10 2024 2023-05-01 2024-02-30 31/02/2024 Q3
    May Aprıl/2020 İ ſep/20 Aprİl-5 ５ ３月 ２０２０ 2020年３月 ٢٠٢٠ -5 −3 1.2.3.4 5-6-7 0/0/0 13/13/13 99-99
    9,9,9,999 half dozen mıllion thouſand status owner team due open closed tags is it only 的 是 不是 没有 哪些
    多少 最 大于 小于 之前 去年 上个月 第三季度 和 或 除了 按 平均 总数 三 二〇二四年 中 数量 ？ ， 。 , . : ; !
    - — ' " ( ) / % $ € @ # & + = < >= != *
    """.split()
WORDS += [",".join(["999"] * 110)]


def random_field(chance: random.Random, name: str) -> FieldValues:
    kind = chance.choice(["string"] * 5 + ["number", "date", "list"])
    if kind == "number":
        return FieldValues(Field(name, "number", "number"), {}, 50, 80, *sorted(chance.sample(range(-5, 2024), 2)))
    if kind == "date":
        return FieldValues(Field(name, "date", "date"), {}, 50, 80, "2020-01-01", "2026-11-01")
    values = dict.fromkeys(chance.sample(VALUES, chance.randrange(1, 8)), 4)
    type_ = "list" if kind == "list" else "string"
    return FieldValues(Field(name, type_, "string"), values, len(values), 80)  # type: ignore[arg-type]


def random_question(chance: random.Random, fields: dict[str, FieldValues]) -> str:
    own = [*fields, *(value for field in fields.values() for value in field.values)]
    words = [chance.choice(WORDS if chance.random() < 0.6 else own) for _ in range(chance.randrange(1, 14))]
    return (" " if chance.random() < 0.85 else "").join(words)[:2000]


@pytest.mark.parametrize("seed", range(5))
def test_no_random_question_over_random_fields_ends_in_an_error(seed: int):
    chance = random.Random(seed)
    for _ in range(6):
        fields = {name: random_field(chance, name) for name in chance.sample(NAMES, chance.randrange(1, 7))}
        for _ in range(16):
            assert read(random_question(chance, fields), fields).kind in ("retrieve", "aggregate", "none")


def test_a_hyphen_at_the_end_continues_no_name_of_a_flag():
    flag = FieldValues(Field("archived", "boolean", "boolean"), {"true": 3, "false": 5}, 2, 8)
    assert shown(read("documents in the archive-", {"archived": flag}).filter) == "archived eq True"
