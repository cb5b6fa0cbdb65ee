import torch
import triton
import triton.language as tl


@triton.jit
def add_pairs(a, a_low, b, b_low):
    total = a + b
    shift = total - a
    low = (a - (total - shift)) + (b - shift)
    return total, low + a_low + b_low


@triton.jit
def cumsum_pairs(x, y, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    lane = tl.arange(0, BLOCK)
    carry = 0.0
    for c in range(0, cols, BLOCK):
        at = c + lane
        v = tl.load(x + start + at, mask=at < cols, other=0.0)
        high, low = tl.associative_scan((v, tl.zeros([BLOCK], tl.float32)), 0, add_pairs)
        sums = carry + (high + low)
        tl.store(y + start + at, sums, mask=at < cols)
        carry = tl.sum(tl.where(lane == BLOCK - 1, sums, 0.0), axis=0)


def kernel(x):
    rows, cols = x.shape
    y = torch.empty_like(x)
    cumsum_pairs[(rows,)](x, y, cols, BLOCK=1024, num_warps=8)
    return y
