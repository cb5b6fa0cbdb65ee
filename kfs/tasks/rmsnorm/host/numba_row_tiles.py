import math

import numpy as np
import torch
from numba import njit

TILE = 16  # variants: 4, 64
F32 = np.float32


@njit(fastmath=True)
def rms_norm(x, weight, out):
    rows, cols = x.shape
    sums = np.empty(TILE, F32)
    for start in range(0, rows, TILE):
        height = min(TILE, rows - start)
        sums[:] = F32(0.0)
        for c in range(cols):
            for k in range(height):
                sums[k] += x[start + k, c] * x[start + k, c]
        for k in range(height):
            scale = F32(1.0) / math.sqrt(sums[k] / F32(cols) + F32(1e-6))
            for c in range(cols):
                out[start + k, c] = x[start + k, c] * scale * weight[c]


def kernel(x, weight):
    out = torch.empty_like(x)
    rms_norm(x.numpy(), weight.numpy(), out.numpy())
    return out
