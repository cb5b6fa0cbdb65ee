import numpy as np
import torch
from numba import njit


@njit(fastmath=True)
def exp_series(v):
    reduced = max(v, -90.0) / 256.0
    term = 1.0
    total = 1.0
    for k in range(1, 9):
        term *= reduced / k
        total += term
    for _ in range(8):
        total *= total
    return total


@njit(fastmath=True)
def softmax(x, out):
    rows, cols = x.shape
    weights = np.empty(cols)
    for r in range(rows):
        peak = float(x[r].max())
        total = 0.0
        for c in range(cols):
            weights[c] = exp_series(x[r, c] - peak)
            total += weights[c]
        for c in range(cols):
            out[r, c] = weights[c] / total


def kernel(x):
    out = torch.empty_like(x)
    softmax(x.numpy(), out.numpy())
    return out
