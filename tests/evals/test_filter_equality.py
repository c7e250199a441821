from typing import Any

import pytest

from evals.datasets import LabelledQuestion
from evals.filter_equality import FilterCorpus, corpus_of
from evals.filter_judge import FilterJudge
from retrievers.core.errors import BadFilter
from retrievers.ingest.documents import Document

Json = dict[str, Any]


def doc(id: str, **metadata: Any) -> Document:
    return Document(where=id, id=id, title=id, text=f"The text of {id}.", metadata=metadata)


@pytest.fixture
def corpus() -> FilterCorpus:
    return corpus_of(
        [
            doc("a", team="infra", tags=["x", "y"], day="2024-12-31", at="2025-01-01T08:00:00", budget=10, share=0.5),
            doc("b", team="infra", tags=["y"], day="2025-01-01", at="2025-01-02", budget=20, share=1),
            doc("c", team="data", tags=[], day="2025-06-30", at="2025-01-03", budget=None, share=2),
            doc("d", team=None, tags=["z"], day="2026-01-01", at="2025-01-04", budget=30, share=3),
        ]
    )


def eq(key: str, value: Any) -> Json:
    return {"type": "eq", "key": key, "value": value}


def compare(op: str, key: str, value: Any) -> Json:
    return {"type": op, "key": key, "value": value}


def group(kind: str, *filters: Json) -> Json:
    return {"type": kind, "filters": list(filters)}


def negated(filter: Json) -> Json:
    return {"type": "not", "filter": filter}


A, B, C = eq("team", "infra"), eq("tags", "y"), eq("team", "data")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, None),
        (A, {"type": "in", "key": "team", "value": ["infra", "infra"]}),
        (group("and", A, B), group("and", B, A)),
        (group("and", A), A),
        (group("and", A, group("and", B, A)), group("and", A, B)),
        (group("or", A, C), {"type": "in", "key": "team", "value": ["data", "infra"]}),
        (B, compare("contains", "tags", "y")),
        (negated(A), compare("ne", "team", "infra")),
        (negated(negated(A)), A),
        (negated(group("or", A, B)), group("and", compare("ne", "tags", "y"), compare("ne", "team", "infra"))),
        (
            group("and", compare("ne", "team", "infra"), compare("ne", "team", "data")),
            {"type": "nin", "key": "team", "value": ["data", "infra"]},
        ),
        (negated({"type": "exists", "key": "team"}), {"type": "exists", "key": "team", "value": False}),
        (eq("day", "2025-1-1"), eq("day", "2025-01-01")),
        (compare("gt", "day", "2024-12-31"), compare("gte", "day", "2025-01-01")),
        (compare("lte", "day", "2025-12-31"), compare("lt", "day", "2026-01-01")),
        (compare("lte", "day", "2025-12-31T23:59:59"), compare("lt", "day", "2026-01-01")),
        (compare("gt", "budget", 10), compare("gte", "budget", 11)),
        (compare("gte", "budget", 10.5), compare("gt", "budget", 10)),
        (eq("budget", 10), eq("budget", 10.0)),
        (eq("public", False), {"type": "in", "key": "public", "value": [False]}),
    ],
)
def test_filters_that_say_the_same_are_equal(corpus: FilterCorpus, one: Json | None, other: Json | None):
    assert corpus.exact(corpus.read(one), corpus.read(other)) == 1.0


@pytest.mark.parametrize(
    ("one", "other", "f1"),
    [
        (None, A, 2 * 2 / (4 + 2)),
        (A, C, 0.0),
        (A, group("or", A, B), 1.0),
        (group("and", A, C), group("and", C, eq("tags", "z")), 1.0),
        (compare("gte", "day", "2025-01-01"), group("or", eq("team", "data"), eq("tags", "z")), 2 * 2 / (3 + 2)),
        (negated(compare("gt", "budget", 10)), compare("lte", "budget", 10), 2 * 1 / (2 + 1)),
        (compare("gt", "share", 0.5), compare("gte", "share", 1), 1.0),
        (compare("gt", "at", "2025-01-01"), compare("gte", "at", "2025-01-02"), 2 * 3 / (4 + 3)),
    ],
)
def test_other_filters_are_not_equal_and_overlap_by_what_they_allow(
    corpus: FilterCorpus, one: Json | None, other: Json | None, f1: float
):
    gold, found = corpus.read(one), corpus.read(other)

    assert corpus.exact(gold, found) == 0.0
    assert corpus.f1(gold, found) == pytest.approx(f1)


def test_a_date_beyond_the_last_one_has_a_normal_form(corpus: FilterCorpus):
    one, other = compare("lte", "day", "9999-12-31"), compare("lt", "day", "9999-12-31")

    assert corpus.exact(corpus.read(one), corpus.read(other)) == 0.0
    assert corpus.f1(corpus.read(one), corpus.read(other)) == 1.0


def test_an_unknown_key_is_refused(corpus: FilterCorpus):
    with pytest.raises(BadFilter, match="valid keys"):
        corpus.read(eq("colour", "red"))
    assert corpus.read(eq("language", "en")) is not None


def test_any_of_several_right_filters_is_right(corpus: FilterCorpus):
    infra, day, both = eq("team", "infra"), eq("day", "2024-12-31"), {"type": "in", "key": "team", "value": ["infra"]}
    question = LabelledQuestion("q", "?", "en", filter=infra, other_filters=(group("and", infra, day),))
    may_be_none = LabelledQuestion("n", "?", "en", filter=infra, other_filters=(None,))
    judge = FilterJudge({"c": corpus}, {"c": [question, may_be_none]})

    assert judge.scores("q", both) == {"filter_exact": 1.0, "filter_f1": 1.0}
    assert judge.verdict("q", group("and", day, infra)) == "right"
    # Document a: that of the second right filter.
    assert judge.scores("q", day) == {"filter_exact": 0.0, "filter_f1": 1.0}
    assert judge.verdict("q", None) == "missing"
    assert (judge.is_asked_for("q", day), judge.is_asked_for("q", eq("team", "data"))) == (True, False)
    assert (judge.verdict("n", None), judge.verdict("n", infra), judge.verdict("n", day)) == (
        "none",
        "right",
        "invented",
    )
