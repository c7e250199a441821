"""Diversity: how passages of one document share a ranking with those of others, whatever the page."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.retrieval.document_diversity import (
    LEAST_SHARE,
    diversify,
    dominant_document_hits,
    limit_per_document,
    names_document,
)
from agent.retrieval.fusion import FusedHit, interleave_rankings
from retrievers.core.types import ChunkId


def hit(name: str, score: float, part: int = 0) -> FusedHit:
    """A hit "a3": passage 3 of document a."""
    return FusedHit(ChunkId("t", "docs", name[0], int(name[1:])), score, score, {}, {}, None, part)


def names(ranking: list[FusedHit]) -> list[str]:
    return [f"{one.id.document_id}{one.id.ordinal}" for one in ranking]


def test_a_document_gives_so_many_passages_before_the_next_relevant_one():
    ranking = [hit("a0", 1.0), hit("a1", 0.9), hit("a2", 0.8), hit("b0", 0.7), hit("a3", 0.6), hit("c0", 0.5)]
    assert names(diversify(ranking, 1)) == ["a0", "b0", "c0", "a1", "a2", "a3"]
    assert names(diversify(ranking, 2)) == ["a0", "a1", "b0", "c0", "a2", "a3"]
    assert names(diversify(ranking, 100)) == names(ranking)


def test_what_is_not_relevant_does_not_displace_passages_of_the_best_document():
    ranking = [hit("a0", 1.0), hit("a1", 0.9), hit("b0", 0.8), hit("a2", 0.7), hit("c0", 0.01), hit("d0", 0.0)]
    assert names(diversify(ranking, 1)) == ["a0", "b0", "a1", "a2", "c0", "d0"]


def test_a_document_that_is_asked_for_is_shown_whole():
    ranking = [hit("a0", 1.0), hit("a1", 0.9), hit("a2", 0.8), hit("b0", 0.7), hit("b1", 0.6), hit("c0", 0.5)]
    assert names(diversify(ranking, 1, whole={("t", "docs", "a")})) == ["a0", "a1", "a2", "b0", "c0", "b1"]


def test_scores_never_rise_and_nothing_is_lost_where_no_score_is_above_0():
    ranking = [hit("a0", -1.0), hit("a1", -2.0), hit("b0", -3.0)]
    shown = diversify(ranking, 1)
    assert (names(shown), [one.score for one in shown]) == (["a0", "b0", "a1"], [-1.0, -3.0, -3.0])
    assert diversify([], 1) == []


def test_parts_of_a_question_keep_their_turns():
    first = [hit("a0", 1.0), hit("a1", 0.9), hit("b0", 0.8)]
    second = [hit("c0", 1.0), hit("c1", 0.9), hit("d0", 0.8)]
    turns = interleave_rankings([first, second], distinct_places=0)
    assert names(turns) == ["a0", "c0", "a1", "c1", "b0", "d0"]
    assert names(diversify(turns, 1)) == ["a0", "c0", "b0", "d0", "a1", "c1"]


def test_less_than_one_passage_is_an_error():
    with pytest.raises(ValueError, match="at least 1"):
        diversify([], 0)


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.integers(0, 9), st.floats(0, 1)),
        unique_by=lambda one: one[:2],
        max_size=30,
    ),
    st.integers(1, 4),
)
def test_no_document_is_ahead_by_more_than_its_share(rows: list[tuple[str, int, float]], per_document: int):
    ranking = sorted((hit(f"{name}{number}", score) for name, number, score in rows), key=lambda one: -one.score)
    shown = diversify(ranking, per_document)
    assert sorted(names(shown)) == sorted(names(ranking))
    assert all(one.score >= other.score for one, other in pairwise(shown))
    # Documents come up for the first time in the order of the ranking.
    assert list(dict.fromkeys(one.id[:3] for one in shown)) == list(dict.fromkeys(one.id[:3] for one in ranking))
    best = {one.id[:3] for one in ranking if one.score >= LEAST_SHARE * max(one.score for one in ranking)}
    place = max((names(shown).index(name) for name in _firsts(shown, best)), default=0)
    for document in best:
        before = sum(one.id[:3] == document for one in shown[:place])
        assert before <= per_document


def _firsts(shown: list[FusedHit], documents: set[tuple[str, str, str]]) -> list[str]:
    first = {one.id[:3]: names([one])[0] for one in reversed(shown) if one.id[:3] in documents}
    return list(first.values())


def test_a_list_of_documents_ends_each_at_its_share():
    ranking = [hit("a0", 1.0), hit("a1", 0.9), hit("b0", 0.7), hit("a2", 0.6)]
    assert names(limit_per_document(ranking, 1)) == ["a0", "b0"]
    assert names(limit_per_document(ranking, 2)) == ["a0", "a1", "b0"]


def test_only_documents_that_have_more_than_their_share_may_be_the_one_that_is_named():
    ranking = [hit("a0", 1.0), hit("b0", 0.9), hit("a1", 0.8), hit("a2", 0.7)]
    assert names(dominant_document_hits(ranking, 2)) == ["a0"]
    assert dominant_document_hits(ranking, 3) == []


@pytest.mark.parametrize(
    ("question", "id", "title", "named"),
    [
        ("what does PEP 703 say about locks?", "pep-703", "Making the GIL optional", True),
        ("PEP 703主要讲什么", "pep-703", "Making the GIL optional", True),
        ("what does PEP 7030 say?", "pep-703", "Making the GIL optional", False),
        ("who wrote Making the GIL Optional?", "pep-703", "Making the GIL optional", True),
        ("is the GIL optional?", "pep-703", "Making the GIL optional", False),
        ("what is in the handbook?", "handbook", "Handbook", False),
        ("《差旅报销制度》里住宿标准是多少？", "p7", "差旅报销制度", True),
        ("差旅标准是多少？", "p7", "差旅", False),
    ],
)
def test_a_document_is_named_by_its_id_or_its_title(question: str, id: str, title: str, named: bool):
    assert names_document(question, id, title) is named
