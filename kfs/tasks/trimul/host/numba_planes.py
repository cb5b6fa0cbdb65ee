import numpy as np
import torch
import torch.nn.functional as F
from numba import njit


@njit(fastmath=True)
def triangle(left, right, out):
    planes, s, _ = left.shape
    for p in range(planes):
        for i in range(s):
            for j in range(s):
                acc = np.float32(0.0)
                for k in range(s):
                    acc += left[p, i, k] * right[p, j, k]
                out[p, i, j] = acc


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    mask = mask.unsqueeze(-1)
    left = F.linear(x, left_proj) * mask * torch.sigmoid(F.linear(x, left_gate))
    right = F.linear(x, right_proj) * mask * torch.sigmoid(F.linear(x, right_gate))
    gate = torch.sigmoid(F.linear(x, out_gate))
    b, s, _, hidden = left.shape
    left = left.permute(0, 3, 1, 2).reshape(-1, s, s)
    right = right.permute(0, 3, 1, 2).reshape(-1, s, s)
    out = torch.empty_like(left)
    triangle(left.numpy(), right.numpy(), out.numpy())
    out = out.view(b, hidden, s, s).permute(0, 2, 3, 1).contiguous()
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear(out * gate, to_out)
