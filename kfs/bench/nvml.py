"""State of an NVIDIA GPU as its driver tells it: clocks, temperature, throttle reasons, memory, who else is there.

Through NVML's C interface (``libnvidia-ml.so.1`` comes with every driver), whose few functions here are the same in every
version; no CUDA context is made, so the judge may ask. Every number is None where the driver does not say.
"""

from __future__ import annotations

import ctypes
import os
import re
from dataclasses import dataclass

from kfs.errors import HarnessError

LIBRARY = "libnvidia-ml.so.1"
_SM, _MEMORY = 1, 2
_SLOW = {0x4: "sw_power_cap", 0x8: "hw_slowdown", 0x20: "sw_thermal", 0x40: "hw_thermal", 0x80: "hw_power_brake"}
_OTHER = {0x1: "idle", 0x2: "application_clocks", 0x10: "sync_boost", 0x100: "display_clocks"}
_MAX_PROCESSES = 64


class _MemoryInfo(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("memory", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    )


@dataclass(frozen=True)
class State:
    """A reading. ``str`` gives what records keep; ``State.read`` takes it back.

    Examples
    --------
    >>> str(State(1980, 2619, 41, ("sw_power_cap",)))
    'sm 1980 MHz, memory 2619 MHz, 41 C, throttle sw_power_cap'
    """

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    temperature_c: int | None = None
    throttle: tuple[str, ...] | None = None
    """Why clocks are held back or low; None where the driver does not say."""

    def __str__(self) -> str:
        number = lambda x: "?" if x is None else str(x)
        why = "?" if self.throttle is None else " ".join(self.throttle) or "none"
        return (
            f"sm {number(self.sm_mhz)} MHz, memory {number(self.memory_mhz)} MHz, {number(self.temperature_c)} C, throttle {why}"
        )

    @classmethod
    def read(cls, text: str) -> State:
        """The reading in a record's text."""
        match = re.fullmatch(r"sm (\S+) MHz, memory (\S+) MHz, (\S+) C, throttle (.*)", text)
        if match is None:
            raise ValueError(f"not the state of a GPU: {text!r}")
        numbers = [None if x == "?" else int(x) for x in match.groups()[:3]]
        why = None if match[4] == "?" else () if match[4] == "none" else tuple(match[4].split())
        return cls(*numbers, why)

    @property
    def throttled(self) -> bool:
        """Whether power or heat holds the clocks back."""
        return bool(set(self.throttle or ()) & set(_SLOW.values()))


class Nvml:
    """One GPU. Raises OSError where there is no NVML, HarnessError where the GPU does not exist.

    Parameters
    ----------
    uuid : str, optional
        ``GPU-...``; default by ``index``.
    index : int
        In the order of PCI buses.
    """

    def __init__(self, uuid: str | None = None, *, index: int = 0, library: str = LIBRARY):
        self._nvml = ctypes.CDLL(library)
        if code := self._nvml.nvmlInit_v2():
            raise OSError(f"NVML does not start: error {code} (is the driver loaded, does its version fit?)")
        self._handle = ctypes.c_void_p()
        if uuid:
            code = self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(self._handle))
        else:
            code = self._nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(self._handle))
        if code:
            raise HarnessError(f"no GPU {uuid or index}: NVML error {code}; `nvidia-smi -L` lists those there are")

    def uuid(self) -> str:
        """``GPU-...``"""
        return self._text("nvmlDeviceGetUUID", 96)

    def driver(self) -> str:
        """Version of the driver."""
        buffer = ctypes.create_string_buffer(96)
        return buffer.value.decode() if not self._nvml.nvmlSystemGetDriverVersion(buffer, ctypes.c_uint(96)) else ""

    def state(self) -> State:
        """Clocks, temperature and throttle reasons now."""
        sm, memory = (self._number("nvmlDeviceGetClockInfo", ctypes.c_uint, ctypes.c_uint(k)) for k in (_SM, _MEMORY))
        heat = self._number("nvmlDeviceGetTemperature", ctypes.c_uint, ctypes.c_uint(0))
        bits = self._number("nvmlDeviceGetCurrentClocksThrottleReasons", ctypes.c_ulonglong)
        names = None if bits is None else tuple(n for b, n in sorted((_SLOW | _OTHER).items()) if bits & b)
        return State(sm, memory, heat, names)

    def used_bytes(self) -> int | None:
        """Device memory in use by everybody."""
        info = _MemoryInfo()
        code = self._nvml.nvmlDeviceGetMemoryInfo(self._handle, ctypes.byref(info))
        return None if code else info.used

    def processes(self) -> set[int] | None:
        """Processes with a context on the GPU, as the driver numbers them; None where it does not say."""
        count, found = ctypes.c_uint(_MAX_PROCESSES), (_Process * _MAX_PROCESSES)()
        try:
            code = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3(self._handle, ctypes.byref(count), found)
        except AttributeError:
            return None
        return None if code else {found[i].pid for i in range(min(count.value, _MAX_PROCESSES))}

    def _number(self, function: str, kind, *arguments) -> int | None:
        value = kind()
        try:
            code = getattr(self._nvml, function)(self._handle, *arguments, ctypes.byref(value))
        except AttributeError:
            return None
        return None if code else int(value.value)

    def _text(self, function: str, size: int) -> str:
        buffer = ctypes.create_string_buffer(size)
        return buffer.value.decode() if not getattr(self._nvml, function)(self._handle, buffer, ctypes.c_uint(size)) else ""


def visible_gpu() -> tuple[str | None, int]:
    """UUID, or index, of the first GPU that CUDA_VISIBLE_DEVICES leaves."""
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip()
    return (first, 0) if first.startswith("GPU-") else (None, int(first) if first.isdigit() else 0)
