import torch
import torch.nn.functional as F
from numba import njit

ORDER = "ijkd"  # variants: "ijdk", "kijd", "dijk"


@njit(fastmath=True)
def triangle(left, right, out):
    batch, s, _, hidden = left.shape
    for b in range(batch):
        if ORDER == "ijkd":
            for i in range(s):
                for j in range(s):
                    for k in range(s):
                        for d in range(hidden):
                            out[b, i, j, d] += left[b, i, k, d] * right[b, j, k, d]
        elif ORDER == "ijdk":
            for i in range(s):
                for j in range(s):
                    for d in range(hidden):
                        for k in range(s):
                            out[b, i, j, d] += left[b, i, k, d] * right[b, j, k, d]
        elif ORDER == "kijd":
            for k in range(s):
                for i in range(s):
                    for j in range(s):
                        for d in range(hidden):
                            out[b, i, j, d] += left[b, i, k, d] * right[b, j, k, d]
        else:
            for d in range(hidden):
                for i in range(s):
                    for j in range(s):
                        for k in range(s):
                            out[b, i, j, d] += left[b, i, k, d] * right[b, j, k, d]


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    mask = mask.unsqueeze(-1)
    left = F.linear(x, left_proj) * mask * torch.sigmoid(F.linear(x, left_gate))
    right = F.linear(x, right_proj) * mask * torch.sigmoid(F.linear(x, right_gate))
    gate = torch.sigmoid(F.linear(x, out_gate))
    out = torch.zeros_like(left)
    triangle(left.numpy(), right.numpy(), out.numpy())
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear(out * gate, to_out)
