from itertools import combinations

import numpy as np
import pytest

from kfs.score import bootstrap, expected_best, mean, recovery, recovery_curve


def test_curve_of_three_kernels_by_hand():
    curve = recovery_curve([0.1, 0.9, 0.5], [4.0, 1.0, 2.0])
    assert curve.share == pytest.approx([1 / 3, 2 / 3, 1])
    assert curve.found == pytest.approx([0.25, 0.5, 1.0])
    assert curve.random == pytest.approx([(4 + 1 + 2) / 12, (4 + 4 + 2) / 12, 1.0])


def test_expected_best_is_the_mean_over_every_subset(rng):
    values = rng.random(9)
    exact = [np.mean([max(s) for s in combinations(values, k)]) for k in range(1, 10)]
    assert expected_best(values, range(1, 10)) == pytest.approx(exact)


def test_expected_best_of_a_large_pool_keeps_its_digits(rng):
    values = rng.lognormal(0, 1, 20_000)
    mean_of_one, largest = expected_best(values, [1, 20_000])
    assert mean_of_one == pytest.approx(values.mean(), rel=1e-9)
    assert largest == values.max()


def test_equal_scores_are_a_random_order(rng):
    curve = recovery_curve(np.zeros(12), rng.random(12))
    assert curve.found == pytest.approx(curve.random)


def test_ties_give_the_mean_over_every_order_of_the_tied(rng):
    score, speedup = np.array([2, 1, 1, 1, 1, 0.5, 0]), rng.random(7)
    for k in range(1, 8):
        ways = []
        for extra in combinations(range(1, 5), min(max(k - 1, 0), 4)):
            ways.append(max(speedup[[0, *extra, *range(5, k)]]))
        assert recovery_curve(score, speedup).found[k - 1] * speedup.max() == pytest.approx(np.mean(ways))


def test_row_order_changes_nothing(rng):
    score, speedup = rng.integers(0, 4, 30), rng.random(30)
    order = rng.permutation(30)
    assert recovery_curve(score[order], speedup[order]).found == pytest.approx(recovery_curve(score, speedup).found)


def test_a_perfect_score_finds_the_best_at_once_and_the_worst_score_last(rng):
    speedup = rng.random(20)
    assert recovery_curve(speedup, speedup).found == pytest.approx(np.ones(20))
    assert recovery_curve(-speedup, speedup).found == pytest.approx(np.sort(speedup) / speedup.max())


def test_failed_kernels_cost_a_measurement_and_find_nothing():
    assert recovery_curve([3, 2, 1], [0.0, 2.0, 4.0]).found.tolist() == [0.0, 0.5, 1.0]


def test_a_parse_failure_ranks_last():
    assert recovery_curve([-np.inf, 0.1, -50.0], [3.0, 1.0, 2.0]).found == pytest.approx([1 / 3, 2 / 3, 1.0])


def test_shares_round_up_to_whole_kernels():
    pools = np.repeat(["a", "b"], [30, 4])
    result = recovery(np.arange(34.0), np.arange(1.0, 35.0), pools, shares=[0.1, 0.3, 1.0])
    assert result.k.tolist() == [[3, 9, 30], [1, 2, 4]]
    assert result.at(0.1).share == pytest.approx([0.1, 0.25])


def test_pools_give_what_each_gives_alone(rng):
    pool, score, speedup = rng.integers(0, 3, 60), rng.integers(0, 9, 60), rng.random(60)
    result = recovery(score, speedup, pool)
    for i, name in enumerate(result.pools):
        alone = recovery_curve(score[pool == name], speedup[pool == name])
        assert result.found[i] == pytest.approx(alone.found[result.k[i] - 1])
        assert result.random[i] == pytest.approx(alone.random[result.k[i] - 1])
    assert result.mean().found[9] == pytest.approx(result.at(0.1).found.mean())


def test_the_ten_percent_point_has_an_interval_over_pools(rng):
    pool = np.repeat(np.arange(8), 10)
    result = recovery(rng.random(80), rng.random(80), pool)
    interval = bootstrap(mean, (result.at(0.1).found,), result.pools, rng=rng)
    assert interval.low <= interval.estimate <= interval.high
    assert interval.estimate == pytest.approx(result.mean().found[9])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 2], [1.0], ["a", "a"]), "speedup has 1 rows"),
        (([1, 2], [1.0, 2.0], ["a"]), "pool must have shape"),
        (([1, 2], [0.0, 0.0], ["a", "a"]), "pool a has no kernel with a positive speedup"),
        (([1, np.nan], [1.0, 2.0], ["a", "a"]), "score, row 1: found nan"),
        (([1, 2], [1.0, -1.0], ["a", "a"]), "speedup, row 1: found -1"),
        (([1, 2], [1.0, np.nan], ["a", "a"]), "speedup, row 1: found nan"),
    ],
)
def test_bad_pools_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        recovery(*arguments)


def test_shares_that_do_not_exist_are_refused():
    with pytest.raises(ValueError, match=r"shares must lie in \(0, 1\]"):
        recovery([1.0], [1.0], ["a"], shares=[0.0, 0.5])
    with pytest.raises(ValueError, match=r"share 0.25 was not computed"):
        recovery([1.0], [1.0], ["a"], shares=[0.5]).at(0.25)
    with pytest.raises(ValueError, match="whole numbers 1 to 2"):
        expected_best([1.0, 2.0], [3])
