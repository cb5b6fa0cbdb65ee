import triton
import triton.language as tl

DEPTH = 256  # variants: 128, 1024


@triton.jit
def add_product(x, w, total, m, n, k, DEPTH: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(1).to(tl.int64) * HIGH + tl.arange(0, HIGH)
    col = tl.program_id(0) * WIDE + tl.arange(0, WIDE)
    first = tl.program_id(2) * DEPTH
    acc = tl.zeros([HIGH, WIDE], tl.float32)
    for start in range(first, tl.minimum(first + DEPTH, k), STEP):
        at = start + tl.arange(0, STEP)
        a = tl.load(x + row[:, None] * k + at[None, :], mask=(row < m)[:, None] & (at < k)[None, :], other=0.0)
        b = tl.load(w + at[:, None] * n + col[None, :], mask=(at < k)[:, None] & (col < n)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
    tl.atomic_add(total + row[:, None] * n + col[None, :], acc, mask=(row < m)[:, None] & (col < n)[None, :])


@triton.jit
def bias_gelu(total, bias, n, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(total + at, mask=at < size, other=0.0) + tl.load(bias + at % n, mask=at < size, other=0.0)
    tl.store(total + at, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=at < size)


def kernel(x, w, bias):
    (m, k), n = x.shape, w.shape[1]
    y = x.new_zeros(m, n)
    grid = (triton.cdiv(n, 128), triton.cdiv(m, 32), triton.cdiv(k, DEPTH))
    add_product[grid](x, w, y, m, n, k, DEPTH=DEPTH, HIGH=32, WIDE=128, STEP=32)
    bias_gelu[(triton.cdiv(m * n, 1024),)](y, bias, n, m * n, BLOCK=1024)
    return y
