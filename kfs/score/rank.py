"""Does the order of forecasts match the order of measured speedups: weighted Spearman and Kendall (tau-b) correlation.

Forecasts are ordered by their expected log2 speedup. Parse failures are left out; print :func:`kfs.score.parse_failures`
beside the value. Weights are counts: a row of integer weight w gives what w copies of the row would give, which SciPy's
functions do not offer and the bootstrap needs. No test of significance: intervals come from bootstrap.py.

Sources: Spearman (1904); Kendall, "The treatment of ties in ranking problems" (1945). Discordant weight is counted bit by bit
of the rank, as in a merge sort, in n log n for many weightings at once.
"""

from __future__ import annotations

import numpy as np

from kfs.errors import SchemaError
from kfs.score._rows import TIE_DECIMALS, checked_probabilities, checked_vector, checked_weight, many_weights, weight_rows
from kfs.speedup import N_BINS, STUDY_BINS


def _order(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Positions in ascending order, where each group of equal values starts there, and each row's group."""
    order = np.argsort(values)
    new = np.ones(len(values), dtype=bool)
    new[1:] = np.diff(values[order]) > 0
    group = np.empty(len(values), dtype=np.int64)
    group[order] = np.cumsum(new) - 1
    return order, np.flatnonzero(new), group


def _group_weights(weights: np.ndarray, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Total weight of each group of equal values, shape (b, n_groups)."""
    return np.add.reduceat(weights[:, order], starts, axis=1)


def _varied(group_weights: np.ndarray) -> np.ndarray:
    """Whether at least two different values carry weight, shape (b,)."""
    return np.count_nonzero(group_weights > 0, axis=1) > 1


def spearman_under(x: np.ndarray, y: np.ndarray):
    """Function from weights (b, n) to the Spearman correlation of ``x`` and ``y`` under each of them (b,)."""
    sides = [_order(x), _order(y)]

    def correlation(weights: np.ndarray) -> np.ndarray:
        total = weights.sum(axis=1)
        defined, centred = total > 0, []
        for order, starts, group in sides:
            shares = _group_weights(weights, order, starts)
            defined &= _varied(shares)
            middle = np.cumsum(shares, axis=1) - shares / 2  # mid-rank of w copies, less a constant
            middle -= total[:, None] / 2  # the weighted mean of mid-ranks
            centred.append(middle[:, group])
        a, b = centred
        weighted = weights * a
        covariance = np.einsum("ij,ij->i", weighted, b)
        variance_a = np.einsum("ij,ij->i", weighted, a)
        variance_b = np.einsum("ij,ij,ij->i", weights, b, b)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = covariance / np.sqrt(variance_a * variance_b)
        return np.where(defined, np.clip(value, -1.0, 1.0), np.nan)

    return correlation


def _discordant(weights: np.ndarray, rank: np.ndarray) -> np.ndarray:
    """Summed weight products of pairs i < j with rank[i] > rank[j], shape (b,).

    Each such pair is met once: at the highest bit in which the two ranks differ, among rows that share the bits above it.
    """
    total = np.zeros(len(weights))
    for bit in reversed(range(int(rank.max()).bit_length())):
        above = rank >> (bit + 1)
        order = np.argsort(above, kind="stable")
        above = above[order]
        starts = np.flatnonzero(np.concatenate([[True], above[1:] != above[:-1]]))
        high = (rank[order] >> bit & 1).astype(bool)
        w = weights[:, order]
        low = np.where(high, 0.0, w)
        running = np.cumsum(w - low, axis=1)  # weight of high rows so far; what lies before a group is taken off again
        before = np.concatenate([np.zeros((len(w), 1)), running[:, starts[1:] - 1]], axis=1)
        total += np.einsum("ij,ij->i", running, low) - np.einsum("ij,ij->i", before, np.add.reduceat(low, starts, axis=1))
    return total


def kendall_under(x: np.ndarray, y: np.ndarray):
    """Function from weights (b, n) to Kendall's tau-b of ``x`` and ``y`` under each of them (b,)."""
    (x_order, x_starts, x_group), (y_order, y_starts, y_group) = _order(x), _order(y)
    both_order, both_starts, _ = _order(x_group * len(y) + y_group)
    rank = y_group[both_order]

    def correlation(weights: np.ndarray) -> np.ndarray:
        x_weight = _group_weights(weights, x_order, x_starts)
        y_weight = _group_weights(weights, y_order, y_starts)
        both_weight = _group_weights(weights, both_order, both_starts)
        square = weights.sum(axis=1) ** 2
        # Pairs that differ, in units of two weight products: the linear terms of w (w - 1) / 2 cancel.
        differ_x = square - np.square(x_weight).sum(axis=1)
        differ_y = square - np.square(y_weight).sum(axis=1)
        differ_both = differ_x + differ_y - square + np.square(both_weight).sum(axis=1)
        score = differ_both - 4 * _discordant(weights[:, both_order], rank)
        with np.errstate(invalid="ignore", divide="ignore"):
            value = score / np.sqrt(differ_x * differ_y)
        return np.where(_varied(x_weight) & _varied(y_weight), np.clip(value, -1.0, 1.0), np.nan)

    return correlation


def _ranked(probabilities, speedup, bins, parse_failed):
    """Expected log2 speedup and measured speedup of the rows that could be parsed, and which rows those are (None: all)."""
    p, failed = checked_probabilities(probabilities, parse_failed)
    measured = checked_vector("speedup", speedup, len(p))
    if measured.min() <= 0:
        row = int(measured.argmin())
        raise SchemaError(f"speedup, row {row}: found {measured[row]:g}, allowed are positive numbers; leave failed kernels out")
    steps = np.log2(bins.representative)
    expected = np.zeros(len(p))
    for j in range(N_BINS):  # column by column: equal forecasts stay equal to the last bit, as BLAS does not promise
        expected += p[:, j] * steps[j]
    expected = np.round(expected, TIE_DECIMALS)
    if failed is None:
        return expected, measured, None
    return expected[~failed], measured[~failed], ~failed


def _under(correlation_under, probabilities, speedup, bins, parse_failed):
    expected, measured, kept = _ranked(probabilities, speedup, bins, parse_failed)
    if len(expected) == 0:
        return lambda weights: np.full(len(weights), np.nan)
    correlation = correlation_under(expected, measured)
    return correlation if kept is None else lambda weights: correlation(weights[:, kept])


def _spearman_many(probabilities, speedup, *, bins=STUDY_BINS, parse_failed=None):
    return _under(spearman_under, probabilities, speedup, bins, parse_failed)


def _kendall_many(probabilities, speedup, *, bins=STUDY_BINS, parse_failed=None):
    return _under(kendall_under, probabilities, speedup, bins, parse_failed)


@many_weights(_spearman_many)
def spearman(probabilities, speedup, *, bins=STUDY_BINS, parse_failed=None, weight=None) -> float:
    """Spearman correlation of expected log2 speedup and measured speedup (higher is better).

    Equal forecasts share their mid-rank; forecasts whose expected log2 speedups agree to 12 decimals are equal.

    Parameters
    ----------
    probabilities : array-like of shape (n_rows, 8)
        One distribution a row; sums to 1 within 1e-6.
    speedup : array-like of shape (n_rows,)
        Measured speedup, reference runtime / candidate runtime; positive.
    bins : SpeedupBins, optional
        Whose representative speedups the bins stand for. ``STUDY_BINS`` by default.
    parse_failed : array-like of bool, shape (n_rows,), optional
        Rows whose reply could not be parsed: left out. None by default.
    weight : array-like of shape (n_rows,), optional
        Non-negative; a row of integer weight w counts like w copies. All 1 by default.

    Returns
    -------
    float
        In [-1, 1]; NaN if fewer than two different forecasts or speedups are left, as for a forecaster that always says the
        same.

    Raises
    ------
    ValueError
        If shapes differ, there are no rows, a row is not a distribution, or a speedup is not positive and finite.

    Examples
    --------
    >>> spearman(STUDY_BINS.one_hot([3, 5, 5, 8]), [0.6, 1.1, 1.3, 9.0]).__round__(4)
    0.9487
    """
    return _one(_spearman_many, probabilities, speedup, bins, parse_failed, weight)


@many_weights(_kendall_many)
def kendall(probabilities, speedup, *, bins=STUDY_BINS, parse_failed=None, weight=None) -> float:
    """Kendall's tau-b of expected log2 speedup and measured speedup (higher is better).

    Parameters, result and errors as for :func:`spearman`.

    Examples
    --------
    >>> kendall(STUDY_BINS.one_hot([3, 5, 5, 8]), [0.6, 1.1, 1.3, 9.0]).__round__(4)
    0.9129
    """
    return _one(_kendall_many, probabilities, speedup, bins, parse_failed, weight)


def _one(many, probabilities, speedup, bins, parse_failed, weight) -> float:
    correlation = many(probabilities, speedup, bins=bins, parse_failed=parse_failed)
    n = len(probabilities)
    return float(correlation(weight_rows(checked_weight(weight, n), n))[0])
