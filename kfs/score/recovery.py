"""How close to a pool's best kernel does measuring only the k ranked highest come?

A pool holds the kernels of one task. They are ranked by a forecast, the top k are measured, and recovery is the best speedup
found over the best in the pool. Kernels of equal score are measured in random order and the exact expectation is given, so
row order cannot change a result; a random order of the whole pool is the same formula with every score equal. Nothing is
simulated and no rng is needed. Weights are not offered, since a kernel measured twice is not two kernels: for an interval,
resample pools with ``bootstrap(mean, (recovery(...).at(0.1).found,), pools, rng=rng)``.

With values v_1 <= ... <= v_n, the best of k drawn without replacement is at most v_i with probability C(i, k) / C(n, k), so
its expectation is v_n - sum over i < n of (v_{i+1} - v_i) C(i, k) / C(n, k).

Source: the pool recovery of arXiv 2605.31464.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kfs.errors import SchemaError
from kfs.score._rows import checked_vector

SHARES = np.arange(1, 101) / 100
"""Shares measured that ``recovery`` looks at by default: every percent."""

_AT_ONCE = 2_000_000  # numbers held while expectations are computed


class RecoveryCurve(NamedTuple):
    """Recovery against share measured; arrays of one shape."""

    share: np.ndarray
    """Share of the pool measured."""
    found: np.ndarray
    """Best speedup among the kernels ranked highest / best of the pool, in [0, 1]."""
    random: np.ndarray
    """Its exact expectation for a random order."""


@dataclass(frozen=True)
class Recovery:
    """Recovery in several pools at the same shares measured."""

    pools: tuple
    """Names of the pools, sorted."""
    sizes: np.ndarray
    """Kernels in each pool, shape (n_pools,)."""
    share: np.ndarray
    """Shares of a pool that may be measured, shape (n_shares,)."""
    k: np.ndarray
    """Kernels measured: share * size rounded up, shape (n_pools, n_shares)."""
    found: np.ndarray
    """Best found / best of pool, shape (n_pools, n_shares)."""
    random: np.ndarray
    """Expectation of a random order, shape (n_pools, n_shares)."""

    def mean(self) -> RecoveryCurve:
        """Mean over pools at each share, every pool counting alike."""
        return RecoveryCurve(self.share, self.found.mean(axis=0), self.random.mean(axis=0))

    def at(self, share: float) -> RecoveryCurve:
        """Values of each pool at one share, for example 0.1; ``share`` of the result is what rounding up to a kernel made of it.

        Raises
        ------
        ValueError
            If the share is not among those computed.
        """
        close = np.flatnonzero(np.isclose(self.share, share))
        if len(close) == 0:
            raise SchemaError(
                f"share {share:g} was not computed; name it in recovery(..., shares=[...]), found {self.share.tolist()}"
            )
        column = close[0]
        return RecoveryCurve(self.k[:, column] / self.sizes, self.found[:, column], self.random[:, column])


def expected_best(values, k) -> np.ndarray:
    """Expectation of the largest of k values drawn without replacement, in closed form.

    Parameters
    ----------
    values : array-like of shape (n,)
        Finite numbers.
    k : array-like of int, shape (m,)
        How many are drawn, 1 to n.

    Returns
    -------
    ndarray of shape (m,)
        In the units of ``values``.

    Raises
    ------
    ValueError
        If there are no values, one is not finite, or a k lies outside 1 to n.

    Examples
    --------
    >>> expected_best([1.0, 2.0, 4.0], [1, 2, 3]).round(4).tolist()
    [2.3333, 3.3333, 4.0]
    """
    v, k = np.sort(checked_vector("values", values)), np.asarray(k, dtype=np.int64)
    if k.ndim != 1 or (len(k) and (k.min() < 1 or k.max() > len(v))):
        raise SchemaError(f"k must be whole numbers 1 to {len(v)} (the number of values) of shape (m,), found {k.tolist()}")
    return _expected_best(v, k)


def _expected_best(v: np.ndarray, k: np.ndarray) -> np.ndarray:
    """The same for ascending values, unchecked."""
    n = len(v)
    below, gaps = np.arange(1, n), np.diff(v)
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    expected = np.full(len(k), v[-1])
    step = max(1, _AT_ONCE // n)
    for start in range(0, len(k), step):
        some = k[start : start + step, None]
        log_ratio = log_factorial[below] - log_factorial[np.maximum(below - some, 0)]
        log_ratio -= log_factorial[n] - log_factorial[n - some]
        ratio = np.where(below >= some, np.exp(np.minimum(log_ratio, 0.0)), 0.0)
        expected[start : start + step] -= (ratio * gaps).sum(axis=1)
    return expected


def _found(score: np.ndarray, speedup: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Expected best speedup of the k ranked highest, ties in score in random order."""
    order = np.lexsort((speedup, -score))  # ascending speedup within a tie
    ranked, speed = score[order], speedup[order]
    running = np.maximum.accumulate(speed)
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    ends = np.append(starts[1:], len(speed))
    best = running[k - 1]
    block = np.searchsorted(ends, k)  # k kernels end inside this tie block
    partial = k < ends[block]
    for b in np.unique(block[partial]):
        inside = partial & (block == b)
        before = running[starts[b] - 1] if starts[b] else 0.0
        best[inside] = _expected_best(np.maximum(speed[starts[b] : ends[b]], before), k[inside] - starts[b])
    return best


def _checked_pool(score, speedup) -> tuple[np.ndarray, np.ndarray]:
    score = checked_vector("score", score, infinite=True)
    return score, checked_vector("speedup", speedup, len(score), low=0.0)


def _best(speedup: np.ndarray, pool: str = "the pool") -> float:
    best = float(speedup.max())
    if best <= 0:
        raise SchemaError(f"{pool} has no kernel with a positive speedup, so nothing to recover; leave it out")
    return best


def recovery_curve(score, speedup) -> RecoveryCurve:
    """Recovery in one pool for every number of kernels measured.

    Parameters
    ----------
    score : array-like of shape (n_kernels,)
        Larger is measured sooner, for example the expected log2 speedup. ``-inf`` ranks last, as for a parse failure.
    speedup : array-like of shape (n_kernels,)
        Measured speedup; 0 for a kernel that failed when measured: it costs a measurement and finds nothing.

    Returns
    -------
    RecoveryCurve
        Arrays of shape (n_kernels,), entry k - 1 for k kernels measured; the last ``found`` is 1.

    Raises
    ------
    ValueError
        If lengths differ, the pool is empty, a value is not a number, or no speedup is positive.

    Examples
    --------
    >>> curve = recovery_curve([0.1, 0.9, 0.5], [4.0, 1.0, 2.0])
    >>> curve.found.tolist(), curve.random.round(4).tolist()
    ([0.25, 0.5, 1.0], [0.5833, 0.8333, 1.0])
    """
    score, speedup = _checked_pool(score, speedup)
    best, k = _best(speedup), np.arange(1, len(score) + 1)
    return RecoveryCurve(k / len(k), _found(score, speedup, k) / best, _expected_best(np.sort(speedup), k) / best)


def recovery(score, speedup, pool, *, shares=SHARES) -> Recovery:
    """Recovery in several pools, at the same shares measured.

    Parameters
    ----------
    score, speedup : array-like of shape (n_kernels,)
        As for :func:`recovery_curve`; scores are compared within a pool only.
    pool : array-like of shape (n_kernels,)
        Which pool each kernel belongs to, for example its task.
    shares : array-like of shape (n_shares,), optional
        Shares of a pool to measure, in (0, 1]; at least one kernel is. Every percent by default.

    Returns
    -------
    Recovery
        Values per pool and share; ``.mean()`` is the curve over pools, ``.at(0.1)`` the 10% point of each pool.

    Raises
    ------
    ValueError
        If lengths differ, there are no rows, a value is not a number, a share lies outside (0, 1], or a pool has no positive
        speedup.

    Examples
    --------
    >>> result = recovery([3, 2, 1, 1, 2], [1.0, 2.0, 4.0, 3.0, 3.0], ["a", "a", "a", "b", "b"], shares=[0.5])
    >>> result.pools, result.k[:, 0].tolist(), result.at(0.5).found.tolist()
    (('a', 'b'), [2, 1], [0.5, 1.0])
    """
    score, speedup = _checked_pool(score, speedup)
    pool = np.asarray(pool)
    if pool.shape != score.shape:
        raise SchemaError(f"pool must have shape {score.shape} like the scores, found shape {pool.shape}")
    shares = checked_vector("shares", shares)
    if shares.min() <= 0 or shares.max() > 1:
        raise SchemaError(f"shares must lie in (0, 1], found {shares.min():g} to {shares.max():g}")
    names, member, sizes = np.unique(pool, return_inverse=True, return_counts=True)
    rows = np.split(np.argsort(member, kind="stable"), np.cumsum(sizes)[:-1])
    k = np.maximum(np.ceil(shares * sizes[:, None] - 1e-9).astype(np.int64), 1)  # 0.1 of 30 is 3, not 4
    found, random = np.empty(k.shape), np.empty(k.shape)
    for i, here in enumerate(rows):
        best = _best(speedup[here], f"pool {names[i]!s}")
        found[i] = _found(score[here], speedup[here], k[i]) / best
        random[i] = _expected_best(np.sort(speedup[here]), k[i]) / best
    return Recovery(tuple(names.tolist()), sizes, shares, k, found, random)
