"""Fixtures of the data tests: an empty cache and no mirror, so that nothing outside the repository is read."""

from pathlib import Path

import numpy as np
import pytest

EXCERPTS = Path(__file__).resolve().parents[2] / "data" / "excerpts"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("KFS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("KFS_MIRROR", raising=False)


@pytest.fixture
def excerpts() -> Path:
    return EXCERPTS


@pytest.fixture
def rng():
    return np.random.default_rng(0)
