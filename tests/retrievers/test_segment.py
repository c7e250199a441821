"""Chinese text is split a piece at a time, with the words that it has as a whole."""

import pytest
import rjieba

from retrievers.testing import processor_s
from retrievers.text import analysis, segment

SENTENCE = "我们今天在北京讨论了budget-2026预算报告，和人工智能的问题；Python3.11也在内。"


def test_pieces_end_between_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(segment, "_PIECE_CHARACTERS", 100)
    text = SENTENCE * 20
    assert len(list(segment._pieces(text))) > 5
    assert segment.placed_words(text, "search") == rjieba.tokenize(text, mode="search", hmm=True)
    assert segment.placed_words(text, "default") == rjieba.tokenize(text, mode="default", hmm=True)
    assert segment.words(text) == rjieba.cut(text)
    assert segment.tagged_words(text) == rjieba.tag(text)
    assert segment.words("") == []


def test_a_run_without_an_end_is_cut():
    run = "的" * 100_000
    pieces = list(segment._pieces(run))
    assert "".join(piece for _, piece in pieces) == run
    longest = max((piece for _, piece in pieces), key=len)
    assert processor_s(lambda: segment.placed_words(longest, "search")) < 0.02
    assert [end for _, _, end in segment.placed_words(run, "search")][-1] == len(run)
    assert len(analysis.analyse(run[:10_000], "zh")) > 1_000
