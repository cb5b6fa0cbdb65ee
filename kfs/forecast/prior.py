"""The forecast that reads nothing: how often each bin came up in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from kfs.forecast.query import Query
from kfs.records import Forecast, Pair
from kfs.speedup import N_BINS


def bin_frequencies(pairs: Sequence[Pair], smoothing: float) -> np.ndarray:
    """Share of each bin, shape (8,), with ``smoothing`` pairs added to every bin.

    Raises
    ------
    ValueError
        If there are no pairs.
    """
    if not pairs:
        raise ValueError("no training pairs to learn from")
    counts = np.bincount([p.true_bin - 1 for p in pairs], minlength=N_BINS) + smoothing
    return counts / counts.sum()


@dataclass
class Prior:
    """Bin frequencies of the training pairs, the same for every query."""

    smoothing: float = 1.0
    """Pairs added to every bin."""

    name: ClassVar[str] = "prior"
    learns: ClassVar[bool] = True
    chunk_size: ClassVar[int] = 4096
    libraries: ClassVar[tuple[str, ...]] = ()

    frequencies: np.ndarray | None = field(default=None, init=False, repr=False)

    def fit(self, train: Sequence[Pair], calibration: Sequence[Pair]) -> Prior:
        """Count bins in ``train``; ``calibration`` is not needed."""
        self.frequencies = bin_frequencies(train, self.smoothing)
        return self

    def forecast(self, queries: Sequence[Query], *, progress: bool = False) -> list[Forecast]:
        """The same forecast for every query, in order."""
        return [Forecast.from_probabilities(q.comparison_id, q.pack, self.name, self.frequencies) for q in queries]
