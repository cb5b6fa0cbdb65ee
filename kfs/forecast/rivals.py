"""What can be forecast without comparing code: rivals a reader of code must beat.

``variant_table`` knows only where the two kernels came from, ``anchor_only`` and ``candidate_only`` see one source each,
``code_length`` sees how long the two sources are. A gain over all four is a gain from reading both.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from kfs.forecast.features import FeatureSpace, plain_text
from kfs.forecast.prior import bin_frequencies
from kfs.forecast.query import Query, languages
from kfs.forecast.trees import FLOOR, BinTrees, best_temperature, sharpen
from kfs.records import Forecast, Pair
from kfs.speedup import N_BINS


def _forecasts(name: str, queries: Sequence[Query], rows: np.ndarray) -> list[Forecast]:
    return [Forecast.from_probabilities(q.comparison_id, q.pack, name, p) for q, p in zip(queries, rows, strict=True)]


@dataclass
class VariantTable:
    """Bin frequencies by (anchor variant, candidate variant), drawn towards the prior; the prior where a cell is empty."""

    smoothing: float = 8.0
    """Pairs' worth of the prior added to every cell."""

    name: ClassVar[str] = "variant_table"
    learns: ClassVar[bool] = True
    chunk_size: ClassVar[int] = 4096
    libraries: ClassVar[tuple[str, ...]] = ()

    prior: np.ndarray | None = field(default=None, init=False, repr=False)
    cells: dict[tuple[str, str], np.ndarray] = field(default_factory=dict, init=False, repr=False)

    def fit(self, train: Sequence[Pair], calibration: Sequence[Pair]) -> VariantTable:
        """Count bins in ``train``; ``calibration`` is not needed."""
        self.prior = bin_frequencies(train, 1.0)
        counts = defaultdict(lambda: self.smoothing * self.prior)
        for p in train:
            counts[p.anchor_variant, p.candidate_variant] = counts[p.anchor_variant, p.candidate_variant] + (
                np.arange(1, N_BINS + 1) == p.true_bin
            )
        self.cells = {cell: row / row.sum() for cell, row in counts.items()}
        return self

    def forecast(self, queries: Sequence[Query], *, progress: bool = False) -> list[Forecast]:
        """One forecast a query, in order."""
        return _forecasts(
            self.name, queries, [self.cells.get((q.anchor_variant, q.candidate_variant), self.prior) for q in queries]
        )


@dataclass
class OneSource:
    """Boosted trees that see one source and the hardware."""

    iterations: int = 40
    """Boosting rounds; each grows one tree a bin."""
    learning_rate: float = 0.08
    leaves: int = 8
    """Most leaves of a tree."""
    smallest_leaf: int = 30
    """Fewest training pairs in a leaf."""
    feature_share: float = 0.2
    """Share of the features tried at each split."""
    token_dimensions: int = 16
    """Dimensions of the token space."""
    seed: int = 0

    name: ClassVar[str]
    side: ClassVar[str]
    learns: ClassVar[bool] = True
    chunk_size: ClassVar[int] = 4096
    libraries: ClassVar[tuple[str, ...]] = ("scikit-learn", "scipy")

    temperature: float = field(default=1.0, init=False, repr=False)

    def fit(self, train: Sequence[Pair], calibration: Sequence[Pair]) -> OneSource:
        """Grow trees on ``train``, then set the temperature on ``calibration``."""
        if not train:
            raise ValueError("no training pairs to learn from")
        self._space = FeatureSpace(self.side, self.token_dimensions).fit(train)
        self._trees = BinTrees(
            self.iterations, self.learning_rate, self.leaves, self.smallest_leaf, self.feature_share, self.seed
        ).fit(self._space.transform(train), np.array([p.true_bin for p in train]))
        self.temperature = 1.0
        if calibration:
            held_out = self._trees.predict(self._space.transform(calibration))
            self.temperature = best_temperature(held_out, np.array([p.true_bin for p in calibration]))
        return self

    def forecast(self, queries: Sequence[Query], *, progress: bool = False) -> list[Forecast]:
        """One forecast a query, in order."""
        if not queries:
            return []
        return _forecasts(self.name, queries, sharpen(self._trees.predict(self._space.transform(queries)), self.temperature))


@dataclass
class AnchorOnly(OneSource):
    """What the anchor alone says about how much a candidate may gain."""

    name: ClassVar[str] = "anchor_only"
    side: ClassVar[str] = "anchor"


@dataclass
class CandidateOnly(OneSource):
    """What the candidate alone says, without knowing what it is compared with."""

    name: ClassVar[str] = "candidate_only"
    side: ClassVar[str] = "candidate"


@dataclass
class CodeLength:
    """Logistic regression on the lengths of the two sources."""

    regularisation: float = 1.0
    """Inverse strength of the L2 penalty (scikit-learn's ``C``)."""

    name: ClassVar[str] = "code_length"
    learns: ClassVar[bool] = True
    chunk_size: ClassVar[int] = 4096
    libraries: ClassVar[tuple[str, ...]] = ("scikit-learn", "scipy")

    def fit(self, train: Sequence[Pair], calibration: Sequence[Pair]) -> CodeLength:
        """Fit on ``train``; ``calibration`` is not needed."""
        from sklearn.dummy import DummyClassifier
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler

        if not train:
            raise ValueError("no training pairs to learn from")
        bins = np.array([p.true_bin for p in train])
        several = len(np.unique(bins)) > 1
        self._model = make_pipeline(
            StandardScaler(), LogisticRegression(C=self.regularisation, max_iter=1000) if several else DummyClassifier()
        ).fit(self._lengths(train), bins)
        return self

    @staticmethod
    def _lengths(items: Sequence[Pair | Query]) -> np.ndarray:
        """Log2 of characters and lines of both sources, comments taken out, and what differs; shape (n, 8)."""
        texts = [tuple(plain_text(getattr(i, side), language) for side, language in languages(i).items()) for i in items]
        sizes = np.array([[math.log2(f(t) + 1) for t in pair for f in (len, lambda s: s.count("\n"))] for pair in texts])
        change = sizes[:, 2:] - sizes[:, :2]
        return np.hstack([sizes, change, np.abs(change)])

    def forecast(self, queries: Sequence[Query], *, progress: bool = False) -> list[Forecast]:
        """One forecast a query, in order."""
        if not queries:
            return []
        rows = np.full((len(queries), N_BINS), FLOOR / N_BINS)
        rows[:, self._model.classes_ - 1] += (1 - FLOOR) * self._model.predict_proba(self._lengths(queries))
        return _forecasts(self.name, queries, rows)
