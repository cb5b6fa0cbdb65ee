"""The ``host`` device: kernels timed live on one core of this machine's CPU.

Candidate and reference each run in a child of their own on the same core with one thread. Every timed call sees inputs its
process has not seen before, and is the call whose output is checked. Value sets and what they must give are made once a case
and shared by all candidates; each child gets private copies.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache

import numpy as np
import torch

from kfs.bench import HARNESS, Target, sandbox
from kfs.bench.judge import Expected, admit, expect, value_fault
from kfs.bench.sandbox import CallSlots, Child, ChildDied, Reply, TensorSlot, Zygote
from kfs.bench.timing import estimate, inside_one_bin
from kfs.errors import HarnessError
from kfs.records import Block, Hardware, Kernel, Measurement, Status
from kfs.tasks import Case, Task, reference_function

_WARMUP_CALLS = 2
_MEMORY_BYTES = 8 << 30
_ALIGN = 4096
_STATUS = {
    sandbox.IMPORT_FAILED: Status.COMPILE_ERROR,
    sandbox.CALL_FAILED: Status.RUNTIME_ERROR,
    sandbox.NO_MEMORY: Status.OUT_OF_MEMORY,
    sandbox.BAD_OUTPUT: Status.WRONG_OUTPUT,
}


class Verdict(Exception):
    """A candidate's failure, as data on its way to a Measurement."""

    def __init__(self, status: Status, stage: str, reason: str, side: Side | None = None):
        super().__init__(reason)
        self.status, self.stage, self.reason, self.side = status, stage, reason, side


@dataclass(frozen=True)
class CaseSets:
    """Value sets of a case, what each must give, and how one call's tensors lie in an arena."""

    case: Case
    inputs: list[tuple[torch.Tensor, ...]]
    expected: list[Expected]
    slots: list[CallSlots]
    nbytes: int


class Side:
    """A child with one kernel, seen from the judge: stages inputs, runs blocks, checks every output."""

    def __init__(self, child: Child, target: Target):
        self.child, self.target = child, target

    def load(self, kernel: Kernel) -> None:
        self._ask("import", lambda: self.child.load(kernel.source, kernel.entry, self.target.deadline_s))

    def block(self, sets: CaseSets, picks: range, stage: str, *, check: bool = True) -> list[int]:
        """Run value sets ``picks`` in order; nanoseconds a call. Wrong output, a crash or a hang raises Verdict."""
        slots = sets.slots[: len(picks)]
        for pick, call in zip(picks, slots, strict=True):
            for tensor, slot in zip(sets.inputs[pick], call.inputs, strict=True):
                self.child.arena.view(slot).copy_(tensor)
            for slot in call.outputs:
                self.child.arena.poison(slot)
        reply = self._ask(stage, lambda: self.child.call(slots, self.target.deadline_s))
        for pick, call in zip(picks if check else (), slots if check else (), strict=True):
            outputs = tuple(self.child.arena.view(s) for s in call.outputs)
            if (wrong := value_fault(sets.expected[pick], outputs)) is not None:
                raise Verdict(Status.WRONG_OUTPUT, stage, f"case {sets.case.name}: {wrong}", self)
            for i, (tensor, slot) in enumerate(zip(sets.inputs[pick], call.inputs, strict=True)):
                if not torch.equal(self.child.arena.view(slot), tensor):
                    raise Verdict(Status.REJECTED, stage, f"case {sets.case.name}: input {i} was modified", self)
        if min(reply.durations_ns) <= 0:
            raise Verdict(Status.IMPLAUSIBLE, stage, f"case {sets.case.name}: a call claims {min(reply.durations_ns)} ns", self)
        return list(reply.durations_ns)

    def _ask(self, stage: str, request: Callable[[], Reply]) -> Reply:
        """The child's answer, or a Verdict that says how it failed."""
        try:
            reply = request()
        except ChildDied as died:
            status = {"timeout": Status.TIMEOUT, "crash": Status.CRASH}.get(died.kind, Status.REJECTED)
            raise Verdict(status, stage, died.detail, self) from died
        if reply.code != sandbox.OK:
            raise Verdict(_STATUS[reply.code], stage, reply.text or "no reason given", self)
        return reply


class HostDevice:
    """Measures kernels on this CPU. Context manager; one at a time on a machine.

    Parameters
    ----------
    core : int, optional
        Core the kernels run on; default the last one this process may use.
    """

    def __init__(self, *, core: int | None = None):
        allowed = sorted(os.sched_getaffinity(0))
        if core is not None and core not in allowed:
            raise HarnessError(f"core {core} is not available; allowed: {allowed}")
        self.core = allowed[-1] if core is None else core
        self._before = set(allowed)
        self.hardware = this_cpu()
        self._rng = np.random.default_rng()  # from the system: no candidate can know it
        self._zygote: Zygote | None = None
        self._sets: dict[tuple, list[CaseSets]] = {}
        self.measurements_spent = 0
        self.seconds_spent = 0.0

    def __enter__(self) -> HostDevice:
        self._zygote = Zygote()
        others = self._before - {self.core}
        if others:
            os.sched_setaffinity(0, others)  # the judge stays off the timed core
        self._threads = torch.get_num_threads()
        torch.set_num_threads(max(len(others), 1))  # more threads than cores would spin against each other
        return self

    def __exit__(self, *_) -> None:
        self._zygote.close()
        os.sched_setaffinity(0, self._before)
        torch.set_num_threads(self._threads)

    def measure(
        self, task: Task, kernels: Iterable[Kernel], *, preset: str = "host", target: Target | None = None
    ) -> Iterator[Measurement]:
        """Measure each kernel against the task's reference.

        Parameters
        ----------
        task : Task
        kernels : iterable of Kernel
            Python kernels.
        preset : str
            Which of the task's cases to run.
        target : Target, optional
            When to stop.

        Yields
        ------
        Measurement
            One a kernel, in order. A kernel that fails is a Measurement, too.

        Raises
        ------
        TaskError
            If the task is degenerate.
        HarnessError
            If the harness or the reference itself fails.
        """
        if self._zygote is None:
            raise HarnessError("use the device in a with statement: with HostDevice() as device: ...")
        target = target or Target()
        sets = self._value_sets(task, preset, target)
        for kernel in kernels:
            measurement = self._one(task, kernel, preset, sets, target)
            self.measurements_spent += 1
            self.seconds_spent += measurement.seconds
            yield measurement

    def _one(self, task: Task, kernel: Kernel, preset: str, sets: list[CaseSets], target: Target) -> Measurement:
        start = time.monotonic()
        common = {
            "task": task.name,
            "preset": preset,
            "kernel_id": kernel.kernel_id,
            "reference_id": task.reference.kernel_id,
            "task_id": task.task_id,
            "hardware": self.hardware.name,
            "harness": HARNESS,
            "environment": {**environment(), "target": target.describe()},
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            if kernel.language != "python":
                raise Verdict(Status.REJECTED, "admission", f"the host device runs python kernels, not {kernel.language}")
            blocks = [b for pair in range(target.child_pairs) for b in self._child_pair(task, kernel, sets, target, pair)]
        except Verdict as verdict:
            return Measurement(
                **common,
                status=verdict.status,
                stage=verdict.stage,
                reason=verdict.reason,
                seconds=time.monotonic() - start,
            )
        result = estimate(blocks, level=target.level)
        return Measurement(
            **common,
            status=Status.OK,
            flags=[] if inside_one_bin(result.low, result.high) else ["borderline"],
            blocks=blocks,
            speedup=result.speedup,
            speedup_low=result.low,
            speedup_high=result.high,
            confidence=result.level,
            log2_std_error=result.log2_std_error,
            n_child_pairs=result.n_child_pairs,
            stop="budget",
            seconds=time.monotonic() - start,
        )

    def _child_pair(self, task: Task, kernel: Kernel, sets: list[CaseSets], target: Target, pair: int) -> list[Block]:
        """All cases in two fresh processes: warm up, settle, then alternate."""
        blocks = []
        with contextlib.ExitStack() as stack:
            reference, candidate = (Side(self._spawn(stack, sets), target) for _ in range(2))
            try:
                reference.load(task.reference)
                candidate.load(kernel)
                for one in sets:
                    blocks += self._case(one, reference, candidate, target, pair)
            except Verdict as verdict:
                if verdict.side is not reference:
                    raise
                found = verdict
            else:
                return blocks
        self._prove_reference(task, sets, target)
        raise Verdict(
            Status.REJECTED, found.stage, f"the reference failed beside this kernel and works alone: {found.reason}", candidate
        ) from found

    def _case(self, one: CaseSets, reference: Side, candidate: Side, target: Target, pair: int) -> list[Block]:
        sides, blocks = (reference, candidate), []
        warm = range(_WARMUP_CALLS)
        times = {side: min(side.block(one, warm, "warmup")) for side in sides}
        calls = {s: int(np.clip(1e6 * target.block_ms / t, target.min_calls, target.max_calls)) for s, t in times.items()}
        at = dict.fromkeys(sides, _WARMUP_CALLS)
        for turn in range(target.settle_blocks + target.blocks):
            ran = {}
            for side in sides if (turn + pair) % 2 == 0 else sides[::-1]:  # who goes first alternates
                ran[side] = side.block(one, range(at[side], at[side] + calls[side]), "timing", check=side is candidate)
                at[side] += calls[side]
            if turn >= target.settle_blocks:
                blocks.append(
                    Block(case=one.case.name, child_pair=pair, reference_ns=ran[reference], candidate_ns=ran[candidate])
                )
        return blocks

    def _spawn(self, stack: contextlib.ExitStack, sets: list[CaseSets]) -> Child:
        child = self._zygote.spawn(max(s.nbytes for s in sets), self.core, _MEMORY_BYTES, alone=len(self._before) > 1)
        stack.callback(child.close)
        return child

    def _prove_reference(self, task: Task, sets: list[CaseSets], target: Target) -> None:
        """Run the reference alone; if it fails there too, the harness or the task is at fault, not a candidate."""
        with contextlib.ExitStack() as stack:
            side = Side(self._spawn(stack, sets), target)
            try:
                side.load(task.reference)
                for one in sets:
                    side.block(one, range(_WARMUP_CALLS), "warmup")
            except Verdict as verdict:
                raise HarnessError(
                    f"task {task.name!r}: the reference fails at {verdict.stage}: {verdict.status}: {verdict.reason}"
                ) from verdict

    def _value_sets(self, task: Task, preset: str, target: Target) -> list[CaseSets]:
        n_sets = _WARMUP_CALLS + (target.settle_blocks + target.blocks) * target.max_calls
        key = (task.task_id, task.reference.kernel_id, task.name, preset, n_sets)
        if key not in self._sets:
            self._sets.clear()  # one task's sets at a time fit in memory
            admit(task, task.preset(preset), self._rng)
            made = []
            for case in task.preset(preset):
                reference = reference_function(task)
                inputs = [tuple(x.contiguous() for x in task.make_inputs(case, self._rng)) for _ in range(n_sets)]
                expected = [expect(task, x, reference) for x in inputs]
                slots, nbytes = _lay_out(inputs[0], expected[0].reference, target.max_calls)
                made.append(CaseSets(case, inputs, expected, slots, nbytes))
            self._sets[key] = made
        return self._sets[key]


def _lay_out(inputs, outputs, n_calls: int) -> tuple[list[CallSlots], int]:
    """Slots for ``n_calls`` calls, page-aligned, and the bytes they need."""
    at = 0

    def slot(tensor) -> TensorSlot:
        nonlocal at
        made = TensorSlot(at, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), tensor.nbytes)
        at += -(-max(tensor.nbytes, 1) // _ALIGN) * _ALIGN
        return made

    calls = [CallSlots(tuple(map(slot, inputs)), tuple(map(slot, outputs))) for _ in range(n_calls)]
    return calls, at


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
