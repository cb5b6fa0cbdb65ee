import torch
import triton
import triton.language as tl

PROGRAMS = 528  # variants: 132, 2112


@triton.jit
def rmsnorm_stride(x, weight, y, rows, cols, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    keep = at < cols
    w = tl.load(weight + at, mask=keep, other=0.0)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        v = tl.load(x + row * cols + at, mask=keep, other=0.0)
        scale = tl.rsqrt(tl.sum(v * v, axis=0) / cols + 1e-6)
        tl.store(y + row * cols + at, v * scale * w, mask=keep)


def kernel(x, weight):
    rows, cols = x.shape
    y = torch.empty_like(x)
    block = triton.next_power_of_2(cols)
    warps = 1 if block <= 256 else 4 if block <= 2048 else 8
    rmsnorm_stride[(min(rows, PROGRAMS),)](x, weight, y, rows, cols, BLOCK=block, num_warps=warps)
    return y
