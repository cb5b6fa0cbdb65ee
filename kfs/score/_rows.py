"""What every score shares: checked rows, row weights, weighted means, and the hook that makes a metric cheap to resample.

Rows are forecasts. Probabilities have shape (n, 8) and each row sums to 1 within 1e-6; true bins have shape (n,) and lie in
1 to 8; a row marked in ``parse_failed`` is never read and stands for the uniform forecast. A row of integer weight w counts
like w copies of the row. Does not read records or tables: callers bring arrays.

Two numbers that differ by less than ``TIE`` are one number here, so that renormalising a stated 0.3 and 0.3 cannot decide
which of two bins is predicted or which of two forecasts ranks first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kfs.errors import SchemaError
from kfs.speedup import N_BINS

SUM_TOLERANCE = 1e-6
TIE_DECIMALS = 12
TIE = 10.0**-TIE_DECIMALS
_ONES = np.ones(N_BINS)
_BLOCK = 8192  # rows: half a megabyte of probabilities


def checked_vector(name: str, values, n: int | None = None, *, infinite: bool = False, low: float | None = None) -> np.ndarray:
    """Floats of shape (n,), finite unless ``infinite``, at least ``low``; otherwise an error that names the row."""
    array = np.asarray(values, dtype=float)
    if array.ndim != 1:
        raise SchemaError(f"{name} must have shape (n_rows,), found shape {array.shape}")
    if n is not None and len(array) != n:
        raise SchemaError(f"{name} has {len(array)} rows, the others have {n}; give one value a row")
    if len(array) == 0:
        raise SchemaError(f"{name} has no rows; a score needs at least one")
    bad = np.isnan(array) if infinite else ~np.isfinite(array)
    if bad.any():
        row = int(bad.argmax())
        allowed = "numbers" if infinite else "finite numbers"
        raise SchemaError(f"{name}, row {row}: found {array[row]}, allowed are {allowed}; leave the row out or mark it failed")
    if low is not None and array.min() < low:
        row = int(array.argmin())
        raise SchemaError(f"{name}, row {row}: found {array[row]:g}, allowed is {low:g} or more")
    return array


def checked_weight(weight, n: int) -> np.ndarray | None:
    """Row weights: None (all 1), or finite and non-negative with a positive sum."""
    if weight is None:
        return None
    array = checked_vector("weight", weight, n, low=0.0)
    if not array.any():
        raise SchemaError("every weight is 0; a score needs a row that counts")
    return array


def checked_failures(parse_failed, n: int) -> np.ndarray | None:
    """Booleans of shape (n,); None where no row failed."""
    if parse_failed is None:
        return None
    array = np.asarray(parse_failed)
    if array.shape != (n,):
        raise SchemaError(f"parse_failed must have shape ({n},) like the rows, found shape {array.shape}")
    if array.dtype != bool:
        if not np.isin(array, (0, 1)).all():
            raise SchemaError("parse_failed must hold booleans, one a row")
        array = array.astype(bool)
    return array if array.any() else None


def checked_probabilities(probabilities, parse_failed=None) -> tuple[np.ndarray, np.ndarray | None]:
    """Probabilities of shape (n, 8), uniform in failed rows, and the failures (None where there are none)."""
    p = np.ascontiguousarray(probabilities, dtype=float)
    if p.ndim != 2 or p.shape[1] != N_BINS:
        raise SchemaError(f"probabilities must have shape (n_rows, {N_BINS}), one column a bin in order, found shape {p.shape}")
    if len(p) == 0:
        raise SchemaError("probabilities have no rows; a score needs at least one")
    failed = checked_failures(parse_failed, len(p))
    if failed is not None:
        p = np.where(failed[:, None], 1 / N_BINS, p)
    with np.errstate(invalid="ignore"):
        off = np.abs(p @ _ONES - 1.0)
    if not off.max() <= SUM_TOLERANCE or p.min() < 0:  # a NaN fails the first comparison
        _name_bad_row(p)
    return p, failed


def _name_bad_row(p: np.ndarray) -> None:
    finite = np.isfinite(p).all(axis=1)
    if not finite.all():
        row = int((~finite).argmax())
        raise SchemaError(
            f"probabilities, row {row}: found {p[row].tolist()}, allowed are finite numbers; "
            "mark a reply that could not be parsed in parse_failed"
        )
    if p.min() < 0:
        row, column = np.unravel_index(int(p.argmin()), p.shape)
        raise SchemaError(f"probabilities, row {row}, bin {column + 1}: found {p[row, column]:g}, allowed is 0 or more")
    row = int(np.abs(p.sum(axis=1) - 1.0).argmax())
    raise SchemaError(
        f"probabilities, row {row}: they sum to {p[row].sum():.7g}, allowed is 1 within {SUM_TOLERANCE:g}; "
        "divide the row by its sum first"
    )


def checked_bins(true_bin, n: int) -> np.ndarray:
    """True bins as columns: integers 0 to 7 of shape (n,)."""
    y = np.asarray(true_bin)
    if y.shape != (n,):
        raise SchemaError(f"true_bin must have shape ({n},) like the rows of probabilities, found shape {y.shape}")
    if y.dtype.kind not in "iu":
        if y.dtype.kind != "f" or not (y == np.floor(y)).all():
            raise SchemaError(f"true_bin must hold whole numbers 1 to {N_BINS}, found {y.dtype} such as {y.tolist()[:3]}")
        y = y.astype(np.int64)
    if y.min() < 1 or y.max() > N_BINS:
        row = int(((y < 1) | (y > N_BINS)).argmax())
        raise SchemaError(f"true_bin, row {row}: found {y[row]}, allowed are 1 to {N_BINS}")
    return np.subtract(y, 1, dtype=np.int64)


def cells(p: np.ndarray, column: np.ndarray) -> np.ndarray:
    """Flat positions of one column a row."""
    return np.arange(0, p.size, N_BINS) + column


def by_block(function: Callable[..., np.ndarray], *arrays: np.ndarray) -> np.ndarray:
    """``function`` of the rows, a block at a time so that its temporaries stay in cache, shape (n,)."""
    n = len(arrays[0])
    if n <= _BLOCK:
        return function(*arrays)
    return np.concatenate([function(*(a[start : start + _BLOCK] for a in arrays)) for start in range(0, n, _BLOCK)])


def argmax_column(p: np.ndarray) -> np.ndarray:
    """Column of the largest probability in each row, 0 to 7, the lower one on a tie: ``most_likely_bin`` less one, faster."""
    return by_block(_argmax_column, p)


def _argmax_column(p: np.ndarray) -> np.ndarray:
    columns = np.ascontiguousarray(p.T)  # eight passes over long columns: numpy reduces rows of eight slowly
    least = columns.max(axis=0) - TIE
    best, lower = np.zeros(len(p), dtype=np.int64), np.ones(len(p), dtype=bool)
    for column in columns[:-1]:
        lower &= column < least
        best += lower
    return best


def mean(values, *, weight=None) -> float:
    """Weighted mean of per-row values.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
        Finite numbers, for example per-row losses or one recovery a pool.
    weight : array-like of shape (n_rows,), optional
        Non-negative; a row of integer weight w counts like w copies. All 1 by default.

    Returns
    -------
    float
        In the units of ``values``.

    Raises
    ------
    ValueError
        If lengths differ, there are no rows, a value is not finite, or weights are negative or all 0.

    Examples
    --------
    >>> mean([1.0, 4.0], weight=[2, 1])
    2.0
    """
    array = checked_vector("values", values)
    return _average(array, checked_weight(weight, len(array)))


def _average(array: np.ndarray, weight: np.ndarray | None) -> float:
    return float(array.mean() if weight is None else array @ weight / weight.sum())


def mean_sums(values: np.ndarray) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """A mean as sums over rows: what the bootstrap adds up, and how the sums (b, 2) become the metric (b,)."""
    return np.column_stack([values, np.ones(len(values))]), lambda sums: sums[:, 0] / sums[:, 1]


def mean_of(per_row: Callable[..., np.ndarray]) -> Callable[[Callable], Callable]:
    """Declare that a metric is the weighted mean of ``per_row``, called with the same arrays.

    ``metric.sums(*arrays)`` then gives per-row features (n, k) and a function from their weighted sums (b, k) to the metric
    (b,), with which the bootstrap gets all resamples from one matrix product.
    """

    def declare(metric: Callable) -> Callable:
        metric.sums = lambda *arrays, **named: mean_sums(per_row(*arrays, **named))
        return metric

    return declare


mean.sums = lambda values: mean_sums(checked_vector("values", values))


def sums_from(function: Callable) -> Callable[[Callable], Callable]:
    """Declare a metric's per-row features and how their weighted sums become the metric; see ``mean_of``."""

    def declare(metric: Callable) -> Callable:
        metric.sums = function
        return metric

    return declare


def many_weights(function: Callable) -> Callable[[Callable], Callable]:
    """Declare ``function(*arrays)``: it returns a function from weights (b, n) to the metric under each of them (b,)."""

    def declare(metric: Callable) -> Callable:
        metric.many = function
        return metric

    return declare


def weight_rows(weight: np.ndarray | None, n: int) -> np.ndarray:
    """One weighting as a matrix of shape (1, n)."""
    return np.ones((1, n)) if weight is None else weight[None, :]
