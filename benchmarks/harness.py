"""How fast and repeatable kfs.bench is beside loops in use, how sure its "certain" is, and whether bad company changes it.

Run it from the repository root on an otherwise idle machine: ``python benchmarks/harness.py [--parts core verdicts
agreement grid coverage hostile] [--pairs 40] [--quiet | --busy] [--json FILE]``. Every part prints its figures with n (and
a 95% Wilson interval for shares); a last table says which targets were met. ``hostile`` alone decides the exit status.

core        What one core does to one piece of arithmetic: the noise that all the rest is measured in. Whoever shares the physical
            core (a virtual machine's neighbour on the other hyperthread) shows as a second, slower kind of call.
verdicts    Verdicts a minute of one device against a fresh interpreter a candidate that imports torch, checks one call a case
            and times both kernels; turn by turn. Numba kernels apart: compiling dominates both.
agreement   Random ordered pairs, each measured twice, a whole pass over all pairs apart and on a device of its own, by ours, by
            the release's loop (10 warm-up calls, mean of up to 100) and by a median loop like do_bench. Same budget of
            seconds; the loops are given more: starting their interpreter and compiling is not counted, nor do they check.
grid        A unit of work repeated k times against m times: the true ratio is known, and so is its distance to the nearest edge.
coverage    ``kfs.bench.timing`` and ``Target`` on simulated blocks, over the whole stopping rule.
hostile     A campaign of honest kernels with and without hostile ones mixed in: what it says of the honest ones must not change.

It neither measures GPUs nor judges the checks themselves (tests/exploits does).
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections import namedtuple
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy.stats import binomtest
from tqdm import tqdm

from kfs.bench import Target
from kfs.bench.host import HostDevice
from kfs.bench.timing import estimate, inside_one_bin
from kfs.records import Kernel
from kfs.score import bootstrap, mean
from kfs.speedup import STUDY_BINS
from kfs.tasks import Case, Task, load_task, normal

ROOT = Path(__file__).resolve().parent.parent
BUDGET_S = 2.0
UNITS = 3000  # of the grid's anchor: milliseconds on two kilobytes, so that what a call costs beside them is nothing
VERDICT = Target(looks=(3,), blocks=2)  # the shortest schedule that still gives a verdict
CAMPAIGN = Target(looks=(4, 6, 8))
CAMPAIGN_TASKS = ("softmax", "rmsnorm", "cumsum")
DISTANCES = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)
LOG_EDGES = np.log2(STUDY_BINS.edges)

# One candidate in an interpreter of its own: what one would write first. Stands for the harnesses ours is compared with.
FRESH_INTERPRETER = """
import json, math, os, statistics, sys, time, timeit
begun = time.perf_counter()
request = json.load(sys.stdin)
os.sched_setaffinity(0, {request["core"]})
import numpy as np, torch
from kfs.tasks import load_task
torch.set_num_threads(1)
started = time.perf_counter()
task, rng, release = load_task(request["task"]), np.random.default_rng(request["seed"]), request["loop"] == "release"
cases = [task.make_inputs(case, rng) for case in task.preset(request["preset"])]

def load(source):
    exec(compile(source, "candidate.py", "exec"), space := {"__name__": "candidate"})
    return space["kernel"]

call = lambda kernel, inputs: timeit.timeit(lambda: kernel(*inputs), number=1)

def middle(kernel, inputs, seconds):
    call(kernel, inputs)  # compiles; not part of the budget
    begin, n, times = time.perf_counter(), 0, []
    while n < 10 if release else time.perf_counter() - begin < 0.1 * seconds:
        call(kernel, inputs)
        n += 1
    while len(times) < 3 or (len(times) < (100 if release else 10**6) and time.perf_counter() - begin < seconds):
        times.append(call(kernel, inputs))
    return (statistics.mean if release else statistics.median)(times)

anchor, candidate, right = load(request["anchor"]), load(request["candidate"]), True
for inputs in cases if request["check"] else ():
    expected, found = (f(*(x.clone() for x in inputs)) for f in (anchor, candidate))
    for e, f in [(expected, found)] if torch.is_tensor(expected) else zip(expected, found):
        right = right and torch.allclose(f.double(), e.double(), rtol=task.rtol, atol=task.atol)
loaded, share = time.perf_counter(), request["seconds"] / 2 / len(cases)
logs = [[math.log2(middle(f, inputs, share)) for inputs in cases] for f in (anchor, candidate)]
answer = {"log2_speedup": statistics.mean(a - c for a, c in zip(*logs)), "right": right}
print(json.dumps(answer | {"start_s": started - begun, "timing_s": time.perf_counter() - loaded}))
"""
LOOPS = ("release", "do_bench")


# ---- statistics: no clock, no processes


@dataclass(frozen=True)
class Figure:
    """One line of the report; ``met`` is None where there is no target."""

    part: str
    name: str
    value: float
    n: int
    low: float | None = None
    high: float | None = None
    target: str = ""
    met: bool | None = None


def share(part: str, name: str, hits: Sequence[bool], least: float | None = None) -> Figure:
    """A share with its 95% Wilson interval, held to a least value if there is one; nothing observed meets nothing."""
    n, k = len(hits), int(sum(hits))
    interval = binomtest(k, n).proportion_ci(method="wilson") if n else (0.0, 1.0)
    value, goal = k / n if n else math.nan, () if least is None else (f">= {least:g}", bool(n and k / n >= least))
    return Figure(part, name, value, n, *map(float, interval), *goal)


def median(part: str, name: str, values: Sequence[float]) -> Figure:
    """A median; its interval are the middle 80% of the values."""
    low, value, high = np.quantile(values, (0.1, 0.5, 0.9)) if len(values) else (math.nan,) * 3
    return Figure(part, f"{name}: median (80%)", float(value), len(values), float(low), float(high))


def grid_ratios(distances: Sequence[float], anchor_units: int, n: int, rng) -> list[tuple[float, int, float]]:
    """``n`` trials a distance: nominal distance to the nearest edge, units of the candidate, true log2 speedup."""
    trials = []
    for distance in distances:
        shifts = [s for s in (*LOG_EDGES - distance, *LOG_EDGES + distance) if np.abs(LOG_EDGES - s).min() > distance - 1e-9]
        units = [round(anchor_units / 2**s) for s in rng.choice(shifts, size=n)]
        trials += [(distance, k, math.log2(anchor_units / k)) for k in units]
    return trials


def agreement_figures(rows: Sequence[dict], rng: np.random.Generator) -> list[Figure]:
    """Figures of rows as ``run_agreement`` makes them. A pair that any method failed on is left out of all and counted."""
    figures = []
    for load in dict.fromkeys(r["load"] for r in rows):
        mine = [r for r in rows if r["load"] == load]
        failed = {r["pair"] for r in mine if r["log2_speedup"] is None}
        by = {(r["method"], r["pair"], r["repeat"]): r for r in mine if r["pair"] not in failed}
        pairs = sorted({p for _, p, _ in by})
        figures.append(Figure(load, "pairs left out, a kernel failed", len(failed), len(failed) + len(pairs)))
        if not pairs:
            continue
        bins = {key: STUDY_BINS.index(2.0 ** r["log2_speedup"]) for key, r in by.items()}
        same = {m: {p: bins[m, p, 0] == bins[m, p, 1] for p in pairs} for m in ("ours", *LOOPS)}
        ours = [by["ours", p, r] for p in pairs for r in (0, 1)]
        in_time = [(r["certain"] and r["wall_s"] - r["compile_s"] <= BUDGET_S, r) for r in ours]
        both = [p for p in pairs if by["ours", p, 0]["certain"] and by["ours", p, 1]["certain"]]
        figures += [
            share(load, "ours: verdicts certain within 2 s, compiling apart", [x for x, _ in in_time], 0.75),
            share(load, "ours: the same, anchor not Numba", [x for x, r in in_time if not r["numba_anchor"]]),
            share(load, "ours: verdicts certain", [r["certain"] for r in ours]),
            share(load, "ours: pairs certain in both runs", [p in both for p in pairs]),
            share(load, "ours: agree on the bin, of pairs certain in both", [same["ours"][p] for p in both], 0.98),
            *(share(load, f"{m}: agree on the bin, all pairs", list(same[m].values())) for m in same),
        ]
        tasks, *kernels = ([by["ours", p, 0][key] for p in pairs] for key in ("task", "anchor", "candidate"))
        for m in LOOPS:
            ahead = [float(same["ours"][p]) - same[m][p] for p in pairs]
            found = bootstrap(mean, (ahead,), tasks, kernels=tuple(kernels), rng=rng)
            name = f"ours ahead of {m}, all pairs (bootstrap over kernels)"
            figures.append(Figure(load, name, found.estimate, len(pairs), found.low, found.high, "> 0", found.estimate > 0))
        apart = {m: [abs(by[m, p, 0]["log2_speedup"] - by[m, p, 1]["log2_speedup"]) for p in pairs] for m in same}
        figures += [median(load, f"{m}: |log2 difference| of two runs", apart[m]) for m in same]
        figures.append(median(load, "ours: wall s of a verdict", [r["wall_s"] for r in ours]))
        figures.append(median(load, "ours: wall s, compiling apart", [r["wall_s"] - r["compile_s"] for r in ours]))
    return figures


@dataclass(frozen=True)
class Noise:
    """What simulated blocks suffer from; standard deviations in log2, those of block and pair of their log ratios."""

    call_sd: float = 0.05
    block_sd: float = 0.1
    pair_sd: float = 0.04
    tail_df: float | None = None  # pair effects from Student's t with so many degrees of freedom, scaled; None: normal
    drift_sd: float = 0.0  # step between neighbouring turns of a random walk of the machine, felt by both sides
    spike_rate: float = 0.0  # share of calls that take several times as long


NOISES = {
    "as measured": Noise(),
    "quiet": Noise(call_sd=0.02, block_sd=0.02, pair_sd=0.01),
    "drifting": Noise(drift_sd=0.05),
    "spiky": Noise(spike_rate=0.05),
    "heavy-tailed pairs": Noise(tail_df=3.0),
}
SimulatedBlock = namedtuple("SimulatedBlock", "case child_pair reference_ns candidate_ns")  # what estimates read of a Block


def simulated_pair(log2_speedup: float, pair: int, noise: Noise, target: Target, rng, cases: int = 2) -> list[SimulatedBlock]:
    """Blocks of one child pair; the reference takes about a millisecond."""
    df, calls, blocks = noise.tail_df, target.min_calls, []
    effect = rng.standard_normal() if df is None else rng.standard_t(df) / math.sqrt(df / (df - 2))
    level = np.cumsum(noise.drift_sd * rng.standard_normal((cases, target.blocks, 2)).ravel()).reshape(cases, target.blocks, 2)
    for c, b in np.ndindex(cases, target.blocks):
        logs = noise.call_sd * rng.standard_normal((2, calls)) + level[c, b][:, None]
        logs[1] -= log2_speedup + noise.pair_sd * effect + noise.block_sd * rng.standard_normal()
        spikes = np.where(rng.random((2, calls)) < noise.spike_rate, 1 + rng.exponential(5.0, (2, calls)), 1.0)
        blocks.append(SimulatedBlock(f"case{c}", pair, *(1e6 * 2.0**logs * spikes)))
    return blocks


def simulated_verdicts(noise: Noise, n: int, target: Target, seed: int) -> list[tuple[bool, bool, bool, int]]:
    """Of ``n`` candidates: whether the interval holds the truth, certain, the bin of the estimate is right, child pairs used."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(n):
        true, blocks, looked = rng.uniform(-2.5, 2.5), [], 0
        for pairs in target.looks:
            for pair in range(looked, pairs):
                blocks += simulated_pair(true, pair, noise, target, rng)
            got = estimate(blocks, level=1 - target.alpha(pairs, looked=looked, final=pairs == target.looks[-1]))
            looked = pairs
            if certain := inside_one_bin(got.low, got.high):
                break
        found.append((got.low <= 2.0**true <= got.high, certain, inside_one_bin(got.speedup, 2.0**true), pairs))
    return found


def coverage_figures(name: str, found: Sequence[tuple[bool, bool, bool, int]], level: float) -> list[Figure]:
    """Coverage is missed if its whole Wilson interval lies below the level; errors likewise."""
    covered = share(name, "interval holds the truth", [f[0] for f in found])
    wrong = share(name, "wrong bin, of the certain", [not f[2] for f in found if f[1]])
    return [
        replace(covered, target=f">= {level:g}, interval", met=covered.high >= level),
        replace(wrong, target=f"<= {1 - level:g}, interval", met=wrong.low <= 1 - level),
        share(name, "certain", [f[1] for f in found]),
        Figure(name, "child pairs used, mean", statistics.mean(f[3] for f in found), len(found)),
    ]


def differences(alone: Sequence[dict], mixed: Sequence[dict]) -> list[str]:
    """What two campaigns say differently of the same kernels, in words; numbers in reasons are measured and may differ."""
    found = []
    for a, b in zip(alone, mixed, strict=True):
        masked = ({**r, "reason": re.sub(r"\d[\d.e+-]*", "#", r["reason"] or "")} for r in (a, b))
        x, y = ({k: r[k] for k in ("status", "stage", "reason")} for r in masked)
        what = [k for k in x if x[k] != y[k]] + ["bin"] * (a["certain"] and b["certain"] and a["bin"] != b["bin"])
        found += [f"{a['task']} {a['kernel']}: {k} {a[k]!r} without, {b[k]!r} with hostile kernels" for k in what]
    return found


def report(figures: Sequence[Figure]) -> str:
    """The figures, one a line."""
    head = f"{'part':20s} {'figure':58s}{'value':>9s}{'n':>7s}  {'interval':18s}{'target':18s}"
    lines, words = [head, "-" * len(head)], {None: "", True: "met", False: "MISSED"}
    for f in figures:
        interval = "" if f.low is None else f"{f.low:.3f} to {f.high:.3f}"
        lines.append(f"{f.part:20s} {f.name:58s}{f.value:>9.3f}{f.n:>7d}  {interval:18s}{f.target:18s}{words[f.met]}".rstrip())
    return "\n".join(lines)


# ---- running


def exploit_runner():
    """tests/exploits/run.py as a module: it reads the hostile files and keeps cores busy."""
    sys.path.append(str(ROOT / "tests" / "exploits"))
    import run

    return run


def fresh(task: Task, anchor: Kernel, candidate: Kernel, **request) -> dict:
    """One candidate in a fresh interpreter: what it answered, with ``wall_s``; ``log2_speedup`` is None if it failed."""
    request |= {"task": task.name, "anchor": anchor.source, "candidate": candidate.source}
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    command, options = [sys.executable, "-c", FRESH_INTERPRETER], {"cwd": ROOT, "env": os.environ | threads, "timeout": 120}
    begin, answer = time.perf_counter(), {"log2_speedup": None}
    with contextlib.suppress(subprocess.TimeoutExpired):
        done = subprocess.run(command, input=json.dumps(request), capture_output=True, text=True, **options)
        answer = json.loads(done.stdout) if done.returncode == 0 else answer | {"reason": done.stderr[-300:]}
    return answer | {"wall_s": time.perf_counter() - begin}


def pick(tasks: Sequence[str], n: int, rng, keep=lambda kernel: True) -> list[tuple[Task, Kernel]]:
    """``n`` host kernels of the tasks at random, task by task and else in random order."""
    every = [(task, k) for task in map(load_task, tasks) for k in task.kernels("host") if keep(k)]
    return sorted((every[i] for i in rng.permutation(len(every))[:n]), key=lambda x: tasks.index(x[0].name))


def run_core(options, rng) -> tuple[list[dict], list[Figure]]:
    x, calls = np.zeros(4096, dtype=np.float32), []
    allowed, out = os.sched_getaffinity(0), np.empty_like(x)
    os.sched_setaffinity(0, {max(allowed)})
    try:
        end = time.perf_counter() + options.core_seconds
        while time.perf_counter() < end:
            begin = time.perf_counter_ns()
            np.exp(x, out=out)
            calls.append(time.perf_counter_ns() - begin)
    finally:
        os.sched_setaffinity(0, allowed)
    least, calls = min(calls), np.array(calls)
    return [{"quantile": q, "us": float(np.quantile(calls, q)) / 1e3} for q in (0, 0.05, 0.5, 0.95)], [
        Figure("core", "exp of 4096 float32, us: fastest call", least / 1e3, len(calls)),
        median("core", "the same, us", calls / 1e3),
        Figure("core", "share of calls beyond 1.3 times the fastest", float(np.mean(calls > 1.3 * least)), len(calls)),
    ]


def run_verdicts(options, rng) -> tuple[list[dict], list[Figure]]:
    rows, figures = [], []
    for numba, part in enumerate(("verdicts", "verdicts, Numba")):
        n = max(options.candidates // 4, 1) if numba else options.candidates
        chosen = pick(options.task, n, rng, lambda k, numba=numba: ("numba" in k.source) == numba)
        begin, own = time.perf_counter(), []
        with HostDevice() as device:
            ours_s = time.perf_counter() - begin
            request = {"preset": "tiny", "loop": "release", "seconds": BUDGET_S, "core": device.core, "check": True}
            for task, kernel in tqdm(chosen, desc=part):
                begin = time.perf_counter()
                (m,) = device.measure(task, [kernel], preset="tiny", target=VERDICT)
                ours_s += time.perf_counter() - begin
                other = fresh(task, task.reference, kernel, **request, seed=int(rng.integers(2**31)))
                row = {"part": part, "task": task.name, "kernel": kernel.name, "status": str(m.status)}
                own.append(row | {"ours_s": m.seconds, "fresh_s": other["wall_s"], "fresh": other})
        fresh_s, n, rows = sum(r["fresh_s"] for r in own), len(own), rows + own
        further = statistics.median(r["fresh_s"] for r in own) / statistics.median(r["ours_s"] for r in own)
        goals = [{} if numba else {"target": ">= 8", "met": x >= 8} for x in (fresh_s / ours_s, further)]
        figures += [
            Figure(part, "ours a minute, opening and value sets included", 60 * n / ours_s, n),
            Figure(part, "fresh interpreters a minute", 60 * n / fresh_s, n),
            Figure(part, "ratio, all of ours included", fresh_s / ours_s, n, **goals[0]),
            Figure(part, "ratio of a further verdict (medians)", further, n, **goals[1]),
            median(part, "ours: s of a verdict", [r["ours_s"] for r in own]),
            median(part, "fresh interpreter: s of a verdict", [r["fresh_s"] for r in own]),
            median(part, "fresh interpreter: s importing", [r["fresh"]["start_s"] for r in own if "start_s" in r["fresh"]]),
            share(part, "ours: status ok", [r["status"] == "ok" for r in own]),
            share(part, "fresh interpreter: right and timed", [bool(r["fresh"].get("right")) for r in own]),
        ]
    return rows, figures


def random_pairs(tasks: Sequence[str], n: int, rng) -> list[tuple[Task, Kernel, Kernel]]:
    """``n`` different ordered pairs of different host kernels, as many of each task, task by task."""
    pairs = []
    for i, task in enumerate(map(load_task, tasks)):
        every = [(task, a, b) for a in task.kernels("host") for b in task.kernels("host") if a != b]
        pairs += [every[j] for j in rng.permutation(len(every))[: n // len(tasks) + (i < n % len(tasks))]]
    return pairs


def run_agreement(options, rng) -> tuple[list[dict], list[Figure]]:
    pairs, rows = random_pairs(options.task, options.pairs, rng), []
    for load, repeat in itertools.product(options.load, (0, 1)):
        with HostDevice() as device, contextlib.ExitStack() as stack:
            if load == "busy":
                stack.enter_context(exploit_runner().busy_cores(device.core))
            order = sorted(rng.permutation(len(pairs)), key=lambda i: options.task.index(pairs[i][0].name))
            for p in tqdm(order, desc=f"agreement, {load}, pass {repeat + 1}"):
                for method in map(str, rng.permutation(["ours", *LOOPS])):
                    row = {"load": load, "pair": int(p), "repeat": repeat, "method": method}
                    rows.append(
                        row | measured_once(device, *pairs[p], method, two_seconds(options), seed=int(rng.integers(2**31)))
                    )
    return rows, agreement_figures(rows, rng)


def measured_once(device, task: Task, anchor: Kernel, kernel: Kernel, method: str, target: Target, *, seed: int) -> dict:
    """One measurement of a pair by one method, as a row."""
    row = {"task": task.name, "anchor": anchor.name, "candidate": kernel.name, "certain": None, "compile_s": 0.0}
    row["numba_anchor"] = "numba" in anchor.source  # compiled again in every child pair of ours
    if method != "ours":
        request = {"preset": "host", "loop": method, "seconds": BUDGET_S, "core": device.core, "check": False}
        return row | fresh(task, anchor, kernel, **request, seed=seed)
    (m,) = device.measure(task, [kernel], preset="host", target=target, anchor=anchor)
    row |= {"status": str(m.status), "reason": m.reason, "low": m.speedup_low, "high": m.speedup_high, "pairs": m.n_child_pairs}
    row |= {"certain": m.stop == "certain", "wall_s": m.seconds, "compile_s": sum(m.first_call_ms.values()) / 1e3}
    return row | {"log2_speedup": math.log2(m.speedup) if m.speedup else None}


def two_seconds(options) -> Target:
    """A schedule that leaves time to check a kernel within ``BUDGET_S``."""
    return Target(looks=(12,), seconds=options.seconds, blocks=options.blocks, max_calls=options.calls)


def repeated_work(units: int) -> Kernel:
    """A kernel that does the same thing ``units`` times."""
    body = f"a, b = x.numpy(), out.numpy()\n    for _ in range({units}):\n        np.exp(a, out=b)\n    return out\n"
    source = f"import numpy as np\nimport torch\n\n\ndef kernel(x):\n    out = torch.empty_like(x)\n    {body}"
    return Kernel(language="python", source=source, task="repeated_work", name=f"units={units}")


def repeated_work_task() -> Task:
    """exp of a vector that fits the nearest cache, one case."""
    what = {"name": "repeated_work", "title": "exp of a vector.", "signature": "kernel(x: float32[n]) -> float32[n]"}
    what |= {"make_inputs": lambda case, rng: (normal(rng, case["n"]),), "cases": {"timed": (Case("n512", {"n": 512}),)}}
    what |= {"rtol": 1e-4, "atol": 1e-6, "precision": "tolerance", "held_out": "", "stresses": ()}
    what |= {"flops": lambda case: float(case["n"]), "nbytes": lambda case: 8.0 * case["n"]}
    return Task(**what, reference=repeated_work(1), definition="repeated work")


def run_grid(options, rng) -> tuple[list[dict], list[Figure]]:
    anchor, rows, trials = repeated_work(UNITS), [], grid_ratios(DISTANCES, UNITS, options.trials, rng)
    target = two_seconds(options)
    with HostDevice() as device:
        for distance, units, true in tqdm([trials[i] for i in rng.permutation(len(trials))], desc="grid"):
            (m,) = device.measure(repeated_work_task(), [repeated_work(units)], preset="timed", target=target, anchor=anchor)
            row = {"distance": distance, "units": units, "true_log2": true, "status": str(m.status), "reason": m.reason}
            if m.speedup:
                row |= {"certain": m.stop == "certain", "right": inside_one_bin(m.speedup, 2.0**true)}
                row |= {"covered": m.speedup_low <= 2.0**true <= m.speedup_high, "error_log2": math.log2(m.speedup) - true}
            rows.append(row | {"pairs": m.n_child_pairs, "wall_s": m.seconds})
    done = [r for r in rows if r["status"] == "ok"]
    at = lambda distance, what: [r[what] for r in done if r["distance"] == distance]
    return rows, [
        *(share(f"grid, {d:g} log2 off", f"{key} bin", at(d, key)) for d in DISTANCES for key in ("certain", "right")),
        share("grid", "measured", [r["status"] == "ok" for r in rows]),
        share("grid", "right bin, of the certain", [r["right"] for r in done if r["certain"]], 0.95),
        share("grid", "interval holds the true ratio", [r["covered"] for r in done]),
        median("grid", "|error|, log2", [abs(r["error_log2"]) for r in done]),
        median("grid", "error, log2", [r["error_log2"] for r in done]),
    ]


def run_coverage(options, rng) -> tuple[list[dict], list[Figure]]:
    rows, figures, chunk, target = [], [], 50, Target()
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for name, noise in NOISES.items():
            seeds = [int(s) for s in rng.integers(2**63, size=-(-options.simulations // chunk))]
            jobs = pool.map(partial(simulated_verdicts, noise, chunk, target), seeds)
            found = [one for part in tqdm(jobs, total=len(seeds), desc=f"coverage, {name}") for one in part]
            figures += coverage_figures(name, found, target.level)
            rows += [{"noise": name, "covered": c, "certain": s, "right": r, "pairs": p} for c, s, r, p in found]
    return rows, figures


def campaign(plan: Sequence[tuple[Task, Kernel, bool]], description: str) -> list[dict]:
    """Measure a plan of (task, kernel, hostile) in order on one device; a row each. Hostile ones wait 8 seconds at most."""
    rows = []
    with HostDevice() as device:
        for task, kernel, hostile in tqdm(plan, desc=description):
            preset, target = ("timed", replace(CAMPAIGN, deadline_s=8.0)) if hostile else ("tiny", CAMPAIGN)
            (m,) = device.measure(task, [kernel], preset=preset, target=target)
            row = {"task": task.name, "kernel": kernel.name, "hostile": hostile, "campaign": description}
            row |= {"status": str(m.status), "stage": m.stage, "reason": m.reason, "flags": m.flags}
            rows.append(row | {"certain": m.stop == "certain", "bin": STUDY_BINS.index(m.speedup) if m.speedup else None})
    return rows


def run_hostile(options, rng) -> tuple[list[dict], list[Figure]]:
    runner = exploit_runner()
    every = [runner.read_exploit(path) for path in sorted((ROOT / "tests" / "exploits").glob("s[0-9]*.py"))]
    refused = {e.op for e in every if e.want == "task_reject"}  # no kernel of a degenerate task gets as far as running
    every = [e for e in every if e.want == "reject" and e.op not in refused and not e.needs_gpu]
    plan = [(task, kernel, False) for task, kernel in pick(CAMPAIGN_TASKS, options.honest, rng)]
    mixed = list(plan)
    for i in rng.permutation(len(every))[: options.hostile]:
        op = runner.op_task(every[i].op, runner.ops_file(every[i].path))
        mixed.insert(int(rng.integers(len(mixed) + 1)), (op, runner.candidate(every[i]), True))
    alone, together = campaign(plan, "honest alone"), campaign(mixed, "hostile ones mixed in")
    honest, bad = ([r for r in together if r["hostile"] == hostile] for hostile in (False, True))
    found = differences(alone, honest)
    certain = [a["certain"] and b["certain"] for a, b in zip(alone, honest, strict=True)]
    print("\n".join(found) or "no difference")
    return [*alone, *together], [
        Figure("hostile", "differences in what is said of honest kernels", len(found), len(plan), target="0", met=not found),
        share("hostile", "honest kernels certain in both", certain),
        share("hostile", "honest kernels ok, alone", [r["status"] == "ok" for r in alone]),
        share("hostile", "hostile kernels not ok", [r["status"] != "ok" for r in bad]),
    ]


RUN = {"core": run_core, "verdicts": run_verdicts, "agreement": run_agreement, "grid": run_grid, "coverage": run_coverage}
RUN |= {"hostile": run_hostile}
NUMBERS = {
    "seed": (0, "of every draw but the devices' own"),
    "core_seconds": (2.0, "core: seconds"),
    "candidates": (32, "verdicts: kernels, and a quarter as many Numba kernels"),
    "pairs": (40, "agreement: pairs, each measured twice a method and load"),
    "trials": (8, "grid: measurements a distance"),
    "seconds": (1.75, "agreement and grid: of timing by ours, so that a verdict with its check takes two"),
    "blocks": (3, "agreement and grid: timed blocks a case and child pair of ours"),
    "calls": (6, "agreement and grid: most calls a block of ours"),
    "simulations": (1000, "coverage: candidates a kind of noise"),
    "honest": (170, "hostile: honest kernels"),
    "hostile": (30, "hostile: hostile kernels mixed in"),
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=RUN, default=list(RUN)[:5])
    parser.add_argument("--task", nargs="+", default=["softmax"], help="verdicts and agreement: tasks the host kernels are of")
    for name, text in (("quiet", "not with the other cores busy"), ("busy", "with the other cores busy only")):
        parser.add_argument(f"--{name}", dest="load", action="store_const", const=[name], help=f"agreement: {text}")
    for name, (default, text) in NUMBERS.items():
        parser.add_argument(
            f"--{name.replace('_', '-')}", type=type(default), metavar="N", default=default, help=f"{text} (default {default})"
        )
    parser.add_argument("--json", help="also write every row and figure to this file, after each part")
    parser.set_defaults(load=["quiet", "busy"])
    options = parser.parse_args(argv)
    print(f"Python {platform.python_version()}, numpy {np.__version__}, {os.cpu_count()} cores ({platform.machine()})")
    document, figures = {"options": vars(options), "parts": {}}, []
    for i, part in ((i, part) for i, part in enumerate(RUN) if part in options.parts):
        begin, load = time.perf_counter(), os.getloadavg()[0]
        rows, found = RUN[part](options, np.random.default_rng([options.seed, i]))
        print(f"\n{report(found)}\n{part}: {time.perf_counter() - begin:.0f} s, load average {load:.1f} at its start", flush=True)
        figures += found
        document["parts"][part] = {"load": load, "rows": rows, "figures": [asdict(f) for f in found]}
        if options.json:
            Path(options.json).write_text(json.dumps(document, indent=1))
    print(f"\n{report([f for f in figures if f.met is not None])}")
    return int(any(f.part == "hostile" and f.met is False for f in figures))


if __name__ == "__main__":
    sys.exit(main())
