"""Deferral: thresholds, their promises on clustered data, and how calibrating on rows breaks them."""

import math

import numpy as np
import pytest

from kfs.forecast.decide import Decision, Threshold, by_cost, controlled, expected_losses, guaranteed, one_a_task


def clustered(rng, n_tasks, rows=40):
    """Confidence, wrong, task: each task has a difficulty of its own, which its pairs share and the confidence barely shows."""
    task = np.repeat(np.arange(n_tasks), rows)
    difficulty = rng.beta(0.5, 2.0, n_tasks)[task]
    confidence = np.clip(0.75 - 0.25 * difficulty + rng.normal(0, 0.15, len(task)), 0, 1)
    wrong = (rng.random(len(task)) < difficulty * (1.4 - confidence)).astype(float)
    return confidence, wrong, task


def test_a_threshold_trusts_what_reaches_it_and_never_a_parse_failure():
    rule = Threshold(-5.0)
    assert rule.trusts([0.2, 0.0, -1.0]).tolist() == [True, True, False]
    assert Threshold(0.5).decide(0.5) == Decision.TRUST and Threshold(math.inf).decide(1.0) == Decision.MEASURE


def test_the_cost_rule_trusts_what_costs_less_than_measuring():
    losses = expected_losses([[0, 0, 0, 0, 1, 0, 0, 0], [0.25, 0, 0, 0.25, 0.5, 0, 0, 0]])
    assert losses.tolist() == [0, 1.25]
    assert by_cost(losses, 1.0).tolist() == [True, False]


def test_risk_control_takes_the_largest_coverage_that_keeps_the_bound():
    confidence, wrong = [0.9, 0.8, 0.7, 0.6] * 9, [0, 0, 0, 1] * 9
    task = np.repeat(np.arange(9), 4)
    found = controlled(confidence, wrong, task, 0.2)  # nine tasks: (0 + 1) / 10 down to 0.7, then (9 / 4 + 1) / 10
    assert (found.threshold, found.bound) == (0.7, pytest.approx(0.1))
    assert controlled(confidence, wrong, task, 0.33).threshold == 0.6


def test_too_few_tasks_are_answered_with_trust_nothing():
    found = controlled([0.9] * 30, [0] * 30, np.repeat([0, 1, 2], 10), 0.2)
    assert found.threshold == math.inf and not found.trusts([1.0]).any()
    assert guaranteed([0.9] * 5, [0] * 5, 0.1, 0.1).threshold == math.inf


def test_parse_failures_count_as_rows_and_are_never_trusted():
    found = controlled([0.9, -1.0] * 40, [0, 1] * 40, np.repeat(np.arange(40), 2), 0.1)
    assert found.threshold == 0.9


@pytest.mark.parametrize("risk", [0.05, 0.1, 0.2])
def test_risk_control_keeps_its_promise_on_tasks_it_has_not_seen(rng, risk):
    lost, used = [], 0
    for _ in range(400):
        confidence, wrong, task = clustered(rng, 31)
        old = task < 30
        rule = controlled(confidence[old], wrong[old], task[old], risk)
        lost.append((wrong[~old] * rule.trusts(confidence[~old])).mean())
        used += rule.threshold < math.inf
    assert np.mean(lost) <= risk + 2 * np.std(lost) / math.sqrt(len(lost))
    assert used > 350 or risk < 0.1


def failures(rng, calibrate, n_tasks, risk, n=300):
    """How often the true risk of what is trusted exceeds the one promised, and how often anything is trusted."""
    confidence, wrong, _ = clustered(rng, 5000)
    missed = used = 0
    for _ in range(n):
        trusted = calibrate(*clustered(rng, n_tasks), risk).trusts(confidence)
        used += trusted.any()
        missed += trusted.any() and wrong[trusted].mean() > risk
    return missed / n, used / n


def test_guaranteed_risk_holds_on_one_pair_a_task(rng):
    def apart(confidence, wrong, task, risk):
        rows = one_a_task(task, rng)
        return guaranteed(confidence[rows], wrong[rows], risk, 0.05)

    kept, used = failures(rng, apart, n_tasks=200, risk=0.2)
    assert kept <= 0.05 and used > 0.5


def test_guaranteed_risk_breaks_on_rows_of_few_tasks(rng):
    broken, _ = failures(rng, lambda confidence, wrong, _, risk: guaranteed(confidence, wrong, risk, 0.05), n_tasks=10, risk=0.12)
    assert broken > 0.08


def test_risk_control_on_rows_breaks_its_promise(rng):
    lost = []
    for _ in range(2000):
        confidence, wrong, task = clustered(rng, 4)
        old = task < 3
        rule = controlled(confidence[old], wrong[old], np.arange(old.sum()), 0.05)  # every row a task of its own
        lost.append((wrong[~old] * rule.trusts(confidence[~old])).mean())
    assert np.mean(lost) > 0.05 + 2 * np.std(lost) / math.sqrt(len(lost))


def test_one_a_task_draws_each_task_once(rng):
    task = np.array([3, 1, 1, 2, 3, 3])
    drawn = [one_a_task(task, rng) for _ in range(200)]
    assert all(sorted(task[d]) == [1, 2, 3] for d in drawn)
    assert {int(i) for d in drawn for i in d} == set(range(6))


@pytest.mark.parametrize("bad", [dict(wrong=[0, 2]), dict(confidence=[0.1, math.nan]), dict(task=[1])])
def test_rows_that_make_no_sense_are_refused(bad):
    with pytest.raises(ValueError, match=r"rows of equal number|finite"):
        controlled(**{"confidence": [0.5, 0.6], "wrong": [0, 1], "task": [1, 2], "risk": 0.5} | bad)
