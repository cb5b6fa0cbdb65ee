"""What a compiler says about a kernel, as a record: for people, for prompts, and as numbers for a learner."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kfs.bench.sass import CLASSES
from kfs.records import Record


class Entry(BaseModel):
    """One compiled GPU function and how it is launched. What depends on sizes is None where they are unknown."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    registers: int
    """Of a thread."""
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    """Local memory of a thread that arrays and spills lie in."""
    static_shared_bytes: int
    dynamic_shared_bytes: int | None
    code_bytes: int
    mix: dict[str, int]
    """Instructions by class (``kfs.bench.sass.CLASSES``), as they stand in the code."""
    threads: int | None
    """Of a block."""
    grid: list[int] | None
    """Blocks of its first launch."""
    launches: int
    """How often one call launches it."""
    blocks_per_sm: int | None
    """Resident blocks of a multiprocessor at most."""
    warps_per_sm: int | None
    occupancy: float | None
    """Resident warps over those a multiprocessor can hold, 0 to 1."""
    limiter: Literal["registers", "shared", "threads", "blocks"] | None
    """What forbids one more block."""

    @property
    def instructions(self) -> int:
        """Instructions in the code, padding left out."""
        return sum(self.mix.values())


class Facts(Record):
    """What compiling one kernel for one architecture gave: numbers, or why it cannot run. No GPU was asked."""

    kernel_id: str
    language: str
    arch: str
    """For example ``sm_90``."""
    task: str | None = None
    case: str | None = None
    """Case whose sizes the launches have."""
    hardware: str | None = None
    """Processor that ``speed_of_light_us`` is for."""
    status: Literal["ok", "compile_error", "timeout"]
    stage: Literal["extract", "launch", "import", "compile"] | None = None
    """Where it failed: finding device code in a module, what the source says of its launch, importing it, compiling."""
    reason: str | None = None
    entries: list[Entry] = Field(default_factory=list)
    """In the order of their first launch."""
    speed_of_light_us: float | None = None
    """Time no kernel for this task and case can beat."""
    notes: list[str] = Field(default_factory=list)
    toolchain: dict[str, str] = Field(default_factory=dict)
    """Versions of the compilers; the numbers differ between them."""
    seconds: float = 0.0
    """Wall time this took, when it was done."""

    @model_validator(mode="after")
    def _states_cannot_contradict(self) -> Facts:
        if (self.status == "ok") != (self.reason is None) or (self.status == "ok") != (self.stage is None):
            raise ValueError(f"status {self.status!r} with stage {self.stage!r} and reason {self.reason!r}")
        return self


_LARGEST = ("registers", "spill_store_bytes", "spill_load_bytes", "stack_bytes", "static_shared_bytes", "dynamic_shared_bytes")
FEATURES = (
    *("compiles", "log2_speed_of_light_us", "entries", "launches", "instructions", "code_bytes", "blocks"),
    *_LARGEST,
    *("threads", "warps_per_sm", "occupancy"),
    *(f"mix_{name}" for name in CLASSES),
)
"""Names ``compile_features`` gives, always all of them, in this order."""


def compile_features(facts: Facts) -> dict[str, float]:
    """Numbers of a learner's row: what the compiler knows and the text does not show.

    Counts and bytes are ``log2(1 + n)``: the largest over entries for what bounds a block, sums over launches for work. ``mix_*``
    are shares of the instructions. What is unknown is 0, as is everything where ``compiles`` is 0.

    Returns
    -------
    dict
        ``FEATURES`` in order; all finite.
    """
    row = dict.fromkeys(FEATURES, 0.0)
    if facts.speed_of_light_us:
        row["log2_speed_of_light_us"] = math.log2(facts.speed_of_light_us)
    if facts.status != "ok":
        return row
    row["compiles"] = 1.0
    entries = facts.entries
    sums = {
        "entries": len(entries),
        "launches": sum(e.launches for e in entries),
        "instructions": sum(e.launches * e.instructions for e in entries),
        "code_bytes": sum(e.code_bytes for e in entries),
        "blocks": sum(e.launches * math.prod(e.grid) for e in entries if e.grid),
    }
    row |= {name: math.log2(1 + value) for name, value in sums.items()}
    for name in (*_LARGEST, "threads"):
        row[name] = math.log2(1 + max((getattr(e, name) or 0 for e in entries), default=0))
    row["warps_per_sm"] = math.log2(1 + min((e.warps_per_sm or 0 for e in entries), default=0))
    row["occupancy"] = min((e.occupancy or 0.0 for e in entries), default=0.0)
    total = sum(e.launches * e.instructions for e in entries)
    for name in CLASSES if total else ():
        row[f"mix_{name}"] = sum(e.launches * e.mix.get(name, 0) for e in entries) / total
    return row


def prompt_section(facts: Facts) -> str:
    """Facts as a few lines of plain text, for a prompt or a terminal. Names neither the kernel nor where it came from."""
    versions = ", ".join(f"{k} {v}" for k, v in facts.toolchain.items())
    lines = [f"Compiled for {facts.arch} ({versions}), not run:"]
    if facts.status != "ok":
        lines = [
            f"Does not compile for {facts.arch} ({versions}), {facts.status.replace('_', ' ')} at {facts.stage}: {facts.reason}"
        ]
    for e in facts.entries:
        lines.append(f"- {e.name}: {_launch(e)}{e.registers} registers a thread, {_spills(e)}, {_shared(e)}{_occupancy(e)}")
        lines.append(
            f"  {e.instructions} instructions in {e.code_bytes} bytes, not weighted by how often they run: {_mix(e.mix)}"
        )
    if facts.speed_of_light_us is not None:
        lines.append(f"No kernel can take less than {facts.speed_of_light_us:.4g} us for {facts.case} on {facts.hardware}.")
    return "\n".join([*lines, *(f"Note: {note}." for note in facts.notes)])


def _launch(e: Entry) -> str:
    grid = f"{' x '.join(map(str, e.grid))} blocks" if e.grid else "blocks unknown"
    times = f"{e.launches} launches, the first of " if e.launches > 1 else ""
    return f"{times}{grid} of {e.threads or 'unknown'} threads; "


def _spills(e: Entry) -> str:
    if not e.spill_store_bytes and not e.spill_load_bytes:
        return f"no spills, {e.stack_bytes} bytes of stack" if e.stack_bytes else "no spills"
    return f"spills {e.spill_store_bytes} bytes stored and {e.spill_load_bytes} loaded, {e.stack_bytes} bytes of stack"


def _shared(e: Entry) -> str:
    dynamic = "unknown" if e.dynamic_shared_bytes is None else str(e.dynamic_shared_bytes)
    return f"{e.static_shared_bytes} static + {dynamic} dynamic bytes of shared memory a block"


def _occupancy(e: Entry) -> str:
    if e.occupancy is None:
        return ""
    return f"; {e.blocks_per_sm} blocks ({e.warps_per_sm} warps, {e.occupancy:.0%}) fit a multiprocessor, limited by {e.limiter}"


def _mix(mix: Mapping[str, int]) -> str:
    found = sorted(((n, name) for name, n in mix.items() if n), reverse=True)
    return ", ".join(f"{name} {n}" for n, name in found) or "none"
