import numpy as np
import pytest
from scipy import stats

from kfs.score import kendall, spearman
from kfs.speedup import RELEASED_LABELS, STUDY_BINS

BOTH = pytest.mark.parametrize(("metric", "reference"), [(spearman, stats.spearmanr), (kendall, stats.kendalltau)])


@BOTH
@pytest.mark.parametrize("n", [2, 3, 17, 300])
def test_agrees_with_scipy_without_and_with_ties(metric, reference, n, rng):
    p = rng.dirichlet(np.ones(8), n)
    speedup = rng.lognormal(0, 1, n)
    expected = STUDY_BINS.expected_log2_speedup(p)
    assert metric(p, speedup) == pytest.approx(reference(expected, speedup).statistic)
    coarse, bins = np.round(speedup * 2 + 1), STUDY_BINS.one_hot(rng.integers(1, 9, n))
    coarse[0], coarse[-1], bins[0], bins[-1] = 1.0, 20.0, np.eye(8)[0], np.eye(8)[7]
    assert metric(bins, coarse) == pytest.approx(reference(STUDY_BINS.expected_log2_speedup(bins), coarse).statistic)


@BOTH
def test_parse_failures_are_left_out(metric, reference, rows):
    failed = rows["parse_failed"]
    kept = STUDY_BINS.expected_log2_speedup(rows["probabilities"][~failed]).round(12), rows["speedup"][~failed]
    assert metric(rows["probabilities"], rows["speedup"], parse_failed=failed) == pytest.approx(reference(*kept).statistic)


@BOTH
def test_weights_need_not_be_whole_numbers(metric, reference, rows):
    thirds = np.arange(40) % 3 / 3
    fractional = metric(rows["probabilities"], rows["speedup"], weight=thirds)
    assert fractional == pytest.approx(metric(rows["probabilities"], rows["speedup"], weight=3 * thirds))


@BOTH
def test_one_forecast_for_every_row_ranks_nothing(metric, reference, rng):
    for p in rng.dirichlet(np.ones(8), 5):
        assert np.isnan(metric(np.tile(p, (333, 1)), rng.lognormal(0, 1, 333)))


@BOTH
def test_nothing_but_parse_failures_ranks_nothing(metric, reference):
    assert np.isnan(metric(np.full((2, 8), 1 / 8), [1.0, 2.0], parse_failed=[True, True]))


@BOTH
def test_rank_is_one_where_the_orders_agree_and_minus_one_where_they_are_opposite(metric, reference):
    p, speedup = STUDY_BINS.one_hot(range(1, 9)), np.arange(1.0, 9.0)
    assert metric(p, speedup) == pytest.approx(1.0)
    assert metric(p[::-1], speedup) == pytest.approx(-1.0)


@BOTH
def test_a_monotone_change_of_the_speedup_changes_nothing(metric, reference, rows):
    assert metric(rows["probabilities"], rows["speedup"] ** 3) == pytest.approx(metric(rows["probabilities"], rows["speedup"]))


def test_the_bins_decide_what_a_forecast_expects():
    p = np.zeros((2, 8))
    p[0, [0, 7]], p[1, [1, 5]] = 1 / 2, [1 / 3, 2 / 3]  # log2: 0 and 0 under the study's bins, 0.5 and 0.58 under the release's
    assert np.isnan(spearman(p, [1.0, 2.0]))
    assert spearman(p, [1.0, 2.0], bins=RELEASED_LABELS) == pytest.approx(1.0)
