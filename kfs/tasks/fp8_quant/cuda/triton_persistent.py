import torch
import triton
import triton.language as tl

PROGRAMS = 528  # variants: 132, 2112


@triton.jit
def quantise_stride(x, q, scale, n, GROUPS: tl.constexpr):
    part = tl.arange(0, GROUPS)
    lane = tl.arange(0, GROUPS * 128)
    for first in range(tl.program_id(0) * GROUPS, n, tl.num_programs(0) * GROUPS):
        keep = first * 128 + lane < n * 128
        v = tl.load(x + first * 128 + lane, mask=keep, other=0.0)
        tile = tl.reshape(v, [GROUPS, 128])
        peak = tl.maximum(tl.max(tl.abs(tile), axis=1), 1e-10)
        tl.store(scale + first + part, peak / 448.0, mask=first + part < n)
        tile = tl.clamp(tile * (448.0 / peak)[:, None], -448.0, 448.0)
        tl.store(q + first * 128 + lane, tl.reshape(tile, [GROUPS * 128]), mask=keep)


def kernel(x):
    tokens, hidden = x.shape
    q = torch.empty_like(x)
    scale = x.new_empty(tokens, hidden // 128)
    n = scale.numel()
    quantise_stride[(min(triton.cdiv(n, 16), PROGRAMS),)](x, q, scale, n, GROUPS=16)
    return q, scale
