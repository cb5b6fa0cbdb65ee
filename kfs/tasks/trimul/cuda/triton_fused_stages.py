import torch
import triton
import triton.language as tl

BM = 64  # variants: 32, 128


@triton.jit
def row_stats(x_ptr, mean_ptr, rstd_ptr, pixels, dim, ROWS: tl.constexpr, DP: tl.constexpr):
    p = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, DP)
    mask = (p[:, None] < pixels) & (c < dim)
    x = tl.load(x_ptr + p.to(tl.int64)[:, None] * dim + c, mask, other=0.0)
    mean = tl.sum(x, 1) / dim
    x = tl.where(mask, x - mean[:, None], 0.0)
    tl.store(mean_ptr + p, mean, p < pixels)
    tl.store(rstd_ptr + p, 1.0 / tl.sqrt(tl.sum(x * x, 1) / dim + 1e-5), p < pixels)


@triton.jit
def project(
    x_ptr,
    mask_ptr,
    mean_ptr,
    rstd_ptr,
    scale_ptr,
    bias_ptr,
    w_ptr,
    gate_ptr,
    y_ptr,
    pixels,
    area,
    dim,
    hidden,
    IS_SIDE: tl.constexpr,
    BP: tl.constexpr,
    BH: tl.constexpr,
    BD: tl.constexpr,
):
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    d = tl.program_id(1) * BH + tl.arange(0, BH)
    wide = p.to(tl.int64)
    mean = tl.load(mean_ptr + p, p < pixels, other=0.0)
    rstd = tl.load(rstd_ptr + p, p < pixels, other=0.0)
    y = tl.zeros((BP, BH), tl.float32)
    z = tl.zeros((BP, BH), tl.float32)
    for start in range(0, dim, BD):
        c = start + tl.arange(0, BD)
        x = tl.load(x_ptr + wide[:, None] * dim + c, (p[:, None] < pixels) & (c < dim), other=0.0)
        x = (x - mean[:, None]) * rstd[:, None] * tl.load(scale_ptr + c, c < dim, other=0.0)
        x += tl.load(bias_ptr + c, c < dim, other=0.0)
        inside = (c[:, None] < dim) & (d < hidden)
        if IS_SIDE:
            y = tl.dot(x, tl.load(w_ptr + d * dim + c[:, None], inside, other=0.0), y)
        z = tl.dot(x, tl.load(gate_ptr + d * dim + c[:, None], inside, other=0.0), z)
    z = tl.sigmoid(z)
    if IS_SIDE:
        z *= y * tl.load(mask_ptr + p, p < pixels, other=0.0)[:, None]
    at = ((wide // area) * hidden)[:, None] * area + d * area + (wide % area)[:, None]
    tl.store(y_ptr + at, z, (p[:, None] < pixels) & (d < hidden))


@triton.jit
def triangle(left_ptr, right_ptr, out_ptr, s, BM: tl.constexpr, BK: tl.constexpr):
    plane = tl.program_id(2).to(tl.int64) * s * s
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BM + tl.arange(0, BM)
    out = tl.zeros((BM, BM), tl.float32)
    for start in range(0, s, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(left_ptr + plane + i[:, None] * s + k, (i[:, None] < s) & (k < s), other=0.0)
        right = tl.load(right_ptr + plane + j * s + k[:, None], (j < s) & (k[:, None] < s), other=0.0)
        out = tl.dot(left, right, out)
    tl.store(out_ptr + plane + i[:, None] * s + j, out, (i[:, None] < s) & (j < s))


@triton.jit
def finish(
    out_ptr,
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
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    d = tl.arange(0, HP)
    wide = p.to(tl.int64)
    inside = (p[:, None] < pixels) & (d < hidden)
    at = ((wide // area) * hidden)[:, None] * area + d * area + (wide % area)[:, None]
    out = tl.load(out_ptr + at, inside, other=0.0)
    out = tl.where(inside, out - (tl.sum(out, 1) / hidden)[:, None], 0.0)
    out *= (1.0 / tl.sqrt(tl.sum(out * out, 1) / hidden + 1e-5))[:, None]
    out = out * tl.load(scale_ptr + d, d < hidden, other=0.0) + tl.load(bias_ptr + d, d < hidden, other=0.0)
    out *= tl.load(gate_ptr + at, inside, other=0.0)
    for start in range(0, dim, BD):
        c = start + tl.arange(0, BD)
        w = tl.load(w_ptr + c * hidden + d[:, None], (c < dim) & (d[:, None] < hidden), other=0.0)
        tl.store(y_ptr + wide[:, None] * dim + c, tl.dot(out, w), (p[:, None] < pixels) & (c < dim))


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden, pixels, area = to_out.shape[1], b * s * s, s * s
    mean, rstd = (torch.empty(pixels, device=x.device) for _ in range(2))
    left, right, gate, out = (torch.empty(b, hidden, s, s, device=x.device) for _ in range(4))
    y = torch.empty_like(x)
    row_stats[(triton.cdiv(pixels, 8),)](x, mean, rstd, pixels, dim, ROWS=8, DP=triton.next_power_of_2(dim))
    grid = (triton.cdiv(pixels, 64), triton.cdiv(hidden, 64))
    for w, g, side in ((left_proj, left_gate, left), (right_proj, right_gate, right), (out_gate, out_gate, gate)):
        project[grid](
            x,
            mask,
            mean,
            rstd,
            norm_scale,
            norm_bias,
            w,
            g,
            side,
            pixels,
            area,
            dim,
            hidden,
            IS_SIDE=side is not gate,
            BP=64,
            BH=64,
            BD=32,
            num_warps=4,
        )
    tiles = triton.cdiv(s, BM)
    triangle[(tiles, tiles, b * hidden)](left, right, out, s, BM=BM, BK=32, num_warps=4)
    HP = max(16, triton.next_power_of_2(hidden))
    finish[(triton.cdiv(pixels, 32),)](
        out, gate, out_norm_scale, out_norm_bias, to_out, y, pixels, area, dim, hidden, BP=32, HP=HP, BD=32, num_warps=4
    )
    return y
