"""The pure parts of benchmarks/harness.py: what it makes of rows, and that its simulation and its grid are what they say."""

import importlib.util
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from kfs.bench import Target


@pytest.fixture(scope="module")
def harness():
    path = Path(__file__).parent.parent / "benchmarks" / "harness.py"
    spec = importlib.util.spec_from_file_location("benchmarks_harness", path)
    module = sys.modules["benchmarks_harness"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["benchmarks_harness"]


def rows_of(log2_speedups: dict[str, list[tuple[float | None, float]]], certain: list[bool]) -> list[dict]:
    """Rows of a quiet run: for each method and pair the log2 speedups of both runs."""
    return [
        {
            "load": "quiet", "pair": p, "task": "t", "anchor": f"a{p}", "candidate": f"b{p}", "method": m, "repeat": r,
            "log2_speedup": both[r], "certain": m == "ours" and certain[p], "wall_s": 1.5, "compile_s": 0.0,
            "numba_anchor": False,
        }
        for m, pairs in log2_speedups.items()
        for p, both in enumerate(pairs)
        for r in (0, 1)
    ]  # fmt: skip


def test_agreement_counts_bins_of_both_runs_and_leaves_failed_pairs_out_of_every_method(harness, rng):
    ours = [(0.2, 0.3), (0.2, 0.3), (-0.1, 0.1), (0.2, 0.2)]
    loop = [(0.2, 0.3), (0.4, 0.6), (-0.1, 0.1), (None, 0.2)]
    rows = rows_of({"ours": ours, "release": loop, "do_bench": ours}, [True, True, False, True])
    found = {f.name: f for f in harness.agreement_figures(rows, rng)}
    assert (found["pairs left out, a kernel failed"].value, found["pairs left out, a kernel failed"].n) == (1, 4)
    assert found["ours: agree on the bin, all pairs"].value == pytest.approx(2 / 3)
    assert found["release: agree on the bin, all pairs"].value == pytest.approx(1 / 3)
    assert found["ours: pairs certain in both runs"].value == pytest.approx(2 / 3)
    assert found["ours: agree on the bin, of pairs certain in both"].met
    assert found["ours ahead of release, all pairs (bootstrap over kernels)"].value == pytest.approx(1 / 3)
    assert found["ours ahead of do_bench, all pairs (bootstrap over kernels)"].met is False


def test_a_share_carries_its_wilson_interval_and_nothing_observed_meets_no_target(harness):
    half = harness.share("part", "name", [True] * 5 + [False] * 5, 0.5)
    assert (half.value, half.met) == (0.5, True)
    assert (half.low, half.high) == pytest.approx((0.2366, 0.7634), abs=1e-4)
    assert harness.share("part", "name", [], 0.5).met is False


def test_ratios_of_the_grid_lie_as_far_from_the_nearest_edge_as_asked(harness, rng):
    trials = harness.grid_ratios(harness.DISTANCES, harness.UNITS, 6, rng)
    assert len(trials) == 6 * len(harness.DISTANCES)
    for distance, units, true in trials:
        assert true == pytest.approx(math.log2(harness.UNITS / units))
        assert np.abs(harness.LOG_EDGES - true).min() == pytest.approx(distance, abs=0.01)


def test_a_kernel_of_the_grid_computes_what_its_task_asks(harness, rng):
    task = harness.repeated_work_task()
    (x,) = task.make_inputs(task.preset("timed")[0], rng)
    space = {}
    exec(harness.repeated_work(3).source, space)
    assert np.allclose(space["kernel"](x), np.exp(x))


def test_simulated_blocks_without_noise_give_the_true_bin_at_the_first_look(harness):
    silent = harness.Noise(call_sd=1e-4, block_sd=1e-4, pair_sd=1e-4)
    found = harness.simulated_verdicts(silent, 20, Target(looks=(3, 5)), 0)
    assert all(right for _, certain, right, _ in found if certain)
    assert sum(certain for _, certain, _, _ in found) >= 18
    assert min(pairs for *_, pairs in found) == 3


def test_campaigns_differ_in_what_they_say_but_not_in_the_numbers_of_a_reason(harness):
    row = {
        "task": "t",
        "kernel": "k",
        "status": "rejected",
        "stage": "timing",
        "reason": "spent 1.5 ms",
        "certain": False,
        "bin": None,
    }
    assert harness.differences([row], [{**row, "reason": "spent 2.25 ms"}]) == []
    assert len(harness.differences([row], [{**row, "reason": "modified"}])) == 1
    sure = {**row, "status": "ok", "stage": None, "reason": None, "certain": True, "bin": 4}
    assert len(harness.differences([sure], [{**sure, "bin": 5}])) == 1
    assert harness.differences([sure], [{**sure, "bin": 5, "certain": False}]) == []


def test_every_figure_of_a_report_has_a_line_with_its_verdict(harness):
    lines = harness.report([harness.share("p", "a", [True], 0.5), harness.share("p", "b", [False], 0.5)]).splitlines()
    assert lines[-2].endswith("met") and lines[-1].endswith("MISSED")
