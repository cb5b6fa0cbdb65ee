import torch
from numba import njit


@njit
def apply(x, scales, weight, out):
    rows, cols = x.shape
    for r in range(rows):
        scale = scales[r]
        for c in range(cols):
            out[r, c] = x[r, c] * scale * weight[c]


def kernel(x, weight):
    scales = torch.rsqrt(torch.square(x).mean(dim=-1) + 1e-6)
    out = torch.empty_like(x)
    apply(x.numpy(), scales.numpy(), weight.numpy(), out.numpy())
    return out
