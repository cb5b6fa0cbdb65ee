import torch
import triton
import triton.language as tl

BJ = 16  # variants: 32


@triton.jit
def sides(
    x_ptr,
    mask_ptr,
    scale_ptr,
    bias_ptr,
    lp_ptr,
    rp_ptr,
    lg_ptr,
    rg_ptr,
    og_ptr,
    left_ptr,
    right_ptr,
    gate_ptr,
    pixels,
    dim,
    hidden,
    DP: tl.constexpr,
    BH: tl.constexpr,
):
    p = tl.program_id(0).to(tl.int64) * 16 + tl.arange(0, 16)
    c = tl.arange(0, DP)
    mask = (p[:, None] < pixels) & (c < dim)
    x = tl.load(x_ptr + p[:, None] * dim + c, mask, other=0.0)
    x = tl.where(mask, x - (tl.sum(x, 1) / dim)[:, None], 0.0)
    x *= tl.rsqrt(tl.sum(x * x, 1) / dim + 1e-5)[:, None]
    x = x * tl.load(scale_ptr + c, c < dim, other=0.0) + tl.load(bias_ptr + c, c < dim, other=0.0)
    keep = tl.load(mask_ptr + p, p < pixels, other=0.0)[:, None]
    for start in range(0, hidden, BH):
        d = start + tl.arange(0, BH)
        weight = d * dim + c[:, None]
        inside = (c[:, None] < dim) & (d < hidden)
        at = p[:, None] * hidden + d
        live = (p[:, None] < pixels) & (d < hidden)
        left = tl.dot(x, tl.load(lp_ptr + weight, inside, other=0.0)) * keep
        left *= tl.sigmoid(tl.dot(x, tl.load(lg_ptr + weight, inside, other=0.0)))
        tl.store(left_ptr + at, left, live)
        right = tl.dot(x, tl.load(rp_ptr + weight, inside, other=0.0)) * keep
        right *= tl.sigmoid(tl.dot(x, tl.load(rg_ptr + weight, inside, other=0.0)))
        tl.store(right_ptr + at, right, live)
        tl.store(gate_ptr + at, tl.sigmoid(tl.dot(x, tl.load(og_ptr + weight, inside, other=0.0))), live)


@triton.jit
def pairs(
    left_ptr,
    right_ptr,
    gate_ptr,
    scale_ptr,
    bias_ptr,
    w_ptr,
    y_ptr,
    s,
    dim,
    hidden,
    BJ: tl.constexpr,
    HP: tl.constexpr,
    BD: tl.constexpr,
):
    i, batch = tl.program_id(1), tl.program_id(2).to(tl.int64)
    j = tl.program_id(0) * BJ + tl.arange(0, BJ)
    d = tl.arange(0, HP)
    inside = (j[:, None] < s) & (d < hidden)
    row = (batch * s + i) * s
    across = (batch * s + j) * s
    out = tl.zeros((BJ, HP), tl.float32)
    for k in range(s):
        left = tl.load(left_ptr + (row + k) * hidden + d, d < hidden, other=0.0)
        out += left * tl.load(right_ptr + (across + k)[:, None] * hidden + d, inside, other=0.0)
    out = tl.where(inside, out - (tl.sum(out, 1) / hidden)[:, None], 0.0)
    out *= tl.rsqrt(tl.sum(out * out, 1) / hidden + 1e-5)[:, None]
    out = out * tl.load(scale_ptr + d, d < hidden, other=0.0) + tl.load(bias_ptr + d, d < hidden, other=0.0)
    out *= tl.load(gate_ptr + (row + j)[:, None] * hidden + d, inside, other=0.0)
    for start in range(0, dim, BD):
        c = start + tl.arange(0, BD)
        w = tl.load(w_ptr + c * hidden + d[:, None], (c < dim) & (d[:, None] < hidden), other=0.0)
        tl.store(y_ptr + (row + j)[:, None] * dim + c, tl.dot(out, w), (j[:, None] < s) & (c < dim))


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden, pixels = to_out.shape[1], b * s * s
    left, right, gate = (torch.empty(b, s, s, hidden, device=x.device) for _ in range(3))
    y = torch.empty_like(x)
    DP, HP = (max(16, triton.next_power_of_2(n)) for n in (dim, hidden))
    sides[(triton.cdiv(pixels, 16),)](
        x,
        mask,
        norm_scale,
        norm_bias,
        left_proj,
        right_proj,
        left_gate,
        right_gate,
        out_gate,
        left,
        right,
        gate,
        pixels,
        dim,
        hidden,
        DP=DP,
        BH=16,
        num_warps=4,
        num_stages=1,
    )
    pairs[(triton.cdiv(s, BJ), s, b)](
        left, right, gate, out_norm_scale, out_norm_bias, to_out, y, s, dim, hidden, BJ=BJ, HP=HP, BD=32, num_warps=4
    )
    return y
