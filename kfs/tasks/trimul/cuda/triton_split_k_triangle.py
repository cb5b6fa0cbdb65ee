import torch
import torch.nn.functional as F
import triton
import triton.language as tl

SPLITS = 2  # variants: 4, 8


@triton.jit
def split_triangle(left_ptr, right_ptr, out_ptr, s, span, BM: tl.constexpr, BK: tl.constexpr, SPLITS: tl.constexpr):
    plane = (tl.program_id(2) // SPLITS).to(tl.int64) * s * s
    first = tl.program_id(2) % SPLITS * span
    last = tl.minimum(first + span, s)
    i = tl.program_id(0) * BM + tl.arange(0, BM)
    j = tl.program_id(1) * BM + tl.arange(0, BM)
    out = tl.zeros((BM, BM), tl.float32)
    for start in range(first, last, BK):
        k = start + tl.arange(0, BK)
        left = tl.load(left_ptr + plane + i[:, None] * s + k, (i[:, None] < s) & (k < last), other=0.0)
        right = tl.load(right_ptr + plane + j * s + k[:, None], (j < s) & (k[:, None] < last), other=0.0)
        out = tl.dot(left, right, out)
    tl.atomic_add(out_ptr + plane + i[:, None] * s + j, out, (i[:, None] < s) & (j < s))


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    b, s, _, dim = x.shape
    hidden = to_out.shape[1]
    normed = F.layer_norm(x, (dim,), norm_scale, norm_bias).view(b, s * s, dim).mT
    keep = mask.view(b, 1, s * s)
    left = (left_proj @ normed * (left_gate @ normed).sigmoid_()).mul_(keep)
    right = (right_proj @ normed * (right_gate @ normed).sigmoid_()).mul_(keep)
    out = torch.zeros(b, hidden, s, s, device=x.device)
    tiles = triton.cdiv(s, 64)
    split_triangle[(tiles, tiles, b * hidden * SPLITS)](
        left, right, out, s, triton.cdiv(s, SPLITS), BM=64, BK=32, SPLITS=SPLITS, num_warps=4
    )
    out = F.layer_norm(out.permute(0, 2, 3, 1), (hidden,), out_norm_scale, out_norm_bias)
    gate = (out_gate @ normed).sigmoid_().view(b, hidden, s, s).permute(0, 2, 3, 1)
    return F.linear((out * gate).contiguous(), to_out)
