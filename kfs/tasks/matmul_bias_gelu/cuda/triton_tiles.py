import triton
import triton.language as tl

TILE = 64  # variants: 32, 128


@triton.jit
def matmul_gelu(x, w, bias, y, m, n, k, TILE: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    col = tl.program_id(0) * TILE + tl.arange(0, TILE)
    acc = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, k, STEP):
        at = start + tl.arange(0, STEP)
        a = tl.load(x + row[:, None] * k + at[None, :], mask=(row < m)[:, None] & (at < k)[None, :], other=0.0)
        b = tl.load(w + at[:, None] * n + col[None, :], mask=(at < k)[:, None] & (col < n)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    v = acc + tl.load(bias + col, mask=col < n, other=0.0)[None, :]
    v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y + row[:, None] * n + col[None, :], v, mask=(row < m)[:, None] & (col < n)[None, :])


def kernel(x, w, bias):
    (m, k), n = x.shape, w.shape[1]
    y = x.new_empty(m, n)
    grid = (triton.cdiv(n, TILE), triton.cdiv(m, TILE))
    matmul_gelu[grid](x, w, bias, y, m, n, k, TILE=TILE, STEP=32, num_warps=TILE // 16)
    return y
