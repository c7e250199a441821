"""Chinese questions for English documents."""

import asyncio

import pytest

from retrievers.text.chinese_dictionary import (
    _by_pinyin,
    _Dictionary,
    _dictionary,
    _known_parts,
    english_words,
    find_dictionary_words,
    is_dictionary_loaded,
    load_dictionary,
    load_word_lists,
    loader_thread,
    preload_dictionary,
    read_word_lists,
    second_search_translation,
    translate_if_needed,
)


def test_words_come_in_english_and_what_is_latin_stays():
    assert {"dictionary", "reject", "proposal"} <= set(english_words("被拒绝的字典提案"))
    translation = translate_if_needed("PEP 703 的随机数 os.urandom", [{"en": 10}])
    assert translation.startswith("PEP 703 os.urandom ")
    assert {"random", "number"} <= set(translation.split())


def test_nothing_is_glossed_where_it_is_of_no_use():
    assert translate_if_needed("random numbers", [{"en": 10}]) == ""
    assert translate_if_needed("随机数", [{"en": 80, "zh": 20}]) == ""
    assert translate_if_needed("。？", [{"en": 10}]) == ""
    assert english_words("") == []


def test_a_word_is_found_at_its_place():
    text = "涉及石棉的学校"
    found = {word: (text[place : place + len(word)], english) for place, word, english in find_dictionary_words(text)}
    assert found["石棉"] == ("石棉", ("asbestos",))


def test_a_compound_that_is_no_entry_is_read_by_its_parts():
    found = {word: english for _, word, english in find_dictionary_words("检查报告和会议纪要")}
    assert "inspection" in found["检查"]
    assert "report" in found["报告"]
    assert "minutes" in found["纪要"]


def test_only_a_whole_sense_is_a_name():
    (_, _, english), *_ = find_dictionary_words("酒店")
    assert "hotel" in english
    assert "wine" not in english  # of "wine shop"


def test_documents_in_both_languages_are_searched_in_english_too():
    assert "elevator" in second_search_translation("电梯故障", [{"en": 60, "zh": 40}]).split()
    assert (
        second_search_translation("电梯故障", [{"zh": 40}]) == second_search_translation("电梯故障", [{"en": 40}]) == ""
    )
    assert second_search_translation("lift failure", [{"en": 60, "zh": 40}]) == ""


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
    list(loader_thread.map(lambda _: load_dictionary(), range(4)))
    assert _dictionary.cache_info().misses == 1


async def test_what_is_read_ahead_no_question_waits_for():
    for one in (_dictionary, _by_pinyin, read_word_lists, preload_dictionary):
        one.cache_clear()
    assert not is_dictionary_loaded()

    await asyncio.to_thread(preload_dictionary().join)

    assert is_dictionary_loaded()
    found = load_word_lists()
    with pytest.raises(StopIteration):  # it ends at its first step: it waits for nothing
        found.send(None)
