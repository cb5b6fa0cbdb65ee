"""The eight ordered speedup bins: edges, closed side, names, representative speedups, expected speedup.

The only definition in the project. Prompt tables, labels, midpoints and metrics all read it from here. It holds two values:
``STUDY_BINS``, the bins the study describes to its forecasters, and ``RELEASED_LABELS``, the rule that made the labels of
the released files, clamp(floor(2 log2 S) + 4, 1, 8). They disagree by one bin for most speedups between 0.25 and 2.83.

Source: arXiv 2605.31464, prompt and released label code.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from kfs.errors import unknown_name

NAMES = (
    "severe slowdown",
    "significant slowdown",
    "moderate slowdown",
    "minor slowdown",
    "minor speedup",
    "significant speedup",
    "high speedup",
    "extreme speedup",
)
N_BINS = len(NAMES)

_TIE = 1e-12


def most_likely_bin(probabilities) -> np.ndarray | int:
    """Bin with the largest probability, the lower one on a tie (within 1e-12, which renormalising may cost).

    Parameters
    ----------
    probabilities : array-like of shape (8,) or (n, 8)

    Returns
    -------
    int or ndarray of shape (n,)
        1 to 8.

    Examples
    --------
    >>> most_likely_bin([0.1, 0.3, 0.3, 0.3, 0, 0, 0, 0])
    2
    """
    p = np.asarray(probabilities, dtype=float)
    bins = (p >= p.max(axis=-1, keepdims=True) - _TIE).argmax(axis=-1) + 1
    return int(bins) if p.ndim == 1 else bins


@dataclass(frozen=True)
class SpeedupBins:
    """A rule that maps a speedup to one of eight ordered bins, numbered 1 to 8.

    Parameters
    ----------
    name : str
        How records refer to this rule (their ``bin_rule``).
    edges : tuple of float, length 7
        Inner edges, increasing, in units of speedup (reference runtime / candidate runtime).
    closed : {"right", "left"}
        Which bin an edge belongs to: ``"right"`` the lower one, ``"left"`` the upper one.
    """

    name: str
    edges: tuple[float, ...]
    closed: Literal["right", "left"]
    names: tuple[str, ...] = NAMES

    def index(self, speedup):
        """Bin of each speedup.

        Parameters
        ----------
        speedup : float or array-like
            Reference runtime / candidate runtime; positive and finite.

        Returns
        -------
        int or ndarray of int
            1 (severe slowdown) to 8 (extreme speedup), in the shape of ``speedup``.

        Raises
        ------
        ValueError
            If a speedup is not positive and finite.

        Examples
        --------
        >>> STUDY_BINS.index(1.2), RELEASED_LABELS.index(1.2)
        (5, 4)
        >>> STUDY_BINS.index([0.5, 1.0, 4.01]).tolist()
        [2, 4, 8]
        """
        values = np.asarray(speedup, dtype=float)
        bad = ~(np.isfinite(values) & (values > 0))
        if bad.any():
            found = values if values.ndim == 0 else values[bad][0]
            raise ValueError(f"a speedup must be positive and finite, found {found}; a failed kernel has no bin")
        side = "left" if self.closed == "right" else "right"
        bins = np.searchsorted(np.asarray(self.edges), values, side=side) + 1
        return int(bins) if values.ndim == 0 else bins

    def bounds(self, index: int) -> tuple[float, float]:
        """Lower and upper edge of bin ``index`` (0 and infinity at the open ends)."""
        edges = (0.0, *self.edges, math.inf)
        return edges[index - 1], edges[index]

    @cached_property
    def representative(self) -> np.ndarray:
        """Representative speedup of each bin, shape (8,): geometric midpoint; half an octave past the edge of an open bin."""
        inner = np.log2(np.asarray(self.edges))
        middle = (inner[:-1] + inner[1:]) / 2
        values = 2.0 ** np.concatenate([[inner[0] - 0.5], middle, [inner[-1] + 0.5]])
        values.setflags(write=False)
        return values

    def expected_log2_speedup(self, probabilities) -> np.ndarray:
        """Expected log2 speedup of forecasts, shape (n,) for probabilities of shape (n, 8)."""
        return np.asarray(probabilities, dtype=float) @ np.log2(self.representative)

    def expected_speedup(self, probabilities) -> np.ndarray:
        """Two to the power of the expected log2 speedup: the geometric-mean speedup a forecast stands for.

        Examples
        --------
        >>> float(STUDY_BINS.expected_speedup([0, 0, 0, 0, 0.5, 0.5, 0, 0]).round(3))
        1.414
        """
        return 2.0 ** self.expected_log2_speedup(probabilities)

    def one_hot(self, bins) -> np.ndarray:
        """Distributions that put everything on each of ``bins``, shape (n, 8)."""
        return np.eye(N_BINS)[np.asarray(bins, dtype=int) - 1]

    def table(self) -> list[dict[str, object]]:
        """One row a bin: ``bin``, ``name``, ``low``, ``high``, ``interval``, ``representative``. Prompts and docs print it."""
        rows = []
        for i, name in enumerate(self.names, start=1):
            low, high = self.bounds(i)
            if i == 1:
                interval = f"S {'<=' if self.closed == 'right' else '<'} {high:.4g}"
            elif i == N_BINS:
                interval = f"S {'>' if self.closed == 'right' else '>='} {low:.4g}"
            else:
                left, right = ("<", "<=") if self.closed == "right" else ("<=", "<")
                interval = f"{low:.4g} {left} S {right} {high:.4g}"
            rows.append(
                {
                    "bin": i,
                    "name": name,
                    "low": low,
                    "high": high,
                    "interval": interval,
                    "representative": float(self.representative[i - 1]),
                }
            )
        return rows


_ROOT2 = math.sqrt(2.0)

STUDY_BINS = SpeedupBins("study", (0.25, 0.5, 1 / _ROOT2, 1.0, _ROOT2, 2.0, 4.0), "right")
"""The bins as the study's prompt defines them: right-closed."""

RELEASED_LABELS = SpeedupBins("released", (0.5, 1 / _ROOT2, 1.0, _ROOT2, 2.0, 2 * _ROOT2, 4.0), "left")
"""The rule behind the released ``true_bin`` labels: left-closed, one bin lower for most speedups between 0.25 and 2.83."""

_RULES = {rule.name: rule for rule in (STUDY_BINS, RELEASED_LABELS)}


def bin_rule(name: str) -> SpeedupBins:
    """Rule of a record's ``bin_rule`` field: ``"study"`` or ``"released"``."""
    if name not in _RULES:
        raise unknown_name("bin rule", name, _RULES, "kfs/speedup.py")
    return _RULES[name]
