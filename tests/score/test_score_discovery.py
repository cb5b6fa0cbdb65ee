import numpy as np
import pytest
from sklearn.metrics import average_precision_score, precision_score, recall_score

from kfs.score import average_precision, discovery, precision, recall
from kfs.speedup import STUDY_BINS


def test_four_pairs_by_hand():
    found = discovery([1.5, 1.2, 0.8, 0.7], [2.0, 0.9, 1.3, 0.5])
    assert (found.precision, found.recall, found.prevalence, found.called) == (0.5, 0.5, 0.5, 0.5)
    assert found.average_precision == pytest.approx((1 / 1 + 2 / 3) / 2)


@pytest.mark.parametrize("threshold", [1.0, 1.1])
def test_agrees_with_scikit_learn_with_ties_and_weights(threshold, rng):
    score, speedup, weight = rng.lognormal(0, 0.4, 200).round(1), rng.lognormal(0, 0.4, 200), rng.random(200)
    positive = speedup > threshold
    found = discovery(score, speedup, threshold, weight=weight)
    assert found.precision == pytest.approx(precision_score(positive, score > threshold, sample_weight=weight))
    assert found.recall == pytest.approx(recall_score(positive, score > threshold, sample_weight=weight))
    assert found.average_precision == pytest.approx(average_precision_score(positive, score, sample_weight=weight))


def test_the_single_metrics_are_the_fields():
    arrays = [1.5, 1.2, 0.8, 0.7], [2.0, 0.9, 1.3, 0.5], 1.0
    found = discovery(*arrays)
    assert (precision(*arrays), recall(*arrays), average_precision(*arrays)) == (
        found.precision,
        found.recall,
        found.average_precision,
    )


def test_a_speedup_on_the_threshold_is_not_a_discovery():
    assert discovery([2.0, 2.0], [1.0, 1.0 + 1e-9]).prevalence == 0.5
    assert discovery([1.0, 2.0], [2.0, 2.0]).called == 0.5


def test_a_score_that_is_no_speedup_brings_its_own_cutoff():
    probability_of_faster = STUDY_BINS.one_hot([3, 6])[:, 4:].sum(axis=1)
    assert discovery(probability_of_faster, [0.7, 1.7], cutoff=0.5).precision == 1.0


def test_a_score_that_knows_nothing_has_the_prevalence_as_average_precision():
    assert discovery([1.0] * 4, [2.0, 0.5, 0.5, 0.5]).average_precision == 0.25


def test_what_does_not_exist_is_nan_and_not_zero():
    nothing_called = discovery([0.5, 0.6], [2.0, 0.5])
    assert np.isnan(nothing_called.precision)
    assert nothing_called.recall == 0.0
    nothing_faster = discovery([2.0, 0.6], [0.7, 0.5])
    assert nothing_faster.precision == 0.0
    assert np.isnan([nothing_faster.recall, nothing_faster.average_precision]).all()


def test_a_parse_failure_is_never_called_and_ranks_last():
    found = discovery([-np.inf, 1.5], [2.0, 0.5])
    assert (found.precision, found.recall, found.average_precision) == (0.0, 0.0, 0.5)


@pytest.mark.parametrize("threshold", [0.0, -1.0, np.nan, np.inf])
def test_a_threshold_that_is_no_speedup_is_refused(threshold):
    with pytest.raises(ValueError, match="threshold must be a positive speedup"):
        discovery([1.0], [1.0], threshold)
