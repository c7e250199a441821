import pytest

from evals.timing import median, percentile, summary


def test_percentiles_lie_between_neighbours():
    values = [40.0, 10.0, 30.0, 20.0]

    assert [percentile(values, share) for share in (0, 0.5, 0.9, 1)] == pytest.approx([10, 25, 37, 40])
    assert median([3.0]) == 3.0
    assert summary([1.0, 2.0, 3.0]) == {"p50": 2.0, "p95": 2.9, "p99": 2.98, "mean": 2.0}


def test_no_values_have_no_percentile():
    with pytest.raises(ValueError, match="no values"):
        percentile([], 0.5)
