"""Questions with answers: ordered pairs of kernels from measurements, how sure their labels are, balance, samples and splits.

Imported pairs (``kfs.data.cuda_l1``) have the same form, so everything here but ``from_measurements`` serves them too.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from kfs.bench.campaign import read_folder
from kfs.bench.timing import Estimate, inside_one_bin, ratio_interval
from kfs.errors import DataError
from kfs.records import Hardware, Kernel, Measurement, Pair, Status, content_id
from kfs.speedup import N_BINS, STUDY_BINS, SpeedupBins

RECORDS = Path(__file__).parent.parent / "data" / "records"


@dataclass(frozen=True)
class Fold:
    """Pairs to learn from, pairs to calibrate on, pairs to be judged on; no pack stands in two of them."""

    name: str
    train: list[Pair]
    calibration: list[Pair]
    test: list[Pair]

    def __post_init__(self):
        packs = [{p.group or p.pack for p in part} for part in (self.train, self.calibration, self.test)]
        for a, b in ((0, 1), (0, 2), (1, 2)):
            if both := packs[a] & packs[b]:
                raise ValueError(f"fold {self.name}: {sorted(both)[:3]} stand in two splits")


def embedded_records(folder: str | os.PathLike | None = None) -> tuple[list[Measurement], list[Kernel], Hardware]:
    """The host measurements that come with kfs, or those of another folder.

    Parameters
    ----------
    folder : path, optional
        One hardware's folder as ``kfs record`` writes it; default the only one under ``data/records``.
    """
    if folder is None:
        folders = sorted(p for p in RECORDS.glob("host-*") if p.is_dir())
        if len(folders) != 1:
            found = ", ".join(p.name for p in folders) or "none"
            raise DataError(f"{RECORDS}: expected one folder of host records, found {found}; name one, or run `kfs record`")
        folder = folders[0]
    return read_folder(folder)


def library_of(kernel: Kernel) -> str:
    """What a host kernel is mainly written with: reference, numba, numpy or torch. A label for code-blind rivals."""
    if kernel.family == "reference":
        return "reference"
    for library in ("numba", "numpy"):
        if f"import {library}" in kernel.source or f"from {library}" in kernel.source:
            return library
    return "torch"


def _estimate(measurement: Measurement) -> Estimate:
    return Estimate(
        measurement.speedup,
        measurement.speedup_low,
        measurement.speedup_high,
        measurement.confidence,
        measurement.log2_std_error,
        measurement.n_child_pairs,
    )


def from_measurements(
    measurements: Iterable[Measurement],
    kernels: Iterable[Kernel],
    *,
    level: float = 0.95,
    bins: SpeedupBins = STUDY_BINS,
) -> list[Pair]:
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
    pairs = []
    for (task, preset, hardware), ms in sorted(by_task.items()):
        for anchor, candidate in permutations(ms, 2):
            a, c = source[task, anchor.kernel_id], source[task, candidate.kernel_id]
            # Against the reference itself, a kernel's own measurement is the pair's.
            if a.family == "reference":
                speedup, low, high = candidate.speedup, candidate.speedup_low, candidate.speedup_high
            elif c.family == "reference":
                speedup, low, high = 1 / anchor.speedup, 1 / anchor.speedup_high, 1 / anchor.speedup_low
            else:
                speedup, low, high = ratio_interval(_estimate(anchor), _estimate(candidate), level=level)
            pairs.append(
                Pair(
                    comparison_id=content_id(task, preset, hardware, a.kernel_id, c.kernel_id),
                    pack=task,
                    anchor_code=a.source,
                    candidate_code=c.source,
                    hardware=hardware,
                    aggregated_speedup=speedup,
                    true_bin=bins.index(speedup),
                    source_id=f"{a.kernel_id}:{c.kernel_id}",
                    source_search="kfs record",
                    bin_rule=bins.name,
                    speedup_low=low,
                    speedup_high=high,
                    certain=inside_one_bin(low, high, bins),
                    anchor_id=a.kernel_id,
                    candidate_id=c.kernel_id,
                    anchor_variant=library_of(a),
                    candidate_variant=library_of(c),
                    subset="reference_to_candidate" if a.family == "reference" else "between_candidates",
                    group=task,
                )
            )
    return pairs


def balance(
    pairs: Sequence[Pair], per_bin: int, rng: np.random.Generator, *, keep: Callable[[Pair], bool] | None = None
) -> list[Pair]:
    """At most ``per_bin`` pairs of each bin within each pack, drawn without replacement; original order kept.

    Parameters
    ----------
    keep : callable, optional
        Pairs for which it is true are taken first, for example those that start at the reference.
    """
    chosen = set()
    cells: dict[tuple[str, int], list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        cells[pair.pack, pair.true_bin].append(i)
    for _, rows in sorted(cells.items()):
        order = rng.permutation(rows)
        if keep is not None:
            order = sorted(order, key=lambda i: not keep(pairs[i]))
        chosen.update(int(i) for i in order[:per_bin])
    return [p for i, p in enumerate(pairs) if i in chosen]


def stratified_sample(pairs: Sequence[Pair], n: int, rng: np.random.Generator) -> list[Pair]:
    """``n`` pairs spread as evenly over packs and bins as they allow; original order kept, all of them if there are fewer.

    Deals one pair at a time to every (pack, bin) cell in turn, in a random order of cells.
    """
    cells: dict[tuple[str, int], list[int]] = defaultdict(list)
    for i, pair in enumerate(pairs):
        cells[pair.pack, pair.true_bin].append(i)
    queues = {cell: list(rng.permutation(rows)) for cell, rows in sorted(cells.items())}
    chosen: set[int] = set()
    while len(chosen) < min(n, len(pairs)):
        names = sorted(queues)
        for k in rng.permutation(len(names)):
            if queues[names[k]] and len(chosen) < n:
                chosen.add(int(queues[names[k]].pop()))
        queues = {cell: rows for cell, rows in queues.items() if rows}
    return [p for i, p in enumerate(pairs) if i in chosen]


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


def bin_counts(pairs: Iterable[Pair]) -> np.ndarray:
    """Number of pairs in each bin, shape (8,)."""
    return np.bincount([p.true_bin for p in pairs], minlength=N_BINS + 1)[1:]
