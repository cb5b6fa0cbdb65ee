import numpy as np
import torch
from numba import njit


@njit(fastmath=True)
def rms_norm(x, weight, out):
    rows, cols = x.shape
    scale = np.zeros(rows, np.float32)
    for c in range(cols):
        for r in range(rows):
            scale[r] += x[r, c] * x[r, c]
    for r in range(rows):
        scale[r] = np.float32(1.0) / np.sqrt(scale[r] / np.float32(cols) + np.float32(1e-6))
    for c in range(cols):
        for r in range(rows):
            out[r, c] = x[r, c] * scale[r] * weight[c]


def kernel(x, weight):
    out = torch.empty_like(x)
    rms_norm(x.numpy(), weight.numpy(), out.numpy())
    return out
