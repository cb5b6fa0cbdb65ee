"""How fast, and how sure: from blocks of neighbouring calls to a speedup with an interval.

A block holds neighbouring calls of reference and candidate and gives one log ratio of medians, so slow drifts of the machine
cancel. A child pair's value is the mean over cases of the median over its blocks; the interval is Student's t over child pairs,
whose standard error is never taken smaller than the scatter of the blocks inside the pairs allows. Pure functions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from kfs.records import Block
from kfs.speedup import STUDY_BINS, SpeedupBins

# Standard error of a median of n normal samples is about 1.2533 sd / sqrt(n); 1.4826 MAD estimates sd.
_MEDIAN_FACTOR = 1.2533 * 1.4826


@dataclass(frozen=True)
class Estimate:
    """A speedup with its interval."""

    speedup: float
    low: float
    high: float
    level: float
    log2_std_error: float
    n_child_pairs: int


def block_log2_ratio(block: Block) -> float:
    """log2 of median reference duration over median candidate duration."""
    return math.log2(float(np.median(block.reference_ns)) / float(np.median(block.candidate_ns)))


def estimate(blocks: Sequence[Block], *, level: float = 0.95) -> Estimate:
    """Speedup over all cases, with a two-sided interval over child pairs.

    Parameters
    ----------
    blocks : sequence of Block
        Every child pair must have run every case.
    level : float
        Coverage of the interval.

    Raises
    ------
    ValueError
        If there are fewer than two child pairs, or a pair lacks a case.
    """
    ratios: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for block in blocks:
        ratios[block.child_pair][block.case].append(block_log2_ratio(block))
    cases = sorted({b.case for b in blocks})
    if len(ratios) < 2:
        raise ValueError(f"an interval needs at least two child pairs, found {len(ratios)}")
    values, inner = [], []
    for pair, by_case in sorted(ratios.items()):
        if sorted(by_case) != cases:
            raise ValueError(f"child pair {pair} ran cases {sorted(by_case)}, others ran {cases}")
        values.append(np.mean([np.median(by_case[c]) for c in cases]))
        inner.append(math.sqrt(sum(_median_error(by_case[c]) ** 2 for c in cases)) / len(cases))
    n = len(values)
    between = float(np.std(values, ddof=1)) / math.sqrt(n)
    within = math.sqrt(float(np.mean(np.square(inner)))) / math.sqrt(n)
    error = max(between, within)
    center = float(np.mean(values))
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * error
    return Estimate(2.0**center, 2.0 ** (center - half), 2.0 ** (center + half), level, error, n)


def _median_error(values: Sequence[float]) -> float:
    values = np.asarray(values)
    mad = float(np.median(np.abs(values - np.median(values))))
    return _MEDIAN_FACTOR * mad / math.sqrt(len(values))


def ratio_interval(anchor: Estimate, candidate: Estimate, *, level: float = 0.95) -> tuple[float, float, float]:
    """Speedup of a candidate over an anchor, both measured against the same reference, with its interval.

    The two estimates are independent; degrees of freedom after Welch and Satterthwaite.

    Returns
    -------
    speedup, low, high : float
    """
    center = math.log2(candidate.speedup / anchor.speedup)
    variances = [anchor.log2_std_error**2, candidate.log2_std_error**2]
    total = sum(variances)
    if total == 0:
        return 2.0**center, 2.0**center, 2.0**center
    freedom = total**2 / sum(v**2 / max(e.n_child_pairs - 1, 1) for v, e in zip(variances, (anchor, candidate), strict=True))
    half = float(stdtrit(freedom, 0.5 + level / 2)) * math.sqrt(total)
    return 2.0**center, 2.0 ** (center - half), 2.0 ** (center + half)


def inside_one_bin(low: float, high: float, bins: SpeedupBins = STUDY_BINS) -> bool:
    """Whether an interval of speedups lies inside a single bin."""
    return bins.index(low) == bins.index(high)
