"""Bad input, weights, and the agreement of each metric with the form of it that the bootstrap uses."""

import numpy as np
import pytest

from kfs import score
from kfs.errors import KfsError

LABELLED = [score.accuracy, score.within_one, score.mean_bin_error, score.half_brier, score.crps, score.nll, score.ece]
RANKED = [score.spearman, score.kendall]
PAIRS = [score.precision, score.recall, score.average_precision]


def arguments(metric, rows):
    """What the metric is called with, by name."""
    if metric in LABELLED:
        return {key: rows[key] for key in ("probabilities", "true_bin", "parse_failed")}
    if metric in RANKED:
        return {key: rows[key] for key in ("probabilities", "speedup", "parse_failed")}
    confidence = score.max_probability(rows["probabilities"])
    if metric in PAIRS:
        return {"score": np.round(3 * confidence, 1), "speedup": rows["speedup"]}
    if metric is score.aurc:
        return {"losses": score.bin_error_per_row(rows["probabilities"], rows["true_bin"]), "confidence": np.round(confidence, 1)}
    return {"values": rows["speedup"]}


ALL = [*LABELLED, *RANKED, *PAIRS, score.aurc, score.mean]
named = pytest.mark.parametrize("metric", ALL, ids=lambda metric: metric.__name__)


@named
def test_a_row_of_integer_weight_counts_like_that_many_copies(metric, rows, rng):
    named = arguments(metric, rows)
    weight = rng.integers(0, 4, len(rows["true_bin"]))
    copies = {key: np.repeat(value, weight, axis=0) for key, value in named.items()}
    assert metric(**named, weight=weight) == pytest.approx(metric(**copies), rel=1e-12)


@named
def test_equal_weights_change_nothing(metric, rows):
    named = arguments(metric, rows)
    assert metric(**named, weight=np.full(40, 0.3)) == pytest.approx(metric(**named), rel=1e-12)


@named
def test_row_order_changes_nothing(metric, rows, rng):
    named = arguments(metric, rows)
    order = rng.permutation(40)
    assert metric(**{key: value[order] for key, value in named.items()}) == pytest.approx(metric(**named), rel=1e-12)


@named
def test_what_the_bootstrap_computes_at_once_is_the_metric(metric, rows, rng):
    named = arguments(metric, rows)
    weights = rng.integers(0, 3, (5, 40)).astype(float)
    if hasattr(metric, "sums"):
        features, finish = metric.sums(**named)
        values = finish(weights @ features)
    else:
        values = metric.many(**named)(weights)
    assert values == pytest.approx([metric(**named, weight=w) for w in weights], rel=1e-12)


@pytest.mark.parametrize("metric", LABELLED + RANKED, ids=lambda metric: metric.__name__)
def test_probabilities_of_failed_rows_are_never_read(metric, rows):
    named = arguments(metric, rows)
    expected = metric(**named)
    spoilt = named["probabilities"].copy()
    spoilt[rows["parse_failed"]] = np.nan
    assert metric(**(named | {"probabilities": spoilt})) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"probabilities": np.full((2, 7), 1 / 7)}, r"shape \(n_rows, 8\).*found shape \(2, 7\)"),
        ({"probabilities": np.full(8, 1 / 8)}, r"found shape \(8,\)"),
        ({"probabilities": np.empty((0, 8)), "true_bin": []}, "no rows"),
        ({"probabilities": [[1 / 8] * 8, [np.nan] + [1 / 7] * 7]}, "row 1: found .*nan.*parse_failed"),
        ({"probabilities": [[np.inf, -np.inf] + [0] * 6, [1 / 8] * 8]}, "row 0: found .*inf"),
        ({"probabilities": [[1 / 8] * 8, [1.1, -0.1] + [0] * 6]}, "row 1, bin 2: found -0.1, allowed is 0 or more"),
        ({"probabilities": [[0.98] + [0] * 7, [1] + [0] * 7]}, "row 0: they sum to 0.98, allowed is 1 within 1e-06"),
        ({"true_bin": [0, 4]}, "row 0: found 0, allowed are 1 to 8"),
        ({"true_bin": [4, 9]}, "row 1: found 9, allowed are 1 to 8"),
        ({"true_bin": [4, 4.5]}, "whole numbers 1 to 8"),
        ({"true_bin": [4, np.nan]}, "whole numbers 1 to 8"),
        ({"true_bin": [True, False]}, "whole numbers 1 to 8"),
        ({"true_bin": [4, 5, 6]}, r"true_bin must have shape \(2,\)"),
        ({"parse_failed": [True]}, r"parse_failed must have shape \(2,\)"),
        ({"parse_failed": [2, 0]}, "booleans"),
        ({"weight": [1.0]}, "weight has 1 rows, the others have 2"),
        ({"weight": [1.0, -1.0]}, "weight, row 1: found -1"),
        ({"weight": [0.0, 0.0]}, "every weight is 0"),
        ({"weight": [1.0, np.nan]}, "weight, row 1: found nan"),
    ],
)
@pytest.mark.parametrize("metric", LABELLED, ids=lambda metric: metric.__name__)
def test_bad_rows_are_refused_by_what_was_found_and_allowed(metric, change, message):
    good = {"probabilities": np.full((2, 8), 1 / 8), "true_bin": [4, 5]}
    with pytest.raises(ValueError, match=message) as error:
        metric(**(good | change))
    assert isinstance(error.value, KfsError)


def test_sums_within_a_millionth_of_one_are_accepted():
    row = np.full(8, 1 / 8)
    assert score.half_brier([row * (1 + 9e-7)], [4]) == pytest.approx(0.4375, abs=1e-6)
    with pytest.raises(ValueError, match="they sum to"):
        score.half_brier([row * (1 + 2e-6)], [4])


@pytest.mark.parametrize("speedup", [[1.0, 0.0], [1.0, -2.0], [1.0, np.nan], [1.0, np.inf], [1.0]])
def test_rank_measures_refuse_speedups_that_are_not_positive_and_finite(speedup):
    with pytest.raises(ValueError, match="speedup"):
        score.spearman(np.full((2, 8), 1 / 8), speedup)


def test_blocks_of_rows_give_what_single_rows_give(rng):
    n = 20_000  # several blocks
    p, y = rng.dirichlet(np.ones(8), n), rng.integers(1, 9, n)
    some = rng.choice(n, 50, replace=False)
    for per_row in (score.half_brier_per_row, score.crps_per_row, score.nll_per_row, score.bin_error_per_row):
        assert per_row(p, y)[some] == pytest.approx([per_row(p[[i]], y[[i]])[0] for i in some], rel=1e-12)
