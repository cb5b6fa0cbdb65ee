"""How fast kfs.score is beside a plain loop over rows and beside scikit-learn or torchmetrics, where they have the metric.

Run it from the repository root: ``python benchmarks/score.py [--rows 1000 10000] [--json FILE]``. It prints one table and
writes nothing unless asked. All contenders get the same rows in one run and must agree. The loops are plain Python over plain
lists, converted beforehand, which favours them; risk-coverage and AURC go over the rows once per threshold. A contender is
given the best of several runs, its first included if there is only one. Peers do less than their column says: scikit-learn's
``precision_recall_curve`` is a risk-coverage curve for 0/1 losses only, and its ``calibration_curve`` lacks the bucket counts an
ECE needs, so those are added. Nothing public and installed has AURC or the CRPS of bins.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import time
from collections.abc import Callable

import numpy as np

from kfs import score

LONGEST_LOOP = {"risk_coverage": 10**4, "aurc": 10**4, "half_brier": 10**6, "crps": 10**6, "ece": 10**6}
"""Rows up to which the loop is bearable: one over thresholds and rows, or one over rows."""


def rows_of(n: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Forecasts that know something, with their losses and confidences; about one row in a thousand ties with another."""
    true_bin = rng.integers(1, 9, n)
    weight = rng.gamma(0.7, size=(n, 8)) + 2.0 * rng.random((n, 1)) * np.exp(-np.abs(np.arange(1, 9) - true_bin[:, None]))
    probabilities = weight / weight.sum(axis=1, keepdims=True)
    losses = score.bin_error_per_row(probabilities, true_bin)
    confidence = score.max_probability(probabilities)
    confidence[: n // 1000] = confidence[0]
    return {
        "probabilities": probabilities,
        "true_bin": true_bin,
        "losses": losses,
        "wrong": (losses > 0).astype(float),
        "confidence": confidence,
    }


def loop_risk_coverage(losses: list, confidence: list) -> list[tuple[float, float]]:
    curve = []
    for threshold in sorted(set(confidence), reverse=True):
        accepted, total = 0, 0.0
        for loss, sure in zip(losses, confidence, strict=True):
            if sure >= threshold:
                accepted += 1
                total += loss
        curve.append((accepted / len(losses), total / accepted))
    return curve


def loop_aurc(losses: list, confidence: list) -> float:
    area, before = 0.0, 0.0
    for coverage, risk in loop_risk_coverage(losses, confidence):
        area += (coverage - before) * risk
        before = coverage
    return area


def loop_half_brier(probabilities: list, true_bin: list) -> float:
    total = 0.0
    for row, truth in zip(probabilities, true_bin, strict=True):
        for b, p in enumerate(row, start=1):
            total += 0.5 * (p - (b == truth)) ** 2
    return total / len(true_bin)


def loop_crps(probabilities: list, true_bin: list) -> float:
    total = 0.0
    for row, truth in zip(probabilities, true_bin, strict=True):
        cumulative = 0.0
        for edge in range(1, 8):
            cumulative += row[edge - 1]
            total += (cumulative - (truth <= edge)) ** 2 / 7
    return total / len(true_bin)


def loop_ece(probabilities: list, true_bin: list) -> float:
    gaps = [0.0] * 10
    for row, truth in zip(probabilities, true_bin, strict=True):
        top = max(row)
        gaps[min(int(top * 10), 9)] += top - (row.index(top) + 1 == truth)
    return sum(abs(g) for g in gaps) / len(true_bin)


LOOPS = {
    "risk_coverage": lambda lists: loop_risk_coverage(lists["losses"], lists["confidence"])[-1][1],
    "aurc": lambda lists: loop_aurc(lists["losses"], lists["confidence"]),
    "half_brier": lambda lists: loop_half_brier(lists["probabilities"], lists["true_bin"]),
    "crps": lambda lists: loop_crps(lists["probabilities"], lists["true_bin"]),
    "ece": lambda lists: loop_ece(lists["probabilities"], lists["true_bin"]),
}
OURS = {
    "risk_coverage": lambda a: float(score.risk_coverage(a["losses"], a["confidence"]).risk[-1]),
    "aurc": lambda a: score.aurc(a["losses"], a["confidence"]),
    "half_brier": lambda a: score.half_brier(a["probabilities"], a["true_bin"]),
    "crps": lambda a: score.crps(a["probabilities"], a["true_bin"]),
    "ece": lambda a: score.ece(a["probabilities"], a["true_bin"]),
}


def sklearn_risk_coverage(a: dict) -> float:
    from sklearn.metrics import precision_recall_curve

    precision, _, _ = precision_recall_curve(1.0 - a["wrong"], a["confidence"])
    return float(1.0 - precision[0])


def sklearn_half_brier(a: dict) -> float:
    from sklearn.metrics import brier_score_loss

    return float(brier_score_loss(a["true_bin"], a["probabilities"], labels=np.arange(1, 9), scale_by_half=True))


def sklearn_ece(a: dict) -> float:
    from sklearn.calibration import calibration_curve

    sure = a["probabilities"].max(axis=1)
    right = a["probabilities"].argmax(axis=1) + 1 == a["true_bin"]
    accuracy, confidence = calibration_curve(right, sure, n_bins=10, strategy="uniform")
    counts = np.histogram(sure, bins=10, range=(0, 1))[0]
    return float(np.abs(accuracy - confidence) @ counts[counts > 0] / len(sure))


def torchmetrics_ece(a: dict) -> float:
    import torch
    from torchmetrics.functional.classification import multiclass_calibration_error

    probabilities, truth = torch.from_numpy(a["probabilities"]), torch.from_numpy(a["true_bin"] - 1)
    return float(multiclass_calibration_error(probabilities, truth, num_classes=8, n_bins=10, norm="l1"))


PEERS: dict[str, dict[str, Callable[[dict], float]]] = {
    "scikit-learn": {"risk_coverage": sklearn_risk_coverage, "half_brier": sklearn_half_brier, "ece": sklearn_ece},
    "torchmetrics": {"ece": torchmetrics_ece},
}
MODULES = {"scikit-learn": "sklearn", "torchmetrics": "torchmetrics"}


def timed(call: Callable[[], float], budget_s: float = 0.5) -> tuple[float, float]:
    """Least seconds of the runs that fit in a budget (at least one, at most 20), and the value."""
    start, best, runs = time.perf_counter(), float("inf"), 0
    while runs < 1 or (runs < 20 and time.perf_counter() - start < budget_s):
        before = time.perf_counter()
        value = call()
        best, runs = min(best, time.perf_counter() - before), runs + 1
    return best, value


def measure(sizes: list[int], seed: int) -> list[dict]:
    """One record a metric and size: seconds of each contender, None where it has not got the metric or was left out."""
    installed = {name: importlib.util.find_spec(module) is not None for name, module in MODULES.items()}
    warm = rows_of(100, np.random.default_rng(seed))
    for name in OURS:  # imports and first calls are nobody's time
        OURS[name](warm)
        for peer, metrics in PEERS.items():
            if installed[peer] and name in metrics:
                metrics[name](warm)
    results = []
    for n in sizes:
        arrays = rows_of(n, np.random.default_rng(seed))
        lists = {key: value.tolist() for key, value in arrays.items()}
        for name, ours in OURS.items():
            seconds, value = timed(lambda ours=ours, arrays=arrays: ours(arrays))
            record = {"metric": name, "rows": n, "ours_s": seconds, "loop_s": None}
            if n <= LONGEST_LOOP[name]:
                record["loop_s"], other = timed(lambda name=name, lists=lists: LOOPS[name](lists))
                agree("the loop", name, n, value, other)
            for peer, metrics in PEERS.items():
                record[f"{peer}_s"] = None
                if installed[peer] and name in metrics:
                    record[f"{peer}_s"], other = timed(lambda f=metrics[name], arrays=arrays: f(arrays))
                    # the peer's risk is of 0/1 losses, ours of bin errors
                    expected = float(arrays["wrong"].mean()) if name == "risk_coverage" else value
                    agree(peer, name, n, expected, other)
            results.append(record)
    return results


def agree(who: str, metric: str, n: int, ours: float, other: float) -> None:
    if not np.isclose(ours, other, rtol=1e-6, atol=1e-9):
        raise SystemExit(f"{who} disagrees on {metric} at {n} rows: {other!r}, ours {ours!r}")


def table(results: list[dict]) -> str:
    head = f"{'metric':14s}{'rows':>9s}{'ours s':>11s}{'x n log n':>11s}"
    head += "".join(f"{f'{who} s':>16s}{'/ ours':>8s}" for who in ("loop", *PEERS))
    lines, first = [head, "-" * len(head)], {}
    for r in results:
        work = r["rows"] * np.log2(r["rows"])
        first.setdefault(r["metric"], r["ours_s"] / work)
        line = f"{r['metric']:14s}{r['rows']:>9d}{r['ours_s']:>11.5f}{r['ours_s'] / work / first[r['metric']]:>11.2f}"
        for who in ("loop", *PEERS):
            seconds = r[f"{who}_s"]
            line += f"{'-':>16s}{'-':>8s}" if seconds is None else f"{seconds:>16.5f}{seconds / r['ours_s']:>8.1f}"
        lines.append(line)
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**3, 10**4, 10**5, 10**6], help="numbers of rows to time")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="also write the seconds to this file")
    options = parser.parse_args()
    results = measure(sorted(options.rows), options.seed)
    print(table(results))
    print(
        "x n log n: growth of ours since the smallest size, 1 or less is n log n or better. - : absent, or too slow to wait for."
    )
    missing = [name for name, module in MODULES.items() if importlib.util.find_spec(module) is None]
    if missing:
        print(f"not installed, so not compared: {', '.join(missing)}")
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} cores ({platform.machine()})")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
