import torch
import triton
import triton.language as tl

GROUPS = 32  # variants: 8, 64


@triton.jit
def quantise_tile(x, q, scale, n, GROUPS: tl.constexpr):
    group = tl.program_id(0).to(tl.int64) * GROUPS + tl.arange(0, GROUPS)
    at = group[:, None] * 128 + tl.arange(0, 128)[None, :]
    keep = (group < n)[:, None]
    v = tl.load(x + at, mask=keep, other=0.0)
    peak = tl.maximum(tl.max(tl.abs(v), axis=1), 1e-10)
    tl.store(scale + group, peak / 448.0, mask=group < n)
    tl.store(q + at, tl.clamp(v * (448.0 / peak)[:, None], -448.0, 448.0), mask=keep)


def kernel(x):
    tokens, hidden = x.shape
    q = torch.empty_like(x)
    scale = x.new_empty(tokens, hidden // 128)
    n = scale.numel()
    quantise_tile[(triton.cdiv(n, GROUPS),)](x, q, scale, n, GROUPS=GROUPS)
    return q, scale
