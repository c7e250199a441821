"""Which of a question's terms find the passages to score."""

import pytest

from retrievers import fulltext

WEIGHTS = {"rare": 6.0, "usual": 2.0, "common": 1.0}


@pytest.mark.parametrize(
    ("passages", "chosen"),
    [
        ((400, 500, 5000), ["rare", "usual"]),  # enough passages at once, most of the question with the second
        ((299, 0, 5000), ["rare", "usual", "common"]),  # most of the question, but not enough passages
        ((1000, 2000, 5000), ["rare"]),  # as many as are ever scored
        ((9, 20, 30), ["rare", "usual", "common"]),
    ],
)
def test_terms_are_taken_until_enough_passages_hold_most_of_the_question(passages: tuple[int, ...], chosen: list[str]):
    found = dict(zip(WEIGHTS, passages, strict=True))
    assert fulltext._rarest(WEIGHTS, found, fewest=300) == chosen


def test_more_passages_need_more_terms():
    passages = {"rare": 120, "usual": 120, "common": 120}
    assert fulltext._rarest(WEIGHTS, passages, fewest=150) == ["rare", "usual"]
    assert fulltext._rarest(WEIGHTS, passages, fewest=300) == ["rare", "usual", "common"]
