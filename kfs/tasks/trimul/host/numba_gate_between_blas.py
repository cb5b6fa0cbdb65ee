import numpy as np
import torch
import torch.nn.functional as F
from numba import njit

ONE = np.float32(1.0)
HALF = np.float32(0.5)
C1, C2, C3, C4 = np.float32(945.0), np.float32(105.0), np.float32(420.0), np.float32(15.0)


@njit(fastmath=True, error_model="numpy", inline="always")
def sigmoid(z):
    t = HALF * z
    q = t * t
    tanh = t * (C1 + q * (C2 + q)) / (C1 + q * (C3 + q * C4))
    return HALF + HALF * max(min(tanh, ONE), -ONE)


@njit(fastmath=True, error_model="numpy")
def gate_sides(wide, mask, left, right):
    hidden = wide.shape[1] // 4
    for p in range(wide.shape[0]):
        for c in range(hidden):
            left[p, c] = wide[p, c] * mask[p] * sigmoid(wide[p, c + 2 * hidden])
            right[p, c] = wide[p, c + hidden] * mask[p] * sigmoid(wide[p, c + 3 * hidden])


def kernel(
    x, mask, norm_scale, norm_bias, left_proj, right_proj, left_gate, right_gate, out_gate, out_norm_scale, out_norm_bias, to_out
):
    x = F.layer_norm(x, x.shape[-1:], norm_scale, norm_bias)
    wide = torch.mm(x.view(-1, x.shape[-1]), torch.cat([left_proj, right_proj, left_gate, right_gate]).t())
    left = torch.empty(*mask.shape, to_out.shape[1])
    right = torch.empty_like(left)
    gate_sides(wide.numpy(), mask.view(-1).numpy(), left.flatten(0, 2).numpy(), right.flatten(0, 2).numpy())
    out = torch.einsum("bikd,bjkd->bijd", left, right)
    out = F.layer_norm(out, out.shape[-1:], out_norm_scale, out_norm_bias)
    return F.linear(out * torch.sigmoid(F.linear(x, out_gate)), to_out)
