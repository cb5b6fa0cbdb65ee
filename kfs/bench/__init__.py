"""Measuring kernels: verdicts, timings and the devices that give them.

Every device has ``measure(task, kernels, *, preset, target) -> iterator of Measurement``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kfs.errors import HarnessError

HARNESS = "2"
"""Version of the measuring method; part of a measurement's identity. Raise it when labels may change."""


@dataclass(frozen=True)
class Target:
    """How much to measure a kernel.

    The schedule of looks is fixed beforehand and the error probability is shared out over it, so that an interval means what it
    says although timing stops as soon as the bin is certain.
    """

    level: float = 0.95
    """Coverage of the reported interval, over the whole schedule."""
    looks: tuple[int, ...] = (4, 6, 8, 12)
    """Fresh child pairs after which the interval is looked at; the last is the budget. One look: a fixed number of pairs."""
    seconds: float | None = None
    """Start no child pair beyond the third that would end after so many seconds of timing; None for no such limit."""
    settle_blocks: int = 1
    """Blocks a case and child pair that are run, checked and thrown away: caches, pages and allocators settle."""
    blocks: int = 6
    """Timed blocks a case and child pair."""
    block_ms: float = 2.0
    """Calls are added to a block, from ``min_calls`` to ``max_calls``, until it lasts about this long on each side."""
    min_calls: int = 3
    """The first call after the other side's block sees cold caches; fewer where calls last milliseconds."""
    max_calls: int = 6
    deadline_s: float = 60.0
    """For one import, or one block of calls."""

    def __post_init__(self):
        rising = all(a < b for a, b in zip(self.looks, self.looks[1:], strict=False))
        if not (0 < self.level < 1 and self.looks and self.looks[0] >= 3 and rising):
            raise HarnessError(f"{self}: need 0 < level < 1 and increasing looks of at least 3 child pairs")
        if not (self.blocks >= 1 and 1 <= self.min_calls <= self.max_calls):
            raise HarnessError(f"{self}: need blocks >= 1 and 1 <= min_calls <= max_calls")

    def describe(self) -> str:
        """What of it decides a label, for records."""
        looks = ",".join(map(str, self.looks)) + (f" or {self.seconds:g} s" if self.seconds else "")
        return f"{looks} pairs, {self.blocks} blocks, {self.min_calls}-{self.max_calls} calls, {self.block_ms:g} ms"

    def alpha(self, pairs: int, *, looked: int, final: bool) -> float:
        """Error probability a look may spend: in proportion to the pairs since the last look; at the end, all that is left.

        Parameters
        ----------
        pairs : int
            Child pairs measured now.
        looked : int
            Child pairs at the last look, 0 at the first.
        final : bool
            Whether no look will follow.
        """
        return (1 - self.level) * ((self.looks[-1] if final else pairs) - looked) / self.looks[-1]
