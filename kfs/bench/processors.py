"""What a GPU architecture allows a block, how many blocks fit on a multiprocessor, and how fast a processor could be at best.

Limits are those of the CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; how registers and shared
memory are rounded up is that of ``cuda_occupancy.h``. Processors are described in ``conf/hardware``, with their sources.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kfs.errors import SchemaError, unknown_name
from kfs.records import Hardware
from kfs.tasks import Case, Task

WARP = 32
_FOLDER = Path(__file__).resolve().parents[2] / "conf" / "hardware"


@dataclass(frozen=True)
class Architecture:
    """Limits of one multiprocessor and of one block."""

    name: str
    warps: int
    """Resident warps of a multiprocessor."""
    blocks: int
    """Resident blocks of a multiprocessor."""
    shared_bytes: int
    """Shared memory of a multiprocessor."""
    shared_bytes_block: int
    """Shared memory one block may have, static and dynamic together."""
    hardware: str | None
    """Processor of ``conf/hardware`` that stands for it where none is named."""
    registers: int = 65536
    registers_block: int = 65536
    registers_thread: int = 255
    shared_reserved: int = 1024
    """Shared memory the system keeps for each block."""
    register_unit: int = 256
    """Registers are given to a warp in multiples of this."""
    warp_unit: int = 4
    """Registers of a block's warps lie in this many partitions."""
    shared_unit: int = 128
    threads_block: int = 1024


_KIB = 1024
_HOPPER = {"warps": 64, "blocks": 32, "shared_bytes": 228 * _KIB, "shared_bytes_block": 227 * _KIB}
ARCHITECTURES = {
    a.name: a
    for a in (
        Architecture("sm_80", warps=64, blocks=32, shared_bytes=164 * _KIB, shared_bytes_block=163 * _KIB, hardware="a100"),
        Architecture("sm_86", warps=48, blocks=16, shared_bytes=100 * _KIB, shared_bytes_block=99 * _KIB, hardware="3090"),
        Architecture("sm_89", warps=48, blocks=24, shared_bytes=100 * _KIB, shared_bytes_block=99 * _KIB, hardware="l40"),
        Architecture("sm_90", **_HOPPER, hardware="h100"),
        Architecture("sm_90a", **_HOPPER, hardware="h100"),
        Architecture("sm_100", **_HOPPER, hardware=None),
        Architecture("sm_120", warps=48, blocks=24, shared_bytes=100 * _KIB, shared_bytes_block=99 * _KIB, hardware=None),
    )
}


def architecture(name: str) -> Architecture:
    """An architecture by name, for example ``sm_90``."""
    if name not in ARCHITECTURES:
        raise unknown_name("architecture", name, ARCHITECTURES, "kfs/bench/processors.py")
    return ARCHITECTURES[name]


def hardware_names() -> list[str]:
    """Processors of ``conf/hardware``."""
    return sorted(p.stem for p in _FOLDER.glob("*.yaml"))


@cache
def load_hardware(name: str) -> Hardware:
    """A processor of ``conf/hardware``.

    Raises
    ------
    UnknownNameError
        If there is no such file; lists those there are.
    """
    import yaml
    from pydantic import ValidationError

    path = _FOLDER / f"{name}.yaml"
    if name not in hardware_names():
        raise unknown_name("hardware", name, hardware_names(), "conf/hardware")
    try:
        return Hardware.model_validate(yaml.safe_load(path.read_text()))
    except (ValidationError, yaml.YAMLError) as error:
        raise SchemaError(f"{path}: {error}") from error


@dataclass(frozen=True)
class Occupancy:
    """How many blocks are resident on a multiprocessor at most, and what forbids one more."""

    blocks_per_sm: int
    warps_per_sm: int
    share: float
    """Resident warps over the warps a multiprocessor can hold, 0 to 1."""
    limiter: str
    """registers, shared, threads or blocks."""


def occupancy(arch: Architecture, *, threads: int, registers: int, shared_bytes: int) -> Occupancy:
    """Theoretical occupancy of a kernel; 0 blocks where a single one does not fit.

    Parameters
    ----------
    arch : Architecture
    threads : int
        Threads of a block.
    registers : int
        Registers of a thread.
    shared_bytes : int
        Static and dynamic shared memory of a block.

    Examples
    --------
    >>> occupancy(architecture("sm_90"), threads=256, registers=64, shared_bytes=0)
    Occupancy(blocks_per_sm=4, warps_per_sm=32, share=0.5, limiter='registers')
    """
    warps = -(-threads // WARP)
    fits = {"threads": arch.warps // warps, "blocks": arch.blocks}
    per_warp = _round_up(registers * WARP, arch.register_unit)
    by_registers = arch.registers // arch.warp_unit // per_warp * arch.warp_unit if per_warp else arch.warps
    room = registers <= arch.registers_thread and _round_up(warps, arch.warp_unit) * per_warp <= arch.registers_block
    fits["registers"] = by_registers // warps if room else 0
    per_block = _round_up(shared_bytes + arch.shared_reserved, arch.shared_unit)
    fits["shared"] = arch.shared_bytes // per_block if shared_bytes <= arch.shared_bytes_block else 0
    blocks = min(fits.values()) if threads <= arch.threads_block else 0
    order = ("threads", "registers", "shared", "blocks")
    limiter = "threads" if threads > arch.threads_block else next(name for name in order if fits[name] == blocks)
    return Occupancy(blocks, blocks * warps, blocks * warps / arch.warps, limiter)


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def speed_of_light_us(task: Task, case: Case, hardware: Hardware) -> float:
    """Time no kernel can beat: compulsory traffic at full bandwidth, or unavoidable operations at the peak rate, microseconds.

    The rate is that of dense tensor cores: TF32 for a strict task, 16 bits for a tolerant one, fp32 where there are none. Data
    that stays in the last-level cache between calls can beat it.

    Raises
    ------
    SchemaError
        If the processor's file has no bandwidth or no such rate.
    """
    formats = ("tf32", "fp32") if task.precision == "strict" else ("bf16", "fp16", "tf32", "fp32")
    rates = [hardware.peak_tflops[f] for f in formats if f in hardware.peak_tflops]
    if not rates or not hardware.memory_bandwidth_gb_s:
        raise SchemaError(f"hardware {hardware.name!r} lacks memory_bandwidth_gb_s or peak_tflops of {', '.join(formats)}")
    return max(task.nbytes(case) / (hardware.memory_bandwidth_gb_s * 1e3), task.flops(case) / (max(rates) * 1e6))
