"""How fast, and how sure: from blocks of neighbouring calls to a speedup with an interval, and what makes samples suspect.

A block holds neighbouring calls of reference and candidate and gives one log ratio of medians, so slow drifts of the machine
cancel; first calls, which find cold caches, are left out of it. A child pair's value is the mean over cases of the median over
its blocks; the interval is Student's t over child pairs, whose standard error is never taken smaller than the scatter of the
blocks inside the pairs allows.

A kernel whose means make it slower than its medians do (medians would hide work moved from one call into another) is
``unstable``, and its label is made of means. The stamps of calls come from the candidate's process; the CPU time
the kernel accounts to it bounds them from outside, and the speed of light from below. Pure functions.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from scipy.special import stdtrit

from kfs.records import Alone, Block
from kfs.speedup import STUDY_BINS, SpeedupBins

# Standard error of a median of n normal samples is about 1.2533 sd / sqrt(n); 1.4826 MAD estimates sd, and its square is right
# within 12% from three samples on (for two it is too large).
_MEDIAN_FACTOR = 1.2533 * 1.4826

UNEVEN_LOG2 = 0.15
"""Speedups of medians this far above those of means, in log2, make a kernel unstable: its label is then made of means."""
CLOCK_SLACK = 0.25
"""CPU time beyond the claimed one that is not yet suspect, as a share of the claimed one."""
STAGING_SLACK = 0.5
"""And as a share of what staging costs."""
CLOCK_SLACK_NS = 60_000.0
"""And nanoseconds a block."""
LIGHT_MARGIN = 0.8
"""Faster than this share of the speed-of-light bound is implausible."""
SLOWED_LOG2 = 1.0
"""A reference alone this much slower after the candidate than before it, in log2, was slowed by it."""
SLOWED_NS = 50_000.0
"""And at least so many nanoseconds a call: cold caches cost a few microseconds."""


@dataclass(frozen=True)
class Estimate:
    """A speedup with its interval."""

    speedup: float
    low: float
    high: float
    level: float
    log2_std_error: float
    n_child_pairs: int


def typical_ns(durations: Sequence[int]) -> float:
    """Median of a block's calls; of three or more without the first, which finds caches that the other side has filled.

    So it does not matter that the faster side makes more calls a block.
    """
    return float(median(durations[1:] if len(durations) > 2 else durations))  # of a few numbers, ten times as fast as NumPy's


def block_log2_ratio(block: Block) -> float:
    """log2 of the reference's typical duration over the candidate's."""
    return math.log2(typical_ns(block.reference_ns) / typical_ns(block.candidate_ns))


def _total_log2_ratio(blocks: Sequence[Block]) -> float:
    """log2 of the reference's mean duration over the candidate's, all calls of some blocks together."""
    reference, candidate = (np.concatenate([getattr(b, side) for b in blocks]) for side in ("reference_ns", "candidate_ns"))
    return math.log2(float(reference.mean()) / float(candidate.mean()))


def _by_pair(blocks: Sequence[Block]) -> dict[int, dict[str, list[Block]]]:
    """Blocks by child pair and case; every pair must have run every case."""
    found: dict[int, dict[str, list[Block]]] = defaultdict(lambda: defaultdict(list))
    for block in blocks:
        found[block.child_pair][block.case].append(block)
    cases = sorted({b.case for b in blocks})
    for pair, by_case in sorted(found.items()):
        if sorted(by_case) != cases:
            raise ValueError(f"child pair {pair} ran cases {sorted(by_case)}, others ran {cases}")
    return found


def unstable(blocks: Sequence[Block]) -> bool:
    """Whether means make the candidate slower than medians do, by more than ``UNEVEN_LOG2``; median over child pairs.

    Then some of its calls are much slower than the rest, beyond what the machine does to the reference, and medians would hide
    work that was moved from one call into another.
    """
    gaps = [
        np.mean([np.median([block_log2_ratio(b) for b in own]) - _total_log2_ratio(own) for own in by_case.values()])
        for by_case in _by_pair(blocks).values()
    ]
    return float(np.median(gaps)) > UNEVEN_LOG2


def bimodal(blocks: Sequence[Block]) -> bool:
    """Whether the candidate's calls fall into two groups at least a factor 1.5 apart, each with a tenth of the calls or more."""
    for case in {b.case for b in blocks}:
        calls = np.sort(np.concatenate([np.divide(b.candidate_ns, np.median(b.reference_ns)) for b in blocks if b.case == case]))
        steps = calls[1:] / calls[:-1]
        edge = len(calls) // 10
        inner = steps[max(edge - 1, 0) : len(steps) - max(edge - 1, 0)]
        if len(calls) >= 20 and len(inner) and inner.max() > 1.5:
            return True
    return False


def estimate(blocks: Sequence[Block], *, level: float = 0.95) -> Estimate:
    """Speedup over all cases, with a two-sided interval over child pairs; from means where the candidate is unstable.

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
    by_pair = _by_pair(blocks)
    if (n := len(by_pair)) < 2:
        raise ValueError(f"an interval needs at least two child pairs, found {n}")
    uneven, values, inner = unstable(blocks), [], []
    for by_case in by_pair.values():
        ratios = [[block_log2_ratio(b) for b in own] for own in by_case.values()]
        middles = [_total_log2_ratio(own) for own in by_case.values()] if uneven else [np.median(r) for r in ratios]
        values.append(np.mean(middles))
        inner.append(sum(_median_error(r) ** 2 for r in ratios) / len(ratios) ** 2)
    error = math.sqrt(max(float(np.var(values, ddof=1)), float(np.mean(inner))) / n)
    center, half = float(np.mean(values)), float(stdtrit(n - 1, 0.5 + level / 2)) * error
    return Estimate(2.0**center, 2.0 ** (center - half), 2.0 ** (center + half), level, error, n)


def _median_error(values: Sequence[float]) -> float:
    values = np.asarray(values)
    return _MEDIAN_FACTOR * float(np.median(np.abs(values - np.median(values)))) / math.sqrt(len(values))


def ratio_interval(anchor: Estimate, candidate: Estimate, *, level: float = 0.95) -> tuple[float, float, float]:
    """Speedup of a candidate over an anchor, both measured against the same reference, with its interval.

    The two estimates are independent; degrees of freedom after Welch and Satterthwaite.

    Returns
    -------
    speedup, low, high : float
    """
    center = math.log2(candidate.speedup / anchor.speedup)
    variances = [anchor.log2_std_error**2, candidate.log2_std_error**2]
    if (total := sum(variances)) == 0:
        return 2.0**center, 2.0**center, 2.0**center
    freedom = total**2 / sum(v**2 / (e.n_child_pairs - 1) for v, e in zip(variances, (anchor, candidate), strict=True))
    half = float(stdtrit(freedom, 0.5 + level / 2)) * math.sqrt(total)
    return 2.0**center, 2.0 ** (center - half), 2.0 ** (center + half)


def inside_one_bin(low: float, high: float, bins: SpeedupBins = STUDY_BINS) -> bool:
    """Whether an interval of speedups lies inside a single bin."""
    return bins.index(low) == bins.index(high)


@dataclass(frozen=True)
class Staging:
    """CPU time a request costs beside its calls, measured with an empty kernel: nanoseconds a request and a call."""

    request_ns: float
    call_ns: float

    def of(self, calls: int) -> float:
        """Expected overhead of a request with that many calls, nanoseconds; at least a microsecond."""
        return max(self.request_ns + self.call_ns * calls, 1000.0)


def clock_fault(blocks: Sequence[Block], staging: dict[str, Staging]) -> str | None:
    """Whether the candidate's stamps and the outside clock disagree, in words; None if they agree.

    A process cannot have spent much more CPU time on its requests than its calls claim, beyond what staging costs: what the empty
    kernel showed, scaled by what the reference's own blocks show now. The kernel's accounting is read while the process is
    stopped, so other work on the machine does not blur it; the pauses of a hypervisor do. Sums over blocks without the worst
    quarter, for each case.
    """
    for case in sorted({b.case for b in blocks}):
        claimed, spent, slack = _spent(blocks, case, staging)
        if spent - claimed > slack:
            return (
                f"case {case}: calls claim {claimed / 1e6:.3f} ms, the process spent {spent / 1e6:.3f} ms on them; "
                f"{slack / 1e6:.3f} ms more would pass"
            )
    return None


def clock_unproven(blocks: Sequence[Block], staging: dict[str, Staging]) -> bool:
    """Whether some case's calls are so short that their whole claimed time is within the slack of the clock outside."""
    for case in {b.case for b in blocks}:
        claimed, _, slack = _spent(blocks, case, staging)
        if slack > claimed:
            return True
    return False


def _spent(blocks: Sequence[Block], case: str, staging: dict[str, Staging]) -> tuple[float, float, float]:
    """Nanoseconds that a case's candidate calls claim, that its process spent on them, and that may lie between the two."""
    own = [b for b in blocks if b.case == case and b.candidate_cpu_ns and b.reference_cpu_ns]
    if not own:
        return 0.0, 0.0, 0.0
    plain = staging[case]
    now = max(float(np.median([(b.reference_cpu_ns - sum(b.reference_ns)) / plain.of(len(b.reference_ns)) for b in own])), 1.0)
    claimed = np.array([sum(b.candidate_ns) for b in own], dtype=float)
    beside = now * np.array([plain.of(len(b.candidate_ns)) for b in own])
    spent = np.array([b.candidate_cpu_ns for b in own]) - beside
    keep = np.argsort(spent - claimed)[: len(own) - (len(own) + 3) // 4]
    slack = CLOCK_SLACK * claimed[keep].sum() + STAGING_SLACK * beside[keep].sum() + CLOCK_SLACK_NS * len(keep)
    return float(claimed[keep].sum()), float(spent[keep].sum()), float(slack)


def light_fault(blocks: Sequence[Block], floor_ns: dict[str, float]) -> str | None:
    """Whether a case runs faster than the machine can move its bytes or do its arithmetic, in words; None if not."""
    for case, floor in sorted(floor_ns.items()):
        median = float(np.median([np.median(b.candidate_ns) for b in blocks if b.case == case]))
        if median < LIGHT_MARGIN * floor:
            return f"case {case}: {median / 1e3:.3g} us a call, the speed of light allows {floor / 1e3:.3g} us"
    return None


def slowed(alone: Sequence[Alone]) -> str | None:
    """Whether the reference runs slower alone after the candidate than before it, beyond noise, in words; None if not.

    The median over child pairs must pass ``SLOWED_LOG2``, three times its standard error, and ``SLOWED_NS`` a call.
    """
    shifts = _moves(alone)
    if len(shifts) < 3:
        return None
    center = float(np.median(shifts))
    calls = {when: float(np.median([np.median(a.reference_ns) for a in alone if a.when == when])) for when in ("before", "after")}
    if center > max(SLOWED_LOG2, 3 * _median_error(shifts)) and calls["after"] - calls["before"] > SLOWED_NS:
        return f"the reference alone runs {2**center:.2f} times slower after this kernel than before it"
    return None


def crowded_log2(blocks: Sequence[Block], alone: Sequence[Alone]) -> float:
    """How much slower the reference runs beside the candidate than alone, log2, median over child pairs.

    Some of it is honest: a neighbour's data evict the reference's from the caches.
    """
    shifts = []
    for pair in sorted({a.child_pair for a in alone}):
        own = [a for a in alone if a.child_pair == pair]
        beside = [np.median(b.reference_ns) for b in blocks if b.child_pair == pair and b.case == own[0].case]
        if beside:
            shifts.append(math.log2(float(np.median(beside)) / max(float(np.median(a.reference_ns)) for a in own)))
    return float(np.median(shifts)) if shifts else 0.0


def drift_log2(alone: Sequence[Alone]) -> float:
    """How far the reference alone moved from before a child pair to after it, log2; median of absolute values over pairs."""
    moves = _moves(alone)
    return float(np.median(np.abs(moves))) if moves else 0.0


def _moves(alone: Sequence[Alone]) -> list[float]:
    """log2 of the reference's time alone after a child pair over the one before, for each pair that has both."""
    by_pair: dict[int, dict[str, float]] = defaultdict(dict)
    for a in alone:
        by_pair[a.child_pair][a.when] = float(np.median(a.reference_ns))
    return [math.log2(m["after"] / m["before"]) for m in by_pair.values() if len(m) == 2]
