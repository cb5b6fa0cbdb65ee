import numpy as np
import pytest

from kfs.score import ece, reliability
from kfs.speedup import STUDY_BINS


def rows_of(*tops):
    """Forecasts whose most probable bin is bin 4, with the given probabilities; the rest on the bins right of it."""
    return np.array([[0, 0, 0, top, *[(1 - top) / 4] * 4] for top in tops])


def test_hand_computed_ece():
    # (0.8, 0.9]: confidence 0.85, accuracy 0.5, two rows; (0.5, 0.6]: confidence 0.6, accuracy 1, one row
    assert ece(rows_of(0.85, 0.85, 0.6), [4, 5, 4]) == pytest.approx((2 * 0.35 + 0.4) / 3)


def test_a_bucket_is_the_mean_over_its_rows_before_the_difference_is_taken():
    assert ece(rows_of(0.81, 0.89), [4, 5]) == pytest.approx(abs(0.85 - 0.5))


@pytest.mark.parametrize("top", [0.3, 0.4, 0.6, 0.7, 0.9])
def test_a_probability_on_an_edge_stays_in_the_bucket_below_after_renormalising(top):
    for factor in (0.75, 0.9, 1.0, 1.1):
        stated = rows_of(top) * factor
        curve = reliability(stated / stated.sum(), [4])
        assert curve.high[curve.weight > 0] == pytest.approx([top])


def test_a_perfectly_calibrated_forecaster_has_no_error():
    assert ece(rows_of(0.75, 0.75, 0.75, 0.75), [4, 4, 4, 5]) == pytest.approx(0.0)


def test_certain_and_right_is_calibrated_certain_and_wrong_is_not():
    assert ece(STUDY_BINS.one_hot([2, 7]), [2, 7]) == 0.0
    assert ece(STUDY_BINS.one_hot([2, 7]), [3, 8]) == 1.0


def test_parse_failures_are_left_out(rows):
    p, y, failed = rows["probabilities"], rows["true_bin"], rows["parse_failed"]
    assert ece(p, y, parse_failed=failed) == pytest.approx(ece(p[~failed], y[~failed]))
    assert reliability(p, y, parse_failed=failed).weight.sum() == 37


def test_ece_of_nothing_but_parse_failures_does_not_exist():
    assert np.isnan(ece(np.full((2, 8), 1 / 8), [1, 2], parse_failed=[True, True]))


def test_reliability_agrees_with_scikit_learn_and_sums_to_ece(rng):
    from sklearn.calibration import calibration_curve

    p, y = rng.dirichlet(np.full(8, 0.4), 500), rng.integers(1, 9, 500)
    curve = reliability(p, y)
    used = curve.weight > 0
    accuracy, confidence = calibration_curve(p.argmax(axis=1) + 1 == y, p.max(axis=1), n_bins=10, strategy="uniform")
    assert curve.accuracy[used] == pytest.approx(accuracy)
    assert curve.confidence[used] == pytest.approx(confidence)
    gaps = np.abs(curve.accuracy - curve.confidence)[used]
    assert ece(p, y) == pytest.approx(gaps @ curve.weight[used] / 500)
