import math

import torch
from numba import njit


@njit
def recompute(x, out):
    rows, cols = x.shape
    for r in range(rows):
        peak = x[r].max()
        total = 0.0
        for c in range(cols):
            total += math.exp(x[r, c] - peak)
        for c in range(cols):
            out[r, c] = math.exp(x[r, c] - peak) / total


def kernel(x):
    out = torch.empty_like(x)
    recompute(x.numpy(), out.numpy())
    return out
