"""Questions with answers: ordered pairs of kernels from measurements, how sure their labels are, balance, samples and splits.

Imported pairs (``kfs.data.cuda_l1``) have the same form, so everything here but ``from_measurements`` serves them too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from kfs.bench.campaign import read_folder
from kfs.bench.timing import estimate, ratio_interval
from kfs.errors import DataError, TrainingError
from kfs.records import Hardware, Kernel, Measurement, Pair, Status, content_id
from kfs.speedup import STUDY_BINS, SpeedupBins

RECORDS = Path(__file__).parent.parent / "data" / "records"
REFERENCE_SUBSETS = ("reference_to_candidate", "eager_to_custom")
"""Subsets in which every anchor is its task's reference: what a search asks."""


def family(pair: Pair) -> str:
    """What must not stand in two splits: the pair's group of near-duplicate tasks, else its task."""
    return pair.group or pair.pack


def require_held_out(learnt: Iterable[str], pairs: Iterable[Pair], what: str) -> None:
    """Refuse to judge a forecaster on tasks it has learnt from.

    Parameters
    ----------
    learnt : iterable of str
        Families (:func:`family`) that training or its early stopping has seen.
    pairs : iterable of Pair
        What it is to be judged on.
    what : str
        Names the forecaster.

    Raises
    ------
    TrainingError
        If a task stands on both sides; names some.
    """
    if both := sorted(set(learnt) & set(map(family, pairs))):
        raise TrainingError(
            f"{what} has learnt from {len(both)} of the tasks it is to be judged on, for example {', '.join(both[:3])}; "
            "judge it on tasks its training held out"
        )


@dataclass(frozen=True)
class Fold:
    """Pairs to learn from, pairs to calibrate on, pairs to be judged on; no pack stands in two of them."""

    name: str
    train: list[Pair]
    calibration: list[Pair]
    test: list[Pair]

    def __post_init__(self):
        packs = [set(map(family, part)) for part in (self.train, self.calibration, self.test)]
        for a, b in ((0, 1), (0, 2), (1, 2)):
            if both := packs[a] & packs[b]:
                raise ValueError(f"fold {self.name}: {sorted(both)[:3]} stand in two splits")


def host_folder() -> Path:
    """Folder of the host measurements that come with kfs.

    Raises
    ------
    DataError
        If there is none, or more than one to choose from.
    """
    folders = sorted(p for p in RECORDS.glob("host-*") if p.is_dir())
    if len(folders) != 1:
        found = ", ".join(p.name for p in folders) or "none"
        raise DataError(
            f"{RECORDS}: expected the records of one host, found {found}; kfs needs a checkout with its data/records "
            "(pip install -e .), or measure some with `kfs record` and name their folder with data.folder=..."
        )
    return folders[0]


def embedded_records(folder: str | os.PathLike | None = None) -> tuple[list[Measurement], list[Kernel], Hardware]:
    """The host measurements that come with kfs, or those of another folder that ``kfs record`` wrote."""
    return read_folder(folder or host_folder())


def library_of(kernel: Kernel) -> str:
    """What a kernel is mainly written with: triton, cuda, numba, numpy or torch. A label for code-blind rivals."""
    if kernel.language != "python":
        return kernel.language
    for library in ("numba", "numpy"):
        if f"import {library}" in kernel.source or f"from {library}" in kernel.source:
            return library
    return "torch"


@dataclass(frozen=True, slots=True)
class Comparison:
    """An ordered pair of measured kernels with its label, before it becomes a record: light, and so quick to sift."""

    anchor: Kernel
    candidate: Kernel
    reference_id: str
    preset: str
    hardware: str
    speedup: float
    low: float
    high: float
    true_bin: int
    certain: bool
    subset: str
    rule: str

    @property
    def pack(self) -> str:
        """The task."""
        return self.anchor.task

    def pair(self) -> Pair:
        """The record."""
        a, c = self.anchor, self.candidate
        return Pair(
            comparison_id=content_id(a.task, self.preset, self.hardware, a.kernel_id, c.kernel_id),
            pack=a.task,
            anchor_code=a.source,
            candidate_code=c.source,
            hardware=self.hardware,
            aggregated_speedup=self.speedup,
            true_bin=self.true_bin,
            source_id=f"{a.kernel_id}:{c.kernel_id}",
            source_search="kfs record",
            bin_rule=self.rule,
            speedup_low=self.low,
            speedup_high=self.high,
            certain=self.certain,
            anchor_id=a.kernel_id,
            candidate_id=c.kernel_id,
            anchor_variant="reference" if a.kernel_id == self.reference_id else library_of(a),
            candidate_variant="reference" if c.kernel_id == self.reference_id else library_of(c),
            subset=self.subset,
            group=a.task,
            language=c.language,
            anchor_language=a.language if a.language != c.language else "",
        )


def comparisons(
    measurements: Iterable[Measurement],
    kernels: Iterable[Kernel],
    *,
    level: float = 0.95,
    bins: SpeedupBins = STUDY_BINS,
) -> list[Comparison]:
    """All ordered pairs of the kernels of each task that measured ``ok``, the reference among them.

    Both kernels of a pair were measured against the same reference, so the pair's speedup is the ratio of theirs and its
    interval comes from both; ``certain`` says whether that interval lies inside one bin.

    Parameters
    ----------
    measurements, kernels
        A campaign's records.
    level : float
        Coverage of the pairs' intervals.
    bins : SpeedupBins
        Rule for the labels.
    """
    source = {(k.task, k.kernel_id): k for k in kernels}
    by_task: dict[tuple[str, str, str], list[Measurement]] = defaultdict(list)
    for m in measurements:
        if m.status == Status.OK:
            by_task[m.task, m.preset, m.hardware].append(m)
    result = []
    for (task, preset, hardware), ms in sorted(by_task.items()):
        found = {m.kernel_id: estimate(m.blocks, level=level) for m in ms}
        reference = ms[0].reference_id
        asked = list(permutations(found, 2))
        ends, subsets = [], []
        for anchor, candidate in asked:
            # Against the reference itself, a kernel's own measurement is the pair's.
            if anchor == reference:
                ends.append((found[candidate].speedup, found[candidate].low, found[candidate].high))
                subsets.append("reference_to_candidate")
            elif candidate == reference:
                ends.append((1 / found[anchor].speedup, 1 / found[anchor].high, 1 / found[anchor].low))
                subsets.append("candidate_to_reference")
            else:
                ends.append(ratio_interval(found[anchor], found[candidate], level=level))
                subsets.append("between_candidates")
        labels = bins.index(np.array(ends).reshape(-1, 3))  # of all at once: thousands of single look-ups take seconds
        for (anchor, candidate), (speedup, low, high), (true_bin, lowest, highest), subset in zip(
            asked, ends, labels.tolist(), subsets, strict=True
        ):
            kernels_of_pair = source[task, anchor], source[task, candidate]
            label = (speedup, low, high, true_bin, lowest == highest, subset, bins.name)
            result.append(Comparison(*kernels_of_pair, reference, preset, hardware, *label))
    return result


def from_measurements(
    measurements: Iterable[Measurement],
    kernels: Iterable[Kernel],
    *,
    level: float = 0.95,
    bins: SpeedupBins = STUDY_BINS,
) -> list[Pair]:
    """The records of :func:`comparisons`, with its parameters. Where only some are wanted, sift the comparisons first."""
    return [c.pair() for c in comparisons(measurements, kernels, level=level, bins=bins)]


def balance(pairs: Sequence[Pair], per_bin: int, rng: np.random.Generator) -> list[Pair]:
    """At most ``per_bin`` pairs of each bin within each pack, drawn without replacement; original order kept."""
    return [pairs[i] for i in balanced(pairs, per_bin, rng)]


def balanced(pairs: Sequence[Pair | Comparison], per_bin: int, rng: np.random.Generator) -> list[int]:
    """Positions of the pairs that :func:`balance` keeps, in order."""
    cells: dict[tuple[str, int], list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        cells[pair.pack, pair.true_bin].append(i)
    return sorted(int(i) for _, rows in sorted(cells.items()) for i in rng.permutation(rows)[:per_bin])


def stratified_sample(pairs: Sequence[Pair], n: int, rng: np.random.Generator) -> list[Pair]:
    """``n`` pairs spread as evenly over packs and subsets as they allow; original order kept, all of them if there are fewer.

    Deals one pair at a time to every (pack, subset) cell in turn, in a random order of cells. Labels play no part: a sample
    that was even over bins would flatter or punish a forecaster for the base rates it was shown.
    """
    cells: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        cells[pair.pack, pair.subset].append(i)
    queues = {cell: list(rng.permutation(rows)) for cell, rows in sorted(cells.items())}
    chosen: set[int] = set()
    while len(chosen) < min(n, len(pairs)):
        names = sorted(queues)
        for k in rng.permutation(len(names)):
            if queues[names[k]] and len(chosen) < n:
                chosen.add(int(queues[names[k]].pop()))
        queues = {cell: rows for cell, rows in queues.items() if rows}
    return [p for i, p in enumerate(pairs) if i in chosen]


def relabelled(pairs: Iterable[Pair], bins: SpeedupBins = STUDY_BINS) -> list[Pair]:
    """The same pairs labelled by another rule, from their speedups; where an interval is known, its certainty by that rule.

    Examples
    --------
    >>> fields = dict(comparison_id="1", pack="p", anchor_code="a", candidate_code="b", hardware="h", aggregated_speedup=1.2)
    >>> pair = Pair(**fields, true_bin=4, bin_rule="released")
    >>> relabelled([pair])[0].true_bin
    5
    """
    found = []
    for pair in pairs:
        ends = (pair.speedup_low, pair.speedup_high)
        certain = pair.certain if None in ends else bins.index(ends[0]) == bins.index(ends[1])
        label = {"true_bin": bins.index(pair.aggregated_speedup), "bin_rule": bins.name, "certain": certain}
        found.append(pair.model_copy(update=label))
    return found


def leave_one_task_out(pairs: Sequence[Pair]) -> list[Fold]:
    """One fold a pack: that pack is the test, the next one in the alphabet the calibration, the others train.

    Raises
    ------
    ValueError
        If there are fewer than three packs.
    """
    packs = sorted({p.pack for p in pairs})
    if len(packs) < 3:
        raise ValueError(f"leaving one task out needs at least three tasks, found {len(packs)}: {', '.join(packs)}")
    folds = []
    for i, held_out in enumerate(packs):
        inner = packs[(i + 1) % len(packs)]
        folds.append(
            Fold(
                held_out,
                train=[p for p in pairs if p.pack not in (held_out, inner)],
                calibration=[p for p in pairs if p.pack == inner],
                test=[p for p in pairs if p.pack == held_out],
            )
        )
    return folds


def fixed_split(pairs: Sequence[Pair]) -> list[Fold]:
    """The single fold that the pairs' own ``split`` names."""
    parts: dict[str, list[Pair]] = {"train": [], "calibration": [], "test": []}
    for pair in pairs:
        if pair.split not in parts:
            raise ValueError(f"pair {pair.comparison_id} has split {pair.split!r}; allowed: {', '.join(parts)}")
        parts[pair.split].append(pair)
    return [Fold("held_out", **parts)]
