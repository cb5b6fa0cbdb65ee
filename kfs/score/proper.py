"""Proper scores of bin forecasts: half Brier, CRPS over the seven inner edges, negative log likelihood.

Each is lowest in expectation when the stated distribution is the true one, so none can be gained by overstating confidence.
A reply that could not be parsed counts as the uniform forecast. Does not judge the predicted bin alone: see accuracy.py.

Sources: Brier (1950); Gneiting and Raftery, "Strictly proper scoring rules, prediction, and estimation" (2007); forms and
scales of arXiv 2605.31464.
"""

from __future__ import annotations

import numpy as np

from kfs.score._rows import _average, by_block, cells, checked_bins, checked_probabilities, checked_weight, mean_of
from kfs.speedup import N_BINS

NLL_FLOOR = 1e-12
"""Least probability the negative log likelihood charges for."""

_ONES = np.ones(N_BINS)


def half_brier_per_row(probabilities, true_bin, *, parse_failed=None) -> np.ndarray:
    """Half the squared distance of a forecast to the truth's one-hot vector, shape (n_rows,), in [0, 1]."""
    p, _ = checked_probabilities(probabilities, parse_failed)
    return by_block(_half_brier, p, checked_bins(true_bin, len(p)))


def _half_brier(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    distance = p.copy()
    distance.reshape(-1)[cells(p, y)] -= 1.0
    np.square(distance, out=distance)
    return 0.5 * (distance @ _ONES)


def crps_per_row(probabilities, true_bin, *, parse_failed=None) -> np.ndarray:
    """Mean squared difference of the cumulative distributions of forecast and truth at the 7 inner edges, shape (n_rows,)."""
    p, _ = checked_probabilities(probabilities, parse_failed)
    return by_block(_crps, p, checked_bins(true_bin, len(p)))


def _crps(p: np.ndarray, y: np.ndarray) -> np.ndarray:
    cumulative, total = np.zeros(len(p)), np.zeros(len(p))
    for edge in range(N_BINS - 1):
        cumulative += p[:, edge]
        difference = cumulative - (y <= edge)
        total += np.square(difference, out=difference)
    return total / (N_BINS - 1)


def nll_per_row(probabilities, true_bin, *, parse_failed=None) -> np.ndarray:
    """Minus the natural logarithm of the true bin's probability, at least 1e-12, shape (n_rows,), in nats."""
    p, _ = checked_probabilities(probabilities, parse_failed)
    return -np.log(np.maximum(p.reshape(-1)[cells(p, checked_bins(true_bin, len(p)))], NLL_FLOOR))


@mean_of(half_brier_per_row)
def half_brier(probabilities, true_bin, *, parse_failed=None, weight=None) -> float:
    """Half the Brier score, mean over rows of 0.5 * sum (p - y)^2 (lower is better).

    Parameters
    ----------
    probabilities : array-like of shape (n_rows, 8)
        One distribution a row; sums to 1 within 1e-6.
    true_bin : array-like of int, shape (n_rows,)
        1 to 8.
    parse_failed : array-like of bool, shape (n_rows,), optional
        Rows whose reply could not be parsed: scored as the uniform forecast. None by default.
    weight : array-like of shape (n_rows,), optional
        Non-negative; a row of integer weight w counts like w copies. All 1 by default.

    Returns
    -------
    float
        In [0, 1]; the uniform forecast has 0.4375.

    Raises
    ------
    ValueError
        If shapes differ, there are no rows, a row is not a distribution, or a bin lies outside 1 to 8.

    Examples
    --------
    >>> half_brier([[0, 0, 0, 0.5, 0.5, 0, 0, 0]], [4])
    0.25
    """
    losses = half_brier_per_row(probabilities, true_bin, parse_failed=parse_failed)
    return _average(losses, checked_weight(weight, len(losses)))


@mean_of(crps_per_row)
def crps(probabilities, true_bin, *, parse_failed=None, weight=None) -> float:
    """Ranked probability score: mean over rows of sum (F - F*)^2 / 7 over the seven inner edges (lower is better).

    Unlike the Brier score it charges more for probability further from the true bin.

    Parameters, result and errors as for :func:`half_brier`.

    Examples
    --------
    >>> round(crps([[0, 0, 0, 0, 0, 0, 0, 1]], [6]) * 7, 6)
    2.0
    """
    losses = crps_per_row(probabilities, true_bin, parse_failed=parse_failed)
    return _average(losses, checked_weight(weight, len(losses)))


@mean_of(nll_per_row)
def nll(probabilities, true_bin, *, parse_failed=None, weight=None) -> float:
    """Negative log likelihood in nats, with probabilities floored at 1e-12 (lower is better).

    Parameters and errors as for :func:`half_brier`; the result lies between 0 and 27.64 and is log 8 for the uniform forecast.

    Examples
    --------
    >>> round(nll([[0, 0, 0, 0.5, 0.5, 0, 0, 0]], [4]), 4)
    0.6931
    """
    losses = nll_per_row(probabilities, true_bin, parse_failed=parse_failed)
    return _average(losses, checked_weight(weight, len(losses)))
