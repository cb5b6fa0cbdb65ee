"""Records of every CUDA kernel at the paper's sizes, in a fixed time, to be gone on with: ``python -m kfs.bench.gpu_record``.

Tasks come in order of their size; each gets an equal share of the time that is left, so every task has some kernels before any
has all, and what a small one leaves goes to the larger ones. Within a task the first variant of every family comes first. Each
measurement is a line of ``paper.jsonl``, synced before the next one starts; a later run skips what is there. ``--export`` turns
such a log into the parquet files that studies read, on a machine without a GPU.

What a kernel is assumed to cost, to be put right by the first run's ``seconds``: 0.5 to 1 s a context, four of them (a check and
three pairs; the reference keeps one for its task), made side by side; 1 to 3 s to compile; 2 to 10 s of copying and comparing at
the largest cases. Eight minutes then hold the first variants of most families, not all variants: run it again for the rest.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from kfs.bench import Target
from kfs.bench.campaign import _append, _current, _mend, read_log, task_kernels
from kfs.errors import KfsError, TaskError
from kfs.records import Kernel, Measurement, atomic_write, to_jsonl, write_records
from kfs.tasks import Task, load_task, task_names

TARGET = Target(looks=(3,), settle_blocks=1, blocks=3, block_ms=1.0, min_calls=2, max_calls=2, deadline_s=40.0)
"""Two calls a block: as many as large cases have value sets, so that nothing is staged twice."""
PRESET = "paper"
_LEAST_S = 8.0


def in_order(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The first variant of every family, then the others."""
    first: dict[str, str] = {}
    for k in kernels:
        first.setdefault(k.family or k.kernel_id, k.kernel_id)
    return sorted(kernels, key=lambda k: first[k.family or k.kernel_id] != k.kernel_id)


def by_size(tasks: Sequence[Task], preset: str = PRESET) -> list[Task]:
    """Tasks whose cases move the fewest bytes first: the judge draws and computes on the CPU."""
    return sorted(tasks, key=lambda t: sum(t.nbytes(c) for c in t.preset(preset)))


def record_for(
    device,
    tasks: Sequence[Task],
    log: Path,
    *,
    seconds: float,
    preset: str = PRESET,
    target: Target = TARGET,
    clock: Callable[[], float] = time.monotonic,
    say: Callable[[str], None] = print,
) -> dict[str, tuple[int, int]]:
    """Measure for a fixed time.

    Parameters
    ----------
    device
        An entered device.
    tasks : sequence of Task
        In the order they get their shares.
    log : path
        JSON lines; kernels in it that answer the same question are skipped.
    seconds : float
        No kernel is started after them. The one that runs is finished.

    Returns
    -------
    dict
        Kernels measured, now or before, and kernels there are, by task.
    """
    deadline = clock() + seconds
    _mend(log)
    known = read_log(log)
    every = {t.name: in_order(task_kernels(t, "cuda")) for t in tasks}
    done = {t.name: {m.kernel_id for m in known if m.task == t.name and _current(m, t, preset, target)} for t in tasks}
    broken: set[str] = set()
    while True:
        open_ = [t for t in tasks if t.name not in broken and len(done[t.name]) < len(every[t.name])]
        if not open_ or deadline - clock() < _LEAST_S:
            break
        for i, task in enumerate(open_):
            left = deadline - clock()
            if left < _LEAST_S:
                break
            stop, begun = clock() + left / (len(open_) - i), clock()
            owed = [k for k in every[task.name] if k.kernel_id not in done[task.name]]
            names = {k.kernel_id: k.name for k in owed}
            try:
                for m in device.measure(task, owed, preset=preset, target=target):
                    _append(log, m)
                    done[task.name].add(m.kernel_id)
                    say(f"{task.name:20} {names[m.kernel_id] or '':34} {_line(m)}")
                    if clock() >= stop:
                        break
            except KfsError as error:  # the harness or the task broke: the others can still be measured
                broken.add(task.name)
                say(f"{task.name:20} BROKEN: {error}")
            say(f"{task.name:20} {len(done[task.name])} of {len(every[task.name])} kernels, {clock() - begun:.0f} s now")
    return {t.name: (len(done[t.name]), len(every[t.name])) for t in tasks}


def _line(m: Measurement) -> str:
    if m.status != "ok":
        return f"{m.seconds:5.1f} s  {m.status} at {m.stage}: {' '.join((m.reason or '').split())[:90]}"
    return f"{m.seconds:5.1f} s  {m.speedup:7.3f}x ({m.speedup_low:.3g} to {m.speedup_high:.3g}) {','.join(m.flags)[:60]}"


def export(log: Path, folder: Path, tasks: Sequence[Task], *, preset: str = PRESET, target: Target = TARGET) -> list[Path]:
    """Write a log's measurements as ``<folder>/<task>.parquet`` beside their kernels; of repeated ones the last counts."""
    found, paths, kernels = read_log(log), [], []
    for task in tasks:
        latest = {m.kernel_id: m for m in found if m.task == task.name and _current(m, task, preset, target)}
        own = [k for k in task_kernels(task, "cuda") if k.kernel_id in latest]
        if own:
            paths.append(write_records([latest[k.kernel_id] for k in own], folder / f"{task.name}.parquet"))
            kernels += own
    if not paths:
        raise TaskError(f"{log}: no measurements of these tasks with this harness, preset and target; is it an older log?")
    write_records(sorted(kernels, key=lambda k: (k.task, k.name)), folder / "kernels.parquet")
    hardware = log.with_name("hardware.jsonl")
    if hardware.is_file():
        atomic_write(folder / "hardware.jsonl", hardware.read_bytes())
    return paths


def main(argv: list[str] | None = None) -> int:
    """The command; 0 if every task has records, 1 if one has none or broke, 2 where there is no GPU."""
    parser = argparse.ArgumentParser(prog="gpu-record", description=__doc__.split("\n", 1)[0])
    parser.add_argument("tasks", nargs="*", metavar="TASK", help="default all tasks of kfs")
    parser.add_argument("--seconds", type=float, default=460.0, help="start no kernel after them (default %(default)s)")
    parser.add_argument("--out", type=Path, help="folder of the log (default $OUT/gpu-record, else data/records/<gpu>)")
    parser.add_argument("--export", type=Path, metavar="LOG", help="no measuring: write this log as parquet, to --out")
    args = parser.parse_args(argv)
    tasks = by_size([load_task(name) for name in args.tasks or task_names()])
    try:
        if args.export:
            folder = args.out or args.export.parent
            print(*export(args.export, folder, tasks), sep="\n")
            return 0
        return _measure(args, tasks)
    except KfsError as error:
        print(f"gpu-record: {error}", file=sys.stderr)
        return 2


def _measure(args: argparse.Namespace, tasks: list[Task]) -> int:
    from kfs.bench.cuda import CudaDevice

    begun = time.monotonic()
    with CudaDevice(one_reference=True) as device:
        name = device.hardware.name
        default = Path(os.environ["OUT"]) / "gpu-record" if os.environ.get("OUT") else Path("data/records") / name
        folder = args.out or default
        folder.mkdir(parents=True, exist_ok=True)
        atomic_write(folder / "hardware.jsonl", to_jsonl([device.hardware]).encode())
        print(f"{device.hardware.title}, {folder / 'paper.jsonl'}; ready after {time.monotonic() - begun:.0f} s", flush=True)
        left = args.seconds - (time.monotonic() - begun)
        say = lambda text: print(text, flush=True)
        found = record_for(device, tasks, folder / "paper.jsonl", seconds=left, say=say)
    for task, (done, of) in found.items():
        print(f"{task:20} {done:3} of {of:3}")
    print(f"{sum(d for d, _ in found.values())} of {sum(n for _, n in found.values())} in {time.monotonic() - begun:.0f} s")
    return 0 if all(done for done, _ in found.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
