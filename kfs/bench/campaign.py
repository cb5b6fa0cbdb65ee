"""Measuring campaigns: every kernel of some tasks, on one device, into records that can be committed.

Each finished measurement is a line in a log, synced before the next one starts, so a killed campaign loses at most the kernel it
was on. When a task is finished its log becomes ``<folder>/<hardware>/<task>.parquet`` (measurements with every raw sample) beside
``kernels.parquet`` (their sources) and ``hardware.jsonl``: a folder that needs nothing else to be read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from pydantic import ValidationError

from kfs.bench import HARNESS, Target
from kfs.errors import DataError
from kfs.records import Hardware, Kernel, Measurement, atomic_write, read_records, write_records
from kfs.tasks import Task


def task_kernels(task: Task, device: str = "host") -> list[Kernel]:
    """The reference and every kernel of a task's families, each source once."""
    unique = {k.kernel_id: k for k in [task.reference, *task.kernels(device)]}
    return list(unique.values())


def read_log(path: Path) -> list[Measurement]:
    """Measurements of a campaign's log; a torn last line is dropped, other damage is an error."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    found = []
    for i, line in enumerate(lines):
        if not line:
            continue
        try:
            found.append(Measurement.model_validate(json.loads(line)))
        except (json.JSONDecodeError, ValidationError) as error:
            if i == len(lines) - 1:  # the write a kill interrupted: no newline behind it
                break
            raise DataError(f"{path}, line {i + 1}: not a measurement ({error}); move the file away to start again") from error
    return found


def _append(path: Path, measurement: Measurement) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "ab") as file:
        file.write((measurement.model_dump_json() + "\n").encode())
        file.flush()
        os.fsync(file.fileno())


def _mend(path: Path) -> None:
    """Cut a torn last line so that the next append starts on a line of its own."""
    if path.exists() and (data := path.read_bytes()) and not data.endswith(b"\n"):
        atomic_write(path, data[: data.rfind(b"\n") + 1])


def record(
    device,
    tasks: Sequence[Task],
    folder: str | os.PathLike,
    *,
    log_folder: str | os.PathLike,
    preset: str = "host",
    target: Target | None = None,
    kernels: Callable[[Task], list[Kernel]] = task_kernels,
    progress: bool = True,
) -> list[Path]:
    """Measure every kernel of ``tasks`` and write their records.

    Parameters
    ----------
    device
        An entered device (``kfs.bench.host.HostDevice``).
    tasks : sequence of Task
    folder : path
        Gets ``<hardware>/<task>.parquet``, ``kernels.parquet`` and ``hardware.jsonl``.
    log_folder : path
        Where the resumable logs live. Measurements in it of the same harness, task, reference, preset and target are kept.
    progress : bool
        Show a bar with an ETA, and a line for every kernel that fails.

    Returns
    -------
    list of Path
        The parquet files, one a task.
    """
    from tqdm import tqdm

    target = target or Target()
    logs = Path(log_folder) / device.hardware.name / preset
    owed: dict[str, list[Kernel]] = {}
    for task in tasks:
        log = logs / f"{task.name}.jsonl"
        _mend(log)
        done = {m.kernel_id for m in read_log(log) if _current(m, task, preset, target)}
        owed[task.name] = [k for k in kernels(task) if k.kernel_id not in done]
    total = sum(len(kernels(t)) for t in tasks)
    left = sum(map(len, owed.values()))
    paths = []
    with tqdm(total=total, initial=total - left, disable=not progress, unit="kernel", smoothing=0.1) as bar:
        for task in tasks:
            bar.set_description(task.name)
            names = {k.kernel_id: k.name for k in owed[task.name]}
            if owed[task.name]:
                for m in device.measure(task, owed[task.name], preset=preset, target=target):
                    _append(logs / f"{task.name}.jsonl", m)
                    bar.update()
                    if m.status != "ok" and progress:
                        bar.write(f"{task.name} {names[m.kernel_id]}: {m.status} at {m.stage}: {m.reason}")
            paths.append(_export(task, kernels(task), logs, Path(folder) / device.hardware.name, preset, target))
    write_hardware(device.hardware, Path(folder) / device.hardware.name)
    return paths


def _current(measurement: Measurement, task: Task, preset: str, target: Target) -> bool:
    """Whether a logged measurement answers the same question in the same way."""
    asked = (HARNESS, task.reference.kernel_id, task.task_id, preset, target.describe())
    m = measurement
    return (m.harness, m.reference_id, m.task_id, m.preset, m.environment.get("target")) == asked


def _export(task: Task, kernels: Iterable[Kernel], logs: Path, folder: Path, preset: str, target: Target) -> Path:
    """Write a finished task's records; of repeated measurements the last one counts."""
    kernels = list(kernels)
    latest = {m.kernel_id: m for m in read_log(logs / f"{task.name}.jsonl") if _current(m, task, preset, target)}
    path = write_records([latest[k.kernel_id] for k in kernels], folder / f"{task.name}.parquet")
    store = folder / "kernels.parquet"
    others = [k for k in read_records(Kernel, store) if k.task != task.name] if store.exists() else []
    write_records(sorted([*others, *kernels], key=lambda k: (k.task, k.name)), store)
    return path


def write_hardware(hardware: Hardware, folder: Path) -> Path:
    """Write what records were measured on beside them."""
    return write_records([hardware], folder / "hardware.jsonl")


def read_folder(folder: str | os.PathLike) -> tuple[list[Measurement], list[Kernel], Hardware]:
    """Read one hardware's folder of records.

    Raises
    ------
    DataError
        If the folder holds no records; names the command that makes them.
    """
    folder = Path(folder)
    files = sorted(p for p in folder.glob("*.parquet") if p.name != "kernels.parquet")
    if not files or not (folder / "kernels.parquet").exists():
        raise DataError(f"{folder}: no records; measure this machine with `kfs record`")
    measurements = [m for path in files for m in read_records(Measurement, path)]
    (hardware,) = read_records(Hardware, folder / "hardware.jsonl")
    return measurements, read_records(Kernel, folder / "kernels.parquet"), hardware
