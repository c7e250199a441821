import math
import random
import sys
from datetime import date
from decimal import Decimal

import pytest

from evals import metrics
from retrievers.core.errors import BadRequest


def test_ranking_metrics_worked_out_by_hand():
    ranking = ["d2", "x", "d1", "y"]
    relevant = {"d1": 2, "d2": 1, "d3": 1}

    scores = metrics.ranking_scores({"q": ranking}, {"q": relevant})["q"]

    # Gains 1, 0, 2 at ranks 1 to 3; ideally 2, 1, 1.
    gained = 1 / math.log2(2) + 2 / math.log2(4)
    ideal = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert scores == pytest.approx(
        {
            "nDCG@10": gained / ideal,
            "R@10": 2 / 3,
            "R@100": 2 / 3,
            "RR@10": 1.0,
            "AP@100": (1 / 1 + 2 / 3) / 3,
            "hit@1": 1.0,
        }
    )


def test_cutoffs_count_documents_from_the_first():
    ranking = [f"x{n}" for n in range(10)] + ["d1"] + [f"y{n}" for n in range(89)] + ["d2"]

    scores = metrics.ranking_scores({"q": ranking}, {"q": {"d1": 1, "d2": 1}})["q"]

    assert scores == pytest.approx(
        {"nDCG@10": 0, "R@10": 0, "R@100": 1 / 2, "RR@10": 0, "AP@100": 1 / 11 / 2, "hit@1": 0}
    )


def test_ranking_metrics_agree_with_plain_formulas_on_random_rankings():
    chance = random.Random(7)
    rankings, relevant = {}, {}
    for n in range(40):
        documents = [f"d{one}" for one in range(150)]
        rankings[f"q{n}"] = chance.sample(documents, chance.randint(1, 120))
        relevant[f"q{n}"] = {one: chance.randint(1, 2) for one in chance.sample(documents, chance.randint(1, 12))}

    scores = metrics.ranking_scores(rankings, relevant)

    for id, ranking in rankings.items():
        grades = relevant[id]
        found = [rank for rank, one in enumerate(ranking[:100], 1) if one in grades]
        ideal = sorted(grades.values(), reverse=True)[:10]
        gained = sum(grades.get(one, 0) / math.log2(rank + 1) for rank, one in enumerate(ranking[:10], 1))
        assert scores[id] == pytest.approx(
            {
                "nDCG@10": gained / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(ideal, 1)),
                "R@10": sum(rank <= 10 for rank in found) / len(grades),
                "R@100": len(found) / len(grades),
                "RR@10": 1 / found[0] if found and found[0] <= 10 else 0.0,
                "AP@100": sum(n / rank for n, rank in enumerate(found, 1)) / len(grades),
                "hit@1": float(ranking[0] in grades),
            }
        )


def test_a_question_that_found_nothing_counts_as_zero_and_one_without_relevant_documents_not_at_all():
    scores = metrics.ranking_scores({"q1": [], "q2": ["d1"]}, {"q1": {"d1": 1}, "q2": {}})

    assert scores == {"q1": dict.fromkeys(metrics.RANKING, 0.0)}
    assert metrics.ranking_scores({"q2": ["d1"]}, {"q2": {}}) == {}


def test_without_the_package_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "ir_measures", None)

    with pytest.raises(BadRequest, match=r"pip install '\.\[eval\]'"):
        metrics.require_ir_measures()


def test_a_document_ranks_where_its_first_passage_does():
    assert metrics.documents_of(["b", "a", "b", "c", "a"]) == ["b", "a", "c"]


@pytest.mark.parametrize(
    ("gold", "chosen", "accuracy"),
    [
        (["vector", "fulltext"], ["fulltext"], 1),
        (["fulltext"], ["vector", "fulltext"], 1),
        (["fulltext"], ["vector"], 0),
        (["fulltext"], ["fulltext", "sql"], 0),
        (["sql"], ["sql"], 1),
        (["sql"], ["sql", "fulltext"], 1),
        (["sql"], ["fulltext"], 0),
        (["vector", "sql"], ["vector", "sql"], 1),
        (["vector", "sql"], ["sql"], 0),
        (["web"], ["web"], 1),
        (["web"], ["vector"], 0),
        (["none"], ["none"], 1),
        (["none"], ["vector"], 0),
        (["vector"], ["none"], 0),
        (["vector"], [], 0),
        ([], ["vector"], None),
    ],
)
def test_route_accuracy(gold: list[str], chosen: list[str], accuracy: float | None):
    assert metrics.route_accuracy(gold, chosen) == accuracy


@pytest.mark.parametrize(
    ("gold", "rows", "accuracy"),
    [
        (21, [[21]], 1),
        (21, [["count", 21.0]], 1),
        (53.2, [[Decimal("53.2")]], 1),
        ("pep-8", [["pep-8", "Style Guide"]], 1),
        ("2025-01-31", [[date(2025, 1, 31)]], 1),
        (21, [[20]], 0),
        (21, [[21], [3]], 0),
        ("21", [[21]], 0),
        (True, [[1]], 0),
        (["infrastructure", 39], [["infrastructure", 39]], 1),
        (["infrastructure", 39], [[39, "infrastructure", "x"]], 1),
        (["pep-843", "pep-844"], [["pep-844", 1], ["pep-843", 2]], 1),
        (["pep-843", "pep-844"], [["pep-843", 1], ["pep-843", 2]], 0),
        ({"Release": 27, "Typing": 47}, [["Typing", 47], ["Release", 27]], 1),
        ({"2024": 1, "2025": 2}, [[2024, 1], [2025, 2]], 1),
        ({"2024": 1, "2025": 2}, [[1, "2024"], [2, "2025"]], 1),
        ({"Release": 27}, [["Release", 27], ["Typing", 47]], 0),
        (21, [], 0),
        (21, None, 0),
        (None, [[21]], None),
    ],
)
def test_answer_accuracy(gold: object, rows: list[list[object]] | None, accuracy: float | None):
    assert metrics.answer_accuracy(gold, rows) == accuracy


@pytest.mark.parametrize(
    ("gold", "text", "found"),
    [
        ("30 days", "Leave is 30 days; ask first.", 1.0),
        ("30 days", "Leave is 130 days.", 0.0),
        ("1,200 EUR", "It costs 1200 eur.", 1.0),
        ("On-Call desk", "Ring the on call\ndesk", 1.0),
        ("call", "We recall it.", 0.0),
        ("财务部", "请联系财务部。", 1.0),
        ("财务部", "请联系法务部。", 0.0),
        ("?!", "anything", None),
    ],
)
def test_an_expected_answer_stands_in_a_passage_as_whole_words(gold: str, text: str, found: float | None):
    assert metrics.answer_in_hits(gold, ["Something else.", text], None) == found


def test_an_expected_answer_may_stand_in_a_calculated_cell():
    assert metrics.answer_in_hits("payments", [], [[3, "Payments"]]) == 1.0


def test_averages_are_over_the_questions_a_metric_applies_to():
    rows = [{"hit@1": 1.0, "route_accuracy": 0.0}, {"hit@1": 0.0, "route_accuracy": None}, {"hit@1": 0.5}]

    found = metrics.averages(rows)

    assert (found["hit@1"], found["route_accuracy"], found["answer_accuracy"]) == (0.5, 0.0, None)
    assert tuple(found) == metrics.NAMES
    assert list(metrics.averages_by(zip(["b", "a", None], rows, strict=True))) == ["a", "b"]
