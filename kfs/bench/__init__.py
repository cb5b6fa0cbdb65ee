"""Measuring kernels: verdicts, timings and the devices that give them.

Every device has ``measure(task, kernels, *, preset, target) -> iterator of Measurement``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kfs.errors import HarnessError

HARNESS = "host-1"
"""Version of the measuring method; part of a measurement's identity. Raise it when labels may change."""


@dataclass(frozen=True)
class Target:
    """How much to measure a kernel. The number of child pairs is fixed beforehand, so intervals mean what they say."""

    level: float = 0.95
    """Coverage of the interval."""
    child_pairs: int = 4
    """Fresh pairs of processes."""
    settle_blocks: int = 2
    """Blocks a case and child pair that are run, checked and thrown away: caches, pages and allocators settle."""
    blocks: int = 7
    """Timed blocks a case and child pair."""
    block_ms: float = 4.0
    """Calls are added to a block, from ``min_calls`` to ``max_calls``, until it lasts about this long on each side."""
    min_calls: int = 3
    """A single call after the other side's block would only see cold caches."""
    max_calls: int = 6
    deadline_s: float = 60.0
    """For one import, or one block of calls."""

    def __post_init__(self):
        if not (0 < self.level < 1 and self.child_pairs >= 2 and self.blocks >= 1 and 1 <= self.min_calls <= self.max_calls):
            raise HarnessError(f"{self}: need 0 < level < 1, child_pairs >= 2, blocks >= 1 and 1 <= min_calls <= max_calls")

    def describe(self) -> str:
        """What of it decides a label, for records."""
        return f"{self.child_pairs} pairs, {self.blocks} blocks, {self.min_calls}-{self.max_calls} calls, {self.block_ms:g} ms"
