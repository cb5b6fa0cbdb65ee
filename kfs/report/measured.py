"""What was measured, as tables: pairs by bin, speedups, how sure labels are, how measurements ended, what each fold holds.

Counts and quantiles only; results of forecasters are in ``tables``. Draws nothing.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from kfs.pairs import REFERENCE_SUBSETS, family
from kfs.records import Measurement, Pair
from kfs.speedup import N_BINS, STUDY_BINS

NEAR_EDGE = 0.05


def pair_frame(pairs: list[Pair]) -> pd.DataFrame:
    """What was measured, one row a pair."""
    rows = {
        "comparison_id": [p.comparison_id for p in pairs],
        "pack": [p.pack for p in pairs],
        "cluster": [family(p) for p in pairs],
        "subset": [p.subset for p in pairs],
        "split": [p.split for p in pairs],
        "within_variant": [bool(p.anchor_variant) and p.anchor_variant == p.candidate_variant for p in pairs],
        "hardware": [p.hardware for p in pairs],
        "anchor_id": [p.anchor_id for p in pairs],
        "candidate_id": [p.candidate_id for p in pairs],
        "speedup": [p.aggregated_speedup for p in pairs],
        "speedup_low": [np.nan if p.speedup_low is None else p.speedup_low for p in pairs],
        "speedup_high": [np.nan if p.speedup_high is None else p.speedup_high for p in pairs],
        "true_bin": [p.true_bin for p in pairs],
        "certain": pd.array([p.certain for p in pairs], dtype="boolean"),
    }
    return pd.DataFrame(rows)


def bin_counts(pairs: list[Pair]) -> pd.DataFrame:
    """Pairs in each bin of each subset: columns subset, bin, name, n, share."""
    frame = pair_frame(pairs)
    table = []
    for subset, rows in frame.groupby(frame["subset"].replace("", "all")):
        counts = np.bincount(rows["true_bin"], minlength=N_BINS + 1)[1:]
        for row, n in zip(STUDY_BINS.table(), counts, strict=True):
            line = {"bin": row["bin"], "name": row["name"], "n": int(n), "share": n / len(rows)}
            table.append({"subset": subset, **line})
    return pd.DataFrame(table, columns=["subset", "bin", "name", "n", "share"])


def against_reference(pairs: list[Pair]) -> list[Pair]:
    """Pairs that start at the reference: a task's reference, or eager PyTorch against the custom kernel."""
    return [p for p in pairs if p.subset in REFERENCE_SUBSETS]


def speedup_points(pairs: list[Pair]) -> pd.DataFrame:
    """The dots of the speedups figure, one row a pair."""
    columns = ["comparison_id", "subset", "pack", "hardware", "speedup", "speedup_low", "speedup_high", "true_bin", "certain"]
    return pair_frame(pairs)[columns]


def left_out(counts: dict[str, int]) -> pd.DataFrame:
    """What no pair shows, as a table: columns what, n."""
    return pd.DataFrame({"what": list(counts), "n": pd.array(list(counts.values()), dtype="int64")})


def suspect_counts(pairs: list[Pair]) -> pd.DataFrame:
    """Suspect pairs by subset and hardware: columns subset, hardware, n, largest."""
    if not pairs:
        return pd.DataFrame({"subset": [], "hardware": [], "n": [], "largest": []})
    groups = pair_frame(pairs).groupby(["subset", "hardware"])["speedup"]
    return groups.agg(n="size", largest="max").reset_index()


def distance_to_edge(speedup: np.ndarray) -> np.ndarray:
    """Distance to the nearest inner bin edge, as a ratio less one: 0.05 is five percent."""
    octaves = np.abs(np.log2(np.asarray(speedup))[:, None] - np.log2(STUDY_BINS.edges)).min(axis=1)
    return 2.0**octaves - 1


def known_share(certain: pd.Series) -> float:
    """Share of true among the known values; NaN where none is known."""
    known = certain.dropna().astype(bool)
    return float(known.mean()) if len(known) else float("nan")


def label_noise(pairs: list[Pair], column: str) -> pd.DataFrame:
    """How sure labels are, for each value of ``column`` (pack or hardware).

    Returns
    -------
    DataFrame
        Columns ``column``, n, share_certain and median_width (upper over lower end of the pair's interval, less one; both NaN
        where the data holds no intervals), share_near_edge (within 5% of a bin edge).
    """
    frame = pair_frame(pairs)
    table = []
    for value, rows in frame.groupby(column):
        line = {column: value, "n": len(rows), "share_certain": known_share(rows["certain"])}
        line["median_width"] = (rows["speedup_high"] / rows["speedup_low"] - 1).median()
        line["share_near_edge"] = (distance_to_edge(rows["speedup"].to_numpy()) < NEAR_EDGE).mean()
        table.append(line)
    return pd.DataFrame(table, columns=[column, "n", "share_certain", "median_width", "share_near_edge"])


def speedup_summary(pairs: list[Pair], column: str) -> pd.DataFrame:
    """Quartiles and extremes of the speedups for each subset and value of ``column``, and how many exceed 20."""
    frame = pair_frame(pairs)
    quantiles = {"least": 0.0, "quarter": 0.25, "median": 0.5, "three_quarters": 0.75, "largest": 1.0}
    table = []
    for (subset, value), rows in frame.groupby(["subset", column]):
        line = {name: rows["speedup"].quantile(q) for name, q in quantiles.items()}
        table.append({"subset": subset, column: value, "n": len(rows), **line, "above_20": int((rows["speedup"] > 20).sum())})
    return pd.DataFrame(table, columns=["subset", column, "n", *quantiles, "above_20"])


def statuses(measurements: list[Measurement]) -> pd.DataFrame:
    """How measurements ended, for each task: columns task, status, n. Empty where the data holds ratios only."""
    if not measurements:
        return pd.DataFrame({"task": [], "status": [], "n": []})
    rows = pd.DataFrame({"task": [m.task for m in measurements], "status": [str(m.status) for m in measurements]})
    return rows.value_counts(["task", "status"], sort=False).rename("n").reset_index()


def fold_sizes(folds) -> pd.DataFrame:
    """Packs and pairs in train, calibration and test of every fold."""
    table = []
    for fold in folds:
        for part in ("train", "calibration", "test"):
            pairs = getattr(fold, part)
            table.append({"fold": fold.name, "part": part, "packs": len({p.pack for p in pairs}), "pairs": len(pairs)})
    return pd.DataFrame(table)
