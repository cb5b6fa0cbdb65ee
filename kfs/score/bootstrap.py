"""Intervals: a bootstrap that resamples tasks, then kernels within a task, never rows, because pairs share kernels.

In each resample as many tasks are drawn, with replacement, as there are. Each time a task is drawn, as many of its kernels
are drawn from it as it has, afresh: a task drawn twice is two tasks with different kernels. A row's weight is the product of
its kernels' counts, summed over the draws of its task. Metrics are computed on weights, not on copied rows. Two forecasters
are compared by the interval of their paired difference, both under the same weights.

Where tasks are many and each has few kernels, the second stage makes intervals wider than tasks alone would (the product of
counts drops a pair of two kernels in half of the draws), which is the safe side; ``kernels=None`` resamples tasks only.
Intervals are percentile intervals. ECE alone is treated apart: a resample repeats rows, which looks like miscalibration, so
its resamples lie above the estimate, and far above it where rows are few. Their distribution is moved down until its mean is
the estimate, and cut off at 0; in a paired difference it is moved likewise. No correction for several comparisons is made.

Sources: Efron and Tibshirani, "An introduction to the bootstrap" (1993); product weights as in Owen, "The pigeonhole
bootstrap" (2007).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kfs.errors import SchemaError
from kfs.score.calibration import ece

_AT_ONCE = 2_000_000  # weights held at once


@dataclass(frozen=True)
class Interval:
    """An estimate with its bootstrap interval."""

    estimate: float
    """The metric on the rows as they are."""
    low: float
    high: float
    level: float
    """Nominal coverage, for example 0.95."""
    n_resamples: int
    """Resamples behind the interval, those on which the metric does not exist left out."""
    n_undefined: int = 0
    """Resamples on which the metric does not exist, for example the correlation of rows that are all alike."""

    def excludes(self, value: float = 0.0) -> bool:
        """Whether ``value`` lies outside the interval; False where there is no interval."""
        return bool(value < self.low or value > self.high)


def bootstrap(
    metric: Callable[..., float],
    arrays: tuple | Mapping,
    clusters,
    *,
    kernels: tuple | None = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> Interval:
    """Interval of a metric by resampling clusters, then kernels within a cluster.

    With a single cluster, as when one task is held out, only its kernels are resampled: the interval then speaks of other
    kernels of that task and not of other tasks.

    Parameters
    ----------
    metric : callable
        Called as ``metric(*arrays, weight=...)`` or ``metric(**arrays, weight=...)``, returning a float, where a row of integer
        weight w must count like w copies of it. Every metric of ``kfs.score`` with a ``weight`` does; the ready-made ones
        are computed on many resamples at once.
    arrays : tuple or mapping
        What the metric takes. A mapping may hold its options too: ``{"probabilities": p, "true_bin": y, "parse_failed": f}``.
    clusters : array-like of shape (n_rows,)
        Task of each row.
    kernels : tuple of array-like of shape (n_rows,), optional
        Kernels of each row, for a pair ``(anchor_id, candidate_id)``. An id names a kernel within its cluster. By default
        only clusters are resampled.
    n_resamples : int, optional
        1000 by default.
    level : float, optional
        Nominal coverage, 0.95 by default.
    rng : numpy.random.Generator
        Source of randomness. Equal generators give equal resamples of equal clusters and kernels, whatever the metric.

    Returns
    -------
    Interval
        Low and high are NaN if the metric exists on no resample.

    Raises
    ------
    ValueError
        If lengths differ, there is nothing to resample (one cluster, no kernels), or an option is out of range.

    Examples
    --------
    >>> from kfs.score import mean
    >>> bootstrap(mean, ([1.0, 1.0, 3.0, 3.0],), ["a", "a", "b", "b"], n_resamples=200, rng=np.random.default_rng(0))
    Interval(estimate=2.0, low=1.0, high=3.0, level=0.95, n_resamples=200, n_undefined=0)
    """
    design = _Design(clusters, kernels)
    value = _bound(metric, arrays, design)
    samples = design.evaluate(value, n_resamples, rng)
    return _interval(_call(metric, arrays), samples, level, centred=metric is ece, least=0.0)


def paired_difference(
    metric: Callable[..., float],
    first: tuple | Mapping,
    second: tuple | Mapping,
    clusters,
    *,
    kernels: tuple | None = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    rng: np.random.Generator,
) -> Interval:
    """Interval of ``metric(first) - metric(second)``, both computed on the same resamples.

    Parameters
    ----------
    metric, clusters, kernels, n_resamples, level, rng
        As for :func:`bootstrap`.
    first, second : tuple or mapping
        What the metric takes, of each forecaster, on the same rows in the same order.

    Returns
    -------
    Interval
        For a loss, below 0 where the first forecaster is better.

    Raises
    ------
    ValueError
        As for :func:`bootstrap`.

    Examples
    --------
    >>> from kfs.score import mean
    >>> losses, rng = np.array([0.1, 0.5, 0.9]), np.random.default_rng(0)
    >>> difference = paired_difference(mean, (losses,), (losses + 0.25,), ["a", "b", "c"], n_resamples=200, rng=rng)
    >>> round(difference.low, 6), round(difference.high, 6), difference.excludes(0)
    (-0.25, -0.25, True)
    """
    design = _Design(clusters, kernels)
    one, other = _bound(metric, first, design), _bound(metric, second, design)
    samples = design.evaluate(lambda weights: one(weights) - other(weights), n_resamples, rng)
    return _interval(_call(metric, first) - _call(metric, second), samples, level, centred=metric is ece)


def _interval(estimate: float, samples: np.ndarray, level: float, *, centred: bool, least: float = -math.inf) -> Interval:
    """Quantiles of the resamples; ``centred``: moved until their mean is the estimate, none below ``least``."""
    if not 0 < level < 1:
        raise SchemaError(f"level must lie between 0 and 1, found {level}; usual is 0.95")
    defined = samples[np.isfinite(samples)]
    if centred and len(defined):
        defined = np.maximum(defined - defined.mean() + estimate, least)
    tail = (1 - level) / 2
    low, high = np.quantile(defined, [tail, 1 - tail]) if len(defined) else (math.nan, math.nan)
    return Interval(estimate, float(low), float(high), level, len(defined), len(samples) - len(defined))


class _Design:
    """What is drawn. Rows that share cluster and kernels always share a weight: together they are one unit."""

    def __init__(self, clusters, kernels):
        clusters = np.asarray(clusters)
        if clusters.ndim != 1 or len(clusters) == 0:
            raise SchemaError(f"clusters must have shape (n_rows,) with at least one row, found shape {clusters.shape}")
        self.n_rows = len(clusters)
        names, cluster = np.unique(clusters, return_inverse=True)
        self.n_clusters = len(names)
        self.kernels = []
        if kernels is None:
            if self.n_clusters == 1:
                raise SchemaError("found one cluster and no kernels: nothing to resample; give kernels=(anchor_id, candidate_id)")
            self.unit, self.n_units = cluster, self.n_clusters
            return
        columns = [np.asarray(ids) for ids in kernels]
        if not columns or any(ids.shape != clusters.shape for ids in columns):
            raise SchemaError(
                f"kernels must be a tuple of arrays of shape {clusters.shape} like clusters, such as (anchor_id, candidate_id); "
                f"found shapes {[ids.shape for ids in columns]}"
            )
        ids = np.unique(np.concatenate(columns), return_inverse=True)[1].reshape(len(columns), -1)
        keys, self.unit = np.unique(np.column_stack([cluster, *ids]), axis=0, return_inverse=True)
        self.unit, self.n_units = self.unit.reshape(-1), len(keys)
        ends = np.searchsorted(keys[:, 0], np.arange(self.n_clusters + 1))
        for start, end in pairwise(ends):
            local, column = np.unique(keys[start:end, 1:], return_inverse=True)
            self.kernels.append((slice(start, end), len(local), column.reshape(end - start, -1).T))

    def evaluate(self, value, n_resamples: int, rng: np.random.Generator) -> np.ndarray:
        """``value`` under each resample, in blocks; NaN where no row has weight."""
        if not isinstance(rng, np.random.Generator):
            raise SchemaError(f"rng must be a numpy Generator, found {type(rng).__name__}; use np.random.default_rng(seed)")
        if n_resamples < 1:
            raise SchemaError(f"n_resamples must be 1 or more, found {n_resamples}; usual is 1000")
        draws = rng.multinomial(self.n_clusters, np.full(self.n_clusters, 1 / self.n_clusters), size=n_resamples)
        step = max(1, _AT_ONCE // self.n_rows)
        samples = np.full(n_resamples, np.nan)
        for start in range(0, n_resamples, step):
            weights = self._weights(draws[start : start + step], rng)
            carries = weights.any(axis=1)
            with np.errstate(invalid="ignore", divide="ignore"):
                samples[start : start + step][carries] = value(weights[carries])
        return samples

    def _weights(self, draws: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """Weight of each unit, shape (b, n_units), for draws of clusters (b, n_clusters)."""
        if not self.kernels:
            return draws.astype(float)
        weights = np.zeros((len(draws), self.n_units))
        for times, (units, n_kernels, columns) in zip(draws.T, self.kernels, strict=True):
            total = int(times.sum())
            if total == 0:
                continue
            picks = rng.integers(n_kernels, size=(total, n_kernels)) + n_kernels * np.arange(total)[:, None]
            counts = np.bincount(picks.reshape(-1), minlength=total * n_kernels).reshape(total, n_kernels)
            product = counts[:, columns[0]]
            for column in columns[1:]:
                product *= counts[:, column]
            drawn = times > 0
            weights[drawn, units] = np.add.reduceat(product, (np.cumsum(times) - times)[drawn], axis=0)
        return weights


def _call(metric, arrays, **options) -> float:
    return metric(**arrays, **options) if isinstance(arrays, Mapping) else metric(*arrays, **options)


def _bound(metric, arrays, design: _Design):
    """Function from unit weights (b, n_units) to the metric under each of them (b,)."""
    for array in arrays.values() if isinstance(arrays, Mapping) else arrays:
        if hasattr(array, "__len__") and len(array) != design.n_rows:
            raise SchemaError(f"found an array of {len(array)} rows, but clusters of {design.n_rows}; they must be the same")
    if hasattr(metric, "sums"):
        features, finish = _call(metric.sums, arrays)
        totals = np.column_stack([np.bincount(design.unit, column, design.n_units) for column in features.T])
        return lambda weights: finish(weights @ totals)
    if hasattr(metric, "many"):
        many = _call(metric.many, arrays)
        return lambda weights: many(weights[:, design.unit])
    return lambda weights: np.array([_call(metric, arrays, weight=row[design.unit]) for row in weights])
