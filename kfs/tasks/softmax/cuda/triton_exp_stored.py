import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def row_max(x, peaks, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    top = tl.full([BLOCK], -float("inf"), tl.float32)
    for c in range(0, cols, BLOCK):
        at = c + lane
        top = tl.maximum(top, tl.load(x + row * cols + at, mask=at < cols, other=-float("inf")))
    tl.store(peaks + row, tl.max(top, axis=0))


@triton.jit
def row_exp(x, y, peaks, totals, cols, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, BLOCK)
    peak = tl.load(peaks + row)
    total = tl.zeros([BLOCK], tl.float32)
    for c in range(0, cols, BLOCK):
        at = c + lane
        e = tl.exp(tl.load(x + row * cols + at, mask=at < cols, other=-float("inf")) - peak)
        tl.store(y + row * cols + at, e, mask=at < cols)
        total += e
    tl.store(totals + row, tl.sum(total, axis=0))


@triton.jit
def divide(y, totals, cols, n, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = at < n
    e = tl.load(y + at, mask=keep, other=0.0)
    total = tl.load(totals + at // cols, mask=keep, other=1.0)
    tl.store(y + at, e / total, mask=keep)


def kernel(x):
    rows, cols = x.shape
    y = torch.empty_like(x)
    peaks = x.new_empty(rows)
    totals = x.new_empty(rows)
    row_max[(rows,)](x, peaks, cols, BLOCK=BLOCK)
    row_exp[(rows,)](x, y, peaks, totals, cols, BLOCK=BLOCK)
    divide[(triton.cdiv(x.numel(), BLOCK),)](y, totals, cols, x.numel(), BLOCK=BLOCK)
    return y
