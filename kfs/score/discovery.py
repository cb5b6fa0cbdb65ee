"""Is the child faster than its parent: precision, recall and average precision of a score over parent-child pairs.

A pair is positive when its measured speedup lies above a threshold (1, or 1.1 for a gain worth having). Does not choose pairs
or make scores.

Source: the discovery pairs of arXiv 2605.31464; average precision as in scikit-learn, ties entering together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfs.errors import SchemaError
from kfs.score._rows import checked_vector, checked_weight, many_weights, sums_from, weight_rows


@dataclass(frozen=True)
class Discovery:
    """How well a score finds the children that are faster; NaN where a quantity does not exist."""

    precision: float
    """Share of the pairs called positive that are; NaN if none is called so."""
    recall: float
    """Share of the positive pairs called so; NaN if there are none."""
    average_precision: float
    """Precision at each positive's place, mean over positives; NaN if there are none."""
    prevalence: float
    """Share of pairs that are positive: the precision and average precision of a score that knows nothing."""
    called: float
    """Share of pairs called positive."""


def _pairs(score, speedup, threshold: float, cutoff: float | None):
    """Scores, whether each pair is positive, whether it is called positive."""
    score = checked_vector("score", score, infinite=True)
    speedup = checked_vector("speedup", speedup, len(score), low=0.0)
    if not (np.isfinite(threshold) and threshold > 0):
        raise SchemaError(f"threshold must be a positive speedup, found {threshold}; usual are 1 and 1.1")
    return score, speedup > threshold, score > (threshold if cutoff is None else cutoff)


def _ratio(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator > 0 else float("nan")


def discovery(score, speedup, threshold: float = 1.0, *, cutoff: float | None = None, weight=None) -> Discovery:
    """Precision, recall and average precision of finding pairs whose speedup lies above a threshold.

    Parameters
    ----------
    score : array-like of shape (n_pairs,)
        Larger means more probably faster. ``-inf`` is never called positive, as for a parse failure.
    speedup : array-like of shape (n_pairs,)
        Measured speedup, parent runtime / child runtime; 0 for a child that failed.
    threshold : float, optional
        A pair is positive when its speedup is above this. 1 by default.
    cutoff : float, optional
        A pair is called positive when its score is above this. By default ``threshold``, which is right for scores that are
        speedups (``STUDY_BINS.expected_speedup``); any other kind of score needs its own. Average precision does not use it.
    weight : array-like of shape (n_pairs,), optional
        Non-negative; a pair of integer weight w counts like w copies. All 1 by default.

    Returns
    -------
    Discovery

    Raises
    ------
    ValueError
        If lengths differ, there are no pairs, a value is not a number, or the threshold is not positive.

    Examples
    --------
    >>> found = discovery([1.5, 1.2, 0.8, 0.7], [2.0, 0.9, 1.3, 0.5])
    >>> found.precision, found.recall, round(found.average_precision, 4), found.prevalence
    (0.5, 0.5, 0.8333, 0.5)
    """
    score, positive, called = _pairs(score, speedup, threshold, cutoff)
    weight = checked_weight(weight, len(score))
    w = np.ones(len(score)) if weight is None else weight
    right, total = w[positive & called].sum(), w.sum()
    return Discovery(
        precision=_ratio(right, w[called].sum()),
        recall=_ratio(right, w[positive].sum()),
        average_precision=float(_average_precision_under(score, positive)(w[None, :])[0]),
        prevalence=float(w[positive].sum() / total),
        called=float(w[called].sum() / total),
    )


def _average_precision_under(score: np.ndarray, positive: np.ndarray):
    order = np.argsort(-score)
    ranked, hits = score[order], positive[order].astype(float)
    ends = np.flatnonzero(np.concatenate([ranked[1:] != ranked[:-1], [True]]))

    def value(weights: np.ndarray) -> np.ndarray:
        w = weights[:, order]
        taken, found = np.cumsum(w, axis=1)[:, ends], np.cumsum(w * hits, axis=1)[:, ends]
        precision = np.divide(found, taken, out=np.zeros_like(found), where=taken > 0)
        with np.errstate(invalid="ignore"):
            return np.einsum("ij,ij->i", np.diff(found, axis=1, prepend=0.0), precision) / found[:, -1]

    return value


def _average_precision_many(score, speedup, threshold: float = 1.0):
    score, positive, _ = _pairs(score, speedup, threshold, None)
    return _average_precision_under(score, positive)


@many_weights(_average_precision_many)
def average_precision(score, speedup, threshold: float = 1.0, *, weight=None) -> float:
    """Average precision alone, as :func:`discovery` gives it; a metric for :func:`kfs.score.bootstrap`.

    Examples
    --------
    >>> round(average_precision([1.5, 1.2, 0.8, 0.7], [2.0, 0.9, 1.3, 0.5]), 4)
    0.8333
    """
    n = len(score)
    return float(_average_precision_many(score, speedup, threshold)(weight_rows(checked_weight(weight, n), n))[0])


def _called_sums(score, speedup, threshold: float = 1.0, *, cutoff: float | None = None, of_positive: bool):
    _, positive, called = _pairs(score, speedup, threshold, cutoff)
    return np.column_stack([positive & called, positive if of_positive else called]).astype(float), _share


def _share(sums: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        return sums[:, 0] / sums[:, 1]


@sums_from(lambda *arrays, **named: _called_sums(*arrays, of_positive=False, **named))
def precision(score, speedup, threshold: float = 1.0, *, cutoff: float | None = None, weight=None) -> float:
    """Precision alone, as :func:`discovery` gives it; a metric for :func:`kfs.score.bootstrap`."""
    return discovery(score, speedup, threshold, cutoff=cutoff, weight=weight).precision


@sums_from(lambda *arrays, **named: _called_sums(*arrays, of_positive=True, **named))
def recall(score, speedup, threshold: float = 1.0, *, cutoff: float | None = None, weight=None) -> float:
    """Recall alone, as :func:`discovery` gives it; a metric for :func:`kfs.score.bootstrap`."""
    return discovery(score, speedup, threshold, cutoff=cutoff, weight=weight).recall
