import torch
import triton
import triton.language as tl

WARPS = 1  # variants: 4


@triton.jit
def quantise_group(x, q, scale):
    group = tl.program_id(0).to(tl.int64)
    at = group * 128 + tl.arange(0, 128)
    v = tl.load(x + at)
    s = tl.maximum(tl.max(tl.abs(v), axis=0), 1e-10) / 448.0
    tl.store(q + at, tl.minimum(tl.maximum(v / s, -448.0), 448.0))
    tl.store(scale + group, s)


def kernel(x):
    tokens, hidden = x.shape
    q = torch.empty_like(x)
    scale = x.new_empty(tokens, hidden // 128)
    quantise_group[(scale.numel(),)](x, q, scale, num_warps=WARPS)
    return q, scale
