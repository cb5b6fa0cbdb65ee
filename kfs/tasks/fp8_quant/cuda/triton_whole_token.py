import torch
import triton
import triton.language as tl

WARPS = 8  # variants: 4, 16


@triton.jit
def quantise_row(x, q, scale, groups, GROUPS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    group = tl.arange(0, GROUPS)
    at = (token * groups + group)[:, None] * 128 + tl.arange(0, 128)[None, :]
    keep = (group < groups)[:, None]
    v = tl.load(x + at, mask=keep, other=0.0)
    s = tl.maximum(tl.max(tl.abs(v), axis=1), 1e-10) / 448.0
    tl.store(scale + token * groups + group, s, mask=group < groups)
    tl.store(q + at, tl.minimum(tl.maximum(v / s[:, None], -448.0), 448.0), mask=keep)


def kernel(x):
    tokens, hidden = x.shape
    groups = hidden // 128
    q = torch.empty_like(x)
    scale = x.new_empty(tokens, groups)
    quantise_row[(tokens,)](x, q, scale, groups, GROUPS=triton.next_power_of_2(groups), num_warps=WARPS)
    return q, scale
