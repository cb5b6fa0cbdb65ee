import numpy as np
import pytest

from kfs.score import accuracy, mean_bin_error, parse_failures, predicted_bin, within_one
from kfs.speedup import STUDY_BINS, most_likely_bin


def test_hand_computed_rows():
    p = STUDY_BINS.one_hot([1, 3, 5, 8])
    assert accuracy(p, [1, 4, 5, 5]) == 0.5
    assert within_one(p, [1, 4, 5, 5]) == 0.75
    assert mean_bin_error(p, [1, 4, 5, 5]) == (0 + 1 + 0 + 3) / 4


@pytest.mark.parametrize("divisor", [1.0, 0.75, 0.9, 1.1, 3.0, 7.0])
def test_a_tie_predicts_the_lower_bin_even_after_renormalising(divisor):
    stated = np.array([0.0, 0.1 + 0.2, 0.3, 0.0, 0.3, 0.1, 0.0, 0.0]) * divisor
    for p in (stated / stated.sum(), stated[::-1] / stated.sum()):
        largest = np.flatnonzero(np.isclose(p, p.max())) + 1
        assert predicted_bin([p])[0] == largest[0]


def test_the_predicted_bin_is_the_argmax_where_nothing_ties(rng):
    p = rng.dirichlet(np.ones(8), 5000)
    assert (predicted_bin(p) == p.argmax(axis=1) + 1).all()


def test_a_parse_failure_is_wrong_even_where_the_uniform_argmax_would_be_right():
    p = np.full((1, 8), 1 / 8)
    assert accuracy(p, [1]) == 1.0
    assert accuracy(p, [1], parse_failed=[True]) == 0.0
    assert within_one(p, [1], parse_failed=[True]) == 0.0


@pytest.mark.parametrize("true_bin", range(1, 9))
def test_a_parse_failure_has_the_bin_error_of_a_bin_drawn_uniformly(true_bin):
    drawn = mean_bin_error(STUDY_BINS.one_hot(range(1, 9)), [true_bin] * 8)
    assert mean_bin_error(np.full((1, 8), 1 / 8), [true_bin], parse_failed=[True]) == pytest.approx(drawn)


def test_parse_failures_are_counted_with_their_weights():
    assert parse_failures([True, False, True]) == 2
    assert parse_failures([False, False]) == 0
    assert parse_failures([True, False, True], weight=[2, 5, 0.5]) == 2.5


def test_the_predicted_bin_is_the_most_likely_one_however_probabilities_tie(rng):
    coarse = rng.integers(0, 4, (500, 8)) + (np.arange(8) == 7)
    p = coarse / coarse.sum(axis=1, keepdims=True) + rng.uniform(-1e-14, 1e-14, (500, 8))
    assert (predicted_bin(np.abs(p)) == most_likely_bin(np.abs(p))).all()
