"""Which options `boosted` should have: fits on CUDA-L1's train problems, scored on its calibration problems, by one stated rule.

Run it from the repository root: ``python benchmarks/boosted_settings.py [--json FILE]`` (some minutes; needs
``kfs data pull cuda_l1``). It prints half Brier and Spearman of every point of a small grid and the choice, and writes nothing
unless asked. Test problems are never looked at. Calibration pairs cannot set a temperature and judge it too, so each half of
the calibration problems is judged at the temperature of the other. The rule: the lowest half Brier; among points within
``TOLERANCE`` of it, which these few problems cannot tell apart, the fewest leaves grown (rounds times leaves), then the
lower half Brier. The tolerance was fixed beforehand.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time

import numpy as np

from kfs import score
from kfs.data import cuda_l1
from kfs.forecast.boosted import Boosted
from kfs.forecast.trees import best_temperature, sharpen
from kfs.pairs import fixed_split
from kfs.records import Pair

ROUNDS = (20, 40, 80)
RATES = (0.06, 0.12, 0.2)
LEAVES = (8, 15)
TOLERANCE = 0.001
"""Half Brier that is no difference; a tenth of what an interval over sixty problems spans."""


def halves(pairs: list[Pair]) -> np.ndarray:
    """Which half of the problems each pair belongs to, near-duplicates together; booleans of shape (n_pairs,)."""
    groups = sorted({p.group for p in pairs})
    first = set(groups[::2])
    return np.array([p.group in first for p in pairs])


def judge(train: list[Pair], held_out: list[Pair], **options) -> dict[str, float]:
    """Half Brier and Spearman on ``held_out`` of trees fitted on ``train``, and seconds of the fit."""
    began = time.perf_counter()
    forecaster = Boosted(**options).fit(train, [])
    seconds = time.perf_counter() - began
    raw = forecaster._probabilities(held_out)
    bins, first = np.array([p.true_bin for p in held_out]), halves(held_out)
    stated = np.empty_like(raw)
    for mine in (first, ~first):
        stated[mine] = sharpen(raw[mine], best_temperature(raw[~mine], bins[~mine]))
    speedup = np.array([p.aggregated_speedup for p in held_out])
    return {
        **options,
        "half_brier": score.half_brier(stated, bins),
        "spearman": score.spearman(stated, speedup),
        "seconds": seconds,
    }


def choose(results: list[dict]) -> dict:
    """The point that the rule of this module names."""
    least = min(r["half_brier"] for r in results)
    close = [r for r in results if r["half_brier"] <= least + TOLERANCE]
    return min(close, key=lambda r: (r["iterations"] * r["leaves"], r["half_brier"]))


def line(r: dict, mark: str = "") -> str:
    return (
        f"{r['iterations']:>8d}{r['learning_rate']:>8.2f}{r['leaves']:>8d}{r['half_brier']:>12.4f}"
        f"{r['spearman']:>10.3f}{r['seconds']:>9.1f}{mark}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", help="also write the results to this file")
    options = parser.parse_args()
    fold = fixed_split(cuda_l1.load_pairs())[0]
    packs = [len({p.pack for p in part}) for part in (fold.train, fold.calibration)]
    print(f"train {len(fold.train)} pairs of {packs[0]} problems, judged on {len(fold.calibration)} pairs of {packs[1]}")
    print(f"{'rounds':>8s}{'rate':>8s}{'leaves':>8s}{'half Brier':>12s}{'Spearman':>10s}{'fit s':>9s}")
    results = []
    for rounds, rate, leaves in itertools.product(ROUNDS, RATES, LEAVES):
        results.append(judge(fold.train, fold.calibration, iterations=rounds, learning_rate=rate, leaves=leaves))
        print(line(results[-1]), flush=True)
    print("the choice:\n" + line(choose(results)))
    current = Boosted()
    now = (current.iterations, current.learning_rate, current.leaves)
    print(f"the defaults: {now[0]} rounds, rate {now[1]}, {now[2]} leaves")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
