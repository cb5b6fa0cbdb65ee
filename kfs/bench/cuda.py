"""The ``cuda`` device: kernels judged and timed live on this machine's first visible NVIDIA GPU.

The judge has no CUDA context: it draws inputs, holds expected values and compares on the CPU, as for the host. Each child makes a
context of its own (``kfs.bench.gpu_child``). The label's clock is the end-to-end time: the wall clock between two device-wide
synchronisations, with cold caches, so that side streams, host work and launches count. Device time (events on the stream a kernel
is given) stands beside it in every block, and calls shorter than 100 us are also captured into a CUDA graph and replayed, which
leaves launching out; neither decides a label. The judge's own clock bounds what children claim.

One measuring process a GPU: a lock in the temporary folder, by the GPU's UUID. State of clocks and temperature is read after each
block. Isolation layers that CUDA does not get along with here are dropped, one at a time; records name those that hold.

Large cases have fewer value sets than calls, which then repeat in turn, in device memory that is written anew: a kernel that
keeps results by a sample of its input's values could profit there (flag ``repeated_inputs``), and some of their timed blocks,
chosen at random after they ran, are checked instead of all. Not defended besides: what code in
a child's process does to the two clocks within the slack of the judge's, and threads the driver started before the layers held.
"""

from __future__ import annotations

import contextlib
import glob
import os
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch

from kfs.bench import Target
from kfs.bench.confine import LAYERS
from kfs.bench.gpu_child import FLUSH_L2
from kfs.bench.gpu_probe import has_triton, light, what_gpu
from kfs.bench.live import LiveDevice, Run, TaskSets
from kfs.bench.machine import measuring
from kfs.bench.nvml import Nvml, State, visible_gpu
from kfs.bench.sandbox import Child, Reply, Zygote
from kfs.bench.side import CaseSets, Side, Verdict
from kfs.bench.timing import Staging
from kfs.errors import HarnessError
from kfs.records import Block, GraphTiming, Hardware, Kernel, Measurement, Status
from kfs.tasks import Case, Task

GRAPH_NS = 100_000
"""Calls shorter than this end to end are also timed in a graph; a kernel of 20 us takes that long to launch on a slow host."""
EVENT_GAP_NS = 30_000
"""A candidate whose two clocks are further apart than the reference's, by this much, has work that its stream does not show."""
WAIT_SLACK, WAIT_SLACK_NS = 0.25, 500_000
"""How much longer than claimed the judge may wait for a block: a share of calls and staging, and nanoseconds."""
SET_BYTES = 6 << 30
"""Memory of the judge for the value sets of one case, about."""
AFFORDABLE_BYTES = 64 << 20
"""Admission and stresses are tried on cases that move no more than this, or on held-out ones where there are none."""
_COPIES = 6  # of a call's bytes that one value set takes: inputs, reference, low and high ends, fp64
_MAX_CORES = 4
_PROBE_BYTES = 1 << 20
_RESIDENT_BYTES = 16 << 30

T = TypeVar("T")


def why_not() -> str | None:
    """Why there is no measuring on a GPU here; None where one seems usable. Makes no CUDA context."""
    if torch.version.cuda is None:
        return "this torch is a CPU build"
    for package in ("cuda.core", "cuda.bindings"):
        try:
            __import__(package)
        except ImportError:
            return f"{package} is not installed; pip install 'kfs[gpu]'"
    if glob.glob("/dev/nvidia[0-9]*"):
        return None
    try:
        Nvml()
    except (OSError, HarnessError) as error:
        return f"no NVIDIA GPU: {error}"
    return None


def layer_plans(deny: Iterable[str] = ()) -> list[frozenset[str]]:
    """Sets of layers to go without, in the order they are tried: none; all of them, which stands by; one; more."""
    order = ("read_only", "namespaces", "seccomp", "landlock", "limits", "capabilities")  # a context is made under the first two
    spaces = lambda names: frozenset(names) | ({"read_only"} if "namespaces" in names else set())
    plans = [(), LAYERS, *((name,) for name in order), *(order[:n] for n in range(3, len(order)))]
    return list(dict.fromkeys(frozenset(deny) | spaces(plan) for plan in plans))


def settle_layers(attempt: Callable[[frozenset[str]], T], deny: Iterable[str] = ()) -> tuple[frozenset[str], T]:
    """Fewest layers gone without with which ``attempt`` works, and what it gave.

    Raises
    ------
    HarnessError
        If it works with no set of layers; says why not with all of them and with none.
    """
    first, *others = layer_plans(deny)
    try:
        return first, attempt(first)
    except HarnessError as error:
        why = str(error)
    last = None
    for plan in others:  # the first of them goes without any layer: if that fails, too, the layers are not to blame
        try:
            found = attempt(plan)
        except HarnessError as error:
            if last is None:
                raise HarnessError(f"no CUDA context: {why}; without isolation layers: {error}") from error
            continue
        if last is None and len(others) > 1:
            last = (plan, found)
            continue
        if last is not None:
            last[1].close()
        return plan, found
    if last is None:
        raise HarnessError(f"no CUDA context: {why}")
    return last


class CudaDevice(LiveDevice):
    """Measures kernels on a GPU. Context manager.

    Parameters
    ----------
    deny : iterable of str
        Isolation layers to go without.
    lock_wait_s : float
        How long to wait for another measuring process on the GPU.
    one_reference : bool
        Keep one process of the reference for all kernels of a task, which saves a context a child pair; its own variation from
        process to process is then not in the interval.
    """

    clock = "wall clock between device-wide synchronisations"

    def __init__(self, *, deny: Iterable[str] = (), lock_wait_s: float = 600.0, one_reference: bool = False):
        unknown = Hardware(name="cuda", vendor="NVIDIA", architecture="unknown", kind="gpu")
        super().__init__(unknown, ("python", "triton", "cuda"), deny=deny)
        self._wait_s, self._one_reference = lock_wait_s, one_reference
        allowed = sorted(os.sched_getaffinity(0))
        self._before, self._cores = set(allowed), allowed[-min(_MAX_CORES, max(len(allowed) // 2, 1)) :]
        self._nvml: Nvml | None = None
        self._children: list[Child] = []
        self._ready: list[tuple[str, int, Child]] = []
        self._reference: tuple[int, Child] | None = None
        self._facts: dict[str, str] = {}
        self._repeats: set[str] = set()
        self._uncaptured: set[str] = set()
        self._shared, self._calibrates = False, True

    def __enter__(self) -> CudaDevice:
        if (why := why_not()) is not None:
            raise HarnessError(f"device cuda: {why}; use device=host")
        self._facts, self.languages = {}, ("python", "triton", "cuda")
        with contextlib.ExitStack() as stack:
            uuid, index = visible_gpu()
            with contextlib.suppress(OSError):
                self._nvml = Nvml(uuid, index=index)
                uuid = self._nvml.uuid()
            stack.enter_context(measuring(f"GPU {uuid or f'index{index}'}", wait_s=self._wait_s))
            self._shared = bool(self._nvml and self._nvml.processes())
            if others := self._before - set(self._cores):
                os.sched_setaffinity(0, others)
                stack.callback(os.sched_setaffinity, 0, self._before)
                stack.callback(torch.set_num_threads, torch.get_num_threads())
                torch.set_num_threads(len(others))
            denied, self._zygote = settle_layers(self._open, self._deny)
            stack.callback(self._leave)
            self._start(uuid, denied)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_) -> None:
        self._stack.close()

    def _leave(self) -> None:
        self._drop(everything=True)
        self._zygote.close()
        self._zygote = None

    def _open(self, denied: frozenset[str]) -> Zygote:
        """A zygote whose children can make a context and run torch with these layers denied."""
        zygote = Zygote(deny=denied, engine="cuda")
        try:
            child = zygote.spawn(_PROBE_BYTES, self._cores, None, alone=False)
            try:
                what_gpu(child)
            finally:
                child.close()
            return zygote
        except BaseException:
            zygote.close()
            raise

    def _start(self, uuid: str | None, denied: frozenset[str]) -> None:
        """Learn what the GPU is, and whether Triton works; what it compiled for itself serves every later child."""
        driver = self._nvml.driver() if self._nvml else ""
        child = self._spawn(_PROBE_BYTES)
        try:
            self.hardware, found, cuda = what_gpu(child, driver)
        finally:
            child.close()
        if uuid and found and found.removeprefix("GPU-") != uuid.removeprefix("GPU-"):
            raise HarnessError(f"CUDA's first GPU is {found}, NVML's is {uuid}: set CUDA_VISIBLE_DEVICES=GPU-... to one")
        child = self._spawn(_PROBE_BYTES, jit="warm", compiles=True)
        try:
            no_triton = has_triton(child)
        finally:
            child.close()
        if no_triton:
            self.languages = tuple(x for x in self.languages if x != "triton")
        from importlib.metadata import PackageNotFoundError, version

        for package in ("triton", "cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc"):
            with contextlib.suppress(PackageNotFoundError):
                self._facts[package] = version(package)
        self._facts |= {"driver": driver, "cuda": cuda, "gpu": uuid or found, "flush": f"{FLUSH_L2} x L2"}
        self._facts |= {"without_layers": " ".join(sorted(denied)) or "none"}
        self._facts |= {"no_triton": no_triton[:300]} if no_triton else {}
        self._facts |= {"reference": "one process a task"} if self._one_reference else {}

    def _environment(self) -> dict[str, str]:
        return self._facts

    @property
    def facts(self) -> dict[str, str]:
        """What decides measurements here: versions, the GPU, the layers that hold and those gone without."""
        return {**self._facts, "layers": " ".join(x.name for x in self._zygote.layers if x.active)}

    def light(self, nbytes: list[float]) -> tuple[list[float], dict[str, float]]:
        """Nanoseconds to touch each number of bytes once, and FLOP/s of products in tf32 and bf16."""
        child = self._spawn(_PROBE_BYTES)
        try:
            return light(child, nbytes)
        finally:
            child.close()

    # processes

    def _spawn(self, nbytes: int, **options) -> Child:
        if not options.get("jit"):
            options["compiles"] = True  # a reference may be Triton, too; it has a folder of its own
        for i, (jit, size, child) in enumerate(self._ready):
            if jit == options.get("jit") and size >= nbytes and not options.get("compiles"):
                del self._ready[i]
                return self._zygote.greet(child)
        child = self._zygote.spawn(nbytes, self._cores, None, alone=False, **options)
        self._children = [c for c in self._children if not c.closed] + [child]
        return child

    def _check(self, kernel: Kernel, sets: TaskSets, target: Target, jit: str, run: Run) -> None:
        """Checks, while the children of the first look make their contexts; a context is most of what a short kernel costs."""
        nbytes = max(s.nbytes for s in sets.timed)
        for _ in range(target.looks[0]):
            child = self._zygote.spawn(nbytes, self._cores, None, alone=False, jit=jit, wait=False)
            self._children.append(child)
            self._ready.append((jit, nbytes, child))
        super()._check(kernel, sets, target, jit, run)

    def check(self, task: Task, kernels: Iterable[Kernel], *, preset: str = "tiny", workers: int = 1) -> Iterator[tuple]:
        """Check kernels as ``measure`` does and time nothing; several at once, since nothing is timed.

        Yields
        ------
        kernel, verdict, run
            ``verdict`` is None for a right kernel; ``run`` holds flags and first calls. In order.
        """
        target = Target(deadline_s=120.0)
        self._calibrates = False
        try:
            sets = self._task_sets(task, preset, target)
        finally:
            self._calibrates = True
            self._sets.clear()  # without bounds they serve no timing

        def one(kernel: Kernel) -> tuple:
            run, jit = Run(), f"check-{kernel.kernel_id}"
            try:
                if kernel.language not in self.languages:
                    raise Verdict(Status.REJECTED, "admission", f"no {kernel.language} here: {self._facts.get('no_triton', '')}")
                super(CudaDevice, self)._check(kernel, sets, target, jit, run)
            except Verdict as verdict:
                return kernel, verdict, run
            finally:
                self._zygote.forget(jit)
            return kernel, None, run

        with ThreadPoolExecutor(workers) as pool:
            yield from pool.map(one, kernels)

    def _one(self, *args, **options) -> Measurement:
        try:
            return super()._one(*args, **options)
        finally:
            self._drop()

    def _drop(self, *, everything: bool = False) -> None:
        """End children nobody asked for; the kept reference as well where it says so."""
        while self._ready:
            self._ready.pop()[2].close()
        if everything and self._reference is not None:
            self._reference[1].close()
            self._reference = None

    @contextlib.contextmanager
    def _side(self, nbytes: int, target: Target, run: Run | None = None, **options) -> Iterator[Side]:
        if options.get("jit") or not self._one_reference:
            with super()._side(nbytes, target, run, **options) as side:
                yield side
            return
        if self._reference is None or self._reference[0] < nbytes:
            self._drop_reference()
            self._reference = (nbytes, self._spawn(nbytes, **options))
        try:
            yield Side(self._reference[1], target)
        except BaseException:
            self._drop_reference()
            raise

    def _drop_reference(self) -> None:
        if self._reference is not None:
            self._reference[1].close()
            self._reference = None

    # value sets and bounds

    def _affordable(self, task: Task, cases: tuple[Case, ...]) -> tuple[Case, ...]:
        small = tuple(c for c in cases if task.nbytes(c) <= AFFORDABLE_BYTES)
        return small or (task.preset(task.held_out) if task.held_out else (min(cases, key=task.nbytes),))

    def _distinct(self, task: Task, case: Case, n_sets: int) -> int:
        distinct = int(min(max(SET_BYTES // max(_COPIES * task.nbytes(case), 1), 3), n_sets))
        (self._repeats.add if distinct < n_sets else self._repeats.discard)(case.name)
        return distinct

    def _calibrate(self, task: Task, timed: list[CaseSets], cases: tuple[Case, ...], target: Target) -> list[CaseSets]:
        """What staging costs beside the calls, from an empty kernel, and the speed of light of every case."""
        if not self._calibrates:
            return timed
        moved, rates = self.light([task.nbytes(case) for case in cases])
        peak = rates["tf32"] if task.precision == "strict" else max(rates.values())
        ready = []
        for one, case, move in zip(timed, cases, moved, strict=True):
            shapes = [(tuple(y.shape), y.dtype) for y in one.expected[0].reference]
            outputs = ", ".join(f"torch.empty({shape}, dtype={dtype}, device=inputs[0].device)" for shape, dtype in shapes)
            side = Side(self._spawn(one.nbytes), target)
            try:
                side.load(Kernel(language="python", source=f"import torch\n\n\ndef kernel(*inputs):\n    return ({outputs},)\n"))
                beside = {}
                for n in (1, target.max_calls):
                    replies = [side.block(one, range(n), "timing", check=False) for _ in range(4)]
                    beside[n] = statistics.median(r.elapsed_ns - sum(r.durations_ns) for r in replies[1:])
            except Verdict as verdict:
                raise HarnessError(f"an empty kernel fails on case {one.name}: {verdict.status}: {verdict.reason}") from verdict
            finally:
                side.child.close()
            a_call = (beside[target.max_calls] - beside[1]) / max(target.max_calls - 1, 1)
            staging = Staging(max(beside[1] - a_call, 0.0), max(a_call, 0.0))
            kept = min((self.hardware.cache_mb or 0.0) * 2**20 / task.nbytes(case), 1.0)  # outputs that never left L2
            floor = max(move * (1 - kept), task.flops(case) / peak * 1e9)
            ready.append(replace(one, staging=staging, floor_ns=floor))
        return ready

    def _clock_fault(self, blocks: list[Block], staging: dict[str, Staging]) -> str | None:
        return wait_fault(blocks, staging)

    # what records hold beside

    def _block_facts(self, reference: Reply, candidate: Reply) -> dict:
        if self._nvml is not None and (there := self._nvml.processes()) is not None:
            self._shared |= len(there) > sum(not c.closed for c in self._children)
        return {
            "reference_device_ns": list(reference.device_ns),
            "candidate_device_ns": list(candidate.device_ns),
            "reference_elapsed_ns": reference.elapsed_ns,
            "candidate_elapsed_ns": candidate.elapsed_ns,
            "state": str(self._nvml.state() if self._nvml else State()),
        }

    def _resident(self, side: Side) -> int:
        """Host memory of the process, which CUDA leaves without another limit, and device memory of everybody."""
        own = super()._resident(side)
        if own > _RESIDENT_BYTES:
            raise Verdict(Status.OUT_OF_MEMORY, "timing", f"the process holds {own >> 20} MiB of host memory", side)
        return own + ((self._nvml.used_bytes() if self._nvml else None) or 0)

    def _after_cases(self, sets: TaskSets, reference: Side, candidate: Side, target: Target, pair: int, run: Run) -> None:
        """Graphs of what is short on either side; last in a child pair, since a failed capture can spoil a context."""
        for one in sets.timed:
            own = [b for b in run.blocks if b.case == one.name and b.child_pair == pair]
            if min(statistics.median([*b.reference_ns, *b.candidate_ns]) for b in own) > GRAPH_NS:
                continue
            picks = range(1, 1 + min(target.max_calls, len(one.slots)))
            shares: dict[Side, int | None] = {reference: None, candidate: None}
            for side in shares:
                if side is reference and one.name in self._uncaptured:
                    continue
                try:
                    shares[side] = side.block(one, picks, "graph", do="graph").durations_ns[0]
                except Verdict as verdict:
                    if side is candidate and not verdict.reason.startswith("no graph"):
                        raise
                    if side is reference:
                        self._uncaptured.add(one.name)
                    elif "no_graph" not in run.flags:
                        run.flags.append("no_graph")
            timing = GraphTiming(case=one.name, child_pair=pair, calls=len(picks), reference_ns=shares[reference])
            run.graph.append(timing.model_copy(update={"candidate_ns": shares[candidate]}))

    def _flags(self, run: Run) -> list[str]:
        found = {
            "throttled": any(State.read(b.state).throttled for b in run.blocks if b.state),
            "shared_gpu": self._shared,
            "event_gap": event_gap_ns(run.blocks) > EVENT_GAP_NS,
            "repeated_inputs": any(b.case in self._repeats for b in run.blocks),
        }
        return [name for name, holds in found.items() if holds]


def wait_fault(blocks: Sequence[Block], staging: dict[str, Staging]) -> str | None:
    """Whether the judge waits longer for the candidate's blocks than its calls claim and staging costs, in words; None if not.

    CPU time, which bounds the host's stamps, says little beside a GPU. Other work on the machine only makes waits longer, so the
    lower quartile over blocks counts; staging is what an empty kernel showed, scaled by what the reference's blocks show now.
    """
    for case in sorted({b.case for b in blocks}):
        own = [b for b in blocks if b.case == case and b.candidate_elapsed_ns and b.reference_elapsed_ns]
        if not own:
            continue
        plain = staging[case]
        now = np.quantile([(b.reference_elapsed_ns - sum(b.reference_ns)) / plain.of(len(b.reference_ns)) for b in own], 0.25)
        beside = max(float(now), 1.0) * np.array([plain.of(len(b.candidate_ns)) for b in own])
        claimed = np.array([sum(b.candidate_ns) for b in own], dtype=float)
        hidden = np.quantile([b.candidate_elapsed_ns for b in own] - beside - claimed, 0.25)
        if hidden > WAIT_SLACK * np.median(claimed + beside) + WAIT_SLACK_NS:
            return (
                f"case {case}: calls claim {np.median(claimed) / 1e6:.3f} ms a block, "
                f"the judge waited {hidden / 1e6:.3f} ms longer than they and staging take"
            )
    return None


def event_gap_ns(blocks: Sequence[Block]) -> float:
    """How much further apart the candidate's two clocks are than the reference's, nanoseconds; the largest over cases."""
    gaps = []
    for case in {b.case for b in blocks if b.candidate_device_ns}:
        of = lambda wall, device, case=case: statistics.median(
            w - d for b in blocks if b.case == case for w, d in zip(getattr(b, wall), getattr(b, device), strict=True)
        )
        gaps.append(of("candidate_ns", "candidate_device_ns") - of("reference_ns", "reference_device_ns"))
    return max(gaps, default=0.0)


def device_ratio(blocks: Sequence[Block]) -> float | None:
    """Reference over candidate in device time: geometric mean over cases of medians; None where a record has none."""
    logs = []
    for case in sorted({b.case for b in blocks}):
        times = [
            [t for b in blocks if b.case == case for t in getattr(b, f"{side}_device_ns")] for side in ("reference", "candidate")
        ]
        if not all(times):
            return None
        logs.append(statistics.median(times[0]) / statistics.median(times[1]))
    return statistics.geometric_mean(logs) if logs else None
