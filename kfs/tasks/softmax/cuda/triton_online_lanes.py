import torch
import triton
import triton.language as tl

BLOCK = 1024  # variants: 256, 4096


@triton.jit
def softmax_lanes(x, y, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    lane = tl.arange(0, BLOCK)
    peaks = tl.full([BLOCK], -3.0e38, tl.float32)
    totals = tl.zeros([BLOCK], tl.float32)
    for c in range(0, cols, BLOCK):
        at = c + lane
        v = tl.load(x + start + at, mask=at < cols, other=-float("inf"))
        new = tl.maximum(peaks, v)
        totals = totals * tl.exp(peaks - new) + tl.exp(v - new)
        peaks = new
    peak = tl.max(peaks, axis=0)
    scale = 1.0 / tl.sum(totals * tl.exp(peaks - peak), axis=0)
    for c in range(0, cols, BLOCK):
        at = c + lane
        v = tl.load(x + start + at, mask=at < cols, other=0.0, eviction_policy="evict_first")
        tl.store(y + start + at, tl.exp(v - peak) * scale, mask=at < cols)


def kernel(x):
    rows, cols = x.shape
    y = torch.empty_like(x)
    softmax_lanes[(rows,)](x, y, cols, BLOCK=BLOCK)
    return y
