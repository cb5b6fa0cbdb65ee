import math

import numpy as np
import torch
import torch.nn.functional as F
from numba import njit

ONE = np.float32(1.0)


@njit(fastmath=True, error_model="numpy")
def gated_triangle(left, right, left_gate, right_gate, mask, out):
    batch, s, _, hidden = left.shape
    for b in range(batch):
        for i in range(s):
            for j in range(s):
                for k in range(s):
                    keep = mask[b, i, k] * mask[b, j, k]
                    for d in range(hidden):
                        gates = (ONE + math.exp(-left_gate[b, i, k, d])) * (ONE + math.exp(-right_gate[b, j, k, d]))
                        out[b, i, j, d] += left[b, i, k, d] * right[b, j, k, d] * keep / gates


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    sides = [F.linear(x, weight).numpy() for weight in (left_proj, right_proj, left_gate, right_gate)]
    gate = torch.sigmoid(F.linear(x, out_gate))
    out = torch.zeros_like(gate)
    gated_triangle(*sides, mask.numpy(), out.numpy())
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear(out * gate, to_out)
