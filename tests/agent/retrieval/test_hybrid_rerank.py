import asyncio
import math
from collections.abc import Sequence

import pytest

from agent.retrieval.fusion import FusedHit
from agent.retrieval.rerank.hybrid import HybridReranker
from agent.retrieval.rerank.lexical_overlap import lexical_overlap
from agent.retrieval.rerank.reranker import sort_by_score
from retrievers.core.types import Chunk, ChunkId


def hit(
    name: str,
    text: str,
    *,
    title: str = "",
    important: Sequence[str] = (),
    questions: Sequence[str] = (),
    **scores: float,
) -> FusedHit:
    id = ChunkId("t", "c", name, 0)
    chunk = Chunk(id, title, text, important=important, questions=questions)
    return FusedHit(id, 0.1, 0.1, scores, dict.fromkeys(scores, 1), chunk)


def rerank(question: str, language: str, hits: Sequence[FusedHit]) -> list[FusedHit]:
    return sort_by_score(hits, asyncio.run(HybridReranker().rerank(question, language, hits, deadline=0)))


def scores(question: str, *hits: FusedHit) -> dict[str, float]:
    return {item.id.document_id: item.score for item in rerank(question, "en", hits)}


# Of a question whose words are all in every passage of the pool, or in one of two, each word is as rare as the other.
ONCE, TITLE, IMPORTANT, ASKED = 1 / 2, 2 / 3, 5 / 6, 6 / 7


def test_the_score_is_seven_tenths_words_and_three_tenths_cosine():
    # Asked: two words (0.4 each) and one pair (0.6), 1.4 in all.
    found = scores("green tea", hit("both", "green tea", vector=0.5), hit("none", "black coffee", vector=0.5))
    assert found == pytest.approx({"both": 0.7 * ONCE + 0.15, "none": 0.15})
    found = scores("green tea", hit("apart", "tea is green", vector=0.5), hit("none", "coffee", vector=0.5))
    assert found == pytest.approx({"apart": 0.7 * 0.8 / 1.4 * ONCE + 0.15, "none": 0.15})


def test_a_word_counts_by_the_field_in_which_it_stands():
    found = scores(
        "asyncio",
        hit("text", "asyncio"),
        hit("title", "x", title="asyncio"),
        hit("important", "x", important=("asyncio",)),
        hit("asked", "x", questions=("What is asyncio?",)),
        hit("twice", "asyncio and asyncio"),
        hit("all", "asyncio", title="asyncio", important=("asyncio",), questions=("asyncio",)),
    )
    shares = {
        "text": ONCE, "title": TITLE, "important": IMPORTANT, "asked": ASKED, "twice": TITLE, "all": 14 / 15,
    }  # fmt: skip
    assert found == pytest.approx({name: 0.7 * share for name, share in shares.items()})


def test_a_rare_word_counts_for_more_than_one_that_every_passage_has():
    found = scores("tea ceremony", hit("a", "tea"), hit("b", "ceremony"), hit("c", "tea"), hit("d", "tea"))
    assert found["b"] > 2 * found["a"]
    common, rare = math.log(1 + 1.5 / 3.5), math.log(1 + 3.5 / 1.5)
    # The pair is as rare as the rarer word.
    assert found["b"] == pytest.approx(0.7 * ONCE * 0.4 * rare / (0.4 * (common + rare) + 0.6 * rare))


def test_words_of_the_title_count_but_title_and_text_make_no_pair():
    found = scores("green tea", hit("a", "I like green", title="Tea"), hit("b", "I like it", title="Green tea"))
    assert found == pytest.approx({"a": 0.7 * 0.4 * (ONCE + TITLE) / 1.4, "b": 0.7 * TITLE})


def test_headings_count_as_titles_do():
    chunk = Chunk(ChunkId("t", "c", "a", 0), "", "x", heading="Green tea")
    assert lexical_overlap("green tea", "en", [FusedHit(chunk.id, 0.1, 0.1, {}, {}, chunk)]) == pytest.approx([TITLE])


def test_a_word_asked_twice_counts_twice():
    held, missing = math.log(1 + 0.5 / 1.5), math.log(1 + 1.5 / 0.5)
    total = 0.4 * (2 * held + missing) + 0.6 * (held + missing)
    assert scores("tea tea milk", hit("a", "tea")) == pytest.approx({"a": 0.7 * ONCE * 0.4 * 2 * held / total})


def test_a_missing_or_negative_cosine_counts_nothing():
    found = scores("tea", hit("a", "x", vector=-0.9), hit("b", "x", fulltext=12.0))
    assert found == {"a": 0.0, "b": 0.0}


def test_a_question_of_stop_words_is_ordered_by_cosine():
    assert list(scores("who is it", hit("a", "x", vector=0.1), hit("b", "y", vector=0.9))) == ["b", "a"]


def test_hits_keep_their_scores_ranks_and_fused_score_and_ties_go_by_id():
    found = rerank("tea", "en", [hit("b", "tea", vector=0.5), hit("a", "tea", vector=0.5)])
    assert [item.id.document_id for item in found] == ["a", "b"]
    assert found[0].scores == pytest.approx({"vector": 0.5, "rerank": 0.7 * ONCE + 0.15})
    assert found[0].fused_score == 0.1
    assert found[0].ranks == {"vector": 1}


def test_nothing_is_reranked_to_nothing():
    assert rerank("tea", "en", []) == []
