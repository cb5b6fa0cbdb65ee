"""Fixtures shared by all tests. Tests run on a CPU, offline, and never depend on how fast the machine is."""

import os

import numpy as np
import pytest

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as the study runner has it: beside busy processes, spinning costs most


@pytest.fixture
def rng():
    return np.random.default_rng(0)
