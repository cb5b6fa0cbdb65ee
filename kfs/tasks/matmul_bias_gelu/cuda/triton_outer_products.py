import triton
import triton.language as tl

WIDE = 64  # variants: 32, 128


@triton.jit
def outer_products(x, w, bias, y, m, n, k, HIGH: tl.constexpr, WIDE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * HIGH + tl.arange(0, HIGH)
    col = tl.program_id(1) * WIDE + tl.arange(0, WIDE)
    acc = tl.zeros([HIGH, WIDE], tl.float32)
    for i in range(0, k):
        a = tl.load(x + row * k + i, mask=row < m, other=0.0)
        b = tl.load(w + i * n + col, mask=col < n, other=0.0)
        acc += a[:, None] * b[None, :]
    v = acc + tl.load(bias + col, mask=col < n, other=0.0)[None, :]
    v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y + row[:, None] * n + col[None, :], v, mask=(row < m)[:, None] & (col < n)[None, :])


def kernel(x, w, bias):
    (m, k), n = x.shape, w.shape[1]
    y = x.new_empty(m, n)
    outer_products[(triton.cdiv(m, 32), triton.cdiv(n, WIDE))](x, w, bias, y, m, n, k, HIGH=32, WIDE=WIDE)
    return y
