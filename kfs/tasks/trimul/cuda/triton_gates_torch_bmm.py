import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BP = 64  # variants: 16, 128


@triton.jit
def split_gates(wide_ptr, mask_ptr, left_ptr, right_ptr, pixels, area, hidden, BP: tl.constexpr, BH: tl.constexpr):
    p = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)
    d = tl.program_id(1) * BH + tl.arange(0, BH)
    inside = (p[:, None] < pixels) & (d < hidden)
    row = wide_ptr + p[:, None] * (5 * hidden) + d
    keep = tl.load(mask_ptr + p, p < pixels, other=0.0)[:, None]
    at = ((p // area) * hidden)[:, None] * area + d * area + (p % area)[:, None]
    left = tl.load(row, inside, other=0.0) * tl.sigmoid(tl.load(row + 2 * hidden, inside, other=0.0)) * keep
    tl.store(left_ptr + at, left, inside)
    right = tl.load(row + hidden, inside, other=0.0) * tl.sigmoid(tl.load(row + 3 * hidden, inside, other=0.0)) * keep
    tl.store(right_ptr + at, right, inside)


@triton.jit
def norm_gate(out_ptr, wide_ptr, scale_ptr, bias_ptr, y_ptr, pixels, area, hidden, BP: tl.constexpr, HP: tl.constexpr):
    p = tl.program_id(0).to(tl.int64) * BP + tl.arange(0, BP)
    d = tl.arange(0, HP)
    inside = (p[:, None] < pixels) & (d < hidden)
    at = ((p // area) * hidden)[:, None] * area + d * area + (p % area)[:, None]
    out = tl.load(out_ptr + at, inside, other=0.0)
    out = tl.where(inside, out - (tl.sum(out, 1) / hidden)[:, None], 0.0)
    out *= tl.rsqrt(tl.sum(out * out, 1) / hidden + 1e-5)[:, None]
    out = out * tl.load(scale_ptr + d, d < hidden, other=0.0) + tl.load(bias_ptr + d, d < hidden, other=0.0)
    gate = tl.sigmoid(tl.load(wide_ptr + p[:, None] * (5 * hidden) + 4 * hidden + d, inside, other=0.0))
    tl.store(y_ptr + p[:, None] * hidden + d, out * gate, inside)


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden, pixels, area = to_out.shape[1], b * s * s, s * s
    normed = F.layer_norm(x, (dim,), norm_scale, norm_bias)
    wide = F.linear(normed, torch.cat((left_proj, right_proj, left_gate, right_gate, out_gate)))
    left, right = (torch.empty(b * hidden, s, s, device=x.device) for _ in range(2))
    grid = (triton.cdiv(pixels, BP), triton.cdiv(hidden, 32))
    split_gates[grid](wide, mask, left, right, pixels, area, hidden, BP=BP, BH=32, num_warps=4)
    out = torch.bmm(left, right.mT)
    gated = torch.empty(b, s, s, hidden, device=x.device)
    norm_gate[(triton.cdiv(pixels, BP),)](
        out,
        wide,
        out_norm_scale,
        out_norm_bias,
        gated,
        pixels,
        area,
        hidden,
        BP=BP,
        HP=triton.next_power_of_2(hidden),
        num_warps=8,
    )
    return F.linear(gated, to_out)
