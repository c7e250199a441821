import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent.retrieval.highlight import Highlighter
from retrievers.testing import processor_s

PROFILE = settings(derandomize=True, database=None, deadline=None, max_examples=100)


def marked(question: str, text: str, language: str = "en") -> list[str]:
    return [text[start:end] for start, end in Highlighter(question, language)(text)]


@pytest.mark.parametrize(
    ("question", "text", "expected"),
    [
        ("typing", "Typed code: type hints and typing.", ["Typed", "type", "typing"]),
        ("use", "Using it, she used and uses what is near to us.", ["Using", "used", "uses"]),
        ("dry", "Dried, dry and drying.", ["Dried", "dry", "drying"]),
        ("Who runs IT?", "IT is run well; she runs.", ["IT", "run", "runs"]),
        ("PEP 703", "PEP 703 and PEP-703", ["PEP", "703", "PEP", "703"]),
        ("reserve_slot", "call reserve_slot()", ["reserve", "slot"]),
        ("cafe", "The Café", ["Café"]),
        ("été", "L'été, l'Ete", ["été", "Ete"]),
        ("Maß", "MASS", ["MASS"]),
        ("FULL", "Ｆｕｌｌ width", ["Ｆｕｌｌ"]),
        ("ꭰꮧꮃ", "the word ᎠᏗᎳ", ["ᎠᏗᎳ"]),
        ("asyncio", "使用asyncio库", ["asyncio"]),
        ("art", "start part artist art", ["art"]),
        ("the of", "the of", []),
        ("", "text", []),
        ("missing", "nothing here", []),
        ("a.*b (x", "a.*b (x", ["b", "x"]),
    ],
)
def test_words_of_the_question_are_marked_in_every_form(question: str, text: str, expected: list[str]):
    assert marked(question, text) == expected


def test_chinese_words_are_marked_the_longest_first():
    assert marked("机器学习", "我们用机器学习，也用机器。", "zh") == ["机器", "学习", "机器"]
    assert marked("中华人民共和国的历史", "中华人民共和国历史", "zh") == ["中华人民共和国", "历史"]


def test_kana_and_hangul_are_marked():
    assert marked("한국", "한국어와 한국", "ko") == ["한국", "한국"]
    assert marked("コン", "パソコン", "ja") == ["コン"]


def test_another_language_is_marked_by_its_own_stems():
    assert marked("Häuser", "Ein Haus, viele Häuser, das Hausboot", "de") == ["Haus", "Häuser"]


def test_places_are_those_of_the_text_as_it_is():
    text = "e\u0301 ﬁ İ Café"
    [(start, end)] = Highlighter("café", "fr")(text)
    assert text[start:end] == "Café"


@PROFILE
@given(st.text(max_size=30), st.text(max_size=60), st.sampled_from(["en", "zh", "de", "ja"]))
def test_marks_are_in_order_and_do_not_overlap_on_any_text(question: str, text: str, language: str):
    before = 0
    for start, end in Highlighter(question, language)(text + question):
        assert before <= start < end <= len(text + question)
        before = end


def test_each_word_of_a_question_looks_through_a_text_once_even_if_every_place_begins_with_it():
    question, text = " ".join("a" * length for length in range(2, 64)), "a" * 100_000
    once = re.compile(r"\w+")
    read = processor_s(lambda: [once.match(text) for _ in range(64)])
    assert processor_s(lambda: Highlighter(question, "en")(text)) < 8 * read


def test_a_word_is_marked_also_where_it_overlaps_itself_behind_another_word():
    assert Highlighter("天天上天", "zh")("上天天天") == ((0, 2), (2, 4))
