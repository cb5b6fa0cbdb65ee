import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(20260531)


@pytest.fixture
def rows(rng):
    """Forty rows with ties in forecasts, speedups and confidence, three of them parse failures."""
    n = 40
    probabilities = rng.dirichlet(np.full(8, 0.5), n)
    probabilities[10:16] = probabilities[10]
    true_bin = rng.integers(1, 9, n)
    speedup = np.round(rng.lognormal(0, 0.7, n), 1) + 0.1
    parse_failed = np.zeros(n, dtype=bool)
    parse_failed[[3, 12, 30]] = True
    return {"probabilities": probabilities, "true_bin": true_bin, "speedup": speedup, "parse_failed": parse_failed}
