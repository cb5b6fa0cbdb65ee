"""Does a forecaster know when to defer: confidence scores, the risk-coverage curve and the area under it.

Rows are accepted from most to least confident, and rows of equal confidence enter together, so row order cannot change a
result. The confidence of a parse failure is -1, below that of any forecast: it enters last and no threshold of 0 or more
accepts it. Does not choose a threshold: that is the decide room.

Sources: Geifman and El-Yaniv, "Selective classification for deep neural networks" (2017); tie rule of arXiv 2605.31464.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from kfs.score._rows import TIE_DECIMALS, checked_probabilities, checked_vector, checked_weight, many_weights, weight_rows
from kfs.speedup import N_BINS

FAILED_CONFIDENCE = -1.0
"""Confidence of a reply that could not be parsed."""


def _settled(confidence: np.ndarray, failed: np.ndarray | None) -> np.ndarray:
    """Rounded, so that rounding errors break no ties; parse failures last."""
    confidence = np.round(confidence, TIE_DECIMALS)
    return confidence if failed is None else np.where(failed, FAILED_CONFIDENCE, confidence)


def max_probability(probabilities, *, parse_failed=None) -> np.ndarray:
    """Confidence as the probability of the most probable bin.

    Parameters
    ----------
    probabilities : array-like of shape (n_rows, 8)
        One distribution a row; sums to 1 within 1e-6.
    parse_failed : array-like of bool, shape (n_rows,), optional
        Rows whose reply could not be parsed. None by default.

    Returns
    -------
    ndarray of shape (n_rows,)
        In [0.125, 1], rounded to 12 decimals; -1 for a parse failure.

    Raises
    ------
    ValueError
        If a row is not a distribution.
    """
    p, failed = checked_probabilities(probabilities, parse_failed)
    return _settled(p.max(axis=1), failed)


def negative_entropy(probabilities, *, parse_failed=None) -> np.ndarray:
    """Confidence as 1 - entropy / log 8: 0 for the uniform forecast, 1 for a certain one.

    Parameters, rounding, parse failures and errors as for :func:`max_probability`.
    """
    p, failed = checked_probabilities(probabilities, parse_failed)
    entropy = np.zeros(len(p))
    for column in p.T:  # column by column: equal forecasts stay equal to the last bit
        entropy -= column * np.log(np.where(column > 0, column, 1.0))
    return _settled(1.0 - entropy / np.log(N_BINS), failed)


def top_two_margin(probabilities, *, parse_failed=None) -> np.ndarray:
    """Confidence as the difference of the two largest probabilities, in [0, 1].

    Parameters, rounding, parse failures and errors as for :func:`max_probability`.
    """
    p, failed = checked_probabilities(probabilities, parse_failed)
    top = np.partition(p, N_BINS - 2, axis=1)
    return _settled(top[:, -1] - top[:, -2], failed)


CONFIDENCES = {"max_probability": max_probability, "negative_entropy": negative_entropy, "top_two_margin": top_two_margin}
"""The confidence scores of the study by name, each a function of (probabilities, *, parse_failed)."""


class RiskCoverage(NamedTuple):
    """A risk-coverage curve: one entry per different confidence, most confident first, each array of shape (n_steps,)."""

    coverage: np.ndarray
    """Share of rows accepted, in (0, 1]; the last is 1."""
    risk: np.ndarray
    """Mean loss of the rows accepted so far."""
    threshold: np.ndarray
    """Least confidence accepted."""


def _descending(losses, confidence):
    """Checked losses, positions from most to least confident, and the last position of each tie block."""
    losses = checked_vector("losses", losses, low=0.0)
    confidence = checked_vector("confidence", confidence, len(losses))
    order = np.argsort(-confidence)
    ranked = confidence[order]
    ends = np.flatnonzero(np.concatenate([ranked[1:] != ranked[:-1], [True]]))
    return losses[order], ranked, order, ends


def risk_coverage(losses, confidence, *, weight=None) -> RiskCoverage:
    """Risk of the most confident rows as a function of how many are accepted.

    Parameters
    ----------
    losses : array-like of shape (n_items,)
        Non-negative loss per item, for example absolute bin error.
    confidence : array-like of shape (n_items,)
        Any real score; larger means surer. Equal scores enter together.
    weight : array-like of shape (n_items,), optional
        Non-negative; an item of integer weight w counts like w copies. All 1 by default.

    Returns
    -------
    RiskCoverage
        Coverage, risk and threshold, from most to least confident; thresholds without weight are left out.

    Raises
    ------
    ValueError
        If lengths differ, there are no items, a value is not finite or a loss is negative.

    Examples
    --------
    >>> curve = risk_coverage([0.0, 1.0, 2.0, 1.0], [0.9, 0.5, 0.5, 0.1])
    >>> curve.coverage.tolist(), curve.risk.tolist(), curve.threshold.tolist()
    ([0.25, 0.75, 1.0], [0.0, 1.0, 1.0], [0.9, 0.5, 0.1])
    """
    losses, ranked, order, ends = _descending(losses, confidence)
    weight = checked_weight(weight, len(losses))
    if weight is None:
        accepted, lost = ends + 1.0, np.cumsum(losses)[ends]
    else:
        w = weight[order]
        accepted, lost = np.cumsum(w)[ends], np.cumsum(w * losses)[ends]
        counts = np.diff(accepted, prepend=0.0) > 0
        accepted, lost, ends = accepted[counts], lost[counts], ends[counts]
    return RiskCoverage(accepted / accepted[-1], lost / accepted, ranked[ends])


def _aurc_many(losses, confidence):
    losses, _, order, ends = _descending(losses, confidence)

    def area(weights: np.ndarray) -> np.ndarray:
        w = weights[:, order]
        accepted = np.cumsum(w, axis=1)[:, ends]
        lost = np.cumsum(w * losses, axis=1)[:, ends]
        block = np.diff(accepted, axis=1, prepend=0.0)
        risk = np.divide(lost, accepted, out=np.zeros_like(lost), where=accepted > 0)
        with np.errstate(invalid="ignore"):
            return np.einsum("ij,ij->i", block, risk) / accepted[:, -1]

    return area


@many_weights(_aurc_many)
def aurc(losses, confidence, *, weight=None) -> float:
    """Area under the risk-coverage curve (lower is better).

    Rows are accepted from most to least confident; ties enter together, so row order cannot change the result.

    Parameters
    ----------
    losses : array-like of shape (n_items,)
        Non-negative loss per item, for example absolute bin error.
    confidence : array-like of shape (n_items,)
        Any real score; larger means surer.
    weight : array-like of shape (n_items,), optional
        Non-negative; an item of integer weight w counts like w copies. All 1 by default.

    Returns
    -------
    float
        Mean risk over coverage in (0, 1], in the units of ``losses``: the mean over items of the risk at their tie block. A
        confidence that knows nothing expects the mean loss; ``aurc(losses, -losses)`` is the least that any could reach.

    Raises
    ------
    ValueError
        If lengths differ, there are no items, a value is not finite or a loss is negative.

    References
    ----------
    Geifman and El-Yaniv, "Selective classification for deep neural networks" (2017).

    Examples
    --------
    >>> aurc([0.0, 1.0], [0.9, 0.1])
    0.25
    """
    n = len(losses)
    return float(_aurc_many(losses, confidence)(weight_rows(checked_weight(weight, n), n))[0])
