"""How often, and by how much, the predicted bin misses: accuracy, within-one accuracy, mean absolute bin error.

The predicted bin is the argmax of the probabilities, the lower bin on a tie. A reply that could not be parsed is wrong, here
and within one, and its bin error is that of a bin drawn uniformly: it predicts no bin, so it is charged what its stand-in,
the uniform forecast, expects. Does not look at how sure a forecast is: see proper.py.

Source: arXiv 2605.31464, which takes accuracy over parsed rows only; for that convention leave the failed rows out.
"""

from __future__ import annotations

import numpy as np

from kfs.score._rows import (
    _average,
    argmax_column,
    checked_bins,
    checked_failures,
    checked_probabilities,
    checked_weight,
    mean_of,
)
from kfs.speedup import N_BINS

_BINS = np.arange(N_BINS)
_UNIFORM_ERROR = np.abs(_BINS[:, None] - _BINS).mean(axis=1)


def predicted_bin(probabilities) -> np.ndarray:
    """Bin each forecast predicts: its most probable one, the lower on a tie.

    Probabilities within 1e-12 of each other tie, so that rounding in a renormalisation cannot decide.

    Parameters
    ----------
    probabilities : array-like of shape (n_rows, 8)
        One distribution a row.

    Returns
    -------
    ndarray of int, shape (n_rows,)
        1 to 8.

    Raises
    ------
    ValueError
        If a row is not a distribution.

    Examples
    --------
    >>> predicted_bin([[0, 0, 0.1 + 0.2, 0.4, 0.3, 0, 0, 0], [0, 0, 0, 0, 0.5, 0.5, 0, 0]]).tolist()
    [4, 5]
    """
    return argmax_column(checked_probabilities(probabilities)[0]) + 1


def parse_failures(parse_failed, *, weight=None) -> int | float:
    """Number of rows that could not be parsed: the count to print beside scores that leave them out (ECE, rank measures).

    Parameters
    ----------
    parse_failed : array-like of bool, shape (n_rows,)
        True where the reply could not be parsed.
    weight : array-like of shape (n_rows,), optional
        Non-negative row weights.

    Returns
    -------
    int or float
        Count; with weights, the total weight of the failed rows.

    Examples
    --------
    >>> parse_failures([False, True, True])
    2
    """
    n = len(parse_failed)
    failed, weight = checked_failures(parse_failed, n), checked_weight(weight, n)
    if failed is None:
        return 0
    return int(failed.sum()) if weight is None else float(weight[failed].sum())


def bin_error_per_row(probabilities, true_bin, *, parse_failed=None) -> np.ndarray:
    """Absolute difference of predicted and true bin, in bins, shape (n_rows,); see :func:`mean_bin_error`."""
    p, failed = checked_probabilities(probabilities, parse_failed)
    y = checked_bins(true_bin, len(p))
    error = np.abs(argmax_column(p) - y).astype(float)
    return error if failed is None else np.where(failed, _UNIFORM_ERROR[y], error)


def accuracy_per_row(probabilities, true_bin, *, parse_failed=None) -> np.ndarray:
    """1.0 where the predicted bin is the true one, else 0.0, shape (n_rows,); 0.0 for a parse failure."""
    return _within(0, probabilities, true_bin, parse_failed)


def within_one_per_row(probabilities, true_bin, *, parse_failed=None) -> np.ndarray:
    """1.0 where the predicted bin is the true one or next to it, else 0.0, shape (n_rows,); 0.0 for a parse failure."""
    return _within(1, probabilities, true_bin, parse_failed)


def _within(distance: int, probabilities, true_bin, parse_failed) -> np.ndarray:
    p, failed = checked_probabilities(probabilities, parse_failed)
    hit = np.abs(argmax_column(p) - checked_bins(true_bin, len(p))) <= distance
    return (hit if failed is None else hit & ~failed).astype(float)


@mean_of(accuracy_per_row)
def accuracy(probabilities, true_bin, *, parse_failed=None, weight=None) -> float:
    """Share of rows whose predicted bin is the true one (higher is better).

    Parameters
    ----------
    probabilities : array-like of shape (n_rows, 8)
        One distribution a row; sums to 1 within 1e-6.
    true_bin : array-like of int, shape (n_rows,)
        1 to 8.
    parse_failed : array-like of bool, shape (n_rows,), optional
        Rows whose reply could not be parsed: wrong, whatever their probabilities. None by default.
    weight : array-like of shape (n_rows,), optional
        Non-negative; a row of integer weight w counts like w copies. All 1 by default.

    Returns
    -------
    float
        In [0, 1].

    Raises
    ------
    ValueError
        If shapes differ, there are no rows, a row is not a distribution, or a bin lies outside 1 to 8.

    Examples
    --------
    >>> accuracy([[0, 0, 0, 0.6, 0.4, 0, 0, 0], [0, 0, 0, 0.6, 0.4, 0, 0, 0]], [4, 5])
    0.5
    """
    hits = accuracy_per_row(probabilities, true_bin, parse_failed=parse_failed)
    return _average(hits, checked_weight(weight, len(hits)))


@mean_of(within_one_per_row)
def within_one(probabilities, true_bin, *, parse_failed=None, weight=None) -> float:
    """Share of rows whose predicted bin is the true one or next to it (higher is better).

    Parameters, result and errors as for :func:`accuracy`; a parse failure is wrong.

    Examples
    --------
    >>> within_one([[0, 0, 0, 0.6, 0.4, 0, 0, 0], [0, 0, 0, 0.6, 0.4, 0, 0, 0]], [5, 6])
    0.5
    """
    hits = within_one_per_row(probabilities, true_bin, parse_failed=parse_failed)
    return _average(hits, checked_weight(weight, len(hits)))


@mean_of(bin_error_per_row)
def mean_bin_error(probabilities, true_bin, *, parse_failed=None, weight=None) -> float:
    """Mean absolute difference of predicted and true bin, in bins (lower is better).

    A parse failure predicts no bin. It is charged the mean error of a bin drawn uniformly from the eight, which lies between
    2 (true bin 4 or 5) and 3.5 (true bin 1 or 8): as in the proper scores it counts as the uniform forecast. The argmax
    of that forecast would be bin 1 by the tie rule, which is an artefact.

    Parameters, result and errors as for :func:`accuracy`.

    Examples
    --------
    >>> forecast = [0, 0, 0, 0.6, 0.4, 0, 0, 0]
    >>> mean_bin_error([forecast, forecast], [4, 6])
    1.0
    >>> mean_bin_error([forecast, forecast], [4, 6], parse_failed=[True, False])
    2.0
    """
    errors = bin_error_per_row(probabilities, true_bin, parse_failed=parse_failed)
    return _average(errors, checked_weight(weight, len(errors)))
