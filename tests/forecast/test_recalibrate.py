"""Recalibration: what each map restores, and what it leaves alone."""

import numpy as np
import pytest
from scipy.special import softmax

from kfs.errors import UnknownNameError
from kfs.forecast.recalibrate import RECALIBRATIONS, Isotonic, Temperature, VectorScaling, recalibrated
from kfs.score import ece, half_brier, nll


def drawn(rng, n=4000):
    """Right distributions of an ordinal kind, and bins drawn from them."""
    centre, width = rng.uniform(0, 7, n), rng.uniform(0.5, 1.5, n)
    p = softmax(-(((np.arange(8) - centre[:, None]) / width[:, None]) ** 2), axis=1)
    return p, (p.cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1) + 1


def sharpened(p, power):
    return p**power / (p**power).sum(axis=1, keepdims=True)


@pytest.mark.parametrize("power", [0.4, 2.5])
def test_temperature_undoes_a_power(rng, power):
    p, bins = drawn(rng)
    assert Temperature().fit(sharpened(p, power), bins).temperature == pytest.approx(power, rel=0.1)


def test_vector_scaling_undoes_an_offset_of_the_bins(rng):
    p, bins = drawn(rng)
    shifted = softmax(np.log(p) + np.array([0, 1, 0, -1, 2, 0, 0, -1]), axis=1)
    before, after = half_brier(shifted, bins), half_brier(VectorScaling().fit(shifted, bins)(shifted), bins)
    assert before > 1.1 * half_brier(p, bins)
    assert after == pytest.approx(half_brier(p, bins), rel=0.05)


@pytest.mark.parametrize("name", RECALIBRATIONS)
def test_every_map_gives_distributions_and_mends_a_forecaster_that_is_too_sure(rng, name):
    p, bins = drawn(rng)
    sure, old, new = sharpened(p, 3.0), slice(0, 2000), slice(2000, None)
    mapped = recalibrated(name, sure[old], bins[old], sure[new])
    assert mapped.min() >= 0 and np.allclose(mapped.sum(axis=1), 1)
    assert nll(mapped, bins[new]) < nll(sure[new], bins[new])
    assert half_brier(mapped, bins[new]) < half_brier(sure[new], bins[new])
    assert ece(mapped, bins[new]) < 0.5 * ece(sure[new], bins[new])


def test_a_right_forecaster_is_left_about_as_it_is(rng):
    p, bins = drawn(rng)
    for kind in RECALIBRATIONS.values():
        assert half_brier(kind().fit(p, bins)(p), bins) == pytest.approx(half_brier(p, bins), abs=0.005)


def test_temperature_never_changes_the_order_of_bins(rng):
    p, bins = drawn(rng, 500)
    assert (Temperature().fit(sharpened(p, 3.0), bins)(p).argmax(axis=1) == p.argmax(axis=1)).all()


def test_zeros_and_ones_stay_finite(rng):
    p = np.eye(8)[rng.integers(0, 8, 100)]
    for kind in RECALIBRATIONS.values():
        mapped = kind().fit(p, rng.integers(1, 9, 100))(p)
        assert np.isfinite(mapped).all() and np.allclose(mapped.sum(axis=1), 1)


def test_an_isotonic_map_that_was_not_fitted_changes_nothing():
    p = np.full((2, 8), 0.125)
    assert np.allclose(Isotonic()(p), p)


def test_unknown_maps_and_empty_splits_are_refused():
    with pytest.raises(UnknownNameError, match="temperature"):
        recalibrated("platt", [[0.125] * 8], [1], [[0.125] * 8])
    with pytest.raises(ValueError, match="at least one row"):
        recalibrated("temperature", np.empty((0, 8)), [], [[0.125] * 8])
    with pytest.raises(ValueError, match=r"shape \(n, 8\)"):
        recalibrated("temperature", [[0.5, 0.5]], [1], [[0.125] * 8])
