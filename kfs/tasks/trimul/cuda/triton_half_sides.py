import torch
import triton
import triton.language as tl

BK = 64  # variants: 32


@triton.jit
def normalise(x_ptr, scale_ptr, bias_ptr, y_ptr, dim, DP: tl.constexpr):
    p = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, DP)
    x = tl.load(x_ptr + p * dim + c, c < dim, other=0.0)
    x = tl.where(c < dim, x - tl.sum(x, 0) / dim, 0.0)
    x *= tl.rsqrt(tl.sum(x * x, 0) / dim + 1e-5)
    x = x * tl.load(scale_ptr + c, c < dim, other=0.0) + tl.load(bias_ptr + c, c < dim, other=0.0)
    tl.store(y_ptr + p * dim + c, x.to(tl.float16), c < dim)


@triton.jit
def sides(
    x_ptr, mask_ptr, proj_ptr, gate_ptr, y_ptr, pixels, area, dim, hidden, BP: tl.constexpr, BH: tl.constexpr, BD: tl.constexpr
):
    side = tl.program_id(2).to(tl.int64)
    p = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)
    d = tl.program_id(1) * BH + tl.arange(0, BH)
    y = tl.zeros((BP, BH), tl.float32)
    z = tl.zeros((BP, BH), tl.float32)
    for start in range(0, dim, BD):
        c = start + tl.arange(0, BD)
        x = tl.load(x_ptr + p[:, None] * dim + c, (p[:, None] < pixels) & (c < dim), other=0.0)
        at = side * hidden * dim + d * dim + c[:, None]
        inside = (c[:, None] < dim) & (d < hidden)
        y = tl.dot(x, tl.load(proj_ptr + at, inside, other=0.0), y)
        z = tl.dot(x, tl.load(gate_ptr + at, inside, other=0.0), z)
    y *= tl.sigmoid(z) * tl.load(mask_ptr + p, p < pixels, other=0.0)[:, None]
    at = side * pixels * hidden + ((p // area) * hidden)[:, None] * area + d * area + (p % area)[:, None]
    tl.store(y_ptr + at, y.to(tl.float16), (p[:, None] < pixels) & (d < hidden))


@triton.jit
def triangle(side_ptr, out_ptr, s, planes, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    plane = tl.program_id(1).to(tl.int64) * s * s
    columns = tl.cdiv(s, BN)
    i = tl.program_id(0) // columns * BM + tl.arange(0, BM)
    j = tl.program_id(0) % columns * BN + tl.arange(0, BN)
    left_ptr = side_ptr + plane
    right_ptr = side_ptr + plane + tl.cast(planes, tl.int64) * s * s
    out = tl.zeros((BM, BN), tl.float32)
    for start in range(0, s, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(left_ptr + i[:, None] * s + k, (i[:, None] < s) & (k < s), other=0.0)
        right = tl.load(right_ptr + j * s + k[:, None], (j < s) & (k[:, None] < s), other=0.0)
        out = tl.dot(left, right, out)
    tl.store(out_ptr + plane + i[:, None] * s + j, out, (i[:, None] < s) & (j < s))


@triton.jit
def finish(
    out_ptr,
    x_ptr,
    gate_ptr,
    scale_ptr,
    bias_ptr,
    w_ptr,
    y_ptr,
    pixels,
    area,
    dim,
    hidden,
    BP: tl.constexpr,
    HP: tl.constexpr,
    BD: tl.constexpr,
):
    p = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)
    d = tl.arange(0, HP)
    inside = (p[:, None] < pixels) & (d < hidden)
    z = tl.zeros((BP, HP), tl.float32)
    for start in range(0, dim, BD):
        c = start + tl.arange(0, BD)
        x = tl.load(x_ptr + p[:, None] * dim + c, (p[:, None] < pixels) & (c < dim), other=0.0)
        w = tl.load(gate_ptr + d * dim + c[:, None], (c[:, None] < dim) & (d < hidden), other=0.0)
        z = tl.dot(x, w, z)
    out = tl.load(out_ptr + ((p // area) * hidden)[:, None] * area + d * area + (p % area)[:, None], inside, other=0.0)
    out = tl.where(inside, out - (tl.sum(out, 1) / hidden)[:, None], 0.0)
    out *= tl.rsqrt(tl.sum(out * out, 1) / hidden + 1e-5)[:, None]
    out = out * tl.load(scale_ptr + d, d < hidden, other=0.0) + tl.load(bias_ptr + d, d < hidden, other=0.0)
    out = (out * tl.sigmoid(z)).to(tl.float16)
    for start in range(0, dim, BD):
        c = start + tl.arange(0, BD)
        w = tl.load(w_ptr + c * hidden + d[:, None], (c < dim) & (d[:, None] < hidden), other=0.0)
        tl.store(y_ptr + p[:, None] * dim + c, tl.dot(out, w), (p[:, None] < pixels) & (c < dim))


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden, pixels, area = to_out.shape[1], b * s * s, s * s
    normed = torch.empty_like(x, dtype=torch.float16)
    side = torch.empty(2, b, hidden, s, s, dtype=torch.float16, device=x.device)
    out = torch.empty(b, hidden, s, s, device=x.device)
    y = torch.empty_like(x)
    proj, gate = torch.stack((left_proj, right_proj)).half(), torch.stack((left_gate, right_gate)).half()
    normalise[(pixels,)](x, norm_scale, norm_bias, normed, dim, DP=triton.next_power_of_2(dim), num_warps=1)
    sides[(triton.cdiv(pixels, 128), triton.cdiv(hidden, 64), 2)](
        normed, mask, proj, gate, side, pixels, area, dim, hidden, BP=128, BH=64, BD=32, num_warps=8
    )
    tiles = triton.cdiv(s, 128) * triton.cdiv(s, 64)
    triangle[(tiles, b * hidden)](side, out, s, b * hidden, BM=128, BN=64, BK=BK, num_warps=4)
    HP = max(16, triton.next_power_of_2(hidden))
    finish[(triton.cdiv(pixels, 64),)](
        out,
        normed,
        out_gate.half(),
        out_norm_scale,
        out_norm_bias,
        to_out.half(),
        y,
        pixels,
        area,
        dim,
        hidden,
        BP=64,
        HP=HP,
        BD=32,
        num_warps=8,
    )
    return y
