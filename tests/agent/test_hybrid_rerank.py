import asyncio
from collections.abc import Sequence

import pytest

from agent.fusion import Fused
from agent.rerank.base import ordered
from agent.rerank.hybrid import Hybrid
from retrievers.core.types import Chunk, ChunkId


def hit(name: str, text: str, *, title: str = "", **scores: float) -> Fused:
    id = ChunkId("t", "c", name, 0)
    return Fused(id, 0.1, 0.1, scores, dict.fromkeys(scores, 1), Chunk(id, title, text))


def rerank(question: str, language: str, hits: Sequence[Fused]) -> list[Fused]:
    return ordered(hits, asyncio.run(Hybrid().rerank(question, language, hits, deadline=0)))


def scores(question: str, *hits: Fused) -> dict[str, float]:
    return {item.id.document_id: item.score for item in rerank(question, "en", hits)}


def test_the_score_is_seven_tenths_words_and_three_tenths_cosine():
    # Asked: two words (0.4 each) and one pair (0.6), 1.4 in all.
    found = scores(
        "green tea",
        hit("both", "green tea", vector=0.5),
        hit("apart", "tea is green", vector=0.5),
        hit("one", "green grass", vector=0.5),
        hit("none", "black coffee", vector=0.5),
    )
    assert found == pytest.approx(
        {"both": 0.7 + 0.15, "apart": 0.7 * 0.8 / 1.4 + 0.15, "one": 0.7 * 0.4 / 1.4 + 0.15, "none": 0.15}
    )


def test_a_question_of_one_word_that_occurs_has_the_full_share():
    assert scores("asyncio", hit("a", "About asyncio.")) == pytest.approx({"a": 0.7})


def test_words_of_the_title_count_but_title_and_text_make_no_pair():
    found = scores("green tea", hit("a", "I like green", title="Tea"), hit("b", "I like it", title="Green tea"))
    assert found == pytest.approx({"a": 0.7 * 0.8 / 1.4, "b": 0.7})


def test_a_word_asked_twice_counts_twice():
    assert scores("tea tea milk", hit("a", "tea")) == pytest.approx({"a": 0.7 * 0.8 / (1.2 + 1.2)})


def test_a_missing_or_negative_cosine_counts_nothing():
    found = scores("tea", hit("a", "x", vector=-0.9), hit("b", "x", fulltext=12.0))
    assert found == {"a": 0.0, "b": 0.0}


def test_a_question_of_stop_words_is_ordered_by_cosine():
    assert list(scores("who is it", hit("a", "x", vector=0.1), hit("b", "y", vector=0.9))) == ["b", "a"]


def test_hits_keep_their_scores_ranks_and_fused_score_and_ties_go_by_id():
    found = rerank("tea", "en", [hit("b", "tea", vector=0.5), hit("a", "tea", vector=0.5)])
    assert [item.id.document_id for item in found] == ["a", "b"]
    assert found[0].scores == pytest.approx({"vector": 0.5, "rerank": 0.85})
    assert found[0].fused == 0.1
    assert found[0].ranks == {"vector": 1}


def test_nothing_is_reranked_to_nothing():
    assert rerank("tea", "en", []) == []
