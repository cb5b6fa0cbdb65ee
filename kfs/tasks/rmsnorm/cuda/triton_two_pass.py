import torch
import triton
import triton.language as tl

BLOCK = 1024  # variants: 256, 4096


@triton.jit
def rmsnorm_loop(x, weight, y, cols, BLOCK: tl.constexpr):
    start = tl.program_id(0).to(tl.int64) * cols
    lane = tl.arange(0, BLOCK)
    squares = tl.zeros([BLOCK], tl.float32)
    for c in range(0, cols, BLOCK):
        at = c + lane
        v = tl.load(x + start + at, mask=at < cols, other=0.0)
        squares += v * v
    scale = 1.0 / tl.sqrt(tl.sum(squares, axis=0) / cols + 1e-6)
    for c in range(0, cols, BLOCK):
        at = c + lane
        v = tl.load(x + start + at, mask=at < cols, other=0.0)
        w = tl.load(weight + at, mask=at < cols, other=0.0)
        tl.store(y + start + at, v * scale * w, mask=at < cols)


def kernel(x, weight):
    rows, cols = x.shape
    y = torch.empty_like(x)
    rmsnorm_loop[(rows,)](x, weight, y, cols, BLOCK=BLOCK)
    return y
