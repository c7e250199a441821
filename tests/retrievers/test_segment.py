"""Chinese text is split a piece at a time, with the words that it has as a whole."""

import pytest
import rjieba

from retrievers.testing import processor_s
from retrievers.text import analysis, chinese_segmentation

SENTENCE = "我们今天在北京讨论了budget-2026预算报告，和人工智能的问题；Python3.11也在内。"


def test_pieces_end_between_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(chinese_segmentation, "_PIECE_CHARACTERS", 100)
    text = SENTENCE * 20
    assert len(list(chinese_segmentation._pieces(text))) > 5
    assert chinese_segmentation.words_with_offsets(text, "search") == rjieba.tokenize(text, mode="search", hmm=True)
    assert chinese_segmentation.words_with_offsets(text, "default") == rjieba.tokenize(text, mode="default", hmm=True)
    assert chinese_segmentation.words(text) == rjieba.cut(text)
    assert chinese_segmentation.tagged_words(text) == rjieba.tag(text)
    assert chinese_segmentation.words("") == []


def test_a_run_without_an_end_is_cut():
    run = "的" * 100_000
    pieces = list(chinese_segmentation._pieces(run))
    assert "".join(piece for _, piece in pieces) == run
    longest = max((piece for _, piece in pieces), key=len)
    assert processor_s(lambda: chinese_segmentation.words_with_offsets(longest, "search")) < 0.02
    assert [end for _, _, end in chinese_segmentation.words_with_offsets(run, "search")][-1] == len(run)
    assert len(analysis.analyse(run[:10_000], "zh")) > 1_000
