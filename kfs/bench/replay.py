"""The ``replay`` device: recorded measurements behind the interface of a live device.

Same verb, same budget accounting (measurements and the device-seconds they cost when recorded). A kernel nobody recorded is an
error, never a guess.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from kfs.bench import Target
from kfs.errors import HarnessError, UnknownNameError
from kfs.records import Hardware, Kernel, Measurement
from kfs.tasks import Task


class ReplayDevice:
    """Answers from recorded measurements.

    Parameters
    ----------
    measurements : iterable of Measurement
        For example from ``kfs.bench.campaign.read_folder``.
    hardware : Hardware
        What they were measured on.
    """

    def __init__(self, measurements: Iterable[Measurement], hardware: Hardware):
        self.hardware = hardware
        self._table = {(m.task, m.preset, m.kernel_id): m for m in measurements if m.hardware == hardware.name}
        self.measurements_spent = 0
        self.seconds_spent = 0.0

    def __enter__(self) -> ReplayDevice:
        return self

    def __exit__(self, *_) -> None:
        return None

    def measure(
        self,
        task: Task,
        kernels: Iterable[Kernel],
        *,
        preset: str = "host",
        target: Target | None = None,
        anchor: Kernel | None = None,
    ) -> Iterator[Measurement]:
        """Recorded measurement of each kernel, in order.

        ``target`` is accepted for the sake of one interface: the recording decided when timing stopped.

        Raises
        ------
        UnknownNameError
            If a kernel was not recorded for this task, preset and hardware.
        HarnessError
            If an anchor is asked for that is not the reference.
        """
        if anchor is not None and anchor.kernel_id != task.reference.kernel_id:
            raise HarnessError("recorded speedups are over the reference; time against another kernel with a live device")
        for kernel in kernels:
            found = self._table.get((task.name, preset, kernel.kernel_id))
            if found is None:
                known = sum(key[:2] == (task.name, preset) for key in self._table)
                raise UnknownNameError(
                    f"kernel {kernel.kernel_id} ({kernel.name or 'unnamed'}) of task {task.name!r}, preset {preset!r} was not "
                    f"recorded on {self.hardware.name}; {known} kernels of that task were. Measure it with the host device"
                )
            self.measurements_spent += 1
            self.seconds_spent += found.seconds
            yield found
