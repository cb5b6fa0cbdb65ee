"""What a live study looks at: this machine's own measurements, made when the study starts.

The kernels of some tasks are measured by ``kfs.bench`` as ``kfs record`` does; a killed study goes on where it was, and what has
been measured under the same conditions is not measured again.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from kfs.bench import HARNESS, Target
from kfs.bench.campaign import record, task_kernels
from kfs.bench.measure_command import open_device
from kfs.records import Kernel, atomic_write, content_id
from kfs.report.schemas import LiveData
from kfs.report.sources import live_folder
from kfs.tasks import Task, load_task, task_names

PRESETS = {"cuda": "paper", "host": "host"}


def measure(data: LiveData, say: Callable[[str], None]) -> Path:
    """Measure what is missing; the folder of this machine's records, finished.

    Parameters
    ----------
    data : LiveData
    say : callable
        Shows a line.

    Raises
    ------
    HarnessError
        If the device cannot measure here; says why.
    """
    folder = live_folder(data)
    tasks = [load_task(name) for name in data.tasks or task_names()]
    target = Target(looks=(data.child_pairs,))
    asked = {t.name: chosen(t, data.device, data.kernels) for t in tasks}
    wanted = [f"{t.task_id} {[k.kernel_id for k in asked[t.name]]}" for t in tasks]
    with open_device(data.device, None) as device:
        place = folder / device.hardware.name
        key = content_id(HARNESS, target.describe(), device.hardware.model_dump_json(), *wanted)
        if _key(place / "complete.json") == key:
            return place
        (place / "complete.json").unlink(missing_ok=True)
        for stale in place.glob("*.parquet"):  # of other tasks or kernels; measurements are in the log
            stale.unlink()
        say(f"measuring {sum(map(len, asked.values()))} kernels of {len(tasks)} tasks on {device.hardware.title}")
        kernels = lambda task: asked[task.name]
        where = {"log_folder": folder / "log", "preset": PRESETS[data.device], "target": target}
        record(device, tasks, folder, kernels=kernels, **where)
    atomic_write(place / "complete.json", json.dumps({"key": key}).encode())
    return place


def _key(complete: Path) -> str | None:
    """What finished records answer to; None where there are none, or their note cannot be read."""
    try:
        return json.loads(complete.read_text())["key"]
    except (OSError, ValueError, KeyError, TypeError):
        return None


def chosen(task: Task, device: str, most: int | None) -> list[Kernel]:
    """The reference and the kernels to measure, at most ``most`` in all: the first variant of every family before the others."""
    kernels = task_kernels(task, device)
    reference, others = kernels[:1], kernels[1:]
    first = {k.family: k.kernel_id for k in reversed(others)}
    others.sort(key=lambda k: first[k.family] != k.kernel_id)
    return [*reference, *others][:most]
