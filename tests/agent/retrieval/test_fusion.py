import itertools
import math
import random

import pytest

from agent.options.fusion import WEIGHTS, parse_weights
from agent.retrieval.fusion import (
    FOREIGN_WEIGHT,
    LEXICAL_WEIGHT,
    FusedHit,
    boost_hits,
    cap_rising_scores,
    convex_combination,
    fuse_searches,
    interleave_rankings,
    lexical_weight,
    reciprocal_rank_fusion,
    reorder_within_parts,
    weighted_sum,
)
from retrievers.core.types import Chunk, ChunkId, Hit


def id_of(name: str) -> ChunkId:
    return ChunkId("t", "c", name, 0)


def ranking(source: str, **scores: float) -> list[Hit]:
    return [Hit(id_of(name), score, source) for name, score in scores.items()]


def fulltext(**scores: float) -> list[Hit]:
    return ranking("fulltext", **scores)


def vector(**scores: float) -> list[Hit]:
    return ranking("vector", **scores)


def scores(fused: list[FusedHit]) -> dict[str, float]:
    return {item.id.document_id: item.score for item in fused}


def order(fused: list[FusedHit]) -> list[str]:
    return [item.id.document_id for item in fused]


# Convex.


def test_convex_adds_min_max_scores_by_weight():
    found = convex_combination(
        {"fulltext": fulltext(a=10, b=6, c=2), "vector": vector(b=0.9, d=0.8, a=0.5)}, lexical_weight=0.6
    )
    # fulltext: a 1, b 0.5, c 0; vector: b 1, d 0.75, a 0.
    assert scores(found) == pytest.approx({"b": 0.7, "a": 0.6, "d": 0.3, "c": 0.0})
    assert order(found) == ["b", "a", "d", "c"]


def test_entries_are_whole():
    (only,) = convex_combination({"fulltext": fulltext(a=1.0)}, lexical_weight=0.5)
    assert only == FusedHit(id_of("a"), only.score, only.score, {"fulltext": 1.0}, {"fulltext": 1})


def test_each_entry_keeps_the_raw_scores_and_ranks_of_its_sources():
    found = convex_combination({"fulltext": fulltext(a=10, b=6), "vector": vector(b=0.9)}, lexical_weight=0.6)
    by_name = {item.id.document_id: item for item in found}
    assert by_name["b"].scores == {"fulltext": 6, "vector": 0.9}
    assert by_name["b"].ranks == {"fulltext": 2, "vector": 1}
    assert by_name["a"].scores == {"fulltext": 10}
    assert by_name["a"].fused_score == by_name["a"].score


def test_a_source_that_found_nothing_leaves_its_share_to_the_others():
    alone = convex_combination({"fulltext": [], "vector": vector(a=0.9, b=0.5)}, lexical_weight=0.6)
    assert scores(alone) == pytest.approx({"a": 1.0, "b": 0.0})


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_order_of_the_only_source_stands_even_when_it_has_no_weight(weight: float):
    found = (
        {"fulltext": [], "vector": vector(z=0.9, a=0.5)} if weight else {"fulltext": fulltext(z=9, a=5), "vector": []}
    )
    assert order(convex_combination(found, lexical_weight=weight)) == ["z", "a"]


def test_three_sources_share_what_full_text_leaves():
    found = convex_combination(
        {"fulltext": fulltext(a=2, x=1), "vector": vector(b=2, x=1), "web": ranking("web", c=2, x=1)},
        lexical_weight=0.5,
    )
    assert scores(found) == pytest.approx({"a": 0.5, "b": 0.25, "c": 0.25, "x": 0.0})


def test_a_single_hit_and_equal_scores_get_the_full_share():
    found = convex_combination({"fulltext": fulltext(a=3), "vector": vector(b=0.5, a=0.5)}, lexical_weight=0.6)
    assert scores(found) == pytest.approx({"a": 1.0, "b": 0.4})


@pytest.mark.parametrize("weight", [-0.01, 1.01, math.nan])
def test_a_weight_outside_zero_to_one_is_refused(weight: float):
    with pytest.raises(ValueError, match="outside"):
        convex_combination({}, lexical_weight=weight)


# Reciprocal rank and weighted sum.


def test_reciprocal_rank_adds_one_over_k_and_rank():
    found = reciprocal_rank_fusion({"fulltext": fulltext(a=9, b=1), "vector": vector(b=0.9, c=0.1)})
    assert scores(found) == pytest.approx({"b": 1 / 62 + 1 / 61, "a": 1 / 61, "c": 1 / 62})


@pytest.mark.parametrize("k", [0, -1.0])
def test_a_rank_offset_that_is_not_positive_is_refused(k: float):
    with pytest.raises(ValueError, match="must be positive"):
        reciprocal_rank_fusion({}, k=k)


def test_weighted_sum_has_a_weight_per_source_and_those_without_share_the_rest():
    rankings = {"fulltext": fulltext(a=4, b=3, c=2), "vector": vector(c=0.8, a=0.4), "web": ranking("web", a=9, c=1)}
    both = {"fulltext": rankings["fulltext"], "vector": rankings["vector"]}
    assert scores(weighted_sum(both, weights={"fulltext": 0.05})) == pytest.approx({"c": 0.95, "a": 0.05, "b": 0.025})
    found = weighted_sum(rankings, weights={"fulltext": 0.2})
    assert scores(found) == pytest.approx({"a": 0.2 + 0.4, "c": 0.4, "b": 0.1})
    found = weighted_sum(rankings, weights={"fulltext": 0.2, "vector": 0.5})
    assert scores(found) == pytest.approx({"a": 0.2 + 0.3, "c": 0.5, "b": 0.1})


def test_a_source_of_another_kind_keeps_its_order_in_a_weighted_sum():
    listed = {"sql": ranking("sql", zebra=3, ant=2, cat=1)}
    assert order(weighted_sum(listed, weights=parse_weights(WEIGHTS))) == ["zebra", "ant", "cat"]
    assert order(weighted_sum(listed, weights={"sql": 0.0})) == ["zebra", "ant", "cat"]


def test_weights_are_read_from_a_setting():
    assert parse_weights(WEIGHTS) == {"fulltext": 0.05}
    assert parse_weights(" fulltext = 0.3,web=.2, ") == {"fulltext": 0.3, "web": 0.2}
    assert parse_weights("") == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("fulltext", "is not a weight"),
        ("fulltext=-0.1", "is not a weight"),
        ("fulltext=2", "is not a weight"),
        ("fulltext=nan", "is not a weight"),
        ("fulltext=0.1,fulltext=0.2", "has two weights"),
        ("fulltext=0.3,vector=0.7", "must be below 1"),
        ("fulltext=0.1,vector=0.2,web=0.7", "must be below 1"),
    ],
)
def test_weights_that_cannot_be_used_are_refused(text: str, reason: str):
    with pytest.raises(ValueError, match=reason):
        parse_weights(text)


# What holds for all.

METHODS = [
    pytest.param(lambda rankings: convex_combination(rankings, lexical_weight=0.6), id="convex"),
    pytest.param(reciprocal_rank_fusion, id="rrf"),
    pytest.param(lambda rankings: weighted_sum(rankings, weights={"fulltext": 0.3, "vector": 0.7}), id="weighted_sum"),
]


@pytest.mark.parametrize("fuse", METHODS)
def test_nothing_found_is_an_empty_ranking(fuse):
    assert fuse({}) == []
    assert fuse({"fulltext": [], "vector": []}) == []


@pytest.mark.parametrize("fuse", METHODS)
def test_the_order_in_which_sources_come_does_not_matter(fuse):
    dice = random.Random(1)
    names = [f"d{n}" for n in range(30)]
    rankings = {
        source: sorted(
            (Hit(id_of(name), round(dice.random(), 2), source) for name in dice.sample(names, 20)),
            key=lambda hit: (-hit.score, hit.id),
        )
        for source in ("fulltext", "vector", "web")
    }
    expected = fuse(rankings)
    for sources in itertools.permutations(rankings):
        assert fuse({source: rankings[source] for source in sources}) == expected


@pytest.mark.parametrize("fuse", METHODS)
def test_equal_scores_are_ordered_by_id(fuse):
    found = fuse({"fulltext": fulltext(b=1, a=1), "vector": vector(a=1, b=1)})
    same = [item for item in found if item.score == found[0].score]
    assert order(same) == sorted(order(same))


def test_the_same_ranks_at_other_sources_are_an_equal_score():
    # 1/61 + 1/62 + 1/67 differs from 1/67 + 1/62 + 1/61 in the last bit unless the sum is exact.
    for one, other in itertools.product(itertools.permutations((1, 2, 7)), repeat=2):
        totals = [
            scores(reciprocal_rank_fusion({f"source {n}": at_rank("a", rank) for n, rank in enumerate(ranks)}))["a"]
            for ranks in (one, other)
        ]
        assert totals[0] == totals[1]


def at_rank(name: str, rank: int) -> list[Hit]:
    return ranking("any", **{name if n == rank else f"filler{n}": 1.0 / n for n in range(1, 9)})


def test_a_chunk_read_by_any_source_is_kept():
    chunk = Chunk(id_of("a"), "", "text")
    found = reciprocal_rank_fusion({"fulltext": fulltext(a=1), "web": [Hit(id_of("a"), 1.0, "web", chunk)]})
    assert found[0].chunk is chunk


# Several searches.


def entry(name: str, **scores: float) -> FusedHit:
    return FusedHit(id_of(name), 0.5, 0.5, scores, dict.fromkeys(scores, 3))


def test_one_search_is_returned_as_it_is():
    found = [entry("b", vector=0.2), entry("a", vector=0.1)]
    assert fuse_searches([found]) == found


def test_no_search_and_empty_searches_are_an_empty_ranking():
    assert fuse_searches([]) == []
    assert fuse_searches([[], []]) == []


def test_searches_are_merged_by_reciprocal_rank_and_the_best_of_each_source_is_kept():
    one = FusedHit(id_of("a"), 0.9, 0.9, {"vector": 0.3, "fulltext": 7.0}, {"vector": 4, "fulltext": 1})
    other = FusedHit(id_of("a"), 0.8, 0.8, {"vector": 0.6}, {"vector": 2})
    found = fuse_searches([[one, entry("b")], [entry("c"), other]], k=60)
    assert scores(found) == pytest.approx({"a": 1 / 61 + 1 / 62, "c": 1 / 61, "b": 1 / 62})
    assert found[0].scores == {"vector": 0.6, "fulltext": 7.0}
    assert found[0].ranks == {"vector": 2, "fulltext": 1}
    assert found[0].fused_score == found[0].score


def test_searches_are_merged_by_the_sum_of_their_scores():
    def scored(**of: float) -> list[FusedHit]:
        return [FusedHit(id_of(name), score, score, {"vector": score}, {"vector": 1}) for name, score in of.items()]

    found = fuse_searches([scored(a=1.0, b=0.9), scored(c=1.0, b=0.4)])
    assert scores(found) == pytest.approx({"b": 1.3, "a": 1.0, "c": 1.0})
    assert [item.id.document_id for item in found] == ["b", "a", "c"]
    assert found[0].scores == {"vector": 0.9}
    halved = fuse_searches([scored(a=1.0, b=0.9), scored(c=1.0, b=0.4)], weights=[0.5, 1.0])
    assert scores(halved) == pytest.approx({"c": 1.0, "b": 0.85, "a": 0.5})


def test_the_order_of_the_searches_does_not_matter():
    dice = random.Random(2)
    searches = [[entry(name)._replace(score=dice.random()) for name in dice.sample("abcdefghij", 7)] for _ in range(4)]
    for k in (None, 60.0):
        expected = [(item.id, item.score) for item in fuse_searches(searches, k=k)]
        for shuffled in itertools.permutations(searches):
            assert [(item.id, item.score) for item in fuse_searches(shuffled, k=k)] == expected


# The weight of full text.


def test_a_language_the_embedder_does_not_know_leaves_the_word_to_full_text():
    assert lexical_weight("zh", {}, languages=frozenset({"en"})) == FOREIGN_WEIGHT
    assert lexical_weight("zh", {}, languages=None) == LEXICAL_WEIGHT


@pytest.mark.parametrize(
    ("worst", "farthest", "expected"),
    [
        (3.0, 0.30, 0.5),  # spreads 0.7 and 3.5 x 0.2 = 0.7
        (3.0, 0.40, 2 / 3),  # 0.7 and 3.5 x 0.1 = 0.35
        (6.5, 0.30, 1 / 3),  # 0.35 and 0.7
        (9.9, 0.10, 0.3),  # 0.01 and 1.4: never below 0.3
        (0.0, 0.499, 0.8),  # 1.0 and 0.0035: never above 0.8
        (10.0, 0.30, LEXICAL_WEIGHT),  # scores that do not differ say nothing
        (3.0, 0.5, LEXICAL_WEIGHT),
    ],
)
def test_each_side_weighs_by_how_far_its_best_stands_above_its_last(worst: float, farthest: float, expected: float):
    assert lexical_weight("en", shaped(10.0, worst, farthest), languages=frozenset({"en"})) == pytest.approx(expected)


def shaped(tenth: float, worst: float, farthest: float) -> dict[str, list[Hit]]:
    """BM25 from 10 to `worst` with nine as good as the first, and cosines from 0.5 to `farthest`."""
    best = dict.fromkeys("abcdefghi", 10.0)
    return {"fulltext": fulltext(**best, j=tenth, z=worst), "vector": vector(d=0.5, a=0.5, e=farthest)}


@pytest.mark.parametrize(
    ("tenth", "expected"),
    [
        (4.1, 0.5),  # 0.59 below the best: common words
        (3.0, 0.65),  # 0.7 below: 0.1 past the usual, times 1.5
        (1.0, 0.95),  # never above the weight of a language that vectors do not know
    ],
)
def test_what_stands_far_above_all_others_by_its_words_counts_for_more(tenth: float, expected: float):
    spread = 1 - min(tenth, 4.0) / 10  # of BM25; the cosines' is made the same
    found = shaped(tenth, min(tenth, 4.0), 0.5 - spread / 3.5)

    assert lexical_weight("en", found, languages=frozenset({"en"})) == pytest.approx(expected)


def test_few_passages_with_any_of_the_words_leave_the_usual_weight():
    found = {"fulltext": fulltext(a=10.0, b=1.0), "vector": vector(d=0.5, a=0.4)}

    assert lexical_weight("en", found, languages=frozenset({"en"})) == LEXICAL_WEIGHT


@pytest.mark.parametrize("found", [{"fulltext": fulltext(a=9, b=1)}, {"vector": vector(a=0.9, b=0.1)}])
def test_one_side_alone_says_nothing_about_the_weight(found: dict[str, list[Hit]]):
    assert lexical_weight("en", found, languages=None) == LEXICAL_WEIGHT


def test_a_search_of_more_weight_leads_and_there_is_a_weight_for_each():
    one, other = [ranked("a"), ranked("b")], [ranked("c")]
    assert [item.id.document_id for item in fuse_searches([one, other], weights=[0.5, 1.0], k=60)] == ["c", "a", "b"]
    assert [item.score for item in fuse_searches([one, other], weights=[0.5, 1.0], k=60)][:2] == [1 / 61, 0.5 / 61]
    with pytest.raises(ValueError, match="zip"):
        fuse_searches([one, other], weights=[1.0])


def ranked(name: str) -> FusedHit:
    return FusedHit(ChunkId("t", "c", name, 0), 1.0, 1.0, {}, {})


def test_a_source_that_measures_as_others_do_is_compared_with_them_measure_by_measure():
    # fulltext: a 8, x 6, b 4; vector: x 0.9, b 0.5, a 0.1. The local x lies between by words and leads by meaning.
    a, b, x = (ChunkId("t", "c", name, 0) for name in "abx")
    rankings = {
        "fulltext": [Hit(a, 8.0, "fulltext"), Hit(b, 4.0, "fulltext")],
        "vector": [Hit(b, 0.5, "vector"), Hit(a, 0.1, "vector")],
        "local": [Hit(x, 1.0, "local", component_scores={"fulltext": 6.0, "vector": 0.9})],
    }
    fused = convex_combination(rankings, lexical_weight=0.5)
    assert [(one.id.document_id, round(one.score, 6)) for one in fused] == [("x", 0.75), ("a", 0.5), ("b", 0.25)]
    assert fused[0].scores == {"fulltext": 6.0, "vector": 0.9, "local": 1.0}
    assert fused[0].ranks == {"local": 1}
    assert fused[1].ranks == {"fulltext": 1, "vector": 3}


def test_reciprocal_ranks_are_those_among_all_documents():
    a, x = ChunkId("t", "c", "a", 0), ChunkId("t", "c", "x", 0)
    rankings = {"vector": [Hit(a, 0.5, "vector")], "local": [Hit(x, 1.0, "local", component_scores={"vector": 0.4})]}
    fused = reciprocal_rank_fusion(rankings, k=1)
    assert [(one.id.document_id, one.score) for one in fused] == [("a", 1 / 2), ("x", 1 / 3)]


def test_what_one_source_with_all_documents_would_not_have_returned_is_left_out():
    near = [Hit(ChunkId("t", "c", f"{n:03}", 0), 1 - n / 1000, "vector") for n in range(100)]
    far = Hit(ChunkId("t", "c", "far", 0), 1.0, "local", component_scores={"vector": 0.1})
    fused = convex_combination({"vector": near, "local": [far]}, lexical_weight=0.5)
    assert [one.id for one in fused] == [hit.id for hit in near]


def test_only_what_others_have_measured_too_counts_beside_them():
    a, x = ChunkId("t", "c", "a", 0), ChunkId("t", "c", "x", 0)
    here = [Hit(x, 1.0, "local", component_scores={"fulltext": 6.0, "vector": 0.9})]
    beside = convex_combination({"fulltext": [Hit(a, 8.0, "fulltext")], "local": here}, lexical_weight=0.5)
    assert [(one.id.document_id, one.score) for one in beside] == [("a", 1.0), ("x", 0.0)]
    # Asked, and without a hit: then the words of the folder alone were found.
    alone = convex_combination({"fulltext": [], "vector": [Hit(a, 0.95, "vector")], "local": here}, lexical_weight=0.6)
    assert [(one.id.document_id, round(one.score, 6)) for one in alone] == [("x", 0.6), ("a", 0.4)]


# Turns.


def passages(*names: str) -> list[FusedHit]:
    """A ranking of passages by names like "a1": document a, passage 1; scores fall from 1 by tenths."""
    return [
        FusedHit(ChunkId("t", "c", name[0], int(name[1])), 1 - n / 10, 1 - n / 10, {}, {})
        for n, name in enumerate(names)
    ]


def turns(*rankings: list[FusedHit], apart: int = 10) -> list[str]:
    return [f"{one.id.document_id}{one.id.ordinal}" for one in interleave_rankings(rankings, distinct_places=apart)]


def test_parts_take_turns_and_nothing_comes_twice():
    assert turns(passages("a1", "b1", "c1"), passages("b1", "d1")) == ["a1", "b1", "c1", "d1"]
    assert turns(passages("a1", "b1")) == ["a1", "b1"]
    assert turns([], passages("a1")) == ["a1"]


def test_on_the_page_of_several_parts_every_document_comes_before_any_comes_twice():
    first, second = passages("a1", "a2", "a3", "b1"), passages("c1", "a4")
    assert turns(first, second) == ["a1", "c1", "b1", "a4", "a2", "a3"]
    assert turns(first, second, apart=0) == ["a1", "c1", "a2", "a4", "a3", "b1"]
    assert turns(first, second, apart=3) == ["a1", "c1", "b1", "a4", "a2", "a3"]


def test_a_score_that_would_rise_is_that_of_the_hit_before():
    found = cap_rising_scores(fused(a=0.4, b=0.9, c=0.1))
    assert [(hit.id.document_id, hit.score, hit.fused_score) for hit in found] == [
        ("a", 0.4, 0.4),
        ("b", 0.4, 0.9),
        ("c", 0.1, 0.1),
    ]


def test_scores_never_rise_down_a_page_of_turns():
    scored = [one.score for one in interleave_rankings([passages("a1", "b1", "c1"), passages("d1", "e1")])]
    assert scored == sorted(scored, reverse=True)


def falling(*names: str, score: float = 1.0) -> list[FusedHit]:
    """Hits whose scores fall by a tenth each."""
    return [
        FusedHit(ChunkId("t", "c", name, 0), round(score - place / 10, 1), score, {}, {})
        for place, name in enumerate(names)
    ]


def test_in_another_order_every_part_keeps_its_turns():
    turns = interleave_rankings([falling("a1", "a2", "a3"), falling("b1", "b2")])
    assert [hit.id.document_id for hit in turns] == ["a1", "b1", "a2", "b2", "a3"]

    by_name = {hit.id.document_id: hit for hit in turns}
    said = {"a3": 0.9, "a1": 0.8, "a2": 0.7, "b2": 0.2, "b1": 0.1}
    ordered = [by_name[name]._replace(score=score) for name, score in said.items()]
    both = reorder_within_parts(turns, ordered)
    assert [(hit.id.document_id, hit.score) for hit in both] == [
        ("a3", 0.9), ("b2", 0.2), ("a1", 0.2), ("b1", 0.1), ("a2", 0.1),
    ]  # fmt: skip
    # Of a part without any more hits the turn is left out.
    assert [hit.id.document_id for hit in reorder_within_parts(turns, ordered[:4])] == ["a3", "b2", "a1", "a2"]


def test_of_turns_within_turns_each_part_is_its_own():
    inner = interleave_rankings([falling("a", "a2"), falling("b", "b2")])
    outer = interleave_rankings([inner, falling("c")])
    assert [hit.id.document_id for hit in outer] == ["a", "c", "b", "a2", "b2"]
    parts = {hit.id.document_id: hit.part for hit in outer}
    assert parts["a"] == parts["a2"]
    assert parts["b"] == parts["b2"]
    assert len({parts["a"], parts["b"], parts["c"]}) == 3


def test_a_question_of_one_part_has_no_turns():
    ranking = interleave_rankings([falling("a", "b")])
    assert reorder_within_parts(ranking, ranking[::-1]) == ranking[::-1]


# Boosts.


def fused(**scores: float) -> list[FusedHit]:
    return [FusedHit(id_of(name), score, score, {"vector": score}, {"vector": 1}) for name, score in scores.items()]


def test_what_is_likely_meant_is_raised_by_its_place_among_the_likely_and_nothing_is_left_out():
    found = boost_hits(fused(a=1.0, b=0.8, c=0.2), fused(b=0.9, c=0.45, d=0.0), weight=0.5)

    assert scores(found) == pytest.approx({"b": 1.3, "a": 1.0, "c": 0.45, "d": 0.0})
    assert [one.scores.get("boost") for one in found] == [0.5, None, 0.25, 0.0]
    assert [one.boost for one in found] == [0.5, 0.0, 0.25, 0.0]
    assert [one.fused_score for one in found] == [one.score for one in found]


def test_a_boost_is_of_the_best_score_whatever_the_scores_mean():
    found = boost_hits(fused(a=0.02, b=0.01), fused(b=7.0), weight=1.0)
    assert scores(found) == pytest.approx({"b": 0.03, "a": 0.02})
    assert [one.boost for one in found] == [1.0, 0.0]


def test_without_likely_hits_the_ranking_stands():
    assert boost_hits(fused(a=1.0, b=0.5), []) == fused(a=1.0, b=0.5)
