"""Trust a forecast, or measure: rules on a confidence, and thresholds that keep a promise.

A rule trusts the forecasts whose confidence reaches a threshold. ``controlled`` chooses it so that on a new task the expected
share of pairs that are wrong and trusted is at most a risk; it assumes that the new task is exchangeable with those it was
calibrated on. ``guaranteed`` chooses it so that, with probability 1 - delta, a trusted pair is wrong at most so often; it
assumes independent pairs, so it is given one random pair a task. Both may trust nothing. Calibrating on rows, as if pairs of a
task were independent, breaks both promises (tests/forecast/test_decide.py). Pure functions on arrays.

Sources: Angelopoulos et al., "Conformal risk control" (2024); Geifman and El-Yaniv, "Selective classification for deep neural
networks" (2017); Chow, "On optimum recognition error and reject tradeoff" (1970) for the cost rule.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from scipy.stats import beta

from kfs.speedup import N_BINS


class Decision(StrEnum):
    """What to do with a candidate."""

    TRUST = "trust"
    MEASURE = "measure"


@dataclass(frozen=True)
class Threshold:
    """Trust where the confidence is at least ``threshold``; an infinite one trusts nothing."""

    threshold: float
    promise: str = ""
    """What it keeps, and what that assumes; empty where it promises nothing."""
    bound: float | None = None
    """The risk it was shown to keep, at most the one asked for."""

    def trusts(self, confidence) -> np.ndarray:
        """Which rows are trusted, shape (n,); a parse failure, of confidence -1, never is."""
        confidence = np.asarray(confidence, dtype=float)
        return (confidence >= self.threshold) & (confidence >= 0)

    def decide(self, confidence: float) -> Decision:
        """For a single forecast."""
        return Decision.TRUST if bool(self.trusts(confidence)) else Decision.MEASURE


def expected_losses(probabilities) -> np.ndarray:
    """What trusting the likeliest bin costs by the forecast's own distribution, in bins off, shape (n,).

    Parameters
    ----------
    probabilities : array-like of shape (n, 8)

    Examples
    --------
    >>> expected_losses([[0, 0, 0, 0.25, 0.75, 0, 0, 0]]).tolist()
    [0.25]
    """
    p = np.asarray(probabilities, dtype=float)
    off = np.abs(np.arange(N_BINS)[:, None] - np.arange(N_BINS))
    return (p * off[p.argmax(axis=1)]).sum(axis=1)


def by_cost(expected_loss, price: float) -> np.ndarray:
    """Which rows to trust when a measurement costs ``price``, in the units of the loss: those whose expected loss is no more.

    Optimal where the expected losses are right; a forecaster that is too sure trusts too much.

    Parameters
    ----------
    expected_loss : array-like of shape (n,)
        For example of :func:`expected_losses`, or 1 - the largest probability.
    price : float
        Of one measurement.
    """
    return np.asarray(expected_loss, dtype=float) <= price


def controlled(confidence, wrong, task, risk: float) -> Threshold:
    """Threshold for new tasks by conformal risk control, with the task as the unit.

    Parameters
    ----------
    confidence : array-like of shape (n_rows,)
        Of calibration pairs; -1 for parse failures.
    wrong : array-like of shape (n_rows,)
        Loss of trusting each, in [0, 1]; 1 where the predicted bin is wrong.
    task : array-like of shape (n_rows,)
        Which task (or group of near-duplicate problems) each pair is of.
    risk : float
        Largest expected share of a new task's pairs that may be both wrong and trusted.

    Returns
    -------
    Threshold
        The smallest threshold that keeps the promise; infinite where there are fewer than 1 / risk - 1 tasks.
    """
    confidence, wrong, unit, n = _rows(confidence, wrong, task)
    if not 0 < risk < 1:
        raise ValueError(f"risk {risk}: a share between 0 and 1 is needed")
    share = wrong / np.bincount(unit, minlength=n)[unit] / n  # of its task's mean, of the mean over tasks
    order = np.argsort(-confidence, kind="stable")
    ranked, total = confidence[order], np.cumsum(share[order])
    last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # rows of one confidence are trusted together
    bound = (n * total[last] + 1) / (n + 1)
    kept = np.flatnonzero((bound <= risk + 1e-12) & (ranked[last] >= 0))
    promise = (
        f"on a new task the expected share of pairs that are wrong and trusted is at most {risk:g}, if it is exchangeable with "
        f"the {n} tasks of the calibration (conformal risk control)"
    )
    if not len(kept):
        return Threshold(math.inf, promise, 1 / (n + 1) if 1 / (n + 1) <= risk else None)
    return Threshold(float(ranked[last[kept[-1]]]), promise, float(bound[kept[-1]]))


def one_a_task(task, rng: np.random.Generator) -> np.ndarray:
    """Positions of one random row of every task: independent rows, where tasks are."""
    task = np.asarray(task)
    order = rng.permutation(len(task))
    _, first = np.unique(task[order], return_index=True)
    return np.sort(order[first])


def guaranteed(confidence, wrong, risk: float, delta: float = 0.1) -> Threshold:
    """Threshold whose trusted pairs are wrong at most so often, with high probability (selection with guaranteed risk).

    Parameters
    ----------
    confidence, wrong : array-like of shape (n_rows,)
        Of independent calibration pairs, so at most one a task (:func:`one_a_task`); ``wrong`` is 0 or 1.
    risk : float
        Largest probability that a trusted pair is wrong.
    delta : float
        Probability, over calibration sets, that the promise fails.

    Returns
    -------
    Threshold
        The one of largest coverage found by halving, each step at confidence 1 - delta / steps; infinite where none holds.
    """
    confidence, wrong, _, n = _rows(confidence, wrong, np.arange(len(np.asarray(confidence))))
    if not (0 < risk < 1 and 0 < delta < 1):
        raise ValueError(f"risk {risk}, delta {delta}: shares between 0 and 1 are needed")
    if not np.isin(wrong, (0, 1)).all():
        raise ValueError("wrong must be 0 or 1: the bound is binomial")
    ranked = np.sort(confidence[confidence >= 0])[::-1]
    steps = max(math.ceil(math.log2(max(len(ranked), 2))), 1)
    least, most, best, bound = 1, len(ranked), math.inf, None
    for _ in range(steps if len(ranked) else 0):
        size = (least + most + 1) // 2
        trusted = confidence >= ranked[size - 1]
        errors, m = int(wrong[trusted].sum()), int(trusted.sum())
        worst = float(beta.ppf(1 - delta / steps, errors + 1, m - errors)) if errors < m else 1.0
        if worst <= risk:
            best, bound, least = float(ranked[size - 1]), worst, size
        else:
            most = size - 1
        if most < least:
            break
    promise = (
        f"with probability {1 - delta:g} a trusted pair is wrong with probability at most {risk:g}, if pairs are independent "
        f"draws like the {n} of the calibration (selection with guaranteed risk)"
    )
    return Threshold(best, promise, bound)


def _rows(confidence, wrong, task) -> tuple[np.ndarray, np.ndarray, np.ndarray, int]:
    confidence, wrong = np.asarray(confidence, dtype=float), np.asarray(wrong, dtype=float)
    names, unit = np.unique(np.asarray(task), return_inverse=True)
    if not len(confidence) or not confidence.shape == wrong.shape == unit.shape:
        raise ValueError(f"need rows of equal number, found {confidence.shape}, {wrong.shape} and {unit.shape}")
    if not (np.isfinite(confidence).all() and ((wrong >= 0) & (wrong <= 1)).all()):
        raise ValueError("confidences must be finite and losses lie in [0, 1]")
    return confidence, wrong, unit, len(names)
