"""Sentences of English and Chinese answers, and what they cite."""

import pytest

from agent.answering.sentences import cited_numbers, sentence_spans, without_citations
from retrievers.testing import processor_s


def sentences(text: str) -> list[str]:
    return [text[one.start : one.end] for one in sentence_spans(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Oil it. Then wait! Why? So.", ["Oil it.", "Then wait!", "Why?", "So."]),
        ("It is so [1]. And so.[2] Next", ["It is so [1].", "And so.[2]", "Next"]),
        ("It is so. [1][2] Next one. [3]", ["It is so. [1][2]", "Next one. [3]"]),
        (
            "Dr. Smith of the U.S. paid approx. 3.5, e.g. No. 7.",
            ["Dr. Smith of the U.S. paid approx. 3.5, e.g. No. 7."],
        ),
        ("Python 3.11 is out. It is fast.", ["Python 3.11 is out.", "It is fast."]),
        ('He said "no." She left.', ['He said "no."', "She left."]),
        ("甲是A【1】；乙是B［2］。丙呢？丁。[3]戊", ["甲是A【1】；", "乙是B［2］。", "丙呢？", "丁。[3]", "戊"]),
        ("他说“好。”然后走了。", ["他说“好。”", "然后走了。"]),
        ("- First item [1]\n* Second.\n2. Third\n\n> quoted", ["First item [1]", "Second.", "Third", "quoted"]),
        ("一、首先\n二、其次", ["首先", "其次"]),
        ("| a | b |\n|---|---|\n| 1 | 2 |", ["| a | b |", "| 1 | 2 |"]),
        ("Text.\n```\ncode. More[1]\n```\nEnd.", ["Text.", "End."]),
        ("See ![x](y.png). Done.", ["See ![x](y.png).", "Done."]),
        ("He came … and left.", ["He came … and left."]),
        ("", []),
        (" \n\t\n", []),
    ],
)
def test_a_text_is_cut_into_its_sentences(text: str, expected: list[str]):
    assert sentences(text) == expected


def test_code_counts_where_it_is_asked_for():
    text = "Text.\n```\nx = 1\n```\n"
    assert [text[one.start : one.end] for one in sentence_spans(text, code=True)] == ["Text.", "x = 1"]


def test_a_heading_is_known_as_one():
    assert [one.heading for one in sentence_spans("## Why\nBecause.")] == [True, False]


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("so [1]", [1]),
        ("so [1][2] and [1, 3]", [1, 2, 3]),
        ("so【1】［2］【3，4】", [1, 2, 3, 4]),
        ("so [2-4] [^7] 【5†L1-L9】", [2, 3, 4, 7, 5]),
        ("so [1-999]", list(range(1, 22))),
        ("in [2015], [a], [], [1.5] and [0x1]", []),
    ],
)
def test_citations_are_read_in_every_form_that_models_write(text: str, numbers: list[int]):
    assert cited_numbers(text) == numbers


def test_a_text_without_its_citations():
    assert without_citations("So [1][2], and so【3】.") == "So , and so."


@pytest.mark.parametrize("piece", [".", '."', "?!", "。", ". [1]", "A."])
def test_a_row_of_stops_is_cut_in_linear_time(piece: str):
    def cost(count: int) -> float:
        return processor_s(lambda: list(sentence_spans(piece * count + "x")))

    cost(10)
    # A square would take 64 times as long.
    assert cost(32_000) < 32 * max(cost(4_000), 0.005)
