import triton
import triton.language as tl

SPLITS = 4  # variants: 2, 8


@triton.jit
def partial_product(x, w, parts, m, n, k, depth, TILE: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    col = tl.program_id(0) * TILE + tl.arange(0, TILE)
    first = tl.program_id(2) * depth
    last = tl.minimum(first + depth, k)
    acc = tl.zeros([TILE, TILE], tl.float32)
    for start in range(first, last, STEP):
        at = start + tl.arange(0, STEP)
        a = tl.load(x + row[:, None] * k + at[None, :], mask=(row < m)[:, None] & (at < last)[None, :], other=0.0)
        b = tl.load(w + at[:, None] * n + col[None, :], mask=(at < last)[:, None] & (col < n)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    out = parts + (tl.program_id(2) * m + row)[:, None] * n + col[None, :]
    tl.store(out, acc, mask=(row < m)[:, None] & (col < n)[None, :])


@triton.jit
def sum_gelu(parts, bias, y, n, size, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    keep = at < size
    v = tl.load(bias + at % n, mask=keep, other=0.0)
    part = parts + at
    for _ in range(SPLITS):
        v += tl.load(part, mask=keep, other=0.0)
        part += size
    v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y + at, v, mask=keep)


def kernel(x, w, bias):
    (m, k), n = x.shape, w.shape[1]
    parts = x.new_empty(SPLITS, m, n)
    y = x.new_empty(m, n)
    grid = (triton.cdiv(n, 64), triton.cdiv(m, 64), SPLITS)
    partial_product[grid](x, w, parts, m, n, k, triton.cdiv(k, SPLITS), TILE=64, STEP=16)
    sum_gelu[(triton.cdiv(m * n, 1024),)](parts, bias, y, n, m * n, SPLITS=SPLITS, BLOCK=1024)
    return y
