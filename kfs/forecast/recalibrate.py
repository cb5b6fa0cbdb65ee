"""Maps from a forecaster's distributions to better calibrated ones, fitted on a calibration split: the cheap rival to training.

Temperature (one number), vector scaling (a factor and an offset a bin), and one isotonic map of cumulative probabilities. Each
is fitted by log loss or squared loss on pairs the forecaster did not learn from. They move confidence; only vector scaling and
the isotonic map can change which bin is likeliest, and none sees the kernels. Parse failures are neither fitted nor changed.

Sources: Guo et al., "On calibration of modern neural networks" (2017); Zadrozny and Elkan (2002), applied to an ordinal scale.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from scipy.special import log_softmax, softmax

from kfs.errors import unknown_name
from kfs.speedup import N_BINS

_FLOOR = 1e-12
_PENALTY = 0.01
_KEPT = 0.01
_LOG_T = (-3.0, 4.6)


class Recalibration(Protocol):
    """What every map of this module does; parameters of shape (n, 8) and (n,)."""

    name: str

    def fit(self, probabilities, true_bin) -> Recalibration: ...

    def __call__(self, probabilities) -> np.ndarray: ...


class Temperature:
    """Probabilities to the power 1 / T, renormalised; T above 1 makes a forecaster less sure.

    Examples
    --------
    >>> sure = np.full((4, 8), 0.01) + 0.92 * np.eye(8)[[0, 0, 0, 0]]
    >>> half_right = Temperature().fit(sure, [1, 1, 2, 2])
    >>> float(half_right(sure)[0, 0].round(2))
    0.5
    """

    name = "temperature"

    def __init__(self) -> None:
        self.temperature = 1.0

    def fit(self, probabilities, true_bin) -> Temperature:
        """Choose T by log loss."""
        logs, column = _checked(probabilities, true_bin)

        def loss(log_t: float) -> float:
            return -float(log_softmax(logs / np.exp(log_t), axis=1)[np.arange(len(column)), column].mean())

        self.temperature = float(np.exp(minimize_scalar(loss, bounds=_LOG_T, method="bounded").x))
        return self

    def __call__(self, probabilities) -> np.ndarray:
        """Recalibrated distributions of shape (n, 8)."""
        return softmax(_logs(probabilities) / self.temperature, axis=1)


class VectorScaling:
    """Log probabilities times a factor a bin, plus an offset a bin; drawn a little towards changing nothing."""

    name = "vector"

    def __init__(self) -> None:
        self.factor, self.offset = np.ones(N_BINS), np.zeros(N_BINS)

    def fit(self, probabilities, true_bin) -> VectorScaling:
        """Choose factors and offsets by log loss with a penalty of 0.01 on the squared change."""
        logs, column = _checked(probabilities, true_bin)
        rows, hit = np.arange(len(column)), np.eye(N_BINS)[column]

        def loss(x: np.ndarray) -> tuple[float, np.ndarray]:
            factor, offset = x[:N_BINS], x[N_BINS:]
            log_p = log_softmax(logs * factor + offset, axis=1)
            wrong = (np.exp(log_p) - hit) / len(column)
            value = -log_p[rows, column].mean() + _PENALTY * (((factor - 1) ** 2).sum() + (offset**2).sum())
            slope = np.concatenate(
                [(wrong * logs).sum(axis=0) + 2 * _PENALTY * (factor - 1), wrong.sum(axis=0) + 2 * _PENALTY * offset]
            )
            return float(value), slope

        found = minimize(loss, np.concatenate([self.factor, self.offset]), jac=True, method="L-BFGS-B").x
        self.factor, self.offset = found[:N_BINS], found[N_BINS:]
        return self

    def __call__(self, probabilities) -> np.ndarray:
        """Recalibrated distributions of shape (n, 8)."""
        return softmax(_logs(probabilities) * self.factor + self.offset, axis=1)


class Isotonic:
    """One increasing map of cumulative probabilities: what is stated as P(bin <= k) becomes how often that was so.

    The map has flat parts, where a bin would get nothing; a hundredth of the stated distribution is mixed in.
    """

    name = "isotonic"

    def __init__(self) -> None:
        self._map = None

    def fit(self, probabilities, true_bin) -> Isotonic:
        """Fit the map on all seven inner edges of every row."""
        from sklearn.isotonic import IsotonicRegression

        logs, column = _checked(probabilities, true_bin)
        below = np.cumsum(softmax(logs, axis=1), axis=1)[:, :-1]
        was = column[:, None] <= np.arange(N_BINS - 1)
        self._map = IsotonicRegression(y_min=0, y_max=1, increasing=True, out_of_bounds="clip").fit(below.ravel(), was.ravel())
        return self

    def __call__(self, probabilities) -> np.ndarray:
        """Recalibrated distributions of shape (n, 8)."""
        p = softmax(_logs(probabilities), axis=1)
        if self._map is None:
            return p
        below = np.cumsum(p, axis=1)[:, :-1]
        mapped = self._map.predict(below.ravel()).reshape(below.shape)
        mapped = np.concatenate([np.zeros((len(p), 1)), np.clip(mapped, 0, 1), np.ones((len(p), 1))], axis=1)
        return (1 - _KEPT) * np.diff(mapped, axis=1) + _KEPT * p


RECALIBRATIONS: dict[str, type] = {kind.name: kind for kind in (Temperature, VectorScaling, Isotonic)}
"""The maps by name."""


def recalibrated(name: str, calibration, true_bin, probabilities) -> np.ndarray:
    """Fit a map on a calibration split and apply it.

    Parameters
    ----------
    name : str
        A key of ``RECALIBRATIONS``.
    calibration : array-like of shape (n_calibration, 8)
        Distributions of pairs whose bin is known, none of them learnt from.
    true_bin : array-like of int, shape (n_calibration,)
        1 to 8.
    probabilities : array-like of shape (n, 8)
        Distributions to recalibrate.

    Returns
    -------
    ndarray of shape (n, 8)

    Raises
    ------
    UnknownNameError
        If there is no such map.
    ValueError
        If the calibration split is empty or shapes do not fit.
    """
    if name not in RECALIBRATIONS:
        raise unknown_name("recalibration", name, RECALIBRATIONS, "kfs/forecast/recalibrate.py")
    return RECALIBRATIONS[name]().fit(calibration, true_bin)(probabilities)


def _logs(probabilities) -> np.ndarray:
    p = np.asarray(probabilities, dtype=float)
    if p.ndim != 2 or p.shape[1] != N_BINS or not np.isfinite(p).all() or (p < 0).any() or (p.sum(axis=1) <= 0).any():
        raise ValueError(f"need distributions of shape (n, {N_BINS}), found an array of shape {p.shape}")
    return np.log(np.maximum(p / p.sum(axis=1, keepdims=True), _FLOOR))


def _checked(probabilities, true_bin) -> tuple[np.ndarray, np.ndarray]:
    logs, column = _logs(probabilities), np.asarray(true_bin, dtype=int) - 1
    if not len(logs) or column.shape != (len(logs),) or column.min() < 0 or column.max() >= N_BINS:
        raise ValueError(
            f"need a bin from 1 to {N_BINS} for each of at least one row, found {len(logs)} rows, bins {column.shape}"
        )
    return logs, column
