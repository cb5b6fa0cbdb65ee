import torch
import torch.nn.functional as F
import triton
import triton.language as tl

BLOCK = 1024  # variants: 256, 4096


@triton.jit
def layer_norm(x_ptr, scale_ptr, bias_ptr, y_ptr, dim, DP: tl.constexpr):
    p = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, DP)
    x = tl.load(x_ptr + p * dim + c, c < dim, other=0.0)
    x = tl.where(c < dim, x - tl.sum(x, 0) / dim, 0.0)
    x *= 1.0 / tl.sqrt(tl.sum(x * x, 0) / dim + 1e-5)
    x = x * tl.load(scale_ptr + c, c < dim, other=0.0) + tl.load(bias_ptr + c, c < dim, other=0.0)
    tl.store(y_ptr + p * dim + c, x, c < dim)


@triton.jit
def gated(x_ptr, gate_ptr, mask_ptr, size, hidden, MASKED: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, at < size, other=0.0) * tl.sigmoid(tl.load(gate_ptr + at, at < size, other=0.0))
    if MASKED:
        x *= tl.load(mask_ptr + at // hidden, at < size, other=0.0)
    tl.store(x_ptr + at, x, at < size)


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden, pixels = to_out.shape[1], b * s * s
    size = pixels * hidden
    normed = torch.empty_like(x)
    layer_norm[(pixels,)](x, norm_scale, norm_bias, normed, dim, DP=triton.next_power_of_2(dim), num_warps=1)
    grid = (triton.cdiv(size, BLOCK),)
    left, right = F.linear(normed, left_proj), F.linear(normed, right_proj)
    gated[grid](left, F.linear(normed, left_gate), mask, size, hidden, MASKED=True, BLOCK=BLOCK)
    gated[grid](right, F.linear(normed, right_gate), mask, size, hidden, MASKED=True, BLOCK=BLOCK)
    out = torch.einsum("bikd,bjkd->bijd", left, right).contiguous()
    final = torch.empty_like(left)
    layer_norm[(pixels,)](out, out_norm_scale, out_norm_bias, final, hidden, DP=triton.next_power_of_2(hidden), num_warps=1)
    gated[grid](final, F.linear(normed, out_gate), mask, size, hidden, MASKED=False, BLOCK=BLOCK)
    return F.linear(final, to_out)
