"""Bins from a table of numbers: gradient-boosted trees with a temperature set on held-out pairs.

Used by every forecaster that learns from features. Trees run on one thread: on tables this small the threads of
scikit-learn spend their time waiting for each other, and many times more of it when the machine is busy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kfs.speedup import N_BINS

FLOOR = 0.002
"""Mass spread evenly over the bins, so that a bin never seen in training is not called impossible."""


@dataclass
class BinTrees:
    """A classifier over the eight bins."""

    iterations: int
    learning_rate: float
    leaves: int
    smallest_leaf: int
    feature_share: float
    """Share of the features tried at each split."""
    seed: int

    def fit(self, features: np.ndarray, bins: np.ndarray) -> BinTrees:
        """Learn ``bins`` (n,) in 1..8 from ``features`` (n, k)."""
        from sklearn.dummy import DummyClassifier
        from sklearn.ensemble import HistGradientBoostingClassifier
        from threadpoolctl import threadpool_limits

        model = HistGradientBoostingClassifier(
            max_iter=self.iterations,
            learning_rate=self.learning_rate,
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.smallest_leaf,
            max_features=self.feature_share,
            early_stopping=False,
            random_state=self.seed,
        )
        self._varying = np.flatnonzero(np.ptp(features, axis=0))
        several = len(np.unique(bins)) > 1 and len(self._varying) > 0
        with threadpool_limits(1):
            self._model = (model if several else DummyClassifier()).fit(features[:, self._varying], bins)
        return self

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Probabilities of shape (n, 8)."""
        from threadpoolctl import threadpool_limits

        probabilities = np.zeros((len(features), N_BINS))
        if len(features):
            with threadpool_limits(1):
                probabilities[:, self._model.classes_ - 1] = self._model.predict_proba(features[:, self._varying])
        return (1 - FLOOR) * probabilities + FLOOR / N_BINS


def sharpen(probabilities: np.ndarray, temperature: float) -> np.ndarray:
    """Probabilities to the power of 1 / temperature, renormalised; above 1 flattens, below 1 sharpens.

    Examples
    --------
    >>> sharpen(np.array([[0.8, 0.2]]), 0.5).round(3).tolist()
    [[0.941, 0.059]]
    """
    raised = probabilities ** (1 / temperature)
    return raised / raised.sum(axis=1, keepdims=True)


def best_temperature(probabilities: np.ndarray, bins: np.ndarray) -> float:
    """Temperature between 1/4 and 4 with the least mean negative log likelihood; 1 where there is nothing to learn from."""
    from scipy.optimize import minimize_scalar

    if not len(bins):
        return 1.0
    rows, columns = np.arange(len(bins)), np.asarray(bins) - 1

    def loss(log_temperature: float) -> float:
        return -np.log(sharpen(probabilities, 2.0**log_temperature)[rows, columns]).mean()

    return float(2.0 ** minimize_scalar(loss, bounds=(-2, 2), method="bounded").x)
