"""Rewards: hand-computed values, which of them are proper and where, and the same numbers and slopes from torch."""

import numpy as np
import pytest
import torch

from kfs.errors import SchemaError, UnknownNameError
from kfs.rl.reward import REWARDS, ranked_part, reward, weights_of
from kfs.score import crps, half_brier, nll


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def expected(which, p, q, *, stated_bin=None):
    """Expected reward of stating ``p`` when the truth is drawn from ``q``."""
    bins = np.arange(1, 9)
    stated = None if stated_bin is None else np.full(8, stated_bin)
    return float((q * reward(which, np.tile(p, (8, 1)), bins, stated_bin=stated)).sum())


def test_parts_are_one_minus_the_scores_of_the_score_room(rng):
    p, y = rng.dirichlet(np.ones(8), 50), rng.integers(1, 9, 50)
    assert reward("brier", p, y).mean() == pytest.approx(1 - half_brier(p, y))
    assert reward("crps", p, y).mean() == pytest.approx(1 - crps(p, y))
    assert reward("log", p, y).mean() == pytest.approx(1 - nll(p, y) / -np.log(1e-12))


def test_exact_rewards_the_stated_bin_and_its_expectation_where_the_bin_is_drawn():
    p = np.array([[0.5, 0.3, 0.2, 0, 0, 0, 0, 0]] * 2)
    assert reward("exact", p, [1, 2], stated_bin=[2, 2]).tolist() == [0.0, 1.0]
    assert reward("exact", p, [1, 2]).tolist() == [0.5, 0.3]


def test_weights_are_real_numbers_that_scale_their_part(rng):
    p, y = rng.dirichlet(np.ones(8), 9), rng.integers(1, 9, 9)
    mixed = reward({"exact": 0.25, "crps": 3.0}, p, y)
    np.testing.assert_allclose(mixed, 0.25 * reward("exact", p, y) + 3.0 * reward("crps", p, y))
    assert weights_of({"exact": 0.0, "brier": 2}) == {"brier": 2.0}


def test_a_failed_reply_has_the_least_reward_there_is(rng):
    p, y = rng.dirichlet(np.ones(8), 40), rng.integers(1, 9, 40)
    failed = np.arange(40) % 2 == 0
    for which in REWARDS:
        found = reward(which, p, y, speedup=rng.lognormal(size=40), failed=failed)
        assert (found[failed] == 0).all() and (found[~failed] >= 0).all()


@pytest.mark.parametrize("which", ["exact_brier", "exact_crps", "brier", "crps", "log"])
def test_beside_a_stated_bin_the_true_distribution_and_its_likeliest_bin_are_best(which, rng):
    for _ in range(20):
        q = rng.dirichlet(np.ones(8))
        best = expected(which, q, q, stated_bin=int(q.argmax()) + 1)
        for _ in range(20):
            p = 0.5 * q + 0.5 * rng.dirichlet(np.ones(8))
            assert expected(which, p, q, stated_bin=int(rng.integers(1, 9))) < best


def test_exact_alone_does_not_care_for_the_distribution(rng):
    q = rng.dirichlet(np.ones(8))
    assert expected("exact", rng.dirichlet(np.ones(8)), q, stated_bin=3) == expected("exact", q, q, stated_bin=3)


@pytest.mark.parametrize("which", ["brier", "crps", "log"])
def test_with_one_distribution_in_both_parts_a_score_alone_is_proper(which, rng):
    for _ in range(20):
        q = rng.dirichlet(np.ones(8))
        assert all(expected(which, 0.7 * q + 0.3 * rng.dirichlet(np.ones(8)), q) < expected(which, q, q) for _ in range(20))


def test_with_one_distribution_in_both_parts_exact_and_half_brier_sharpen_to_a_corner():
    q = np.array([0.75, 0.25, 0, 0, 0, 0, 0, 0])
    grid = [np.array([a, 1 - a, 0, 0, 0, 0, 0, 0]) for a in np.linspace(0, 1, 101)]
    assert max(grid, key=lambda p: expected("exact_brier", p, q))[0] == 1.0
    assert max(grid, key=lambda p: expected("exact", p, q))[0] == 1.0
    assert max(grid, key=lambda p: expected("brier", p, q))[0] == pytest.approx(0.75)


def test_ranked_counts_pairs_of_one_reference_in_the_measured_order():
    slow, fast = np.eye(8)[0], np.eye(8)[7]
    found = ranked_part(np.array([slow, fast, fast, slow]), [0.5, 2.0, 0.5, 2.0], ["a", "a", "b", "b"])
    assert found[:2].min() > 0.99 and found[2:].max() < 0.01
    assert ranked_part(np.array([slow, fast, slow]), [1.0, 1.0, 2.0], ["a", "a", "b"]).tolist() == [0.5, 0.5, 0.5]


@pytest.mark.parametrize("which", REWARDS)
def test_torch_gives_the_same_numbers_and_the_slope_of_them(which, rng):
    logits, y, speedup = rng.normal(size=(6, 8)), rng.integers(1, 9, 6), rng.lognormal(size=6)
    softmax = lambda x: np.exp(x) / np.exp(x).sum(axis=1, keepdims=True)
    given = {"speedup": speedup, "group": list("aaabbb")}
    x = torch.tensor(logits, requires_grad=True)
    found = reward(which, x.softmax(-1), y, **given)
    np.testing.assert_allclose(found.detach().numpy(), reward(which, softmax(logits), y, **given), rtol=1e-12)
    found.sum().backward()
    step = np.zeros_like(logits)
    step[2, 4] = 1e-5
    rise = (reward(which, softmax(logits + step), y, **given) - reward(which, softmax(logits - step), y, **given)).sum() / 2e-5
    assert float(x.grad[2, 4]) == pytest.approx(rise, rel=1e-4, abs=1e-9)


@pytest.mark.parametrize("which", ["log", "ranked", "exact"])
def test_slopes_are_finite_where_a_bin_is_ruled_out(which):
    p = torch.eye(8, dtype=torch.float64)[:2].requires_grad_()
    reward(which, p, [3, 4], speedup=[1.0, 2.0]).sum().backward()
    assert torch.isfinite(p.grad).all()


def test_what_is_no_reward_is_refused_by_name():
    with pytest.raises(UnknownNameError, match=r"unknown reward 'brie'.*exact_brier"):
        weights_of("brie")
    with pytest.raises(UnknownNameError, match="part of a reward 'accuracy'"):
        weights_of({"accuracy": 1.0})
    with pytest.raises(SchemaError, match=r"weight -1\.0"):
        weights_of({"exact": -1.0})
    with pytest.raises(SchemaError, match="above 0"):
        weights_of({"exact": 0.0})
    with pytest.raises(ValueError, match="bins from 1 to 8"):
        reward("exact", np.eye(8)[:1], [9])
    with pytest.raises(ValueError, match="measured speedup"):
        reward("ranked", np.eye(8)[:1], [1])
