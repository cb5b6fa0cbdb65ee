import numpy as np
import torch
from numba import njit

TILE = 16  # variants: 2, 4, 128


@njit
def cumsum(x, out):
    rows, cols = x.shape
    totals = np.empty(TILE)
    for start in range(0, rows, TILE):
        height = min(TILE, rows - start)
        totals[:] = 0.0
        for c in range(cols):
            for k in range(height):
                totals[k] += x[start + k, c]
                out[start + k, c] = totals[k]


def kernel(x):
    out = torch.empty_like(x)
    cumsum(x.numpy(), out.numpy())
    return out
