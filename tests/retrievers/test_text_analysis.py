import time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from retrievers.core.types import ChunkId, Collection
from retrievers.text import document_ids
from retrievers.text.analysis import analyse
from retrievers.text.bm25 import passage_lexemes, term_dimension
from retrievers.text.languages import STOP_WORDS, detect_language

PROFILE = settings(derandomize=True, database=None, deadline=None, max_examples=150)
MEGABYTES_2 = 2_000_000


def plain(text: str, language: str = "en") -> list[str]:
    return [term.text for term in analyse(text, language) if not term.derived]


def every(text: str, language: str = "en") -> set[str]:
    return {term.text for term in analyse(text, language)}


def places(text: str, language: str = "en") -> dict[str, int]:
    return {term.text: term.position for term in analyse(text, language) if not term.derived}


# Identifiers.


@pytest.mark.parametrize(
    "written", ["PEP 703", "PEP-703", "pep703", "pep-703", "PEP703", "Pep 703", "ＰＥＰ 703", "PEP\n703"]
)
def test_an_identifier_is_one_term_however_it_is_written(written: str):
    assert "pep-703" in every(written)


@pytest.mark.parametrize(
    ("written", "parts", "whole"),
    [
        ("R1-750", ["r1", "750"], "r1-750"),
        ("CVE-2024-5565", ["cve", "2024", "5565"], "cve-2024-5565"),
        ("reserve_slot()", ["reserv", "slot"], "reserve-slot"),
        ("asyncio.TaskGroup", ["asyncio", "taskgroup"], "asyncio-taskgroup"),
        ("192.168.0.1", ["192", "168", "0", "1"], "192-168-0-1"),
        ("ann@example.org", ["ann", "exampl", "org"], "ann-example-org"),
        ("https://example.org/guide", ["https", "exampl", "org", "guid"], "example-org-guide"),
        ("std::vector", ["std", "vector"], None),
        ("3.12.1", ["3", "12", "1"], "3-12-1"),
        ("AT&T", ["at", "t"], "at-t"),
        ("getattr()", ["getattr"], None),
        ("C++", ["c"], None),
        (".NET", ["net"], None),
    ],
)
def test_an_identifier_keeps_its_parts_and_its_whole(written: str, parts: list[str], whole: str | None):
    found = analyse(written, "en")
    assert [term.text for term in found if not term.derived] == parts
    assert [term.text for term in found if term.derived] == ([whole] if whole else [])


def test_camel_case_is_found_by_its_pieces_and_as_a_whole():
    assert {"taskgroup", "task", "group"} <= every("TaskGroup")
    assert {"httpserver", "http", "server"} <= every("HTTPServer")


def test_a_number_after_a_stop_word_or_a_full_stop_is_no_identifier():
    assert not {term for term in every("in 2020. From 2021") if "-" in term}
    assert "pep-703" not in every("the last PEP. 703 people came")


# Folding, stems, stop words.


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Café", "cafe"), ("cafe\u0301", "café"), ("ＦＵＬＬ", "full"), ("ﬁne", "fine"), ("Straße", "STRASSE"),
        ("Ærø", "aero"), ("naïve", "naive"), ("İstanbul", "istanbul"), ("running", "runs"), ("John's", "John"),
        ("①", "1"),
    ],
)  # fmt: skip
def test_case_accents_width_and_endings_do_not_matter(one: str, other: str):
    assert plain(one) == plain(other)
    assert plain(one)


def test_stop_words_are_left_out_but_names_written_like_them_are_kept():
    assert plain("who runs it?") == ["run"]
    assert plain("Who runs IT?") == ["run", "it"]
    assert plain("US") == ["us"]


def test_a_name_is_kept_among_chinese_words_and_in_a_title_of_two():
    assert plain("IT部门")[0] == "it"
    assert "us" in plain("US IT")


def test_in_a_sentence_all_in_capitals_stop_words_are_still_left_out():
    assert plain("WHO RUNS IT?") == ["run"]


@pytest.mark.parametrize("language", sorted(STOP_WORDS))
def test_every_stop_word_of_a_language_is_left_out_accents_or_not(language: str):
    assert plain(" ".join(sorted(STOP_WORDS[language])), language) == []


def test_a_word_left_out_keeps_its_position_so_phrases_stay_exact():
    assert places("state of the art") == {"state": 0, "art": 3}


def test_positions_count_the_parts_of_identifiers():
    assert places("use R1-750 cables") == {"use": 0, "r1": 1, "750": 2, "cabl": 3}
    extra = [term for term in analyse("use R1-750 cables", "en") if term.derived]
    assert [(term.text, term.position) for term in extra] == [("r1-750", 1)]


# Chinese, Japanese, Korean.


def test_chinese_words_come_in_search_mode_with_pairs_as_a_net():
    found = analyse("中华人民共和国", "zh")
    words = {term.text for term in found if not term.derived}
    assert {"中华", "人民", "共和国", "中华人民共和国"} <= words
    pairs = {"中华人民共和国"[n : n + 2] for n in range(6)}
    assert pairs <= {term.text for term in found}


def test_chinese_words_stand_at_the_position_of_their_first_character():
    found = places("研究机器学习")
    assert (found["研究"], found["机器"], found["学习"]) == (0, 2, 4)


def test_a_name_unknown_to_the_dictionary_is_found_by_its_pairs():
    assert {"嬲韂", "韂龘"} <= every("嬲韂龘")


def test_chinese_stop_words_do_not_come_back_as_pairs():
    assert not {"的", "什么", "哪些"} & every("Python 的 版本是什么，哪些")


def test_mixed_chinese_and_latin_are_both_found():
    found = places("使用asyncio取消任务")
    assert found["asyncio"] == 2
    assert found["使用"] == 0
    assert found["任务"] == 5


@pytest.mark.parametrize(
    ("text", "terms"), [("コンピ", ["コン", "ンピ"]), ("한국어 검색", ["한국", "국어", "검색"]), ("の", ["の"])]
)
def test_kana_and_hangul_are_pairs_that_count_as_words(text: str, terms: list[str]):
    assert plain(text, "ja") == terms
    assert passage_lexemes(text, "ja")[1] == len(terms)


def test_a_long_run_of_characters_unknown_to_the_dictionary_has_short_terms():
    run = "".join(map(chr, range(0x20000, 0x20000 + 3000)))
    assert plain(f"关于{run}的报告", "zh")[:3] == ["关于", run[:2], run[1:3]]
    assert max(map(len, every(run, "zh"))) == 2


def test_han_outside_the_basic_plane_has_terms():
    assert "𠀀𠀁" in every("𠀀𠀁")


# Any text.


@PROFILE
@given(st.text(st.characters(), max_size=60), st.sampled_from(["en", "de", "zh", "ja", "xx", ""]))
@example("\ud800 a\0b\udfff", "en")
@example("ﷺ" * 3 + "'s", "en")
@example("́" * 100, "fr")
def test_any_text_has_terms_that_can_be_stored(text: str, language: str):
    detect_language(text)
    for term in analyse(text, language):
        assert 0 < len(term.text) <= 64
        assert 0 <= term_dimension(term.text) < 1_000_000_000
        assert 0 <= term.position < 20 * len(text)


@PROFILE
@given(st.text(st.sampled_from("aAx1 -_.'éか한PEP703\n"), max_size=40))
def test_every_word_stands_behind_the_one_before(text: str):
    positions = [term.position for term in analyse(text, "en") if not term.derived]
    assert positions == sorted(set(positions))


@pytest.mark.parametrize(
    "kind",
    [
        "a",
        "A",
        "1",
        " ",
        "-",
        "a-",
        "_",
        "a_",
        "'",
        "a'",
        "aA",
        "a1",
        "\u0301",
        "\u0301\u0316",
        "🙂",
        "👩‍",
        "é",
        "\t\n",
    ],
)
def test_two_megabytes_of_one_kind_take_linear_time(kind: str):
    text = (kind * (MEGABYTES_2 // len(kind)))[:MEGABYTES_2]
    started = time.process_time()
    analyse(text, "en")
    detect_language(text)
    assert time.process_time() - started < 15


@pytest.mark.parametrize("kind", ["中", "中国", "か", "한", "的", "中a"])
def test_a_long_text_without_spaces_takes_linear_time(kind: str):
    text = kind * (200_000 // len(kind))
    started = time.process_time()
    analyse(text, "zh")
    assert time.process_time() - started < 8


def test_a_word_of_two_megabytes_is_cut_to_one_short_term():
    assert [term.text for term in analyse("x" * MEGABYTES_2, "en")] == ["x" * 64]


# Languages.


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", ""), ("en", "12345 !!!"), ("en", "asyncio"), ("en", "pip install --user numpy"),
        ("en", "Which PEPs did Guido write about typing after 2014?"),
        ("en", "What does 人工智能 mean in English?"), ("en", "What does さくら mean in Japanese?"),
        ("en", "BTS (방탄소년단) is a South Korean boy band"),
        ("zh", "中文"), ("zh", "PEP 703 由谁提出"), ("zh", "Kubernetes pod 的 memory limit 怎么设置"),
        ("zh", "The Zen of Python 是哪个 PEP"), ("zh", "2023年以来的会议纪要"), ("zh", "asyncio 取消"),
        ("ja", "カタカナ"), ("ja", "東京タワーの高さはどのくらいですか"), ("ja", "Python の使い方を教えてください"),
        ("ko", "한국어"), ("ko", "서울의 인구는 얼마입니까?"), ("ko", "Python 사용법을 알려 주세요"),
        ("de", "Wer hat das geschrieben und wann war es?"), ("de", "Die Katze sitzt auf dem Dach und schläft"),
        ("de", "Fu\u0308r und gegen"),
        ("fr", "Qui a écrit ce document et quand ?"), ("fr", "Où est le rapport ?"),
        ("es", "¿Quién escribió el documento y cuándo?"), ("es", "¿Qué es una base de datos?"),
        ("it", "Chi ha scritto il documento e quando?"), ("it", "Il gatto è sul tavolo con i cani della casa"),
        ("pt", "O gato não está na mesa com os cães"), ("pt", "Quem escreveu o documento e quando foi publicado?"),
        ("nl", "Wie heeft het document geschreven en wanneer?"), ("nl", "De kat zit op het dak en slaapt niet"),
        ("sv", "Vem har skrivit det här och när?"), ("sv", "Katten är på taket och sover inte med hunden"),
    ],
)  # fmt: skip
def test_the_language_of_a_short_and_of_a_long_text_is_told(language: str, text: str):
    assert detect_language(text) == language
    if len(text) > 30:
        assert detect_language(f"{text} " * 50) == language


def test_a_question_is_in_a_language_of_its_collections_unless_its_script_says_otherwise():
    assert detect_language("Wer war es und wann?", {"en", "zh"}) == "en"
    assert detect_language("Wer war es und wann?", {"de", "en"}) == "de"
    assert detect_language("Bericht", {"de"}) == "de"
    assert detect_language("中文问题", {"en"}) == "zh"


def test_one_function_word_is_no_evidence_against_english():
    assert detect_language("la carte") == "en"


def test_no_more_ids_of_passages_are_made_than_are_looked_up(monkeypatch: pytest.MonkeyPatch):
    made: list[str] = []

    def making(tenant: str, collection: str, document: str, position: int) -> ChunkId:
        made.append(document)
        return ChunkId(tenant, collection, document, position)

    monkeypatch.setattr(document_ids, "ChunkId", making)
    collections = [Collection(n, "acme", f"c{n}") for n in range(1000)]

    found = document_ids.candidate_chunk_ids([f"x-{n}" for n in range(1000)], collections)

    assert (len(found), len(made)) == (300, 300)
    assert found[0] == ChunkId("acme", "c0", "x-0", 0)
