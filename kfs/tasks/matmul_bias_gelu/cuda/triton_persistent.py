import triton
import triton.language as tl

PROGRAMS = 264  # variants: 132, 1056


@triton.jit
def matmul_stride(x, w, bias, y, m, n, k, TILE: tl.constexpr, STEP: tl.constexpr):
    across = tl.cdiv(n, TILE)
    tiles = across * tl.cdiv(m, TILE)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        row = tile // across * TILE + tl.arange(0, TILE)
        col = tile % across * TILE + tl.arange(0, TILE)
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
    tiles = triton.cdiv(m, 64) * triton.cdiv(n, 64)
    matmul_stride[(min(tiles, PROGRAMS),)](x, w, bias, y, m, n, k, TILE=64, STEP=32)
    return y
