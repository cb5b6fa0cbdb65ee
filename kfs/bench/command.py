"""``kfs record``: measure every kernel of some tasks on this machine."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Register the verb ``record``."""
    verb = verbs.add_parser(
        "record",
        help="measure every kernel of the tasks on this CPU, resumable",
        description="Measure every kernel of the tasks on this CPU and write their records. A killed run goes on where it was.",
    )
    verb.add_argument("tasks", nargs="*", metavar="TASK", help="task names or folders with a task.py; default all tasks of kfs")
    verb.add_argument("--preset", default="host", help="which cases of each task: tiny or host (default %(default)s)")
    verb.add_argument("--out", type=Path, default=Path("runs/records"), help="folder of the records (default %(default)s)")
    verb.add_argument(
        "--log", type=Path, default=Path("runs/record-log"), help="folder of the resumable logs (default %(default)s)"
    )
    verb.add_argument("--core", type=int, help="core to measure on (default the last one)")
    verb.add_argument(
        "--child-pairs", type=int, default=8, help="fresh pairs of processes a kernel, at least 3 (default %(default)s)"
    )
    verb.set_defaults(run=_record)


def _record(args: argparse.Namespace) -> int:
    from kfs.bench import Target
    from kfs.bench.campaign import record
    from kfs.bench.host import HostDevice
    from kfs.tasks import load_task, task_names

    tasks = [load_task(name) for name in args.tasks or task_names()]
    target = Target(looks=(args.child_pairs,))
    with HostDevice(core=args.core) as device:
        print(f"measuring on {device.hardware.title}, core {device.core}; log: {args.log}, records: {args.out}")
        paths = record(device, tasks, args.out, log_folder=args.log, preset=args.preset, target=target)
        print(f"{device.measurements_spent} measured now, {device.seconds_spent:.0f} s; records: {', '.join(map(str, paths))}")
    return 0
