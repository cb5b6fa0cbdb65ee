import numpy as np
import torch
from numba import njit


@njit
def cumsum(x, out):
    rows, cols = x.shape
    for r in range(rows):
        total = np.float32(0.0)
        lost = np.float32(0.0)
        for c in range(cols):
            v = x[r, c] - lost
            following = total + v
            lost = (following - total) - v
            total = following
            out[r, c] = total


def kernel(x):
    out = torch.empty_like(x)
    cumsum(x.numpy(), out.numpy())
    return out
