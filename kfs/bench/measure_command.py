"""``kfs measure``: one candidate against a task's reference, on this machine."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from kfs.errors import HarnessError, TaskError, unknown_name

if TYPE_CHECKING:
    from kfs.records import Measurement

_KEYS = ("task", "candidate", "reference", "device", "preset")
_DEVICES = ("host", "cuda")


def add_parser(verbs: argparse._SubParsersAction) -> None:
    """Register the verb ``measure``."""
    verb = verbs.add_parser(
        "measure",
        help="check and time one kernel against a task's reference",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description="Check one kernel and time it against the task's reference, both in processes of their own.\n"
        "Exit status: 0 if it is right and was timed, 1 otherwise.",
        epilog="""\
KEY=VALUE:
  task=NAME        a task of kfs, a folder with task.py, or a KernelBench problem file; trusted: it runs in this process
  candidate=FILE   the kernel; never trusted. It defines kernel(*inputs), or custom_kernel(data) as in GPU MODE, or a class
                   ModelNew or Model as in KernelBench; or CUDA C++ (.cu, for device=cuda)
  reference=FILE   time against this kernel instead of the task's reference; expected values stay the task's own, and the file
                   is held to them; it runs in the sandbox as the candidate does (default: the task's reference)
  device=host      where: host (this CPU); cuda where there is a GPU
  preset=host      which of the task's cases: tiny, host or paper

example:
  kfs measure task=softmax candidate=my_softmax.py preset=tiny --json""",
    )
    verb.add_argument("options", nargs="*", metavar="KEY=VALUE", help="task=NAME and candidate=FILE are needed")
    verb.add_argument("--json", action="store_true", help="print the Measurement record as JSON and nothing else")
    verb.add_argument("--core", type=int, help="core to measure on (default the last one)")
    verb.set_defaults(run=_measure)


def parse_options(words: list[str]) -> dict[str, str]:
    """``KEY=VALUE`` words as a dictionary, with defaults.

    Raises
    ------
    UnknownNameError
        If a key or device does not exist; lists those that do.
    TaskError
        If a word is not ``KEY=VALUE``, a key stands twice or a needed one is absent.
    """
    options: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise TaskError(f"found {word!r}, expected KEY=VALUE; keys: {', '.join(_KEYS)} (kfs measure --help)")
        if key not in _KEYS:
            raise unknown_name("option", key, _KEYS, "kfs measure --help")
        if key in options:
            raise TaskError(f"{key}= is given twice: {options[key]!r} and {value!r}")
        options[key] = value
    if absent := [key for key in ("task", "candidate") if key not in options]:
        raise TaskError(
            f"{' and '.join(f'{key}=' for key in absent)} missing; for example: kfs measure task=softmax candidate=FILE"
        )
    options = {"device": "host", "preset": "host"} | options
    if options["device"] not in _DEVICES:
        raise unknown_name("device", options["device"], _DEVICES, "kfs measure --help")
    return options


def open_device(name: str, core: int | None):
    """A live device by name, to be entered.

    Raises
    ------
    HarnessError
        If this installation or machine does not have it.
    """
    if name == "host":
        from kfs.bench.host import HostDevice

        return HostDevice(core=core)
    try:
        from kfs.bench.cuda import CudaDevice
    except ImportError as error:
        raise HarnessError(f"device=cuda is not available here ({error}); use device=host") from error
    return CudaDevice()


def _measure(args: argparse.Namespace) -> int:
    options = parse_options(args.options)

    from kfs.bench.adapters import load_kernel, load_task
    from kfs.records import Status

    task = load_task(options["task"])
    task.preset(options["preset"])  # an unknown preset is an error before anything is started
    candidate = load_kernel(options["candidate"], task)
    anchor = load_kernel(options["reference"], task) if "reference" in options else None
    with open_device(options["device"], args.core) as device:
        (found,) = device.measure(task, [candidate], preset=options["preset"], anchor=anchor)
        hardware = device.hardware.title or device.hardware.name
    if args.json:
        print(found.model_dump_json(indent=1))
    else:
        against = options.get("reference", "the task's reference")
        print(f"{options['candidate']} against {against}, task {task.name}, cases {options['preset']}, on {hardware}")
        print("\n".join(f"{name:8} {value}" for name, value in summary(found)))
    return 0 if found.status == Status.OK else 1


def summary(found: Measurement) -> list[tuple[str, str]]:
    """A measurement as names and values for people."""
    from kfs.records import Status
    from kfs.speedup import STUDY_BINS

    rows = [("status", str(found.status))]
    if found.status == Status.OK:
        index = int(STUDY_BINS.index(found.speedup))
        interval = f"{found.confidence:.0%} interval {found.speedup_low:.3g} to {found.speedup_high:.3g}"
        why = {"certain": "the bin is certain", "budget": "the budget of process pairs is spent"}
        rows += [
            ("speedup", f"{found.speedup:.3g} ({interval}, {found.n_child_pairs} pairs of processes)"),
            ("bin", f"{index}, {STUDY_BINS.names[index - 1]}"),
            ("stop", why.get(found.stop or "", found.stop or "-")),
        ]
        if any(b.candidate_device_ns for b in found.blocks):
            from kfs.bench.cuda import device_ratio

            rows.append(("device", f"{device_ratio(found.blocks):.3g} in device time; the speedup is end to end"))
    else:
        rows += [("stage", found.stage or "-"), ("reason", " ".join((found.reason or "").split())[:600])]
    return [*rows, ("flags", ", ".join(found.flags) or "none"), ("seconds", f"{found.seconds:.1f}")]
