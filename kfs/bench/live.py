"""A live device: judges and times kernels in fresh child processes, whatever they run on.

A candidate is checked first, in a process of its own and untimed: first calls, held-out shapes, harder value distributions, the
same inputs again, inputs that are not contiguous. Then candidate and reference each run in fresh children on the same core with
one thread, in alternating blocks, until the bin is certain or the budget is spent. Every timed call sees inputs its process has
not seen before, and is the call whose output is checked. Value sets and what they must give are made once a case and shared by
all candidates; each child gets private copies.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from kfs.bench import HARNESS, Target
from kfs.bench.judge import admit, expect_sets, library_only, stress
from kfs.bench.machine import environment
from kfs.bench.sandbox import Child, Reply, Zygote
from kfs.bench.side import CaseSets, Rotation, Side, Verdict, lay_out, leak_bytes
from kfs.bench.timing import (
    Estimate,
    bimodal,
    clock_fault,
    clock_unproven,
    crowded_log2,
    drift_log2,
    estimate,
    inside_one_bin,
    light_fault,
    slowed,
    unstable,
)
from kfs.errors import HarnessError
from kfs.records import Alone, Block, GraphTiming, Hardware, Kernel, Measurement, Status
from kfs.speedup import STUDY_BINS
from kfs.tasks import Case, Task, reference_function

_CHECKED = 1  # value sets of a timed case that only the check sees
_WARMUP_SETS = 2
_WARMUP_ROUNDS = 4
_WARMUP_MS = 8.0  # but no longer
_LONG_MS = 12.0  # fewer than ``min_calls`` where they last longer: what is cold at first then counts for little
_EXTRA_SETTLE = 2
_SETTLED = 0.3  # neighbours on the same physical core move calls by 20%
_LEAK_BYTES = 64 << 10
_DRIFT_LOG2 = 0.3
_CROWDED_LOG2 = 1.0


@dataclass(frozen=True)
class TaskSets:
    """Everything the judge knows about a task's cases of one preset."""

    timed: list[CaseSets]
    checked: list[CaseSets]
    """Held-out shapes and stresses: checked, never timed."""
    strided: CaseSets
    """The first case with inputs that are not contiguous."""

    @property
    def nbytes(self) -> int:
        return max(s.nbytes for s in (*self.timed, *self.checked, self.strided))


@dataclass
class Run:
    """What has been measured of one candidate so far."""

    blocks: list[Block] = field(default_factory=list)
    alone: list[Alone] = field(default_factory=list)
    first_call_ms: dict[str, float] = field(default_factory=dict)
    flags: list[str] = field(default_factory=list)
    clock_unproven: bool = False
    leaks: list[float] = field(default_factory=list)
    attempts: set[str] = field(default_factory=set)
    graph: list[GraphTiming] = field(default_factory=list)
    result: Estimate | None = None
    stop: str = "budget"


class LiveDevice(ABC):
    """What ``host`` and ``cuda`` share. Context manager; one at a time on a machine.

    Parameters
    ----------
    hardware : Hardware
        What kernels run on.
    languages : tuple of str
        What kernels may be written in.
    deny : iterable of str
        Isolation layers to go without, for tests; see ``kfs.bench.confine.LAYERS``.
    """

    clock = "perf_counter_ns"
    """What ``reference_ns`` and ``candidate_ns`` are read from."""

    def __init__(self, hardware: Hardware, languages: tuple[str, ...], *, deny: Iterable[str] = ()):
        self.hardware, self.languages = hardware, languages
        self._deny = tuple(deny)
        self._rng = np.random.default_rng()  # from the system: no candidate can know it
        self._zygote: Zygote | None = None
        self._sets: dict[tuple, TaskSets] = {}
        self._kernels = 0
        self.measurements_spent = 0
        self.seconds_spent = 0.0

    def __enter__(self):
        self._zygote = Zygote(deny=self._deny)
        return self

    def __exit__(self, *_) -> None:
        self._zygote.close()
        self._zygote = None

    @abstractmethod
    def _spawn(self, nbytes: int, **options) -> Child:
        """A fresh child that can run this device's kernels."""

    @abstractmethod
    def _calibrate(self, task: Task, timed: list[CaseSets], cases: tuple[Case, ...], target: Target) -> list[CaseSets]:
        """The same sets with what staging costs beside the calls, and the speed of light of every case."""

    def _environment(self) -> dict[str, str]:
        """What decided the measurements beside versions and target."""
        return {}

    def _prepare_anchor(self, task: Task, anchor: Kernel, sets: TaskSets, target: Target) -> dict:
        """What children of the reference or anchor are spawned with."""
        return {}

    def _affordable(self, task: Task, cases: tuple[Case, ...]) -> tuple[Case, ...]:
        """Those of a preset's cases that admission and stresses can be tried on."""
        return cases

    def _distinct(self, task: Task, case: Case, n_sets: int) -> int:
        """How many different value sets stand for ``n_sets`` of a case; fewer repeat in turn."""
        return n_sets

    def _clock_fault(self, blocks: list[Block], staging: dict) -> str | None:
        """Whether stamps and the clock outside disagree, in words."""
        return clock_fault(blocks, staging)

    def _resident(self, side: Side) -> int:
        """Memory a side's process holds, bytes."""
        return side.child.memory().get("RssAnon", 0)

    def _block_facts(self, reference: Reply, candidate: Reply) -> dict:
        """Further fields of a block."""
        return {}

    def _after_cases(self, sets: TaskSets, reference: Side, candidate: Side, target: Target, pair: int, run: Run) -> None:  # noqa: B027
        """What is measured beside plain calls, at the end of a child pair."""

    def _flags(self, run: Run) -> list[str]:
        """Flags of this kind of device."""
        return []

    def measure(
        self,
        task: Task,
        kernels: Iterable[Kernel],
        *,
        preset: str = "host",
        target: Target | None = None,
        anchor: Kernel | None = None,
    ) -> Iterator[Measurement]:
        """Measure each kernel against the task's reference.

        Parameters
        ----------
        task : Task
        kernels : iterable of Kernel
            In the languages of the device.
        preset : str
            Which of the task's cases to run.
        target : Target, optional
            When to stop.
        anchor : Kernel, optional
            Time against this kernel instead of the reference; it is held to the same expected values.

        Yields
        ------
        Measurement
            One a kernel, in order. A kernel that fails is a Measurement, too.

        Raises
        ------
        TaskError
            If the task is degenerate.
        HarnessError
            If the harness, the reference or the anchor itself fails.
        """
        if self._zygote is None:
            raise HarnessError(f"use the device in a with statement: with {type(self).__name__}() as device: ...")
        target = target or Target()
        sets = self._task_sets(task, preset, target)
        self._anchor_options = self._prepare_anchor(task, anchor or task.reference, sets, target)
        for kernel in kernels:
            measurement = self._one(task, anchor or task.reference, kernel, preset, sets, target)
            self.measurements_spent += 1
            self.seconds_spent += measurement.seconds
            yield measurement

    def _one(self, task: Task, anchor: Kernel, kernel: Kernel, preset: str, sets: TaskSets, target: Target) -> Measurement:
        start = time.monotonic()
        run = Run()
        self._kernels += 1
        jit = f"jit{self._kernels}"
        failure = None
        try:
            if kernel.language not in self.languages:
                known = ", ".join(self.languages)
                raise Verdict(Status.REJECTED, "admission", f"this device runs {known} kernels, not {kernel.language}")
            self._check(kernel, sets, target, jit, run)
            self._time(task, anchor, kernel, sets, target, jit, run)
        except Verdict as verdict:
            failure = verdict
        finally:
            with contextlib.suppress(HarnessError):  # it must not hide an interrupt
                self._zygote.forget(jit)
        holding = " ".join(x.name for x in self._zygote.layers if x.active)
        common = {
            "task": task.name,
            "preset": preset,
            "kernel_id": kernel.kernel_id,
            "reference_id": anchor.kernel_id,
            "task_id": task.task_id,
            "hardware": self.hardware.name,
            "harness": HARNESS,
            "environment": {**environment(), **self._environment(), "target": target.describe(), "sandbox": holding},
            "clock": self.clock,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "first_call_ms": run.first_call_ms,
            "seconds": time.monotonic() - start,
        }
        tried = [f"tried: {x}" for x in sorted(run.attempts)]
        if failure is not None:
            return Measurement(
                **common, status=failure.status, stage=failure.stage, reason=failure.reason, flags=run.flags + tried
            )
        result = run.result
        return Measurement(
            **common,
            status=Status.OK,
            flags=_flags(kernel, run) + self._flags(run) + tried,
            blocks=run.blocks,
            graph=run.graph,
            alone=run.alone,
            speedup=result.speedup,
            speedup_low=result.low,
            speedup_high=result.high,
            confidence=target.level,
            log2_std_error=result.log2_std_error,
            n_child_pairs=result.n_child_pairs,
            stop=run.stop,
        )

    def _check(self, kernel: Kernel, sets: TaskSets, target: Target, jit: str, run: Run) -> None:
        """Everything that is checked and not timed, in a process of its own whose fresh memory is poisoned."""
        with self._side(sets.nbytes, target, run, jit=jit, compiles=True, poison=True) as side:
            if side.child.setup_ns:
                run.first_call_ms["context"] = side.child.setup_ns / 1e6
            run.first_call_ms["import"] = side.load(kernel).elapsed_ns / 1e6
            for one in sets.timed:
                run.first_call_ms[one.name] = side.block(one, [0], "check").durations_ns[0] / 1e6
            side.require_quiet("check")
            for one in sets.checked:
                side.block(one, range(len(one.inputs)), "check")
            for one in sets.timed:
                if not side.same_again(one, 0, "check") and "nondeterministic" not in run.flags:
                    run.flags.append("nondeterministic")
            side.require_quiet("check")
            try:
                run.first_call_ms["strided"] = side.block(sets.strided, [0], "check").durations_ns[0] / 1e6
            except Verdict as verdict:
                if verdict.status not in (Status.WRONG_OUTPUT, Status.RUNTIME_ERROR):
                    raise
                run.flags.append("contiguous_only")

    def _time(self, task: Task, anchor: Kernel, kernel: Kernel, sets: TaskSets, target: Target, jit: str, run: Run) -> None:
        """Fresh child pairs until the bin is certain or the budget is spent."""
        start, looked = time.monotonic(), 0
        staging = {s.name: s.staging for s in sets.timed}
        floors = {s.name: s.floor_ns for s in sets.timed}
        for n in range(1, target.looks[-1] + 1):
            self._child_pair(task, anchor, kernel, sets, target, jit, n - 1, run)
            next_ends = (time.monotonic() - start) * (n + 1) / n
            over = target.seconds is not None and n >= 3 and next_ends > target.seconds
            if n not in target.looks and not over:
                continue
            run.clock_unproven = clock_unproven(run.blocks, staging)
            if (wrong := self._clock_fault(run.blocks, staging)) is not None:
                raise Verdict(Status.REJECTED, "timing", wrong)
            if (wrong := light_fault(run.blocks, floors)) is not None:
                raise Verdict(Status.IMPLAUSIBLE, "timing", wrong)
            if (wrong := slowed(run.alone)) is not None:
                raise Verdict(Status.REJECTED, "timing", wrong)
            final = over or n == target.looks[-1]
            run.result = estimate(run.blocks, level=1 - target.alpha(n, looked=looked, final=final))
            looked = n
            if inside_one_bin(run.result.low, run.result.high):
                run.stop = "certain"
                return
            if final:
                return

    def _child_pair(
        self, task: Task, anchor: Kernel, kernel: Kernel, sets: TaskSets, target: Target, jit: str, pair: int, run: Run
    ) -> None:
        """All cases in two fresh processes: warm up, settle, then alternate; the reference alone before and after."""
        nbytes = max(s.nbytes for s in sets.timed)
        lone = sets.timed[pair % len(sets.timed)]
        with contextlib.ExitStack() as stack:
            reference = stack.enter_context(self._side(nbytes, target, **self._anchor_options))
            try:
                reference.load(anchor)
                at = {s.name: _CHECKED for s in sets.timed}
                calls = {}
                for one in sets.timed:
                    calls[one.name], _ = self._warm(reference, one, target, at, check=pair == 0)
                run.alone.append(self._lone(reference, lone, at, calls[lone.name], pair, "before"))
                with self._side(nbytes, target, run, jit=jit) as candidate:
                    candidate.load(kernel)
                    for one in sets.timed:
                        self._case(one, reference, candidate, target, calls[one.name], dict(at), pair, run)
                    self._after_cases(sets, reference, candidate, target, pair, run)
                    candidate.require_quiet("timing")
                at = {s.name: len(s.inputs) - target.max_calls for s in sets.timed}
                run.alone.append(self._lone(reference, lone, at, calls[lone.name], pair, "after"))
                return
            except Verdict as verdict:
                if verdict.side is not reference:
                    raise
                found = verdict
        self._prove_reference(task, anchor, sets, target)
        raise Verdict(
            Status.REJECTED, found.stage, f"the reference failed beside this kernel and works alone: {found.reason}"
        ) from found

    def _warm(self, side: Side, one: CaseSets, target: Target, at: dict[str, int], *, check: bool) -> tuple[int, float]:
        """Warm-up calls; how many calls a block of this side gets, and their median duration so far, nanoseconds."""
        pair = range(at[one.name], at[one.name] + _WARMUP_SETS)
        at[one.name] += _WARMUP_SETS
        pair = side.put(one, pair, check=check)
        times = side.run(one, pair, "warmup").durations_ns
        side.verify(one, pair, "warmup", check=check)
        rounds = int(np.clip(_WARMUP_MS * 1e6 / (_WARMUP_SETS * min(times)), 1, _WARMUP_ROUNDS))
        reply = side.run(one, pair, "warmup", times=rounds)  # the same values again: warm, neither checked nor timed
        times = reply.durations_ns
        now = min(statistics.median(times), reply.cpu_ns / len(times))  # a claim too long would buy short blocks
        fewest = int(np.clip(1e6 * _LONG_MS / now, 1, target.min_calls))
        return int(np.clip(1e6 * target.block_ms / now, fewest, target.max_calls)), now

    def _lone(self, side: Side, one: CaseSets, at: dict[str, int], calls: int, pair: int, when: str) -> Alone:
        """Two blocks of the reference with nobody beside it; the faster counts, since the first one finds cold caches."""
        picks = range(at[one.name] - calls, at[one.name])
        picks = side.put(one, picks, check=False, poison=False)
        blocks = [side.run(one, picks, "timing").durations_ns for _ in range(2)]
        best = min(blocks, key=statistics.median)
        return Alone(case=one.name, child_pair=pair, when=when, reference_ns=list(best))

    def _case(
        self, one: CaseSets, reference: Side, candidate: Side, target: Target, n_reference: int, at: dict, pair: int, run: Run
    ) -> None:
        begin = at[one.name]
        n_candidate, last = self._warm(candidate, one, target, {one.name: _CHECKED}, check=True)
        calls = {reference: n_reference, candidate: n_candidate}
        position = dict.fromkeys(calls, begin)
        settle, turn, timed, rss = target.settle_blocks, 0, 0, []
        while timed < target.blocks:
            order = list(calls) if (turn + pair) % 2 == 0 else list(calls)[::-1]  # who goes first alternates
            picks, ran = {}, {}
            for side in order:  # everything is staged beforehand, so that nothing stands between neighbours
                first = position[side]
                picks[side] = side.put(one, range(first, first + calls[side]), check=side is candidate, poison=False)
                position[side] += calls[side]
            for side in order:
                ran[side] = side.run(one, picks[side], "timing")
            candidate.verify(one, picks[candidate], "timing")
            turn += 1
            now = statistics.median(ran[candidate].durations_ns)
            if turn <= settle:
                moving = abs(now / last - 1) > _SETTLED
                if turn == settle and moving and settle < target.settle_blocks + _EXTRA_SETTLE:
                    settle += 1
                last = now
                continue
            timed += 1
            rss.append(self._resident(candidate))
            run.blocks.append(
                Block(
                    case=one.name,
                    child_pair=pair,
                    reference_ns=list(ran[reference].durations_ns),
                    candidate_ns=list(ran[candidate].durations_ns),
                    reference_cpu_ns=ran[reference].cpu_ns,
                    candidate_cpu_ns=ran[candidate].cpu_ns,
                    **self._block_facts(ran[reference], ran[candidate]),
                )
            )
        if len(rss) > 1:
            run.leaks.append(leak_bytes(np.diff(rss), [calls[candidate]] * (len(rss) - 1)))

    @contextlib.contextmanager
    def _side(self, nbytes: int, target: Target, run: Run | None = None, **options) -> Iterator[Side]:
        """A fresh child; descendants that outlive it are the kernel's fault."""
        child = self._spawn(nbytes, **options)
        side = Side(child, target)
        try:
            yield side
        finally:
            strays = child.close()
            if run is not None:
                run.attempts |= side.attempts
        if strays:
            raise Verdict(Status.REJECTED, "sandbox", f"{strays} processes of the kernel outlived it", side)

    def _prove_reference(self, task: Task, anchor: Kernel, sets: TaskSets, target: Target) -> None:
        """Run the reference alone; if it fails there too, the harness or the task is at fault, not a candidate."""
        with self._side(sets.nbytes, target) as side:
            try:
                side.load(anchor)
                for one in sets.timed:
                    side.block(one, range(_CHECKED, _CHECKED + _WARMUP_SETS), "warmup")
            except Verdict as verdict:
                what = "the reference" if anchor == task.reference else f"the anchor {anchor.name or anchor.kernel_id}"
                raise HarnessError(
                    f"task {task.name!r}: {what} fails at {verdict.stage}: {verdict.status}: {verdict.reason}"
                ) from verdict

    def _task_sets(self, task: Task, preset: str, target: Target) -> TaskSets:
        n_sets = _CHECKED + _WARMUP_SETS + (target.settle_blocks + _EXTRA_SETTLE + target.blocks + 1) * target.max_calls
        key = (task.task_id, task.reference.kernel_id, task.name, preset, n_sets, target.max_calls)
        if key not in self._sets:
            self._sets.clear()  # one task's sets at a time fit in memory
            affordable = self._affordable(task, task.preset(preset))
            admit(task, affordable, self._rng)
            reference = reference_function(task)
            timed = [self._draw(task, case, n_sets, target.max_calls, reference) for case in task.preset(preset)]
            timed = self._calibrate(task, timed, task.preset(preset), target)
            held_out = task.preset(task.held_out) if task.held_out and task.held_out != preset else ()
            checked = [self._draw(task, case, 2, 2, reference) for case in held_out]
            for case in (*held_out[:1], *(c for c in affordable[:1] if c not in held_out[:1])):
                for name in task.stresses:
                    sets = self._draw(task, case, 1, 1, reference, name=name)
                    if sets.expected[0].finite:  # what the reference itself cannot do is not asked of a kernel
                        checked.append(sets)
            first = timed[0]
            slots, nbytes = lay_out(first.inputs[0], first.expected[0].reference, 1, step=2)
            self._sets[key] = TaskSets(timed, checked, replace(first, slots=slots, nbytes=nbytes))
        return self._sets[key]

    def _draw(self, task: Task, case: Case, n_sets: int, n_calls: int, reference, *, name: str = "") -> CaseSets:
        distinct = self._distinct(task, case, n_sets)
        inputs = [tuple(x.contiguous() for x in task.make_inputs(case, self._rng)) for _ in range(distinct)]
        if name:
            inputs = [stress(name, task, x, self._rng) for x in inputs]
        expected = expect_sets(task, inputs, reference, stressed=bool(name))
        slots, nbytes = lay_out(inputs[0], expected[0].reference, max(n_calls, 3))
        inputs, expected = (x if distinct == n_sets else Rotation(x, n_sets) for x in (inputs, expected))
        return CaseSets(f"{case.name} {name}".rstrip(), inputs, expected, slots, nbytes)


def _flags(kernel: Kernel, run: Run) -> list[str]:
    """What a reader of an accepted measurement should know."""
    result = run.result
    low, high = STUDY_BINS.index(result.low), STUDY_BINS.index(result.high)
    found = {
        f"borderline {low}-{high}": low != high,
        "unstable": unstable(run.blocks),
        "bimodal": bimodal(run.blocks),
        "clock_unproven": run.clock_unproven,
        "slows_reference": crowded_log2(run.blocks, run.alone) > _CROWDED_LOG2,
        "drift": drift_log2(run.alone) > _DRIFT_LOG2,
        "leak": bool(run.leaks) and statistics.median(run.leaks) > _LEAK_BYTES,
        "library_only": library_only(kernel),
    }
    return run.flags + [name for name, holds in found.items() if holds]
