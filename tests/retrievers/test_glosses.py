"""Chinese questions for English documents."""

import asyncio

import pytest

from retrievers.text.glosses import (
    _by_pinyin,
    _Dictionary,
    _dictionary,
    _known_parts,
    english_search,
    gloss_for,
    glossed_words,
    glosses,
    is_loaded,
    known_words,
    load,
    read_ahead,
    reader,
    words,
)


def test_words_come_in_english_and_what_is_latin_stays():
    assert {"dictionary", "reject", "proposal"} <= set(glosses("被拒绝的字典提案"))
    gloss = gloss_for("PEP 703 的随机数 os.urandom", [{"en": 10}])
    assert gloss.startswith("PEP 703 os.urandom ")
    assert {"random", "number"} <= set(gloss.split())


def test_nothing_is_glossed_where_it_is_of_no_use():
    assert gloss_for("random numbers", [{"en": 10}]) == ""
    assert gloss_for("随机数", [{"en": 80, "zh": 20}]) == ""
    assert gloss_for("。？", [{"en": 10}]) == ""
    assert glosses("") == []


def test_a_word_is_found_at_its_place():
    text = "涉及石棉的学校"
    found = {word: (text[place : place + len(word)], english) for place, word, english in glossed_words(text)}
    assert found["石棉"] == ("石棉", ("asbestos",))


def test_a_compound_that_is_no_entry_is_read_by_its_parts():
    found = {word: english for _, word, english in glossed_words("检查报告和会议纪要")}
    assert "inspection" in found["检查"]
    assert "report" in found["报告"]
    assert "minutes" in found["纪要"]


def test_only_a_whole_sense_is_a_name():
    (_, _, english), *_ = glossed_words("酒店")
    assert "hotel" in english
    assert "wine" not in english  # of "wine shop"


def test_documents_in_both_languages_are_searched_in_english_too():
    assert "elevator" in english_search("电梯故障", [{"en": 60, "zh": 40}]).split()
    assert english_search("电梯故障", [{"zh": 40}]) == english_search("电梯故障", [{"en": 40}]) == ""
    assert english_search("lift failure", [{"en": 60, "zh": 40}]) == ""


def test_a_run_without_end_costs_as_much_as_it_is_long():
    asked = 0

    class Counted(_Dictionary):
        def get(self, word: str) -> None:
            nonlocal asked
            asked += 1

    assert _known_parts("百" * 1500, Counted({}, {}, {})) == []
    assert 1500 <= asked <= 8 * 1500


def test_several_questions_at_once_read_the_dictionary_once():
    _dictionary.cache_clear()
    list(reader.map(lambda _: load(), range(4)))
    assert _dictionary.cache_info().misses == 1


async def test_what_is_read_ahead_no_question_waits_for():
    for one in (_dictionary, _by_pinyin, words, read_ahead):
        one.cache_clear()
    assert not is_loaded()

    await asyncio.to_thread(read_ahead().join)

    assert is_loaded()
    found = known_words()
    with pytest.raises(StopIteration):  # it ends at its first step: it waits for nothing
        found.send(None)
