"""One prepared run that says whether the cuda device is right on this GPU: ``python -m kfs.bench.gpu_check``.

Correctness of every CUDA family, the exploit corpus' GPU cases, clocks, the flush, graph timing, how long NVRTC takes, and our
device time against ``triton.testing.do_bench``. Each check is a line of a table and of ``check.jsonl``, written as soon as it is
known; one that breaks does not stop the others. Exit status 0 if all hold, 1 if one does not, 2 where there is no GPU.

Runs from the source tree with torch, triton, numpy, scipy, cuda-core and psutil, and what may have to be carried:
pydantic with what it needs, pyseccomp (else that layer does not hold). Never run on a GPU so far: thresholds are guesses.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from kfs.bench import Target
from kfs.errors import KfsError
from kfs.records import Kernel
from kfs.tasks import Task, load_task, task_names

QUICK = Target(looks=(3,), settle_blocks=1, blocks=3, min_calls=3, max_calls=3, deadline_s=60.0)
_ROOT = Path(__file__).resolve().parents[2]
_DO_BENCH = """
import json, sys
import torch, triton
source, shapes = json.load(sys.stdin)
space = {}
exec(source, space)
inputs = [torch.randn(*s, device="cuda") for s in shapes]
print(json.dumps(triton.testing.do_bench(lambda: space["kernel"](*inputs), return_mode="median") * 1e3))
"""
_SUM = "import torch\n\n\ndef kernel(x):\n    return x.sum(-1)\n"


@dataclass(frozen=True)
class Row:
    """One check: whether it holds, and the figure it was judged by."""

    check: str
    holds: bool
    figure: str
    seconds: float = 0.0


def check_families(device, tasks: list[Task], *, workers: int, variants: bool) -> Iterator[Row]:
    """Every family's first variant (or every variant) against the CPU's values, tiny cases."""
    from kfs.bench.gpu_record import in_order

    for task in tasks:
        kernels = in_order(task.kernels("cuda"))
        seen: set[str] = set()
        chosen = [k for k in kernels if variants or not (k.family in seen or seen.add(k.family))]
        start, bad, flags = time.monotonic(), [], []
        for kernel, verdict, run in device.check(task, [task.reference, *chosen], workers=workers):
            flags += run.flags
            if verdict is not None:
                bad.append(f"{kernel.name}: {verdict.status} at {verdict.stage}: {' '.join(verdict.reason.split())[:200]}")
        figure = f"{len(chosen) + 1 - len(bad)} of {len(chosen) + 1} right"
        yield Row(f"family {task.name}", not bad, "; ".join([figure, *bad]), time.monotonic() - start)


def measured(device, task: Task, kernel: Kernel, preset: str, target: Target = QUICK):
    """One measurement."""
    (found,) = device.measure(task, [kernel], preset=preset, target=target)
    return found


def check_control(device) -> Row:
    """The reference against itself is 1, and every block knows the GPU's state."""
    from kfs.bench.nvml import State

    task = load_task("softmax")
    found = measured(device, _one_case(task, rows=4096, cols=4096), task.reference, "paper")
    if found.status != "ok":
        return Row("control and clocks", False, f"{found.status} at {found.stage}: {found.reason}")
    states = [State.read(b.state) for b in found.blocks]
    clocks = sorted(s.sm_mhz for s in states if s.sm_mhz)
    told = f"SM {clocks[0]} to {clocks[-1]} MHz, {states[-1]}" if clocks else "the driver tells no clocks"
    figure = f"{found.speedup:.3f} ({found.speedup_low:.3f} to {found.speedup_high:.3f}); {told}; flags {found.flags}"
    return Row("control and clocks", 0.8 < found.speedup < 1.25 and bool(clocks), figure)


def _one_case(task: Task, **sizes: int) -> Task:
    """The task with a single paper case."""
    from kfs.tasks import case

    return replace(task, cases={**task.cases, "paper": (case(**sizes),)})


def sum_task(rows: int, cols: int) -> Task:
    """Row sums: reads everything once and writes next to nothing, so its time says where the bytes came from."""
    from kfs.tasks import case, normal

    return Task(
        name="gpu_check_sum",
        title="Row sums.",
        signature="kernel(x float32[rows, cols]) -> float32[rows]",
        make_inputs=lambda c, rng: (normal(rng, c["rows"], c["cols"]),),
        cases={"paper": (case(rows=rows, cols=cols),)},
        rtol=1e-4,
        atol=1e-2,
        precision="tolerance",
        flops=lambda c: float(c["rows"] * c["cols"]),
        nbytes=lambda c: 4.0 * c["rows"] * (c["cols"] + 1),
        held_out="",
        stresses=(),
        reference=Kernel(language="python", source=_SUM, task="gpu_check_sum", name="reference"),
        definition=f"sum {rows} {cols}",
    )


def check_flush(device) -> Row:
    """What fits in L2 is read no faster than memory allows: the flush works."""
    task = sum_task(4096, 2048)  # 32 MiB
    size = task.nbytes(task.preset("paper")[0])
    (small, large), rates = device.light([size, 2.0**31])
    found = measured(device, task, task.reference, "paper")
    if found.status != "ok":
        return Row("flush", False, f"{found.status} at {found.stage}: {found.reason}")
    cold = size / statistics.median(t for b in found.blocks for t in b.candidate_device_ns)
    memory, cache = 2.0**31 / large, size / small
    figure = f"32 MiB read at {cold:.0f} GB/s after the flush; copies: {memory:.0f} GB/s from memory, {cache:.0f} repeated"
    figure += "; products: " + ", ".join(f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in rates.items())
    return Row("flush", cold < 1.15 * memory, figure)


def check_graph(device) -> Row:
    """A short kernel has graph timings on both sides, shorter than its end-to-end time."""
    task = load_task("softmax")
    found = measured(device, _one_case(task, rows=256, cols=1024), task.reference, "paper")
    if found.status != "ok":
        return Row("graph", False, f"{found.status} at {found.stage}: {found.reason}")
    wall = statistics.median(t for b in found.blocks for t in b.candidate_ns)
    device_ns = statistics.median(t for b in found.blocks for t in b.candidate_device_ns)
    graphs = [g.candidate_ns for g in found.graph if g.candidate_ns and g.reference_ns]
    figure = f"end to end {wall / 1e3:.1f} us, device {device_ns / 1e3:.1f} us, in a graph "
    figure += f"{statistics.median(graphs) / 1e3:.1f} us" if graphs else "never"
    return Row("graph", bool(graphs) and statistics.median(graphs) < wall, f"{figure}; flags {found.flags}")


def check_do_bench(device) -> Iterator[Row]:
    """Our device time against do_bench on the same shapes."""
    for name, shape, sizes in (("softmax", (4096, 4096), {"rows": 4096, "cols": 4096}), ("sum", (8192, 8192), None)):
        task = _one_case(load_task(name), **sizes) if sizes else sum_task(*shape)
        start = time.monotonic()
        found = measured(device, task, task.reference, "paper")
        ask = json.dumps([task.reference.source, [shape]])
        run = subprocess.run([sys.executable, "-c", _DO_BENCH], input=ask, capture_output=True, text=True, timeout=120)
        if found.status != "ok" or run.returncode:
            yield Row(f"do_bench {name}", False, f"{found.status}: {found.reason}; {run.stderr[-300:]}")
            continue
        theirs = json.loads(run.stdout)
        ours = statistics.median(t for b in found.blocks for t in b.candidate_device_ns) / 1e3
        wall = statistics.median(t for b in found.blocks for t in b.candidate_ns) / 1e3
        figure = f"ours {ours:.1f} us (end to end {wall:.1f}), do_bench {theirs:.1f} us, ratio {ours / theirs:.3f}"
        yield Row(f"do_bench {name}", 0.75 < ours / theirs < 1.33, figure, time.monotonic() - start)


def check_nvrtc(arch: str) -> Row:
    """Every CUDA C++ family compiles in under a second."""
    import tempfile

    from kfs.bench.gpu_child import compile_cubin

    worst, slowest = 0.0, ""
    with tempfile.TemporaryDirectory() as cache:
        for name in task_names():
            for kernel in (k for k in load_task(name).kernels("cuda") if k.language == "cuda"):
                start = time.perf_counter()
                compile_cubin(kernel.source, arch, cache)
                if (took := time.perf_counter() - start) > worst:
                    worst, slowest = took, f"{name} {kernel.name}"
    return Row("nvrtc", worst < 1.0, f"slowest {worst:.2f} s: {slowest} for {arch}")


def check_exploits(folder: Path) -> Iterator[Row]:
    """The corpus' GPU cases, each with the verdict its header calls right."""
    spec = importlib.util.spec_from_file_location("kfs_exploits_run", folder / "run.py")
    run = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(run)
    for found in run.run_files(sorted(folder.glob("g[0-9]*.py"))):
        yield Row(f"exploit {found.file}", found.verdict == "ok", " ".join(run.line(found).split())[:400], found.seconds)


class Report:
    """Prints rows and appends them to a file as they come."""

    def __init__(self, path: Path, deadline: float):
        self.path, self.deadline, self.rows = path, deadline, []
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")

    def add(self, row: Row) -> None:
        """One more."""
        self.rows.append(row)
        with open(self.path, "a") as file:
            file.write(json.dumps(row.__dict__) + "\n")
        print(f"{'ok   ' if row.holds else 'WRONG'} {row.check:30} {row.seconds:6.1f} s  {row.figure}", flush=True)

    def run(self, name: str, check: Callable) -> None:
        """Run a check that gives a row, or several; what it raises is a row, too."""
        start = time.monotonic()
        if start > self.deadline:
            self.add(Row(name, False, "not run: the time is up"))
            return
        try:
            found = check()
            for row in [found] if isinstance(found, Row) else found:
                self.add(row if row.seconds else replace(row, seconds=time.monotonic() - start))
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{Path(last.filename).name}:{last.lineno}"
            self.add(Row(name, False, f"{type(error).__name__}: {error} ({where})"[:600], time.monotonic() - start))


def main(argv: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=480.0, help="start no check after them (default %(default)s)")
    parser.add_argument("--workers", type=int, default=6, help="kernels checked at once (default %(default)s)")
    parser.add_argument("--variants", action="store_true", help="every variant of a family, not the first alone")
    parser.add_argument("--out", type=Path, help="folder of check.jsonl (default $OUT, else runs/gpu-check)")
    args = parser.parse_args(argv)

    from kfs.bench.cuda import CudaDevice, why_not

    if (why := why_not()) is not None:
        print(f"gpu-check needs a GPU: {why}", file=sys.stderr)
        return 2
    out = args.out or Path(os.environ.get("OUT") or "runs/gpu-check")
    begun = time.monotonic()
    report = Report(out / "check.jsonl", begun + args.seconds)
    tasks = [load_task(name) for name in task_names()]
    try:
        with CudaDevice() as device:
            facts = {**device.hardware.model_dump(exclude_none=True), **device.facts, "torch": torch.__version__}
            report.add(Row("device", True, json.dumps(facts), time.monotonic() - begun))
            report.run("nvrtc", lambda: check_nvrtc(device.hardware.architecture))
            report.run("control and clocks", lambda: check_control(device))
            report.run("flush", lambda: check_flush(device))
            report.run("graph", lambda: check_graph(device))
            report.run("do_bench", lambda: check_do_bench(device))
            for task in tasks:
                check = lambda task=task: check_families(device, [task], workers=args.workers, variants=args.variants)
                report.run(f"family {task.name}", check)
    except KfsError as error:
        report.add(Row("device", False, str(error), time.monotonic() - begun))
    report.run("exploits", lambda: check_exploits(_ROOT / "tests" / "exploits"))
    wrong = [r.check for r in report.rows if not r.holds]
    print(f"{len(report.rows) - len(wrong)} of {len(report.rows)} hold, {time.monotonic() - begun:.0f} s; {report.path}")
    print(f"wrong: {', '.join(wrong)}" if wrong else "all hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
