import pytest

from evals.significance import holm_correction, paired_difference, smallest_p


def test_of_few_questions_every_way_to_flip_signs_is_counted():
    # All five lose as much: of 32 ways only the two extreme ones are as far from zero.
    assert paired_difference([1.0] * 5 + [0.5], [0.0] * 5 + [0.5])["p"] == 2 / 32
    # +1 +1 +1 -1 sums to 2: 0 is nearer in 6 ways of 16, so ten are as far.
    assert paired_difference([0.0, 0.0, 0.0, 1.0], [1.0, 1.0, 1.0, 0.0])["p"] == 10 / 16


def test_of_many_questions_signs_are_drawn():
    assert paired_difference([1.0] * 20, [0.5] * 20)["p"] == pytest.approx(1 / 10_001)


def test_no_test_of_seven_questions_can_reach_a_hundredth():
    assert smallest_p(7) == 2 / 128 > 0.01 > smallest_p(8) == 2 / 256
    assert smallest_p(0) == 1.0


def test_holm_multiplies_the_smallest_by_all_and_never_falls():
    # 0.01 * 3, then 0.03 * 2, then max(0.06, 0.04).
    assert holm_correction([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm_correction([0.6, 0.9]) == [1.0, 1.0]
    assert holm_correction([]) == []
