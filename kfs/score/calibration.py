"""Do probabilities mean what they say: reliability by bucket of the predicted bin's probability, and its summary, ECE.

Parse failures are left out; print :func:`kfs.score.parse_failures` beside the value. Does not mend a forecaster: that is
recalibration, in the forecast room.

Source: Guo et al., "On calibration of modern neural networks" (2017); ten buckets as in arXiv 2605.31464.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kfs.score._rows import TIE, argmax_column, cells, checked_bins, checked_probabilities, checked_weight, sums_from

N_BUCKETS = 10


class Reliability(NamedTuple):
    """One entry per bucket, each array of shape (10,)."""

    low: np.ndarray
    """Lower edge, excluded."""
    high: np.ndarray
    """Upper edge, included."""
    weight: np.ndarray
    """Rows in the bucket, or their total weight."""
    confidence: np.ndarray
    """Mean probability of the predicted bin; NaN in an empty bucket."""
    accuracy: np.ndarray
    """Share of rows whose predicted bin is true; NaN in an empty bucket."""


def _buckets(probabilities, true_bin, parse_failed):
    """Bucket, predicted bin's probability, hit, and which rows are kept (None: all); arrays of shape (n_rows,)."""
    p, failed = checked_probabilities(probabilities, parse_failed)
    y = checked_bins(true_bin, len(p))
    best = argmax_column(p)
    confidence = p.reshape(-1)[cells(p, best)]
    # A stated 0.3 belongs to the bucket that ends at 0.3 whatever its last bit became in renormalising.
    bucket = np.clip(np.ceil(confidence * N_BUCKETS - N_BUCKETS * TIE).astype(np.int64) - 1, 0, N_BUCKETS - 1)
    return bucket, confidence, best == y, None if failed is None else ~failed


def _row_weights(weight, kept: np.ndarray | None, n: int) -> np.ndarray | None:
    """Weights with failed rows at 0; None where every row counts once."""
    weight = checked_weight(weight, n)
    if kept is None:
        return weight
    return kept.astype(float) if weight is None else kept * weight


def reliability(probabilities, true_bin, *, parse_failed=None, weight=None) -> Reliability:
    """Confidence and accuracy in ten equal-width buckets of the predicted bin's probability.

    Parameters
    ----------
    probabilities : array-like of shape (n_rows, 8)
        One distribution a row; sums to 1 within 1e-6.
    true_bin : array-like of int, shape (n_rows,)
        1 to 8.
    parse_failed : array-like of bool, shape (n_rows,), optional
        Rows whose reply could not be parsed: left out. None by default.
    weight : array-like of shape (n_rows,), optional
        Non-negative; a row of integer weight w counts like w copies. All 1 by default.

    Returns
    -------
    Reliability
        Arrays of shape (10,). Buckets are right-closed: 0.3 lies in (0.2, 0.3].

    Raises
    ------
    ValueError
        If shapes differ, there are no rows, a row is not a distribution, or a bin lies outside 1 to 8.
    """
    bucket, confidence, hit, kept = _buckets(probabilities, true_bin, parse_failed)
    w = _row_weights(weight, kept, len(bucket))
    w = np.ones(len(bucket)) if w is None else w
    total = np.bincount(bucket, w, N_BUCKETS)
    with np.errstate(invalid="ignore"):
        mean_confidence = np.bincount(bucket, w * confidence, N_BUCKETS) / total
        share_right = np.bincount(bucket, w * hit, N_BUCKETS) / total
    edges = np.arange(N_BUCKETS + 1) / N_BUCKETS
    return Reliability(edges[:-1], edges[1:], total, mean_confidence, share_right)


def _ece_sums(probabilities, true_bin, *, parse_failed=None):
    bucket, confidence, hit, kept = _buckets(probabilities, true_bin, parse_failed)
    counts = np.ones(len(bucket)) if kept is None else kept.astype(float)
    features = np.zeros((len(bucket), N_BUCKETS + 1))
    features[np.arange(len(bucket)), bucket] = counts * (confidence - hit)
    features[:, -1] = counts
    return features, lambda sums: np.abs(sums[:, :-1]).sum(axis=1) / sums[:, -1]


@sums_from(_ece_sums)
def ece(probabilities, true_bin, *, parse_failed=None, weight=None) -> float:
    """Expected calibration error of the predicted bin's probability (lower is better).

    Mean over rows of |confidence - accuracy| of the row's bucket, in ten equal-width buckets. Not a proper score: a forecaster
    that always states the base rates has 0. On few rows it is biased upwards, so compare it only between equal row counts.

    Parameters
    ----------
    probabilities, true_bin, parse_failed, weight
        As for :func:`reliability`.

    Returns
    -------
    float
        In [0, 1]; NaN if no row could be parsed.

    Raises
    ------
    ValueError
        As for :func:`reliability`.

    Examples
    --------
    >>> ece([[0, 0, 0, 0.75, 0.25, 0, 0, 0]] * 2, [4, 5])
    0.25
    """
    bucket, confidence, hit, kept = _buckets(probabilities, true_bin, parse_failed)
    w = _row_weights(weight, kept, len(bucket))
    gap = confidence - hit
    if w is None:
        return float(np.abs(np.bincount(bucket, gap)).sum() / len(gap))
    total = w.sum()
    return float(np.abs(np.bincount(bucket, w * gap)).sum() / total) if total > 0 else float("nan")
