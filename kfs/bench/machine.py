"""This machine: what it is, which versions decide a measurement, and how fast it can move bytes and do arithmetic."""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import torch

from kfs.bench.child import CallSlots, TensorSlot
from kfs.bench.sandbox import Child
from kfs.errors import HarnessError
from kfs.records import Hardware

_held: dict[str, int] = {}
_LOCKS = Path("/tmp" if os.path.isdir("/tmp") else tempfile.gettempdir())  # not TMPDIR: users of one machine differ in it


def _to_standard_error(text: str) -> None:
    print(text, file=sys.stderr)


def _open_shared(path: Path) -> int:
    """A file that every user of the machine may open; it is never removed."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)  # O_CREAT on another user's file in /tmp is refused by Linux
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    with contextlib.suppress(PermissionError):
        os.fchmod(fd, 0o666)  # whatever the umask
    return fd


@contextlib.contextmanager
def measuring(what: str, *, wait_s: float = 900.0, say: Callable[[str], None] = _to_standard_error) -> Iterator[Path]:
    """Hold the machine-wide lock of what is measured on, ``core 1`` or a GPU; processes that measure take turns.

    ``say`` is told once that it waits. One process may hold a lock several times.

    Raises
    ------
    HarnessError
        If another process still holds it after ``wait_s`` seconds.
    """
    path = _LOCKS / f"kfs-{what.replace(' ', '-')}.lock"
    try:
        fd = _open_shared(path)
    except OSError as error:
        raise HarnessError(f"the lock of {what}, {path}, cannot be opened: {error.strerror}; remove it") from error
    try:
        deadline, told = time.monotonic() + wait_s, False
        while not _held.get(what):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                holder = os.pread(fd, 32, 0).decode(errors="replace").strip() or "unknown"
                if time.monotonic() >= deadline:
                    raise HarnessError(f"process {holder} measures on {what} ({path}); wait until it ends") from None
                if not told and (told := True):
                    say(f"process {holder} measures on {what}; waiting up to {wait_s:g} s")
                time.sleep(min(0.2, max(deadline - time.monotonic(), 0.01)))
        if not _held.get(what):
            os.ftruncate(fd, 0)
            os.pwrite(fd, str(os.getpid()).encode(), 0)
        _held[what] = _held.get(what, 0) + 1
        try:
            yield path
        finally:
            _held[what] -= 1
    finally:
        os.close(fd)


# Best of several ways to touch every byte once; repeated, so that the bytes lie in the smallest cache that holds them.
_PROBE = """
import time
import torch


def best(run):
    run()
    times = []
    for _ in range(5):
        start, n = time.perf_counter_ns(), 0
        while time.perf_counter_ns() - start < 400_000:
            run()
            n += 1
        times.append((time.perf_counter_ns() - start) / n)
    return min(times)


def kernel(nbytes):
    n = max(int(nbytes[0]) // 8, 1)
    both = torch.ones(2 * n)
    a, b = both[:n], both[n:]
    move = min(best(lambda: torch.dot(a, b)), best(lambda: a.copy_(b)), best(lambda: torch.sum(both)))
    move = max(move - min(best(lambda: torch.dot(a[:8], b[:8])), move), 0.0)
    m = torch.rand(512, 512)
    multiply = best(lambda: m @ m) if nbytes[1] else 0.0
    return torch.tensor([move, multiply], dtype=torch.float64)
"""


def probe(spawn: Callable[[int], Child], nbytes: list[float]) -> tuple[list[float], float]:
    """Measure the speed of light of one core: nanoseconds to touch each number of bytes once, and peak float32 FLOP/s.

    Parameters
    ----------
    spawn : callable
        Makes a child with an arena of so many bytes.
    nbytes : list of float
    """
    child = spawn(1 << 16)
    try:
        call = CallSlots((TensorSlot(0, (2,), "int64", 16),), (TensorSlot(8192, (2,), "float64", 16),))
        if child.load(_PROBE, "kernel", 60).code:
            raise HarnessError("the speed-of-light probe cannot be imported")
        found, peak = [], 0.0
        for i, n in enumerate(nbytes):
            child.arena.view(call.inputs[0]).copy_(torch.tensor([int(n), i == 0]))
            reply = child.call([call], 60)
            if reply.code:
                raise HarnessError(f"the speed-of-light probe failed: {reply.text}")
            move, multiply = child.arena.view(call.outputs[0]).tolist()
            found.append(move)
            peak = 2 * 512**3 / multiply * 1e9 if i == 0 else peak
        return found, peak
    finally:
        child.close()


@cache
def environment() -> dict[str, str]:
    """Versions that decide what was measured."""
    found = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "kernel": platform.release(),
    }
    with contextlib.suppress(ImportError):
        from importlib.metadata import version

        found["numba"] = version("numba")
    return found


def _read(path: str) -> str:
    with contextlib.suppress(OSError), open(path) as file:
        return file.read()
    return ""


def this_cpu() -> Hardware:
    """This machine's CPU as a record, from /proc and /sys."""
    info = _read("/proc/cpuinfo")

    def field(name: str) -> str:
        match = re.search(rf"^{name}\s*:\s*(.+)$", info, re.MULTILINE)
        return match[1].strip() if match else ""

    model = field("model name") or platform.processor() or platform.machine()
    flags = set(field("flags").split())
    level = "x86-64-v4" if "avx512f" in flags else "x86-64-v3" if "avx2" in flags else platform.machine()
    caches = [_read(f"/sys/devices/system/cpu/cpu0/cache/index{i}/size").strip() for i in range(5)]
    sizes = [int(c[:-1]) / 1024 for c in caches if c.endswith("K")]
    family = f"family {field('cpu family')} model {field('model')}" if field("cpu family") else ""
    slug = re.sub(r"[^a-z0-9]+", "-", f"{model} {family}".lower().replace("family ", "f").replace("model ", "m")).strip("-")
    memory = re.search(r"MemTotal:\s+(\d+)", _read("/proc/meminfo"))
    return Hardware(
        name=f"host-{slug}",
        title=f"{model} ({family})" if family else model,
        vendor=field("vendor_id") or platform.machine(),
        architecture=level,
        kind="cpu",
        units=os.cpu_count(),
        memory_gb=round(int(memory[1]) / 2**20, 1) if memory else None,
        cache_mb=max(sizes) if sizes else None,
        clock_mhz=float(field("cpu MHz")) if field("cpu MHz") else None,
        driver=f"Linux {platform.release()}",
        sources=["/proc/cpuinfo", "/sys/devices/system/cpu"],
    )
