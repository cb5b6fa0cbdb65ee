"""``kfs record``: measure every kernel of some tasks on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Register the verb ``record``."""
    verb = verbs.add_parser(
        "record",
        help="measure every kernel of the tasks on this CPU or GPU, resumable",
        description="Measure every kernel of the tasks on this CPU or GPU and write their records. A killed run goes on where it "
        "was. For a GPU that is lent for minutes, `make gpu-record` shares a fixed time among the tasks.",
    )
    verb.add_argument("tasks", nargs="*", metavar="TASK", help="task names or folders with a task.py; default all tasks of kfs")
    verb.add_argument("--device", default="host", choices=("host", "cuda"), help="where (default %(default)s: this CPU)")
    verb.add_argument("--preset", help="which cases of each task: tiny, host or paper (default host, on cuda paper)")
    verb.add_argument("--out", type=Path, default=Path("runs/records"), help="folder of the records (default %(default)s)")
    verb.add_argument(
        "--log", type=Path, default=Path("runs/record-log"), help="folder of the resumable logs (default %(default)s)"
    )
    verb.add_argument("--core", type=int, help="core to measure on, for the host (default the last one)")
    verb.add_argument(
        "--child-pairs", type=int, default=8, help="fresh pairs of processes a kernel, at least 3 (default %(default)s)"
    )
    verb.set_defaults(run=_record)


def _record(args: argparse.Namespace) -> int:
    from kfs.bench import Target
    from kfs.bench.campaign import record, task_kernels
    from kfs.bench.measure_command import open_device
    from kfs.tasks import load_task, task_names

    tasks = [load_task(name) for name in args.tasks or task_names()]
    target = Target(looks=(args.child_pairs,))
    preset = args.preset or {"host": "host", "cuda": "paper"}[args.device]
    kernels = lambda task: task_kernels(task, args.device)
    with open_device(args.device, args.core) as device:
        where = f", core {device.core}" if args.device == "host" else ""
        print(f"measuring on {device.hardware.title}{where}; log: {args.log}, records: {args.out}")
        paths = record(device, tasks, args.out, log_folder=args.log, preset=preset, target=target, kernels=kernels)
        print(f"{device.measurements_spent} measured now, {device.seconds_spent:.0f} s; records: {', '.join(map(str, paths))}")
    return 0
