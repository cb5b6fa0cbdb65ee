import numpy as np
import pytest

from kfs.score import crps, crps_per_row, half_brier, half_brier_per_row, nll, nll_per_row
from kfs.speedup import STUDY_BINS

UNIFORM = np.full((1, 8), 1 / 8)


def test_hand_computed_scores_of_one_row():
    p = [[0, 0, 0, 0.6, 0.3, 0.1, 0, 0]]
    assert half_brier(p, [5]) == pytest.approx(0.5 * (0.36 + 0.49 + 0.01))
    assert crps(p, [5]) == pytest.approx((0.6**2 + 0.1**2) / 7)
    assert nll(p, [5]) == pytest.approx(-np.log(0.3))


def test_the_uniform_forecast_scores_as_worked_out_by_hand():
    assert half_brier(UNIFORM, [3]) == pytest.approx(0.4375)
    assert crps(UNIFORM, [1]) == pytest.approx(sum((k / 8) ** 2 for k in range(1, 8)) / 7)
    assert nll(UNIFORM, [3]) == pytest.approx(np.log(8))


def test_a_certain_forecast_spans_the_whole_scale():
    certain = STUDY_BINS.one_hot([8])
    assert (half_brier(certain, [8]), crps(certain, [8]), nll(certain, [8])) == (0.0, 0.0, 0.0)
    assert (half_brier(certain, [1]), crps(certain, [1])) == (1.0, 1.0)
    assert nll(certain, [1]) == pytest.approx(-np.log(1e-12))


@pytest.mark.parametrize("metric", [half_brier, crps, nll])
def test_a_parse_failure_counts_as_the_uniform_forecast(metric, rows):
    stood_in = np.where(rows["parse_failed"][:, None], 1 / 8, rows["probabilities"])
    failed = metric(rows["probabilities"], rows["true_bin"], parse_failed=rows["parse_failed"])
    assert failed == pytest.approx(metric(stood_in, rows["true_bin"]), rel=1e-12)


@pytest.mark.parametrize("metric", [half_brier, crps, nll])
def test_expected_loss_is_least_at_the_true_distribution(metric, rng):
    for truth in rng.dirichlet(np.ones(8), 20):
        at_truth = metric(np.tile(truth, (8, 1)), range(1, 9), weight=truth)
        for other in rng.dirichlet(np.ones(8), 20):
            for step in (0.01, 0.3, 1.0):
                stated = truth + step * (other - truth)
                assert metric(np.tile(stated, (8, 1)), range(1, 9), weight=truth) > at_truth


def test_crps_charges_for_distance_and_half_brier_does_not():
    near, far = STUDY_BINS.one_hot([4]), STUDY_BINS.one_hot([8])
    assert half_brier(near, [3]) == half_brier(far, [3])
    assert crps(near, [3]) == pytest.approx(1 / 7)
    assert crps(far, [3]) == pytest.approx(5 / 7)


def test_crps_is_the_mean_half_brier_of_the_seven_two_way_questions(rng):
    p, y = rng.dirichlet(np.ones(8), 30), rng.integers(1, 9, 30)
    brier = [((p[:, :k].sum(axis=1) - (y <= k)) ** 2).mean() for k in range(1, 8)]
    assert crps(p, y) == pytest.approx(np.mean(brier))


def test_half_brier_and_nll_agree_with_scikit_learn(rng):
    from sklearn.metrics import brier_score_loss, log_loss

    p, y = rng.dirichlet(np.ones(8), 200), rng.integers(1, 9, 200)
    weight = rng.random(200)
    labels = list(range(1, 9))
    expected = brier_score_loss(y, p, labels=labels, sample_weight=weight, scale_by_half=True)
    assert half_brier(p, y, weight=weight) == pytest.approx(expected)
    assert nll(p, y, weight=weight) == pytest.approx(log_loss(y, p, labels=labels, sample_weight=weight))


@pytest.mark.parametrize(
    ("metric", "per_row"), [(half_brier, half_brier_per_row), (crps, crps_per_row), (nll, nll_per_row)], ids=lambda f: f.__name__
)
def test_a_score_is_the_mean_of_its_rows(metric, per_row, rows):
    named = {key: rows[key] for key in ("probabilities", "true_bin", "parse_failed")}
    assert metric(**named) == pytest.approx(per_row(**named).mean())
    assert per_row(**named).shape == (40,)
