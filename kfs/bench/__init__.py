"""Measuring kernels: verdicts, timings and the devices that give them.

Every device has ``measure(task, kernels, *, preset, target) -> iterator of Measurement``.
"""

from __future__ import annotations

from dataclasses import dataclass

HARNESS = "host-1"
"""Version of the measuring method; part of a measurement's identity. Raise it when labels may change."""


@dataclass(frozen=True)
class Target:
    """When to stop timing a kernel.

    Child pairs are added until the speedup's interval lies inside one bin, or the budget of pairs is spent.
    """

    level: float = 0.95
    """Coverage of the interval."""
    min_child_pairs: int = 3
    max_child_pairs: int = 5
    blocks: int = 8
    """Timed blocks a case and child pair."""
    block_ms: float = 4.0
    """Calls are added to a block, from ``min_calls`` to ``max_calls``, until it lasts about this long on each side."""
    min_calls: int = 3
    """A single call after the other side's block would only see cold caches."""
    max_calls: int = 6
    deadline_s: float = 60.0
    """For one import, or one block of calls."""
