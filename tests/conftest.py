"""Fixtures shared by all tests. Tests run on a CPU, offline, and never depend on how fast the machine is."""

import numpy as np
import pytest


@pytest.fixture
def rng():
    return np.random.default_rng(0)
