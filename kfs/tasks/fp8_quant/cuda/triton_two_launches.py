import torch
import triton
import triton.language as tl


@triton.jit
def group_scales(x, scale, n, GROUPS: tl.constexpr):
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    at = group[:, None] * 128 + tl.arange(0, 128)[None, :]
    v = tl.load(x + at, mask=(group < n)[:, None], other=0.0)
    peak = tl.maximum(tl.max(v, axis=1), -tl.min(v, axis=1))
    tl.store(scale + group, tl.maximum(peak, 1e-10) / 448.0, mask=group < n)


@triton.jit
def divide(x, q, scale, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(x + at, mask=at < size, other=0.0)
    s = tl.load(scale + at // 128, mask=at < size, other=1.0)
    tl.store(q + at, tl.minimum(tl.maximum(v / s, -448.0), 448.0), mask=at < size)


def kernel(x):
    tokens, hidden = x.shape
    q = torch.empty_like(x)
    scale = x.new_empty(tokens, hidden // 128)
    group_scales[(triton.cdiv(scale.numel(), 16),)](x, scale, scale.numel(), GROUPS=16)
    divide[(triton.cdiv(x.numel(), 1024),)](x, q, scale, x.numel(), BLOCK=1024)
    return q, scale
