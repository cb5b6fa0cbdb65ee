"""The ``host`` device: kernels judged and timed live on one core of this machine's CPU, with one thread."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterable
from dataclasses import replace

import torch

from kfs.bench import Target
from kfs.bench.live import LiveDevice, Run, TaskSets
from kfs.bench.machine import measuring, probe, this_cpu
from kfs.bench.sandbox import Child, Reply
from kfs.bench.side import CaseSets, Side, Verdict
from kfs.bench.timing import Staging
from kfs.errors import HarnessError
from kfs.records import Kernel
from kfs.tasks import Case, Task

_MEMORY_BYTES = 2 << 30
_EMPTY_SHARE = 0.4  # of what a call that computes nothing takes: no kernel is faster


class HostDevice(LiveDevice):
    """Measures kernels on this CPU. Context manager; one at a time on a machine.

    Parameters
    ----------
    core : int, optional
        Core the kernels run on; default the last one this process may use.
    deny : iterable of str
        Isolation layers to go without, for tests; see ``kfs.bench.confine.LAYERS``.
    """

    def __init__(self, *, core: int | None = None, deny: Iterable[str] = ()):
        allowed = sorted(os.sched_getaffinity(0))
        if core is not None and core not in allowed:
            raise HarnessError(f"core {core} is not available; allowed: {allowed}")
        super().__init__(this_cpu(), ("python",), deny=deny)
        self.core = allowed[-1] if core is None else core
        self._before = set(allowed)
        self._compiled: tuple[str, str] | None = None

    def __enter__(self) -> HostDevice:
        with contextlib.ExitStack() as stack:
            stack.enter_context(measuring(f"core {self.core}"))
            super().__enter__()
            stack.callback(super().__exit__)
            self._compiled = None
            others = self._before - {self.core}
            if others:
                _move_threads(others)  # the judge stays off the timed core
                stack.callback(_move_threads, self._before)
            stack.callback(torch.set_num_threads, torch.get_num_threads())
            torch.set_num_threads(max(len(others), 1))  # more threads than cores would spin against each other
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_) -> None:
        self._exit.close()

    def _prepare_anchor(self, task: Task, anchor: Kernel, sets: TaskSets, target: Target) -> dict:
        """Have a Numba anchor compiled once, by a child that may write where the others read."""
        if "numba" not in anchor.source:
            return {}
        self._zygote.warm_numba()
        if self._compiled != (anchor.kernel_id, task.task_id):
            self._zygote.forget("anchor")
            try:
                with self._side(sets.nbytes, target, jit="anchor", compiles=True) as side:
                    side.load(anchor)
                    for one in sets.timed:
                        side.block(one, [0], "check")
            except Verdict:
                self._prove_reference(task, anchor, sets, target)
            self._compiled = (anchor.kernel_id, task.task_id)
        return {"jit": "anchor"}

    def _check(self, kernel: Kernel, sets: TaskSets, target: Target, jit: str, run: Run) -> None:
        if "numba" in kernel.source:
            self._zygote.warm_numba()
        super()._check(kernel, sets, target, jit, run)

    def _spawn(self, nbytes: int, **options) -> Child:
        return self._zygote.spawn(nbytes, self.core, _MEMORY_BYTES, alone=len(self._before) > 1, **options)

    def _calibrate(self, task: Task, timed: list[CaseSets], cases: tuple[Case, ...], target: Target) -> list[CaseSets]:
        """What staging costs beside the calls, from an empty kernel, and the speed of light of every case."""
        moved, peak = probe(self._spawn, [task.nbytes(case) for case in cases])
        ready = []
        for one, case, move in zip(timed, cases, moved, strict=True):
            outputs = ", ".join(f"torch.empty({tuple(y.shape)}, dtype={y.dtype})" for y in one.expected[0].reference)
            empty = f"import torch\n\n\ndef kernel(*inputs):\n    return ({outputs},)\n"
            beside, least = {}, []
            with contextlib.ExitStack() as stack:
                pair = [stack.enter_context(self._side(one.nbytes, target)) for _ in range(2)]  # in turns, as when it counts
                for side in pair:
                    side.load(Kernel(language="python", source=empty))
                for n in (1, target.max_calls):
                    replies = [self._staged(side, one, n) for _ in range(6) for side in pair]
                    least += [ns for r in replies for ns in r.durations_ns]
                    beside[n] = statistics.median(r.cpu_ns - sum(r.durations_ns) for r in replies[4:])
            a_call = (beside[target.max_calls] - beside[1]) / max(target.max_calls - 1, 1)
            staging = Staging(max(beside[1] - a_call, 0.0), max(a_call, 0.0))
            ready.append(
                replace(one, staging=staging, floor_ns=max(move, _EMPTY_SHARE * min(least), task.flops(case) / peak * 1e9))
            )
        return ready

    def _staged(self, side: Side, one: CaseSets, n: int) -> Reply:
        """A block of ``n`` calls and a look at its outputs, which leaves them in the judge's caches as a check does."""
        reply = side.block(one, range(n), "timing", check=False)
        for call in one.slots[:n]:
            for slot in call.outputs:
                side.child.arena.view(slot).clone()
        return reply


def _move_threads(cores: set[int]) -> None:
    """Pin every thread of this process, libraries' pools included."""
    for tid in os.listdir("/proc/self/task"):
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(tid), cores)
