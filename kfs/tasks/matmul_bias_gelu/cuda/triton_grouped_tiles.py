import triton
import triton.language as tl

GROUP = 8  # variants: 2, 32


@triton.jit
def matmul_grouped(x, w, bias, y, m, n, k, GROUP: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, STEP: tl.constexpr):
    across = tl.cdiv(n, WIDE)
    down = tl.cdiv(m, HIGH)
    pid = tl.program_id(0)
    first = pid // (GROUP * across) * GROUP
    height = tl.minimum(down - first, GROUP)
    inside = pid % (GROUP * across)
    row = (first + inside % height).to(tl.int64) * HIGH + tl.arange(0, HIGH)
    col = inside // height * WIDE + tl.arange(0, WIDE)
    at = tl.arange(0, STEP)
    a_at = x + row[:, None] * k + at[None, :]
    b_at = w + at[:, None] * n + col[None, :]
    acc = tl.zeros([HIGH, WIDE], tl.float32)
    for left in range(k, 0, -STEP):
        a = tl.load(a_at, mask=(row < m)[:, None] & (at < left)[None, :], other=0.0)
        b = tl.load(b_at, mask=(at < left)[:, None] & (col < n)[None, :], other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_at += STEP
        b_at += STEP * n
    v = acc + tl.load(bias + col, mask=col < n, other=0.0)[None, :]
    v = 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476))
    tl.store(y + row[:, None] * n + col[None, :], v, mask=(row < m)[:, None] & (col < n)[None, :])


def kernel(x, w, bias):
    (m, k), n = x.shape, w.shape[1]
    y = x.new_empty(m, n)
    grid = (triton.cdiv(m, 64) * triton.cdiv(n, 128),)
    matmul_grouped[grid](x, w, bias, y, m, n, k, GROUP=GROUP, HIGH=64, WIDE=128, STEP=16, num_warps=8, num_stages=4)
    return y
