"""Kernels with which the cuda device asks its GPU what it is, whether Triton works there, and how fast it could be at best."""

from __future__ import annotations

import re

import torch

from kfs.bench.child import OK, CallSlots, TensorSlot
from kfs.bench.sandbox import Child, ChildDied
from kfs.errors import HarnessError
from kfs.records import Hardware

_NAME_BYTES = 256

WHAT = f"""
import torch


def kernel(x):
    p = torch.cuda.get_device_properties(0)
    facts = [p.major, p.minor, p.multi_processor_count, p.total_memory, p.L2_cache_size]
    text = f"{{p.name}}|{{getattr(p, 'uuid', '')}}|{{torch.version.cuda}}".encode()[:{_NAME_BYTES}].ljust({_NAME_BYTES})
    facts = torch.tensor(facts, dtype=torch.float64, device=x.device)
    return facts, torch.tensor(list(text), dtype=torch.uint8, device=x.device)
"""

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)


def kernel(x):
    y = torch.empty_like(x)
    double[(1,)](x, y, x.numel(), B=128)
    return y
"""

# Copies repeated back to back, so that what fits in L2 stays there; products of random matrices, since zeros run faster.
LIGHT = """
import torch


def best_ns(run, repeats):
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    run()
    times = []
    for _ in range(5):
        start.record()
        for _ in range(repeats):
            run()
        stop.record()
        stop.synchronize()
        times.append(start.elapsed_time(stop) * 1e6 / repeats)
    return min(times)


def kernel(nbytes):
    found = []
    for size in nbytes.tolist():
        a, b = torch.empty(2, max(size // 2, 256), dtype=torch.uint8, device=nbytes.device).unbind()
        found.append(best_ns(lambda: a.copy_(b), max(1, min(50, (1 << 28) // max(size, 1)))))
        del a, b
    n = 4096
    for dtype in (torch.float32, torch.bfloat16):
        torch.backends.cuda.matmul.allow_tf32 = True
        x, y = torch.randn(n, n, device=nbytes.device, dtype=dtype), torch.randn(n, n, device=nbytes.device, dtype=dtype)
        found.append(2.0 * n**3 / best_ns(lambda: x @ y, 5) * 1e9)
    return torch.tensor(found, dtype=torch.float64, device=nbytes.device)
"""


def run_probe(child: Child, source: str, inputs: list[torch.Tensor], outputs: list[tuple], *, language: str = "python") -> list:
    """Run a probe's ``kernel`` once; its outputs, given their shapes and dtypes, as CPU tensors. HarnessError if it fails."""
    at, parts = 4096, []
    for shape, dtype, nbytes in [*((tuple(x.shape), str(x.dtype)[6:], x.nbytes) for x in inputs), *outputs]:
        parts.append(TensorSlot(at, tuple(shape), dtype, nbytes))
        at += 4096 * (3 + nbytes // 4096)
    call = CallSlots(tuple(parts[: len(inputs)]), tuple(parts[len(inputs) :]))
    try:
        for x, slot in zip(inputs, call.inputs, strict=True):
            child.arena.view(slot).copy_(x)
        for ask in (
            lambda: child.load(source, "kernel", 60, language=language),
            lambda: child.call([call], 120),
            lambda: child.collect(60),
        ):
            if (reply := ask()).code != OK:
                raise HarnessError(reply.text or "no reason given")
        return [child.arena.view(slot).clone() for slot in call.outputs]
    except ChildDied as died:
        raise HarnessError(f"the probe's process: {died.detail}") from died


def what_gpu(child: Child, driver: str = "") -> tuple[Hardware, str, str]:
    """What the GPU is, its UUID (empty where torch does not say) and the CUDA version of torch."""
    facts, text = run_probe(child, WHAT, [torch.zeros(1)], [((5,), "float64", 40), ((_NAME_BYTES,), "uint8", _NAME_BYTES)])
    major, minor, units, memory, cache = facts.tolist()
    title, uuid, cuda = bytes(text.tolist()).decode(errors="replace").strip().split("|")
    slug = re.sub(r"[^a-z0-9]+", "-", title.lower().replace("nvidia", "")).strip("-")
    hardware = Hardware(
        name=slug,
        title=title,
        vendor="NVIDIA",
        architecture=f"sm_{int(major)}{int(minor)}",
        kind="gpu",
        units=int(units),
        memory_gb=round(memory / 1e9, 1),
        cache_mb=round(cache / 2**20, 1),
        driver=driver or None,
        sources=["the driver, through torch.cuda.get_device_properties and NVML"],
    )
    return hardware, uuid, cuda


def has_triton(child: Child) -> str | None:
    """Why Triton kernels do not run here; None if one did."""
    try:
        (found,) = run_probe(child, TRITON, [torch.arange(100.0)], [((100,), "float32", 400)])
    except HarnessError as error:
        return str(error)
    return None if torch.equal(found, 2 * torch.arange(100.0)) else "a Triton kernel gives wrong values"


def light(child: Child, nbytes: list[float]) -> tuple[list[float], dict[str, float]]:
    """Nanoseconds to touch each number of bytes once, and FLOP/s of matrix products: tf32 and bf16."""
    sizes = torch.tensor([int(n) for n in nbytes])
    (found,) = run_probe(child, LIGHT, [sizes], [((len(nbytes) + 2,), "float64", 8 * (len(nbytes) + 2))])
    *moved, tf32, bf16 = found.tolist()
    return moved, {"tf32": tf32, "bf16": bf16}
