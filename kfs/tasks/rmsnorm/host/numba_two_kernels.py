import numpy as np
import torch
from numba import njit


@njit(fastmath=True)
def row_scales(x, scales):
    for r in range(x.shape[0]):
        squares = np.float32(0.0)
        for v in x[r]:
            squares += v * v
        scales[r] = np.float32(1.0) / np.sqrt(squares / np.float32(x.shape[1]) + np.float32(1e-6))


@njit
def apply(x, scales, weight, out):
    for r in range(x.shape[0]):
        for c in range(x.shape[1]):
            out[r, c] = x[r, c] * scales[r] * weight[c]


def kernel(x, weight):
    scales = torch.empty(x.shape[0], dtype=x.dtype)
    out = torch.empty_like(x)
    row_scales(x.numpy(), scales.numpy())
    apply(x.numpy(), scales.numpy(), weight.numpy(), out.numpy())
    return out
