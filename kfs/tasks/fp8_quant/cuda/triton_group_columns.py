import torch
import triton
import triton.language as tl

TOKENS = 16  # variants: 4, 64


@triton.jit
def quantise_column(x, q, scale, tokens, groups, TOKENS: tl.constexpr):
    token = tl.program_id(0).to(tl.int64) * TOKENS + tl.arange(0, TOKENS)
    slot = token * groups + tl.program_id(1)
    live = token < tokens
    at = slot[:, None] * 128 + tl.arange(0, 128)[None, :]
    v = tl.load(x + at, mask=live[:, None], other=0.0)
    s = tl.maximum(tl.max(tl.abs(v), axis=1), 1e-10) / 448.0
    tl.store(scale + slot, s, mask=live)
    tl.store(q + at, tl.minimum(tl.maximum(v / s[:, None], -448.0), 448.0), mask=live[:, None])


def kernel(x):
    tokens, hidden = x.shape
    q = torch.empty_like(x)
    scale = x.new_empty(tokens, hidden // 128)
    quantise_column[(triton.cdiv(tokens, TOKENS), hidden // 128)](x, q, scale, tokens, hidden // 128, TOKENS=TOKENS)
    return q, scale
