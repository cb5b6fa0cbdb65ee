import torch
import triton
import triton.language as tl


@triton.jit
def matmul(x, w, y, m, n, k, TILE: tl.constexpr, STEP: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    col = tl.program_id(1) * TILE + tl.arange(0, TILE)
    acc = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, k, STEP):
        at = start + tl.arange(0, STEP)
        a = tl.load(x + row[:, None] * k + at[None, :], mask=(row < m)[:, None] & (at < k)[None, :], other=0.0)
        b = tl.load(w + at[:, None] * n + col[None, :], mask=(at < k)[:, None] & (col < n)[None, :], other=0.0)
        acc += tl.dot(a, b, input_precision="ieee")
    tl.store(y + row[:, None] * n + col[None, :], acc, mask=(row < m)[:, None] & (col < n)[None, :])


@triton.jit
def add_bias(product, bias, shifted, n, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(product + at, mask=at < size, other=0.0)
    tl.store(shifted + at, v + tl.load(bias + at % n, mask=at < size, other=0.0), mask=at < size)


@triton.jit
def gelu(shifted, y, size, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    v = tl.load(shifted + at, mask=at < size, other=0.0)
    tl.store(y + at, 0.5 * v * (1.0 + tl.erf(v * 0.7071067811865476)), mask=at < size)


def kernel(x, w, bias):
    (m, k), n = x.shape, w.shape[1]
    product = x.new_empty(m, n)
    shifted = torch.empty_like(product)
    y = torch.empty_like(product)
    flat = (triton.cdiv(m * n, 1024),)
    matmul[(triton.cdiv(m, 64), triton.cdiv(n, 64))](x, w, product, m, n, k, TILE=64, STEP=16)
    add_bias[flat](product, bias, shifted, n, m * n, BLOCK=1024)
    gelu[flat](shifted, y, m * n, BLOCK=1024)
    return y
