"""One side of a measurement, seen from the judge: value sets, how they lie in an arena, and blocks of checked calls."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from kfs.bench import Target, child
from kfs.bench.arena import CANARY_BYTES
from kfs.bench.child import CallSlots, TensorSlot
from kfs.bench.judge import Expected, value_fault
from kfs.bench.sandbox import Child, ChildDied, Reply
from kfs.bench.timing import Staging
from kfs.records import Kernel, Status

_ALIGN = 4096
_NEAR_LIMIT = 192 << 20
_BUSY_NS = 300_000
_STATUS = {
    child.IMPORT_FAILED: Status.COMPILE_ERROR,
    child.CALL_FAILED: Status.RUNTIME_ERROR,
    child.NO_MEMORY: Status.OUT_OF_MEMORY,
    child.BAD_OUTPUT: Status.WRONG_OUTPUT,
}
SAMPLE_BYTES = 256 << 20
"""GPU only: of timed blocks with more inputs and outputs than this, some are checked, chosen at random afterwards."""
_ENDED = {"timeout": Status.TIMEOUT, "crash": Status.CRASH}


class Verdict(Exception):
    """A candidate's failure, as data on its way to a Measurement."""

    def __init__(self, status: Status, stage: str, reason: str, side: Side | None = None):
        super().__init__(reason)
        self.status, self.stage, self.reason, self.side = status, stage, reason, side


@dataclass(frozen=True)
class CaseSets:
    """Value sets of a case, what each must give, and how calls lie in an arena."""

    name: str
    inputs: Sequence[tuple[torch.Tensor, ...]]
    expected: Sequence[Expected]
    slots: list[CallSlots]
    nbytes: int
    staging: Staging | None = None
    floor_ns: float = 0.0
    """Speed of light of one call."""


class Rotation(Sequence):
    """Few items that stand for ``n``: the first for itself, the others in turn for all that follow.

    Examples
    --------
    >>> list(Rotation(["checked", "a", "b"], 6))
    ['checked', 'a', 'b', 'a', 'b', 'a']
    """

    def __init__(self, items: Sequence, n: int):
        self._items, self._n = items, n

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, i: int):
        if not 0 <= i < self._n:
            raise IndexError(i)
        return self._items[i if i == 0 else 1 + (i - 1) % (len(self._items) - 1)]


def lay_out(inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], n_calls: int, *, step: int = 1):
    """Slots for ``n_calls`` calls, page-aligned with a canary band on either side of each, and the bytes they need.

    With ``step`` 2 the inputs are not contiguous: every other element of twice the memory.
    """
    at = CANARY_BYTES

    def slot(tensor: torch.Tensor, step: int = 1) -> TensorSlot:
        nonlocal at
        strides = None if step == 1 else tuple(step * s for s in tensor.contiguous().stride())
        made = TensorSlot(at, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."), step * tensor.nbytes, strides)
        at += -(-max(made.nbytes, 1) // _ALIGN) * _ALIGN + 2 * CANARY_BYTES
        return made

    calls = [CallSlots(tuple(slot(x, step) for x in inputs), tuple(map(slot, outputs))) for _ in range(n_calls)]
    return calls, at


@dataclass(eq=False)
class Side:
    """A child with one kernel: stages inputs, runs blocks, checks every output."""

    child: Child
    target: Target
    attempts: set[str] = field(default_factory=set)
    """What the kernel tried to reach outside its folder, as far as it was seen."""
    _lying: dict[tuple[int, int], int] = field(default_factory=dict)
    """GPU only: which inputs lie in which slot of which layout; they need not be written again."""

    def load(self, kernel: Kernel) -> Reply:
        """Import the kernel; a Verdict if that fails."""
        limit, language = self.target.deadline_s, kernel.language
        return self._ask("import", lambda: self.child.load(kernel.source, kernel.entry, limit, language=language))

    def block(
        self, sets: CaseSets, picks: Sequence[int], stage: str, *, check: bool = True, hold: bool = False, do: str = "call"
    ) -> Reply:
        """Stage, run and verify value sets ``picks`` in order."""
        picks = self.put(sets, picks, check=check)
        reply = self.run(sets, picks, stage, hold=hold, do=do)
        self.verify(sets, picks, stage, check=check)
        return reply

    def put(self, sets: CaseSets, picks: Sequence[int], *, check: bool = True, poison: bool = True) -> Sequence[int]:
        """Write inputs, poison and canaries where the kernel will find them; the order in which the sets will run.

        Without poison the output slots hold answers to other inputs, which are as wrong.

        On a GPU calls may change places, so that inputs which lie in the arena are not written again.
        """
        arena, slots, gpu = self.child.arena, sets.slots[: len(picks)], self.child.setup_ns > 0
        picks = self._settle(sets, picks) if gpu else picks
        for i, (pick, call) in enumerate(zip(picks, slots, strict=True)):
            if not gpu or self._lying.get((id(sets.slots), i)) != id(sets.inputs[pick]):
                for tensor, slot in zip(sets.inputs[pick], call.inputs, strict=True):
                    arena.put(slot, tensor)
            for slot in call.outputs if poison and (check or not gpu) else ():
                arena.poison(slot)
            if check:
                arena.set_canaries((*call.inputs, *call.outputs))
        if gpu:
            self._lying = {(id(sets.slots), i): id(sets.inputs[pick]) for i, pick in enumerate(picks)}
        return picks

    def run(
        self, sets: CaseSets, picks: Sequence[int], stage: str, *, times: int = 1, hold: bool = False, do: str = "call"
    ) -> Reply:
        """Run the kernel on what was put there, all of it ``times`` times. A crash, a hang or an exception raise Verdict."""
        slots = sets.slots[: len(picks)] * times
        reply = self._ask(stage, lambda: self.child.call(slots, self.target.deadline_s, hold=hold, do=do))
        self.attempts.update(line[:80] for line in reply.text.split("\n")[:8] if line)
        if min(reply.durations_ns) <= 0:
            raise Verdict(Status.IMPLAUSIBLE, stage, f"case {sets.name}: a call claims {min(reply.durations_ns)} ns", self)
        return reply

    def verify(self, sets: CaseSets, picks: Sequence[int], stage: str, *, check: bool = True) -> None:
        """Look at every output. A wrong one, a changed input or neighbour raise Verdict.

        On a GPU the outputs of a large block that is timed are looked at only at random: a kernel learns that after the block is
        over, if ever.
        """
        slots, gpu = sets.slots[: len(picks)], self.child.setup_ns > 0
        if check and gpu:
            large = sum(s.nbytes for call in slots for s in (*call.inputs, *call.outputs))
            if stage == "timing" and random.SystemRandom().random() > SAMPLE_BYTES / max(large, 1):
                return
            self._ask(stage, lambda: self.child.collect(self.target.deadline_s))
        for pick, call in zip(picks, slots, strict=True) if check else ():
            self._check(sets, pick, call, stage)

    def _settle(self, sets: CaseSets, picks: Sequence[int]) -> list[int]:
        """The same picks in an order that leaves as many as possible where they lie."""
        left, placed = list(picks), {}
        for i in range(len(picks)):
            lies = self._lying.get((id(sets.slots), i))
            if (same := next((p for p in left if id(sets.inputs[p]) == lies), None)) is not None:
                left.remove(same)
                placed[i] = same
        return [placed[i] if i in placed else left.pop(0) for i in range(len(picks))]

    def _check(self, sets: CaseSets, pick: int, call: CallSlots, stage: str) -> None:
        arena = self.child.arena
        if (wrong := value_fault(sets.expected[pick], tuple(arena.view(s) for s in call.outputs))) is not None:
            raise Verdict(Status.WRONG_OUTPUT, stage, f"case {sets.name}: {wrong}", self)
        for i, (tensor, slot) in enumerate(zip(sets.inputs[pick], call.inputs, strict=True)):
            if not arena.holds(slot, tensor):
                raise Verdict(Status.REJECTED, stage, f"case {sets.name}: input {i} was modified", self)
        if (wrong := arena.canary_fault((*call.inputs, *call.outputs))) is not None:
            raise Verdict(Status.REJECTED, stage, f"case {sets.name}: {wrong}", self)

    def same_again(self, sets: CaseSets, pick: int, stage: str, times: int = 3) -> bool:
        """Run one value set several times with every output kept alive; whether the outputs agree bit for bit."""
        self.block(sets, [pick] * times, stage, hold=True)
        first, *others = ([self.child.arena.view(s) for s in call.outputs] for call in sets.slots[:times])
        return all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))

    def require_quiet(self, stage: str) -> None:
        """Verdict if threads work on after the kernel returned, or the memory limit was met."""
        if self.child.busy_threads_ns() > _BUSY_NS:
            raise Verdict(Status.REJECTED, stage, "threads work on after the kernel has returned", self)
        memory = self.child.memory()
        limit = self.child.memory_limit
        if limit and memory.get("VmPeak", 0) > limit - _NEAR_LIMIT:
            reason = f"address space grew to {memory['VmPeak'] >> 20} MiB, the limit is {limit >> 20} MiB"
            raise Verdict(Status.OUT_OF_MEMORY, stage, reason, self)

    def _ask(self, stage: str, request: Callable[[], Reply]) -> Reply:
        """The child's answer, or a Verdict that says how it failed."""
        try:
            reply = request()
        except ChildDied as died:
            raise Verdict(_ENDED.get(died.kind, Status.REJECTED), stage, died.detail, self) from died
        if reply.code != child.OK:
            raise Verdict(_STATUS[reply.code], stage, reply.text[:1000] or "no reason given", self)
        return reply


def leak_bytes(grown: Sequence[int], calls: Sequence[int]) -> float:
    """Memory kept a call: smallest growth over a run of calls, so that a single allocation is no leak."""
    rates = [g / n for g, n in zip(grown, calls, strict=True) if n]
    return min(rates) if rates else -math.inf
