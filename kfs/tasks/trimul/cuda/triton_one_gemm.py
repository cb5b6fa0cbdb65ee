import torch
import triton
import triton.language as tl

BM = 128  # variants: 32, 64


@triton.jit
def matmul_nt(a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    group = tl.program_id(0) // (GROUP * columns)
    height = tl.minimum(rows - group * GROUP, GROUP)
    inner = tl.program_id(0) % (GROUP * columns)
    m = ((group * GROUP + inner % height) * BM + tl.arange(0, BM)).to(tl.int64)
    n = (inner // height * BN + tl.arange(0, BN)).to(tl.int64)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        k = start + tl.arange(0, BK)
        a = tl.load(a_ptr + batch * M * K + m[:, None] * K + k, (m[:, None] < M) & (k < K), other=0.0)
        b = tl.load(b_ptr + batch * N * K + n * K + k[:, None], (n < N) & (k[:, None] < K), other=0.0)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + batch * M * N + m[:, None] * N + n, total, (m[:, None] < M) & (n < N))


@triton.jit
def layer_norm(x_ptr, scale_ptr, bias_ptr, y_ptr, rows, dim, ROWS: tl.constexpr, DP: tl.constexpr):
    p = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    c = tl.arange(0, DP)
    mask = (p[:, None] < rows) & (c < dim)
    x = tl.load(x_ptr + p[:, None] * dim + c, mask, other=0.0)
    x = tl.where(mask, x - (tl.sum(x, 1) / dim)[:, None], 0.0)
    x *= tl.rsqrt(tl.sum(x * x, 1) / dim + 1e-5)[:, None]
    x = x * tl.load(scale_ptr + c, c < dim, other=0.0) + tl.load(bias_ptr + c, c < dim, other=0.0)
    tl.store(y_ptr + p[:, None] * dim + c, x, mask)


@triton.jit
def gate_sides(wide_ptr, mask_ptr, side_ptr, area, hidden, BP: tl.constexpr):
    d, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    live = p < area
    row = (batch * area + p) * (5 * hidden) + d
    x = tl.load(wide_ptr + row, live, other=0.0)
    z = tl.load(wide_ptr + row + 2 * hidden, live, other=0.0)
    keep = tl.load(mask_ptr + batch * area + p, live, other=0.0)
    at = ((d // hidden * tl.num_programs(2) + batch) * hidden + d % hidden) * area + p
    tl.store(side_ptr + at, x * tl.sigmoid(z) * keep, live)


@triton.jit
def norm_gate(out_ptr, wide_ptr, scale_ptr, bias_ptr, y_ptr, area, hidden, BP: tl.constexpr):
    batch = tl.program_id(1).to(tl.int64)
    p = tl.program_id(0) * BP + tl.arange(0, BP)
    live = p < area
    planes = out_ptr + batch * hidden * area + p
    mean = tl.zeros((BP,), tl.float32)
    for d in range(hidden):
        mean += tl.load(planes + d * area, live, other=0.0)
    mean /= hidden
    variance = tl.zeros((BP,), tl.float32)
    for d in range(hidden):
        gap = tl.load(planes + d * area, live, other=0.0) - mean
        variance += gap * gap
    rstd = tl.rsqrt(variance / hidden + 1e-5)
    for d in range(hidden):
        out = (tl.load(planes + d * area, live, other=0.0) - mean) * rstd * tl.load(scale_ptr + d) + tl.load(bias_ptr + d)
        z = tl.load(wide_ptr + (batch * area + p) * (5 * hidden) + 4 * hidden + d, live, other=0.0)
        tl.store(y_ptr + (batch * area + p) * hidden + d, out * tl.sigmoid(z), live)


def multiply(a, b, c, batch, M, N, K):
    grid = (triton.cdiv(M, BM) * triton.cdiv(N, 64), batch)
    matmul_nt[grid](a, b, c, M, N, K, BM=BM, BN=64, BK=32, GROUP=8, num_warps=4)


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden, pixels, area = to_out.shape[1], b * s * s, s * s
    normed, y = torch.empty_like(x), torch.empty_like(x)
    wide = torch.empty(pixels, 5 * hidden, device=x.device)
    side = torch.empty(2, b, hidden, s, s, device=x.device)
    out = torch.empty(b, hidden, s, s, device=x.device)
    gated = torch.empty(pixels, hidden, device=x.device)
    weights = torch.cat((left_proj, right_proj, left_gate, right_gate, out_gate))
    layer_norm[(triton.cdiv(pixels, 4),)](x, norm_scale, norm_bias, normed, pixels, dim, ROWS=4, DP=triton.next_power_of_2(dim))
    multiply(normed, weights, wide, 1, pixels, 5 * hidden, dim)
    gate_sides[(triton.cdiv(area, 256), 2 * hidden, b)](wide, mask, side, area, hidden, BP=256)
    multiply(side[0], side[1], out, b * hidden, s, s, s)
    norm_gate[(triton.cdiv(area, 128), b)](out, wide, out_norm_scale, out_norm_bias, gated, area, hidden, BP=128)
    multiply(gated, to_out, y, 1, pixels, dim, hidden)
    return y
