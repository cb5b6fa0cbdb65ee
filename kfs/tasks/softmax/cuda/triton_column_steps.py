import torch
import triton
import triton.language as tl

ROWS = 32  # variants: 8, 128


@triton.jit
def softmax_steps(x, y, rows, cols, ROWS: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    live = (row < rows)[:, None]
    lane = tl.arange(0, STEP)[None, :]
    start = row[:, None] * cols
    peak = tl.full([ROWS], -3.0e38, tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for c in range(0, cols, STEP):
        col = c + lane
        v = tl.load(x + start + col, mask=live & (col < cols), other=-3.0e38)
        new = tl.maximum(peak, tl.max(v, axis=1))
        e = tl.where(col < cols, tl.exp(v - new[:, None]), 0.0)
        total = total * tl.exp(peak - new) + tl.sum(e, axis=1)
        peak = new
    for c in range(0, cols, STEP):
        col = c + lane
        v = tl.load(x + start + col, mask=live & (col < cols), other=0.0)
        tl.store(y + start + col, tl.exp(v - peak[:, None]) / total[:, None], mask=live & (col < cols))


def kernel(x):
    rows, cols = x.shape
    y = torch.empty_like(x)
    softmax_steps[(triton.cdiv(rows, ROWS),)](x, y, rows, cols, ROWS=ROWS, STEP=32)
    return y
